"""One operation is read from the same attributes however it is spelt, and advice holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from stream_metrics.core.telemetry import Interpretation
from stream_metrics.core.telemetry.roles.mapping import Role, Row
from stream_metrics.core.telemetry.roles.presets import PRESETS
from tests.telemetry import interpreted, search, span

LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"
DOCUMENTS: Final = [
    {"page_content": f"Section {number} of the policy, with words of its own.", "metadata": {}}
    for number in (1, 2)
]
FOUND: Final = json.dumps({"documents": DOCUMENTS, "count": 2})
OUTPUTS: Final = (
    "gen_ai.retrieval.documents",
    "gen_ai.retriever.results",
    "traceloop.entity.output",
    "gen_ai.task.output",
    "output.value",
)
SEARCHES: Final = {
    "retrieval": {"gen_ai.operation.name": "retrieval"},
    "vector_db_retrieve": {"gen_ai.operation.name": "vector_db_retrieve"},
    "RETRIEVER": {"gen_ai.span.kind": "RETRIEVER"},
    "both": {"gen_ai.operation.name": "retrieval", "gen_ai.span.kind": "RETRIEVER"},
    "a task": {"gen_ai.operation.name": "retrieval", "traceloop.span.kind": "task"},
    "MLflow": {"gen_ai.operation.name": "RETRIEVER"},
}
TOOLS: Final = {
    "execute_tool": {"gen_ai.operation.name": "execute_tool"},
    "tool": {"traceloop.span.kind": "tool"},
    "TOOL": {"gen_ai.span.kind": "TOOL"},
    "a retriever": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "retriever"},
}
RERANKERS: Final = {
    "rerank": {"gen_ai.operation.name": "rerank"},
    "rerank_documents": {"gen_ai.operation.name": "rerank_documents"},
    "RERANKER": {"gen_ai.span.kind": "RERANKER"},
    "MLflow": {"gen_ai.operation.name": "RERANKER"},
}
MODELS: Final = {
    "chat": {"gen_ai.operation.name": "chat"},
    "LLM": {"gen_ai.span.kind": "LLM"},
    "old": {"llm.request.type": "chat"},
}


def turn(attributes: Mapping[str, Any], *more: Any) -> Interpretation:
    """The interpretation of a turn in which a span has these attributes."""
    return interpreted(
        span("turn", end=100, attributes={"traceloop.span.kind": "workflow"}, scope=LANGCHAIN),
        span("found", "turn", 10, attributes=attributes, scope=LANGCHAIN),
        *more,
        span("m", "turn", 50, attributes={"gen_ai.operation.name": "chat"}, scope=LANGCHAIN),
    )


def results(one: Interpretation) -> list[int]:
    """The number of results of each search."""
    return [len(each.results) for made in one.turns for each in made.searches]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_read_from_every_attribute_under_every_spelling(name: str, output: str) -> None:
    """OpenLLMetry has two spellings, and writes the task's output under both."""
    one = turn({**SEARCHES[name], output: FOUND})

    assert (results(one), one.refused) == ([2], {})


@pytest.mark.parametrize("asked", ["gen_ai.task.input", "traceloop.entity.input", "input.value"])
@pytest.mark.parametrize("name", SEARCHES)
def test_the_query_is_read_under_every_spelling(name: str, asked: str) -> None:
    """As the documents are."""
    one = turn({**SEARCHES[name], asked: '{"query": "why?"}', "gen_ai.task.output": FOUND})

    assert one.turns[0].searches[0].query == "why?"


@pytest.mark.parametrize("output", ["gen_ai.tool.call.result", *OUTPUTS])
@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_read_from_every_attribute_under_every_spelling(name: str, output: str) -> None:
    """A tool that returns documents is a search."""
    searching = {"gen_ai.tool.name": "search_docs", "gen_ai.tool.call.arguments": '{"query": "?"}'}
    one = turn({**TOOLS[name], **searching, output: FOUND})

    assert (results(one), one.refused) == ([2], {})


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ("gen_ai.rerank.input_documents", "gen_ai.rerank.output_documents"),
        ("traceloop.entity.input", "traceloop.entity.output"),
        ("input.value", "output.value"),
    ],
)
@pytest.mark.parametrize("name", RERANKERS)
def test_a_reranker_is_read_from_every_attribute_under_every_spelling(
    name: str, given: str, output: str
) -> None:
    """Its output replaces the search."""
    attributes = {**RERANKERS[name], given: FOUND, output: json.dumps(DOCUMENTS[:1])}
    reranked = span("r", "turn", 20, attributes=attributes, scope=LANGCHAIN)

    one = turn({**SEARCHES["retrieval"], "gen_ai.task.output": FOUND}, reranked)

    assert (results(one), one.refused) == ([1], {})


@pytest.mark.parametrize("output", ["gen_ai.output.messages", "gen_ai.task.output", "output.value"])
@pytest.mark.parametrize("name", MODELS)
def test_the_answer_of_a_model_is_read_under_every_spelling(name: str, output: str) -> None:
    """Where the turn has none of its own."""
    message = json.dumps([{"role": "assistant", "content": "Because."}])
    last = span("last", "turn", 60, attributes={**MODELS[name], output: message}, scope=LANGCHAIN)

    one = turn({**SEARCHES["retrieval"], "gen_ai.task.output": FOUND}, last)

    assert one.turns[0].answer == "Because."


@pytest.mark.parametrize("role", [Role.SEARCH, Role.TOOL, Role.RERANKER, Role.MODEL, Role.TURN])
def test_rows_of_a_convention_read_the_same_attributes_for_a_role(role: Role) -> None:
    """The rows that are about GenAI's or OpenLLMetry's kinds alone, whatever the spelling."""
    kinds = ("gen_ai.operation.name", "gen_ai.span.kind", "traceloop.span.kind", "llm.request.type")

    def read(row: Row) -> tuple[tuple[str, ...], ...]:
        return row.documents, row.inputs, row.answer

    rows = [
        row
        for row in PRESETS
        if row.role is role and len(row.when) == 1 and row.when[0][0] in kinds and not row.scope
    ]
    assert len(rows) > 1
    assert len({read(row) for row in rows}) == 1, [(row.when, read(row)) for row in rows]


@pytest.mark.parametrize("name", ["retrieval", "vector_db_retrieve", "RETRIEVER"])
@pytest.mark.parametrize("other", ["my.results", "documents.found", "gen_ai.completion"])
def test_documents_in_an_unknown_attribute_are_named(name: str, other: str) -> None:
    """To let the instrumentation record them would be wrong advice."""
    one = turn({**SEARCHES[name], other: FOUND})

    (refusal,) = one.refusals
    assert refusal.reason == "unrecognised"
    assert f"its documents are in {other}, which no row names" in refusal.message


def test_documents_in_unknown_flattened_attributes_are_named() -> None:
    """With what their names have in common."""
    one = turn({**SEARCHES["retrieval"], "mine.0.document.id": "a", "mine.1.document.id": "b"})

    assert "its documents are in mine, which no row names" in one.refusals[0].message


def test_a_tool_with_its_result_in_an_unknown_attribute_is_named() -> None:
    """As a search is."""
    one = turn({**TOOLS["execute_tool"], "gen_ai.tool.name": "search", "my.results": FOUND})

    assert [refusal.reason for refusal in one.refusals] == ["unrecognised"]
    assert "my.results" in one.refusals[0].message


def test_a_search_without_documents_is_told_to_record_them() -> None:
    """What it was asked is not what it found."""
    attributes = {"gen_ai.task.input": FOUND, "input.value": FOUND, "gen_ai.input.messages": FOUND}

    assert turn({**SEARCHES["retrieval"], **attributes}).refused == {"content_off": 1}


def test_openinference_is_read_as_before() -> None:
    """Its attributes are others."""
    assert results(turn(dict(search("found", "turn", 10, found="abc").attributes))) == [3]
