"""A crash before or after any numbered step of a batch loses nothing and counts nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.layout import Layout
from stream_metrics.live.memory import (
    MemoryDeadLetters,
    MemoryMessage,
    MemoryOutput,
    MemoryStore,
    MemoryTopic,
)
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    OutputMessage,
    StoredConversation,
    WriteResult,
)
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.partition import StatePartition
from tests.property.test_partition import TOPIC, once, opened

BATCH = 40
TRAFFIC = TrafficProfile(seed=5, conversations=12, duration_seconds=300, invalid=0.05)


class Crash(Exception):
    """The simulated death of the process."""


class CrashPoint:
    """Crashes once, at the ``after``-th time that ``place`` is passed."""

    def __init__(self, place: str, after: int) -> None:
        self._place = place
        self._left = after
        self.hit = False

    def passing(self, place: str) -> None:
        """Crash here if it is time."""
        if place == self._place and not self.hit:
            self._left -= 1
            if self._left < 0:
                self.hit = True
                raise Crash(place)


class CrashingStore(MemoryStore):
    """The memory store of a process that crashes around a call."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__()
        self._point = point

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """Step 1."""
        self._point.passing("before 1 load")
        found = await super().load(partition, keys, hot=hot)
        self._point.passing("after 1 load")
        return found

    async def layout(self) -> Layout:
        """Read names with series, once step 2 has applied the events in memory."""
        self._point.passing("after 2 step")
        return await super().layout()

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Step 5."""
        self._point.passing("before 5 write")
        written = await super().write(batch)
        self._point.passing("after 5 write")
        return written


class CrashingDeadLetters(MemoryDeadLetters):
    """The dead letters of a process that crashes around a call."""

    def __init__(self, point: CrashPoint) -> None:
        super().__init__()
        self._point = point

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Step 3."""
        self._point.passing("before 3 dead")
        await super().send(letters)
        self._point.passing("after 3 dead")


class CrashingOutput(MemoryOutput):
    """The output of a process that crashes around a call, or after half of the messages."""

    def __init__(self, topic: MemoryTopic, point: CrashPoint) -> None:
        super().__init__(topic, 0)
        self._point = point

    async def begin(self) -> None:
        """The preparation of step 4 before the first message."""
        await super().begin()
        self._point.passing("begun 4 output")

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """Step 4."""
        self._point.passing("before 4 output")
        half = len(messages) // 2
        await super().send(messages[:half])
        self._point.passing("within 4 output")
        await super().send(messages[half:])
        self._point.passing("after 4 output")


PLACES = (
    "before 1 load",
    "after 1 load",
    "after 2 step",
    "before 3 dead",
    "after 3 dead",
    "begun 4 output",
    "before 4 output",
    "within 4 output",
    "after 4 output",
    "before 5 write",
    "after 5 write",
)


# names are read when new ones come, all at the start; an output begins once
ONCE = ("after 2 step", "begun 4 output")
CASES = [(place, after) for place in PLACES for after in ((0,) if place in ONCE else (0, 1))]


def lines_of(kept: Mapping[str, MemoryMessage]) -> list[str]:
    """The rows that a reader of the output topic ends with, as ``export`` writes them."""
    values = [kept[name].value for name in sorted(kept)]
    return [value.decode() for value in values if value is not None]


@pytest.mark.parametrize(("place", "after"), CASES)
async def test_a_crash_at_any_step_changes_no_figure(place: str, after: int) -> None:
    """The next owner continues at the stored offsets, and the result equals a replay."""
    point = CrashPoint(place, after)
    store, letters, topic = CrashingStore(point), CrashingDeadLetters(point), MemoryTopic()

    async def owner() -> StatePartition:
        output = CrashingOutput(topic, point)
        return await opened(store, letters, cache_results=1_000, output=output)

    records = [
        Record(record.value, record.key, record.timestamp_ms, TOPIC, 0, offset)
        for offset, record in enumerate(generate(TRAFFIC))
    ]
    partition = await owner()
    while (start := partition.positions[TOPIC].offset) < len(records):
        try:
            await partition.process(records[start : start + BATCH], once)
        except Crash:
            partition = await owner()
    assert point.hit

    replay = Replay()
    for record in records:
        replay.feed(record)
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    assert [canonical(r) for r in export.rows] == [canonical(r) for r in replay.rows()]
    now = records[-1].timestamp_ms or 0
    assert export.windows_document(now * 1000) == replay.windows(now * 1000)
    places = {letter.record.offset for letter in letters.letters}
    assert {(TOPIC, 0, offset) for offset in places} == {one.place for one in replay.rejected}
    for kept in (topic.largest(), topic.compacted()):
        assert lines_of(kept) == [canonical(r) for r in replay.rows()]
