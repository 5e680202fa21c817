"""Agents of AutoGen."""

from __future__ import annotations

import asyncio
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import AGENTS, Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    client = OpenAIChatCompletionClient(
        model="script",
        base_url=f"{Served(run).address}/v1",
        api_key="key",
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": False,
            "structured_output": False,
            "family": "unknown",
        },
    )

    def agent(name: str, tools: list[Any]) -> AssistantAgent:
        return AssistantAgent(name, client, tools=tools, max_tool_iterations=9)

    def team() -> Any:
        if scenario == "subagent":
            return agent("desk", [AgentTool(agent("research", tools))])
        if scenario == "sequence":
            return RoundRobinGroupChat([agent("workshop", tools), agent("writer", [])], max_turns=2)
        return agent("workshop", tools)

    teams: dict[str, Any] = {}

    def ask(turn: Turn) -> None:
        asked = teams.setdefault(turn.session, team()) if scenario == "memory" else team()
        asyncio.run(asked.run(task=turn.question))

    return ask


if __name__ == "__main__":
    main("autogen", of_scenarios(program, AGENTS))
