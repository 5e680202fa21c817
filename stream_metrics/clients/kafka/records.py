"""Converts aiokafka's records; those of an internal topic have headers that name their origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from stream_metrics.core.events.envelope import ValueFormat, unwrapped
from stream_metrics.core.events.record import Headers, Origin, Record, bounded_timestamp

HEADER_PREFIX: Final = "stream-metrics."
_ORIGIN_HEADER: Final = HEADER_PREFIX + "repartitioned_from"
_ORIGIN_KEY_HEADER: Final = HEADER_PREFIX + "repartitioned_key"


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to produce; without a timestamp it gets the current time."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def record_of(
    found: Any, internal_topic: str | None = None, value_format: ValueFormat = "json"
) -> Record:
    """A record without its headers, taken out of its envelope.

    One of the internal topic has its origin, and was taken out when it was copied.
    """
    copied = found.topic == internal_topic
    return Record(
        found.value if copied else unwrapped(found.value, found.headers, value_format),
        found.key,
        bounded_timestamp(found.timestamp),
        found.topic,
        found.partition,
        found.offset,
        origin=origin_of(found.headers, found.key) if copied else None,
    )


def record_with_headers(found: Any, value_format: ValueFormat = "json") -> Record:
    """A record of an input topic with its headers, taken out of its envelope."""
    record = record_of(found, value_format=value_format)
    return structs.replace(record, headers=tuple(found.headers))


def copy_headers(record: Record) -> Headers:
    """The record's headers, followed by those of its origin: the original key only if it differs.

    Headers of the same names that its producer set are left out.
    """
    origin = record.origin
    assert origin is not None
    passed_on = tuple(
        header for header in record.headers if header[0] not in (_ORIGIN_HEADER, _ORIGIN_KEY_HEADER)
    )
    place = f"{origin.topic}/{origin.partition}/{origin.offset}".encode()
    if origin.key == record.key:
        return (*passed_on, (_ORIGIN_HEADER, place))
    return (*passed_on, (_ORIGIN_HEADER, place), (_ORIGIN_KEY_HEADER, origin.key))


def origin_of(headers: Headers, key: bytes | None) -> Origin | None:
    """The origin that ``copy_headers`` encoded; None if the repartitioner did not write the record.

    >>> origin_of((("stream-metrics.repartitioned_from", b"searches/3/14"),), b"c-1")
    Origin(topic='searches', partition=3, offset=14, key=b'c-1')
    """
    ours = dict(headers)
    topic, _, place = (ours.get(_ORIGIN_HEADER) or b"").decode("utf-8", "replace").partition("/")
    partition, _, offset = place.partition("/")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        return None
    return Origin(topic, int(partition), int(offset), ours.get(_ORIGIN_KEY_HEADER, key))
