"""Loops over Google's API of Gemini, without a framework."""

from __future__ import annotations

from typing import Any

from google import genai
from google.genai import types

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run, main
from tests.conformance.programs.served import Served, of_scenarios, schemas


def program(run: Run, scenario: str, tools: list[Any]) -> Any:
    run.rooted = True
    client = genai.Client(
        api_key="key", http_options=types.HttpOptions(base_url=Served(run).address)
    )
    offered = [
        types.FunctionDeclaration(
            name=one["name"],
            description=one["description"],
            parameters_json_schema=one["parameters"],
        )
        for one in schemas(tools)
    ]
    config = types.GenerateContentConfig(
        tools=[types.Tool(function_declarations=offered)],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    by_name = {one.__name__: one for one in tools}
    said: dict[str, list[Any]] = {}

    def ask(turn: Turn) -> None:
        history = said.setdefault(turn.session, []) if scenario == "memory" else []
        history.append(types.Content(role="user", parts=[types.Part(text=turn.question)]))
        while True:
            answer = client.models.generate_content(
                model="gemini-2.5-flash", contents=history, config=config
            )
            history.append(answer.candidates[0].content)
            results = []
            for call in answer.function_calls or ():
                found = by_name[call.name](**call.args)
                results.append(
                    types.Part.from_function_response(name=call.name, response={"result": found})
                )
            if not results:
                return
            history.append(types.Content(role="user", parts=results))

    return ask


if __name__ == "__main__":
    main("google_genai", of_scenarios(program))
