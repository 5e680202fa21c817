"""Agents of Microsoft's Agent Framework."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework.observability import enable_instrumentation
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework.orchestrations import SequentialBuilder

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import AGENTS, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    enable_instrumentation(enable_sensitive_data=True)
    address = f"{Served(run).address}/v1"
    client = OpenAIChatCompletionClient(model="script", base_url=address, api_key="key")
    agent = client.as_agent(name="workshop", instructions="Look it up.", tools=tools)
    if scenario == "subagent":
        inner = agent.as_tool(name="research", description="Ask the researcher.")
        agent = client.as_agent(name="desk", instructions="Ask.", tools=[inner])
    if scenario == "sequence":
        writer = client.as_agent(name="writer", instructions="Write it.")
        flow = SequentialBuilder(participants=[agent, writer]).build()
        return lambda turn: asyncio.run(flow.run(turn.question))
    sessions: dict[str, Any] = {}

    async def asked(turn: Turn) -> None:
        session = sessions.setdefault(turn.session, agent.create_session())
        await agent.run(turn.question, session=session if scenario == "memory" else None)

    return lambda turn: asyncio.run(asked(turn))


if __name__ == "__main__":
    main("agent_framework", of_scenarios(program, AGENTS))
