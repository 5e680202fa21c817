"""Reads OTLP log records, in which evaluators may log scores."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec

from stream_metrics.core.telemetry.otlp.json_keys import decode_checked, items_of
from stream_metrics.core.telemetry.otlp.payloads import (
    Attribute,
    Resource,
    Scope,
    json_errors,
    other_signal,
    plain,
)
from stream_metrics.core.telemetry.otlp.protobuf import (
    check_old_fields,
    load_opentelemetry_logs,
    plain_attributes,
)
from stream_metrics.core.telemetry.otlp.spans import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    OtlpError,
    bounded_ns,
    id_of_bytes,
    id_of_text,
)


class LogRecord(msgspec.Struct, frozen=True):
    """The parts of a log record that are used.

    Attributes:
        trace_id, span_id: The span that it is about, in lower-case hexadecimal; empty if missing.
        time_ns: When it happened, else when it was observed; 0 if neither is known.
        event: The name of the event; empty if it has none.
        attributes: The record's attributes.
    """

    trace_id: str
    span_id: str
    time_ns: int
    event: str
    attributes: dict[str, Any]


class _Record(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    time_unix_nano: int | str | None = None
    observed_time_unix_nano: int | str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None
    attributes: list[Attribute] | None = None
    severity_number: Any = None
    severity_text: Any = None
    body: Any = None
    flags: Any = None
    dropped_attributes_count: Any = None


class _ScopeLogs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    log_records: list[_Record] | None = None
    scope: Scope | None = None
    schema_url: Any = None


class _ResourceLogs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    scope_logs: list[_ScopeLogs] | None = None
    resource: Resource | None = None
    schema_url: Any = None


class _Logs(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    resource_logs: list[_ResourceLogs] | None


_DECODE: Final = msgspec.json.Decoder(_Logs).decode


def are_json_logs(value: bytes) -> bool:
    """Whether the value begins like OTLP logs in JSON.

    >>> are_json_logs(b'{"resourceLogs": []}'), are_json_logs(b'{"resourceSpans": []}')
    (True, False)
    """
    return other_signal(value) == "logs"


def log_records_of(value: bytes) -> list[LogRecord]:
    """The log records of a payload, in its order; raises ``OtlpError``."""
    return list(_of_json(value) if are_json_logs(value) else _of_protobuf(value))


def _of_json(value: bytes) -> Iterator[LogRecord]:
    with json_errors("logs"):
        for payload in items_of(value):
            logs = decode_checked(payload, _Logs, _DECODE, partial(_has_all, payload))
            for resource_logs in logs.resource_logs or ():
                for scope_logs in resource_logs.scope_logs or ():
                    for one in scope_logs.log_records or ():
                        yield _record(
                            id_of_text(one.trace_id, TRACE_ID_BYTES),
                            id_of_text(one.span_id, SPAN_ID_BYTES),
                            int(one.time_unix_nano or 0) or int(one.observed_time_unix_nano or 0),
                            one.event_name,
                            plain(one.attributes),
                        )


def _has_all(payload: bytes, logs: _Logs) -> bool:
    """Whether what was read has as many lists of records as the payload mentions."""
    resources = logs.resource_logs or ()
    scopes = [scope for resource in resources for scope in resource.scope_logs or ()]
    return (
        payload.count(b'"resourceLogs"') == 1
        and payload.count(b'"scopeLogs"') <= sum(one.scope_logs is not None for one in resources)
        and payload.count(b'"logRecords"') <= sum(one.log_records is not None for one in scopes)
    )


def _of_protobuf(value: bytes) -> Iterator[LogRecord]:
    message, decode_error = load_opentelemetry_logs()
    try:
        logs = message.FromString(value)
    except decode_error as error:
        raise OtlpError(
            "incomplete, or not OTLP logs in protobuf; write it with the Collector's file or Kafka "
            "exporter, or copy it again"
        ) from error
    check_old_fields(value, logs.resource_logs)
    for resource_logs in logs.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for one in scope_logs.log_records:
                yield _record(
                    id_of_bytes(one.trace_id, TRACE_ID_BYTES),
                    id_of_bytes(one.span_id, SPAN_ID_BYTES),
                    one.time_unix_nano or one.observed_time_unix_nano,
                    one.event_name,
                    plain_attributes(one.attributes),
                )


def _record(
    trace_id: str, span_id: str, time_ns: int, event: str | None, attributes: dict[str, Any]
) -> LogRecord:
    """The record; older senders write the event's name as an attribute."""
    name = event or attributes.get("event.name")
    named = name if isinstance(name, str) else ""
    return LogRecord(trace_id, span_id, bounded_ns(time_ns), named, attributes)
