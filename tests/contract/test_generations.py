"""What every store does with the generations of a namespace: the document, and what is frozen."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from stream_metrics.live.layout import NOTHING, Generation, Layout
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Fenced,
    Position,
    StateStore,
    Superseded,
    Wiped,
    Wiping,
    Written,
)
from stream_metrics.live.worker.generations import admit, begin, change
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
    """Take all steps on partition 0."""
    async with asyncio.timeout(30):
        while await store.wipe(0) != Wiped():
            pass


async def beside(pair: Pair) -> Generation:
    """Another generation, which is being built."""
    layout = await change(pair.spaces[0], lambda now: now.registered(OTHER, "b2", 2))
    assert layout.building is not None
    return layout.building


# -- the document


async def test_everybody_sees_the_document_as_it_is_stored(pair: Pair) -> None:
    """With what the store calls its partitions."""
    stored = await pair.spaces[0].layout()

    assert await pair.spaces[1].layout() == stored
    assert stored.in_force == pair.generation
    assert replace(stored.generations[0].identity, settings="") == IDENTITY


async def test_a_document_is_replaced_only_if_nobody_else_did(pair: Pair) -> None:
    """Of two that follow the same one the second is refused, and so is one out of the blue."""
    one, two = pair.spaces
    before = await one.layout()
    first, second = before.has_grown(["a"], 5), before.has_grown(["b"], 6)

    assert await one.change_layout(first) == first
    assert await two.change_layout(second) is None
    assert await two.change_layout(NOTHING.begun(OTHER, "x", 1)) is None
    assert await two.layout() == first


async def test_changes_of_many_at_once_are_all_there(pair: Pair) -> None:
    """Each is tried again until nobody was quicker; names stay within their limit."""
    askers = [
        admit(space, "agents", [f"{n}-{m}" for m in range(3)], ["mine"], 10)
        for n in range(6)
        for space in pair.spaces
    ]
    answers = await asyncio.gather(*askers)
    final = await admit(pair.spaces[0], "agents", [], ["mine"], 10)

    assert len(final) == 10
    assert all(answer <= final for answer in answers)


async def test_the_first_worker_of_all_begins_the_first_generation(pair: Pair) -> None:
    """Also after a purge; whoever comes later, or at the same time, finds it."""
    purged = await change(pair.spaces[0], Layout.emptied)
    assert await change(pair.spaces[1], Layout.emptied) == purged
    assert purged.generations == ()

    begun = await asyncio.gather(*(begin(space, IDENTITY, 7) for space in pair.spaces * 3))

    assert len({generation.mark for generation in begun}) == 1
    assert begun[0].mark != pair.generation.mark
    assert await pair.spaces[0].generation(begun[0]).partitions() == []


# -- generations beside each other


async def test_generations_share_no_partition(pair: Pair) -> None:
    """What is written to one cannot be seen in the other, under the same number."""
    new = pair.spaces[0].generation(await beside(pair))
    await filled(pair.one)

    assert await new.partitions() == []
    assert (await new.describe(0)).token is None
    await filled(new)
    await wiped(pair.one)
    assert (await new.describe(0)).conversations == 1


async def test_a_number_that_is_given_again_has_other_partitions(pair: Pair) -> None:
    """A store may lose the registration of a generation, and keep what was written to it."""
    go_back = await pair.remember()
    lost = pair.spaces[0].generation(await beside(pair))
    await go_back()
    layout = await change(pair.spaces[0], lambda now: now.registered(OTHER, "c3", 3))
    again = layout.building
    assert again is not None
    await filled(pair.spaces[1].generation(again))

    assert again.number == 2
    assert (await lost.describe(0)).token is None


# -- frozen partitions


async def test_a_frozen_partition_takes_nothing_from_its_owner(pair: Pair) -> None:
    """No write, no claim, no wipe, no heartbeat; what it holds stays and can be read."""
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


async def test_a_partition_is_frozen_before_it_begins(pair: Pair) -> None:
    """Then it cannot; it is not listed."""
    await pair.one.freeze(0, 2)

    with pytest.raises(Superseded):
        await pair.two.claim(0, b"owner", START)
    assert await pair.two.partitions() == []
    assert await pair.two.frozen_by(0) == 2


async def test_freezing_again_changes_nothing(pair: Pair) -> None:
    """Several may finish a switch at once."""
    await filled(pair.one)
    await pair.one.freeze(0, 2)
    before = await pair.two.describe(0)

    await pair.two.freeze(0, 2)

    assert await pair.one.describe(0) == before
    assert await pair.one.frozen_by(0) == before.frozen_by == 2


@pytest.mark.parametrize("steps", [0, 1])
async def test_what_is_wiped_stays_frozen(pair: Pair, steps: int) -> None:
    """At every step of the wipe, and after it: whoever wakes late cannot begin there anew."""
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


async def test_a_mark_goes_when_nothing_else_is_left(pair: Pair) -> None:
    """And not before."""
    await filled(pair.one)
    await pair.one.freeze(0, 2)
    await pair.one.freeze(0, 0)
    assert await pair.two.frozen_by(0) == 2
    await wiped(pair.one)

    await pair.one.freeze(0, 0)

    assert await pair.two.frozen_by(0) == 0


async def test_nothing_begins_in_a_generation_that_has_ended(pair: Pair) -> None:
    """Also where the marks of its partitions are gone: a claim looks at the layout once more."""
    new = await beside(pair)
    await change(pair.spaces[0], lambda now: now.switched(new.number, 3))

    with pytest.raises(Superseded, match="replaced by generation 2"):
        await pair.one.claim(0, b"late", START)

    found = await pair.one.describe(0)
    assert (found.token, found.wiping) == (None, False)
