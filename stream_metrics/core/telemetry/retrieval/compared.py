"""Compares what a tool's span returned with what messages say that the agent was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    SpanDocuments,
    differ,
    shows_same,
)
from stream_metrics.core.telemetry.retrieval.tools import ToolResult
from stream_metrics.core.telemetry.shapes.reading import Reading, plain_text, read_result
from stream_metrics.core.telemetry.shapes.users import ToolRows

OTHERS_TOLD: Final = SpanDocuments(
    None,
    ("ambiguous_documents", "the messages of a model call have other results than its span"),
)


def compared(result: ToolResult, told: Any, tool: str, tools: ToolRows) -> ToolResult:
    """What a tool returned; refused if it searches, and messages tell of other documents.

    Args:
        result: What its span has.
        told: What messages have.
        tool: Its name.
        tools: The rows of the settings.
    """
    found = result.named.documents
    if found is None or not result.searches:
        return result
    by_rows = (reading for row in tools.shapes_of(tool) if (reading := row.read(told)) is not None)
    reading = next(by_rows, None) or read_result(told)
    if not isinstance(reading, Reading):
        return result
    shown = reading.documents
    prose = reading.wide and plain_text(told) is not None
    if not (_have_others(found, shown) if prose else differ(found, shown)):
        return result
    return replace(result, named=OTHERS_TOLD)


def _have_others(some: Sequence[Document], others: Sequence[Document]) -> bool:
    """Whether each of two lists has a document that is certainly not in the other, however a text
    divides into documents."""
    return _has_another(some, others) and _has_another(others, some)


def _has_another(some: Sequence[Document], others: Sequence[Document]) -> bool:
    return any(all(shows_same(one, other) is False for other in others) for one in some)
