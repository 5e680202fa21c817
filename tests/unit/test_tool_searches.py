"""Which tools are searches, where their results stand, and what is refused."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest

from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import Interpretation, Options, interpret, mapping
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
    ],
)
def test_documents_with_fewer_signs_are_refused_with_the_row_to_copy(
    name: str, arguments: str | None, result: Any
) -> None:
    """Whether the tool searches is for the settings to say."""
    one = turn_with(ran(name, result, arguments))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})
    assert f'otlp.tools = {{"{name}" = "other"}}' in one.refusals[0].message


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
    assert (search.query, len(search.results)) == ("refunds", 2)


def test_a_search_of_the_models_provider_without_results_is_refused() -> None:
    """Citations alone are none."""
    answer = {"output": [{"type": "web_search_call", "id": "w", "action": {"query": "refunds"}}]}
    one = with_messages({"output.value": json.dumps(answer)}, {})

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


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
