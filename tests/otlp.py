"""OTLP payloads for tests: one description of spans, encoded as JSON and protobuf."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Status, TracesData

START_NS = 1_718_020_800_000_000_000
SCOPE, NAME, KIND = "test", "a span", 3
RETRIEVER = {"openinference.span.kind": "RETRIEVER"}
RETRIEVAL = {"gen_ai.operation.name": "retrieval"}


@dataclass(frozen=True)
class SpanSpec:
    """A span; times are milliseconds after ``START_NS``."""

    trace: int
    span: int
    parent: int = 0
    start_ms: int = 0
    end_ms: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    resource: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False
    scope: str = SCOPE
    links: Sequence[tuple[int, int]] = ()

    @property
    def trace_id(self) -> bytes:
        """Sixteen bytes."""
        return self.trace.to_bytes(16, "big")

    @property
    def span_id(self) -> bytes:
        """Eight bytes."""
        return self.span.to_bytes(8, "big")

    @property
    def parent_id(self) -> bytes:
        """Eight bytes; empty for a root."""
        return self.parent.to_bytes(8, "big") if self.parent else b""

    @property
    def times_ns(self) -> tuple[int, int]:
        """Start and end."""
        return START_NS + self.start_ms * 1_000_000, START_NS + self.end_ms * 1_000_000


def documents(*ids: str | int, **parts: Any) -> dict[str, Any]:
    """OpenInference's flattened attributes of documents, all of which have ``parts``."""
    return {
        f"retrieval.documents.{rank}.document.{name}": value
        for rank, one in enumerate(ids)
        for name, value in {"id": one, **parts}.items()
    }


def hexadecimal(value: bytes) -> str:
    """An id as OTLP writes it in JSON."""
    return value.hex()


def in_base64(value: bytes) -> str:
    """An id as protobuf writes bytes in JSON, which some senders use."""
    return base64.b64encode(value).decode()


def document(
    spans: Iterable[SpanSpec], ids: Callable[[bytes], str] = hexadecimal
) -> dict[str, Any]:
    """Spans as a JSON object, each with its own resource."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _pairs(span.resource)},
                "scopeSpans": [{"scope": {"name": span.scope}, "spans": [_object(span, ids)]}],
            }
            for span in spans
        ]
    }


def as_json(spans: Iterable[SpanSpec], ids: Callable[[bytes], str] = hexadecimal) -> bytes:
    """Spans as one line of JSON, without a newline."""
    return json.dumps(document(spans, ids)).encode()


def as_protobuf(spans: Iterable[SpanSpec]) -> bytes:
    """Spans as one message."""
    traces = TracesData()
    for span in spans:
        of_resource = ResourceSpans()
        of_resource.resource.attributes.extend(_messages(span.resource))
        of_scope = of_resource.scope_spans.add()
        of_scope.scope.name = span.scope
        found = of_scope.spans.add()
        found.name, found.kind = NAME, KIND
        found.trace_id, found.span_id, found.parent_span_id = (
            span.trace_id,
            span.span_id,
            span.parent_id,
        )
        found.start_time_unix_nano, found.end_time_unix_nano = span.times_ns
        found.attributes.extend(_messages(span.attributes))
        for trace, other in span.links:
            found.links.add(trace_id=trace.to_bytes(16, "big"), span_id=other.to_bytes(8, "big"))
        if span.failed:
            found.status.code = Status.STATUS_CODE_ERROR
        traces.resource_spans.append(of_resource)
    return bytes(traces.SerializeToString())


def framed(payloads: Sequence[bytes]) -> bytes:
    """Length-prefixed payloads, as the Collector's file exporter writes them."""
    return b"".join(len(one).to_bytes(4, "big") + one for one in payloads)


def _object(span: SpanSpec, ids: Callable[[bytes], str]) -> dict[str, Any]:
    start_ns, end_ns = span.times_ns
    return {
        "traceId": ids(span.trace_id),
        "spanId": ids(span.span_id),
        "parentSpanId": ids(span.parent_id),
        "name": NAME,
        "kind": KIND,
        "startTimeUnixNano": str(start_ns),
        "endTimeUnixNano": str(end_ns),
        "attributes": _pairs(span.attributes),
        "links": [
            {"traceId": ids(trace.to_bytes(16, "big")), "spanId": ids(other.to_bytes(8, "big"))}
            for trace, other in span.links
        ],
        "status": {"code": 2} if span.failed else {},
    }


def _pairs(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _any(value)} for name, value in attributes.items()]


def _any(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_any(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": _pairs(value)}}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case _:
            return {"stringValue": value}


def _messages(attributes: Mapping[str, Any]) -> list[Any]:
    return [KeyValue(key=name, value=_message(value)) for name, value in attributes.items()]


def _message(value: Any) -> Any:
    found = AnyValue()
    match value:
        case bool():
            found.bool_value = value
        case int():
            found.int_value = value
        case float():
            found.double_value = value
        case list():
            found.array_value.SetInParent()
            found.array_value.values.extend(_message(one) for one in value)
        case dict():
            found.kvlist_value.SetInParent()
            found.kvlist_value.values.extend(_messages(value))
        case bytes():
            found.bytes_value = value
        case _:
            found.string_value = value
    return found
