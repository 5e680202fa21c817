"""A forget is read from every partition, in any order, before and after the store rolls back."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemorySnapshot, MemoryStore
from stream_metrics.live.ports import Position
from stream_metrics.live.readers.export import Export, export_state
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests import oracle
from tests.property.test_partition import once, options
from tests.strategies import OFFSETS_US, KeyedRecord, arrivals, moment, streams

PARTITIONS = 3
TOPICS = ("events", "labels")
IDENTITY = Identity("group", 1, "fingerprint", dict.fromkeys(TOPICS, PARTITIONS))
Sent = tuple[bytes, bytes]


class Topics:
    """Input topics with three partitions, and state partitions over one store that read them."""

    def __init__(self, cache_results: int = 1_000) -> None:
        self.store = MemoryStore()
        self.logs: dict[tuple[str, int], list[Record]] = {
            (topic, number): [] for topic in TOPICS for number in range(PARTITIONS)
        }
        self._options = replace(options(), identity=IDENTITY)
        self._cache_results = cache_results
        self._open: dict[int, StatePartition] = {}

    def append(self, topic: str, number: int, key: bytes, value: bytes) -> None:
        """Append a record to a partition."""
        log = self.logs[topic, number]
        log.append(Record(value, key, None, topic, number, len(log)))

    def send(self, key: bytes, value: bytes, topic: str | None = None) -> None:
        """Send a record to its key's partition, or a forget to every partition of every topic."""
        if is_forget(value):
            for place in self.logs:
                self.append(*place, key, value)
        else:
            topic = topic or TOPICS[zlib.crc32(value) % 2]
            self.append(topic, zlib.crc32(key) % PARTITIONS, key, value)

    async def read(self, topics: Iterable[str] = TOPICS) -> None:
        """Process the records that the store does not have, topic by topic in this order."""
        for number in range(PARTITIONS):
            partition = self._open.get(number)
            if partition is None:
                partition = self._open[number] = await self._claimed(number)
            for topic in topics:
                new = self.logs[topic, number][partition.positions[topic].offset :]
                await partition.process(new, once)

    async def _claimed(self, number: int) -> StatePartition:
        partition = StatePartition(
            number,
            self._options,
            self.store,
            MemoryDeadLetters(),
            ConversationCache(self._cache_results),
            SharedNames(self.store, self._options),
            NoTelemetry(),
            b"token",
        )
        start = {topic: Position(0) for topic in TOPICS}
        partition.adopt(await self.store.claim(number, b"token", start))
        return partition

    def restart(self, past: MemorySnapshot | None = None) -> None:
        """Start new workers over the store, or over an earlier snapshot of it."""
        if past is not None:
            self.store.restore(past)
        self._open = {}

    async def export(self) -> Export:
        """An export of the store."""
        return await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "all")

    async def everything(self) -> bytes:
        """Every stored part of every conversation."""
        parts: list[bytes] = []
        for number in await self.store.partitions():
            keys = [key async for key, _ in self.store.conversations(number)]
            for held in await self.store.load(number, [(key, True) for key in keys]):
                for name, value in (held.hot | (held.fingerprints or {})).items():
                    parts += (name, value)
        return b"\n".join(parts)

    def replay(self) -> Replay:
        """A replay of all records of all partitions."""
        replay = Replay(turn_scope="all")
        for log in self.logs.values():
            for record in log:
                replay.feed(record)
        return replay


def is_forget(value: bytes) -> bool:
    """Whether a value is a forget, valid or not."""
    try:
        event: Any = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("type") == "forget"


async def run(
    batches: list[list[Sent]], cache_results: int, remembered: int, restarts: dict[int, bool]
) -> Topics:
    """Run the batches; ``restarts`` are those before which workers restart, and whether over the
    snapshot taken at ``remembered``."""
    topics = Topics(cache_results)
    past: MemorySnapshot | None = None
    for number, batch in enumerate(batches):
        if number == remembered:
            past = topics.store.snapshot()
        if number in restarts:
            topics.restart(past if restarts[number] else None)
        for key, value in batch:
            topics.send(key, value)
        await topics.read(TOPICS if number % 2 else TOPICS[::-1])
    return topics


@given(st.data())
def test_forgets_on_every_partition_in_any_order(data: st.DataObject) -> None:
    """Rows and windows equal the reference's and those of a replay of all partitions."""
    stream = [(key, value, None) for key, value, _ in data.draw(streams())]
    batches = [
        [(key, value) for key, value, _ in batch] for batch in data.draw(arrivals(list(stream)))
    ]
    cache_results = data.draw(st.sampled_from([0, 100_000]))
    remembered = data.draw(st.integers(0, 4))
    restarts = data.draw(st.dictionaries(st.integers(1, 6), st.booleans()))
    reference = [oracle.Record(value, key, None) for key, value, _ in stream]
    expected = oracle.evaluate(reference, turn_scope="all", keyed=True)

    topics = asyncio.run(run(batches, cache_results, remembered, restarts))
    export, replay = asyncio.run(topics.export()), topics.replay()

    rows = [canonical(row) for row in export.rows]
    windows = canonical(export.windows_document(None)) + "\n"
    assert rows == expected.rows
    assert windows == expected.windows()
    assert rows == [canonical(row) for row in replay.rows()]
    assert windows == canonical(replay.windows()) + "\n"


def forget(key: bytes) -> bytes:
    """A forget later than all events of a stream."""
    event = {"type": "forget", "event_id": "last", "conversation_id": key.decode()}
    return json.dumps({**event, "occurred_at": moment(10 * max(OFFSETS_US), "Z")}).encode()


@given(st.data())
def test_forgetting_everything_empties_the_windows(data: st.DataObject) -> None:
    """All counts are taken back: no row and no bucket of any window is left."""
    stream: list[KeyedRecord] = [(key, value, None) for key, value, _ in data.draw(streams())]
    batches = [[(key, value) for key, value, _ in batch] for batch in data.draw(arrivals(stream))]
    batches.append([(key, forget(key)) for key, _, _ in stream])

    topics = asyncio.run(run(batches, data.draw(st.sampled_from([0, 100_000])), 0, {}))

    assert asyncio.run(topics.export()).rows == []
    assert [asyncio.run(topics.store.buckets(number)) for number in range(PARTITIONS)] == [{}] * 3
