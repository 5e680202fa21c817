"""Conversations in pieces: partitions were added while workers read on by the old count."""

from __future__ import annotations

from itertools import count

import pytest

from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.memory import MemoryStore, MemoryTopic
from stream_metrics.ports import Record
from stream_metrics.worker.move import Unmovable
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_reshard import Group, partition_of, sound
from tests.unit.test_publish import forgotten, whole
from tests.unit.test_state_partition import NOON_S, search

OLD, NEW = {"events": 4}, {"events": 5}
NAMES = [f"c-{number}" for number in range(20)]
TORN = [
    name for name in NAMES if 4 > partition_of(name.encode(), 5) != partition_of(name.encode(), 4)
]
FIRST = [search(name, 1, NOON_S + at, "a", "b") for at, name in enumerate(NAMES)]
SECOND = [search(name, 2, NOON_S + 100 + at, "a", "c") for at, name in enumerate(NAMES)]


async def torn() -> Group:
    """A group with an output topic whose workers have read on by the old count."""
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Group(dict(OLD), store, topic=MemoryTopic())
    group.send(FIRST)
    await group.read()
    group.send(SECOND, NEW)
    await group.read()
    return group


async def untorn() -> object:
    """What is shown where all was read by one count."""
    group = Group(dict(NEW))
    group.send([*FIRST, *SECOND])
    await group.read()
    return await group.shown()


async def test_pieces_become_one() -> None:
    """It says how many lie apart; rows, windows and the output topic are as if there had been one
    count all along, once the new partition is read."""
    group = await torn()
    assert len(await group.store.partitions()) == OLD["events"]
    assert TORN

    said = await group.reshard(NEW)

    assert f"{len(TORN)} conversations lie where another partition count put them" in said[1]
    assert sound(await group.audit())
    assert await whole(group)
    await group.read()
    assert await group.shown() == await untorn()
    assert await whole(group)


async def test_a_merge_may_be_cut_off_anywhere() -> None:
    """Wherever it dies, running it again ends as if nothing had happened."""
    first = await torn()
    snapshot = first.store.snapshot()  # type: ignore[attr-defined]
    expected = await untorn()
    for left in count(0, 7):
        first.store.restore(snapshot)  # type: ignore[attr-defined]
        logs = {place: list(log) for place, log in first.logs.items()}
        group = Group(dict(OLD), first.store, first.letters, logs, topic=first.topic)
        group.store = Fused(first.store, Fuse(left))
        try:
            await group.reshard(NEW)
        except Crash:
            pass
        else:
            break
        group.store, group.counts = first.store, dict(OLD)
        await group.reshard(NEW)
        assert await whole(group), left
        await group.read()
        assert await group.shown() == expected, left
    assert left > 20


async def test_a_forget_reaches_the_other_piece() -> None:
    """Also where it came to the partition of one piece only, and left nothing there but a
    tombstone."""
    name = TORN[0]
    key, value, timestamp_ms = forgotten(name)
    group = Group(dict(OLD))
    group.send(FIRST)
    number = partition_of(key, NEW["events"])
    log = group.logs[("events", number)]
    log.append(Record(value, key, timestamp_ms, "events", number, len(log)))
    await group.read()
    assert any(f'"{name}"' in row for row in (await group.shown())[0])

    await group.reshard(NEW)

    assert sound(await group.audit())
    assert not any(f'"{name}"' in row for row in (await group.shown())[0])


async def test_producers_of_several_minds_are_shown_another_way() -> None:
    """Where neither count explains where conversations lie, another command is of no use: the
    workers are to repartition."""
    group = await torn()
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"kafka\.repartition_topic and another kafka\.group_id"):
        await group.reshard(NEW, partitioners={"murmur2": PARTITIONERS["murmur2"]})

    assert await group.store.held_by() is None
    assert await group.shown() == before
