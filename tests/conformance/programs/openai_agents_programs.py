"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agents import (
    Agent,
    FileSearchTool,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    handoff,
    trace,
)
from agents.models.interface import Model
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseFileSearchToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tests.conformance.programs.corpus import (
    CHUNKS,
    OTHER_WORDS,
    PAGES,
    SHELVES,
    Page,
    Turn,
    by_question,
    rank,
    seen,
)
from tests.conformance.programs.running import Run, main


class Script(Model):
    """Calls tools as the script of the question says, and then answers."""

    def __init__(self, run: Run, parallel: bool = True) -> None:
        self.run = run

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **_: Any,
    ) -> ModelResponse:
        return ModelResponse(
            output=self.items(input, [one.name for one in tools], handoffs),
            usage=Usage(),
            response_id="r",
        )

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def items(self, input: Any, tools: list[str], handoffs: Any) -> list[Any]:
        run = self.run
        parts = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        last = max(i for i, one in enumerate(parts) if one.get("role") == "user")
        question = str(parts[last]["content"])
        rest = parts[last + 1 :]
        if handoffs:
            return [
                ResponseFunctionToolCall(
                    id="h",
                    call_id="h",
                    type="function_call",
                    name=handoffs[0].tool_name,
                    arguments="{}",
                )
            ]
        if run.outer_tools and tuple(tools) == run.outer_tools:
            if any(one.get("type") == "function_call_output" for one in rest):
                return [_said("The researcher says so.")]
            return [_call("o", tools[0], {"input": question})]
        turn = by_question(question, run.skipping)
        outputs = [
            one
            for one in rest
            if one.get("type") == "function_call_output" and str(one["call_id"]).startswith("call-")
        ]
        rounds = len({str(one["call_id"]).split("-")[1] for one in outputs})
        if rounds:
            given = "".join(
                str(one["output"])
                for one in outputs
                if str(one["call_id"]).startswith(f"call-{rounds}-")
            )
            run.account.got(turn, rounds, seen(given, run.pages))
        if rounds == len(turn.searches):
            return [_said(f"That is all about {question}")]
        return [
            _call(f"call-{rounds + 1}-{place}", name, {"query": turn.searches[rounds]})
            for place, name in enumerate(tools)
        ]


def _said(text: str) -> ResponseOutputMessage:
    return ResponseOutputMessage(
        id="m",
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputText(text=text, type="output_text", annotations=[])],
    )


def _call(id: str, name: str, arguments: dict[str, Any]) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=id, call_id=id, type="function_call", name=name, arguments=json.dumps(arguments)
    )


def _as_json(query: str, pages: Sequence[Page] = PAGES, k: int = 3) -> str:
    return json.dumps(
        [{"id": p.id, "text": p.text, "url": p.url, "score": s} for p, s in rank(query, pages, k)]
    )


def of_agent(run: Run, agent: Any) -> Any:
    """A run of the agent for each turn."""

    async def asked(turn: Turn) -> None:
        group = None if "nosession" in run.variants else turn.session
        await Runner.run(
            agent,
            turn.question,
            run_config=RunConfig(workflow_name="workshop", group_id=group),
            max_turns=20,
        )

    return lambda turn: asyncio.run(asked(turn))


def _tool(search: Any, name: str = "search_handbook") -> Any:
    async def found(query: str) -> Any:
        """Search the handbook."""
        return search(query)

    return function_tool(found, name_override=name)


def _agent(run: Run, *tools: Any, name: str = "workshop", **options: Any) -> Agent[Any]:
    return Agent(
        name=name, instructions="Look it up.", model=Script(run), tools=list(tools), **options
    )


def plain(run: Run) -> Any:
    return of_agent(run, _agent(run, _tool(_as_json)))


def objects(run: Run) -> Any:
    """The tool returns objects, of which the SDK makes a text."""
    return of_agent(
        run,
        _agent(
            run, _tool(lambda query: [{"id": p.id, "text": p.text} for p, _ in rank(query, PAGES)])
        ),
    )


def texts(run: Run) -> Any:
    """The tool returns a text of which only its name tells that it searches."""
    return of_agent(
        run, _agent(run, _tool(lambda query: "\n\n".join(p.text for p, _ in rank(query, PAGES))))
    )


def envelope(run: Run) -> Any:
    return of_agent(
        run,
        _agent(
            run,
            _tool(
                lambda query: json.dumps(
                    {
                        "query": query,
                        "results": [
                            {"chunk_id": p.id, "content": p.text} for p, _ in rank(query, PAGES)
                        ],
                    }
                )
            ),
        ),
    )


def chunks(run: Run) -> Any:
    run.pages = CHUNKS
    return of_agent(run, _agent(run, _tool(lambda query: _as_json(query, CHUNKS, 4))))


def no_ids(run: Run) -> Any:
    return of_agent(
        run,
        _agent(
            run,
            _tool(
                lambda query: json.dumps(
                    [{"text": p.text, "title": p.title} for p, _ in rank(query, PAGES)]
                )
            ),
        ),
    )


def wide(run: Run) -> Any:
    run.pages = SHELVES
    return of_agent(run, _agent(run, _tool(lambda query: _as_json(query, SHELVES, 80))))


def parallel(run: Run) -> Any:
    other = _tool(
        lambda query: _as_json(OTHER_WORDS.get(query.split()[0], "lights"), PAGES), "search_store"
    )
    return of_agent(run, _agent(run, _tool(_as_json), other))


def handed_off(run: Run) -> Any:
    """An agent hands the question to another."""
    return of_agent(run, _agent(run, name="desk", handoffs=[handoff(_agent(run, _tool(_as_json)))]))


def as_tool(run: Run) -> Any:
    """An agent is the tool of another."""
    inner = _agent(run, _tool(_as_json), name="researcher")
    run.outer_tools = ("research",)
    return of_agent(
        run,
        _agent(run, inner.as_tool(tool_name="research", tool_description="Ask the researcher.")),
    )


def skip(run: Run) -> Any:
    run.skipping = True
    return plain(run)


def session(run: Run) -> Any:
    """All turns of a session are in one trace of the SDK's."""
    run.rooted = False
    agent = _agent(run, _tool(_as_json))
    waiting: dict[str, list[Turn]] = {}

    async def asked(turns: list[Turn]) -> None:
        with trace("workshop", group_id=turns[0].session):
            for turn in turns:
                await Runner.run(agent, turn.question, max_turns=20)

    def ask(turn: Turn) -> None:
        waiting.setdefault(turn.session, []).append(turn)
        if len(waiting[turn.session]) == {"sess-A": 2, "sess-B": 1}[turn.session]:
            asyncio.run(asked(waiting[turn.session]))

    return ask


def served(run: Run, items: Any) -> OpenAIResponsesModel:
    """The SDK's own model, whose API a server in this process answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tools = [one.get("name", one["type"]) for one in asked.get("tools", [])]
            answer = Response(
                id="r",
                created_at=0,
                model="script",
                object="response",
                output=items(asked["input"], tools, []),
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
            )
            body = answer.model_dump_json().encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    client = AsyncOpenAI(base_url=address, api_key="key", max_retries=0)
    return OpenAIResponsesModel(model="script", openai_client=client)


def responses(run: Run) -> Any:
    """The model is the SDK's own, so that model calls have spans."""
    agent = _agent(run, _tool(_as_json), name="workshop")
    agent.model = served(run, Script(run).items)
    return of_agent(run, agent)


def file_search(run: Run) -> Any:
    """The model's host searches, beside a tool that does: one model call, so one iteration."""

    def items(given: Any, tools: list[str], handoffs: Any) -> list[Any]:
        parts = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        question = str([one for one in parts if one.get("role") == "user"][-1]["content"])
        turn = by_question(question)
        out: list[Any] = []
        for step, query in enumerate(turn.searches, 1):
            found = rank(query, PAGES)
            run.account.got(turn, 1, [page.id for page, _ in found])
            results = [
                {"file_id": page.id, "filename": page.title, "score": score, "text": page.text}
                for page, score in found
            ]
            out.append(
                ResponseFileSearchToolCall(
                    id=f"fs{step}",
                    queries=[query],
                    status="completed",
                    type="file_search_call",
                    results=results,
                )
            )
        return [*out, _said("So it is.")]

    tool = FileSearchTool(vector_store_ids=["v"], include_search_results=True)
    return of_agent(
        run, Agent(name="workshop", instructions="x", model=served(run, items), tools=[tool])
    )


PROGRAMS = {
    "tool": plain,
    "responses": responses,
    "objects": objects,
    "texttool": texts,
    "envelope": envelope,
    "chunks": chunks,
    "noid": no_ids,
    "wide": wide,
    "partool": parallel,
    "handoff": handed_off,
    "subagent": as_tool,
    "skip": skip,
    "session": session,
    "filesearch": file_search,
}

if __name__ == "__main__":
    main("openai_agents", PROGRAMS)
