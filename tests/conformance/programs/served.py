"""A model behind the APIs of OpenAI, Anthropic and Google, and the tools that it calls."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.conformance.programs.corpus import (
    OTHER_WORDS,
    PAGES,
    Page,
    Turn,
    rank,
    seen,
    turns,
)
from tests.conformance.programs.running import Run

NOTHING: Final = ("chain limit gears", "brake dust rim")
"""Queries for which the programs named empty find nothing."""


@dataclass(frozen=True)
class Call:
    """A tool call of the model."""

    id: str
    name: str
    arguments: dict[str, Any]


Answer = str | list[Call]
Messages = Sequence[tuple[str, str]]


def _objects(pages: Sequence[tuple[Page, float]]) -> list[dict[str, Any]]:
    return [{"id": p.id, "text": p.text, "url": p.url, "score": s} for p, s in pages]


def _headed(pages: Sequence[tuple[Page, float]]) -> str:
    return "\n\n".join(
        f"Result {place}:\nTitle: {page.title}\nURL: {page.url}\nContent: {page.text}"
        for place, (page, _) in enumerate(pages, 1)
    )


FORMS: Final[dict[str, Callable[[Sequence[tuple[Page, float]]], Any]]] = {
    "tool": lambda pages: json.dumps(_objects(pages)),
    "objects": _objects,
    "envelope": lambda pages: {"results": _objects(pages), "total": len(pages)},
    "headed": _headed,
    "texttool": lambda pages: "\n\n".join(page.text for page, _ in pages),
}
FORMS["innocent"] = FORMS["texttool"]
FORMS |= dict.fromkeys(("partool", "empty", "skip", "memory", "other", "stream"), FORMS["tool"])


AGENTS: Final = ("subagent", "sequence")
"""Scenarios with two agents: one is a tool of the other, or they follow each other."""
RESPONSES: Final = ("responses", "resppartool", "chained")
"""Scenarios of OpenAI's newer API; chained leaves the history to the host."""
FORMS |= dict.fromkeys((*AGENTS, *RESPONSES), FORMS["tool"])
SCENARIOS: Final = [name for name in FORMS if name not in (*AGENTS, *RESPONSES, "stream")]
MCP: Final = ("mcp", "mcptext")
"""Scenarios whose tool is that of a server of the Model Context Protocol."""
_RETURNED: Final = {"objects": list[dict[str, Any]], "envelope": dict[str, Any]}


def found(scenario: str, query: str, tool: str = "search_handbook") -> Any:
    """What a tool of a scenario returns."""
    if tool == "list_orders":
        return json.dumps({"orders": [{"number": 17, "item": "two chains", "state": "sent"}]})
    if tool == "search_store":
        query = OTHER_WORDS.get(query.split()[0], "lights")
    pages = [] if scenario == "empty" and query in NOTHING else rank(query, PAGES)
    return FORMS[scenario](pages)


def search_tool(scenario: str, name: str = "search_handbook") -> Callable[[str], Any]:
    """The search tool of a scenario as a function."""

    def search(query: str):  # type: ignore[no-untyped-def]
        """Search the handbook.

        Args:
            query: What to look for.
        """
        return found(scenario, query, name)

    search.__name__ = name
    if name == "consult":
        search.__doc__ = "Ask Anna.\n\nArgs:\n    query: What to ask.\n"
    search.__annotations__ = {"query": str, "return": _RETURNED.get(scenario, str)}
    return search


def list_orders(customer: str) -> str:
    """List the orders of a customer.

    Args:
        customer: Whose orders to list.
    """
    return str(found("", customer, "list_orders"))


def tools(run: Run, scenario: str) -> list[Callable[[str], Any]]:
    """The tools of a scenario as functions."""
    run.skipping = scenario == "skip"
    if scenario == "innocent":
        return [search_tool(scenario, "consult")]
    store = [search_tool(scenario, "search_store")]
    beside = {"partool": store, "resppartool": store, "other": [list_orders]}
    return [search_tool(scenario), *beside.get(scenario, ())]


def schemas(tools: Sequence[Callable[[str], Any]]) -> list[dict[str, Any]]:
    """The tools as models' APIs are told them."""
    return [
        {
            "name": one.__name__,
            "description": (one.__doc__ or "").split("\n")[0],
            "parameters": {
                "type": "object",
                "properties": {name: {"type": "string"}},
                "required": [name],
            },
        }
        for one in tools
        for name in [next(iter(one.__annotations__))]
    ]


def of_scenarios(
    program: Callable[[Run, str, list[Any]], Any], more: Sequence[str] = ()
) -> dict[str, Any]:
    """A framework's programs of all scenarios; they differ in their tools."""
    return {
        scenario: lambda run, scenario=scenario: program(run, scenario, tools(run, scenario))
        for scenario in (*SCENARIOS, *more)
    }


def _argument(schema: Any) -> str:
    """The first argument in a tool's schema."""
    return next(iter((schema or {}).get("properties") or ()), "query")


def _message_events(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message of Anthropic's API as a stream."""
    yield {"type": "message_start", "message": {**body, "content": [], "stop_reason": None}}
    for index, block in enumerate(body["content"]):
        if block["type"] == "text":
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            given = json.dumps(block["input"])
            delta = {"type": "input_json_delta", "partial_json": given}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": body["usage"]}
    yield {"type": "message_stop"}


class Served:
    """A server in this process; its model keeps the account of what its caller found."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._answers = 0
        self.kept: dict[str, list[dict[str, Any]]] = {}
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = urlsplit(self.path).path
                if path.endswith("/chat/completions"):
                    self._completion(asked)
                elif path.endswith("/responses"):
                    self._response(asked)
                elif path.endswith("/messages"):
                    self._message(asked)
                else:
                    self._content(asked, path.endswith("streamGenerateContent"))

            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                self._json(found(*(asked[name][0] for name in ("scenario", "query", "tool"))))

            def _completion(self, asked: dict[str, Any]) -> None:
                given = [(each["role"], json.dumps(each)) for each in asked["messages"]]
                names = {
                    one["function"]["name"]: _argument(one["function"].get("parameters"))
                    for one in asked.get("tools") or ()
                }
                answer = served.answer(given, names)
                message: dict[str, Any] = {"role": "assistant", "content": None}
                if isinstance(answer, str):
                    message["content"] = answer
                else:
                    message["tool_calls"] = [
                        {
                            "index": place,
                            "id": one.id,
                            "type": "function",
                            "function": {
                                "name": one.name,
                                "arguments": json.dumps(one.arguments),
                            },
                        }
                        for place, one in enumerate(answer)
                    ]
                end = "stop" if isinstance(answer, str) else "tool_calls"
                body = {"id": served.id(), "created": 0, "model": "script"}
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                if asked.get("stream"):
                    body["object"] = "chat.completion.chunk"
                    self._events(
                        {**body, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
                        for delta, reason in ((message, None), ({}, end))
                    )
                    return
                for one in message.get("tool_calls", ()):
                    del one["index"]
                choice = {"index": 0, "message": message, "finish_reason": end}
                self._json(
                    {**body, "object": "chat.completion", "choices": [choice], "usage": usage}
                )

            def _response(self, asked: dict[str, Any]) -> None:
                before = served.kept.get(asked.get("previous_response_id"), [])
                asked_now = asked["input"]
                if isinstance(asked_now, str):
                    asked_now = [{"role": "user", "content": asked_now}]
                items = [*before, *asked_now]
                given: list[tuple[str, str]] = []
                for item in items:
                    called = item.get("type") == "function_call"
                    role = "assistant" if called else item.get("role", "tool")
                    if called and given and given[-1][0] == "assistant":
                        continue  # calls of one answer
                    given.append((role, json.dumps(item)))
                names = {
                    one["name"]: _argument(one["parameters"]) for one in asked.get("tools") or ()
                }
                answer = served.answer(given, names)
                if isinstance(answer, str):
                    text = {"type": "output_text", "text": answer, "annotations": []}
                    output: list[dict[str, Any]] = [
                        {
                            "type": "message",
                            "id": "m",
                            "role": "assistant",
                            "status": "completed",
                            "content": [text],
                        }
                    ]
                else:
                    output = [
                        {
                            "type": "function_call",
                            "id": f"item-{one.id}",
                            "call_id": one.id,
                            "name": one.name,
                            "arguments": json.dumps(one.arguments),
                            "status": "completed",
                        }
                        for one in answer
                    ]
                id = served.id()
                served.kept[id] = [*items, *output]
                self._json(
                    {
                        "id": id,
                        "object": "response",
                        "created_at": 0,
                        "model": "script",
                        "status": "completed",
                        "output": output,
                        "parallel_tool_calls": True,
                        "tool_choice": "auto",
                        "tools": [],
                    }
                )

            def _message(self, asked: dict[str, Any]) -> None:
                given = [(each["role"], json.dumps(each)) for each in asked["messages"]]
                names = {
                    one["name"]: _argument(one["input_schema"]) for one in asked.get("tools") or ()
                }
                answer = served.answer(given, names)
                if isinstance(answer, str):
                    content: list[dict[str, Any]] = [{"type": "text", "text": answer}]
                else:
                    content = [
                        {"type": "tool_use", "id": one.id, "name": one.name, "input": one.arguments}
                        for one in answer
                    ]
                body: dict[str, Any] = {
                    "id": served.id(),
                    "type": "message",
                    "role": "assistant",
                    "model": "script",
                    "content": content,
                    "stop_reason": "end_turn" if isinstance(answer, str) else "tool_use",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 1, "output_tokens": 1},
                }
                if asked.get("stream"):
                    self._events(_message_events(body), end="")
                else:
                    self._json(body)

            def _content(self, asked: dict[str, Any], streams: bool) -> None:
                roles = {"model": "assistant"}
                given = [
                    (roles.get(each.get("role"), "user"), json.dumps(each))
                    for each in asked["contents"]
                ]
                names = {
                    one["name"]: _argument(
                        next((one[key] for key in one if key.startswith("parameters")), None)
                    )
                    for each in asked.get("tools") or ()
                    for one in each.get("functionDeclarations", ())
                }
                answer = served.answer(given, names)
                parts: list[dict[str, Any]] = (
                    [{"text": answer}]
                    if isinstance(answer, str)
                    else [
                        {"functionCall": {"name": one.name, "args": one.arguments}}
                        for one in answer
                    ]
                )
                content = {"role": "model", "parts": parts}
                body = {
                    "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
                    "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2},
                    "modelVersion": "script",
                    "responseId": served.id(),
                }
                if streams:
                    self._events([body], end="")
                else:
                    self._json(body)

            def _json(self, value: Any) -> None:
                self._send("application/json", json.dumps(value))

            def _events(self, values: Iterable[Any], end: str = "data: [DONE]\n\n") -> None:
                lines = "".join(
                    f"event: {value.get('type', 'message')}\ndata: {json.dumps(value)}\n\n"
                    for value in values
                )
                self._send("text/event-stream", lines + end)

            def _send(self, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{server.server_port}"

    def id(self) -> str:
        """The id of an answer: LangGraph replaces messages that have one id."""
        self._answers += 1
        return f"answer-{self._answers}"

    def answer(self, messages: Messages, tools: Mapping[str, str]) -> Answer:
        """What the model says.

        Args:
            messages: Their roles and what they contain, in any form.
            tools: The argument of each tool.
        """
        turn, place = self._asked(messages)
        since = messages[place + 1 :]
        answers = [at for at, (role, _) in enumerate(since) if role == "assistant"]
        rounds = len(answers)
        said = f"That is all about {turn.question}"
        end = "final_answer" in tools
        done: Answer = [Call("final", "final_answer", {"answer": said})] if end else said
        bare = {re.split("-|__", name)[-1]: name for name in tools}  # without plugin or server
        calls = [bare[name] for name in bare if name.startswith(("search_", "list_", "consult"))]
        if not calls and (inner := bare.get("research") or bare.get("Agent")):
            if any(said in text for _, text in messages):
                return done
            told = {tools[inner]: turn.question}
            if inner == "Agent":
                told = {"subagent_type": "research", "description": "Ask.", "prompt": turn.question}
            return [Call(f"ask-{turn.number}", inner, told)]
        if not calls:
            return done
        if 0 < rounds <= len(turn.searches):
            given = "".join(text for _, text in since[answers[-1] + 1 :])
            self._got(turn, rounds, seen(given, self.run.pages))
        if rounds >= len(turn.searches):
            return done
        return [
            Call(
                f"call-{turn.session}-{turn.number}-{rounds + 1}-{at}",
                name,
                {tools[name]: "Ada" if name.endswith("list_orders") else turn.searches[rounds]},
            )
            for at, name in enumerate(calls)
        ]

    def _got(self, turn: Turn, iteration: int, ids: list[str]) -> None:
        """Once each: frameworks ask again where they do not like an answer."""
        if all(row[:3] != (turn.session, turn.number, iteration) for row in self.run.account.rows):
            self.run.account.got(turn, iteration, ids)

    def _asked(self, messages: Messages) -> tuple[Turn, int]:
        """The turn of the last question, and the place of its message."""
        known = list(turns(self.run.skipping))
        return next(
            (max(asked, key=lambda turn: text.rfind(turn.question)), at)
            for asking in ("user", "assistant")  # an agent may be told only what another said
            for at, (role, text) in reversed(list(enumerate(messages)))
            if role == asking and (asked := [turn for turn in known if turn.question in text])
        )
