"""The rows that are known beforehand: frameworks, their instrumentations and what these write.

The first row that fits a span says what it is, so that the order of families matters: those of
OpenInference and of products come before the conventions that they may write beside their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_metrics.telemetry.mapping import Mapping, Row
from stream_metrics.telemetry.presets import genai, openinference, openllmetry, products

PRESETS: Final[tuple[Row, ...]] = (
    *openinference.ROWS,
    *products.ROWS,
    *openllmetry.ROWS,
    *genai.ROWS,
)

NEITHER: Final = (
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
"""Kinds of the conventions that no row needs to name, as they are neither searches nor turns."""


def mapping(
    rows: Sequence[Row] = (),
    conversation: Sequence[str] = (),
    agent: Sequence[str] = (),
    release: Sequence[str] = (),
) -> Mapping:
    """The presets behind further rows, and their attributes behind further ones."""
    neither = tuple((name, kind) for name, *kinds in NEITHER for kind in kinds)
    preset = Mapping(PRESETS)
    return Mapping(
        (*rows, *PRESETS),
        (*conversation, *preset.conversation),
        (*agent, *preset.agent),
        (*release, *preset.release),
        neither=neither,
    )
