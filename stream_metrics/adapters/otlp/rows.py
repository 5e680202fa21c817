"""The settings of ``otlp`` as ``stream_metrics.telemetry`` takes them."""

from __future__ import annotations

from stream_metrics.settings import OtlpSettings, Settings
from stream_metrics.telemetry import Mapping, Options, Row, mapping
from stream_metrics.telemetry.assembly import Bounds


def mapping_of(settings: OtlpSettings) -> Mapping:
    """Which spans are what: the rows of the settings before those that are known."""
    rows = [
        Row(
            row.role,
            tuple(row.when.items()),
            scope=row.scope,
            span=row.span,
            documents=row.documents,
            inputs=row.inputs,
            query=row.query,
            answer=row.answer,
        )
        for row in settings.rows
    ]
    return mapping(rows, settings.conversation, settings.agent, settings.release)


def options_of(chosen: Settings) -> Options:
    """How traces are told, and the scores in them become labels."""
    settings = chosen.otlp
    return Options(
        turn=settings.turn,
        content=settings.content == "on",
        scopes=frozenset(settings.scopes),
        missing_parents=settings.missing_parents,
        require_conversation=settings.require_conversation,
        max_spans=settings.max_spans,
        max_bytes=settings.max_trace_bytes,
        ids=settings.ids,
        fields=settings.fields,
        grading=chosen.labels.grading,
    )


def bounds_of(settings: Settings) -> Bounds:
    """How traces are put together."""
    bridge, otlp = settings.bridge, settings.otlp
    return Bounds(
        bridge.settle_ms,
        bridge.trace_max_ms,
        bridge.known_ms,
        bridge.open_traces,
        bridge.open_bytes,
        otlp.max_spans,
        otlp.max_trace_bytes,
    )
