"""The range of offsets to read of each partition, given by times, offsets or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.clients.kafka.partition_reader import PartitionId, extents
from stream_metrics.core.engine.window import parse_duration
from stream_metrics.core.events.times import parse_rfc3339

HOW: Final = (
    "is not a place in a topic. Write a time in RFC 3339, such as 2024-05-01T12:00:00Z, an offset, "
    "such as 1200, a duration before now, such as -2h, earliest or end"
)


class Mark(NamedTuple):
    """A point in every partition: its first offset, its end, an offset, or the first record at or
    after a time in milliseconds."""

    kind: Literal["earliest", "end", "offset", "time"]
    value: int = 0


EARLIEST: Final = Mark("earliest")
END: Final = Mark("end")


def parse_mark(text: str, now_ms: int) -> Mark:
    """Parse a mark as commands accept it; raises ``ValueError``.

    >>> parse_mark("-2h", now_ms=10_000_000)
    Mark(kind='time', value=2800000)
    >>> parse_mark("1970-01-01T00:00:01.0001Z", now_ms=0)
    Mark(kind='time', value=1001)
    """
    if text in ("earliest", "end"):
        return END if text == "end" else EARLIEST
    if text.isascii() and text.isdigit():
        return Mark("offset", int(text))
    if text.startswith("-"):
        try:
            return Mark("time", max(0, now_ms - parse_duration(text[1:]) // 1000))
        except ValueError as error:
            raise ValueError(f"{text!r} {HOW}") from error
    instant = parse_rfc3339(text)
    if instant is None:
        raise ValueError(f"{text!r} {HOW}")
    return Mark("time", max(0, -(-instant // 1000)))


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets to read of a partition: from ``first`` to before ``end``.

    ``missed`` is the number of requested offsets before ``first`` that no longer exist.
    """

    first: int
    end: int
    missed: int = 0

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transactions can leave fewer records."""
        return self.end - self.first


async def spans(
    consumer: AIOKafkaConsumer, counts: Mapping[str, int], since: Mark, until: Mark
) -> dict[PartitionId, Span]:
    """The span of each partition; ``counts`` has the partition counts of the topics.

    ``END`` is the current end. Raises aiokafka's errors.
    """
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    logs = await extents(consumer, places)
    firsts = await _offsets(consumer, places, since)
    ends = await _offsets(consumer, places, until)
    found = {}
    for place, log in logs.items():
        asked = firsts.get(place, log.end if since.kind in ("time", "end") else log.first)
        first = min(max(asked, log.first), log.end)
        end = min(ends.get(place, log.end), log.end) if until.kind != "earliest" else log.first
        found[place] = Span(first, max(first, end), max(0, log.first - asked))
    return found


async def _offsets(
    consumer: AIOKafkaConsumer, places: list[PartitionId], mark: Mark
) -> dict[PartitionId, int]:
    """The offset of the mark in each partition; partitions without a record there are left out."""
    if mark.kind == "offset":
        return dict.fromkeys(places, mark.value)
    if mark.kind != "time":
        return {}
    wanted = {TopicPartition(*place): mark.value for place in places}
    found = await consumer.offsets_for_times(wanted)
    return {(p.topic, p.partition): at.offset for p, at in found.items() if at is not None}
