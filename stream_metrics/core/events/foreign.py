"""Names what is no event: traces of other products, tables, records of other tools, other files.

It is asked only about what has been refused, to say what it is and what to do with it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from stream_metrics.core.events.canonical import decode_json
from stream_metrics.core.events.decode import NO_OBJECT, BadRecord

HEAD_BYTES: Final = 512
"""The bytes from which the form of a file is told."""

_DEPTH: Final = 4
_ITEMS: Final = 3  # of a list that are looked at

_EXPORT: Final = "export OTLP with the Collector's file or Kafka exporter"
_BRIDGE: Final = (
    "they become events by `stream-metrics bridge`, or are read by `stream-metrics replay`"
)
_LINES: Final = "write one event or record a line"


class _Form(NamedTuple):
    """A form, what to do with it, and keys that it has, of which one set suffices."""

    name: str
    remedy: str
    keys: tuple[frozenset[str], ...]


def _form(name: str, remedy: str, *keys: str) -> _Form:
    return _Form(name, remedy, tuple(frozenset(one.split()) for one in keys))


_FORMS: Final = (
    _form(
        "OTLP traces",
        _BRIDGE,
        "resourceSpans",
        "resource_spans",
    ),
    _form(
        "OTLP metrics, logs or profiles",
        "searches are in traces",
        "resourceMetrics",
        "resourceLogs",
        "resourceProfiles",
    ),
    _form(
        "a trace of Tempo's API",
        "rename `batches` to `resourceSpans`: jq '{resourceSpans: .batches}'",
        "batches.scopeSpans",
        "batches.instrumentationLibrarySpans",
        "batches.scope_spans",
        "batches.resource",
    ),
    _form(
        "OTLP traces inside another object, as Tempo's or Jaeger's API has them",
        "give only the inner object: jq '.trace // .result // .data'",
        "trace.resourceSpans",
        "trace.batches",
        "result.resourceSpans",
        "data.resourceSpans",
    ),
    _form(
        "a part of OTLP traces",
        "put it into a list under `resourceSpans`: jq -c '{resourceSpans: [.]}'",
        "scopeSpans",
        "instrumentationLibrarySpans",
        "scope_spans",
    ),
    _form(
        "traces of Jaeger",
        _EXPORT,
        "data.spans.operationName",
        "data.traceID data.spans",
        "spans.operationName",
        "spanID operationName",
        "spanId operationName",
        "spans processes traceID",
    ),
    _form("a search of Tempo's API, which has no spans", _EXPORT, "traces.rootServiceName"),
    _form(
        "spans of Zipkin",
        _EXPORT,
        "traceId id localEndpoint",
        "traceId id tags",
        "traceId id binaryAnnotations",
        "traceId id duration",
    ),
    _form(
        "traces of MLflow",
        _EXPORT,
        "info.trace_id data.spans",
        "info.request_id data.spans",
        "info.trace_info data.spans",
        "attributes.mlflow.spanType",
        "trace_info trace_data",
        "trace_id request response spans",
        "request_id request response spans",
    ),
    _form(
        "spans as a console exporter prints them",
        _EXPORT,
        "context.trace_id kind",
        "context.span_id kind",
        "SpanContext Name",
        "SpanContext.TraceID",
        "instrumentationScope traceId",
        "instrumentationLibrary traceId",
    ),
    _form(
        "spans of Phoenix",
        _EXPORT,
        "span_kind context.span_id",
        "span_kind context.trace_id",
        "data.span_kind data.context",
        "context.span_id name",
        "attributes.openinference.span.kind name",
        "data.spans.spanKind",
    ),
    _form(
        "single spans of OTLP",
        "they need their resource and scope: " + _EXPORT,
        "traceId spanId",
        "trace_id span_id start_time_unix_nano",
        "spans.traceId spans.spanId",
    ),
    _form(
        "runs of LangSmith",
        _EXPORT,
        "run_type dotted_order",
        "run_type inputs",
        "run_type trace_id",
        "runs.run_type",
    ),
    _form(
        "traces or observations of Langfuse",
        _EXPORT,
        "observations sessionId",
        "observations.traceId",
        "observations htmlPath",
        "data.observations data.id",
        "data.sessionId data.projectId",
        "traceId startTime parentObservationId",
        "data.parentObservationId",
        "batch.body batch.type",
        "trace_id parent_observation_id",
        "trace.id observations",
    ),
    _form(
        "spans of Datadog",
        _EXPORT,
        "trace_id span_id resource service",
        "data.attributes.span_id data.attributes.trace_id",
    ),
    _form(
        "traces of AWS X-Ray",
        _EXPORT,
        "Traces.Segments",
        "Segments Id",
        "trace_id subsegments",
    ),
    _form(
        "spans of another product",
        _EXPORT,
        "trace_id span_id",
        "traceID spanID",
        "TraceId SpanId",
        "trace.trace_id trace.span_id",
        "root_span_id span_id",
        "op_name trace_id started_at",
        "operation_Id itemType",
    ),
    _form(
        "a search result of Elasticsearch or OpenSearch",
        f"give the events alone, {_LINES}: jq -c '.hits.hits[]._source'",
        "hits.hits",
    ),
    _form(
        "a document of Elasticsearch or OpenSearch",
        f"give the event alone, {_LINES}: jq -c ._source",
        "_index _source",
    ),
    _form(
        "a line of kcat -J",
        "record the topic with `stream-metrics record`, or give kafka:TOPIC",
        "topic offset payload",
        "tstype payload",
        "broker payload",
    ),
    _form(
        "a change event of Debezium",
        "give the event alone, without its envelope",
        "payload.op payload.after",
        "payload.op payload.before",
        "op after source",
        "op before source",
        "after before",
    ),
    _form(
        "a record with its schema, as Kafka Connect's JsonConverter writes it",
        "set `schemas.enable` to false there, or give the payloads alone: jq -c .payload",
        "schema payload",
    ),
    _form(
        "a CloudEvent",
        "give the event alone: jq -c .data",
        "specversion data",
        "specversion data_base64",
        "specversion source",
    ),
    _form(
        "a line of a log shipper, with the event as text inside",
        "give the event alone: jq -r '.message // .log // .event'",
        "@timestamp message",
        "log stream time",
        "sourcetype event",
    ),
)

_MAGIC: Final = (
    (rb"PK\x03\x04", "a zip archive", "unpack it"),
    (rb"\x1f\x8b", "gzip data", "unpack it"),
    (rb"\x28\xb5\x2f\xfd", "zstd data", "unpack it"),
    (rb"BZh[1-9]", "bzip2 data", "unpack it"),
    (rb"\xfd7zXZ\x00", "xz data", "unpack it"),
    (rb"\x04\x22\x4d\x18", "lz4 data", "unpack it"),
    (rb"\xff\x06\x00\x00sNaPpY", "snappy data", "unpack it"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it"),
    (rb"Rar!\x1a", "a RAR archive", "unpack it"),
    (rb".{257}ustar", "a tar archive", "unpack it"),
    (rb"PAR1", "a Parquet file", "give it as a file of its own"),
    (rb"Obj\x01", "an Avro file", f"convert it: {_LINES}, in JSON"),
    (rb"ORC", "an ORC file", "convert it to Parquet"),
    (rb"ARROW1", "an Arrow or Feather file", "convert it to Parquet"),
    (rb"\x80[\x02-\x05][\x95}c]", "a Python pickle", "write Parquet, or JSON Lines"),
    (rb"\x89HDF|\x93NUMPY", "an HDF5 or NumPy file", "write Parquet, or JSON Lines"),
    (rb"SQLite format 3\x00", "a SQLite database", f"export it: {_LINES}, in JSON"),
    (rb"%PDF-", "a PDF", "give the data itself"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8", "a picture", "give the data itself"),
    (
        rb"\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x4d\x3c\xb2\xa1|\xa1\xb2\x3c\x4d"
        rb"|\x0a\x0d\x0d\x0a.{4}(\x1a\x2b\x3c\x4d|\x4d\x3c\x2b\x1a)",
        "captured packets (pcap)",
        "record the topic with `stream-metrics record`",
    ),
    (
        rb"\x00{4}.{12}\x02",
        "a segment of a Kafka log",
        "record the topic with `stream-metrics record`, or give kafka:TOPIC",
    ),
    (
        rb"\s*(?i:<!doctype html|<html|<head|<body|<table)",
        "a page in HTML, such as that of a login or an error",
        "download the data itself",
    ),
    (rb"\s*<(\?xml|!DOCTYPE)", "XML", f"{_LINES}, in JSON"),
)
"""Beginnings of files without lines of JSON."""
_LINE: Final = (
    (
        rb"\n[\x80-\xff]{0,4}[\x01-\x7f]\n[\x80-\xff]{0,2}[\x01-\x7f]\n",
        "OTLP in protobuf",
        _BRIDGE,
    ),
    (rb"\xff\xfe|\xfe\xff|[{\[]\x00|\x00[{\[]", "text in UTF-16", "convert it to UTF-8"),
    (rb"\x1e", "a JSON text sequence (RFC 7464)", f"{_LINES}, without record separators"),
    (rb"HTTP/\d", "an answer over HTTP with its head", "give the body alone"),
    (rb"version https://git-lfs", "a pointer of Git LFS", "fetch the file with git lfs pull"),
    (
        rb"(CreateTime|LogAppendTime|NoTimestampType|Partition|Offset):",
        "output of kafka-console-consumer",
        "record the topic with `stream-metrics record`, or give kafka:TOPIC",
    ),
    (
        rb"\{\s*(resource|traceId|instrumentation\w+|traceState|name|parentId|kind|id)\s*:",
        "spans as JavaScript's console exporter prints them",
        _EXPORT,
    ),
    (
        rb"(\S+\s+(info|debug)\s+)?(ResourceSpans #|ScopeSpans #|Resource SchemaURL)",
        "output of the Collector's debug exporter",
        "use its file or Kafka exporter",
    ),
    (rb"Activity\.(TraceId|SpanId)", "spans as .NET's console exporter prints them", _EXPORT),
    (rb'"?[\w. ]+"?([,;\t]"?[^",;\t{]*"?)+\s*\Z', "a line of CSV", f"{_LINES}, in JSON"),
    (rb"[{\[]+\s*'", "a Python object as it is printed", "write it with json.dumps"),
)
"""Beginnings of lines."""


def _compiled(rows: Iterable[tuple[bytes, str, str]]) -> list[tuple[re.Pattern[bytes], str]]:
    return [(re.compile(row, re.DOTALL), f"{name}: {remedy}") for row, name, remedy in rows]


_OF_FILE: Final = _compiled(_MAGIC)
_OF_LINE: Final = _compiled(_LINE)


def with_form(bad: BadRecord, value: bytes | None) -> BadRecord:
    """A rejection with what the record is instead of an event, if that is known.

    >>> with_form(BadRecord("unknown_type", "no `type`"), b'{"hits": {"hits": []}}').message[:52]
    'it looks like a search result of Elasticsearch or Op'
    """
    if bad.reason not in ("not_json", "unknown_type") and bad.message != NO_OBJECT:
        return bad
    form = form_of(value or b"")
    return bad if form is None else BadRecord(bad.reason, f"it looks like {form}")


def form_of(value: bytes) -> str | None:
    """What a value is that is neither an event nor OTLP, and what to do; None if unknown."""
    if (form := foreign_bytes(value[:HEAD_BYTES])) is not None:
        return form
    try:
        return foreign_form(decode_json(value)[0])
    except (ValueError, RecursionError):
        return None


def foreign_file(head: bytes) -> str | None:
    """What a file is that begins with these bytes and has no lines of JSON, and what to do.

    >>> foreign_file(b"<!DOCTYPE html>")
    'a page in HTML, such as that of a login or an error: download the data itself'
    """
    return next((what for pattern, what in _OF_FILE if pattern.match(head)), None)


def foreign_bytes(value: bytes) -> str | None:
    """What a value or line is that is not JSON, and what to do; None if unknown.

    >>> foreign_bytes(b"{'type': 'forget'}")
    'a Python object as it is printed: write it with json.dumps'
    """
    lines = (what for pattern, what in _OF_LINE if pattern.match(value))
    return foreign_file(value) or next(lines, None)


def foreign_form(value: Any) -> str | None:
    """What a JSON value is, and what to do; None if unknown. Values of texts are not quoted.

    >>> foreign_form({"payload": "{}", "offset": 7, "topic": "searches"})
    'a line of kcat -J: record the topic with `stream-metrics record`, or give kafka:TOPIC'
    """
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        return "JSON inside a text: write it once: jq -r ."
    return (
        foreign_columns(_keys(value, "", 0))
        or _table(value)
        or (_record(value) if isinstance(value, dict) else None)
    )


def foreign_columns(names: Iterable[str]) -> str | None:
    """What has these keys or columns, and what to do; None if unknown."""
    keys = {*names}
    for form in _FORMS:
        if any(some <= keys for some in form.keys):
            return f"{form.name}: {form.remedy}"
    return None


def _keys(value: Any, path: str, depth: int) -> Iterator[str]:
    """The keys of a value, those of inner objects after the outer ones and a dot."""
    if depth > _DEPTH:
        return
    for item in value[:_ITEMS] if isinstance(value, list) else [value]:
        if isinstance(item, list):
            yield from _keys(item, path, depth + 1)
        elif isinstance(item, dict):
            for key, inner in item.items():
                yield f"{path}{key}"
                yield from _keys(inner, f"{path}{key}.", depth + 1)


def _table(value: Any) -> str | None:
    """What a data frame in JSON is."""
    remedy = "write it with to_json(orient='records', lines=True)"
    if isinstance(value, list):
        if value and all(isinstance(row, list) for row in value):
            return f"a data frame as a list of rows without names: {remedy}"
        return f"a list: {_LINES}: jq -c '.[]'"
    if not isinstance(value, dict):
        return None
    columns = value.get("columns")
    if len(value) == 1 and isinstance(columns, list) and columns and isinstance(columns[0], dict):
        return "a data frame of Polars: write it with write_ndjson()"
    fields = value.get("schema")
    if value.keys() <= {"columns", "index", "data", "index_names", "column_names"} and (
        "columns" in value and "data" in value
    ):
        return f"a data frame with its columns apart (orient='split'): {remedy}"
    if isinstance(fields, dict) and "fields" in fields and "data" in value:
        return f"a data frame with its schema (orient='table'): {remedy}"
    inner = [one for one in value.values() if isinstance(one, dict)]
    if inner and len(inner) == len(value):
        first = inner[0].keys()
        is_table = len(inner) > 1 and all(one.keys() == first for one in inner)
        is_numbered = any(all(map(str.isdecimal, keys)) for keys in (value.keys(), first))
        if first and (is_table or is_numbered):
            return f"a data frame as one object: {remedy}"
    return None


def _record(value: dict[str, Any]) -> str | None:
    """Why an object that looks like a recorded record is none."""
    if not ("value" in value or "value_base64" in value):
        return None
    if "offset" not in value:
        named = {"topic", "partition", "timestamp", "key"} & value.keys()
        return "a record without `offset`: add it, from 0" if len(named) > 1 else None
    timestamp = value.get("timestamp")
    if timestamp is not None and type(timestamp) is not int:
        shown = f" {timestamp}" if type(timestamp) is float else ""
        return f"a record whose `timestamp`{shown} is no whole number of milliseconds"
    for name in ("value", "key"):
        encoded = value.get(f"{name}_base64")
        if encoded is not None and not _is_base64(encoded):
            return f"a record whose `{name}_base64` is not base64"
        given = value.get(name)
        if encoded is None and given is not None and type(given) is not str:
            return f"a record whose `{name}` must be text: the {name}'s JSON, as a string"
    return "a recorded record: `stream-metrics replay --into-kafka` sends it"


def _is_base64(value: Any) -> bool:
    try:
        base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        return False
    return True
