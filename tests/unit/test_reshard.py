"""Other partition counts: cut off anywhere, taken back, refused; and where producers put a key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.memory import MemorySnapshot, MemoryStore, MemoryTopic
from stream_metrics.engine.state import DamagedState
from stream_metrics.events.limits import Limits
from stream_metrics.ports import (
    FORMER,
    BatchWrite,
    ConversationWrite,
    OnHold,
    Position,
    Record,
    StoreUnavailable,
    Written,
)
from stream_metrics.traffic import TrafficProfile, generate
from stream_metrics.traffic.partition import partition_for
from stream_metrics.worker.astray import Astray, find_astray, outgrown
from stream_metrics.worker.identity import OtherIdentity, check_identity
from stream_metrics.worker.move import Unmovable, holding
from stream_metrics.worker.options import conversation_key
from stream_metrics.worker.reshard import Reshard, resharding, unread
from stream_metrics.worker.source import Extent
from stream_metrics.worker.stored import InUse, Stored, partitioner_in_use, stored_state
from tests.fuse import Crash, Fuse, Fused
from tests.property.test_partition import IDENTITY
from tests.property.test_reshard import Group, ScriptedLogs, partition_of, sound, whole
from tests.strategies import KeyedRecord
from tests.unit.test_state_partition import NOON_S, labels, search

OLD, MORE, NEW = {"events": 2}, {"events": 3}, {"events-2": 3}
PROFILE = TrafficProfile(seed=4, conversations=10, duration_seconds=600, invalid=0.03)
TRAFFIC: list[KeyedRecord] = [(r.key or b"", r.value, r.timestamp_ms) for r in generate(PROFILE)]
HALF = len(TRAFFIC) // 2
LATE = HALF + 30


_halfway: list[tuple[MemorySnapshot, Any]] = []  # made once


async def halfway(counts: Mapping[str, int], *, behind: bool) -> Group:
    """A group that has read half of the traffic, before it is resharded to these counts.

    If it is ``behind`` there is a little more, sent by producers that see the old counts, and by
    others that see the new ones.
    """
    store = MemoryStore()
    store.wiped_at_once = 3
    group = Group(dict(OLD), store)
    group.send(TRAFFIC[:HALF])
    if not _halfway:
        await group.read()
        _halfway.append((store.snapshot(), group.letters.snapshot()))
    snapshot, letters = _halfway[0]
    store.restore(snapshot)
    group.letters.restore(letters)
    group.partitions = {}
    if behind:
        group.send(TRAFFIC[HALF:LATE:2])
        group.send(TRAFFIC[HALF + 1 : LATE : 2], dict(counts))
    return group


async def finished(group: Group, *, behind: bool) -> object:
    """Read the rest of the traffic; rows and windows then."""
    group.send(TRAFFIC[LATE if behind else HALF :])
    await group.read()
    assert sound(await group.audit())
    return await group.shown()


_expected: list[object] = []


async def expected() -> object:
    """Rows and windows of a group that was never resharded."""
    if not _expected:
        group = Group(dict(OLD))
        group.send(TRAFFIC)
        await group.read()
        _expected.append(await group.shown())
    return _expected[0]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [MORE, NEW], ids=["added", "new"])
@pytest.mark.parametrize("behind", [False, True], ids=["drained", "behind"])
async def test_a_reshard_may_be_cut_off_anywhere(counts: dict[str, int], behind: bool) -> None:
    """Wherever it dies, what is shown is the state before or after it; workers are refused until it
    has been run again; and that ends as if nothing had happened."""
    places: Counter[str] = Counter()
    old = await (await halfway(counts, behind=behind)).shown()
    done = await halfway(counts, behind=behind)
    await done.reshard(counts)
    new = await done.shown()
    for left in count():
        group = await halfway(counts, behind=behind)
        store = group.store
        group.store = Fused(store, Fuse(left))
        try:
            await group.reshard(counts)
        except Crash as crash:
            place = str(crash)
        else:
            break
        group.store = store
        places[place] += 1
        assert await group.shown() in (old, new), place
        if await store.held_by() is not None:
            with pytest.raises(OnHold):
                await store.claim(0, b"worker", group.identity, {})
        await group.reshard(counts)
        assert await group.shown() == new, place
        assert await finished(group, behind=behind) == await expected(), place
    passed = {"after hold", "after write", "before switch", "after switch", "after release"}
    assert passed <= places.keys()
    assert places["after sweep"] > 4
    assert await finished(done, behind=behind) == await expected()


async def test_a_reshard_that_was_cut_off_can_be_taken_back() -> None:
    """Before the switch, the group goes on with the counts that it had."""
    for left in count(0, 7):
        group = await halfway(MORE, behind=False)
        store = group.store
        group.store = Fused(store, Fuse(left))
        try:
            await group.reshard(MORE)
        except Crash:
            pass
        else:
            break
        group.store = store
        async with holding(store, "reshard --abort"):
            pass
        if (await store.describe(0)).identity != group.identity:
            continue  # it had been switched
        assert await finished(group, behind=False) == await expected()


async def test_another_run_ends_the_first() -> None:
    """Two at once: the first finds out, and the second one's result stands."""
    group = await halfway(MORE, behind=False)
    other = await halfway(MORE, behind=False)
    other.store = group.store
    inner = group.store.switch

    async def late(*arguments: Any) -> None:
        group.store.switch = inner  # type: ignore[method-assign]
        await other.reshard(MORE)
        await inner(*arguments)

    group.store.switch = late  # type: ignore[assignment, method-assign]
    with pytest.raises(OnHold, match="taken over"):
        await group.reshard(MORE)

    assert await finished(other, behind=False) == await expected()


FORGET = (
    b'{"type":"forget","event_id":"f","occurred_at":"2024-06-10T12:00:01Z","conversation_id":"%b"}'
)


@pytest.mark.parametrize("name", ["c1", "c2", "c3", "c4", "c5"])
async def test_what_is_forgotten_stays_forgotten_on_every_partition(name: str) -> None:
    """A tombstone, whose id nobody knows, is where the conversation's next records come."""
    group = Group({"events": 1})
    key, value, stamp = search(name, 1, NOON_S, "a", "b")
    group.send([(key, value, stamp), (key, FORGET % key, stamp)])
    await group.read()

    await group.reshard({"events": 5}, catch_up=False)
    group.send([(key, value, stamp)])
    await group.read()

    assert (await group.export()).rows == []
    assert not group.letters.letters


# -- refusals


async def filled(**conversations: int) -> MemoryStore:
    """Two partitions with conversations, by name and number."""
    group = Group({"events": 2})
    await group.read()
    for name, number in conversations.items():
        key, value, stamp = search(name, 1, NOON_S, "a")
        log = group.logs.setdefault(("events", number), [])
        log.append(Record(value, key, stamp, "events", number, len(log)))
    await group.read()
    assert isinstance(group.store, MemoryStore)
    return group.store


def elsewhere(key: bytes, number_of: int) -> int:
    """The last partition, for every key."""
    return number_of - 1


def first(key: bytes, number_of: int) -> int:
    """The first partition, for every key."""
    return 0


async def test_unread_records_are_refused_with_their_number() -> None:
    """Without --catch-up they are named by place, and nothing has changed."""
    group = await halfway(MORE, behind=True)
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"\d+ records are unread \(events/\d: \d+, .*--catch-up"):
        await group.reshard(MORE, catch_up=False)

    assert await group.store.held_by() is None
    assert await group.shown() == before


@pytest.mark.parametrize("counts", [MORE, NEW], ids=["added", "new"])
async def test_a_producer_that_sees_nothing_new_is_refused(counts: dict[str, int]) -> None:
    """If it writes where nobody will look, after the rest was taken along, nothing is switched;
    the next run takes that along too."""
    group = await halfway(counts, behind=True)
    copy = group.store.load_fingerprints
    strays = [r for r in TRAFFIC[LATE:] if partition_of(r[0], 2) != partition_of(r[0], 3)]

    async def meanwhile(*arguments: Any) -> Any:
        group.store.load_fingerprints = copy  # type: ignore[method-assign]
        group.send(strays, OLD)
        return await copy(*arguments)

    group.store.load_fingerprints = meanwhile  # type: ignore[assignment, method-assign]
    with pytest.raises(Unmovable, match=f"just written {len(strays)} records"):
        await group.reshard(counts)
    group.counts = dict(OLD)
    await group.reshard(counts)

    group.send([r for r in TRAFFIC[LATE:] if r not in strays])
    await group.read()
    assert await group.shown() == await expected()


@pytest.mark.parametrize(
    ("counts", "words"), [({"new": 3}, "no longer exists"), ({"events": 1}, "recreated")]
)
async def test_topics_that_are_gone_are_refused(counts: dict[str, int], words: str) -> None:
    """Nobody can tell any more whether they were read to their end."""
    group = await halfway(counts, behind=False)
    logs = ScriptedLogs(group, counts)
    logs.gone = "events" not in counts
    shared = replace(group.options, identity=replace(IDENTITY, partition_counts=counts))
    work = Reshard(group.store, logs, shared, group.letters, print, lambda _: None)

    with pytest.raises(Unmovable, match=words):
        await work.run(b"mark", {"crc32": partition_of}, catch_up=True)


async def test_stubs_of_expired_conversations_are_not_multiplied() -> None:
    """Nobody knows to which partition they belong; they would take room on each."""
    group = Group(dict(OLD))
    group.send(TRAFFIC[:HALF])
    await group.read()
    await group.expire(-1)
    stubs = [await group.store.count(number) for number in await group.store.partitions()]
    assert sum(stubs) > 0
    before = await group.shown()

    await group.reshard({"events": 48})

    assert [await group.store.count(n) for n in await group.store.partitions()] == [0] * 48
    assert await group.shown() == before


async def test_the_partitioner_in_use_is_found() -> None:
    """It is the one that puts every conversation where it is."""
    store = await filled(a=1, b=1)
    stored = await stored_state(store)

    found = await partitioner_in_use(store, stored, 3, {"first": first, "last": elsewhere})

    assert found == InUse("last", 0)


async def test_a_partitioner_is_not_guessed() -> None:
    """On one partition every partitioner explains where conversations lie: it has to be named, and
    nothing has changed."""
    group = Group({"events": 1})
    group.send(TRAFFIC[:HALF])
    await group.read()
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"murmur2, crc32, fnv1a would all put .* --partitioner"):
        await group.reshard({"events": 3}, partitioners=PARTITIONERS)

    assert await group.store.held_by() is None
    assert await group.shown() == before


async def test_one_partition_needs_no_partitioner() -> None:
    """To one new partition all put everything."""
    group = Group({"events": 1})
    group.send(TRAFFIC[:HALF])
    await group.read()

    await group.reshard({"events-2": 1}, partitioners=PARTITIONERS)

    assert group.counts == {"events-2": 1}


async def test_producers_of_several_minds_are_refused() -> None:
    """If no partitioner explains where conversations lie, it says how many each does not."""
    store = await filled(a=0, b=1, c=1)
    stored = await stored_state(store)

    with pytest.raises(Unmovable, match=r"of 3 conversations, .* first 2, last 1"):
        await partitioner_in_use(store, stored, 3, {"first": first, "last": elsewhere})


STORED = Stored(
    replace(IDENTITY, partition_counts={"events": 2}),
    {0: {"events": Position(5)}, 1: {"events": Position(7)}},
)


def test_what_is_unread_is_counted() -> None:
    """By place; a place that is read to its end is left out."""
    logs = {("events", 0): Extent(0, 5), ("events", 1): Extent(3, 10)}

    assert unread(STORED, logs) == {("events", 1): 3}


async def gapped(log: Extent) -> Group:
    """A topic that got partitions, of which one log does not hold what the state needs."""
    group = Group({"events": 4})
    group.send(searches(1))
    await group.read()
    group.send(searches(2), {"events": 6})
    place = ("events", 1)
    group.firsts[place], group.logs[place] = log.first, group.logs[place][: log.end]
    return group


GAPS = pytest.mark.parametrize("log", [Extent(5, 99), Extent(0, 1)], ids=["deleted", "made anew"])


@GAPS
async def test_a_gap_is_refused_with_two_ways_out(log: Extent) -> None:
    """Workers could not judge it, since none starts with other counts: to go on, or a new group."""
    group = await gapped(log)
    before = await group.shown()

    with pytest.raises(
        Unmovable, match=r"^partition 1: events .*on_offset_gap continue.*kafka.group_id"
    ):
        await group.reshard({"events": 6})

    assert await group.store.held_by() is None
    assert await group.shown() == before


@GAPS
async def test_a_gap_is_passed_over_where_that_is_the_policy(log: Extent) -> None:
    """Rows are those without the records that are gone, and it says so."""
    group = await gapped(log)
    behind = (await group.store.describe(1)).positions["events"].offset
    gone = {r.value for r in group.logs["events", 1][behind : log.first]}
    whole = Group({"events": 6})
    whole.send(searches(1))
    await whole.read()
    lying = {record.value for log in group.logs.values() for record in log}
    whole.send([record for record in searches(2) if record[1] in lying - gone])
    await whole.read()

    said = await group.reshard({"events": 6}, policy="continue")

    assert any(line.startswith("offset gap, passed over: partition 1: events") for line in said)
    await group.read()
    assert await group.shown() == await whole.shown()


def test_a_new_topic_is_read_from_its_start() -> None:
    """A topic that stays keeps its positions; all else begins where its log does."""
    target = replace(IDENTITY, partition_counts={"events": 3, "labels": 3})
    logs = {(topic, n): Extent(n, 9) for topic in target.partition_counts for n in range(3)}

    move = resharding(STORED, target, logs, first)

    offsets = {
        number: {topic: p.offset for topic, p in start.items() if topic != FORMER}
        for number, start in move.starts.items()
    }
    assert offsets == {
        0: {"events": 5, "labels": 0},
        1: {"events": 7, "labels": 1},
        2: {"events": 2, "labels": 2},
    }


def test_where_an_earlier_count_ended_is_noted() -> None:
    """By topic that stays: its ends as they are if it grows, else what was noted before."""
    grown = replace(STORED.identity, outgrown={"events": (1,), "gone": (2,)})
    logs = {("events", n): Extent(0, 9 + n) for n in range(3)}

    more = outgrown(grown, {"events": 3, "new": 3}, logs)
    same = outgrown(grown, {"events": 2, "new": 2}, logs)

    assert (more, same) == ({"events": (9, 10)}, {"events": (1,)})


def test_new_logs_that_hold_something_of_an_earlier_count_are_noted_as_well() -> None:
    """By their ends; nothing of those before them is withheld."""
    logs = {("new", n): Extent(0, 9 + n) for n in range(4)}

    found = outgrown(STORED.identity, {"new": 4}, logs, [("new", 2), ("new", 0)])

    assert found == {"new": (9, 0, 11)}


def test_times_do_not_go_back() -> None:
    """Each new partition knows up to when all the old ones had read."""
    held = {
        0: {"events": Position(5, record_time_ms=20, event_time_us=30)},
        1: {"events": Position(7, record_time_ms=25, event_time_us=10)},
    }
    target = replace(IDENTITY, partition_counts={"other": 2})

    move = resharding(
        replace(STORED, positions=held), target, {("other", n): Extent(0, 0) for n in (0, 1)}, first
    )

    times = [(s[FORMER].record_time_ms, s[FORMER].event_time_us) for s in move.starts.values()]
    assert times == [(25, 30)] * 2


# -- records that lie astray

NAMES = [f"c-{number}" for number in range(20)]


def searches(turn: int) -> list[KeyedRecord]:
    """One of each of some conversations."""
    return [search(name, turn, NOON_S + 100 * turn + n, "a") for n, name in enumerate(NAMES)]


async def astray(*records: KeyedRecord, at: int, topic: str = "events", count: int = 4) -> Astray:
    """What is told of records on one partition of four, of which all are looked at."""
    places = [(topic, number) for number in range(4)]

    async def found() -> AsyncIterator[Record]:
        for key, value, stamp in records:
            yield Record(value, key, stamp, topic, at)

    counts = {"events": count}
    return await find_astray(found(), places, counts, PARTITIONERS["crc32"], Limits())


def keyed(now: int, before: int) -> KeyedRecord:
    """A search whose key four partitions put on one number, and three on another."""
    crc32 = PARTITIONERS["crc32"]
    keys = (b"k-%d" % number for number in range(100))
    key = next(key for key in keys if (crc32(key, 4), crc32(key, 3)) == (now, before))
    return search(key.decode(), 1, NOON_S, "a")


RECORD = keyed(now=2, before=1)
FORGOTTEN: KeyedRecord = (RECORD[0], FORGET % RECORD[0], 1000 * NOON_S)


async def test_a_record_is_at_home_where_the_new_count_puts_its_key() -> None:
    """Somebody will look for it there."""
    assert await astray(RECORD, at=2) == Astray()


async def test_a_record_that_an_earlier_count_has_put_there_is_astray() -> None:
    """It can be told where it belongs, by its partitioner."""
    assert await astray(RECORD, at=1) == Astray(Counter({("events", 1): 1}))


async def test_a_record_that_no_count_has_put_there_is_alien() -> None:
    """Another partitioner has, and nobody knows what that will do next."""
    places = Counter({("events", 3): 1})
    assert await astray(RECORD, at=3) == Astray(places, places)


async def test_all_of_a_topic_that_is_read_no_more_is_astray() -> None:
    """Whatever the record is."""
    found = await astray(RECORD, (b"k", b"", None), at=0, topic="former")

    assert found == Astray(Counter({("former", 0): 2}))


async def test_a_record_that_is_set_aside_is_at_home_anywhere() -> None:
    """It becomes a dead letter on whatever partition it lies."""
    assert await astray((RECORD[0], b"{", None), at=1) == Astray()


async def test_a_forget_that_has_not_come_to_its_keys_partition_is_astray() -> None:
    """As on a topic that had fewer partitions when it was written to each of them."""
    assert await astray(FORGOTTEN, at=1) == Astray(Counter({("events", 1): 1}))
    assert await astray(FORGOTTEN, at=2) == Astray()


async def test_the_row_of_a_piece_that_adds_nothing_is_not_the_last() -> None:
    """A producer sends a search again, by the new count already: its row comes behind the whole."""
    numbers = {
        name: (partition_of(name.encode(), 3), partition_of(name.encode(), 4)) for name in NAMES
    }
    name = next(name for name, (before, after) in numbers.items() if before != after < 3)
    found, labelled = search(name, 1, NOON_S, "a"), labels(name, 2, NOON_S, "1-0")
    group = Group({"events": 3}, topic=MemoryTopic())
    group.send([found, labelled])
    await group.read()
    group.send([found], {"events": 4})
    await group.read()
    assert not await whole(group)

    await group.reshard({"events": 4})

    assert await whole(group)


async def raised_twice() -> Group:
    """A topic that had four partitions, then six, then eight; nobody has read since the first."""
    group = Group({"events": 4})
    group.send(searches(1))
    await group.read()
    for place in [("events", number) for number in (4, 5)]:
        log = group.logs.setdefault(place, [])
        for key, value, stamp in searches(2):
            if partition_of(key, 6) == place[1]:
                log.append(Record(value, key, stamp, *place, len(log)))
    return group


async def test_records_that_a_count_in_between_put_on_new_partitions_are_refused() -> None:
    """Without --catch-up they would be read where their conversations are not."""
    group = await raised_twice()
    before = await group.shown()

    with pytest.raises(Unmovable, match=r"new partitions .* \(events/[45]: \d.*--catch-up"):
        await group.reshard({"events": 8}, catch_up=False)

    assert await group.store.held_by() is None
    assert await group.shown() == before


async def test_records_that_were_taken_along_from_a_new_partition_are_not_read_again() -> None:
    """Its end is noted like those of partitions that an earlier count had."""
    group = await raised_twice()

    await group.reshard({"events": 8})

    identity = (await group.store.describe(0)).identity
    assert identity is not None
    ends = tuple(len(group.logs.get(("events", number), [])) for number in range(6))
    assert identity.outgrown == {"events": ends}


async def test_a_forget_of_before_a_new_topic_grew_reaches_every_partition() -> None:
    """It lies where the topic had partitions by then, and erases what is on others now."""
    group = Group({"events": 4})
    group.send(searches(1))
    await group.read()
    lone = next(name.encode() for name in NAMES if partition_of(name.encode(), 6) == 5)
    forget = FORGET.replace(b"12:00:01", b"13:00:00") % lone
    group.send([(lone, forget, 1000 * NOON_S)], {"new": 3})

    await group.reshard({"new": 6})
    await group.read()

    assert len((await group.export()).rows) == len(NAMES) - 1


@pytest.mark.parametrize("catch_up", [False, True])
async def test_producers_of_new_topics_that_hash_otherwise_are_refused(catch_up: bool) -> None:
    """No conversation's next record would come to where its state is taken."""
    group = Group({"events": 4})
    group.send(searches(1))
    await group.read()
    for key, value, stamp in searches(2):
        place = ("new", PARTITIONERS["murmur2"](key, 6))
        log = group.logs.setdefault(place, [])
        log.append(Record(value, key, stamp, *place, len(log)))

    with pytest.raises(
        Unmovable, match=r"not put their key under any partition count \(new/.*repartition_topic"
    ):
        await group.reshard({"new": 6}, catch_up=catch_up)


async def test_counts_in_between_may_need_the_partitioners_name() -> None:
    """Where workers read on while partitions were added twice, the refusal says how to go on."""
    group = Group({"events": 4})
    for turn, seen in enumerate((4, 5, 6), 1):
        group.send(searches(turn), {"events": seen})
        await group.read()

    with pytest.raises(
        Unmovable, match="counts in between, name the producers' partitioner with --partitioner"
    ):
        await group.reshard({"events": 6}, partitioners=PARTITIONERS)
    await group.reshard({"events": 6}, partitioners={"crc32": PARTITIONERS["crc32"]})

    assert len((await group.export()).rows) == len(NAMES)


async def test_an_empty_namespace_is_refused() -> None:
    """There is nothing to move; the workers may simply start."""
    with pytest.raises(Unmovable, match="has no state"):
        await stored_state(MemoryStore())


async def test_a_wipe_that_is_not_done_is_refused() -> None:
    """What is left of it is no state."""
    store = await filled(a=0)
    await store.wipe(0)

    with pytest.raises(Unmovable, match=r"wiping of the state partitions .* was interrupted"):
        await stored_state(store)


async def test_partitions_of_different_settings_are_refused() -> None:
    """No command leaves such; some were restored or copied, and reading again is a way out."""
    store = await filled(a=0)
    await store.claim(2, b"x", replace(IDENTITY, fingerprint="other"), {})

    with pytest.raises(Unmovable, match="stream-metrics rebuild"):
        await stored_state(store)


async def test_a_refusal_lets_the_namespace_go() -> None:
    """Workers may start again, with all as it was."""
    store = await filled(a=0)

    async def refused() -> None:
        async with holding(store, "reshard") as mark:
            await store.drafts(mark).claim(0, mark, IDENTITY, {})
            raise Unmovable("for some reason")

    with pytest.raises(Unmovable):
        await refused()

    assert await store.held_by() is None
    assert await store.drafts(b"x").partitions() == []
    assert await store.count(0) == 1


@pytest.mark.parametrize(
    ("error", "left"),
    [(DamagedState("x"), None), (ValueError("x"), None), (StoreUnavailable("x"), "reshard")],
    ids=["damaged", "another", "outage"],
)
async def test_only_an_outage_of_the_store_leaves_the_hold(
    error: Exception, left: str | None
) -> None:
    """After any other error workers may start again, with all as it was."""
    store = await filled(a=0)

    async def broken() -> None:
        async with holding(store, "reshard") as mark:
            await store.drafts(mark).claim(0, mark, IDENTITY, {})
            raise error

    with pytest.raises(type(error)):
        await broken()

    assert await store.held_by() == left
    assert await store.count(0) == 1


@pytest.mark.parametrize("prefix", [b"c", b"e"], ids=["header", "event"])
async def test_a_damaged_conversation_is_named(prefix: bytes) -> None:
    """By its id, or by its key where the id cannot be read; and workers may start again."""
    group = Group({"events": 2})
    group.send([search("c", 1, NOON_S, "a")])
    await group.read()
    number, key = partition_of(b"c", 2), conversation_key("c")
    [parts] = await group.store.load(number, [(key, False)])
    [field] = [field for field in parts.hot if field.startswith(prefix)]
    write = ConversationWrite(key, {field: b"damaged"})
    batch = BatchWrite(number, b"token", b"more", {}, {}, [write])
    assert await group.store.write(batch) == Written()
    name = "'c'" if prefix == b"e" else urlsafe_b64encode(key).decode().rstrip("=")

    with pytest.raises(DamagedState, match=f"conversation .*{name}"):
        await group.reshard({"events-2": 3})

    assert await group.store.held_by() is None


def test_repartitioning_in_the_same_group_is_told_of_a_new_one() -> None:
    """State that was built from the inputs does not fit the internal topic, nor the other way."""
    internal = replace(IDENTITY, partition_counts={"internal": 2})

    for stored, ours in ((IDENTITY, internal), (internal, IDENTITY)):
        with pytest.raises(OtherIdentity, match=r"choose another kafka\.group_id"):
            check_identity(stored, ours, 0)


def test_the_halt_names_the_command() -> None:
    """A worker that finds other partition counts says what moves the state to them."""
    more = replace(IDENTITY, partition_counts={"events": 9})

    with pytest.raises(OtherIdentity, match="run `stream-metrics reshard`"):
        check_identity(IDENTITY, more, 0)


# -- large conversations


async def test_a_conversation_may_be_larger_than_a_call() -> None:
    """It is written in pieces, and arrives whole."""
    group = Group({"events": 1})
    key, value, stamp = search("c", 1, NOON_S, "a")
    group.send([(key, value, stamp)])
    await group.read()
    big = {b"e" + n.to_bytes(16, "big"): bytes(100_000) for n in range(30)}
    extra = {b"x%d" % n: b"%d" % n for n in range(3_000)}
    write = ConversationWrite(conversation_key("c"), {}, {**big, **extra})
    assert await group.store.write(BatchWrite(0, b"token", b"more", {}, {}, [write])) == Written()
    [before] = await group.store.load(0, [(conversation_key("c"), True)])

    await group.reshard({"events-2": 2})

    number = partition_of(b"c", 2)
    [after] = await group.store.load(number, [(conversation_key("c"), True)])
    assert after == before


# -- partitioners


def test_murmur2_is_that_of_kafkas_own_producer() -> None:
    """The same as where generated traffic goes."""
    keys = [b"c-%d" % n for n in range(100)]

    assert [PARTITIONERS["murmur2"](k, 7) for k in keys] == [partition_for(k, 7) for k in keys]


@pytest.mark.parametrize(
    ("name", "key", "number"),
    [
        ("crc32", b"123456789", 0xCBF43926),  # the check value of CRC-32
        ("fnv1a", b"", 0x100000000 - 0x811C9DC5),
        ("fnv1a", b"a", 0x100000000 - 0xE40C292C),
        ("fnv1a", b"foobar", 0x100000000 - 0xBF9CF968),
    ],
)
def test_hashes_are_the_published_ones(name: str, key: bytes, number: int) -> None:
    """Test vectors of the hash functions, as signed numbers without their sign for FNV."""
    assert PARTITIONERS[name](key, 1 << 40) == number
