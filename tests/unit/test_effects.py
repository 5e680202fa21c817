"""A crash before or after each numbered step of a batch loses nothing and counts nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stream_metrics.adapters.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.row import canonical
from stream_metrics.engine.windows import DEFAULT_WINDOWS
from stream_metrics.ports import (
    BatchWrite,
    ConversationKey,
    DeadLetter,
    Record,
    StoredConversation,
    WriteResult,
)
from stream_metrics.traffic import TrafficProfile, generate
from stream_metrics.worker.export import export_state
from stream_metrics.worker.replay import Replay
from tests.property.test_partition import TOPIC, once, opened

BATCH = 40
TRAFFIC = TrafficProfile(seed=5, conversations=12, duration_seconds=300, invalid=0.05)


class Crash(Exception):
    """The process dies here."""


class CrashPoint:
    """Dies once, at the ``after``-th time that ``place`` is passed."""

    def __init__(self, place: str, after: int) -> None:
        self._place = place
        self._left = after
        self.hit = False

    def passing(self, place: str) -> None:
        """Die here if it is time."""
        if place == self._place and not self.hit:
            self._left -= 1
            if self._left < 0:
                self.hit = True
                raise Crash(place)


class CrashingStore(MemoryStore):
    """The memory store of a process that dies around a call."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__()
        self._point = point

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]]
    ) -> list[StoredConversation]:
        """Step 1."""
        self._point.passing("before 1 load")
        found = await super().load(partition, keys)
        self._point.passing("after 1 load")
        return found

    async def admit(self, *arguments: Any) -> frozenset[str]:
        """Asked for once step 2 has applied the events in memory."""
        self._point.passing("after 2 step")
        return await super().admit(*arguments)

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Step 4."""
        self._point.passing("before 4 write")
        written = await super().write(batch)
        self._point.passing("after 4 write")
        return written


class CrashingDeadLetters(MemoryDeadLetters):
    """The dead letters of a process that dies around a call."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__()
        self._point = point

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Step 3."""
        self._point.passing("before 3 dead")
        await super().send(letters)
        self._point.passing("after 3 dead")


PLACES = (
    "before 1 load",
    "after 1 load",
    "after 2 step",
    "before 3 dead",
    "after 3 dead",
    "before 4 write",
    "after 4 write",
)


# names are asked for when new ones come, and they all come at the start
CASES = [(place, after) for place in PLACES for after in ((0,) if "2" in place else (0, 1))]


@pytest.mark.parametrize(("place", "after"), CASES)
async def test_a_crash_at_any_step(place: str, after: int) -> None:
    """The next owner goes on from the stored offsets, and ends with what a replay gives."""
    point = CrashPoint(place, after)
    store, letters = CrashingStore(point), CrashingDeadLetters(point)
    records = [
        Record(record.value, record.key, record.timestamp_ms, TOPIC, 0, offset)
        for offset, record in enumerate(generate(TRAFFIC))
    ]
    partition = await opened(store, letters, cache_results=1_000)
    while (start := partition.positions[TOPIC].offset) < len(records):
        try:
            await partition.process(records[start : start + BATCH], once)
        except Crash:
            partition = await opened(store, letters, cache_results=1_000)
    assert point.hit

    replay = Replay()
    for record in records:
        replay.feed(record)
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    assert [canonical(r) for r in export.rows] == [canonical(r) for r in replay.rows()]
    now = records[-1].timestamp_ms or 0
    assert export.windows_document(now * 1000) == replay.windows(now * 1000)
    places = {letter.record.offset for letter in letters.letters}
    assert places == {rejected.number for rejected in replay.rejected}
