"""The built-in rows for frameworks and their instrumentations.

The first row that matches a span decides, so the order of the families matters: those of
OpenInference and of products come before the conventions that they may also write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_metrics.core.telemetry.roles.mapping import Row, SpanMapping
from stream_metrics.core.telemetry.roles.presets import genai, openinference, openllmetry, products
from stream_metrics.core.telemetry.shapes.users import ToolRows

PRESETS: Final[tuple[Row, ...]] = (
    *openinference.ROWS,
    *products.ROWS,
    *openllmetry.ROWS,
    *genai.ROWS,
)

OTHER_KINDS: Final = (
    ("openinference.span.kind", "CHAIN", "EMBEDDING", "GUARDRAIL", "PROMPT", "UNKNOWN"),
    ("gen_ai.operation.name", "chain", "create_agent", "embeddings", "execute_task", "task"),
    ("gen_ai.span.kind", "CHAIN", "EMBEDDING", "TASK"),
    ("gen_ai.tool.type", "datastore", "extension", "function"),
    ("traceloop.span.kind", "task", "unknown"),
    ("langfuse.observation.type", "chain", "embedding", "event", "guardrail", "span"),
    ("langsmith.span.kind", "chain", "embedding", "parser", "prompt"),
    ("mlflow.spanType", "CHAIN", "EMBEDDING", "GUARDRAIL", "MEMORY", "PARSER", "TASK", "UNKNOWN"),
    ("llm.request.type", "completion", "embedding"),
)
"""Kinds that no row needs to name, because they are neither searches nor turns."""


def mapping(
    rows: Sequence[Row] = (),
    conversation: Sequence[str] = (),
    agent: Sequence[str] = (),
    release: Sequence[str] = (),
    tools: ToolRows | None = None,
) -> SpanMapping:
    """The presets, preceded by further rows and attributes."""
    other_kinds = tuple((name, kind) for name, *kinds in OTHER_KINDS for kind in kinds)
    preset = SpanMapping(PRESETS)
    return SpanMapping(
        (*rows, *PRESETS),
        (*conversation, *preset.conversation),
        (*agent, *preset.agent),
        (*release, *preset.release),
        other_kinds=other_kinds,
        tools=tools or ToolRows(),
    )
