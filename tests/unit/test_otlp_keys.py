"""Keys of OTLP's JSON that are spelt otherwise are refused with their place, never lost."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from stream_metrics.core.events import BadRecord
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Grading, mapping
from stream_metrics.core.telemetry.otlp.logs import log_records_of
from stream_metrics.core.telemetry.otlp.payloads import (
    OtlpDecoder,
    by_trace,
    is_payload,
    other_signal,
    route_by_trace,
    spans_of,
    trace_ids_of,
)
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.evaluation_reader import EvaluationReader
from tests.otlp import SpanSpec, as_json, as_protobuf, document, in_base64

SPAN: Final = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "name": "search",
    "startTimeUnixNano": "1718020800000000000",
    "endTimeUnixNano": "1718020800000000001",
    "attributes": [{"key": "a", "value": {"stringValue": "b"}}],
    "events": [{"name": "e", "timeUnixNano": "1718020800000000000"}],
    "links": [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}],
    "status": {"code": 2},
}
LOG: Final = {
    "timeUnixNano": "1718020800000000000",
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "eventName": "gen_ai.evaluation.result",
    "attributes": [{"key": "gen_ai.evaluation.score.value", "value": {"intValue": "1"}}],
}


def traces(**others: Any) -> dict[str, Any]:
    """A payload of one span, which also has these keys."""
    scope = {"scope": {"name": "s"}, "spans": [{**SPAN, **others}]}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}


def logs(**others: Any) -> dict[str, Any]:
    """A payload of one log record, which also has these keys."""
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [{**LOG, **others}]}]}]}


def renamed(value: Any, old: str, new: str) -> Any:
    """The value with one of its keys renamed wherever it is."""
    return json.loads(json.dumps(value).replace(f'"{old}": ', f'"{new}": '))


def snake(name: str) -> str:
    """The name in snake case."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


KEYS: Final = {
    "resourceSpans": "resource_spans",
    "scopeSpans": "resourceSpans[0].scope_spans",
    "traceId": "resourceSpans[0].scopeSpans[0].spans[0].trace_id",
    "spanId": "resourceSpans[0].scopeSpans[0].spans[0].span_id",
    "startTimeUnixNano": "resourceSpans[0].scopeSpans[0].spans[0].start_time_unix_nano",
    "endTimeUnixNano": "resourceSpans[0].scopeSpans[0].spans[0].end_time_unix_nano",
    "timeUnixNano": "resourceSpans[0].scopeSpans[0].spans[0].events[0].time_unix_nano",
    "stringValue": "resourceSpans[0].scopeSpans[0].spans[0].attributes[0].value.string_value",
}


def error_of(value: Any) -> str:
    """Why the payload is refused, however it is read."""
    data = json.dumps(value).encode()
    assert is_payload(data)
    said = []
    for read in (spans_of, trace_ids_of, by_trace):
        with pytest.raises(OtlpError) as raised:
            read(data)
        said.append(str(raised.value))
    found = OtlpDecoder().spans(data)
    assert isinstance(found, BadRecord)
    assert {*said, found.message} == {said[0]}
    assert route_by_trace([Record(data)])[1][0].message == said[0]
    return said[0]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_snake_case_is_refused_with_its_place(key: str) -> None:
    """OTLP takes no other names than those in camel case."""
    said = error_of(renamed(traces(), key, snake(key)))

    assert said.startswith(f"{KEYS[key]}: OTLP's JSON has `{key}` instead")


@pytest.mark.parametrize("spelt", ["scopespans", "ScopeSpans", "scope-spans", "SCOPE_SPANS"])
def test_a_key_in_any_other_spelling_is_refused(spelt: str) -> None:
    """Go's names, among others."""
    assert f"resourceSpans[0].{spelt}: " in error_of(renamed(traces(), "scopeSpans", spelt))


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("start_time_unix_nano", "5"),
        ("parent_span_id", "eee19b7ec3c1b174"),
        ("trace_id", "x"),
        ("Attributes", []),
        ("dropped_attributes_count", 3),
    ],
)
def test_a_good_key_does_not_hide_one_beside_it(key: str, more: Any) -> None:
    """Both stand in one object."""
    assert f"spans[0].{key}: " in error_of(traces(**{key: more}))


@pytest.mark.parametrize("outer", ["resource_spans", "ResourceSpans"])
@pytest.mark.parametrize("first", [True, False])
def test_spans_beside_the_list_of_resources_are_refused(outer: str, first: bool) -> None:
    """Whichever key comes first."""
    other = {outer: traces()["resourceSpans"]}

    assert error_of({**other, **traces()} if first else {**traces(), **other}).startswith(outer)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scopeSpans", "instrumentationLibrarySpans"),
        ("scopeSpans", "instrumentation_library_spans"),
        ("scope", "instrumentationLibrary"),
        ("scope", "instrumentation_library"),
    ],
)
def test_keys_of_old_versions_are_refused_with_what_they_are_called_now(old: str, new: str) -> None:
    """Those before OTLP 0.15."""
    alone = error_of(renamed(traces(), old, new))
    both = traces()
    both["resourceSpans"].append(renamed(traces(), old, new)["resourceSpans"][0])

    assert f"resourceSpans[0].{new}" in alone or f"scopeSpans[0].{new}" in alone
    assert f"OTLP's JSON has `{old}` instead" in alone
    assert f"resourceSpans[1].{new}" in (said := error_of(both)) or f"[0].{new}" in said


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("key", ["more", "batches", "data"])
def test_spans_under_a_key_of_no_meaning_are_refused(key: str, place: int) -> None:
    """At the top, and in a resource."""
    payload = traces()
    (payload if place == 0 else payload["resourceSpans"][0])[key] = [{"inner": [SPAN]}]

    assert f"{key}: OTLP has no such key here" in error_of(payload)


def test_unknown_keys_without_spans_are_ignored() -> None:
    """As OTLP demands, so that newer senders can be read."""
    payload = traces(entropy={"a": [1]}, foo=None)
    payload |= {"schemaUrl": "x", "partialSuccess": {}}

    assert spans_of(json.dumps(payload).encode()) == spans_of(json.dumps(traces()).encode())


@pytest.mark.parametrize("key", ["resourceSpans", "scopeSpans", "spans"])
def test_a_key_that_is_there_twice_is_refused(key: str) -> None:
    """Decoders keep one of the two."""
    text = json.dumps(traces())
    twice = text.replace(f'"{key}": [', f'"{key}": [], "{key}": [', 1)

    with pytest.raises(OtlpError, match=f"{key} is there twice"):
        spans_of(twice.encode())


def test_texts_that_are_called_like_keys_are_only_texts() -> None:
    """An attribute may be called ``scope_spans``."""
    names = ["spans", "scopeSpans", "resourceSpans", "scope_spans", "trace_id"]
    attributes = [{"key": name, "value": {"stringValue": name}} for name in names]
    payload = json.dumps(traces(attributes=attributes)).encode()

    assert spans_of(payload)[0].attributes == {name: name for name in names}


def test_keys_with_escapes_are_read() -> None:
    """They are the same keys."""
    text = json.dumps(traces()).replace('"scopeSpans"', '"scope\\u0053pans"')

    assert spans_of(text.encode()) == spans_of(json.dumps(traces()).encode())


@pytest.mark.parametrize(
    "value",
    [
        {"stringValue": "b", "string_value": "c"},
        {"stringvalue": "b"},
        {"textValue": "b"},
        {"stringValue": "b", "intValue": "1"},
        {"arrayValue": {"values": [{"string_value": "b"}]}},
        {"kvlistValue": {"values": [{"key": "a", "value": {"int_value": 1}}]}},
    ],
)
def test_a_value_of_an_attribute_is_not_lost(value: dict[str, Any]) -> None:
    """In lists and objects, too."""
    assert error_of(traces(attributes=[{"key": "a", "value": value}]))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"intValue": "7"}, 7),
        ({"intValue": 7}, 7),
        ({"doubleValue": 0.5}, 0.5),
        ({"doubleValue": "0.5"}, 0.5),
        ({"doubleValue": "Infinity"}, float("inf")),
        ({"boolValue": False}, False),
        ({"bytesValue": "AAE="}, "AAE="),
        ({"stringValue": ""}, ""),
        ({}, None),
        (None, None),
    ],
)
def test_every_way_to_write_a_value_is_read(value: Any, found: Any) -> None:
    """Numbers as numbers and as texts."""
    payload = traces(attributes=[{"key": "a", "value": value}])

    assert spans_of(json.dumps(payload).encode())[0].attributes == {"a": found}


@pytest.mark.parametrize("url_safe", [False, True])
def test_ids_in_base64_are_read(url_safe: bool) -> None:
    """Protobuf's own JSON has bytes in base64, of either alphabet."""
    specs = [SpanSpec((1 << 128) - 5, (1 << 64) - 5), SpanSpec((1 << 128) - 5, 7, (1 << 64) - 5)]

    def ids(value: bytes) -> str:
        text = in_base64(value)
        return text.replace("+", "-").replace("/", "_") if url_safe else text

    assert spans_of(as_json(specs, ids)) == spans_of(as_protobuf(specs))


@pytest.mark.parametrize(
    ("kind", "code"), [(3, 2), ("SPAN_KIND_CLIENT", "STATUS_CODE_ERROR"), ("3", "2")]
)
def test_names_of_enums_are_read_as_their_numbers(kind: Any, code: Any) -> None:
    """And numbers as text."""
    (span,) = spans_of(json.dumps(traces(kind=kind, status={"code": code})).encode())

    assert (span.kind, span.failed) == (3, True)


@pytest.mark.parametrize(
    "others",
    [
        {"status": {"code": "ERROR"}},
        {"status": {"Code": 2}},
        {"kind": "client"},
        {"startTimeUnixNano": 1.5e18},
        {"startTimeUnixNano": "2026-01-01T00:00:00Z"},
        {"attributes": {"a": "b"}},
        {"attributes": [{"Key": "a", "Value": "b"}]},
    ],
)
def test_what_a_sender_writes_otherwise_is_refused(others: dict[str, Any]) -> None:
    """A failed search that counts as one without results would be a wrong figure."""
    assert error_of(traces(**others))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scopeLogs", "instrumentationLibraryLogs"),
        ("scopeLogs", "scope_logs"),
        ("logRecords", "log_records"),
        ("spanId", "span_id"),
        ("timeUnixNano", "time_unix_nano"),
        ("intValue", "int_value"),
    ],
)
def test_keys_of_logs_are_refused_alike(old: str, new: str) -> None:
    """Scores may be in logs."""
    with pytest.raises(OtlpError, match=f"{new}: OTLP's JSON has `{old}` instead"):
        log_records_of(json.dumps(renamed(logs(), old, new)).encode())


@pytest.mark.parametrize("several", [False, True])
def test_logs_are_read_whatever_their_first_key_is(several: bool) -> None:
    """And in lists."""
    one = {"schemaUrl": "x", **logs()}
    reader = EvaluationReader(mapping(), Grading())
    reader.record(json.dumps([one, one] if several else one).encode(), "topic", None)

    assert [found.score for found in reader.evaluations] == [1.0] * (2 if several else 1)


def test_logs_in_snake_case_are_named_in_a_topic_of_scores() -> None:
    """Not counted as rows without a span."""
    reader = EvaluationReader(mapping(), Grading())
    reader.record(json.dumps(renamed(logs(), "resourceLogs", "resource_logs")).encode(), "t", None)

    assert "resource_logs: OTLP's JSON has `resourceLogs`" in reader.unused[0].message


@pytest.mark.parametrize("key", ["resourceLogs", "resourceMetrics", "resource_profiles"])
def test_another_signal_is_told_whatever_its_first_key_is(key: str) -> None:
    """And whatever its spelling is."""
    signal = key.lower().removeprefix("resource").strip("_")

    assert other_signal(json.dumps({"schemaUrl": "", key: []}).encode()) == signal


def test_events_are_no_traces() -> None:
    """Even if they speak of them."""
    event = {"type": "forget", "note": ["resourceSpans"], "inner": {"resourceSpans": []}}

    assert not is_payload(json.dumps(event).encode())


def test_a_payload_of_a_list_is_split_by_trace() -> None:
    """As the bridge does with ``--rekey``."""
    specs = [SpanSpec(1, 1), SpanSpec(2, 2), SpanSpec(1, 3)]
    parts = by_trace(json.dumps([document(specs[:2]), document(specs[2:])]).encode())

    found = {id: [span.span_id for span in spans_of(part)] for id, part in parts.items()}
    assert found == {f"{1:032x}": [f"{1:016x}", f"{3:016x}"], f"{2:032x}": [f"{2:016x}"]}


def with_old_field(message: bytes) -> bytes:
    """The message, whose first resource also has something by instrumentation library."""
    inner = message[2:] + b"\xc2\x3e\x02\x12\x00"
    return bytes([0x0A, len(inner)]) + inner


def test_spans_by_instrumentation_library_in_protobuf_are_refused() -> None:
    """Today's messages have no such field."""
    with pytest.raises(OtlpError, match="instrumentation library"):
        spans_of(with_old_field(as_protobuf([SpanSpec(1, 1)])))


def test_logs_by_instrumentation_library_in_protobuf_are_refused() -> None:
    """As spans are."""
    logs_data = LogsData()
    logs_data.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=5)

    with pytest.raises(OtlpError, match="instrumentation library"):
        log_records_of(with_old_field(logs_data.SerializeToString()))


def test_bytes_that_look_like_the_old_field_are_only_bytes() -> None:
    """A text may have them."""
    spec = SpanSpec(1, 1, attributes={"a": "\u00be>"})
    data = as_protobuf([SpanSpec(0xC23E, 0xC23E, attributes={"b": 5}), spec])

    assert b"\xc2\x3e" in data
    assert len(spans_of(data)) == 2
