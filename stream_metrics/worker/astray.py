"""Records that lie where nobody will look for them under other partition counts.

Producers put a record where the count that they see puts its key. Where a topic has got more
partitions, and more than once, older records lie where any of its counts put them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field

from stream_metrics.events.decode import BadRecord, Event, decode
from stream_metrics.events.limits import Limits
from stream_metrics.events.wire import Forget
from stream_metrics.ports import Identity, Record
from stream_metrics.worker.source import Extent

Place = tuple[str, int]  # topic and partition
Partitioner = Callable[[bytes, int], int]


@dataclass(frozen=True, slots=True)
class Astray:
    """How many records of each place nobody will look for there.

    ``alien`` are those of them whose key no partition count puts there, so that it was another
    partitioner, or none.
    """

    found: Counter[Place] = field(default_factory=Counter)
    alien: Counter[Place] = field(default_factory=Counter)


def decoded(record: Record, limits: Limits) -> Event | BadRecord:
    """A record's event, or why a worker sets it aside."""
    return decode(
        record.value,
        key=record.key,
        timestamp_ms=record.timestamp_ms,
        limits=limits,
        require_key=True,
    )


def is_forget(event: Event | BadRecord) -> bool:
    """Whether it erases a conversation; such a record is for every partition."""
    return isinstance(event, Event) and type(event.payload) is Forget


async def find_astray(
    records: AsyncIterator[Record],
    places: Collection[Place],
    counts: Mapping[str, int],
    partitioner: Partitioner,
    limits: Limits,
) -> Astray:
    """Which of the records of ``places`` nobody will look for where they lie.

    ``counts`` are the partitions of the topics that will be read; all of another topic is astray. A
    record that is set aside anyway is at home on every partition, and a forget is astray unless it
    lies where its key belongs as well.
    """
    found, alien = Counter[Place](), Counter[Place]()
    forgets: dict[tuple[str, bytes, bytes], set[int]] = {}
    async for record in records:
        place = record.topic, record.partition
        count = counts.get(record.topic)
        if count is None:
            found[place] += 1
            continue
        event = decoded(record, limits)
        if not isinstance(event, Event) or record.key is None:
            continue
        if is_forget(event):
            known = forgets.setdefault((record.topic, record.key, record.value or b""), set())
            known.add(record.partition)
        elif partitioner(record.key, count) != record.partition:
            found[place] += 1
            if all(partitioner(record.key, n) != record.partition for n in range(1, count)):
                alien[place] += 1
    for (topic, key, _), numbers in forgets.items():
        home = partitioner(key, counts[topic])
        if home not in numbers and (topic, home) in places:
            found.update((topic, number) for number in numbers)
    return Astray(found, alien)


def outgrown(
    stored: Identity,
    counts: Mapping[str, int],
    extents: Mapping[Place, Extent],
    astray: Collection[Place] = (),
) -> dict[str, tuple[int, ...]]:
    """Up to where logs hold what an earlier count put there (``Identity.outgrown``).

    Those are the logs that a topic had before it got more partitions, and new ones that hold
    something ``astray``.
    """
    found = {}
    for topic, count in counts.items():
        before = stored.partition_counts.get(topic, count)
        ends = dict(enumerate(stored.outgrown.get(topic, ())))
        if before < count:
            ends = {number: extents[topic, number].end for number in range(before)}
        ends |= {n: extents[name, n].end for name, n in astray if name == topic}
        if ends:
            found[topic] = tuple(ends.get(number, 0) for number in range(max(ends) + 1))
    return found
