"""Kinds of spans that a length limit truncated, or that no row knows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from stream_metrics.core.telemetry import HELP, Row, Span, interpret, mapping
from stream_metrics.core.telemetry.roles.mapping import Role
from tests.telemetry import MAPPING, agent, interpreted, model, search, searched, span, tool

CONVERSATION = {"session.id": "conversation-17"}
FOUND = json.dumps([{"id": "page-1", "page_content": "A worn chain stretches."}])


def with_limit(spans: Iterable[Span], length: int) -> list[Span]:
    """Spans of an SDK with ``OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT``."""

    def cut(value: Any) -> Any:
        return value[:length] if isinstance(value, str) else value

    return [
        replace(one, attributes={name: cut(value) for name, value in one.attributes.items()})
        for one in spans
    ]


def trace() -> list[Span]:
    return [
        agent(attributes=CONVERSATION),
        model("m1", "agent", 1),
        search("s1", "agent", 5, found="", attributes={"output.value": FOUND}),
    ]


@pytest.mark.parametrize("length", range(1, 20))
def test_a_trace_with_truncated_texts_is_refused_for_any_limit(length: int) -> None:
    """A limit of 4 makes RETR of the kind RETRIEVER, one of 10 makes two sessions equal."""
    one = interpreted(*with_limit(trace(), length))

    assert one.turns == ()
    assert set(one.refused) == {"truncated"}


def test_the_refusal_quotes_the_truncated_kind_and_names_the_limit() -> None:
    one = interpreted(*with_limit([search("s1", "", 5)], 4))

    assert [refusal.message for refusal in one.refusals] == [
        "openinference.span.kind is 'RETR', the beginning of 'retriever'"
    ]
    assert "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT" in HELP[one.refusals[0].reason]


@pytest.mark.parametrize(
    "kind",
    [
        {"openinference.span.kind": "RETR"},
        {"gen_ai.operation.name": "exec"},
        {"gen_ai.operation.name": "retr"},
        {"gen_ai.operation.name": "vect"},
        {"gen_ai.span.kind": "RETR"},
        {"traceloop.span.kind": "too"},
        {"langfuse.observation.type": "retr"},
        {"mlflow.spanType": '"RET'},
        {"langsmith.span.kind": "retr"},
        {"llm.request.type": "cha"},
        {"openinference.span.kind": "RETR…"},
        {"gen_ai.operation.name": "execute_..."},
    ],
    ids=str,
)
def test_the_beginning_of_a_known_kind_is_refused_as_truncated(kind: dict[str, str]) -> None:
    """The instrumentation does not matter."""
    assert interpreted(span("s", attributes={"n": 7, **kind})).refused == {"truncated": 1}


def test_a_truncated_component_type_is_refused() -> None:
    """Rows match the ends of Haystack's types, so a truncated one is unknown."""
    component = {
        "haystack.component.type": "InMemoryBM25Retriever",
        "haystack.component.output": json.dumps({"documents": [{"id": "1", "content": "text"}]}),
    }
    one = span("c", attributes=component, name="haystack.component.run", scope="haystack")

    assert len(interpreted(one).turns) == 1
    assert interpreted(*with_limit([one], 5)).refused == {"truncated": 1}


@pytest.mark.parametrize(
    "value", [["RETRIEVER"], 7, True, {"kind": "RETRIEVER"}, "", "__REDACTED__"]
)
@pytest.mark.parametrize("name", ["openinference.span.kind", "gen_ai.operation.name"])
def test_a_kind_that_is_not_a_text_is_refused(name: str, value: Any) -> None:
    one = interpreted(
        agent(), model("m", "agent", 1), span("s", "agent", 3, attributes={name: value})
    )

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


@pytest.mark.parametrize(
    "kind",
    [
        {"openinference.span.kind": "RETRIEVAL"},
        {"openinference.span.kind": " RETRIEVER "},
        {"openinference.span.kind": "RETRIE", "input.value": "a longer text"},
        {"openinference.span.kind": "RERANKING"},
        {"gen_ai.operation.name": "search_my_memory"},
        {"gen_ai.operation.name": "execute_tools"} | {"gen_ai.tool.type": "web_search"},
        {"langfuse.observation.type": "vector-search"},
        {"mlflow.spanType": '"KNOWLEDGE_LOOKUP"'},
    ],
    ids=str,
)
def test_an_unknown_kind_that_looks_like_a_search_is_refused(kind: dict[str, str]) -> None:
    """Otherwise a search would be missing in the figures of its turn."""
    one = interpreted(*trace(), span("s2", "agent", 8, attributes=kind))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})
    assert next(iter(kind)) in one.refusals[0].message


@pytest.mark.parametrize("kind", ["EMBEDDING", "UNKNOWN", "research", "gen"])
def test_other_unknown_kinds_are_accepted(kind: str) -> None:
    """Conventions have kinds that are neither searches nor turns, and add new ones."""
    attributes = {"openinference.span.kind": kind, "input.value": "a text that is longer"}
    one = interpreted(*trace(), span("o", "agent", 8, attributes=attributes))

    assert (searched(one), dict(one.refused)) == ([(1, "page-1")], {})


def test_spans_of_an_unknown_kind_may_be_turns_each() -> None:
    """A trace may hold a session of an instrumentation that is newer than the presets."""
    spans = [span("socket", end=100, scope="app")]
    for at, id in enumerate(("a", "b")):
        start = 10 * at
        new = {"openinference.span.kind": "ASSISTANT"}
        spans += [
            span(id, "socket", start, start + 9, new, name="assistant"),
            search(f"{id}s", id, start + 1),
        ]

    assert interpreted(*spans).refused == {"unrecognised": 1}
    assert [len(turn.searches) for turn in interpreted(*spans[:3]).turns] == [1]


def test_a_row_of_the_settings_says_that_spans_of_an_unknown_kind_are_no_turns() -> None:
    """The row may match any attribute of them."""
    new = {"openinference.span.kind": "PLAN"}
    spans = [span("root", end=100, scope="app")]
    for at, id in enumerate(("a", "b")):
        spans += [
            span(id, "root", 10 * at, 10 * at + 9, new, name="plan"),
            search(f"{id}s", id, 10 * at + 1, found=id),
        ]

    assert interpreted(*spans).refused == {"unrecognised": 1}
    one = interpret(spans, mapping([Row(Role.OTHER, span="plan")]))
    assert (searched(one), dict(one.refused)) == ([(1, "a"), (2, "b")], {})


@pytest.mark.parametrize("kind", ["retriever", "Retriever", '"RETRIEVER"'])
def test_the_case_of_a_kind_does_not_matter(kind: str) -> None:
    one = interpreted(
        agent(), search("s", "agent", 1, attributes={"openinference.span.kind": kind})
    )

    assert searched(one) == [(1, "a")]


def test_documents_of_a_span_of_a_kind_without_searches_are_refused() -> None:
    """A span with documents of a search is one, whatever its kind."""
    found = {"openinference.span.kind": "CHAIN", "retrieval.documents.0.document.id": "a"}

    assert interpreted(span("s", attributes=found)).refused == {"unrecognised": 1}


def test_truncated_ids_are_refused() -> None:
    """Two documents whose ids begin alike would be one."""
    found = json.dumps([{"id": f"handbook-page-{at}"} for at in range(2)])
    ids = {f"retrieval.documents.{at}.document.id": f"handbook-page-{at}" for at in range(2)}
    one = search("s", "agent", 1, found="", attributes={**ids, "output.value": found})

    assert len(interpreted(agent(), one).turns) == 1
    assert interpreted(*with_limit([agent(), one], 12)).refused == {"truncated": 1}


@pytest.mark.parametrize("name", ["session.id", "gen_ai.agent.name", "gen_ai.agent.version"])
def test_truncated_names_are_refused(name: str) -> None:
    """Conversations, agents and releases whose names begin alike would be one."""
    parts = {name: "support-of-customers-in-europe", "input.value": '{"question": "worn chain?"}'}
    whole = [agent(attributes=parts), search("s", "agent", 1)]

    assert len(interpreted(*whole).turns) == 1
    assert interpreted(*with_limit(whole, 20)).refused == {"truncated": 1}


def test_truncated_metadata_are_refused() -> None:
    """The missing part may have had the conversation, or what distinguishes a graph from its
    nodes."""
    metadata = json.dumps({"thread_id": "t-1", "langgraph_step": 7})
    whole = [agent(attributes={"metadata": metadata}), search("s", "agent", 1)]
    cut = replace(whole[0], attributes={**whole[0].attributes, "metadata": metadata[:-4]})

    assert [turn.conversation for turn in interpreted(*whole).turns] == ["t-1"]
    assert interpreted(cut, whole[1]).refused == {"truncated": 1}


def test_a_session_id_as_long_as_a_limit_is_accepted() -> None:
    """Identifiers often have such lengths."""
    session = "0123456789abcdef" * 2
    spans = [agent(attributes={"session.id": session, "input.value": '{"question": "a' + "b" * 17})]
    one = interpreted(*spans, search("s", "agent", 1))

    assert [turn.conversation for turn in one.turns] == [session]


def test_truncated_answers_are_dropped() -> None:
    """A metric of answers would otherwise use half an answer."""
    texts = {"output.value": '{"answer": "Replace it."}', "input.value": '{"question": "Why so?"}'}
    whole = [agent(attributes=texts), search("s", "agent", 1)]

    assert [(turn.question, turn.answer) for turn in interpreted(*whole).turns] == [
        ("Why so?", "Replace it.")
    ]
    assert [(turn.question, turn.answer) for turn in interpreted(*with_limit(whole, 15)).turns] == [
        (None, None)
    ]


@pytest.mark.parametrize(
    "one",
    [
        span("s", name="ai.toolCall", attributes={"ai.toolCall.result": FOUND}),
        span("s", name="ai.toolCall", attributes={"ai.toolCall.name": "search_docs"}),
        span("s", attributes={"openinference.span.kind": "CHAIN", "output.value": FOUND}),
        span("s", name="retrieve", attributes={"output.value": '{"passages": ["one", "two"]}'}),
        model(
            "m",
            "",
            1,
            attributes={
                "output.value": '{"tool_calls": [{"function": {"name": "search_docs"}}]}',
            },
        ),
        model(
            "m",
            "",
            1,
            attributes={
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "search_docs"
            },
        ),
    ],
    ids=["documents", "tool", "chain", "texts", "asked", "asked in attributes"],
)
def test_a_trace_without_a_turn_that_shows_a_search_is_refused(one: Span) -> None:
    """Otherwise it would count as empty, and its agent would be missing without a reason."""
    assert interpreted(one).refused == {"unrecognised": 1}


def test_a_turn_without_a_model_that_has_documents_is_refused() -> None:
    """A step found them, although no row matches a search in the turn."""
    chain = {"openinference.span.kind": "CHAIN", "output.value": FOUND}

    assert interpreted(agent(), span("c", "agent", 1, attributes=chain)).refused == {
        "unrecognised": 1
    }


@pytest.mark.parametrize(
    "spans",
    [
        [span("web", name="GET /search", attributes={"http.request.method": "GET"})],
        [model("m", "", 1, attributes={"output.value": "Hello."})],
        [
            model(
                "m",
                "",
                1,
                attributes={"output.value": '{"tool_calls": [{"function": {"name": "add"}}]}'},
            )
        ],
        [tool("add", "", 1, output="3")],
        [
            span(
                "split",
                attributes={
                    "openinference.span.kind": "CHAIN",
                    "input.value": FOUND,
                    "output.value": FOUND,
                },
            )
        ],
    ],
    ids=["web", "model", "other tool", "tool", "documents in and out"],
)
def test_a_trace_without_searches_is_empty_and_not_refused(spans: list[Span]) -> None:
    one = interpreted(*spans)

    assert (one.turns, dict(one.refused)) == ((), {})


@pytest.mark.parametrize(
    "row",
    [
        Row(Role.OTHER, span="recall*"),
        Row(Role.OTHER, (("gen_ai.operation.name", "*_memory"),)),
        Row(Role.OTHER, scope="app.memory"),
    ],
    ids=["name", "pattern", "scope"],
)
def test_a_row_of_the_settings_says_that_a_span_of_an_unknown_kind_is_no_search(row: Row) -> None:
    """The remedy for such a refusal is to add a row, which need not repeat the kind."""
    kind = {"gen_ai.operation.name": "search_my_memory", "app.memory": "the preferences of a user"}
    spans = [*trace(), span("o", "agent", 8, attributes=kind, name="recall", scope="app.memory")]

    assert interpreted(*spans).refused == {"unrecognised": 1}
    one = interpret(spans, mapping([row]))
    assert (searched(one), dict(one.refused)) == ([(1, "page-1")], {})


@pytest.mark.parametrize("value", ["embedding", "generate", "invoke", "text"])
def test_a_kind_is_complete_if_its_process_wrote_longer_texts(
    value: str,
) -> None:
    """A limit applies to all spans of a process, so longer texts show that there was none."""
    short = span("o", "agent", 8, attributes={"gen_ai.operation.name": value})
    elsewhere = replace(short, resource={"service.name": "another service"})
    one = interpreted(*trace(), short)

    assert (searched(one), dict(one.refused)) == ([(1, "page-1")], {})
    assert interpreted(*trace(), elsewhere).refused == {"truncated": 1}


@pytest.mark.parametrize("text", ["[prod] Europe", "{tenant} of Europe", "[INST] Be brief."])
def test_a_text_that_begins_with_a_bracket_is_not_truncated_json(text: str) -> None:
    """Metadata and prompts may be plain text."""
    one = interpreted(agent(attributes=CONVERSATION | {"metadata": text}), search("s", "agent", 1))

    assert [turn.conversation for turn in one.turns] == ["conversation-17"]


def test_every_kind_that_a_row_names_is_known() -> None:
    """No value in the rows is taken for a truncated or an unknown one."""
    for row in MAPPING.rows:
        for name, value in row.when:
            if ":" not in name and value and not {"*", "?"} & set(value):
                one = span("s", attributes={name: value})
                assert MAPPING.kinds.truncation(one, None, lambda _: 0) is None
                assert MAPPING.kinds.unknown_search_kind(one) is None
