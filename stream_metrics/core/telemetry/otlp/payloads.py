"""Decodes payloads as the Collector exports them, ``TracesData`` or export requests, to spans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Annotated, Any, Final

import msgspec
from msgspec import structs
from msgspec.structs import astuple

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.foreign import form_of
from stream_metrics.core.events.record import DeadLetter, Origin, Record
from stream_metrics.core.telemetry.otlp.json_keys import decode_checked, items_of, signal_of
from stream_metrics.core.telemetry.otlp.protobuf import (
    protobuf_by_trace,
    spans_of_protobuf,
    trace_ids_of_protobuf,
)
from stream_metrics.core.telemetry.otlp.spans import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    OtlpError,
    TooManyCopies,
    bounded_ns,
    id_of_text,
    parent_of,
)
from stream_metrics.core.telemetry.spans import Link, Span, SpanEvent

UNREADABLE: Final = "unreadable"

KINDS: Final = {
    f"SPAN_KIND_{name}": number
    for number, name in enumerate(
        ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
    )
}
STATUS_CODES: Final = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
_ERROR: Final = STATUS_CODES["STATUS_CODE_ERROR"]

_TRACE_KEY: Final = re.compile(rb"[0-9a-fA-F]{32}")
_JSON: Final = re.compile(rb'\s*\{\s*"resourceSpans"\s*:')
# Bytes that JSON never has, and every protobuf message with a span does.
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_FIRST_FIELD: Final = 0x0A  # the tag of field 1, with a length
_INNER_FIELDS: Final = frozenset({0x0A, 0x12, 0x1A})  # resource, scope spans, schema URL


_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_UInt32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class _Value(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Values | None = None
    kvlist_value: _Attributes | None = None
    bytes_value: str | None = None


class Attribute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An attribute in OTLP's JSON."""

    key: str
    value: _Value | None = None


class _Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: list[_Value | None] | None = None


class _Attributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: list[Attribute] | None = None


class _Event(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    time_unix_nano: int | str | None = None
    attributes: list[Attribute] | None = None
    dropped_attributes_count: Any = None


class _Link(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    trace_id: str | None = None
    span_id: str | None = None
    trace_state: Any = None
    attributes: Any = None
    dropped_attributes_count: Any = None
    flags: Any = None


class _Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: int | str | None = None
    message: Any = None


class _Span(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: _Int32 | str | None = None
    dropped_attributes_count: _UInt32 | None = None
    start_time_unix_nano: int | str | None = None
    end_time_unix_nano: int | str | None = None
    attributes: list[Attribute] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    trace_state: Any = None
    flags: Any = None
    dropped_events_count: Any = None
    dropped_links_count: Any = None


class Scope(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """An instrumentation scope in OTLP's JSON."""

    name: str | None = None
    version: str | None = None
    attributes: Any = None
    dropped_attributes_count: Any = None


class _ScopeSpans(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    scope: Scope | None = None
    spans: list[_Span] | None = None
    schema_url: Any = None


class Resource(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """A resource in OTLP's JSON."""

    attributes: list[Attribute] | None = None
    dropped_attributes_count: Any = None
    entity_refs: Any = None


class _ResourceSpans(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    resource: Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None
    schema_url: Any = None


class _Traces(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    resource_spans: list[_ResourceSpans] | None


_DECODE: Final = msgspec.json.Decoder(_Traces).decode
_TYPES: Final = len(_Value.__struct_fields__)


def is_json(value: bytes) -> bool:
    """Whether the value is OTLP traces in JSON, as far as its keys show; the beginning suffices.

    >>> is_json(b' { "resourceSpans": []}'), is_json(b'{"type": "forget"}')
    (True, False)
    """
    return _JSON.match(value) is not None or signal_of(value) == "spans"


def other_signal(value: bytes) -> str | None:
    """The other OTLP signal that the value has: metrics, logs or profiles; None if none.

    >>> other_signal(b'{"resourceLogs": []}')
    'logs'
    """
    found = signal_of(value)
    return None if found == "spans" else found


def is_protobuf(value: bytes) -> bool:
    """Whether the value begins like OTLP traces in protobuf; the beginning of a message suffices.

    >>> is_protobuf(bytes([10, 4, 18, 2, 18, 0])), is_protobuf(bytes([10]) + b'{"type": "forget"}')
    (True, False)
    """
    if value[:1] != b"\n":
        return False
    at = 1
    while at < min(len(value), 10) and value[at] & 0x80:
        at += 1
    inner = value[at + 1 : at + 2]
    return bool(inner) and inner[0] in _INNER_FIELDS and _BINARY.search(value) is not None


def is_payload(value: bytes | None) -> bool:
    """Whether the value is OTLP traces rather than an event."""
    return value is not None and (is_json(value) or is_protobuf(value))


def spans_of(value: bytes) -> list[Span]:
    """The spans of a payload in order; raises ``OtlpError``."""
    return list(_spans_of_json(value)) if is_json(value) else spans_of_protobuf(value)


def trace_ids_of(value: bytes) -> list[str]:
    """The trace ids of the same spans, at a lower cost; raises the same error."""
    if is_json(value):
        return [span.trace_id for span in _spans_of_json(value)]
    return trace_ids_of_protobuf(value)


def by_trace(value: bytes, most_copied: float = inf) -> dict[str, bytes]:
    """A payload for each trace in the payload, by trace id; raises the same error.

    Spans without a trace id of the right length are under the empty text. Each payload has copies
    of its resources and scopes: raises ``TooManyCopies`` if all have more than ``most_copied``
    bytes.
    """
    if not is_json(value):
        return protobuf_by_trace(value, most_copied)
    trace_ids_of(value)  # raises if the payload is unreadable
    found: dict[str, dict[str, Any]] = {}
    for payload in items_of(value):
        for resource_spans in msgspec.json.decode(payload)["resourceSpans"] or ():
            for scope_spans in resource_spans.get("scopeSpans") or ():
                within: dict[str, list[Any]] = {}
                for span in scope_spans.get("spans") or ():
                    trace_id = id_of_text(span.get("traceId"), TRACE_ID_BYTES)
                    within.setdefault(trace_id, []).append(span)
                for trace_id, spans in within.items():
                    one = {**resource_spans, "scopeSpans": [{**scope_spans, "spans": spans}]}
                    found.setdefault(trace_id, {"resourceSpans": []})["resourceSpans"].append(one)
    parts: dict[str, bytes] = {}
    most = most_copied + len(value)
    for trace_id, one in found.items():
        parts[trace_id] = msgspec.json.encode(one)
        most -= len(parts[trace_id])
        if most < 0:
            raise TooManyCopies
    return parts


def id_of_key(key: bytes | None) -> str | None:
    """The trace id in a record's key, as the Collector writes it; None for another key.

    >>> id_of_key(b"5B8EFFF798038103D269B633813FC60C"), id_of_key(b"session-1")
    ('5b8efff798038103d269b633813fc60c', None)
    """
    return key.decode().lower() if key is not None and _TRACE_KEY.fullmatch(key) else None


class OtlpDecoder:
    """Implements ``bridge.bridge.PayloadDecoder``."""

    def spans(self, value: bytes | None) -> list[Span] | BadRecord:
        """See ``bridge.bridge.PayloadDecoder``."""
        if value is None:
            return BadRecord(UNREADABLE, "the record has no value")
        try:
            return spans_of(value)
        except OtlpError as error:
            return BadRecord(UNREADABLE, _why(value, error))

    def trace_ids(self, record: Record) -> Sequence[str]:
        """See ``bridge.bridge.PayloadDecoder``."""
        if record.value is not None:
            try:
                return trace_ids_of(record.value)
            except OtlpError:
                pass
        found = id_of_key(record.key)
        return () if found is None else (found,)


def route_by_trace(records: Sequence[Record]) -> tuple[list[Record], list[DeadLetter]]:
    """Split each record by trace, keyed by trace id; implements ``worker.repartition.Route``."""
    copies: list[Record] = []
    letters: list[DeadLetter] = []
    for record in records:
        value = record.value or b""
        try:
            parts = by_trace(value)
        except OtlpError as error:
            letters.append(DeadLetter(record, UNREADABLE, _why(value, error)))
            continue
        except Exception as error:
            letters.append(DeadLetter.of_bug(record, error))
            continue
        origin = Origin(record.topic, record.partition, record.offset, record.key)
        copies += (
            structs.replace(record, key=trace_id.encode(), value=part, origin=origin)
            for trace_id, part in parts.items()
        )
    return copies, letters


def _why(value: bytes, error: OtlpError) -> str:
    signal = other_signal(value)
    if signal is not None:
        return f"OTLP {signal}; searches are in traces"
    form = None if is_json(value) or is_protobuf(value) else form_of(value)
    return str(error) if form is None else f"it looks like {form}"


def _spans_of_json(value: bytes) -> Iterator[Span]:
    with json_errors("traces"):
        for payload in items_of(value):
            traces = decode_checked(payload, _Traces, _DECODE, partial(_has_all, payload))
            for resource_spans in traces.resource_spans or ():
                of_resource = resource_spans.resource
                resource = plain(of_resource.attributes if of_resource else None)
                for scope_spans in resource_spans.scope_spans or ():
                    scope = scope_spans.scope or Scope()
                    for span in scope_spans.spans or ():
                        yield _span(span, resource, scope)


@contextmanager
def json_errors(signal: str) -> Iterator[None]:
    """Raise ``OtlpError`` for errors in OTLP's JSON."""
    try:
        yield
    except RecursionError as error:
        raise OtlpError("OTLP JSON with too many levels of nested values") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise OtlpError(
            f"incomplete, or not OTLP {signal} in JSON ({error}); write it with the Collector's "
            "file exporter, or copy it again"
        ) from error


def _has_all(payload: bytes, traces: _Traces) -> bool:
    """Whether what was read has as many lists of spans as the payload mentions.

    Of a key that is twice in one object, only the last value is read.
    """
    resources = traces.resource_spans or ()
    scopes = [scope for resource in resources for scope in resource.scope_spans or ()]
    lists = sum(one.scope_spans is not None for one in resources)
    lists += sum(one.spans is not None for one in scopes)
    return payload.count(b'pans"') == 1 + lists  # the three keys end alike


def _span(span: _Span, resource: dict[str, Any], scope: Scope) -> Span:
    parent_id = id_of_text(span.parent_span_id, SPAN_ID_BYTES)
    return Span(
        id_of_text(span.trace_id, TRACE_ID_BYTES),
        id_of_text(span.span_id, SPAN_ID_BYTES),
        parent_of(parent_id, (span.parent_span_id or "").strip("0A=")),
        bounded_ns(int(span.start_time_unix_nano or 0)),
        bounded_ns(int(span.end_time_unix_nano or 0)),
        span.status is not None and _number_of(span.status.code, STATUS_CODES) == _ERROR,
        plain(span.attributes),
        resource,
        span.name or "",
        _number_of(span.kind, KINDS),
        scope.name or "",
        scope.version or "",
        tuple(
            SpanEvent(
                event.name or "",
                bounded_ns(int(event.time_unix_nano or 0)),
                plain(event.attributes),
            )
            for event in span.events or ()
        ),
        span.dropped_attributes_count or 0,
        tuple(
            Link(id_of_text(link.trace_id, TRACE_ID_BYTES), id_of_text(link.span_id, SPAN_ID_BYTES))
            for link in span.links or ()
        ),
    )


def plain(attributes: list[Attribute] | None) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {one.key: _plain_value(one.value) for one in attributes or ()}


def _whole(value: int) -> int | str:
    """An integer of 64 bits, or its text if it is larger."""
    return value if -(2**63) <= value < 2**63 else str(value)


def _number_of(value: int | str | None, names: dict[str, int]) -> int:
    """The number of an enum's value, which OTLP writes as a number, and some senders by name."""
    if not isinstance(value, str):
        return value or 0
    if value in names:
        return names[value]
    if not value.isdecimal():
        raise ValueError(f"{value[:100]!r} is none of {', '.join(names)}")
    return int(value)


def _plain_value(value: _Value | None) -> Any:
    if value is None:
        return None
    kinds = _TYPES - astuple(value).count(None)
    if kinds > 1:
        raise ValueError("the value of an attribute has several types")
    if value.string_value is not None or not kinds:
        return value.string_value
    if value.int_value is not None:
        return _whole(int(value.int_value))
    if value.double_value is not None:
        return float(value.double_value)
    if value.array_value is not None:
        return [_plain_value(one) for one in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return plain(value.kvlist_value.values)
    return value.bytes_value if value.bool_value is None else value.bool_value
