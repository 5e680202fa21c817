"""Records of partitions that are being replaced or new, taken along to where their keys belong now.

Where partitions were added while producers were sending, a partition holds records that the old
count put there and others that the new one did. The conversation of the former is on another number
by then, so that no worker could take them. So do new partitions, where a count in between put some.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from stream_metrics.ports import DeadLetters, OnHold, Outputs, Record, StateStore
from stream_metrics.worker.astray import Partitioner, Place, decoded, is_forget
from stream_metrics.worker.cache import ConversationCache
from stream_metrics.worker.move import Drafted, Move, WentBack
from stream_metrics.worker.names import SharedNames
from stream_metrics.worker.options import PartitionOptions
from stream_metrics.worker.partition import Lost, StatePartition
from stream_metrics.worker.telemetry import Silent

CACHED_RESULTS: Final = 100_000


@dataclass(slots=True)
class _Passed:
    """The last record of a place, and the largest timestamp."""

    record: Record
    record_time_ms: int


class CatchUp:
    """Takes the unread records of places into drafts, each where its key belongs now."""

    def __init__(
        self,
        drafts: StateStore,
        mark: bytes,
        move: Move,
        drafted: Drafted,
        options: PartitionOptions,
        dead_letters: DeadLetters,
        partitioner: Partitioner,
        outputs: Outputs | None = None,
    ) -> None:
        self._drafts = drafts
        self._mark = mark
        self._move = move
        self._drafted = drafted
        self._options = replace(options, identity=move.identity)
        self._letters = dead_letters
        self._partitioner = partitioner
        self._outputs = outputs
        self._cache = ConversationCache(CACHED_RESULTS)
        self._names = SharedNames(drafts, self._options)
        self._partitions: dict[int, StatePartition] = {}
        self._waiting: dict[int, list[Record]] = {}
        self._passed: dict[Place, _Passed] = {}
        self.taken = 0

    async def take(self, record: Record) -> None:
        """Take the next record of its place."""
        self.taken += 1
        place = (record.topic, record.partition)
        clock, stamp = self._options.now_ms, record.timestamp_ms or 0
        stamp = stamp if clock is None else min(stamp, clock())
        known = self._passed.get(place)
        times = stamp if known is None else max(stamp, known.record_time_ms)
        self._passed[place] = _Passed(record, times)
        for number in self._numbers(record):
            waiting = self._waiting.setdefault(number, [])
            waiting.append(record)
            if len(waiting) >= self._options.batch_records:
                await self._process(number)

    async def finish(self, ends: Mapping[Place, int]) -> Drafted:
        """Write what waits, and let reading go on behind all that was taken.

        Returns the positions of all drafts then.
        """
        for number in list(self._waiting):
            await self._process(number)
        counts = self._move.identity.partition_counts
        for (topic, number), end in ends.items():
            if number >= counts.get(topic, 0):
                continue  # is not read any more
            partition = await self._partition(number)
            position = replace(partition.positions[topic], offset=end)
            passed = self._passed.get((topic, number))
            if passed is not None:
                stamp = passed.record.timestamp_ms
                position = replace(
                    position,
                    last_timestamp_ms=-1 if stamp is None else stamp,
                    last_digest=partition.record_digest(passed.record),
                    record_time_ms=max(position.record_time_ms, passed.record_time_ms),
                )
            with self._standing(number):
                await partition.move({**partition.positions, topic: position}, _once)
        taken = {number: partition.positions for number, partition in self._partitions.items()}
        return self._drafted | taken

    def _numbers(self, record: Record) -> Sequence[int]:
        """Where a record belongs; a forget is for every partition."""
        numbers = tuple(self._move.starts)
        if is_forget(decoded(record, self._options.engine.limits)):
            return numbers
        if record.key is None:
            return (numbers[record.partition % len(numbers)],)
        return (self._partitioner(record.key, len(numbers)),)

    async def _process(self, number: int) -> None:
        records = self._waiting.pop(number)
        partition = await self._partition(number)
        with self._standing(number):
            await partition.process(records, _once, former=True)

    async def _partition(self, number: int) -> StatePartition:
        partition = self._partitions.get(number)
        if partition is None:
            partition = StatePartition(
                number,
                self._options,
                self._drafts,
                self._letters,
                self._cache,
                self._names,
                Silent(),
                self._mark,
                self._outputs.of(number) if self._outputs is not None else None,
            )
            identity = self._move.identity
            partition.adopt(await self._drafts.claim(number, self._mark, identity, {}))
            if partition.positions != self._drafted[number]:
                raise WentBack(number)
            self._partitions[number] = partition
        return partition

    @contextmanager
    def _standing(self, number: int) -> Iterator[None]:
        """Say why a draft takes no writes any more."""
        try:
            yield
        except Lost as lost:
            raise WentBack(number) if lost.why == "moved" else OnHold("") from lost


async def _once(call: Callable[[], Awaitable[Any]]) -> Any:
    """Whoever is cut off by an outage runs the command again."""
    return await call()
