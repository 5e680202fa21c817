"""Attributes and forms of rows that several families share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row

GENAI: Final = "OpenTelemetry GenAI semantic conventions (gen_ai.operation.name)"
OPENLLMETRY: Final = "OpenLLMetry (traceloop.span.kind, opentelemetry-instrumentation-langchain)"

OPERATION: Final = "gen_ai.operation.name"
# Rows of one operation read the same attributes, however it is spelt: instrumentations of one
# family write the output under either name of an operation, and under several names at once.
OUTPUT: Final = ("traceloop.entity.output", "gen_ai.task.output", "output.value")
INPUT: Final = ("traceloop.entity.input", "gen_ai.task.input", "input.value")

DOCUMENTS: Final = ("gen_ai.retrieval.documents", "gen_ai.retriever.results")
RETRIEVED: Final = (*DOCUMENTS, "gen_ai.memory.records", *OUTPUT)
ASKED: Final = (
    "gen_ai.retrieval.query.text",
    "gen_ai.memory.query.text",
    "gen_ai.retriever.query",
    "gen_ai.retrieval.query",
    *INPUT,
)
RERANKED: Final = ("gen_ai.rerank.output_documents", *OUTPUT)
TO_RERANK: Final = ("gen_ai.rerank.input_documents", *INPUT)
TOOL_OUTPUT: Final = (*DOCUMENTS, "gen_ai.tool.call.result", *OUTPUT)
TOOL_INPUT: Final = ("gen_ai.tool.call.arguments", *INPUT)
ANSWER: Final = ("gen_ai.output.messages", *OUTPUT)
QUESTION: Final = ("gen_ai.input.messages", *INPUT)
EVALUATED: Final = ("retrieval.documents", "input.value")

NAMING: Final = (Role.SEARCH, Role.TOOL, Role.RERANKER)
"""Roles of spans that name documents."""


def operation(value: str, role: Role, source: str = GENAI, **names: Any) -> Row:
    """The row of an operation of OpenTelemetry GenAI."""
    return Row(role, ((OPERATION, value),), source, **names)


def graphs(
    source: str, kind: tuple[str, str], metadata: str, texts: tuple[str, str], scope: str = ""
) -> Iterator[Row]:
    """The outermost LangGraph runs: those that LangGraph marks, or that have its default name."""
    asked, answered = texts
    for when, name in (((kind, (f"{metadata}ls_integration", "")), "*"), ((kind,), "LangGraph")):
        yield Row(
            Role.TURN,
            when,
            f"{source}: a run of LangGraph that is no node of another",
            scope,
            name,
            query=(asked,),
            answer=(answered,),
            without=(f"{metadata}langgraph_node",),
        )
