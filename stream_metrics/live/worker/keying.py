"""Infers from a sample of keys which partitioner the producers of each input topic use.

A conversation's searches and labels reach the same state partition only if the producers of all
topics map a key to the same partition number. Clients differ: Java's hashes keys with murmur2,
librdkafka's with CRC-32 by default.

A partitioner *matches* a topic if it maps at least ``MATCHING_SHARE`` of the sampled keys to the
partitions that they are on, and if keys placed at random would agree with it so often in fewer than
one of 10⁷ samples. With two partitions that takes 24 keys, with four 12, with eight or more 8
(``LEAST_KEYS``).

Two topics keyed by the same known partitioner never appear to differ: it agrees with every key, so
it matches wherever another one matches by chance. Topics keyed at random, or by an unknown
partitioner, appear to differ only if two different partitioners match them by chance; for a growing
sample that is tested after every key, this happens in fewer than one of 10¹² cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import structlog

from stream_metrics.core.events.record import Record

Partitioner = Callable[[bytes, int], int]  # key and partition count to partition number

log = structlog.get_logger(__name__)

SAMPLE_KEYS: Final = 256
LEAST_KEYS: Final = 8
MATCHING_SHARE: Final = 0.95
CHANCE: Final = 1e-7
_MAY_BE_FORGET: Final = b'"forget"'


@dataclass(frozen=True, slots=True)
class Keying:
    """How well each partitioner explains a sample of a topic's keys.

    ``partitions`` is the topic's partition count, ``keys`` the number of distinct keys in the
    sample, and ``agreeing`` how many of them each partitioner, by name, maps to the partition that
    they are on. ``scattered`` keys are on several partitions, which no partitioner explains.
    """

    partitions: int
    keys: int
    agreeing: Mapping[str, int]
    scattered: int = 0

    @property
    def matching_partitioners(self) -> frozenset[str]:
        """The partitioners that match; empty if there are too few keys or no known one matches.

        >>> sorted(Keying(4, 30, {"murmur2": 30, "crc32": 9}).matching_partitioners)
        ['murmur2']
        """
        return frozenset(
            name
            for name, agreeing in self.agreeing.items()
            if agreeing >= MATCHING_SHARE * self.keys
            and self.keys >= LEAST_KEYS
            and chance(self.partitions, self.keys, agreeing) <= CHANCE
        )

    @property
    def keys_needed(self) -> int | None:
        """The number of keys needed to identify a partitioner; None with one partition.

        >>> [Keying(count, 0, {}).keys_needed for count in (1, 2, 4, 8, 100)]
        [None, 24, 12, 8, 8]
        """
        if self.partitions == 1:
            return None
        keys = LEAST_KEYS
        while chance(self.partitions, keys, keys) > CHANCE:
            keys += 1
        return keys


def chance(partitions: int, keys: int, agreeing: int) -> float:
    """The probability that a partitioner agrees with at least ``agreeing`` of ``keys`` keys that
    were placed at random.

    >>> chance(2, 2, 2), chance(4, 3, 0)
    (0.25, 1.0)
    """
    ways = sum(math.comb(keys, n) * (partitions - 1) ** n for n in range(keys - agreeing + 1))
    return float(ways / partitions**keys)


def keyed_differently(keyings: Mapping[str, Keying]) -> bool:
    """Whether two topics are known to be keyed by different partitioners.

    >>> murmur2, crc32 = {"murmur2": 40, "crc32": 11}, {"murmur2": 9, "crc32": 40}
    >>> keyed_differently({"searches": Keying(4, 40, crc32), "labels": Keying(4, 40, murmur2)})
    True
    """
    known = [found for keying in keyings.values() if (found := keying.matching_partitioners)]
    return any(not one & other for one, other in combinations(known, 2))


class KeySample:
    """The latest distinct keys of a topic, at most ``size``, compared with each partitioner."""

    def __init__(
        self, partitions: int, partitioners: Mapping[str, Partitioner], size: int = SAMPLE_KEYS
    ) -> None:
        self._partitions = partitions
        self._partitioners = partitioners
        self._size = size
        self._partition: dict[int, int] = {}  # the last partition of each key, by the key's hash
        self._agreeing: dict[int, tuple[bool, ...]] = {}
        self._scattered: set[int] = set()
        self.without_key = 0

    @property
    def full(self) -> bool:
        """Whether a further key replaces the oldest one."""
        return len(self._agreeing) >= self._size

    def add(self, record: Record) -> None:
        """Add a record's key, unless it is missing, already known or that of a forget event."""
        key = record.key
        if key is None:
            self.without_key += 1
            return
        name = hash(key)
        if self._partition.get(name) == record.partition or is_everywhere(record):
            return
        if name in self._partition:  # the producer may have been fixed, so the latest counts
            self._scattered.add(name)
            del self._partition[name], self._agreeing[name]
        elif self.full:
            oldest = next(iter(self._partition))
            del self._partition[oldest], self._agreeing[oldest]
            self._scattered.discard(oldest)
        self._partition[name] = record.partition
        self._agreeing[name] = tuple(
            partitioner(key, self._partitions) == record.partition
            for partitioner in self._partitioners.values()
        )

    @property
    def keying(self) -> Keying:
        """The result for the current sample."""
        sums = [sum(agree) for agree in zip(*self._agreeing.values(), strict=True)]
        counted = dict(zip(self._partitioners, sums or [0] * len(self._partitioners), strict=True))
        return Keying(self._partitions, len(self._agreeing), counted, len(self._scattered))


def is_everywhere(record: Record) -> bool:
    """Whether the record may be a forget event, which is sent to every partition."""
    return _MAY_BE_FORGET in (record.value or b"")


class KeyMonitor:
    """Samples the keys that a worker reads, and detects topics that are keyed differently.

    A topic's sample takes the key of every record until it is full, then those of three records per
    batch, so that the cost does not grow with the batch. ``on_check`` is called with the result of
    each ``check``.
    """

    def __init__(
        self, on_check: Callable[[bool], None], partitioners: Mapping[str, Partitioner]
    ) -> None:
        self._on_check = on_check
        self._partitioners = partitioners
        self._counts: Mapping[str, int] = {}
        self._samples: dict[str, KeySample] = {}
        self._filling = False
        self._different = False

    def add(self, records: Sequence[Record], counts: Mapping[str, int]) -> None:
        """Sample the keys of a batch; ``counts`` are the topics' partition counts."""
        if len(counts) < 2 or not records:
            return
        if counts != self._counts:
            self._counts = dict(counts)
            self._samples = {
                topic: KeySample(count, self._partitioners) for topic, count in counts.items()
            }
            self._filling = True
        samples = self._samples
        for record in records if self._filling else ():
            if not samples[record.topic].full:
                samples[record.topic].add(record)
        for record in (records[0], records[len(records) // 2], records[-1]):
            samples[record.topic].add(record)
        self._filling = not all(sample.full for sample in samples.values())

    def check(self) -> None:
        """Compare the topics; logs a change of the result."""
        keyings = {topic: sample.keying for topic, sample in self._samples.items()}
        different = keyed_differently(keyings)
        self._on_check(different)
        if different and not self._different:
            log.warning(
                "input topics are keyed by different partitioners: most conversations have their "
                "searches and their labels on different partitions, so the labels never count; "
                "`stream-metrics check --topics` says what to do",
                partitioners={
                    topic: sorted(k.matching_partitioners) for topic, k in keyings.items()
                },
            )
        elif self._different and not different:
            log.info("input topics are no longer keyed by different partitioners")
        self._different = different
