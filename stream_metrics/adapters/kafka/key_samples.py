"""The latest keys of topics, sampled to tell how producers place them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.kafka.reading import extents, reading, records_between
from stream_metrics.adapters.kafka.records import record_of
from stream_metrics.ports import Record
from stream_metrics.settings import KafkaSettings
from stream_metrics.worker.keying import KeySample, keyed_differently

RECORDS: Final = 2_000
"""How many of a topic's latest records are read, about."""
_FETCH_BYTES: Final = 1 << 20

log = structlog.get_logger(__name__)


async def latest_keys(settings: KafkaSettings, counts: Mapping[str, int]) -> dict[str, KeySample]:
    """A sample of each topic, of its latest records; ``counts`` are the partition counts.

    Raises aiokafka's errors, ``RecordsGone`` included.
    """
    samples = {topic: KeySample(count, PARTITIONERS, RECORDS) for topic, count in counts.items()}
    places = [(topic, number) for topic, count in counts.items() for number in range(count)]
    async with reading(settings, _FETCH_BYTES) as consumer:
        logs = await extents(consumer, places)
        starts = {
            (topic, number): max(log.first, log.end - max(1, RECORDS // counts[topic]))
            for (topic, number), log in logs.items()
        }
        ends = {place: log.end for place, log in logs.items()}
        async for found in records_between(consumer, starts, ends):
            samples[found.topic].add(record_of(found, None))
    return samples


class KeyWatch:
    """Samples the keys that a worker reads, and notices when topics are keyed differently.

    The sample of a topic takes the key of every record until it is full, then those of three
    records of each batch: nothing that grows with the batch. ``told`` is called with the current
    answer at each ``look``.
    """

    def __init__(self, told: Callable[[bool], None]) -> None:
        self._told = told
        self._counts: Mapping[str, int] = {}
        self._samples: dict[str, KeySample] = {}
        self._filling = False
        self._different = False

    def note(self, records: Sequence[Record], counts: Mapping[str, int]) -> None:
        """Take records of a batch into account; ``counts`` are the topics' partition counts."""
        if len(counts) < 2 or not records:
            return
        if counts != self._counts:
            self._counts = dict(counts)
            self._samples = {
                topic: KeySample(count, PARTITIONERS) for topic, count in counts.items()
            }
            self._filling = True
        samples = self._samples
        for record in records if self._filling else ():
            if not samples[record.topic].full:
                samples[record.topic].add(record)
        for record in (records[0], records[len(records) // 2], records[-1]):
            samples[record.topic].add(record)
        self._filling = not all(sample.full for sample in samples.values())

    def look(self) -> None:
        """Judge the samples; log it when the answer changes."""
        keyings = {topic: sample.keying for topic, sample in self._samples.items()}
        different = keyed_differently(keyings)
        self._told(different)
        if different and not self._different:
            log.warning(
                "input topics are keyed by different partitioners: most conversations have their "
                "searches and their labels on different partitions, so the labels never count; "
                "`stream-metrics check --topics` says what to do",
                partitioners={topic: sorted(k.fitting) for topic, k in keyings.items()},
            )
        elif self._different and not different:
            log.info("input topics are no longer keyed by different partitioners")
        self._different = different
