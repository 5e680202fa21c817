"""A turn without a search is a decision not to search only if all its spans are known."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stream_metrics.cli.sources import summary_lines
from stream_metrics.core.telemetry import (
    Interpretation,
    Options,
    Role,
    Row,
    Span,
    interpret,
    mapping,
)
from stream_metrics.core.telemetry.shapes.users import ToolRows
from stream_metrics.lab.sources.otlp.traces import TraceCounts, UnseenSearches
from tests.telemetry import agent, interpreted, model, of_kind, search, span, tool

UNSEEN = {"unseen_searches": 1}
APP = "my.app"


def turn(*others: Span, **options: Any) -> Interpretation:
    """A turn in which a model answered, with these spans."""
    return interpreted(agent(), model("m", "agent", 1), *others, **options)


def inside(name: str, attributes: dict[str, Any] | None = None, **others: Any) -> Span:
    """A span of the program in the turn."""
    return span("x", "agent", 3, attributes=attributes or {}, scope=APP, name=name, **others)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("search_handbook", {"code.function.name": "app.search_handbook"}),
        ("step", {}),
        ("GET", {"http.request.method": "GET", "url.full": "https://kb.example.org/find?q=a"}),
        ("POST", {"http.method": "POST"}),
        (
            "SELECT handbook",
            {"db.system.name": "postgresql", "db.query.text": "SELECT text FROM d"},
        ),
        ("points", {"db.system": "qdrant", "db.operation": "query_points"}),
        ("embed", {"gen_ai.operation.name": "embeddings"}),
        ("remember", {"gen_ai.operation.name": "recall_facts"}),
    ],
)
def test_a_turn_with_a_span_that_may_be_a_search_is_no_skip(
    name: str, attributes: dict[str, str]
) -> None:
    """Functions, calls over HTTP, queries of databases, embeddings and unknown operations."""
    one = turn(inside(name, attributes))

    assert (one.turns, one.refused) == ((), UNSEEN)


@pytest.mark.parametrize("kind", ["CHAIN", "EMBEDDING"])
def test_a_function_that_a_program_calls_a_chain_is_no_skip(kind: str) -> None:
    """Only frameworks' own chains are known."""
    one = turn(of_kind(kind, "x", "agent", 3, scope=APP, name="prepare"))

    assert (one.turns, one.refused) == ((), UNSEEN)
    assert turn(of_kind("CHAIN", "x", "agent", 3, name="prepare")).turns[0].skipped


def test_a_chain_with_the_name_of_a_search_is_no_skip() -> None:
    """Nor is one of a framework, whose node may search without a span."""
    assert turn(of_kind("CHAIN", "x", "agent", 3, name="fetch_context")).refused == UNSEEN


def test_a_tool_that_returns_a_text_is_no_skip() -> None:
    """Whatever its name; a row of the settings says that it is no search."""
    given = (agent(), model("m", "agent", 1), tool("calc", "agent", 3, output="4"))
    row = Row(Role.OTHER, (("tool.name", "calc"),))

    assert interpreted(*given).refused == UNSEEN
    assert interpret(given, mapping((row,)), Options()).turns[0].skipped


@pytest.mark.parametrize("name", ["final_answer", "transfer_to_billing", "handoff to billing"])
def test_tools_of_the_framework_are_known(name: str) -> None:
    """They end the turn or hand it on."""
    assert turn(tool("x", "agent", 3, name=name)).turns[0].skipped


def test_an_agent_as_a_tool_is_known_by_what_is_in_it() -> None:
    """Without a search inside, the tool is none."""
    inner = (agent("b", 4, 8, parent="x"), model("n", "b", 5))

    assert turn(tool("x", "agent", 3, 9, name="ask_billing"), *inner).turns[0].skipped
    function = span("f", "b", 6, scope=APP, name="prices")
    assert turn(tool("x", "agent", 3, 9, name="ask_billing"), *inner, function).refused == UNSEEN


def test_a_call_of_the_model_over_http_is_known() -> None:
    """It is part of the model call."""
    call = span("x", "m", 1, scope="http", name="POST", attributes={"http.request.method": "POST"})

    assert turn(call).turns[0].skipped


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("chroma.add", {}),
        ("INSERT messages", {"db.system.name": "postgresql"}),
        ("SET", {"db.system": "redis", "db.statement": "SET session:1 ?"}),
    ],
)
def test_writes_to_databases_are_known(name: str, attributes: dict[str, str]) -> None:
    """They find nothing."""
    assert turn(inside(name, attributes)).turns[0].skipped


def test_a_database_that_says_nothing_of_its_operation_is_no_skip() -> None:
    """Not even by the name of the span."""
    assert turn(inside(" ", {"db.system.name": "x"})).refused == UNSEEN


def test_what_is_inside_a_span_of_the_settings_is_known_with_it() -> None:
    """A tool that is no search may query a database."""
    given = (
        *(agent(), model("m", "agent", 1)),
        *(inside("orders", end=9), span("y", "x", 4, name="SELECT", scope="db")),
    )
    row = Row(Role.OTHER, scope=APP, span="orders")

    assert interpreted(*given).refused == UNSEEN
    assert interpret(given, mapping((row,)), Options()).turns[0].skipped


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.response.finish_reasons": ["tool_calls"]},
        {"llm.finish_reason": "tool_use"},
        {"gen_ai.output.messages": '[{"role": "assistant", "finish_reason": "tool_call"}]'},
    ],
)
def test_a_model_that_ended_with_tools_that_have_no_spans_is_no_skip(
    attributes: dict[str, Any],
) -> None:
    """One of them may have searched."""
    given = (agent(), model("m", "agent", 1, attributes=attributes))

    assert interpreted(*given).refused == UNSEEN
    assert interpreted(*given, tool("x", "agent", 3, name="final_answer")).turns[0].skipped


def test_a_loop_without_an_agent_or_tools_is_refused_where_a_model_asked_for_tools() -> None:
    """LiteLLM tells that a model ended with a call, and neither its id nor what it returned."""
    asking = {"gen_ai.completion.0.finish_reason": "tool_calls"}
    first = model("m", "root", 1, attributes=asking)
    given = (span("root", end=99, scope=APP), first)

    assert interpreted(*given).refused == {}
    assert interpreted(*given, model("n", "root", 9)).refused == UNSEEN


@pytest.mark.parametrize("root", [agent("root", end=99), span("root", end=99, scope=APP)])
def test_a_model_that_was_given_results_of_tools_without_spans_is_no_skip(root: Span) -> None:
    """OpenLLMetry in JavaScript writes OpenAI's responses into a text, and no calls; results before
    the question are of another turn."""
    asked = {"role": "user", "content": "Where is it?"}
    result = {"type": "function_call_output", "call_id": "c", "output": "[]"}

    def given(*items: dict[str, str]) -> dict[str, str]:
        part = {"type": "text", "content": json.dumps(items)}
        return {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": [part]}])}

    first = model("m", "root", 1, attributes=given(asked))
    last = model("n", "root", 9, attributes=given(asked, result))
    of_another = model("n", "root", 9, attributes=given(asked, result, asked))

    assert interpreted(root, first, last).refused == UNSEEN
    assert interpreted(root, first, of_another).refused == {}


def test_a_loop_without_an_agent_is_refused_where_an_answer_was_cut_off() -> None:
    """It may have had tool calls."""
    first = model("m", "root", 1, attributes={"output.value": '{"choices": [{"mess'})
    given = (span("root", end=99, scope=APP), first, model("n", "root", 9))

    assert interpreted(*given).refused == {"truncated": 1}


def test_a_turn_without_an_answer_is_refused_where_it_may_have_searched() -> None:
    """Otherwise nothing would tell that its searches are not seen."""
    assert interpreted(agent(), inside("search_handbook")).refused == UNSEEN
    assert not interpreted(agent()).refused


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("search_tickets", {}),
        ("call", {"code.function.name": "app.search_tickets"}),
        ("call", {"search.index": "tickets"}),
        ("SELECT", {"db.query.text": "SELECT body FROM t ORDER BY e <=> $1 LIMIT 5"}),
    ],
)
def test_a_turn_with_another_search_without_a_role_is_refused(
    name: str, attributes: dict[str, str]
) -> None:
    """Its results would be missing; around or inside a search it is part of it."""
    found = search("s", "agent", 5, 8)

    assert turn(found, inside(name, attributes)).refused == {"unrecognised": 1}
    around = (inside(name, attributes, end=9), search("s", "x", 5, 8))
    within = span("x", "s", 6, attributes=attributes, scope=APP, name=name)
    assert [len(one.turns) for one in (turn(*around), turn(found, within))] == [1, 1]


def test_the_refusal_has_the_row_to_copy() -> None:
    """With it, the turn is a decision not to search."""
    one = turn(inside("orders [open]"), tool("calc", "agent", 4, output="4"))

    rows = (
        'otlp.tools = {"calc" = "other"} and '
        'otlp.rows = [{role = "other", scope = "my.app", span = "orders [[]open]"}]'
    )
    assert one.refusals[0].message.endswith(f"if none of them is a search: {rows}")
    copied = mapping(
        (Row(Role.OTHER, scope="my.app", span="orders [[]open]"),),
        tools=ToolRows(kinds={"calc": "other"}),
    )
    given = (
        *(agent(), model("m", "agent", 1), inside("orders [open]")),
        tool("calc", "agent", 4, output="4"),
    )
    assert interpret(given, copied, Options()).turns[0].skipped


def test_the_question_is_in_no_row_to_copy() -> None:
    """A pattern stands for it, so that the row matches the next question, too."""
    asked = {"input.value": "Why do my gears jump?"}
    one = interpreted(
        agent(attributes=asked), model("m", "agent", 1), inside("ask:Why do my gears jump?")
    )

    assert 'span = "ask:*"' in one.refusals[0].message
    assert "gears" not in one.refusals[0].message


def test_a_replay_ends_with_what_may_have_searched() -> None:
    """It names the spans and the row to copy."""
    counts = TraceCounts(unseen=[UnseenSearches("the span 'orders'", '{span = "orders"}', 3)])

    [line] = [line for line in summary_lines(counts) if "orders" in line]
    assert "the span 'orders' (turns: 3)" in line
    assert line.endswith('otlp.rows = [{span = "orders"}]')


def test_a_trace_without_an_agent_is_refused_where_a_span_looks_like_a_search() -> None:
    """A model answered, and nothing else tells that its searches are not seen."""
    root = span("root", end=99, scope=APP)
    function = span("f", "root", 3, scope=APP, name="search_handbook")

    embedding = of_kind("EMBEDDING", "e", "root", 3)

    assert interpreted(root, model("m", "root", 1), function).refused == UNSEEN
    assert interpreted(root, model("m", "root", 1), embedding).refused == UNSEEN
    assert not interpreted(root, function, embedding).refused


def test_the_names_of_what_is_around_a_span_suggest_no_search() -> None:
    """An agent may be called after the documents that it knows."""
    attributes = {"gen_ai.agent.name": "docs-assistant", "traceloop.workflow.name": "handbook"}

    assert turn(of_kind("CHAIN", "x", "agent", 3, attributes=attributes)).turns[0].skipped


def test_what_is_beside_a_model_call_in_a_span_of_the_settings_is_not_known() -> None:
    """The span is no search; another in it may be one."""
    row = Row(Role.OTHER, scope=APP, span="answer")
    given = (agent(), inside("answer", end=9), model("m", "x", 4))
    function = span("y", "x", 6, scope=APP, name="prices")

    assert interpret(given, mapping((row,)), Options()).turns[0].skipped
    assert interpret((*given, function), mapping((row,)), Options()).refused == UNSEEN


def test_a_replay_names_tools_in_turns_with_searches_that_count_as_none() -> None:
    """Their texts may be what a search found."""
    weather = tool("w", "agent", 5, name="weather", output="It rains.")
    one = turn(search("s", "agent", 3), weather, tool("f", "agent", 7, name="final_answer"))

    assert one.passed_over == {"weather": 1}
    [line] = [
        line
        for line in summary_lines(TraceCounts(passed_over=dict(one.passed_over)))
        if "weather" in line
    ]
    assert "count as no search: weather (1)" in line


@pytest.mark.parametrize("method", ["initialize", "tools/list", "notifications/initialized"])
def test_what_mcp_does_besides_calls_is_known(method: str) -> None:
    """A client asks which tools there are before the agent decides."""
    assert turn(inside(method, {"mcp.method.name": method})).turns[0].skipped
    assert turn(inside("tools/call", {"mcp.method.name": "resources/read"})).refused == UNSEEN


@pytest.mark.parametrize("kind", ["guardrail", "event"])
def test_what_is_no_search_by_its_kind_is_known(kind: str) -> None:
    """Whoever wrote it."""
    assert turn(inside("check", {"langfuse.observation.type": kind})).turns[0].skipped


def test_an_agent_with_tools_and_without_spans_of_its_model_is_no_skip() -> None:
    """Some instrumentations write the agent's span only, whatever its tools did."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.tool.definitions": '[{"type": "function", "name": "search_docs"}]',
        "gen_ai.output.messages": '[{"role": "assistant", "content": "That is all."}]',
    }
    alone = span("a", attributes=attributes)

    assert interpreted(alone).refused == UNSEEN
    [told] = interpreted(alone, span("m", "a", attributes={"gen_ai.operation.name": "chat"})).turns
    assert told.skipped
    writes_tools = replace(alone, scope="opentelemetry.instrumentation.genai.agno")
    assert interpreted(writes_tools).turns[0].skipped
