"""How every ``StateStore`` lets a command replace state partitions: hold, drafts, switch, sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_metrics.adapters.memory import MemoryStore
from stream_metrics.adapters.redis.store import RedisStore
from stream_metrics.ports import (
    FORMER,
    BatchWrite,
    ConversationWrite,
    Fenced,
    OnHold,
    Position,
    StateStore,
    StoredConversation,
    Wiping,
    Written,
)
from tests.contract.conftest import Pair
from tests.contract.test_state_store import IDENTITY, START, A, B, batch, claim, contents, wipe

pytestmark = pytest.mark.asyncio

MARK, LATER = b"0a1b", b"2c3d"
NEW = replace(IDENTITY, partition_counts={"searches": 6, "labels": 6})
WRITE = batch(1, ConversationWrite(A, {b"p": b"1"}, {b"f": b"1"}, last_record_ms=7))


async def filled(store: StateStore) -> None:
    """Partition 3 with a conversation."""
    await claim(store)
    assert await store.write(WRITE) == Written()


async def drafted(store: StateStore, *numbers: int, mark: bytes = MARK) -> StateStore:
    """Hold the namespace and draft these partitions, each with a conversation of its own."""
    await store.hold(mark, "reshard")
    drafts = store.drafts(mark)
    for number in numbers:
        await drafts.claim(number, mark, NEW, {**START, FORMER: Position(0, record_time_ms=9)})
        found = ConversationWrite(B, {b"q": b"%d" % number}, {b"f": b"2"}, last_record_ms=8)
        write = BatchWrite(number, mark, b"1", {"searches": 0}, {}, [found])
        assert await drafts.write(write) == Written()
    return drafts


async def swept(store: StateStore, mark: bytes = MARK) -> int:
    """Sweep until nothing is left; how many steps that took."""
    steps = 1
    while not await store.sweep(mark):
        steps += 1
    return steps


async def seen(store: StateStore) -> object:
    """Partition 3, but for its owner."""
    return replace(await store.describe(3), token=b""), await store.load(3, [(A, True), (B, True)])


async def test_listed_conversations_tell_their_last_record(store: StateStore) -> None:
    """The time of a conversation's last record comes with it."""
    await filled(store)

    listed = [found async for found in store.conversations(3)]

    assert listed == [(A, StoredConversation({b"p": b"1"}, last_record_ms=7))]


async def test_a_hold_refuses_the_owner(pair: Pair) -> None:
    """What the owner writes from then on changes nothing."""
    await filled(pair.one)
    await pair.two.hold(MARK, "reshard")
    before = await contents(pair.two)

    result = await pair.one.write(batch(2, ConversationWrite(B, {b"p": b"1"}), since=1))

    assert (result, await contents(pair.two)) == (Fenced(), before)


@pytest.mark.parametrize("number", [3, 5])
async def test_a_hold_refuses_claims(pair: Pair, number: int) -> None:
    """Neither what is there nor a new partition can be claimed, and the command is named."""
    await filled(pair.one)
    await pair.two.hold(MARK, "reshard")

    with pytest.raises(OnHold, match="stream-metrics reshard"):
        await pair.one.claim(number, b"new", IDENTITY, START)

    assert await pair.one.held_by() == "reshard"
    assert await pair.one.partitions() == [3]


async def test_a_hold_is_seen_where_state_is_described(pair: Pair) -> None:
    """Until the release, the token that stands there is no worker's."""
    await filled(pair.one)
    assert not (await pair.one.describe(3)).frozen
    await pair.two.hold(MARK, "reshard")

    held = await pair.one.describe(3)
    await pair.two.release(MARK)

    assert (held.frozen, held.token) == (True, MARK)
    assert not (await pair.one.describe(3)).frozen


@pytest.mark.parametrize("token", [b"owner", MARK])
async def test_a_hold_refuses_an_owners_wipe(pair: Pair, token: bytes) -> None:
    """It begins neither with the token of before nor with the one that stands there now."""
    await filled(pair.one)
    await pair.two.hold(MARK, "reshard")
    before = await contents(pair.two)

    with pytest.raises(OnHold, match="stream-metrics reshard"):
        await pair.one.wipe(3, token)

    assert (await contents(pair.two), await pair.two.unfinished()) == (before, [])


async def test_a_hold_stops_an_owners_wipe(pair: Pair) -> None:
    """What is left is the command's to delete."""
    await filled(pair.one)
    assert await pair.one.wipe(3, b"owner") == Wiping()
    await pair.two.hold(MARK, "rebuild")

    with pytest.raises(OnHold, match="rebuild"):
        await pair.one.wipe(3, b"owner")

    assert await pair.two.unfinished() == [3]
    await wipe(pair.two)
    assert await pair.two.unfinished() == []


@pytest.mark.parametrize("begun", [False, True])
async def test_a_hold_refuses_a_wipe_where_nothing_is(pair: Pair, begun: bool) -> None:
    """Whoever wants to begin there learns of it at once, also where something was before."""
    if begun:
        await filled(pair.one)
        await wipe(pair.one)
    await pair.two.hold(MARK, "migrate")

    with pytest.raises(OnHold, match="migrate"):
        await pair.one.wipe(3, b"new")


async def test_after_the_release_all_is_as_it_was(pair: Pair) -> None:
    """Whoever claims then finds the state, and may write."""
    await filled(pair.one)
    await pair.two.hold(MARK, "reshard")
    await pair.two.release(MARK)

    state = await claim(pair.one, b"new")

    assert await pair.one.held_by() is None
    assert state.positions["searches"] == Position(1, 5, b"last", 6)
    result = await pair.one.write(batch(2, token=b"new", since=1))
    assert result == Written()


async def test_a_later_hold_takes_an_earlier_one_over(pair: Pair) -> None:
    """With the earlier mark nothing can be drafted, switched or released any more."""
    await filled(pair.one)
    drafts = await drafted(pair.one, 0)
    await pair.two.hold(LATER, "migrate")

    with pytest.raises(OnHold, match="migrate"):
        await drafts.claim(1, MARK, NEW, START)
    with pytest.raises(OnHold, match="migrate"):
        await pair.one.switch(MARK, [3], [0])
    with pytest.raises(OnHold, match="migrate"):
        await pair.one.sweep(MARK)
    with pytest.raises(OnHold, match="migrate"):
        await pair.one.release(MARK)
    with pytest.raises(OnHold, match="migrate"):
        await claim(pair.one)
    assert await pair.two.held_by() == "migrate"


async def test_a_hold_that_has_ended_is_of_no_use(store: StateStore) -> None:
    """After the release nothing can be drafted, switched or released by its mark."""
    await filled(store)
    drafts = await drafted(store, 0)
    await store.release(MARK)

    for call in (
        drafts.claim(1, MARK, NEW, START),
        store.switch(MARK, [3], [0]),
        store.sweep(MARK),
        store.release(MARK),
    ):
        with pytest.raises(OnHold, match="has ended"):
            await call


async def lose_hold(store: StateStore) -> None:
    """Lose the write that began the hold, as the master of a Cluster may that has the layout."""
    if isinstance(store, MemoryStore):
        store._content.held = None
    else:
        assert isinstance(store, RedisStore)
        client: Any = store.client
        await client.hdel(store.keys.layout, "held")


async def test_places_that_are_kept_after_a_lost_hold_are_told_of(pair: Pair) -> None:
    """Claims are refused as before, and what lets them in again is named wherever one asks."""
    await filled(pair.one)
    await pair.two.hold(MARK, "migrate")
    await lose_hold(pair.two)

    with pytest.raises(OnHold, match="stream-metrics reshard --abort"):
        await claim(pair.one, b"new")
    with pytest.raises(OnHold, match="stream-metrics reshard --abort"):
        await pair.one.wipe(3, b"owner")
    assert await pair.one.held_by() == "reshard --abort"


async def test_another_hold_ends_a_lost_one(pair: Pair) -> None:
    """With its release all places can be claimed again."""
    await filled(pair.one)
    await pair.two.hold(MARK, "migrate")
    await lose_hold(pair.two)

    await pair.two.hold(LATER, "reshard --abort")
    await pair.two.release(LATER)

    assert await pair.one.held_by() is None
    assert (await claim(pair.one, b"new")).positions["searches"] == Position(1, 5, b"last", 6)


async def test_nobody_else_sees_drafts(pair: Pair) -> None:
    """They are listed, described and read among themselves, and the state stays as it is."""
    await filled(pair.one)
    before = await seen(pair.two)
    drafts = await drafted(pair.one, 3, 4)

    assert await drafts.partitions() == [3, 4]
    state = await drafts.describe(4)
    assert (state.identity, state.positions[FORMER].record_time_ms) == (NEW, 9)
    assert await drafts.load(4, [(B, True)]) == [StoredConversation({b"q": b"4"}, {b"f": b"2"})]
    assert await pair.two.partitions() == [3]
    assert await seen(pair.two) == before


async def test_a_switch_puts_drafts_in_the_place_of_others(pair: Pair) -> None:
    """From then on everybody sees the drafts, and no trace of what they replace."""
    await filled(pair.one)
    await drafted(pair.two, 0, 3)

    await pair.two.switch(MARK, [3], [0, 3])

    assert await pair.two.partitions() == [0, 3]
    described = await pair.one.describe(3)
    assert described.identity == NEW
    assert [found async for found in pair.one.conversations(3)] == [
        (B, StoredConversation({b"q": b"3"}, last_record_ms=8))
    ]
    assert await pair.one.load(3, [(A, False)]) == [StoredConversation({})]
    assert await pair.two.drafts(MARK).partitions() == []


async def test_a_switch_is_told_of_until_the_release(pair: Pair) -> None:
    """Also under a later hold: what comes after a switch may be left to do."""
    await filled(pair.one)
    await drafted(pair.one, 3)
    told = [await pair.two.switched()]
    await pair.one.switch(MARK, [3], [3])
    told.append(await pair.two.switched())
    await pair.one.hold(LATER, "migrate")
    told.append(await pair.two.switched())
    await swept(pair.one, LATER)
    told.append(await pair.two.switched())
    await pair.one.release(LATER)
    told.append(await pair.two.switched())

    assert told == [False, True, True, True, False]


async def test_what_was_retired_takes_no_writes(pair: Pair) -> None:
    """Whoever owned what was replaced is refused, before and after it is deleted."""
    await filled(pair.one)
    await drafted(pair.two, 3)
    await pair.two.switch(MARK, [3], [3])
    late = batch(2, ConversationWrite(A, {b"p": b"2"}), since=1)

    assert await pair.one.write(late) == Fenced()
    await swept(pair.two)
    assert await pair.one.write(late) == Fenced()
    await pair.two.release(MARK)
    assert await pair.one.write(late) == Fenced()
    assert await pair.two.count(3) == 1


async def test_a_repeated_switch_changes_nothing(store: StateStore) -> None:
    """The answer may have been lost; what is in force by then is not retired."""
    await filled(store)
    await drafted(store, 3)
    await store.switch(MARK, [3], [3])

    await store.switch(MARK, [3], [3])

    assert await store.partitions() == [3]
    assert (await store.describe(3)).identity == NEW


async def test_a_draft_of_a_taken_place_is_refused(store: StateStore) -> None:
    """Unless the partition in force is retired, nothing is switched."""
    await filled(store)
    await drafted(store, 2, 3)

    with pytest.raises(ValueError, match="partition 3 is in use"):
        await store.switch(MARK, [], [2, 3])

    assert await store.partitions() == [3]
    assert (await store.describe(3)).identity == IDENTITY


@pytest.mark.parametrize("numbers", [[3], [3, 4, 5]])
async def test_a_switch_of_other_drafts_is_refused(store: StateStore, numbers: list[int]) -> None:
    """If any is missing, or nobody speaks of it, nothing is switched."""
    await filled(store)
    await drafted(store, 3, 4)

    with pytest.raises(ValueError, match=r"the drafts are \[3, 4\]"):
        await store.switch(MARK, [3], numbers)

    assert await store.partitions() == [3]
    assert (await store.describe(3)).identity == IDENTITY


async def test_a_switch_without_drafts_is_refused(store: StateStore) -> None:
    """They are gone; only a switch that is repeated finds none."""
    await filled(store)
    await drafted(store)

    with pytest.raises(ValueError, match=r"the drafts are \[\]"):
        await store.switch(MARK, [3], [3])


async def test_a_sweep_deletes_drafts(store: StateStore) -> None:
    """Before the switch it takes back what was prepared, and nothing else."""
    await filled(store)
    drafts = await drafted(store, 3, 4)

    assert await swept(store) > 2
    assert await drafts.partitions() == []
    assert await store.count(3) == 1
    assert await drafts.write(BatchWrite(4, MARK, b"2", {}, {})) == Fenced()


async def test_a_sweep_deletes_what_was_retired(store: StateStore) -> None:
    """After the switch it deletes what was replaced, and nothing else; then it is done."""
    await filled(store)
    await drafted(store, 3, 4)
    await store.switch(MARK, [3], [3, 4])

    assert await swept(store) > 1
    assert await swept(store) == 1
    assert [await store.count(number) for number in (3, 4)] == [1, 1]


async def test_a_draft_may_be_wiped_like_any_partition(store: StateStore) -> None:
    """A claim after that begins it anew."""
    await filled(store)
    drafts = await drafted(store, 4)

    assert await drafts.wipe(4) == Wiping()
    state = await drafts.claim(4, MARK, IDENTITY, START)

    assert (state.identity, await drafts.count(4)) == (IDENTITY, 0)


@pytest.mark.parametrize("switched", [False, True])
async def test_a_namespace_with_leftovers_is_not_dissolved(
    store: StateStore, switched: bool
) -> None:
    """Drafts and retired partitions have to be swept first."""
    await filled(store)
    await drafted(store, 3)
    if switched:
        await store.switch(MARK, [3], [3])
    await wipe(store)

    with pytest.raises(ValueError, match="holds state"):
        await store.dissolve()
    await swept(store)
    await store.dissolve()

    assert (await store.held_by(), await store.partitions()) == (None, [])


@pytest.mark.parametrize(("mark", "command"), [(b"", "x"), (b"a b", "x"), (b"a", ""), (b"a", "\n")])
async def test_an_unfit_hold_is_refused(store: StateStore, mark: bytes, command: str) -> None:
    """A mark is letters and digits; a command is a line."""
    with pytest.raises(ValueError, match=r"must have at least|letters and digits"):
        await store.hold(mark, command)
    assert await store.held_by() is None
