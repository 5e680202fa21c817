"""Attributes and forms of rows that several families share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stream_metrics.core.telemetry.roles.mapping import Role, Row

GENAI: Final = "OpenTelemetry GenAI semantic conventions (gen_ai.operation.name)"
OPENLLMETRY: Final = "OpenLLMetry (traceloop.span.kind, opentelemetry-instrumentation-langchain)"

OPERATION: Final = "gen_ai.operation.name"
DOCUMENTS: Final = ("gen_ai.retrieval.documents", "gen_ai.retriever.results")
ANSWER: Final = ("gen_ai.output.messages", "traceloop.entity.output", "output.value")
QUESTION: Final = ("gen_ai.input.messages", "traceloop.entity.input", "input.value")
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
