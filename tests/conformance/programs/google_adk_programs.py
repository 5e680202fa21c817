"""Agents of Google's Agent Development Kit."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from google.adk.agents import Agent, SequentialAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import AGENTS, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = False
    os.environ |= {"GOOGLE_API_KEY": "key", "GOOGLE_GEMINI_BASE_URL": Served(run).address}
    agent = Agent(name="workshop", model="gemini-2.5-flash", tools=tools)
    if scenario == "subagent":
        inner = Agent(name="research", model=agent.model, tools=tools, description="It searches.")
        agent = Agent(name="desk", model=agent.model, tools=[AgentTool(agent=inner)])
    if scenario == "sequence":
        writer = Agent(name="writer", model=agent.model)
        agent = SequentialAgent(name="desk", sub_agents=[agent, writer])
    runner = InMemoryRunner(agent, app_name="workshop")
    known: set[str] = set()

    async def asked(turn: Turn) -> None:
        of = {"app_name": "workshop", "user_id": "Ada", "session_id": turn.session}
        if turn.session not in known:
            known.add(turn.session)
            await runner.session_service.create_session(**of)
        said = types.Content(role="user", parts=[types.Part(text=turn.question)])
        async for _ in runner.run_async(user_id="Ada", session_id=turn.session, new_message=said):
            pass

    return lambda turn: asyncio.run(asked(turn))


if __name__ == "__main__":
    main("google_adk", of_scenarios(program, AGENTS))
