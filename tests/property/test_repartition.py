"""Repartitioning gives the figures of the input, even if workers die or wake up late."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events import BadRecord, Limits, decode
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.repartition import Repartitioner, route
from tests.property.test_partition import TOPIC, once, opened
from tests.strategies import streams

PartitionId = tuple[str, int]


class Crash(Exception):
    """The process dies."""


@dataclass
class World:
    """What outlives the workers: input, commits of the group, copies and dead letters."""

    logs: dict[PartitionId, list[Record]]
    commits: dict[PartitionId, int] = field(default_factory=dict)
    generation: int = 0
    copies: list[Record] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)

    @property
    def left(self) -> bool:
        """Whether records remain to be copied."""
        return any(self.commits.get(place, 0) < len(log) for place, log in self.logs.items())


class Worker:
    """A scripted source and sink: it fetches ``sizes`` records of each partition, and dies when
    ``lives`` records have been stored; never if that is None."""

    def __init__(self, world: World, sizes: Sequence[int], lives: int | None = None) -> None:
        self._world = world
        self._sizes = sizes
        self._lives = lives
        self._generation = world.generation
        self._fetched: dict[PartitionId, int] = {}
        self.woken = asyncio.Event()
        self.woken.set()
        self.asleep = asyncio.Event()
        letters, copies = _Sink(self, world.letters), _Sink(self, world.copies)
        self._repartitioner = Repartitioner(
            self, copies, letters, partial(route, limits=Limits()), once, self
        )

    async def turn(self) -> None:
        """One round."""
        await self._repartitioner.turn()

    async def fetch(self) -> list[Record]:
        """See ``Inputs``."""
        records: list[Record] = []
        for (place, log), size in zip(self._world.logs.items(), self._sizes, strict=True):
            start = self._world.commits.get(place, 0)
            part = log[start : start + size]
            self._fetched[place] = start + len(part)
            records += part
        self.asleep.set()
        await self.woken.wait()
        return records

    async def commit(self) -> None:
        """See ``Inputs``: the group refuses commits of a member that it has removed."""
        if self._lives == 0:
            raise Crash
        if self._generation == self._world.generation:
            self._world.commits |= self._fetched

    def spend(self) -> None:
        """Count a record that is about to be stored."""
        if self._lives is not None:
            if not self._lives:
                raise Crash
            self._lives -= 1

    def bad_records(self, counts: Counter[str]) -> None:
        """Ignore."""

    def bug(self, bug: Bug) -> None:
        """Ignore."""

    def repartitioned(self, counts: Counter[str]) -> None:
        """Ignore."""


class _Sink:
    """Stores records one by one."""

    def __init__(self, worker: Worker, stored: list[Record] | list[DeadLetter]) -> None:
        self._worker = worker
        self._stored: list[object] = stored  # type: ignore[assignment]

    async def send(self, records: Sequence[object]) -> None:
        """See ``Internal`` and ``DeadLetters``."""
        for record in records:
            self._worker.spend()
            self._stored.append(record)


@st.composite
def inputs(draw: st.DrawFn) -> dict[PartitionId, list[Record]]:
    """Any events, on any of three partitions, under the right key, another or none."""
    logs: dict[PartitionId, list[Record]] = {
        ("searches", 0): [],
        ("searches", 1): [],
        ("labels", 0): [],
    }
    for key, value, _ in draw(streams()):
        place = draw(st.sampled_from(list(logs)))
        chosen = draw(st.sampled_from([key, None, b"another"]))
        logs[place].append(Record(value, chosen, None, *place, len(logs[place])))
    return logs


async def play(world: World, data: st.DataObject) -> None:
    """Some rounds of workers that die or pause; then one worker copies the rest."""
    sizes = st.lists(st.integers(0, 6), min_size=len(world.logs), max_size=len(world.logs))
    for _ in range(data.draw(st.integers(0, 4))):
        how = data.draw(st.sampled_from(["done", "dies", "late"]))
        lives = data.draw(st.integers(0, 8)) if how == "dies" else None
        worker = Worker(world, data.draw(sizes), lives)
        if how != "late":
            try:
                await worker.turn()
            except Crash:
                world.generation += 1
            continue
        worker.woken.clear()
        asleep = asyncio.create_task(worker.turn())
        await worker.asleep.wait()
        world.generation += 1  # the group removes it
        await Worker(world, data.draw(sizes)).turn()
        worker.woken.set()
        await asleep
    while world.left:
        await Worker(world, [5] * len(world.logs)).turn()


async def state_of(copies: Sequence[Record]) -> tuple[list[str], str, list[DeadLetter]]:
    """Rows, windows and dead letters of a state partition that read the internal topic."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    partition = await opened(store, letters, 100_000)
    read = [
        structs.replace(copy, topic=TOPIC, partition=0, offset=offset)
        for offset, copy in enumerate(copies)
    ]
    await partition.process(read, once)
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "all")
    rows = [canonical(row) for row in export.rows]
    return rows, canonical(export.windows_document(None)), letters.letters


@given(logs=inputs(), data=st.data())
def test_figures_and_dead_letters_are_those_of_the_input(
    logs: dict[PartitionId, list[Record]], data: st.DataObject
) -> None:
    """For any keys, partitions, crashes and pauses, rows and windows equal those of one pass over
    the input, and the dead letters are its invalid records with their original keys and offsets."""
    world = World(logs)
    asyncio.run(play(world, data))
    rows, windows, letters = asyncio.run(state_of(world.copies))

    replay, unfit = Replay(turn_scope="all"), set()
    for log in logs.values():
        for record in log:
            replay.feed(structs.replace(record, key=None))
            found = decode(record.value, limits=Limits())
            if isinstance(found, BadRecord):
                unfit.add((record, found.reason))
    assert rows == [canonical(row) for row in replay.rows()]
    assert windows == canonical(replay.windows())
    assert {(letter.record, letter.reason) for letter in [*world.letters, *letters]} == unfit


@given(logs=inputs(), data=st.data())
def test_copies_keep_the_order_of_their_partition(
    logs: dict[PartitionId, list[Record]], data: st.DataObject
) -> None:
    """The first copies of an input partition's records are in its order, despite repetitions."""
    world = World(logs)
    asyncio.run(play(world, data))

    seen: dict[PartitionId, list[int]] = {}
    for copy in world.copies:
        assert copy.origin is not None
        offsets = seen.setdefault((copy.origin.topic, copy.origin.partition), [])
        if copy.origin.offset not in offsets:
            offsets.append(copy.origin.offset)
    assert all(offsets == sorted(offsets) for offsets in seen.values())
