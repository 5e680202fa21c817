"""Conversations in pieces: partitions were added while workers read on by the old count."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count

import pytest

from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.memory import MemoryOutputs, MemoryStore, MemoryTopic
from stream_metrics.engine.codec import decode_conversation, stored_header
from stream_metrics.engine.config import EngineConfig
from stream_metrics.events import Limits
from stream_metrics.ports import OnHold, Record
from stream_metrics.worker.move import Unmovable
from stream_metrics.worker.options import conversation_key
from stream_metrics.worker.pieces import merging
from stream_metrics.worker.publish import Unsent, publish_gone
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_partition import options
from tests.property.test_reshard import Group, partition_of, sound, whole
from tests.unit.test_publish import forgotten, without_topic_after_switch
from tests.unit.test_state_partition import NOON_S, Fed, search

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
    assert group.topic is not None
    before = len(group.topic.messages)

    said = await group.reshard(NEW)

    assert f"{len(TORN)} conversations are where another partition count put them" in said[1]
    assert {message.conversation_id for message in group.topic.messages[before:]} == {*TORN}
    assert sound(await group.audit())
    assert await whole(group)
    await group.read()
    assert await group.shown() == await untorn()
    assert await whole(group)


async def cut_off(first: Group, step: int) -> AsyncIterator[tuple[int, Group]]:
    """After how many calls a reshard died, each ``step``-th in turn, and the group once it was run
    again. There must be more than twenty calls."""
    store = first.store
    snapshot = store.snapshot()  # type: ignore[attr-defined]
    assert first.topic is not None
    for left in count(0, step):
        store.restore(snapshot)  # type: ignore[attr-defined]
        logs = {place: list(log) for place, log in first.logs.items()}
        topic = MemoryTopic()
        topic.messages = list(first.topic.messages)
        group = Group(dict(OLD), store, first.letters, logs, topic=topic)
        group.store = Fused(store, Fuse(left))
        try:
            await group.reshard(NEW)
        except Crash:
            pass
        else:
            break
        group.store, group.counts = store, dict(OLD)
        await group.reshard(NEW)
        yield left, group
    assert left > 20


@pytest.mark.slow
async def test_a_merge_may_be_cut_off_anywhere() -> None:
    """Wherever it dies, running it again ends as if nothing had happened."""
    expected = await untorn()
    async for left, group in cut_off(await torn(), 7):
        assert await whole(group), left
        await group.read()
        assert await group.shown() == expected, left


async def test_rows_of_merged_pieces_that_were_not_sent_keep_the_workers_out() -> None:
    """Run again, the command sends them, though the counts are the new ones by then."""
    group = await torn()
    without_topic_after_switch(group)
    with pytest.raises(Unsent):
        await group.reshard(NEW)
    assert group.topic is not None
    group.topic.available = True
    assert await group.store.held_by() == "reshard"
    assert not await whole(group)

    await group.reshard(NEW)

    assert await whole(group)
    assert await group.store.held_by() is None


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


async def forgotten_elsewhere(name: str) -> Group:
    """A group with an output topic; a forget came to another partition than a conversation's."""
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Group(dict(OLD), store, topic=MemoryTopic())
    group.send(FIRST)
    await group.read()
    key, value, timestamp_ms = forgotten(name)
    number = partition_of(key, NEW["events"])
    log = group.logs[("events", number)]
    log.append(Record(value, key, timestamp_ms, "events", number, len(log)))
    await group.read()
    assert group.topic is not None
    assert group.topic.compacted()[name].value is not None
    return group


async def test_a_piece_that_is_forgotten_takes_its_row_along() -> None:
    """The output topic gets null, though no conversation lay apart by its id."""
    group = await forgotten_elsewhere(TORN[0])

    await group.reshard(NEW)

    assert group.topic is not None
    assert group.topic.compacted()[TORN[0]].value is None
    assert await whole(group)


@pytest.mark.slow
async def test_a_merge_that_forgets_may_be_cut_off_anywhere() -> None:
    """Wherever it dies, once it has been run again the output topic is whole."""
    async for left, group in cut_off(await forgotten_elsewhere(TORN[0]), 3):
        assert await whole(group), left


@pytest.mark.parametrize("unread", [False, True])
async def test_what_comes_after_a_forget_keeps_its_row(unread: bool) -> None:
    """Whether it was read before the merge or is taken along by it, the row is that of what came
    after."""
    name = TORN[0]
    group = await forgotten_elsewhere(name)
    group.send([search(name, 2, NOON_S + 900, "d")])
    if not unread:
        await group.read()

    await group.reshard(NEW)

    assert group.topic is not None
    assert group.topic.compacted()[name].value is not None
    assert await whole(group)


@pytest.mark.parametrize("late", [False, True])
async def test_a_forget_that_came_everywhere_changes_no_row(late: bool) -> None:
    """Tombstones on other partitions are merged with what came later, also where one of them was
    the last to speak: an event from before the forget came to it, and was answered with null. That
    of no other conversation is sent."""
    group = Group(dict(OLD), topic=MemoryTopic())
    group.send(FIRST)
    name = TORN[0]
    group.send([forgotten(name), search(name, 2, NOON_S + 900, "d")])
    await group.read()
    if late:
        group.send([search(name, 3, NOON_S, "e")], NEW)
        await group.read()
        assert not await whole(group)
    assert group.topic is not None
    before = len(group.topic.messages)

    await group.reshard(NEW)

    assert {message.conversation_id for message in group.topic.messages[before:]} == {name}
    assert await whole(group)


async def test_a_run_that_was_taken_over_erases_nothing() -> None:
    """Workers may have written by then."""
    group = await forgotten_elsewhere(TORN[0])
    assert group.topic is not None
    await group.store.hold(b"later", "reshard")
    sent = len(group.topic.messages)

    with pytest.raises(OnHold):
        await publish_gone(
            group.store, b"earlier", MemoryOutputs(group.topic), TORN[:1], lambda _: 0
        )

    assert len(group.topic.messages) == sent


async def test_producers_of_several_minds_are_shown_another_way() -> None:
    """Where neither count explains where conversations lie, another command is of no use: the
    workers are to repartition."""
    group = await torn()
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"kafka\.repartition_topic and another kafka\.group_id"):
        await group.reshard(NEW, partitioners={"murmur2": PARTITIONERS["murmur2"]})

    assert await group.store.held_by() is None
    assert await group.shown() == before


@pytest.mark.parametrize("forgotten_first", [True, False])
async def test_a_merge_with_a_forget_leaves_no_mark_of_a_limit(forgotten_first: bool) -> None:
    """Of a conversation of which one piece had refused something and the other was forgotten there
    is a tombstone, without the id."""
    engine = EngineConfig(limits=replace(Limits(), results_per_turn=3))
    name = "canary"
    full, erased = await Fed.new(engine=engine), await Fed.new(engine=engine)
    await full.take(search(name, 1, NOON_S, "a", "b"), search(name, 2, NOON_S + 1, "c", "d"))
    await erased.take(forgotten(name))
    pieces = [
        (await fed.store.load(0, [(conversation_key(name), True)]))[0] for fed in (full, erased)
    ]

    merge = merging(replace(options(), engine=engine), 1)
    whole = merge(name, *(pieces[::-1] if forgotten_first else pieces))

    assert list(whole.hot) == [b"c"]
    assert stored_header(whole.hot).conversation_id == ""


async def test_a_merge_makes_no_more_turns_than_may_be() -> None:
    """Not for search iterations either that lost their searches: the latest turn says so."""
    engine = EngineConfig(limits=replace(Limits(), turns_per_conversation=1))
    pieces = []
    for turn in (1, 2):
        fed = await Fed.new(engine=engine)
        found = [search("c", 1, NOON_S + at, "a") for at in range(2)]
        for number, (key, value, timestamp_ms) in enumerate(found):
            event = {**json.loads(value), "turn": turn, "event_id": f"e-{turn}-{number}"}
            await fed.take((key, json.dumps(event).encode(), timestamp_ms))
        pieces.append((await fed.store.load(0, [(conversation_key("c"), True)]))[0])

    whole = merging(replace(options(), engine=engine), 1)("c", *pieces)

    turns = decode_conversation("c", whole.hot, "k").turns
    assert {number: turn.over_limit for number, turn in turns.items()} == {1: True}
