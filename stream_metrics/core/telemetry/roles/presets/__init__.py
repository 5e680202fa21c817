"""The built-in rows for frameworks and their instrumentations.

The first row that matches a span decides, so the order of the families matters: those of
OpenInference and of products come before the conventions that they may also write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_metrics.core.telemetry.roles.mapping import Row, SpanMapping
from stream_metrics.core.telemetry.roles.presets import (
    frameworks,
    genai,
    openinference,
    openllmetry,
    products,
)
from stream_metrics.core.telemetry.shapes.users import ToolRows

PRESETS: Final[tuple[Row, ...]] = (
    *frameworks.ROWS,
    *openinference.ROWS,
    *products.ROWS,
    *openllmetry.ROWS,
    *genai.ROWS,
    *frameworks.LATER_ROWS,
)

OTHER_KINDS: Final = (
    ("openinference.span.kind", "CHAIN", "EMBEDDING", "GUARDRAIL", "PROMPT", "UNKNOWN"),
    (
        *("gen_ai.operation.name", "chain", "create_agent", "embeddings", "execute_task", "task"),
        *("execute_event_loop_cycle", "model_step", "model_chunk", "processor_run"),
    ),
    ("gen_ai.span.kind", "CHAIN", "EMBEDDING", "TASK"),
    ("gen_ai.tool.type", "datastore", "extension", "function"),
    ("traceloop.span.kind", "task", "unknown"),
    ("langfuse.observation.type", "chain", "embedding", "event", "guardrail", "span"),
    ("langsmith.span.kind", "chain", "embedding", "parser", "prompt"),
    (
        *("mastra.span.type", "generic", "model_chunk", "processor_run"),
        *("workflow_step", "workflow_conditional", "workflow_conditional_eval"),
        *("workflow_parallel", "workflow_loop", "workflow_sleep", "workflow_wait_event"),
    ),
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
    return SpanMapping(
        (*rows, *PRESETS),
        other_kinds=other_kinds,
        tools=tools or ToolRows(),
        chosen_conversation=tuple(conversation),
        chosen_agent=tuple(agent),
        chosen_release=tuple(release),
    )
