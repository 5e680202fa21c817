"""What every store does with the generations of a namespace: layout and frozen partitions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import structs

from stream_metrics.live.layout import NOTHING, Generation, Layout
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Fenced,
    Position,
    StateStore,
    StoreUnavailable,
    Superseded,
    Wiped,
    Wiping,
    Written,
)
from stream_metrics.live.worker.ownership.generations import admit, begin, change
from tests.contract.conftest import IDENTITY, Pair

pytestmark = pytest.mark.asyncio

OTHER = replace(IDENTITY, fingerprint="other", partition_counts={"searches": 3})
START = {"searches": Position(0)}
KEY = bytes(16)


def batch(offset: int = 1, token: bytes = b"owner") -> BatchWrite:
    """A batch that reads the record before ``offset``."""
    conversation = ConversationWrite(KEY, {b"p": b"%d" % offset}, {b"f": b"1"}, 5)
    return BatchWrite(
        0, token, b"%d" % offset, {"searches": offset - 1}, {"searches": Position(offset)},
        [conversation], {("5m", 1, "a"): b"1"},
    )  # fmt: skip


async def filled(store: StateStore) -> None:
    """Claim partition 0, and write to it."""
    await store.claim(0, b"owner", START)
    assert await store.write(batch()) == Written()


async def wiped(store: StateStore) -> None:
    """Run all steps of a wipe on partition 0."""
    async with asyncio.timeout(30):
        while await store.wipe(0) != Wiped():
            pass


async def register_second(pair: Pair) -> Generation:
    """Register a second generation, which is then being built."""
    layout = await change(pair.spaces[0], lambda now: now.registered(OTHER, "b2", 2))
    assert layout.building is not None
    return layout.building


# -- the layout document


async def test_every_handle_sees_the_stored_layout(pair: Pair) -> None:
    """It includes the store's tags of partitions."""
    stored = await pair.spaces[0].layout()

    assert await pair.spaces[1].layout() == stored
    assert stored.in_force == pair.generation
    assert replace(stored.generations[0].identity, settings="") == IDENTITY


async def test_a_layout_is_replaced_only_by_its_successor(pair: Pair) -> None:
    """The second of two successors of one version is refused, and so is an unrelated version."""
    one, two = pair.spaces
    before = await one.layout()
    first, second = before.has_grown(["a"], 5), before.has_grown(["b"], 6)

    assert await one.change_layout(first) == first
    assert await two.change_layout(second) is None
    assert await two.change_layout(NOTHING.begun(OTHER, "x", 1)) is None
    assert await two.layout() == first


async def test_concurrent_changes_of_the_layout_are_all_stored(pair: Pair) -> None:
    """Each is retried until it succeeds; names stay within their limit."""
    askers = [
        admit(space, "agents", [f"{n}-{m}" for m in range(3)], ["mine"], 10)
        for n in range(6)
        for space in pair.spaces
    ]
    answers = await asyncio.gather(*askers)
    final = await admit(pair.spaces[0], "agents", [], ["mine"], 10)

    assert len(final) == 10
    assert all(answer <= final for answer in answers)


async def test_no_partition_is_claimed_of_a_generation_that_the_layout_does_not_know(
    pair: Pair,
) -> None:
    """The store has lost its entry; nothing is left of the attempt."""
    unknown = pair.spaces[0].generation(structs.replace(pair.generation, number=9, mark="lost"))

    with pytest.raises(StoreUnavailable, match="has lost the entry of generation 9"):
        await unknown.claim(0, b"owner", START)

    assert await unknown.partitions() == []


async def test_the_first_worker_registers_the_first_generation(pair: Pair) -> None:
    """After a purge, too; a worker that starts later, or at the same time, uses the same one."""
    purged = await change(pair.spaces[0], Layout.emptied)
    assert await change(pair.spaces[1], Layout.emptied) == purged
    assert purged.generations == ()

    begun = await asyncio.gather(*(begin(space, IDENTITY, 7) for space in pair.spaces * 3))

    assert len({generation.mark for generation in begun}) == 1
    assert begun[0].mark != pair.generation.mark
    assert await pair.spaces[0].generation(begun[0]).partitions() == []


# -- two generations in one namespace


async def test_generations_share_no_partition(pair: Pair) -> None:
    """Partitions with the same number in two generations hold different state."""
    new = pair.spaces[0].generation(await register_second(pair))
    await filled(pair.one)

    assert await new.partitions() == []
    assert (await new.describe(0)).token is None
    await filled(new)
    await wiped(pair.one)
    assert (await new.describe(0)).conversations == 1


async def test_a_reused_generation_number_has_new_partitions(pair: Pair) -> None:
    """A store may lose the registration of a generation and keep its state."""
    go_back = await pair.remember()
    lost = pair.spaces[0].generation(await register_second(pair))
    await go_back()
    layout = await change(pair.spaces[0], lambda now: now.registered(OTHER, "c3", 3))
    again = layout.building
    assert again is not None
    await filled(pair.spaces[1].generation(again))

    assert again.number == 2
    assert (await lost.describe(0)).token is None


# -- frozen partitions


async def test_a_frozen_partition_refuses_its_owner(pair: Pair) -> None:
    """Writes, claims, wipes and heartbeats are refused; the state stays and can be read."""
    await filled(pair.one)
    await pair.two.freeze(0, 2)
    before = await pair.two.describe(0)

    assert await pair.one.write(batch(2)) == Fenced()
    with pytest.raises(
        Superseded, match="generation 1 of the state has been replaced by generation 2"
    ):
        await pair.one.claim(0, b"owner", START)
    with pytest.raises(Superseded):
        await pair.one.wipe(0, b"owner")
    await pair.one.heartbeat(0, b"owner", "worker:9464")

    found = await pair.two.describe(0)
    assert found == before
    assert (found.frozen_by, found.worker, found.positions) == (2, "", {"searches": Position(1)})
    assert [key async for key, _ in pair.two.conversations(0)] == [KEY]
    assert await pair.two.buckets(0) == {("5m", 1, "a"): b"1"}


async def test_an_unclaimed_partition_can_be_frozen(pair: Pair) -> None:
    """It cannot be claimed afterwards, and is not listed."""
    await pair.one.freeze(0, 2)

    with pytest.raises(Superseded):
        await pair.two.claim(0, b"owner", START)
    assert await pair.two.partitions() == []
    assert await pair.two.frozen_by(0) == 2


async def test_freezing_again_changes_nothing(pair: Pair) -> None:
    """Several processes may finish a switch at the same time."""
    await filled(pair.one)
    await pair.one.freeze(0, 2)
    before = await pair.two.describe(0)

    await pair.two.freeze(0, 2)

    assert await pair.one.describe(0) == before
    assert await pair.one.frozen_by(0) == before.frozen_by == 2


@pytest.mark.parametrize("steps", [0, 1])
async def test_a_wiped_partition_stays_frozen(pair: Pair, steps: int) -> None:
    """At every step of the wipe, and after it, a worker that wakes late cannot claim it."""
    await filled(pair.one)
    await pair.one.freeze(0, 2)
    for _ in range(steps):
        assert await pair.one.wipe(0) == Wiping()
    with pytest.raises(Superseded):
        await pair.two.claim(0, b"owner", START)
    await wiped(pair.one)

    with pytest.raises(Superseded):
        await pair.two.claim(0, b"owner", START)
    assert await pair.two.wipe(0) == Wiped()
    found = await pair.two.describe(0)
    assert (found.token, found.frozen_by, found.wiping) == (None, 2, False)


async def test_a_mark_is_removed_after_everything_else(pair: Pair) -> None:
    """It is kept until then."""
    await filled(pair.one)
    await pair.one.freeze(0, 2)
    await pair.one.freeze(0, 0)
    assert await pair.two.frozen_by(0) == 2
    await wiped(pair.one)

    await pair.one.freeze(0, 0)

    assert await pair.two.frozen_by(0) == 0


async def test_nothing_can_be_claimed_in_a_retired_generation(pair: Pair) -> None:
    """This also holds where its partitions are no longer marked: a claim rereads the layout."""
    new = await register_second(pair)
    await change(pair.spaces[0], lambda now: now.switched(new.number, 3))

    with pytest.raises(Superseded, match="replaced by generation 2"):
        await pair.one.claim(0, b"late", START)

    found = await pair.one.describe(0)
    assert (found.token, found.wiping) == (None, False)


async def test_a_claim_that_is_repeated_reads_the_layout_again(pair: Pair) -> None:
    """The reply to the first one was lost, and the generation has ended since; nothing is left."""
    await pair.one.claim(0, b"late", START)
    new = await register_second(pair)
    await change(pair.spaces[0], lambda now: now.switched(new.number, 3))

    with pytest.raises(Superseded, match="replaced by generation 2"):
        await pair.one.claim(0, b"late", START)

    found = await pair.one.describe(0)
    assert (found.token, found.wiping) == (None, False)


async def test_a_lost_layout_does_not_delete_a_partition_that_had_an_owner(pair: Pair) -> None:
    """Nothing was written to it, so its positions are all it has; it can be claimed again once the
    layout is restored."""
    await pair.one.claim(0, b"owner", START)
    lost = pair.spaces[0].generation(structs.replace(pair.generation, number=9))

    with pytest.raises(StoreUnavailable, match="has lost the entry of generation 9"):
        await lost.claim(0, b"next", {"searches": Position(5)})

    assert (await pair.one.claim(0, b"next", START)).positions == START
