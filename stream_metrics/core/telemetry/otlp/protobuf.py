"""Decodes OTLP in protobuf with opentelemetry-proto, which is imported when it is first needed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, Final

from stream_metrics.core.telemetry.otlp.spans import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    OtlpError,
    TooManyCopies,
    bounded_ns,
    id_of_bytes,
    parent_of,
)
from stream_metrics.core.telemetry.spans import Link, Span, SpanEvent

_LOGS: Final = "OTLP logs; searches are in traces, give a file of traces"
_OLD_FIELD: Final = 1000
_OLD_TAG: Final = b"\xc2\x3e"


def load_opentelemetry() -> tuple[Any, type[Exception]]:
    """``TracesData`` and the error for messages that cannot be parsed."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    return TracesData, DecodeError


def load_opentelemetry_logs() -> tuple[Any, type[Exception]]:
    """``LogsData`` and the same error."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

    return LogsData, DecodeError


def spans_of_protobuf(value: bytes) -> list[Span]:
    """The spans of a payload in order; raises ``OtlpError``.

    Some metrics and logs can be parsed as spans, since their messages are similar. They then have
    no times, and are rejected.
    """
    return list(_spans(_parsed(value)))


def trace_ids_of_protobuf(value: bytes) -> list[str]:
    """The trace ids of the same spans; raises the same error."""
    return [
        id_of_bytes(span.trace_id, TRACE_ID_BYTES)
        for resource_spans in _parsed(value).resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def protobuf_by_trace(value: bytes, most_copied: float = inf) -> dict[str, bytes]:
    """A payload for each trace in the payload, by trace id; raises the same error, and
    ``TooManyCopies``."""
    parsed, (message, _) = _parsed(value), load_opentelemetry()
    by_trace: dict[str, Any] = {}
    for resource_spans in parsed.resource_spans:
        around = resource_spans.resource.ByteSize() + len(resource_spans.schema_url)
        for scope_spans in resource_spans.scope_spans:
            within: dict[str, Any] = {}
            size = around + scope_spans.scope.ByteSize() + len(scope_spans.schema_url)
            for span in scope_spans.spans:
                trace_id = id_of_bytes(span.trace_id, TRACE_ID_BYTES)
                if trace_id not in within:
                    most_copied -= size
                    if most_copied < 0:
                        raise TooManyCopies
                    of_resource = by_trace.setdefault(trace_id, message()).resource_spans.add()
                    of_resource.resource.CopyFrom(resource_spans.resource)
                    of_resource.schema_url = resource_spans.schema_url
                    within[trace_id] = of_resource.scope_spans.add()
                    within[trace_id].scope.CopyFrom(scope_spans.scope)
                    within[trace_id].schema_url = scope_spans.schema_url
                within[trace_id].spans.append(span)
    return {trace_id: payload.SerializeToString() for trace_id, payload in by_trace.items()}


def are_protobuf_logs(value: bytes) -> bool:
    """Whether the value is OTLP logs in protobuf: a record has a time where spans have their id."""
    message, decode_error = load_opentelemetry_logs()
    try:
        logs = message.FromString(value)
    except decode_error:
        return False
    return any(
        one.time_unix_nano or one.observed_time_unix_nano
        for resource_logs in logs.resource_logs
        for scope_logs in resource_logs.scope_logs
        for one in scope_logs.log_records
    )


def check_old_fields(value: bytes, resources: Iterable[Any]) -> None:
    """Raise ``OtlpError`` for what a resource has by instrumentation library, as before OTLP 0.15.

    The messages of today do not have that field, so its spans or logs would be lost.
    """
    if _OLD_TAG in value:
        from google.protobuf.unknown_fields import UnknownFieldSet

        for resource in resources:
            if any(one.field_number == _OLD_FIELD for one in UnknownFieldSet(resource)):
                raise OtlpError(
                    "it has spans or logs by instrumentation library, as OTLP had before 0.15; "
                    "update what exports them"
                )


def _parsed(value: bytes) -> Any:
    message, decode_error = load_opentelemetry()
    try:
        traces = message.FromString(value)
    except decode_error as error:
        raise _no_traces(
            value,
            "incomplete, or not OTLP traces in protobuf; write it with the Collector's file or "
            "Kafka exporter, or copy it again",
        ) from error
    check_old_fields(value, traces.resource_spans)
    times = (
        span.start_time_unix_nano or span.end_time_unix_nano
        for resource_spans in traces.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    )
    first = next(times, None)
    if first == 0 and not any(times):
        raise _no_traces(
            value,
            "no span in it has a time, so these are OTLP metrics, logs or profiles; searches are "
            "in traces",
        )
    return traces


def _no_traces(value: bytes, message: str) -> OtlpError:
    return OtlpError(_LOGS if are_protobuf_logs(value) else message)


def _spans(traces: Any) -> Iterator[Span]:
    for resource_spans in traces.resource_spans:
        resource = plain_attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _span(span, resource, scope_spans.scope)


def _span(span: Any, resource: dict[str, Any], scope: Any) -> Span:
    parent_id = id_of_bytes(span.parent_span_id, SPAN_ID_BYTES)
    return Span(
        id_of_bytes(span.trace_id, TRACE_ID_BYTES),
        id_of_bytes(span.span_id, SPAN_ID_BYTES),
        parent_of(parent_id, any(span.parent_span_id)),
        bounded_ns(span.start_time_unix_nano),
        bounded_ns(span.end_time_unix_nano),
        span.status.code == span.status.STATUS_CODE_ERROR,
        plain_attributes(span.attributes),
        resource,
        span.name,
        span.kind,
        scope.name,
        scope.version,
        tuple(
            SpanEvent(
                event.name, bounded_ns(event.time_unix_nano), plain_attributes(event.attributes)
            )
            for event in span.events
        ),
        span.dropped_attributes_count,
        tuple(
            Link(
                id_of_bytes(link.trace_id, TRACE_ID_BYTES), id_of_bytes(link.span_id, SPAN_ID_BYTES)
            )
            for link in span.links
        ),
    )


def plain_attributes(attributes: Iterable[Any]) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {attribute.key: _plain_value(attribute.value) for attribute in attributes}


def _plain_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    held = getattr(value, kind)
    match kind:
        case "array_value":
            return [_plain_value(item) for item in held.values]
        case "kvlist_value":
            return plain_attributes(held.values)
        case "bytes_value":
            return base64.b64encode(held).decode()
        case _:
            return held
