"""An export during which the state is replaced: it is of one state, or an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Wiped
from stream_metrics.live.readers.export import Replaced, export_windows, rows_of
from stream_metrics.live.worker.partition import StatePartition
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S, search

Change = Callable[[MemoryStore], Awaitable[None]]


async def taken(partition: StatePartition, names: range) -> None:
    """Let a partition read a conversation of each name."""
    records = []
    for offset, name in enumerate(names, partition.positions[TOPIC].offset):
        key, value, stamp = search(f"c{name}", 1, NOON_S, "a")
        records.append(Record(value, key, stamp, TOPIC, partition.number, offset))
    await partition.process(records, once)


async def filled() -> tuple[MemoryStore, list[StatePartition]]:
    """Two partitions with ten conversations each."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    partitions = [await opened(store, letters, 100, number=number) for number in (0, 1)]
    for partition in partitions:
        await taken(partition, range(10 * partition.number, 10 * partition.number + 10))
    return store, partitions


async def switch(store: MemoryStore) -> None:
    """Let another generation come into force."""
    for number in (0, 1):
        await store.freeze(number, 2)


async def purge(store: MemoryStore) -> None:
    """Delete the state."""
    for number in (0, 1):
        while await store.wipe(number) != Wiped():
            pass


async def exported(store: MemoryStore, change: Change) -> int:
    """The number of conversations read if the change happens after the third."""
    found = await export_windows(store, DEFAULT_WINDOWS)
    names = set()
    async for _, rows in rows_of(store, EngineConfig(), "last", found.states):
        names |= {row["conversation_id"] for row in rows}
        if len(names) == 3:
            await change(store)
    return len(names)


@pytest.mark.parametrize("change", [switch, purge])
async def test_an_export_of_two_states_is_an_error(change: Change) -> None:
    """Wherever the replacement happens, a partial export does not pass as complete."""
    store, _ = await filled()

    with pytest.raises(Replaced, match="Run the command again"):
        await exported(store, change)


async def test_concurrent_writes_do_not_disturb_an_export() -> None:
    """It has all conversations that existed at its beginning."""
    store, partitions = await filled()

    async def read_on(_: MemoryStore) -> None:
        await taken(partitions[1], range(90, 99))

    assert await exported(store, read_on) >= 20
