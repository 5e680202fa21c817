"""What every ``StateStore`` does: in memory, in a file, and on real Redis servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.live.ports import (
    BatchWrite,
    ConversationWrite,
    Fenced,
    Moved,
    PartitionState,
    Position,
    StateStore,
    StoredConversation,
    Wiped,
    Wiping,
    Written,
)
from stream_metrics.live.worker.batches import BatchTooLarge
from stream_metrics.live.worker.clock import wall_ms
from tests.contract.conftest import REAL_KINDS, Pair, memory_pair
from tests.helpers import examples

pytestmark = pytest.mark.asyncio

START = {"searches": Position(0), "labels": Position(7, 1_000, b"\x00 digest \xff", 2_000)}
BEGINNING, END = -(1 << 53), 1 << 53  # of time
A, B, C = (bytes([n]) * 16 for n in (1, 2, 255))


def batch(
    searches: int = 1,
    *conversations: ConversationWrite,
    token: bytes = b"owner",
    since: int = 0,
    batch_id: bytes | None = None,
    buckets: dict[tuple[str, int, str], bytes | None] | None = None,
) -> BatchWrite:
    """A batch that moves the offset of the searches from ``since`` to ``searches``."""
    return BatchWrite(
        partition=3,
        token=token,
        batch_id=b"to %d" % searches if batch_id is None else batch_id,
        expected={"searches": since, "labels": 7},
        positions={"searches": Position(searches, 5, b"last", 6)},
        conversations=conversations,
        buckets=buckets or {},
    )


async def claim(store: StateStore, token: bytes = b"owner") -> PartitionState:
    """Claim partition 3."""
    return await store.claim(3, token, START)


async def wipe(store: StateStore, partition: int = 3) -> None:
    """Run all steps of a wipe."""
    async with asyncio.timeout(30):
        while await store.wipe(partition) != Wiped():
            pass


async def contents(store: StateStore, partition: int = 3) -> object:
    """Everything that can be read of a partition without changing it, except a wipe in progress."""
    listed = {key: found.hot async for key, found in store.conversations(partition)}
    aged = await store.by_age(partition, BEGINNING, END, 1_000)
    keys = [(key, True) for key in aged]
    return (
        replace(await store.describe(partition), wiping=False),
        listed,
        aged,
        dict(zip(aged, await store.load(partition, keys), strict=True)),
    )


# -- claim


async def test_an_unknown_partition_is_empty(store: StateStore) -> None:
    """Describing, loading and listing an unclaimed partition finds nothing and creates nothing."""
    assert await contents(store) == (PartitionState(None, {}), {}, [], {})
    assert await store.load(3, [(A, False)]) == [StoredConversation({}, None)]
    assert await store.load(3, [(A, True)], hot=False) == [StoredConversation({}, {})]
    assert await store.partitions() == []


async def test_a_new_partition_starts_at_the_given_positions(store: StateStore) -> None:
    """The first claim stores the owner and the positions, and returns them."""
    expected = PartitionState(b"owner", START)

    assert await claim(store) == expected
    assert await store.describe(3) == expected


async def test_a_later_claim_changes_only_the_owner(pair: Pair) -> None:
    """Positions stay as they were first stored; the caller compares them."""
    await claim(pair.one)
    state = await pair.two.claim(3, b"new", {"searches": Position(99)})

    assert state == PartitionState(b"new", START)


async def test_the_last_batch_id_shows_whether_anything_was_written(pair: Pair) -> None:
    """A write changes it, even one that moves no position; a refused write and a claim do not."""
    await claim(pair.one)
    await pair.one.write(batch(1, ConversationWrite(A, {b"p": b"1"})))
    first = (await pair.two.describe(3)).last_batch
    await pair.one.write(batch(1, since=0, batch_id=b"refused"))
    await claim(pair.two, b"new")
    second = (await pair.two.describe(3)).last_batch
    gone = ConversationWrite(A, delete=True)
    await pair.two.write(batch(1, gone, token=b"new", since=1, batch_id=b"expiry"))

    assert (first, second) == (b"to 1", b"to 1")
    assert (await pair.one.describe(3)).last_batch == b"expiry"


async def test_a_heartbeat_shows_the_owner_and_its_time(pair: Pair) -> None:
    """The owner's text and the store's time are returned, and the partition is not changed."""
    await claim(pair.one)
    before, start_ms = await contents(pair.one), (await pair.one.describe(3)).store_ms
    assert (await pair.two.describe(3)).worker == ""

    await pair.one.heartbeat(3, b"owner", "wörker:9464")
    assert (await pair.two.describe(3)).behind_ms is None
    await pair.one.heartbeat(3, b"owner", "wörker:9464", 1_234)

    found = await pair.two.describe(3)
    assert (found.worker, found.behind_ms) == ("wörker:9464", 1_234)
    assert start_ms <= found.beat_ms <= (await pair.one.describe(3)).store_ms
    assert await contents(pair.two) == before
    assert await pair.one.write(batch(1)) == Written()
    assert (await pair.two.describe(3)).worker == "wörker:9464"


async def test_a_later_claim_invalidates_a_heartbeat(pair: Pair) -> None:
    """An earlier heartbeat, or one that arrives late, does not make its sender the owner."""
    await claim(pair.one, b"first")
    await pair.one.heartbeat(3, b"first", "first:9464")
    await claim(pair.two, b"second")
    claimed = await pair.one.describe(3)
    await pair.one.heartbeat(3, b"first", "first:9464")
    late = await pair.one.describe(3)
    await pair.two.heartbeat(3, b"second", "second:9464")

    assert [(s.worker, s.beat_ms) for s in (claimed, late)] == [("", 0), ("", 0)]
    assert (await pair.one.describe(3)).worker == "second:9464"


async def test_a_heartbeat_does_not_create_a_partition(store: StateStore) -> None:
    """A heartbeat for an unclaimed or wiped partition stores nothing."""
    await store.heartbeat(3, b"owner", "worker:9464")
    await claim(store)
    await wipe(store)
    await store.heartbeat(3, b"owner", "worker:9464")

    assert await store.describe(3) == PartitionState(None, {})
    assert await store.partitions() == []


async def test_conversations_are_counted(store: StateStore) -> None:
    """The count is the number of conversations that were written and not deleted."""
    await claim(store)
    assert (await store.describe(3)).conversations == 0
    await store.write(batch(1, ConversationWrite(A), ConversationWrite(B)))
    await store.write(batch(2, ConversationWrite(A, delete=True), since=1))

    assert (await store.describe(3)).conversations == 1


async def test_marks_stay_until_a_wipe(store: StateStore) -> None:
    """Marks that batches set on a partition stay until it is wiped, across owners."""
    await claim(store)
    await store.write(replace(batch(1), marks=["announced 5", "ä"]))
    await store.write(replace(batch(2, since=1), marks=["carried"]))
    await claim(store, b"new")

    assert (await store.describe(3)).marks == {"announced 5", "ä", "carried"}
    await wipe(store)
    assert (await store.describe(3)).marks == frozenset()


async def test_partitions_are_listed_in_order(store: StateStore) -> None:
    """Every claimed partition is listed once, in numerical order."""
    for partition in (11, 2, 3, 2):
        await store.claim(partition, b"owner", {})

    assert await store.partitions() == [2, 3, 11]


async def test_a_store_returns_its_time(store: StateStore) -> None:
    """It returns its clock in milliseconds, before and after a partition exists."""
    before = wall_ms()
    first = (await store.describe(3)).store_ms
    await claim(store)
    second = (await store.describe(3)).store_ms

    assert before <= first <= second <= wall_ms()


async def test_partitions_share_nothing(store: StateStore) -> None:
    """A write to one partition cannot be seen in another."""
    await store.claim(4, b"owner", START)
    await claim(store)
    before = await contents(store, 4)

    await store.write(batch(1, ConversationWrite(A, {b"p": b"1"})))

    assert await contents(store, 4) == before


# -- who may write, and when


async def test_a_second_claim_fences_the_first(pair: Pair) -> None:
    """Once another owner has claimed the partition, the first owner's writes change nothing."""
    await claim(pair.one, b"first")
    await claim(pair.two, b"second")
    before = await contents(pair.two)

    result = await pair.one.write(batch(1, ConversationWrite(A, {b"p": b"1"}), token=b"first"))

    assert result == Fenced()
    assert await contents(pair.two) == before


async def test_a_write_without_a_claim_is_fenced(store: StateStore) -> None:
    """A partition that does not exist, or was lost, has no owner."""
    assert await store.write(batch()) == Fenced()


@pytest.mark.parametrize("since", [1, 10**15])
async def test_unexpected_offsets_are_refused(store: StateStore, since: int) -> None:
    """The answer has the stored offsets of all topics, and nothing is written."""
    await claim(store)
    before = await contents(store)

    result = await store.write(batch(since + 1, ConversationWrite(A, {b"p": b"1"}), since=since))

    assert result == Moved({"searches": 0, "labels": 7})
    assert await contents(store) == before


async def test_a_topic_that_is_not_stored_is_refused(store: StateStore) -> None:
    """Expecting an offset of an unknown topic fails, even if all other offsets are as expected."""
    await claim(store)
    strange = replace(batch(), expected={"searches": 0, "labels": 7, "new": 0})

    assert await store.write(strange) == Moved({"searches": 0, "labels": 7})


async def test_offsets_beyond_doubles_are_compared_exactly(store: StateStore) -> None:
    """Offsets that are equal as floating-point numbers are still different offsets."""
    huge = 2**53
    await store.claim(3, b"owner", {"searches": Position(huge - 1), "labels": Position(7)})

    assert await store.write(batch(huge, since=huge - 1)) == Written()
    assert (await store.describe(3)).positions["searches"].offset == huge


async def test_a_repeated_write_succeeds_and_changes_nothing(store: StateStore) -> None:
    """When the same batch is sent again, its offsets are already stored, and it is done."""
    await claim(store)
    write = batch(1, ConversationWrite(A, {b"p": b"1"}, last_record_ms=5))
    assert await store.write(write) == Written()
    before = await contents(store)

    assert await store.write(write) == Written()
    assert await contents(store) == before


async def test_another_batch_to_the_same_offsets_is_refused(store: StateStore) -> None:
    """Stored offsets that are already the new ones are accepted for the same batch id only."""
    await claim(store)
    await store.write(batch(1))

    assert await store.write(batch(1, batch_id=b"another")) == Moved({"searches": 1, "labels": 7})


async def test_a_batch_may_move_no_offset(store: StateStore) -> None:
    """Expiry changes conversations without reading records, any number of times."""
    await claim(store)
    await store.write(batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B)))
    for number, key in enumerate((A, B)):
        delete = batch(1, ConversationWrite(key, delete=True), since=1, batch_id=b"%d" % number)

        assert await store.write(replace(delete, positions={})) == Written()

    assert await store.by_age(3, BEGINNING, END, 10) == []
    assert await store.by_age(3, 0, END, 10, newest=True) == []


async def test_a_write_after_a_rollback_is_refused(pair: Pair) -> None:
    """After a failover that lost writes, the next write returns the stored offsets."""
    await claim(pair.one)
    await pair.one.write(batch(1, ConversationWrite(A, {b"p": b"1"})))
    before = await contents(pair.one)
    go_back = await pair.remember()
    await pair.one.write(batch(2, ConversationWrite(A, {b"p": b"2"}), since=1))
    await go_back()

    result = await pair.one.write(batch(3, ConversationWrite(A, {b"p": b"3"}), since=2))

    assert result == Moved({"searches": 1, "labels": 7})
    assert await contents(pair.one) == before


async def test_a_write_after_a_total_loss_is_fenced(pair: Pair) -> None:
    """After a total loss there is no owner, and a claim starts from the beginning."""
    go_back = await pair.remember()
    await claim(pair.one)
    await pair.one.write(batch(1, ConversationWrite(A, {b"p": b"1"})))
    await go_back()

    assert await pair.one.write(batch(2, since=1)) == Fenced()
    assert await claim(pair.one) == PartitionState(b"owner", START)


# -- what a write changes


async def test_positions_are_kept_to_the_byte(store: StateStore) -> None:
    """A position keeps its digest, timestamps and offset; other topics are not changed."""
    await claim(store)
    new = Position(10, -1, bytes(range(256)), 1_700_000_000_000, 1_700_000_000_000_001)

    await store.write(replace(batch(), positions={"searches": new}))

    assert (await store.describe(3)).positions == {"searches": new, "labels": START["labels"]}


async def test_parts_are_set_and_deleted(store: StateStore) -> None:
    """A write sets the parts it names, deletes those that are None, and leaves the others."""
    await claim(store)
    first = ConversationWrite(A, {b"stay": b"1", b"go": b"2"}, {b"f": b"3", b"g": b""})
    await store.write(batch(1, first))
    second = ConversationWrite(A, {b"go": None, b"none": None, b"new": b"\x00"}, {b"f": None})
    await store.write(batch(2, second, since=1))

    expected = StoredConversation({b"stay": b"1", b"new": b"\x00"}, {b"g": b""})

    assert await store.load(3, [(A, True)]) == [expected]


async def test_loads_keep_the_order_of_the_keys(store: StateStore) -> None:
    """Answers are in the order of the keys, including unknown and repeated keys."""
    await claim(store)
    parts = [ConversationWrite(key, {b"p": key}, {b"f": key}) for key in (A, B)]
    await store.write(batch(1, *parts))

    loaded = await store.load(3, [(B, True), (C, True), (A, False), (B, False)])

    assert [found.hot.get(b"p") for found in loaded] == [B, None, A, B]
    assert [found.fingerprints for found in loaded] == [{b"f": B}, {}, None, None]
    only = await store.load(3, [(C, True), (B, True), (A, False)], hot=False)
    assert only == [
        StoredConversation({}, {}),
        StoredConversation({}, {b"f": B}),
        StoredConversation({}, None),
    ]


async def test_arguments_and_results_are_copied(store: StateStore) -> None:
    """Changing an argument or a result afterwards does not change what is stored."""
    await claim(store)
    write = batch(1, ConversationWrite(A, {b"p": b"1"}))
    await store.write(write)
    write.conversations[0].hot[b"p"] = b"2"
    loaded = (await store.load(3, [(A, True)]))[0]
    loaded.hot.clear()
    (await store.describe(3)).positions.clear()
    (await claim(store)).buckets["5m", 1, "a"] = b"x"
    (await store.buckets(3))["5m", 1, "a"] = b"x"

    assert (await store.load(3, [(A, False)]))[0].hot == {b"p": b"1"}
    assert (await claim(store)).positions.keys() == START.keys()
    assert await store.buckets(3) == {}


async def test_a_deleted_conversation_leaves_nothing(store: StateStore) -> None:
    """A deleted conversation has no parts and is not listed; a later write starts afresh."""
    await claim(store)
    await store.write(batch(1, ConversationWrite(A, {b"p": b"1"}, {b"f": b"1"}, 50)))
    await store.write(batch(2, ConversationWrite(A, delete=True), since=1))
    assert (await contents(store))[1:] == ({}, [], {})  # type: ignore[index]

    await store.write(batch(3, ConversationWrite(A, {b"q": b"2"}, last_record_ms=40), since=2))

    assert await store.load(3, [(A, True)]) == [StoredConversation({b"q": b"2"}, {})]
    assert await store.by_age(3, BEGINNING, 41, 10) == [A]


async def test_changes_apply_in_order(store: StateStore) -> None:
    """One batch may delete a conversation and create it again."""
    await claim(store)
    await store.write(batch(1, ConversationWrite(A, {b"old": b"1"}, {b"f": b"1"}, 50)))
    anew = ConversationWrite(A, {b"new": b"2"}, last_record_ms=60)
    await store.write(batch(2, ConversationWrite(A, delete=True), anew, since=1))

    assert await store.load(3, [(A, True)]) == [StoredConversation({b"new": b"2"}, {})]


async def test_buckets_are_stored_and_deleted(store: StateStore) -> None:
    """Buckets of all windows are returned, by a claim too, for any name of an agent."""
    await claim(store)
    kept = {
        ("5m", 7, "a|b%7C:{x}"): b"\x00\xff",
        ("5m", -1, "ä \ud800"): b"1",
        ("24 h/{y}", 2**40, ""): b"2",
    }
    await store.write(batch(1, buckets={**kept, ("5m", 8, "gone"): b"3", ("1m", 1, "x"): None}))
    assert len(await store.buckets(3)) == 4

    await store.write(batch(2, since=1, buckets={("5m", 8, "gone"): None}))

    assert await store.buckets(3) == kept
    assert await store.buckets(3, "5m") == {key: kept[key] for key in kept if key[0] == "5m"}
    assert await store.buckets(3, "6h") == {}
    assert (await claim(store)).buckets == kept
    assert await store.buckets(4) == {}


async def test_a_batch_may_be_large(store: StateStore) -> None:
    """Thousands of parts of one conversation, more than Lua can unpack, are written at once."""
    await claim(store)
    parts = {b"%d" % n: b"x" * 20 for n in range(20_000)}
    ages = [ConversationWrite(n.to_bytes(16, "big"), last_record_ms=n) for n in range(5_000)]
    await store.write(batch(1, ConversationWrite(A, dict(parts), dict(parts)), *ages))

    assert await store.load(3, [(A, True)]) == [StoredConversation(parts, parts)]
    assert len(await store.by_age(3, BEGINNING, 5_000, 10_000)) == 5_001

    gone: dict[bytes, bytes | None] = dict.fromkeys(parts)
    await store.write(batch(2, ConversationWrite(A, gone), since=1))

    assert await store.load(3, [(A, False)]) == [StoredConversation({}, None)]


# -- wipe


MANY = [n.to_bytes(16, "big") for n in range(600)]  # more than one step takes


async def fill(store: StateStore) -> None:
    """Claim partition 3 and write many conversations and a bucket of each of two windows."""
    await claim(store)
    found = [ConversationWrite(key, {b"p": key}, {b"f": key}, 5) for key in MANY]
    windows: dict[tuple[str, int, str], bytes | None] = {("5m", 1, "a"): b"1", ("1h", 1, "a"): b"2"}
    assert await store.write(batch(1, *found, buckets=windows)) == Written()


async def seen(store: StateStore) -> object:
    """Everything that any method returns about partition 3."""
    return (
        await contents(store),
        await store.load(3, [(key, True) for key in MANY]),
        await store.load(3, [(key, True) for key in MANY], hot=False),
        await store.buckets(3),
        (await store.describe(3)).conversations,
        await store.partitions(),
    )


async def test_a_wiped_partition_is_empty(pair: Pair) -> None:
    """After all steps no handle sees anything of it."""
    nothing = await seen(pair.two)
    await fill(pair.one)
    assert await seen(pair.two) != nothing

    await wipe(pair.one)

    assert await seen(pair.two) == nothing
    assert not (await pair.two.describe(3)).wiping
    assert await pair.two.wipe(3) == Wiped()


async def test_a_wipe_leaves_other_partitions(store: StateStore) -> None:
    """Only the named partition is deleted."""
    await fill(store)
    await store.claim(4, b"owner", START)
    before = await contents(store, 4)

    await wipe(store)

    assert await contents(store, 4) == before
    assert await store.partitions() == [4]


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_an_interrupted_wipe_leaves_no_visible_state(pair: Pair, steps: int) -> None:
    """From the first step on nothing can be read, though keys are left; the partition is listed."""
    nothing = await seen(pair.two)
    await fill(pair.one)

    for _ in range(steps):
        assert await pair.one.wipe(3) == Wiping()

    assert await seen(pair.two) == nothing
    assert (await pair.two.describe(3)).wiping


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_any_caller_resumes_an_interrupted_wipe(pair: Pair, steps: int) -> None:
    """The next caller resumes an interrupted wipe with any token."""
    await fill(pair.one)
    for _ in range(steps):
        await pair.one.wipe(3, b"owner")

    taken = 0
    while await pair.two.wipe(3, b"another") != Wiped():
        taken += 1

    assert taken <= 4 - steps
    assert not (await pair.one.describe(3)).wiping


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_claim_finishes_a_wipe(pair: Pair, steps: int) -> None:
    """A claim after an interrupted wipe starts at the given positions, with no old state."""
    await fill(pair.one)
    for _ in range(steps):
        await pair.one.wipe(3)
    start = {"searches": Position(40), "labels": Position(50)}

    state = await pair.two.claim(3, b"new", start)

    assert state == PartitionState(b"new", start)
    assert await pair.two.load(3, [(MANY[-1], True)]) == [StoredConversation({}, {})]
    found = await pair.two.describe(3)
    assert (found.wiping, found.conversations) == (False, 0)


@pytest.mark.parametrize("steps", [1, 2, 9])
async def test_a_former_owner_cannot_write_after_a_wipe(pair: Pair, steps: int) -> None:
    """Its write is refused during the wipe, after it, and after the next claim."""
    await fill(pair.two)
    for _ in range(steps):
        await pair.one.wipe(3)
    late = batch(2, ConversationWrite(A, {b"p": b"late"}), since=1)

    assert await pair.two.write(late) == Fenced()
    assert await pair.two.write(batch(1)) == Fenced(), "the last batch once more"
    await pair.one.claim(3, b"new", {"searches": Position(1), "labels": Position(7)})
    assert await pair.two.write(late) == Fenced()
    assert (await pair.one.describe(3)).conversations == 0


async def test_only_the_owner_may_wipe(pair: Pair) -> None:
    """A wipe with a token other than the owner's is refused, and nothing is deleted."""
    await fill(pair.one)
    before = await seen(pair.two)

    assert await pair.two.wipe(3, b"former") == Fenced()
    assert await seen(pair.two) == before
    assert await pair.one.wipe(3, b"owner") == Wiping()


async def test_a_late_step_of_a_wipe_does_not_touch_newer_state(pair: Pair) -> None:
    """A process that slept while another finished the wipe, claimed and wrote is refused."""
    await fill(pair.one)
    await pair.one.wipe(3, b"owner")
    await wipe(pair.two)
    await claim(pair.two, b"new")
    await pair.two.write(batch(1, ConversationWrite(MANY[0], {b"p": b"new"}), token=b"new"))
    before = await seen(pair.two)

    assert await pair.one.wipe(3, b"owner") == Fenced()
    assert await seen(pair.two) == before


async def test_two_wipes_at_once_finish(pair: Pair) -> None:
    """Steps of two wipes in any order leave nothing."""
    await fill(pair.one)

    await asyncio.gather(*(wipe(store) for store in (pair.one, pair.two) * 3))

    assert (await pair.one.partitions(), (await pair.one.describe(3)).wiping) == ([], False)


# -- arguments that no store takes

WRONG = [
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(b"", {b"p": b"1"})),
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B, {b"p": "1"})),  # type: ignore[dict-item]
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B, {"p": b"1"})),  # type: ignore[dict-item]
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B, {b"p": b"1"}, delete=True)),
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B, last_record_ms=2**60)),
    batch(1, ConversationWrite(A, {b"p": b"1"}), ConversationWrite(B, last_record_ms=0.5)),  # type: ignore[arg-type]
    batch(1, ConversationWrite(A, {b"p": b"1"}), buckets={("5m", 1, "a"): 1}),  # type: ignore[dict-item]
    batch(1, ConversationWrite(A, {b"p": b"1"}), batch_id=b""),
    replace(batch(1, ConversationWrite(A)), positions={"other": Position(1)}),
    replace(batch(1, ConversationWrite(A)), positions={"searches": Position(-1)}),
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_invalid_argument_writes_nothing(store: StateStore, wrong: BatchWrite) -> None:
    """A batch with one wrong argument raises ValueError and changes nothing."""
    await claim(store)
    before = await contents(store)

    with pytest.raises(ValueError, match=r"\w"):
        await store.write(wrong)

    assert await contents(store) == before


async def test_a_batch_above_the_cap_is_refused(store: StateStore) -> None:
    """A batch of more than 64 MiB raises BatchTooLarge and changes nothing."""
    await claim(store)
    before = await contents(store)

    with pytest.raises(BatchTooLarge):
        await store.write(batch(1, ConversationWrite(A, {b"p": bytes(64 << 20)})))

    assert await contents(store) == before


@pytest.mark.parametrize("token", [b"", "text"])
async def test_an_owner_needs_a_token(store: StateStore, token: bytes) -> None:
    """An empty token, which could be confused with no owner, raises ValueError."""
    with pytest.raises(ValueError, match="token"):
        await claim(store, token)

    assert await store.partitions() == []


# -- listing and expiry


async def test_idle_is_oldest_first(store: StateStore) -> None:
    """Only conversations before the given time are returned, the oldest first, up to the limit."""
    await claim(store)
    ages = [(A, 30), (B, 10), (C, 10), (b"d", 40)]
    await store.write(batch(1, *(ConversationWrite(k, last_record_ms=ms) for k, ms in ages)))

    assert await store.by_age(3, BEGINNING, 10, 9) == []
    assert await store.by_age(3, BEGINNING, 40, 9) == [B, C, A]
    assert await store.by_age(3, BEGINNING, 41, 2) == [B, C]
    assert await store.by_age(3, BEGINNING, 41, 0) == []


async def test_recent_is_newest_first(store: StateStore) -> None:
    """Only conversations since the given time are returned, the newest first, up to the limit."""
    await claim(store)
    ages = [(A, 30), (B, 10), (C, 10), (b"d", 40)]
    await store.write(batch(1, *(ConversationWrite(k, last_record_ms=ms) for k, ms in ages)))

    assert await store.by_age(3, 41, END, 9, newest=True) == []
    assert await store.by_age(3, 30, END, 9, newest=True) == [b"d", A]
    assert await store.by_age(3, 0, END, 3, newest=True) == [b"d", A, C]
    assert await store.by_age(3, 0, END, 0, newest=True) == []
    assert await store.by_age(4, 0, END, 9, newest=True) == []


async def test_the_last_record_time_never_goes_back(store: StateStore) -> None:
    """A batch of older records does not make a conversation look older than it is."""
    await claim(store)
    await store.write(batch(1, ConversationWrite(A, last_record_ms=100)))
    await store.write(batch(2, ConversationWrite(A, last_record_ms=5), since=1))

    assert await store.by_age(3, BEGINNING, 100, 9) == []
    assert await store.by_age(3, BEGINNING, 101, 9) == [A]


async def test_all_conversations_are_listed_once(store: StateStore) -> None:
    """Listing returns every conversation once, while others are written and deleted."""
    await claim(store)
    keys = [n.to_bytes(16, "big") for n in range(1_000)]
    await store.write(batch(1, *(ConversationWrite(key, {b"p": key}) for key in keys)))
    listed: list[bytes] = []
    unseen = b""
    async for key, found in store.conversations(3):
        assert found == StoredConversation({b"p": key}, None)
        if not listed:
            others = [ConversationWrite(b"new %d" % n, {b"p": b"new %d" % n}) for n in range(500)]
            unseen = next(k for k in keys[500:] if k != key)
            await store.write(batch(2, ConversationWrite(unseen, delete=True), *others, since=1))
        listed.append(key)

    old = [key for key in listed if not key.startswith(b"new")]

    assert len(listed) == len(set(listed))
    assert set(keys) - {unseen} <= set(old) <= set(keys)


@pytest.mark.parametrize("ages", [1, 7, 1_000])
async def test_conversations_written_during_a_listing_are_listed(
    store: StateStore, ages: int
) -> None:
    """A conversation that becomes the newest one during the listing is not missed."""
    await claim(store)
    keys = [n.to_bytes(16, "big") for n in range(1_000)]
    await store.write(
        batch(1, *(ConversationWrite(k, {b"p": k}, {}, n % ages) for n, k in enumerate(keys)))
    )
    listed: dict[bytes, list[bytes]] = {}
    async for key, found in store.conversations(3):
        if not listed:
            newer = [ConversationWrite(k, {b"p": b"2"}, {}, 5_000) for k in keys[::3]]
            await store.write(batch(2, *newer, since=1))
        listed.setdefault(key, []).append(found.hot[b"p"])

    assert listed.keys() == set(keys)
    assert all(len(listed[key]) == 1 for key in set(keys) - set(keys[::3]))


async def test_concurrent_writers_are_ordered(pair: Pair) -> None:
    """Of many writes that expect the same offsets, exactly one is written."""
    await claim(pair.one)
    writes = [
        store.write(batch(1, ConversationWrite(A, {b"p": b"%d" % n}), batch_id=b"%d" % n))
        for n, store in enumerate([pair.one, pair.two] * 10)
    ]
    results = await asyncio.gather(*writes)

    assert results.count(Written()) == 1
    assert results.count(Moved({"searches": 1, "labels": 7})) == 19
    winner = b"%d" % results.index(Written())
    assert (await pair.two.load(3, [(A, False)]))[0].hot == {b"p": winner}


# -- any sequence of writes

Buckets = dict[tuple[str, int, str], bytes | None]
Step = tuple[bytes, int, int, bool, list[ConversationWrite], Buckets]

small = st.binary(max_size=3)
parts = st.dictionaries(small, st.none() | small, max_size=4)
writes = st.builds(
    ConversationWrite,
    key=st.sampled_from([A, B, C]),
    hot=parts,
    fingerprints=parts,
    last_record_ms=st.integers(-5, 5),
) | st.builds(ConversationWrite, key=st.sampled_from([A, B, C]), delete=st.just(True))
names = st.tuples(st.sampled_from(["1m", "5m"]), st.integers(-1, 2), st.sampled_from(["a", "b|"]))
steps = st.tuples(
    st.sampled_from([b"owner", b"owner", b"other"]),
    st.integers(-1, 1),  # error of the expected offset
    st.integers(0, 2),  # records read
    st.booleans(),  # sent twice
    st.lists(writes, max_size=4),
    st.dictionaries(names, st.none() | small, max_size=4),
)


@pytest.mark.parametrize("kind", ["local", REAL_KINDS[0]], indirect=True)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sequence=st.lists(steps, max_size=8))
async def test_every_store_agrees_with_the_one_in_memory(
    make_pair: Callable[[], Coroutine[Any, Any, Pair]], sequence: list[Step]
) -> None:
    """Any sequence of writes gets the same answers and leaves the same content as in memory."""
    pairs: list[Pair] = [await make_pair(), await memory_pair()]
    for pair in pairs:
        await claim(pair.one)
    offset = 0
    for number, (token, off, count, twice, conversations, touched) in enumerate(sequence):
        since = max(0, offset + off)
        write = batch(
            since + count,
            *conversations,
            token=token,
            since=since,
            batch_id=b"%d" % number,
            buckets=touched,
        )
        for _ in range(1 + twice):
            one, two = [await pair.one.write(write) for pair in pairs]
            assert one == two
            if one == Written():
                offset = since + count
    left, right = [(await contents(pair.two), await pair.one.buckets(3)) for pair in pairs]
    assert left == right
    await pairs[0].close()
