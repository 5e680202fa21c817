"""Loops over OpenAI's API, without a framework."""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import RESPONSES, Served, of_scenarios, schemas


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    client = OpenAI(base_url=f"{Served(run).address}/v1", api_key="key")
    offered = [{"type": "function", "function": one} for one in schemas(tools)]
    by_name = {one.__name__: one for one in tools}
    said: dict[str, list[Any]] = {}

    def said_by_model(history: list[Any]) -> Any:
        asked = {"model": "script", "messages": history, "tools": offered}
        if scenario != "stream":
            return client.chat.completions.create(**asked).choices[0].message
        chunks = [*client.chat.completions.create(**asked, stream=True)]
        return chunks[0].choices[0].delta  # the server sends all of it at once

    def respond(turn: Turn) -> None:
        given = [{"role": "user", "content": turn.question}]
        before = None
        while True:
            answer = client.responses.create(
                model="script",
                input=given,
                tools=[{"type": "function", **one["function"]} for one in offered],
                **({"previous_response_id": before} if before else {}),
            )
            calls = [one for one in answer.output if one.type == "function_call"]
            if not calls:
                return
            if scenario == "chained":
                before, given = answer.id, []
            given += [one.model_dump() for one in answer.output if not before]
            for call in calls:
                found = by_name[call.name](**json.loads(call.arguments))
                given.append(
                    {"type": "function_call_output", "call_id": call.call_id, "output": found}
                )

    def ask(turn: Turn) -> None:
        history = said.setdefault(turn.session, []) if scenario == "memory" else []
        history.append({"role": "user", "content": turn.question})
        while True:
            answer = said_by_model(history)
            history.append(answer.model_dump(exclude_none=True))
            if not answer.tool_calls:
                return
            for call in answer.tool_calls:
                found = by_name[call.function.name](**json.loads(call.function.arguments))
                text = found if isinstance(found, str) else json.dumps(found)
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})

    return respond if scenario in RESPONSES else ask


if __name__ == "__main__":
    main("openai", of_scenarios(program, (*RESPONSES, "stream")))
