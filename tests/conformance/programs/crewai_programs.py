"""Crews of CrewAI."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    address = f"{Served(run).address}/v1"
    model = LLM(model="openai/gpt-4o", base_url=address, api_key="key")
    agent = Agent(
        role="workshop",
        goal="Answer questions",
        backstory="You know the handbook.",
        llm=model,
        tools=[tool(one) for one in tools],
    )

    def ask(turn: Turn) -> None:
        task = Task(description="{question}", expected_output="An answer", agent=agent)
        agents, tasks = [agent], [task]
        if scenario == "sequence":
            writer = Agent(role="writer", goal="Write", backstory="You write.", llm=model)
            agents.append(writer)
            what = "Write it down: {question}"
            tasks.append(Task(description=what, expected_output="A text", agent=writer))
        Crew(agents=agents, tasks=tasks).kickoff({"question": turn.question})

    return ask


if __name__ == "__main__":
    main("crewai", of_scenarios(program, ("sequence",)))
