"""Events in envelopes: a schema registry's prefix, and CloudEvents in both modes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.decode import Event, decode
from stream_metrics.core.events.envelope import FORMATS, ValueFormat, unwrapped
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Headers

EVENT: dict[str, Any] = {
    "type": "search_iteration",
    "event_id": "e-1",
    "occurred_at": "2026-11-01T12:00:00Z",
    "conversation_id": "c-1",
    "turn": 1,
    "iteration": 1,
    "searches": [{"search_id": "s", "results": [{"result_id": "r", "doc_id": "d"}]}],
}
PLAIN = json.dumps(EVENT).encode()
LESS = json.dumps({k: v for k, v in EVENT.items() if k not in ("event_id", "occurred_at")}).encode()
NULLS = json.dumps(EVENT | {"event_id": None, "occurred_at": None}).encode()
JSON: Headers = (("content-type", b"application/json"),)
ATTRIBUTES: Headers = (
    ("ce_specversion", b"1.0"), ("ce_id", b"e-1"), ("ce_source", b"/agents"),
    ("ce_type", b"search"), ("ce_time", b"2026-11-01T12:00:00Z"),
)  # fmt: skip


def structured(data: bytes, **attributes: Any) -> bytes:
    """A CloudEvent in structured mode."""
    named = {"specversion": "1.0", "id": "e-1", "source": "/agents", "type": "search", **attributes}
    return json.dumps(named).encode()[:-1] + b', "data": ' + data + b"}"


def read(value: bytes, headers: Headers, value_format: ValueFormat) -> Event:
    """The event that a worker decodes."""
    found = decode(unwrapped(value, headers, value_format), key=b"c-1", limits=Limits())
    assert isinstance(found, Event), found
    return found


@pytest.mark.parametrize(
    ("value", "headers", "value_format"),
    [
        (b"\0\0\0\1\x7b" + PLAIN, (), "schema-registry"),
        (structured(PLAIN), (), "cloudevents"),
        (structured(PLAIN, time="2020-01-01T00:00:00Z"), (), "cloudevents"),
        (structured(LESS, time="2026-11-01T12:00:00Z"), (), "cloudevents"),
        (PLAIN, ATTRIBUTES, "cloudevents"),
        (LESS, (*ATTRIBUTES, *JSON), "cloudevents"),
        (NULLS, ATTRIBUTES, "cloudevents"),
        (structured(NULLS, time="2026-11-01T12:00:00Z"), (), "cloudevents"),
        (b" " + LESS, ATTRIBUTES, "cloudevents"),
    ],
)
def test_an_event_in_an_envelope_is_the_same_event(
    value: bytes, headers: Headers, value_format: ValueFormat
) -> None:
    """It has the same digest, so that it counts once however it comes."""
    assert read(value, headers, value_format) == read(PLAIN, (), "json")


WRITTEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "envelopes" / "written.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("written", WRITTEN["written"], ids=lambda one: one["written_by"])
def test_what_real_serialisers_write_is_the_same_event(written: dict[str, Any]) -> None:
    """The values and headers are those of the libraries that the file names."""
    headers = tuple((name, value.encode()) for name, value in written["headers"].items())
    plain = json.dumps(WRITTEN["event"]).encode()

    found = read(base64.b64decode(written["value"]), headers, written["value_format"])

    assert found == read(plain, (), "json")


DEEP = b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


@given(
    value=st.binary(max_size=40)
    | st.sampled_from(
        [PLAIN, DEEP, b"\0\0\0\0\1\2avro", b"\0\0\0\0\0\0\0\1{}", b"\0{}", b"{}", b"[]"]
    )
    | st.text(max_size=20).map(str.encode),
    value_format=st.sampled_from(FORMATS),
)
def test_what_is_in_no_envelope_is_left_as_it_is(value: bytes, value_format: ValueFormat) -> None:
    """A producer may be changed while the topic has both, and dead letters stay what they were."""
    assert unwrapped(value, JSON, value_format) == value


def test_a_deep_value_stops_nobody() -> None:
    """It is rejected when it is decoded, as without an envelope."""
    for headers in ((), ATTRIBUTES):
        found = decode(unwrapped(structured(DEEP), headers, "cloudevents"), limits=Limits())
        assert not isinstance(found, Event)
    assert unwrapped(DEEP, ATTRIBUTES, "cloudevents") == DEEP


@pytest.mark.parametrize("sent", [(PLAIN, ()), (structured(LESS), ()), (LESS, ATTRIBUTES)])
def test_what_was_unwrapped_is_not_changed_again(sent: tuple[bytes, Headers]) -> None:
    """The internal topic has unwrapped values, and the headers that they came with."""
    value, headers = sent
    once = unwrapped(value, headers, "cloudevents")

    assert unwrapped(once, headers, "cloudevents") == once


@pytest.mark.parametrize(
    "odd",
    [
        {"data_base64": "AAAA"}, {"data": None}, {"data": "text"}, {"data": {}, "id": 5},
        {"data": {}, "specversion": "0.3"},
    ],
)  # fmt: skip
def test_an_odd_cloud_event_is_rejected(odd: dict[str, Any]) -> None:
    """It is not taken for an event, and stops nobody."""
    named = {"specversion": "1.0", "id": "e", "source": "/a", "type": "t"}
    found = decode(unwrapped(json.dumps(named | odd).encode(), (), "cloudevents"), limits=Limits())

    assert not isinstance(found, Event)
    assert found.reason in ("unknown_type", "invalid")


def test_an_attribute_that_is_not_text_is_left_out() -> None:
    """Two such ids would be the same one otherwise."""
    headers = (("ce_specversion", b"1.0"), ("ce_id", b"\xff1"))

    assert unwrapped(LESS, headers, "cloudevents") == LESS


def test_a_prefix_that_no_setting_announces_is_named() -> None:
    """The message says which setting reads such values."""
    found = decode(b"\0\0\0\0\1" + PLAIN, limits=Limits())

    assert not isinstance(found, Event)
    assert found.reason == "not_json"
    assert "kafka.value_format" in found.message
