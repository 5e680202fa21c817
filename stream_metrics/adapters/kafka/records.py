"""Records as the client gives them, and as we know them; those of an internal topic name the place
where their producer put them."""

from __future__ import annotations

from typing import Any, Final

from stream_metrics.events.record import Headers, Origin, Record, bounded_timestamp

HEADER_PREFIX: Final = "stream-metrics."
_FROM: Final = HEADER_PREFIX + "repartitioned_from"
_KEY: Final = HEADER_PREFIX + "repartitioned_key"


def record_of(found: Any, internal_topic: str | None) -> Record:
    """A record that is read to be counted."""
    return Record(
        found.value,
        found.key,
        bounded_timestamp(found.timestamp),
        found.topic,
        found.partition,
        found.offset,
        origin=origin_of(found.headers, found.key) if found.topic == internal_topic else None,
    )


def record_to_pass_on(found: Any) -> Record:
    """A record with its headers."""
    headers = tuple(found.headers)
    stamp = bounded_timestamp(found.timestamp)
    return Record(
        found.value, found.key, stamp, found.topic, found.partition, found.offset, headers
    )


def copy_headers(record: Record) -> Headers:
    """The record's headers, and what tells its origin: the old key only where it is another one.

    Headers of those names that its producer gave it are left out, since they tell something else.
    """
    origin = record.origin
    assert origin is not None
    passed_on = tuple(header for header in record.headers if header[0] not in (_FROM, _KEY))
    place = f"{origin.topic}/{origin.partition}/{origin.offset}".encode()
    if origin.key == record.key:
        return (*passed_on, (_FROM, place))
    return (*passed_on, (_FROM, place), (_KEY, origin.key))


def origin_of(headers: Headers, key: bytes | None) -> Origin | None:
    """What ``copy_headers`` tells; None where nothing of ours has put the record there.

    >>> origin_of((("stream-metrics.repartitioned_from", b"searches/3/14"),), b"c-1")
    Origin(topic='searches', partition=3, offset=14, key=b'c-1')
    """
    ours = dict(headers)
    topic, _, place = (ours.get(_FROM) or b"").decode("utf-8", "replace").partition("/")
    partition, _, offset = place.partition("/")
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        return None
    return Origin(topic, int(partition), int(offset), ours.get(_KEY, key))
