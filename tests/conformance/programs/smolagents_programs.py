"""Agents of smolagents."""

from __future__ import annotations

from typing import Any

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    address = f"{Served(run).address}/v1"
    model = OpenAIServerModel("script", api_base=address, api_key="key")
    agents: dict[str, Any] = {}

    def ask(turn: Turn) -> None:
        agent = agents.get(turn.session) if scenario == "memory" else None
        agent = agent or ToolCallingAgent([tool(one) for one in tools], model, name="workshop")
        agents[turn.session] = agent
        if scenario == "subagent":
            agent.name, agent.description = "research", "It searches the handbook."
            agent = ToolCallingAgent([], model, managed_agents=[agent], name="desk")
        agent.run(turn.question, reset=scenario != "memory")

    return ask


if __name__ == "__main__":
    main("smolagents", of_scenarios(program, ("subagent",)))
