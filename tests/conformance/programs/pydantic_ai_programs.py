"""Agents of pydantic-ai."""

from __future__ import annotations

from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.mcp_server import command
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import MCP, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = False
    provider = OpenAIProvider(base_url=f"{Served(run).address}/v1", api_key="key")
    sets = []
    if scenario.startswith("mcp"):
        sets, tools = [MCPToolset(StdioTransport(**command(scenario)))], []
    model = OpenAIChatModel("script", provider=provider)
    agent = Agent(model, name="workshop", tools=tools, toolsets=sets)
    if scenario == "subagent":
        inner = agent

        async def research(question: str) -> str:
            """Ask the researcher."""
            return str((await inner.run(question)).output)

        agent = Agent(model, name="desk", tools=[research])
    Agent.instrument_all()
    said: dict[str, Any] = {}

    def ask(turn: Turn) -> None:
        history = said.get(turn.session) if scenario == "memory" else None
        answer = agent.run_sync(
            turn.question, message_history=history, conversation_id=turn.session
        )
        said[turn.session] = answer.all_messages()

    return ask


if __name__ == "__main__":
    main("pydantic_ai", of_scenarios(program, (*MCP, "subagent")))
