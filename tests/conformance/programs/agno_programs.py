"""Agents of Agno."""

from __future__ import annotations

from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = False
    model = OpenAIChat("script", base_url=f"{Served(run).address}/v1", api_key="key")
    agent = Agent(
        name="workshop",
        model=model,
        tools=tools,
        db=InMemoryDb(),
        add_history_to_context=scenario == "memory",
        telemetry=False,
    )

    if scenario == "subagent":
        inner = agent

        def research(question: str) -> str:
            """Ask the researcher."""
            return str(inner.run(question).content)

        agent = Agent(name="desk", model=model, tools=[research], telemetry=False)

    def ask(turn: Turn) -> None:
        agent.run(turn.question, session_id=turn.session)

    return ask


if __name__ == "__main__":
    main("agno", of_scenarios(program, ("subagent",)))
