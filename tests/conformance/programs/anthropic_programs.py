"""Loops over Anthropic's API, without a framework."""

from __future__ import annotations

import json
from typing import Any

from anthropic import Anthropic

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios, schemas


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    client = Anthropic(base_url=Served(run).address, api_key="key")
    offered = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
        for one in schemas(tools)
    ]
    by_name = {one.__name__: one for one in tools}
    said: dict[str, list[Any]] = {}

    def ask(turn: Turn) -> None:
        history = said.setdefault(turn.session, []) if scenario == "memory" else []
        history.append({"role": "user", "content": turn.question})
        while True:
            answer = client.messages.create(
                model="script", max_tokens=100, messages=history, tools=offered
            )
            history.append(
                {"role": "assistant", "content": [one.model_dump() for one in answer.content]}
            )
            results = []
            for call in (one for one in answer.content if one.type == "tool_use"):
                found = by_name[call.name](**call.input)
                text = found if isinstance(found, str) else json.dumps(found)
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": text})
            if not results:
                return
            history.append({"role": "user", "content": results})

    return ask


if __name__ == "__main__":
    main("anthropic", of_scenarios(program))
