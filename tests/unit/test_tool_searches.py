"""Which tools are searches, where their results stand, and what is refused."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import msgspec
import pytest

from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import Interpretation, Options, interpret, mapping
from stream_metrics.core.telemetry.shapes.rows import Shape
from stream_metrics.core.telemetry.shapes.table import SHAPES
from stream_metrics.core.telemetry.spans import Span, SpanEvent
from tests.shapes import CASES, HITS, Case
from tests.telemetry import span

DOCUMENTS = [
    {"id": "a", "text": "Refunds take five days."},
    {"id": "b", "text": "Travel by train."},
]
QUERY = json.dumps({"query": "refunds"})


def genai(operation: str, id: str, start: float, end: float, **attributes: Any) -> Span:
    """A span of OpenTelemetry's GenAI conventions."""
    given = {name.replace("__", "."): value for name, value in attributes.items()}
    parent = "" if id == "turn" else "turn"
    return span(
        id,
        parent,
        start,
        end,
        {"gen_ai.operation.name": operation, **given},
        name=f"{operation} {given.get('gen_ai.tool.name', id)}",
        scope="my.agent",
        events=attributes.get("events", ()),
    )


def turn_with(*inner: Span, **settings: Any) -> Interpretation:
    """The interpretation of a turn with these spans between two model calls."""
    otlp = OtlpSettings.model_validate(settings)
    spans = [
        genai("invoke_agent", "turn", 0, 100, gen_ai__agent__name="support"),
        genai("chat", "first", 1, 5),
        *inner,
        genai("chat", "last", 90, 95),
    ]
    return interpret(spans, otlp.mapping(), Options())


def ran(name: str, result: Any = None, arguments: str | None = None, **others: Any) -> Span:
    """The span of a tool."""
    attributes: dict[str, Any] = {"gen_ai.tool.name": name, **others.pop("attributes", {})}
    if result is not None:
        attributes["gen_ai.tool.call.result"] = (
            result if isinstance(result, str) else json.dumps(result)
        )
    if arguments is not None:
        attributes["gen_ai.tool.call.arguments"] = arguments
    return span(
        others.pop("id", "tool"),
        "turn",
        others.pop("start", 10),
        others.pop("end", 20),
        {"gen_ai.operation.name": "execute_tool", **attributes},
        name=f"execute_tool {name}",
        scope="my.agent",
        **others,
    )


def found(one: Interpretation) -> list[list[str | None]]:
    """The ids of the results of each search."""
    return [
        [result.doc_id for result in search.results]
        for turn in one.turns
        for search in turn.searches
    ]


def scored(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The documents with scores."""
    return [{**one, "score": 0.5} for one in documents]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("search_docs", QUERY, DOCUMENTS),
        ("search_docs", None, scored(DOCUMENTS)),
        ("kb_lookup", QUERY, DOCUMENTS),
        ("handbook", "refunds", DOCUMENTS),
        ("dokumente_suchen", json.dumps({"suchbegriff": "x"}), DOCUMENTS),
        ("buscar_documentos", json.dumps({"consulta": "x"}), DOCUMENTS),
        ("ask", QUERY, scored(DOCUMENTS)),
        ("search_code", QUERY, DOCUMENTS),
        ("search_docs", "ISO-27001", DOCUMENTS),
        ("find_updated_docs", QUERY, DOCUMENTS),
        *(
            ("search_docs", json.dumps({"query": question}), DOCUMENTS)
            for question in (
                "explain where refunds come from",
                "import duties on laptops",
                "with whom do I share a desk",
                "update of the travel policy | 2026",
            )
        ),
    ],
)
def test_two_signs_make_a_tool_a_search(name: str, arguments: str | None, result: Any) -> None:
    """Its name, its query and its scores are signs."""
    one = turn_with(ran(name, result, arguments))

    assert (found(one), one.refused) == ([["a", "b"]], {})


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("get_messages", None, DOCUMENTS),
        ("list_orders", json.dumps({"customer": "c-1"}), DOCUMENTS),
        ("search_docs", None, DOCUMENTS),
        ("ask", QUERY, DOCUMENTS),
        ("recommend", None, scored(DOCUMENTS)),
        ("look_up_rows", json.dumps({"query": "SELECT id, text FROM messages"}), DOCUMENTS),
        ("run_query", json.dumps({"query": "SELECT id, text FROM messages"}), DOCUMENTS),
        ("query_database", json.dumps({"query": "select * from t where a = 1"}), DOCUMENTS),
        *(
            ("search_database", json.dumps({"query": statement}), DOCUMENTS)
            for statement in (
                "-- the notes\nSELECT id FROM notes",
                "(SELECT id FROM a) UNION (SELECT id FROM b)",
                "```sql\nSELECT 1\n```",
                "WITH x AS (SELECT 1) SELECT * FROM x",
                "PRAGMA table_info(notes)",
                "EXEC sp_list 1",
                "MATCH (n:Note) RETURN n",
                "{ notes { id text } }",
                "query Notes($n: Int) { notes(first: $n) { id } }",
                "db.notes.find({})",
                "FROM notes | WHERE size > 1",
                "up{job='api'}",
                "import pandas as pd\ndf.head()",
            )
        ),
        ("python", json.dumps({"query": "rows"}), scored(DOCUMENTS)),
        ("translate", json.dumps({"q": "hello"}), scored(DOCUMENTS)),
        ("delete_documents", json.dumps({"query": "old"}), DOCUMENTS),
        ("save_search", json.dumps({"query": "refunds"}), DOCUMENTS),
        ("rewriteSearchQuery", json.dumps({"query": "refunds"}), scored(DOCUMENTS)),
    ],
)
def test_documents_with_fewer_signs_are_refused_with_the_row_to_copy(
    name: str, arguments: str | None, result: Any
) -> None:
    """Whether the tool searches is for the settings to say."""
    one = turn_with(ran(name, result, arguments))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})
    assert f'otlp.tools = {{"{name}" = "other"}}' in one.refusals[0].message


@pytest.mark.parametrize(
    "name",
    [
        *("suche_löschen", "wissen_speichern", "guardar_busqueda", "enregistrer_recherche"),
        *("elimina_ricerca", "zoeken_verwijderen", "spara_sökning", "zapisz_wyszukiwanie"),
        *("traduzir_pesquisa", "удалить_поиск", "保存搜索", "検索を削除", "검색_저장", "حذف_بحث"),
        *("find_and_book", "searchQueryBuilder", "kb_feedback", "grade_documents", "rag_ingest"),
    ],
)
def test_a_tool_that_changes_what_was_searched_is_no_search(name: str) -> None:
    """Its documents have scores, and its arguments a query, but its name says what it does."""
    one = turn_with(ran(name, scored(DOCUMENTS), QUERY))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


@pytest.mark.parametrize(
    "name", ["book_search", "log_search", "email_search", "wissensspeicher_durchsuchen"]
)
def test_a_search_of_what_also_names_a_change_is_a_search(name: str) -> None:
    """Books, logs and stores are looked through, too."""
    assert found(turn_with(ran(name, DOCUMENTS, QUERY))) == [["a", "b"]]


@pytest.mark.parametrize("name", ["web_results", "web", "faqHits"])
def test_a_second_list_of_results_beside_documents_is_refused(name: str) -> None:
    """What the agent got from the web counts as much as what its documents say."""
    other = [{"url": "https://w.example/w", "title": "W", "snippet": "The web says so."}]

    one = turn_with(ran("search_docs", {"documents": DOCUMENTS, name: other}, QUERY))

    assert (one.turns, one.refused) == ((), {"ambiguous_documents": 1})


def test_a_model_call_around_all_searches_separates_none_and_time_decides() -> None:
    """The span of a streamed loop lasts from its first search to its answer."""
    searches = [
        ran("search_docs", DOCUMENTS, QUERY, id=id, start=start, end=start + 10)
        for id, start in (("s1", 10), ("s2", 40))
    ]
    root = genai("invoke_agent", "turn", 0, 100, gen_ai__agent__name="support")

    one = interpret([root, genai("chat", "m", 1, 95), *searches], mapping(), Options())

    [turn] = one.turns
    assert [search.iteration for search in turn.searches] == [1, 2]
    assert turn.iterations_inferred


def requests(*ids: str) -> dict[str, Any]:
    """A message in which a model calls the search tool."""
    calls = [
        {"type": "tool_call", "id": id, "name": "search_docs", "arguments": {"query": id}}
        for id in ids
    ]
    return {"role": "assistant", "parts": calls}


def asked_with_a_lost_call(first: dict[str, str], second: dict[str, str]) -> Interpretation:
    """The interpretation of a turn with one search between model calls that have these too."""
    tool = ran("search_docs", DOCUMENTS, QUERY, attributes={"gen_ai.tool.call.id": "c1"})
    root = genai("invoke_agent", "turn", 0, 100, gen_ai__agent__name="support")
    models = [
        span(
            id, "turn", start, start + 5, {"gen_ai.operation.name": "chat", **own}, scope="my.agent"
        )
        for id, start, own in (("m1", 1, first), ("m2", 40, second))
    ]
    return interpret([root, *models, tool], mapping(), Options())


def test_a_search_that_a_model_requested_and_that_has_no_span_is_refused() -> None:
    """Sampling or a crash lost what it found, which a figure would leave out."""
    lost = {"gen_ai.output.messages": json.dumps([requests("c1", "c2")])}
    whole = {"gen_ai.output.messages": json.dumps([requests("c1")])}

    assert asked_with_a_lost_call(lost, {}).refused == {"unseen_searches": 1}
    assert found(asked_with_a_lost_call(whole, {})) == [["a", "b"]]


def test_a_call_that_has_another_id_in_the_next_messages_counts_once() -> None:
    """OpenAI's responses name it by the item, and later by the call."""
    first = {"gen_ai.input.messages": "[]", "gen_ai.output.messages": json.dumps([requests("fc")])}
    second = {"gen_ai.input.messages": json.dumps([requests("c1")])}

    assert found(asked_with_a_lost_call(first, second)) == [["a", "b"]]


def test_a_search_that_the_last_model_call_requested_may_never_have_run() -> None:
    """A limit of steps ends agents so."""
    last = {"gen_ai.output.messages": json.dumps([requests("c2")])}

    assert found(asked_with_a_lost_call({}, last)) == [["a", "b"]]


def test_a_model_call_that_asked_for_tools_without_spans_beside_a_search_is_refused() -> None:
    """Without content only its finish reason says that the span of a tool was lost."""
    asking = {"gen_ai.response.finish_reasons": ["tool_calls"]}
    spans = [
        genai("invoke_agent", "turn", 0, 100, gen_ai__agent__name="support"),
        *(
            span(id, "turn", start, start + 5, {"gen_ai.operation.name": "chat", **own})
            for id, start, own in (("m1", 1, asking), ("m2", 40, asking), ("m3", 60, {}))
        ),
        ran("search_docs", DOCUMENTS, QUERY),
    ]

    assert interpret(spans, mapping(), Options()).refused == {"unseen_searches": 1}


@pytest.mark.parametrize(
    "attributes",
    [
        {"url.full": "https://kb-1.svc.pinecone.io/query"},
        {"rpc.system": "grpc", "rpc.service": "qdrant.Points", "rpc.method": "Search"},
        {"db.system": "redis", "db.statement": "FT.SEARCH idx refunds"},
    ],
)
def test_a_database_that_was_searched_beside_a_search_is_refused(
    attributes: dict[str, str],
) -> None:
    """Only its address, method or statement says so."""
    call = span("d", "turn", 30, 40, attributes, name="POST", scope="some.client")
    inside = span("d", "tool", 12, 18, attributes, name="POST", scope="some.client")
    search = ran("search_docs", DOCUMENTS, QUERY)

    assert turn_with(search, call).refused == {"unrecognised": 1}
    assert found(turn_with(search, inside)) == [["a", "b"]]


def test_a_search_in_messages_that_came_since_the_first_model_call_is_not_left_out() -> None:
    """The span of the model call that requested it was lost; what was there before is of earlier
    turns."""
    asked = {"role": "user", "parts": [{"type": "text", "content": "And travel?"}]}
    first = {"gen_ai.input.messages": json.dumps([requests("old"), asked])}
    same = {"gen_ai.input.messages": json.dumps([requests("old"), asked, requests("c1")])}
    more = {
        "gen_ai.input.messages": json.dumps([requests("old"), asked, requests("c1"), requests("x")])
    }

    assert found(asked_with_a_lost_call(first, same)) == [["a", "b"]]
    assert asked_with_a_lost_call(first, more).refused == {"unseen_searches": 1}


def test_a_tool_that_the_settings_say_searches_is_a_search() -> None:
    """The row decides, without any sign."""
    one = turn_with(ran("get_messages", DOCUMENTS), tools={"get_messages": "search"})

    assert (found(one), one.refused) == ([["a", "b"]], {})


def test_a_tool_that_the_settings_say_does_not_search_is_none() -> None:
    """The row decides, whatever the signs, and nothing is refused."""
    search = ran("search_docs", DOCUMENTS, QUERY, id="search")
    other = ran(
        "search_tickets", [{"id": "t", "text": "A ticket"}], QUERY, id="o", start=30, end=40
    )

    one = turn_with(search, other, tools={"*_tickets": "other"})

    assert (found(one), one.refused) == ([["a", "b"]], {})


@pytest.mark.parametrize(
    "event",
    [
        SpanEvent("gen_ai.choice", 0, {"message": json.dumps([{"json": {"results": DOCUMENTS}}])}),
        SpanEvent("tool.output", 0, {"output": json.dumps(DOCUMENTS)}),  # Claude Code
        SpanEvent(
            "gen_ai.client.inference.operation.details",
            0,
            {
                "gen_ai.output.messages": json.dumps(
                    [
                        {
                            "role": "tool",
                            "parts": [
                                {"type": "tool_call_response", "id": "c", "response": DOCUMENTS}
                            ],
                        }
                    ]
                )
            },
        ),
    ],
)
def test_results_in_an_event_are_read(event: SpanEvent) -> None:
    """Strands and others write them there."""
    one = turn_with(ran("search_docs", None, QUERY, events=(event,)))

    assert (found(one), one.refused) == ([["a", "b"]], {})


@pytest.mark.parametrize(
    "arguments",
    [
        {"input.value": '{"args": [], "sanitize": true, "kwargs": {"query": "refunds"}}'},
        {"gcp.vertex.agent.tool_call_args": QUERY},
    ],
    ids=["smolagents", "ADK"],
)
def test_the_query_is_read_from_the_arguments_of_the_tool(arguments: dict[str, str]) -> None:
    """Frameworks write them under names and in forms of their own."""
    one = turn_with(ran("search_docs", DOCUMENTS, attributes=arguments))

    assert [search.query for search in one.turns[0].searches] == ["refunds"]


def test_a_tool_whose_event_has_no_documents_is_passed_over() -> None:
    """A content block with an object in JSON is not the documents of the tool."""
    block = json.dumps([{"text": '{"orders": [{"number": 1}]}'}])
    event = SpanEvent("gen_ai.choice", 0, {"message": block})
    other = ran("list_orders", None, '{"customer": "a"}', id="o", events=(event,))

    one = turn_with(ran("search_docs", DOCUMENTS, QUERY), other)

    assert (found(one), one.refused) == ([["a", "b"]], {})


@pytest.mark.parametrize("name", ["tool_response", "tool.output", "gcp.vertex.agent.tool_response"])
def test_results_in_another_attribute_of_the_tool_are_read(name: str) -> None:
    """Instrumentations have names of their own for it."""
    result = ran("search_docs", None, QUERY, attributes={name: json.dumps(DOCUMENTS)})

    assert found(turn_with(result)) == [["a", "b"]]


PROSE = "Refunds take five days.\n\nTravel is by train."
RECORDED: dict[str, Any] = {
    "pydantic-ai": {
        "scope": "pydantic-ai",
        "attributes": {"tool_arguments": QUERY, "tool_response": PROSE},
    },
    "ADK": {
        "scope": "gcp.vertex.agent",
        "attributes": {
            "gen_ai.operation.name": "execute_tool",
            "gcp.vertex.agent.tool_call_args": QUERY,
            "gcp.vertex.agent.tool_response": json.dumps({"result": PROSE}),
        },
    },
    "Strands": {
        "scope": "strands.telemetry.tracer",
        "attributes": {"gen_ai.operation.name": "execute_tool"},
        "events": (
            SpanEvent("gen_ai.tool.message", 0, {"role": "tool", "content": QUERY, "id": "c"}),
            SpanEvent("gen_ai.choice", 1, {"message": json.dumps([{"text": PROSE}]), "id": "c"}),
        ),
    },
}


def recorded_by(framework: str, **settings: Any) -> Interpretation:
    """The interpretation of a turn in which a framework recorded a search tool that returned
    prose."""
    given = RECORDED[framework]
    attributes = {"gen_ai.tool.name": "search_docs", "gen_ai.tool.call.id": "c"}
    tool = span("tool", "turn", 10, 20, **{**given, "attributes": attributes | given["attributes"]})
    return turn_with(tool, **settings)


@pytest.mark.parametrize("framework", RECORDED)
def test_a_result_that_is_recorded_is_not_said_to_be_missing(framework: str) -> None:
    """Where no row reads it, the refusal has the row to copy, which does."""
    [refusal] = recorded_by(framework).refusals
    row = 'otlp.shapes = [{tool = "search_docs", split = "\\n\\n"}]'

    assert refusal.reason == "unrecognised"
    assert row in refusal.message
    one = recorded_by(framework, **tomllib.loads(row)["otlp"])
    assert ([len(each) for each in found(one)], one.refused) == ([2], {})


@pytest.mark.parametrize("result", ["{}", '{"result": "<not specified>"}', "__REDACTED__", ""])
def test_a_result_that_was_left_out_is_said_to_be_missing(result: str) -> None:
    """No row could read it."""
    one = turn_with(ran("search_docs", None, QUERY, attributes={"tool_response": result}))

    assert (one.turns, one.refused) == ((), {"content_off": 1})


def calling(query: str, *results: dict[str, Any], id: str = "") -> str:
    """Messages with a call that has no id, or one of its own, and with results."""
    call = {"type": "tool_call", "id": id, "name": "search_docs", "arguments": {"query": query}}
    messages = [{"role": "assistant", "parts": [call]}]
    return json.dumps([*messages, *({"role": "user", "parts": [one]} for one in results)])


CALL = {"type": "tool_call", "id": "c", "name": "search_docs", "arguments": {"query": "refunds"}}
ANSWERS = {
    "OpenTelemetry": (
        {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [CALL]}])},
        {
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "assistant", "parts": [CALL]},
                    {
                        "role": "tool",
                        "parts": [{"type": "tool_call_response", "id": "c", "response": DOCUMENTS}],
                    },
                ]
            )
        },
    ),
    "OpenAI, chat completions": (
        {
            "output.value": json.dumps(
                {
                    "choices": [
                        {
                            "message": {
                                "role": "assistant",
                                "tool_calls": [
                                    {
                                        "id": "c",
                                        "type": "function",
                                        "function": {"name": "search_docs", "arguments": QUERY},
                                    }
                                ],
                            }
                        }
                    ]
                }
            )
        },
        {
            "input.value": json.dumps(
                {
                    "messages": [
                        {"role": "tool", "tool_call_id": "c", "content": json.dumps(DOCUMENTS)}
                    ]
                }
            )
        },
    ),
    "OpenAI, responses": (
        {
            "output.value": json.dumps(
                {
                    "output": [
                        {
                            "type": "function_call",
                            "id": "fc",
                            "call_id": "c",
                            "name": "search_docs",
                            "arguments": QUERY,
                        }
                    ]
                }
            )
        },
        {
            "input.value": json.dumps(
                {
                    "input": [
                        {
                            "type": "function_call_output",
                            "call_id": "c",
                            "output": json.dumps(DOCUMENTS),
                        }
                    ]
                }
            )
        },
    ),
    "Anthropic": (
        {
            "output.value": json.dumps(
                {
                    "content": [
                        {
                            "type": "tool_use",
                            "id": "c",
                            "name": "search_docs",
                            "input": {"query": "refunds"},
                        }
                    ]
                }
            )
        },
        {
            "input.value": json.dumps(
                {
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {
                                    "type": "tool_result",
                                    "tool_use_id": "c",
                                    "content": [{"type": "text", "text": json.dumps(DOCUMENTS)}],
                                }
                            ],
                        }
                    ]
                }
            )
        },
    ),
    "Gemini, without ids": (
        {
            "output.value": json.dumps(
                {
                    "candidates": [
                        {
                            "content": {
                                "role": "model",
                                "parts": [
                                    {
                                        "functionCall": {
                                            "name": "search_docs",
                                            "args": {"query": "refunds"},
                                        }
                                    }
                                ],
                            }
                        }
                    ]
                }
            )
        },
        {
            "input.value": json.dumps(
                {
                    "contents": [
                        {
                            "role": "user",
                            "parts": [
                                {
                                    "functionResponse": {
                                        "name": "search_docs",
                                        "response": {"result": DOCUMENTS},
                                    }
                                }
                            ],
                        }
                    ]
                }
            )
        },
    ),
    "OpenLLMetry of Gemini, without ids and names": (
        {"gen_ai.output.messages": calling("refunds")},
        {
            "gen_ai.input.messages": calling(
                "refunds", {"type": "tool_call_response", "id": "", "response": DOCUMENTS}
            )
        },
    ),
    "OpenLLMetry of OpenAI's responses, with different ids": (
        {"gen_ai.output.messages": calling("refunds", id="fc_1")},
        {
            "gen_ai.input.messages": calling(
                "refunds",
                {"type": "tool_call_response", "id": "call_1", "response": DOCUMENTS},
                id="fc_1",
            )
        },
    ),
    "OpenLLMetry": (
        {
            "gen_ai.completion.0.tool_calls.0.id": "c",
            "gen_ai.completion.0.tool_calls.0.name": "search_docs",
            "gen_ai.completion.0.tool_calls.0.arguments": QUERY,
        },
        {
            "gen_ai.prompt.2.role": "tool",
            "gen_ai.prompt.2.tool_call_id": "c",
            "gen_ai.prompt.2.content": json.dumps(DOCUMENTS),
        },
    ),
}


def test_of_calls_without_ids_each_has_the_result_of_its_own_arguments() -> None:
    """Also where the history that the next call is given begins later than that of this one."""
    answer = {"type": "tool_call_response", "id": "", "response": "[]"}
    whole = calling("first", answer)

    one = with_messages(
        {"gen_ai.input.messages": whole, "gen_ai.output.messages": calling("second")},
        {"gen_ai.input.messages": calling("second", {**answer, "response": DOCUMENTS})},
    )

    [turn] = one.turns
    assert [(each.query, len(each.results)) for each in turn.searches] == [("second", 2)]


def test_results_without_ids_are_not_read_where_some_are_missing() -> None:
    """Of two calls and one result nothing tells whose it is."""
    answer = {"type": "tool_call_response", "id": "", "response": DOCUMENTS}
    calls = json.loads(calling("first")) + json.loads(calling("second"))
    given = json.dumps([*calls, {"role": "user", "parts": [answer]}])

    one = with_messages(
        {"gen_ai.output.messages": json.dumps(calls)}, {"gen_ai.input.messages": given}
    )

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def with_messages(answer: dict[str, Any], given: dict[str, Any], *inner: Span) -> Interpretation:
    """The interpretation of a turn whose model calls have these attributes."""
    operation = {"gen_ai.operation.name": "chat"}
    spans = [
        genai("invoke_agent", "turn", 0, 100, gen_ai__agent__name="support"),
        span("first", "turn", 1, 5, {**operation, **answer}, scope="my.agent"),
        *inner,
        span("last", "turn", 90, 95, {**operation, **given}, scope="my.agent"),
    ]
    return interpret(spans, mapping(), Options())


@pytest.mark.parametrize(("answer", "given"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_call_without_a_span_is_read_from_messages(
    answer: dict[str, Any], given: dict[str, Any]
) -> None:
    """The answer of one model call has its query, the input of the next one its results."""
    one = with_messages(answer, given)

    assert (found(one), one.refused) == ([["a", "b"]], {})
    assert one.turns[0].searches[0].query == "refunds"
    assert one.turns[0].searches[0].route == "search_docs"


@pytest.mark.parametrize(
    "name", [name for name in ANSWERS if "without ids" not in name and "different ids" not in name]
)
def test_a_span_without_its_result_takes_it_from_messages(name: str) -> None:
    """By the id of the call."""
    answer, given = ANSWERS[name]
    one = with_messages(answer, given, ran("search_docs", attributes={"gen_ai.tool.call.id": "c"}))

    assert (found(one), one.refused) == ([["a", "b"]], {})
    assert one.turns[0].searches[0].query == "refunds"


def test_a_call_whose_span_does_not_name_it_counts_once() -> None:
    """A span of a tool that ran between the two model calls is that of the call."""
    answer, given = ANSWERS["OpenTelemetry"]
    one = with_messages(answer, given, ran("search_docs", DOCUMENTS, QUERY))

    assert found(one) == [["a", "b"]]


def told(name: str, result: Any) -> Interpretation:
    """A turn whose model was given ``DOCUMENTS`` where the tool's span has another result."""
    answer, given = ANSWERS[name]
    tool = ran("search_docs", result, QUERY, attributes={"gen_ai.tool.call.id": "c"})
    return with_messages(answer, given, tool)


@pytest.mark.parametrize(
    "result",
    [
        DOCUMENTS[:1],
        [*DOCUMENTS, {"id": "c", "text": "Trains are late."}],
        [{**one, "id": f"{one['id']}-2"} for one in DOCUMENTS],
        [{"text": "Refunds take ten days."}, {"text": "Travel by plane."}],
        DOCUMENTS[::-1],
        {"results": []},
    ],
    ids=["fewer", "more", "ids", "texts", "order", "none"],
)
@pytest.mark.parametrize("name", sorted(ANSWERS.keys() - {"Gemini, without ids"}))
def test_other_results_in_messages_than_in_the_span_are_refused(name: str, result: Any) -> None:
    """Two places differ, and neither is certainly what the agent got."""
    one = told(name, result)

    assert (one.turns, one.refused) == ((), {"ambiguous_documents": 1})


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": json.dumps(DOCUMENTS)}], "isError": False},
        {"results": scored(DOCUMENTS), "took": 3},
        [{**one, "text": one["text"][:12]} for one in DOCUMENTS],
        [{"doc_id": f"d-{one['id']}", "text": one["text"]} for one in DOCUMENTS],
        [{"title": "T", "url": f"https://kb.example/{one['id']}"} for one in DOCUMENTS],
        str(DOCUMENTS),
    ],
    ids=["MCP", "beside more", "cut", "other ids", "no texts", "Python"],
)
def test_the_same_results_in_another_form_are_no_other_results(result: Any) -> None:
    """Only what both places show compares."""
    one = told("Anthropic", result)

    assert one.refused == {}
    assert [len(each) for each in found(one)] == [2]


def test_other_results_in_the_agents_messages_are_refused() -> None:
    """As those of the next model call."""
    answered = [{"type": "tool_call_response", "id": "c", "result": DOCUMENTS}]
    messages = json.dumps([{"role": "user", "parts": answered}])
    operation = {"gen_ai.operation.name": "invoke_agent", "pydantic_ai.all_messages": messages}
    call = {"gen_ai.tool.call.id": "c"}

    same, other = (
        interpret(
            [
                span("turn", "", 0, 100, operation, scope="my.agent"),
                ran("search_docs", result, QUERY, attributes=call),
            ],
            mapping(),
            Options(),
        )
        for result in (DOCUMENTS, DOCUMENTS[:1])
    )

    assert (found(same), other.refused) == ([["a", "b"]], {"ambiguous_documents": 1})


def test_other_results_in_messages_are_refused_also_around_a_retriever() -> None:
    """What it found is not what the model was given."""
    answer, given = ANSWERS["Anthropic"]
    other = [{**one, "id": f"{one['id']}-2"} for one in DOCUMENTS]
    tool = ran("search_docs", other, QUERY, attributes={"gen_ai.tool.call.id": "c"})
    inner = span(
        "inner",
        "tool",
        11,
        12,
        {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(other)},
        scope="my.agent",
    )

    assert with_messages(answer, given, tool, inner).refused == {"ambiguous_documents": 1}


@pytest.mark.parametrize("result", [DOCUMENTS, DOCUMENTS[:1]])
@pytest.mark.parametrize("inside", [True, False])
def test_a_call_is_compared_where_its_span_does_not_name_it(inside: bool, result: Any) -> None:
    """By the id in its result, or as the only one of its name between two model calls."""
    answer, given = ANSWERS["Anthropic"]
    message = {"type": "tool", "tool_call_id": "c", "content": json.dumps(result)}

    one = with_messages(answer, given, ran("search_docs", message if inside else result, QUERY))

    assert one.refused == ({} if result is DOCUMENTS else {"ambiguous_documents": 1})


def test_calls_of_one_id_are_not_compared() -> None:
    """It is unclear which of them a message is about."""
    answer, given = ANSWERS["Anthropic"]
    both = [
        ran("search_docs", result, QUERY, attributes={"gen_ai.tool.call.id": "c"}, id=f"tool{at}")
        for at, result in enumerate((DOCUMENTS, DOCUMENTS[:1]))
    ]

    assert with_messages(answer, given, *both).refused == {}


HOSTED = {
    "OpenAI, file search": {
        "output": [
            {
                "type": "file_search_call",
                "id": "fs",
                "queries": ["refunds"],
                "results": [
                    {"file_id": one["id"], "filename": "f", "score": 0.5, "text": one["text"]}
                    for one in DOCUMENTS
                ],
            }
        ]
    },
    "Anthropic, web search": {
        "content": [
            {
                "type": "server_tool_use",
                "id": "s",
                "name": "web_search",
                "input": {"query": "refunds"},
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "s",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": f"https://kb.example/{one['id']}",
                        "title": "T",
                    }
                    for one in DOCUMENTS
                ],
            },
        ]
    },
    "Perplexity": {
        "choices": [{"message": {"role": "assistant", "content": "In five days [1]."}}],
        "search_results": [
            {"url": f"https://kb.example/{one['id']}", "title": "T"} for one in DOCUMENTS
        ],
    },
    "Gemini, grounding": {
        "candidates": [
            {
                "groundingMetadata": {
                    "webSearchQueries": ["refunds"],
                    "groundingChunks": [
                        {"web": {"uri": f"https://kb.example/{one['id']}", "title": "T"}}
                        for one in DOCUMENTS
                    ],
                }
            }
        ]
    },
}


@pytest.mark.parametrize("answer", HOSTED.values(), ids=HOSTED.keys())
def test_a_search_of_the_models_provider_is_a_search_of_its_call(answer: dict[str, Any]) -> None:
    """With its query, in the iteration of the model call."""
    one = with_messages({"output.value": json.dumps(answer)}, {})

    assert one.refused == {}
    [search] = one.turns[0].searches
    asked = None if "choices" in answer else "refunds"  # Perplexity does not tell its queries
    assert (search.query, len(search.results)) == (asked, 2)


@pytest.mark.parametrize("answer", HOSTED.values(), ids=HOSTED.keys())
def test_a_search_of_the_models_provider_counts_once_in_spans_around_its_call(
    answer: dict[str, Any],
) -> None:
    """As of an agent's framework around the client's own."""
    attributes = {"output.value": json.dumps(answer)}
    asked = {"gen_ai.operation.name": "chat", **attributes}

    one = with_messages(attributes, {}, span("client", "first", 2, 4, asked, scope="my.agent"))

    assert one.refused == {}
    assert len(one.turns[0].searches) == 1


REDIRECT = "https://vertexaisearch.cloud.google.com/grounding-api-redirect/x"


@pytest.mark.parametrize(
    "answer",
    [
        {
            "output.value": json.dumps(
                {"output": [{"type": "web_search_call", "action": {"query": "refunds"}}]}
            )
        },
        {
            "output.value": json.dumps(
                {"usage": {"server_tool_use": {"web_search_requests": 2}}, "content": []}
            )
        },
        {
            "output.value": json.dumps(
                {
                    "groundingMetadata": {
                        "searchEntryPoint": {},
                        "webSearchQueries": ["refunds"],
                        "groundingChunks": [{"web": {"uri": REDIRECT}}],
                    }
                }
            )
        },
        {"ai.response.toolCalls": '[{"toolName": "web_search", "providerExecuted": true}]'},
        {"gen_ai.usage.web_search_requests": 1},
        {"gen_ai.request.model": "sonar-pro"},
        {"gen_ai.response.model": "gpt-4o-search-preview-2025-03-11"},
    ],
)
def test_a_search_of_the_models_provider_without_results_is_refused(
    answer: dict[str, Any],
) -> None:
    """Citations alone are none, nor is a number of searches, or a model that always searches."""
    one = with_messages(answer, {})

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_number_of_no_searches_shows_none() -> None:
    """Anthropic says in each answer how many there were."""
    usage = {"usage": {"server_tool_use": {"web_search_requests": 0}}}
    one = with_messages({"output.value": json.dumps(usage)}, {})

    assert [turn.skipped for turn in one.turns] == [True]


@pytest.mark.parametrize("asked", ["ORD-123", "42", "a@b.example", '{"input": "ORD-123"}'])
def test_a_tool_that_was_given_an_id_alone_looks_something_up(asked: str) -> None:
    """It is no search, although its name may mean one."""
    one = turn_with(ran("find_order", DOCUMENTS, asked))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


@pytest.mark.parametrize("name", ["__arg1", "input", "topic"])
def test_an_argument_that_is_the_only_one_is_the_query_of_a_search_tool(name: str) -> None:
    """LangChain and others name it after nothing."""
    one = turn_with(ran("search_docs", DOCUMENTS, json.dumps({name: "refunds in May"})))

    assert found(one) == [["a", "b"]]


def test_tools_of_frameworks_need_no_result() -> None:
    """ADK's transfer to another agent returns nothing."""
    attributes = {"gcp.vertex.agent.tool_response": "{}"}
    transfer = ran("transfer_to_agent", id="transfer", attributes=attributes)
    handoff = ran("handoff_to_expert", id="handoff", start=21, end=22)

    one = turn_with(transfer, handoff, ran("search_docs", DOCUMENTS, QUERY, start=30, end=40))

    assert (found(one), one.refused) == ([["a", "b"]], {})


def test_a_result_in_another_attribute_than_the_rows_is_recorded() -> None:
    """Then its content is not off."""
    weather = ran("get_weather", id="w", attributes={"tool_response": '{"temperature": 3}'})

    one = turn_with(weather, ran("search_docs", DOCUMENTS, QUERY, start=30, end=40))

    assert (found(one), one.refused) == ([["a", "b"]], {})


def _twice(*ids: list[str]) -> Interpretation:
    """Searches that found the same texts the other way round, under these ids."""
    texts = [one["text"] for one in DOCUMENTS]
    lists = zip(ids, (texts, texts[::-1]), strict=True)
    return turn_with(
        *(
            ran(
                "search_docs",
                [{"id": id, "text": text} for id, text in zip(names, found, strict=True)],
                QUERY,
                id=f"tool-{place}",
                start=10 + 20 * place,
                end=20 + 20 * place,
            )
            for place, (names, found) in enumerate(lists)
        )
    )


@pytest.mark.parametrize(
    "ids",
    [
        (["doc1", "doc2"], ["doc1", "doc2"]),
        (["chunk_0", "chunk_1"], ["chunk_0", "chunk_1"]),
        (["q-1-0", "q-1-1"], ["q-2-0", "q-2-1"]),
    ],
)
def test_ids_that_a_tool_makes_for_each_search_are_refused(ids: tuple[list[str], ...]) -> None:
    """They are places, or numbers of a request and places in it."""
    assert _twice(*ids).refused == {"no_identity": 2}


@pytest.mark.parametrize("ids", [["#0", "#1"], ["result_1", "result_2"], ["turn0a0", "turn0a1"]])
def test_ids_that_are_written_as_places_are_none(ids: list[str]) -> None:
    """The texts identify the results then."""
    one = _twice(ids, ids)

    results = [
        [result.ids["passage"] for result in search.results] for search in one.turns[0].searches
    ]
    assert one.refused == {}
    assert results[0] == results[1][::-1]


def test_ids_that_end_in_numbers_and_stay_with_their_texts_are_ids() -> None:
    """Wherever the results stand."""
    one = _twice(["doc1", "doc2"], ["doc2", "doc1"])

    assert (found(one), one.refused) == ([["doc1", "doc2"], ["doc2", "doc1"]], {})


@pytest.mark.parametrize("limit", [137, 128, 200])
def test_a_text_with_several_results_that_a_limit_cut_off_is_refused(limit: int) -> None:
    """Results are missing at its end; one that ends where a sentence does is whole."""

    def searches(*texts: str) -> Interpretation:
        return turn_with(
            *(
                ran("search_docs", text, QUERY, id=f"t{at}", start=10 + 9 * at, end=15 + 9 * at)
                for at, text in enumerate(texts)
            )
        )

    one = "Refunds take five days, and then some.\n---\nTravel is by train, or by bus"
    rest = limit - len(one) - 3
    whole = searches(*(f"{one}, {letter * rest}." for letter in "abc"))
    assert [len(each) for each in found(whole)] == [2, 2, 2]
    cut = searches(*(f"{one}, {letter * (rest + 1)}" for letter in "abc"))
    assert (cut.turns, cut.refused) == ((), {"truncated": 3})


def test_a_retriever_inside_says_better_what_a_text_has() -> None:
    """The text has no ids."""
    text = "\n\n---\n\n".join(one["text"] for one in DOCUMENTS)
    inner = genai("retrieval", "r", 12, 14, gen_ai__retrieval__documents=json.dumps(DOCUMENTS))
    within = msgspec.structs.replace(inner, parent_id="tool")

    assert found(turn_with(ran("search_docs", text, QUERY), within)) == [["a", "b"]]


def test_a_row_of_the_settings_reads_a_list_by_its_paths() -> None:
    """The paths are JMESPath."""
    result = {"payload": {"rows": [{"key": "k-1", "body": "One."}, {"key": "k-2", "body": "Two."}]}}
    row = {"tool": "search_docs", "items": "payload.rows[*]", "id": "key", "text": "body"}

    one = turn_with(ran("search_docs", result, QUERY), shapes=[row])

    assert (found(one), one.refused) == ([["k-1", "k-2"]], {})


@pytest.mark.parametrize(("split", "results"), [("\n\n", 2), ("whole", 1)])
def test_a_row_of_the_settings_divides_a_text(split: str, results: int) -> None:
    """Where only blank lines divide, the settings have to say it."""
    text = ran("search_docs", "Refunds take five days.\n\nTravel is by train.", QUERY)

    refused = turn_with(text)
    one = turn_with(text, shapes=[{"tool": "search_docs", "split": split}])

    assert refused.refused == {"unrecognised": 1}
    assert 'otlp.shapes = [{tool = "search_docs", split = "\\n\\n"}]' in refused.refusals[0].message
    assert [len(each) for each in found(one)] == [results]


def test_a_sentence_is_an_empty_search_by_a_row_only() -> None:
    """Without the row it is a text that no row reads."""
    text = ran("search_docs", "No results found.", QUERY)
    row = {"tool": "search_docs", "empty": ["No results found."]}

    assert turn_with(text).refused == {"unrecognised": 1}
    assert found(turn_with(text, shapes=[row])) == [[]]


def test_a_result_of_unknown_names_is_refused_with_a_row_that_reads_it() -> None:
    """The row to copy has the list and the fields that are there."""
    result = {
        "payload": {"found": [{"key": "k-1", "phrase": "One."}, {"key": "k-2", "phrase": "Two."}]}
    }
    one = turn_with(ran("search_docs", result, QUERY))

    row = 'tool = "search_docs", items = "payload.found[]", id = "key", text = "phrase"'
    assert f"otlp.shapes = [{{{row}}}]" in one.refusals[0].message


@pytest.mark.parametrize("row", [{"items": "rows["}, {"tool": "x"}, {"items": "a", "split": "b"}])
def test_a_row_that_cannot_read_anything_is_an_error_of_the_settings(row: dict[str, Any]) -> None:
    """Paths are checked when settings are read."""
    with pytest.raises(ValueError):
        OtlpSettings.model_validate({"shapes": [row]})


def test_a_turn_with_only_a_tool_that_does_not_search_is_a_decision_not_to_search() -> None:
    """The row of the settings makes all spans of the turn known."""
    one = turn_with(ran("get_weather", {"text": "Rain"}), tools={"get_weather": "other"})

    assert ([turn.skipped for turn in one.turns], one.refused) == ([True], {})


def test_a_search_of_a_memory_store_is_a_search() -> None:
    """Its records are the results, and the store is the route."""
    searched = genai(
        "search_memory",
        "memory",
        10,
        20,
        gen_ai__memory__store__name="notes",
        gen_ai__memory__query__text="refunds",
        gen_ai__memory__records=json.dumps(
            [{"id": one["id"], "content": one["text"], "score": 0.5} for one in DOCUMENTS]
        ),
    )

    one = turn_with(searched)

    [search] = one.turns[0].searches
    assert (search.query, search.route) == ("refunds", "notes")
    assert found(one) == [["a", "b"]]


def test_a_lost_answer_is_refused_where_calls_stand_in_answers() -> None:
    """It may have had a call that is told nowhere else."""
    answer, given = ANSWERS["OpenTelemetry"]
    operation = {"gen_ai.operation.name": "chat"}
    lost = span("lost", "turn", 50, 55, operation, scope="my.agent", dropped_attributes=3)

    one = with_messages(answer, given, lost)

    assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_lost_messages_are_refused_where_results_stand_in_messages() -> None:
    """They may have had the result of a call that is told nowhere else."""
    answer, given = ANSWERS["OpenTelemetry"]
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"role": "us'}
    lost = span("lost", "turn", 91, 92, attributes, scope="my.agent")

    one = with_messages(answer, given, lost)

    assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_a_lost_answer_without_a_turn_is_refused() -> None:
    """It may have called a search, and nothing else of the trace shows one."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": '[{"role": "as'}

    one = interpret([span("m", attributes=attributes, scope="x")], mapping(), Options())

    assert one.refused == {"truncated": 1}


def test_a_turn_without_a_search_is_no_skip_if_the_answer_was_dropped() -> None:
    """The model may have called a search in it."""
    operation = {"gen_ai.operation.name": "chat"}
    lost = span("lost", "turn", 50, 55, operation, scope="my.agent", dropped_attributes=3)

    one = turn_with(lost)

    assert one.turns == ()
    assert one.refused == {"unseen_searches": 1}


def test_a_span_without_its_result_takes_it_from_the_agents_messages() -> None:
    """The last place in which it may stand."""
    answered = [{"type": "tool_call_response", "id": "c", "result": DOCUMENTS}]
    messages = json.dumps([{"role": "user", "parts": answered}])
    turn = genai("invoke_agent", "turn", 0, 100, pydantic_ai__all_messages=messages)
    told = {name.replace("pydantic.ai", "pydantic_ai"): it for name, it in turn.attributes.items()}
    spans = [
        span("turn", "", 0, 100, told, scope="my.agent"),
        genai("chat", "first", 1, 5),
        ran("search_docs", None, QUERY, attributes={"gen_ai.tool.call.id": "c"}),
        genai("chat", "last", 90, 95),
    ]

    one = interpret(spans, mapping(), Options())

    assert (found(one), one.refused) == ([["a", "b"]], {})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_product_returns_is_no_search_by_its_form_alone(case: Case) -> None:
    """A tool that neither has the name nor the arguments of one is refused, scores or not."""
    one = turn_with(ran("get_records", case.answer(HITS), json.dumps({"customer": "c-1"})))

    assert one.turns == ()
    assert one.refused


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_product_returns_is_a_search_of_a_tool_that_searches(case: Case) -> None:
    """By its name and its query, in whichever product."""
    one = turn_with(ran("search_docs", case.answer(HITS), QUERY))

    assert one.refused == {}
    assert [len(each) for each in found(one)] == [len(HITS)]


@pytest.mark.parametrize(
    ("result", "results"),
    [
        ({"payload": {"found": [{"key": "k-1", "phrase": "One."}, {"key": "k-2"}]}}, 2),
        ({"my-list": [{"doc-key": "k-1", "phrase": "One."}]}, 1),
        ([["k-1", "One."]], None),
        ("Refunds take five days.\n\nTravel is by train.", 2),
        ("Refunds take five days.", 1),
        ("1. Five days.\n2. By train.", 2),
        ({"groups": [{"name": "g", "hits": [{"id": "k-1", "text": "One."}]}]}, 1),
        ({"response": [{"role": "ai", "said": "x"}], "found": [{"key": "k-1", "said": "y"}]}, 1),
    ],
)
def test_the_row_that_a_refusal_prints_reads_the_result(result: Any, results: int | None) -> None:
    """It is TOML to copy; a result without objects has none."""
    tool = ran("search_docs", result, QUERY)
    [refusal] = turn_with(tool).refusals

    row = re.search(r"otlp\.shapes = \[\{.*?\}\]", refusal.message)
    assert (row is None) == (results is None)
    if row is not None:
        one = turn_with(tool, **tomllib.loads(row[0])["otlp"])
        assert [len(each) for each in found(one)] == [results]


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.source for shape in SHAPES])
def test_the_rows_that_a_refusal_of_two_lists_prints_read_each(shape: Shape) -> None:
    """One reads the answer, as its product's row does, and one the list beside it."""
    related = [{"id": "x", "text": "Another text of another list."}]
    answer = CASES[shape.source].answer(HITS)
    tool = ran("search_docs", {"found": answer, "related": related}, QUERY)
    [refusal] = turn_with(tool).refusals

    row, *others = refusal.message.split("otlp.shapes = ")[1].split(", or items = ")
    rows = [row, *(f'[{{tool = "search_docs", items = {one}}}]' for one in others)]
    searches = [turn_with(tool, **tomllib.loads(f"shapes = {one}")) for one in (rows[0], rows[-1])]
    assert [one.refused for one in searches] == [{}, {}]
    assert [len(each) for one in searches for each in found(one)] == [len(HITS), 1]


@pytest.mark.parametrize(
    "said",
    [
        {"error": "index not found"},
        {"errors": [{"message": "shard lost"}]},
        {"success": False},
        {"status": "error"},
        {"status": 503},
        {"_shards": {"total": 5, "failed": 1}},
    ],
)
def test_an_error_beside_an_empty_list_is_no_empty_search(said: dict[str, Any]) -> None:
    """It is refused, as what would have been found is unknown; other tools may answer so."""
    searched = turn_with(ran("search_docs", {"results": [], **said}, QUERY))
    other = turn_with(ran("cancel_order", {"results": [], **said}, json.dumps({"order": "o-1"})))

    assert (searched.turns, searched.refused) == ((), {"unrecognised": 1})
    assert "unrecognised" not in other.refused


@pytest.mark.parametrize("said", [{"error": None}, {"errors": []}, {"status": "ok"}, {"status": 0}])
def test_fields_for_errors_that_say_there_is_none_are_no_errors(said: dict[str, Any]) -> None:
    """The list is that of an empty search."""
    assert found(turn_with(ran("search_docs", {"results": [], **said}, QUERY))) == [[]]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_empty_list_is_an_empty_search_however_often_it_is_encoded(times: int) -> None:
    """Tools return JSON as a text, which products encode again."""
    result = "[]"
    for _ in range(1, times):
        result = json.dumps(result)

    one = turn_with(ran("search_docs", result, QUERY))

    assert (found(one), one.refused) == ([[]], {})


def test_the_schema_of_a_tool_counts_only_where_its_arguments_are_missing() -> None:
    """A statement for a database is no query, whatever the argument is called."""
    schema = {"gen_ai.tool.json_schema": '{"properties": {"query": {"type": "string"}}}'}
    statement = json.dumps({"query": "SELECT id, text FROM messages"})

    asked = turn_with(ran("search_docs", DOCUMENTS, attributes=schema))
    told = turn_with(ran("look_up_rows", DOCUMENTS, statement, attributes=schema))

    assert (found(asked), told.refused) == ([["a", "b"]], {"unrecognised": 1})


def test_an_empty_list_beside_a_text_is_no_empty_search() -> None:
    """The text may be what was found."""
    one = turn_with(ran("search_docs", {"answer": "Five days.", "references": []}, QUERY))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_calls_are_read_from_what_models_were_given_where_no_answer_is_recorded() -> None:
    """Some instrumentations record prompts only; what an earlier turn called is no new call."""
    given = ANSWERS["OpenTelemetry"][1]

    told = with_messages({"gen_ai.input.messages": "[]"}, given)
    before = with_messages(given, given)

    assert (found(told), told.refused) == ([["a", "b"]], {})
    assert [turn.skipped for turn in before.turns] == [True]


def test_a_result_that_a_later_call_tells_belongs_to_the_first_that_may_have_had_it() -> None:
    """The calls between do not record what they were given, and separate iterations."""
    first, second = (
        genai(
            "chat",
            f"m{number}",
            10 * number,
            10 * number + 1,
            gen_ai__output__messages=json.dumps(
                [{"role": "assistant", "parts": [{**CALL, "id": f"c{number}"}]}]
            ),
        )
        for number in (1, 2)
    )
    results = [
        {"type": "tool_call_response", "id": f"c{number}", "response": DOCUMENTS}
        for number in (1, 2)
    ]
    messages = json.dumps([{"role": "tool", "parts": results}])
    one = turn_with(first, second, genai("chat", "m3", 30, 31, gen_ai__input__messages=messages))

    assert [search.iteration for search in one.turns[0].searches] == [1, 2]


def test_results_in_events_of_tools_messages_are_read() -> None:
    """The event says its role, and its ``id`` is that of the call."""
    function = {"name": "search_docs", "arguments": QUERY}
    calls = [{"id": "c", "type": "function", "function": function}]
    answer = {"role": "assistant", "tool_calls": calls}
    asking = genai(
        "chat",
        "m1",
        10,
        11,
        events=(SpanEvent("gen_ai.choice", 0, {"message": json.dumps(answer)}),),
    )
    result = {"id": "c", "content": json.dumps(DOCUMENTS)}
    answering = genai("chat", "m2", 20, 21, events=(SpanEvent("gen_ai.tool.message", 0, result),))

    assert found(turn_with(asking, answering)) == [["a", "b"]]


def test_a_call_without_a_result_beside_others_is_refused() -> None:
    """Limits cut off the prompt in which it stood."""
    calls = [{**CALL, "id": "c1"}, {**CALL, "id": "c2"}]
    answer = json.dumps([{"role": "assistant", "parts": calls}])
    result = {"type": "tool_call_response", "id": "c1", "response": DOCUMENTS}
    given = json.dumps([{"role": "tool", "parts": [result]}])

    one = with_messages({"gen_ai.output.messages": answer}, {"gen_ai.input.messages": given})

    assert (one.turns, one.refused) == ((), {"truncated": 1})


@pytest.mark.parametrize(
    ("known", "bare"),
    [
        ({"id": "k-1", "text": "Five days."}, {"id": None, "text": "Five days."}),
        (
            {"title": "Refunds", "url": "https://kb.example/1", "snippet": "Five days."},
            {"title": "Refunds", "snippet": "Five days."},
        ),
        (
            {"id": "k-1", "url": "https://kb.example/1", "text": "Five days."},
            {"id": "", "text": "Five days."},
        ),
    ],
)
def test_a_result_without_its_id_or_address_is_the_one_with_the_same_text(
    known: dict[str, str], bare: dict[str, str | None]
) -> None:
    """However short the text is, and whichever search has which."""
    first = ran("search_docs", {"results": [known]}, QUERY, id="first")
    again = ran("search_docs", {"results": [bare]}, QUERY, id="again", start=20)

    [turn] = turn_with(first, again).turns

    results = [result for search in turn.searches for result in search.results]
    assert len({(one.doc_id, one.url, *one.ids.values()) for one in results}) == 1


def test_a_text_that_several_documents_have_identifies_none_of_them() -> None:
    """A result without an id counts by its text then."""
    documents = [{"id": "k-1", "text": "No preview"}, {"id": "k-2", "text": "No preview"}]
    first = ran("search_docs", documents, QUERY, id="first")
    bare = ran("search_docs", [{"id": None, "text": "No preview"}], QUERY, id="again", start=20)

    assert found(turn_with(first, bare)) == [["k-1", "k-2"], [None]]


def resources(*uris: str, text: str = "Text {}.") -> dict[str, Any]:
    """What a server of MCP returns."""
    return {
        "content": [
            {"type": "resource", "resource": {"uri": uri, "text": text.format(place)}}
            for place, uri in enumerate(uris)
        ]
    }


@pytest.mark.parametrize(
    "results",
    [
        (resources("kb://faq/1", "kb://faq/2"), resources("kb://faq/2", text="Moved {}.")),
        (
            [{"uri": "kb://faq/1", "text": "A."}, {"uri": "kb://faq/2", "text": "B."}],
            [{"uri": "kb://faq/2", "text": "C."}],
        ),
    ],
)
def test_an_address_that_is_none_of_the_web_identifies_as_an_id(results: tuple[Any, Any]) -> None:
    """The text may be another in the next search."""
    first, again = (
        ran("search_docs", result, QUERY, id=f"tool-{place}", start=10 + 10 * place)
        for place, result in enumerate(results)
    )

    assert found(turn_with(first, again)) == [["kb://faq/1", "kb://faq/2"], ["kb://faq/2"]]


def test_passages_of_one_resource_count_by_their_texts_as_well() -> None:
    """A search that found two of them has two results."""
    [turn] = turn_with(ran("search_docs", resources("kb://faq", "kb://faq"), QUERY)).turns

    [search] = turn.searches
    assert len({result.ids["passage"] for result in search.results}) == 2


def searched_between(answers: dict[str, list[dict[str, Any]]], ids: tuple[str, str]) -> list[int]:
    """The iterations of two searches with a model call between them, by what the answers ask."""
    models = [
        genai(
            "chat",
            id,
            start,
            start + 2,
            gen_ai__output__messages=json.dumps([{"role": "assistant", "parts": parts}]),
        )
        for (id, parts), start in zip(answers.items(), (6, 20), strict=True)
    ]
    tools = [
        ran(
            "search_docs",
            DOCUMENTS,
            json.dumps({"query": f"question {place}"}),
            id=f"tool-{place}",
            start=start,
            attributes={"gen_ai.tool.call.id": id} if id else {},
        )
        for place, (id, start) in enumerate(zip(ids, (10, 30), strict=True))
    ]
    [turn] = turn_with(*models, *tools).turns
    return [search.iteration for search in turn.searches]


ASKED = [
    {**CALL, "id": id, "arguments": {"query": f"question {place}"}}
    for place, id in enumerate(("c1", "c2"))
]


@pytest.mark.parametrize("ids", [("c1", "c2"), ("", "")])
def test_tools_for_which_one_answer_asked_are_one_iteration(ids: tuple[str, str]) -> None:
    """A guard's model call between them is no decision of the agent; calls without ids are told
    by their arguments."""
    safe = [{"type": "text", "content": "safe"}]

    assert searched_between({"asks": ASKED, "guard": safe}, ids) == [1, 1]
    assert searched_between({"asks": ASKED[:1], "again": ASKED[1:]}, ids) == [1, 2]


def test_the_same_call_in_two_answers_is_two_iterations() -> None:
    """Their arguments do not tell which answer asked for which."""
    both = [{**one, "arguments": {"query": "question 0"}} for one in ASKED]

    assert searched_between({"asks": both[:1], "again": both[1:]}, ("", "")) == [1, 2]


@pytest.mark.parametrize("name", ["SearchDocs", "Search", "KnowledgeBaseLookup", "FindArticles"])
def test_names_of_go_and_dotnet_begin_with_capitals(name: str) -> None:
    """So do their arguments, and the fields of what they return."""
    result = [{"ID": one["id"], "Text": one["text"]} for one in DOCUMENTS]

    assert found(turn_with(ran(name, result, json.dumps({"Query": "refunds"})))) == [["a", "b"]]


@pytest.mark.parametrize("name", ["DeleteDocs", "SaveSearch", "SearchQueryBuilder", "Research"])
def test_names_in_capitals_that_do_something_else_are_no_searches(name: str) -> None:
    """The words in them count as those of others."""
    assert turn_with(ran(name, DOCUMENTS, QUERY)).refused == {"unrecognised": 1}
