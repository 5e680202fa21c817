"""Decode the bytes of a record into a typed event or a rejection.

``decode`` never raises on input: it returns a ``BadRecord`` for what it cannot accept, which the
worker sends to the dead-letter topic. The message of a ``BadRecord`` names paths, never values.

There are two decoders. ``decode_fast`` needs the kernel and returns either the same event as
``decode_slow`` or None. Everything invalid or unusual is left to ``decode_slow``, which alone can
reject a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from stream_metrics.core import compiled
from stream_metrics.core.events.canonical import content_digest, decode_json
from stream_metrics.core.events.envelope import MAGIC
from stream_metrics.core.events.fields import convert, paths
from stream_metrics.core.events.limits import Limits, surely_within
from stream_metrics.core.events.times import DAY_US, MICROS, micros_of_seconds, parse_rfc3339
from stream_metrics.core.events.wire import (
    PAYLOADS,
    Forget,
    Payload,
    SearchIteration,
    TurnCompleted,
)

SCHEMA_VERSION: Final = 1
EARLIEST_US: Final = 946_684_800 * MICROS  # 2000-01-01T00:00:00Z
LATEST_US: Final = 4_102_444_800 * MICROS  # 2100-01-01T00:00:00Z

TYPED: Final[dict[str, Callable[[bytes], Payload]]] = {
    kind: msgspec.json.Decoder(payload).decode for kind, payload in PAYLOADS.items()
}
"""Decoders by event type."""

UNBOUNDED_NUMBER: Final = "a number is too large for a double"
NO_OBJECT: Final = "the JSON value is not an object"
MISSING: Final = "Object missing required field"
"""How messages about a missing field begin, as msgspec's do; its name in backticks follows."""

REASONS: Final = (
    "too_large",
    "not_json",
    "too_deep",
    "unknown_type",
    "unknown_version",
    "invalid",
    "over_limit",
    "time_out_of_range",
    "missing_key",
    "key_mismatch",
    "internal_error",
)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is rejected because of the producer.

    ``reason`` is one of ``REASONS``. ``message`` says where the error is and what to change, and
    never quotes the content of the record.
    """

    reason: str
    message: str


class Event(msgspec.Struct, gc=False, frozen=True):
    """A valid event.

    ``version`` is ``(occurred_us, event_id, digest)`` and orders the events about one item; the
    digest only breaks ties between different contents with one id. ``unknown`` has the paths of
    fields that are not in the contract (``fields.paths``).
    """

    occurred_us: int
    event_id: str
    digest: bytes
    conversation_id: str
    turn: int
    payload: Payload
    unknown: tuple[str, ...] = ()

    @property
    def version(self) -> tuple[int, str, bytes]:
        """The sort key of events about one item."""
        return (self.occurred_us, self.event_id, self.digest)


def decode(
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits,
    require_key: bool = False,
) -> Event | BadRecord:
    """Decode one record.

    Args:
        value: The record's bytes; None is a Kafka tombstone.
        key: The record's key; if not None, it must equal ``conversation_id``.
        timestamp_ms: The record's timestamp, which bounds how far an event is in the future.
        limits: Bounds on sizes and counts.
        require_key: Whether to reject records without a key, as for live records.
    """
    event = None
    if value is not None:
        event = decode_fast(value, key, timestamp_ms, limits, require_key)
    return decode_slow(value, key, timestamp_ms, limits, require_key) if event is None else event


def decode_fast(
    value: bytes,
    key: bytes | None,
    timestamp_ms: int | None,
    limits: Limits,
    require_key: bool,
) -> Event | None:
    """The event that ``decode_slow`` returns, or None if that is not certain."""
    if len(value) > limits.record_bytes:
        return None
    envelope = compiled.envelope(value, SCHEMA_VERSION, limits.json_levels)
    if envelope is None:
        return None
    # The values after the time are arguments of ``surely_within``.
    digest, kind, occurred_us, longest_list, elements, widest, longest_url, doc_id_in_ids = envelope
    if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
        return None
    found = _typed(value, kind)
    if found is None:
        return None
    payload, unknown = found
    if (
        not surely_within(limits, longest_list, elements, widest, longest_url)
        and payload.over_limit(limits) is not None
    ):
        return None
    turn = 0 if isinstance(payload, Forget) else payload.turn
    if (doc_id_in_ids or isinstance(payload, TurnCompleted)) and _inconsistent(payload) is not None:
        return None
    conversation_id = payload.conversation_id
    if key != conversation_id.encode() and (key is not None or require_key):
        return None
    return Event(occurred_us, payload.event_id, digest, conversation_id, turn, payload, unknown)


def _typed(value: bytes, kind: str) -> tuple[Payload, tuple[str, ...]] | None:
    """The payload and the paths of unknown fields; None if it is not certainly valid."""
    typed = TYPED.get(kind)
    if typed is None:
        return None
    try:
        return typed(value), ()
    except (ValueError, RecursionError):  # all of msgspec's decoding errors are ValueErrors
        pass  # an unknown field, or an invalid value
    try:
        payload, unknown = convert(msgspec.json.decode(value), kind)
    except (ValueError, RecursionError):
        return None
    return payload, paths(unknown)


def decode_slow(
    value: bytes | None,
    key: bytes | None,
    timestamp_ms: int | None,
    limits: Limits,
    require_key: bool,
) -> Event | BadRecord:
    """The event or the rejection, decoded without the kernel."""
    if value is None:
        return BadRecord("not_json", "the record has no value (a tombstone)")
    if len(value) > limits.record_bytes:
        return BadRecord(
            "too_large", f"{len(value)} bytes; at most {limits.record_bytes} are accepted"
        )
    if value.startswith(MAGIC):
        return BadRecord(
            "not_json",
            "not JSON in UTF-8: it begins with a zero byte. JSON behind the five bytes of a schema "
            "registry's serialiser is read with `kafka.value_format` `schema-registry`; Avro, "
            "Protobuf and prefixes of another length are not read",
        )
    try:
        obj, delicate = decode_json(value)
    except RecursionError:
        return BadRecord("too_deep", f"more than {limits.json_levels} levels of nested JSON")
    except msgspec.ValidationError:
        return BadRecord("invalid", UNBOUNDED_NUMBER)
    except UnicodeDecodeError:
        return BadRecord("not_json", "not JSON in UTF-8: a text is not UTF-8")
    except (msgspec.DecodeError, ValueError) as error:
        return BadRecord("not_json", f"not JSON in UTF-8: {_without_values(error)}")
    openers = value.count(b"[") + value.count(b"{")
    if openers > limits.json_levels and levels(value, limits.json_levels) > limits.json_levels:
        return BadRecord("too_deep", f"more than {limits.json_levels} levels of nested JSON")
    return _decode_object(obj, delicate, key, timestamp_ms, limits, require_key)


def _decode_object(
    obj: Any,
    delicate: bool,
    key: bytes | None,
    timestamp_ms: int | None,
    limits: Limits,
    require_key: bool,
) -> Event | BadRecord:
    if type(obj) is not dict:
        return BadRecord("invalid", NO_OBJECT)
    kind = obj.get("type")
    if kind is None:
        return BadRecord("unknown_type", f"{MISSING} `type`, one of {', '.join(PAYLOADS)}")
    if type(kind) is not str or kind not in PAYLOADS:
        return BadRecord("unknown_type", f"`type` must be one of {', '.join(PAYLOADS)}")
    version = obj.get("version", SCHEMA_VERSION)
    if version is not None and type(version) is not int:
        return BadRecord("invalid", "`version` must be an integer")
    if version is not None and version != SCHEMA_VERSION:
        return BadRecord("unknown_version", f"`version` must be {SCHEMA_VERSION}")
    found = _payload(obj, kind)
    if isinstance(found, BadRecord):
        return found
    payload, unknown = found
    occurred_at = obj.get("occurred_at")
    if occurred_at is None:
        return BadRecord("invalid", f"{MISSING} `occurred_at`")
    occurred_us = instant(occurred_at)
    if occurred_us is None:
        return BadRecord(
            "invalid", "`occurred_at` must be RFC 3339 with an offset, or Unix seconds"
        )
    excess = payload.over_limit(limits)
    if excess is not None:
        return BadRecord("over_limit", excess)
    problem = _inconsistent(payload)
    if problem is not None:
        return BadRecord("invalid", problem)
    if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
        return BadRecord("time_out_of_range", _out_of_range(occurred_at))
    if key is not None:
        if key != payload.conversation_id.encode():
            return BadRecord("key_mismatch", "the record's key is not the `conversation_id`")
    elif require_key:
        return BadRecord("missing_key", "the record has no key; use the `conversation_id`")
    turn = 0 if isinstance(payload, Forget) else payload.turn
    try:
        digest = content_digest(obj, delicate=delicate)
    except OverflowError:
        return BadRecord("invalid", UNBOUNDED_NUMBER)
    return Event(
        occurred_us,
        payload.event_id,
        digest,
        payload.conversation_id,
        turn,
        payload,
        unknown,
    )


def latest_us(timestamp_ms: int | None) -> int:
    """The latest time of an event whose record has this timestamp, in microseconds."""
    # Kafka writes -1 for "no timestamp".
    return LATEST_US if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms * 1000 + DAY_US


def _payload(obj: dict[str, Any], kind: str) -> tuple[Payload, tuple[str, ...]] | BadRecord:
    try:
        payload, unknown = convert(obj, kind)
    except msgspec.ValidationError as error:
        return BadRecord("invalid", _without_values(error))
    except RecursionError:
        return BadRecord("too_deep", "too many levels of nested JSON")
    return payload, paths(unknown)


def instant(value: Any) -> int | None:
    """Parse ``occurred_at`` from JSON into microseconds; None if it is not a time."""
    kind = type(value)
    if kind is str:
        return parse_rfc3339(value)
    if kind is int or kind is float:
        try:
            return micros_of_seconds(value)
        except OverflowError:
            return None
    return None


_UNITS: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def _out_of_range(value: Any) -> str:
    """The message for a time that is out of range, naming the unit of a number if recognisable."""
    if type(value) is not str:
        for unit, in_a_second in _UNITS.items():
            if EARLIEST_US * in_a_second <= value * MICROS <= LATEST_US * in_a_second:
                return f"`occurred_at` looks like {unit}; `occurred_at` takes seconds"
    return "`occurred_at` is before 2000-01-01 or more than a day after the record's timestamp"


def _inconsistent(payload: Payload) -> str | None:
    """Check rules that concern several values; returns an error message or None."""
    if isinstance(payload, SearchIteration):
        for search in payload.searches or ():
            for result in search.results or ():
                if result.ids is not None and result.ids.get("doc_id") is not None:
                    return "`ids` holds `doc_id`; send it as the result's own `doc_id`"
    elif isinstance(payload, TurnCompleted) and payload.relevant:
        relevant = payload.relevant
        if isinstance(relevant, list):
            if len(set(relevant)) != len(relevant):
                return "`relevant` names a document twice"
        elif any(not 1 <= len(doc) <= 256 for doc, grade in relevant.items() if grade is not None):
            return "a `doc_id` in `relevant` must have 1 to 256 characters"
    return None


_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")


def levels(raw: bytes, bound: int) -> int:
    """Levels of nesting in ``raw``, which is JSON, counted up to ``bound + 1``.

    This examines the text rather than the decoded value, in which a repeated key hides the first
    value. Each round removes the innermost pairs.

    >>> levels(b'{"a": [[]], "a": "[[[{"}', 64)
    3
    """
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_texts = raw.translate(_ONE_KIND, _NOT_STRUCTURE).split(b'"')[::2]
    brackets, level = b"".join(outside_texts), 0
    while brackets and level <= bound:
        brackets = brackets.replace(b"[]", b"")
        level += 1
    return level


_ENUM = "Invalid enum value"  # followed by the value, which may look like anything
_PATH = re.compile(r"(?:`key` in )?`\$((?:\[\.\.\.\]|\[\d+\]|\.[a-z_]{1,32})*)`")


def _without_values(error: Exception) -> str:
    """The library's message without values from the record, truncated."""
    text, _, place = str(error).rpartition(" - at ")
    path = _PATH.fullmatch(place)
    if path is None:
        text = str(error)
    if text.startswith(_ENUM):
        text = _ENUM
    return text[:200] if path is None else f"{text[:200]} - at `${path[1]}`"
