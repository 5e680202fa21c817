"""Expiry, the cache, early exports and bugs in a state partition."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.conversation_cells import conversation_cells
from stream_metrics.core.engine.state import Cell, Conversation
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import MAX_TIMESTAMP_MS, Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import BatchWrite, ConversationKey, StoredConversation, WriteResult
from stream_metrics.live.readers.export import Export, NowTooEarly, export_state
from stream_metrics.live.worker.batches import (
    CALL_ARGUMENTS,
    CALL_BYTES,
    HARD_CAP_BYTES,
    BatchSizer,
    estimate,
)
from stream_metrics.live.worker.cache import CONVERSATION_WEIGHT, ConversationCache
from stream_metrics.live.worker.conversations import FAR_AHEAD_MS
from stream_metrics.live.worker.options import conversation_key
from stream_metrics.live.worker.partition import (
    EXPIRY_LOAD_SIZE,
    EXPIRY_PAGE_SIZE,
    PartitionLost,
    StatePartition,
)
from stream_metrics.live.worker.telemetry import NoTelemetry
from tests.faulty import Bug, BuggyDeduplicators
from tests.property.test_partition import TOPIC, once, opened, options

NOON_S = 1_718_020_800
DAY_MS = 86_400_000


def search(conversation: str, number: int, at_s: int, *docs: str) -> tuple[bytes, bytes, int]:
    """A search iteration of one search that returned these documents."""
    results = [{"result_id": f"{number}-{n}", "doc_id": doc} for n, doc in enumerate(docs)]
    event = {
        "type": "search_iteration",
        "event_id": f"e-{number}",
        "occurred_at": at_s,
        "conversation_id": conversation,
        "turn": 1,
        "iteration": number,
        "searches": [{"search_id": f"s-{number}", "results": results}],
    }
    return conversation.encode(), json.dumps(event).encode(), at_s * 1000


def labels(conversation: str, number: int, at_s: int, *result_ids: str) -> tuple[bytes, bytes, int]:
    """A label of each of these results."""
    event = {
        "type": "relevance_labels",
        "event_id": f"e-{number}",
        "occurred_at": at_s,
        "conversation_id": conversation,
        "turn": 1,
        "labels": [{"result_id": result_id, "gain": 2} for result_id in result_ids],
    }
    return conversation.encode(), json.dumps(event).encode(), at_s * 1000


class Fed:
    """A state partition over a memory store, with a method that processes records."""

    def __init__(self, store: MemoryStore, letters: MemoryDeadLetters, state: StatePartition):
        self.store, self.letters, self.state = store, letters, state

    @classmethod
    async def new(cls, cache_results: int = 1_000, **changes: Any) -> Fed:
        """An empty partition."""
        store, letters = MemoryStore(), MemoryDeadLetters()
        return cls(store, letters, await opened(store, letters, cache_results, **changes))

    async def take(self, *sent: tuple[bytes, bytes, int]) -> None:
        """Process records as one batch."""
        first = self.state.positions[TOPIC].offset
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(sent)]
        await self.state.process(records, once)

    async def export(self) -> Export:
        """The state in the store."""
        return await export_state(self.store, EngineConfig(), DEFAULT_WINDOWS, "last")


async def test_a_conversation_expires_in_record_time() -> None:
    """It expires once a record is later by more than the time to live; windows are unchanged."""
    fed = await Fed.new()
    await fed.take(search("old", 1, NOON_S, "a", "a"), search("new", 1, NOON_S + 60, "b"))
    before = (await fed.export()).windows_document(None)

    assert await fed.state.expire(NOON_S * 1000 + DAY_MS, once) == 0
    assert await fed.state.expire(NOON_S * 1000 + DAY_MS + 1, once) == 1

    export = await fed.export()
    assert [row["conversation_id"] for row in export.rows] == ["new"]
    assert export.windows_document(None) == before


async def test_a_timestamp_of_the_far_future_keeps_no_conversation_for_ever() -> None:
    """It expires a week later than others of its time."""
    now_ms = NOON_S * 1000
    fed = await Fed.new(now_ms=lambda: now_ms)
    key, value, _ = search("future", 1, NOON_S, "a")
    await fed.take((key, value, MAX_TIMESTAMP_MS))
    goes_ms = now_ms + FAR_AHEAD_MS + DAY_MS

    assert await fed.state.expire(goes_ms, once) == 0
    assert await fed.state.expire(goes_ms + 1, once) == 1


async def test_a_slow_clock_expires_no_conversation_early() -> None:
    """The later of two clocks decides which timestamps are too far ahead of it."""
    fed = await Fed.new(now_ms=lambda: 0, latest_ms=lambda: (NOON_S - 60) * 1000)
    await fed.take(search("c", 1, NOON_S, "a"))

    assert await fed.state.expire(NOON_S * 1000 + DAY_MS, once) == 0


async def test_a_record_without_a_timestamp_counts_as_now() -> None:
    """Its conversation lives as long as any other that is written now."""
    now_ms = NOON_S * 1000
    fed = await Fed.new(now_ms=lambda: now_ms)
    key, value, _ = search("bare", 1, NOON_S, "a")
    await fed.take((key, value, -1))

    assert await fed.state.expire(now_ms + DAY_MS, once) == 0
    assert await fed.state.expire(now_ms + DAY_MS + 1, once) == 1


async def test_an_expired_conversation_starts_again_empty() -> None:
    """Later events of the conversation are not compared with the expired ones."""
    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a"))
    await fed.state.expire(NOON_S * 1000 + DAY_MS + 1, once)

    await fed.take(search("c", 2, NOON_S + 90_000, "a"))

    row = (await fed.export()).rows[0]
    assert (row["n"], row["duplicates"]) == (1, 0)


class Counted(NoTelemetry):
    """Telemetry that sums the counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def observe(self, observations: Observations) -> None:
        """Add the counts of one batch."""
        self.counts += observations.counts


async def test_events_of_an_expired_conversation_are_counted() -> None:
    """A stub identifies them for one more time to live, and then expires as well."""
    telemetry = Counted()
    fed = await Fed.new(telemetry=telemetry)
    horizon = NOON_S * 1000 + DAY_MS + 1
    await fed.take(search("c", 1, NOON_S, "a"), search("d", 1, NOON_S, "a"))
    await fed.state.expire(horizon, once)
    assert await fed.state.expire(horizon + DAY_MS, once) == 0

    await fed.take(search("c", 2, NOON_S + 90_000, "a"), search("new", 2, NOON_S + 90_000, "a"))
    await fed.take(search("c", 3, NOON_S + 90_000, "a"))

    assert telemetry.counts["expired"] == 1
    assert await fed.state.expire(horizon + DAY_MS + 1, once) == 1
    assert {row["conversation_id"] for row in (await fed.export()).rows} == {"c", "new"}
    assert (await fed.store.describe(0)).conversations == 2


@pytest.mark.slow
async def test_expiry_keeps_up_with_new_conversations() -> None:
    """A step is bounded, but deletes more conversations than the last batch began."""
    fed = await Fed.new(cache_results=0, ttl_ms=60_000, batch_records=900)
    held = []
    for minute in range(12):
        at = NOON_S + 60 * minute
        names = [f"{minute}.{n}" for n in range(2 * EXPIRY_PAGE_SIZE)]
        await fed.take(*(search(name, 1, at, "a") for name in names))
        await fed.state.expire(at * 1000, once)
        held.append((await fed.store.describe(0)).conversations)

    conversations = stubs = 4 * EXPIRY_PAGE_SIZE  # of this minute, and of the one before
    assert held[4:] == [conversations + stubs] * 8


async def test_records_processed_twice_count_once_for_expiry() -> None:
    """Records that did not fit into a call make no step of expiry longer."""
    store, letters = Watching(), MemoryDeadLetters()
    fed = Fed(store, letters, await opened(store, letters, 0, ttl_ms=60_000))
    await fed.take(*(search(f"old{n}", 1, NOON_S, "a") for n in range(5 * EXPIRY_PAGE_SIZE)))
    docs = [f"{n:040}" for n in range(400)]
    store.loads = []
    await fed.take(*(search(f"c{n}", 1, NOON_S + 90, *docs) for n in range(EXPIRY_PAGE_SIZE // 2)))
    assert sum(store.loads) > EXPIRY_PAGE_SIZE // 2

    assert await fed.state.expire((NOON_S + 90) * 1000, once) == 2 * EXPIRY_PAGE_SIZE


@pytest.mark.slow
async def test_a_record_with_too_much_state_becomes_a_dead_letter() -> None:
    """A record whose state exceeds the cap is a dead letter. One whose state only exceeds what
    calls usually carry is written."""
    many = 1 << 20
    limits = Limits(record_bytes=1 << 28, labels_per_event=many, waiting_labels=many)
    store, letters = Watching(), MemoryDeadLetters()
    engine = EngineConfig(limits=limits)
    fed = Fed(store, letters, await opened(store, letters, 1_000, engine=engine))
    longest = [f"{n:0128}" for n in range(HARD_CAP_BYTES // 128)]

    await fed.take(
        labels("a", 1, NOON_S, *longest),
        labels("b", 1, NOON_S, *longest[: 2 * CALL_BYTES // 128]),
    )

    assert [conversation_key("b")] == await fed.store.by_age(0, 0, (NOON_S + 1) * 1000, 9)
    assert CALL_BYTES < store.sizes[-1][0] <= HARD_CAP_BYTES
    assert [letter.reason for letter in fed.letters.letters] == ["over_limit"]
    assert fed.state.positions[TOPIC].offset == 2


async def test_expiry_of_many_conversations_takes_several_steps() -> None:
    """They are deleted in steps, each of which reports whether there is more."""
    fed = await Fed.new()
    await fed.take(*(search(f"c{n}", 1, NOON_S, "a") for n in range(2 * EXPIRY_PAGE_SIZE + 10)))
    await fed.take()
    horizon = NOON_S * 1000 + DAY_MS + 1

    steps: list[int] = []
    while not steps or fed.state.overdue:
        steps.append(await fed.state.expire(horizon, once))

    assert steps == [EXPIRY_PAGE_SIZE, EXPIRY_PAGE_SIZE, 10]


class Watching(MemoryStore):
    """A store that records how many conversations each load reads, and the size of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[int] = []
        self.sizes: list[tuple[int, int]] = []

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """Record the number of conversations."""
        self.loads.append(len(keys))
        return await super().load(partition, keys, hot=hot)

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Record the size."""
        self.sizes.append(estimate(batch))
        return await super().write(batch)


async def test_records_beyond_one_call_are_processed_once() -> None:
    """The size of the first calls determines how many records the next one takes."""
    store, letters = Watching(), MemoryDeadLetters()
    fed = Fed(store, letters, await opened(store, letters, 1_000, batch_records=100))
    docs = [f"{n:040}" for n in range(400)]
    of_searches: list[tuple[int, int]] = []
    for half in "abc":
        store.loads, store.sizes = [], []
        await fed.take(*(search(f"{half}{n}", 1, NOON_S, *docs) for n in range(100)))
        of_searches = list(store.sizes)
        await fed.take(*(labels(f"{half}{n}", 2, NOON_S, "1-0") for n in range(100)))

    assert sum(store.loads) == 200  # the cache holds none of them
    assert all(size <= CALL_BYTES for size, _ in store.sizes)
    assert all(size > CALL_BYTES / 2 for size, _ in of_searches[:-1])


@given(st.integers(2, 900), st.floats(1, 100, exclude_min=True))
def test_a_batch_that_no_call_holds_is_split(records: int, filled: float) -> None:
    """The next batch takes fewer records, so that the partition makes progress."""
    sizer = BatchSizer()
    sizer.note(records, filled)

    assert 1 <= sizer.records < max(records, 2)


def test_a_batch_grows_up_to_the_arguments_of_a_call() -> None:
    """Small and fast batches grow step by step, and stay below the limit."""
    sizer = BatchSizer()
    taken = [sizer.records]
    for _ in range(2_000):
        sizer.note(1, 0.01)
        taken.append(sizer.records)

    assert taken == sorted(taken)
    assert taken[0] < 400 < taken[-1] < CALL_ARGUMENTS


@pytest.mark.slow
async def test_large_conversations_expire_in_smaller_steps() -> None:
    """A step reads at most about the size of a call, so it takes fewer large conversations."""
    store, letters = Watching(), MemoryDeadLetters()
    fed = Fed(store, letters, await opened(store, letters, 0))
    docs = [f"{n:0120}" for n in range(2_000)]
    for n in range(5 * EXPIRY_LOAD_SIZE):
        await fed.take(search(f"c{n}", 1, NOON_S, *docs))
    store.loads, store.sizes = [], []

    assert await fed.state.expire(NOON_S * 1000 + DAY_MS + 1, once) == 5 * EXPIRY_LOAD_SIZE

    assert store.loads == [EXPIRY_LOAD_SIZE] * 5
    assert len(store.sizes) == 2


async def test_writes_of_expiry_fit_into_one_call() -> None:
    """Conversations with sums in many buckets are deleted in several calls."""
    store, letters = Watching(), MemoryDeadLetters()
    fed = Fed(store, letters, await opened(store, letters, 0, ttl_ms=60_000))
    for n in range(EXPIRY_PAGE_SIZE):
        sent = [search(f"c{n}", 1 + i, NOON_S + (7 * n + 4 * i) % 60, "a") for i in range(15)]
        agent = b'{"agent": "a%d", ' % (n % 50)
        await fed.take(*((key, agent + value[1:], at_ms) for key, value, at_ms in sent))
    store.sizes = []

    assert await fed.state.expire(NOON_S * 1000 + 120_000, once) == EXPIRY_PAGE_SIZE

    assert len(store.sizes) > 1
    assert max(size for size, _ in store.sizes) <= CALL_BYTES
    assert max(arguments for _, arguments in store.sizes) <= CALL_ARGUMENTS


async def test_an_evicted_conversation_is_loaded_again() -> None:
    """It continues with its state in the store."""
    fed = await Fed.new(cache_results=0)
    await fed.take(search("c", 1, NOON_S, "a", "b"))
    await fed.take(search("c", 2, NOON_S + 1, "b", "c"))

    row = (await fed.export()).rows[0]
    assert (row["results"], row["unique"], row["duplicates_of"]) == (4, 3, {"2-0": "1-1"})


async def test_a_conversation_keeps_its_digest_key() -> None:
    """Its results are still recognized after the digest key was changed."""
    fed = await Fed.new(cache_results=0)
    await fed.take(search("c", 1, NOON_S, "a", "b"))
    both = options().keys | {"new": b"a new key"}
    state = await opened(fed.store, fed.letters, 0, keys=both, key_id="new")
    later = Fed(fed.store, fed.letters, state)
    await later.take(search("c", 2, NOON_S + 1, "b", "c"), search("d", 1, NOON_S, "b"))

    rows = {row["conversation_id"]: row for row in (await later.export()).rows}
    assert rows["c"]["duplicates_of"] == {"2-0": "1-1"}
    assert rows["d"]["unique"] == 1


def test_the_cache_evicts_the_least_recently_used_conversation() -> None:
    """The size of the cache is the number of results in it."""
    cache = ConversationCache(max_results=2 * CONVERSATION_WEIGHT)
    for name in ("a", "b"):
        cache.put(0, name.encode(), Conversation(name))
    cache.get(0, b"a")
    cache.put(0, b"c", Conversation("c"))

    assert [cache.get(0, name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]
    assert cache.results == 2 * CONVERSATION_WEIGHT


async def test_an_export_of_the_past_is_refused() -> None:
    """The error names the window whose buckets are deleted."""
    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a"), search("c", 2, NOON_S + 600, "b"))
    export = await fed.export()

    assert export.windows_document((NOON_S + 600) * 10**6)["sums"]
    with pytest.raises(NowTooEarly, match="1m"):
        export.windows_document((NOON_S + 500) * 10**6)


async def test_a_bug_rejects_one_event() -> None:
    """An event that the step fails on is a dead letter; its conversation stays as it was."""
    await assert_rejected(Bug(ZeroDivisionError, at_search=lambda results: results == 3))


async def test_a_bug_in_encoding_rejects_one_event() -> None:
    """The event whose conversation cannot be written is a dead letter, and all others count."""
    await assert_rejected(Bug(ZeroDivisionError, at_pack=lambda results: results == 3))


async def assert_rejected(bug: Bug) -> None:
    """Of a conversation's two events of a batch, only the one with three results is rejected."""
    fed = await Fed.new(dedups=BuggyDeduplicators(b"secret", bug))
    await fed.take(search("c", 1, NOON_S, "a"))

    await fed.take(
        search("c", 2, NOON_S + 1, "a", "c", "d"),
        search("c", 3, NOON_S + 2, "a", "b"),
        search("d", 1, NOON_S + 2, "a"),
    )

    rows = (await fed.export()).rows
    assert [(row["conversation_id"], row["results"], row["duplicates"]) for row in rows] == [
        ("c", 3, 1),
        ("d", 1, 0),
    ]
    assert [(letter.reason, letter.record.offset) for letter in fed.letters.letters] == [
        ("internal_error", 1)
    ]


async def test_a_bug_leaves_no_trace_in_the_store() -> None:
    """A conversation all of whose events are rejected is not stored."""
    bug = Bug(ZeroDivisionError, at_search=lambda results: results == 3)
    fed = await Fed.new(dedups=BuggyDeduplicators(b"secret", bug))

    await fed.take(search("c", 1, NOON_S, "a", "b", "c"))

    assert (await fed.store.describe(0)).conversations == 0


async def test_a_conversation_that_cannot_be_loaded_stops_nobody() -> None:
    """Its events are dead letters, and what is stored of it remains; others are written."""
    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a", "b", "c"))
    bug = Bug(ZeroDivisionError, at_unpack=lambda results: results == 3)
    dedups = BuggyDeduplicators(b"secret", bug)
    fed.state = await opened(fed.store, fed.letters, 0, dedups=dedups)

    await fed.take(search("c", 2, NOON_S, "a"), search("d", 1, NOON_S, "a"))

    assert [letter.record.offset for letter in fed.letters.letters] == [1]
    rows = (await fed.export()).rows
    assert [(row["conversation_id"], row["results"]) for row in rows] == [("c", 3), ("d", 1)]


async def test_a_bug_costs_as_much_in_a_long_batch() -> None:
    """Each event of a conversation is applied once more, and not once for each other."""
    bug = Bug(ZeroDivisionError, at_search=lambda results: results == 3)
    fed = await Fed.new(dedups=BuggyDeduplicators(b"secret", bug), batch_records=900)
    sent = [search("c", n, NOON_S + n, "a", "b") for n in range(1, 60)]

    await fed.take(*sent, search("c", 60, NOON_S + 60, "a", "b", "c"))

    assert [letter.record.offset for letter in fed.letters.letters] == [59]
    assert bug.searches == 2 * 60


async def test_many_bugs_do_not_hold_up_the_worker() -> None:
    """Others, such as the member that sends heartbeats, have a turn after each."""
    fed = await Fed.new(dedups=BuggyDeduplicators(b"secret", Bug(KeyError, at_search=bool)))
    turns = 0

    async def beat() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    await fed.take(*(search("c", number, NOON_S, "a") for number in range(1, 10)))
    beating.cancel()

    assert turns >= 9


async def test_a_conversation_that_cannot_expire_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again after another ttl, and the others expire."""

    def failing(conversation: Conversation, engine: EngineConfig) -> list[Cell]:
        cells = conversation_cells(conversation, engine)
        if any(cell.sums.get("r") == 3 for cell in cells):
            raise ZeroDivisionError
        return cells

    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a", "b", "c"), search("d", 1, NOON_S, "a"))
    before = (await fed.export()).windows_document(None)
    monkeypatch.setattr("stream_metrics.live.worker.partition.conversation_cells", failing)
    horizon = NOON_S * 1000 + DAY_MS + 1

    assert [await fed.state.expire(horizon, once) for _ in range(2)] == [2, 0]
    monkeypatch.undo()

    export = await fed.export()
    assert [row["conversation_id"] for row in export.rows] == ["c"]
    assert export.windows_document(None) == before
    assert await fed.state.expire(horizon + DAY_MS + 1, once) == 2  # and a stub


class BuggyWindows:
    """Windows that a conversation with three results cannot be added to."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._windows, name)

    def changes(self, cells: Any, names: Any, record_time_us: int) -> Any:
        """Raise if the bug is in these cells."""
        if any(cell.sums.get("r") == 3 for _, cell in cells):
            raise ZeroDivisionError
        return self._windows.changes(cells, names, record_time_us)


async def test_a_bug_in_the_windows_rejects_one_event() -> None:
    """The batch is halved until the event is alone."""
    fed = await Fed.new()
    fed.state.windows = BuggyWindows(fed.state.windows)  # type: ignore[assignment]
    sent = [search(f"c{n}", 1, NOON_S, "a") for n in range(20)]

    await fed.take(*sent[:7], search("c", 1, NOON_S, "a", "b", "c"), *sent[7:])

    assert [(letter.reason, letter.record.offset) for letter in fed.letters.letters] == [
        ("internal_error", 7)
    ]
    sums = (await fed.export()).windows_document(NOON_S * 10**6)["sums"]
    assert {entry["value"] for entry in sums if entry["name"] == "results"} == {20}


@pytest.mark.parametrize("place", ["at_record", "at_search"])
async def test_a_lack_of_memory_rejects_no_event(place: str) -> None:
    """It says nothing about the record: the worker ends, and the next one reads it again."""
    bug = Bug(MemoryError, **{place: lambda _: True})
    fed = await Fed.new(dedups=BuggyDeduplicators(b"secret", bug))
    with pytest.raises(MemoryError):
        await fed.take(search("c", 1, NOON_S, "a"))

    assert fed.letters.letters == []
    assert (await fed.store.describe(0)).positions[TOPIC].offset == 0


async def test_partitions_share_the_memory_of_their_deduplicators() -> None:
    """A worker has one cache of recent results, and not one per partition."""
    shared, store, letters = options(), MemoryStore(), MemoryDeadLetters()
    one = await opened(store, letters, 0, dedups=shared.dedups)
    other = await opened(store, letters, 0, dedups=shared.dedups)

    assert one.conversations.dedup("k") is other.conversations.dedup("k")
    assert shared.dedups.of(shared.engine.rules, b"another key") is not one.conversations.dedup("k")


def test_conversation_keys_are_digests() -> None:
    """The name of the key contains nothing of the conversation's id."""
    assert len(conversation_key("x" * 128)) == 16
    assert b"secret" not in conversation_key("secret")


def test_windows_can_be_kept_by_release() -> None:
    """With `dimension` release, sums are by release; events without one have `none`."""
    engine = Replay(EngineConfig(dimension="release"))
    for number, release in ((1, "2024-06"), (2, None)):
        key, value, stamp = search("c", number, NOON_S + number, "a")
        event = {**json.loads(value), "release": release, "agent": "a"}
        engine.feed(Record(json.dumps(event).encode(), key, stamp))

    sums = engine.windows()["sums"]

    found = {(e["release"], e["value"]) for e in sums if e["name"] == "results"}
    assert found == {("2024-06", 1), ("none", 1)}
    assert not any("agent" in entry for entry in sums)


async def test_a_record_from_the_future_drops_no_bucket() -> None:
    """A timestamp ahead of the wall clock counts as now, so that no bucket is dropped."""
    fed = await Fed.new(now_ms=lambda: NOON_S * 1000 + 1_000)
    await fed.take(search("c", 1, NOON_S, "a"))
    await fed.take((b"c", b"junk", 4_102_444_800_000))

    assert fed.state.record_time_ms == NOON_S * 1000 + 1_000
    assert (await fed.export()).windows_document(NOON_S * 10**6)["sums"]


async def test_markers_change_only_the_offset() -> None:
    """Offsets without a record, such as those of markers, are stored, and nothing else changes."""
    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a"))
    before = fed.state.positions[TOPIC]

    await fed.state.advance({TOPIC: before.offset + 2}, once)

    assert fed.state.positions[TOPIC] == replace(before, offset=before.offset + 2)
    assert (await fed.store.describe(0)).positions == fed.state.positions


async def test_an_idle_partition_sends_heartbeats() -> None:
    """They record the owner and its lag, until another worker owns the partition."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    store.clock = lambda: 1_000
    state = await opened(store, letters, 1_000, worker="host:9464")
    await state.beat(once, None)
    first = await store.describe(0)
    store.clock = lambda: 6_000
    await state.beat(once, 700)
    second = await store.describe(0)
    await store.claim(0, b"another", {})
    await state.beat(once, 0)

    assert [(s.worker, s.beat_ms, s.behind_ms) for s in (first, second)] == [
        ("host:9464", 1_000, None),
        ("host:9464", 6_000, 700),
    ]
    assert (await store.describe(0)).worker == ""


@pytest.mark.parametrize("why", ["fenced", "moved"])
async def test_an_idle_partition_notices_changes_of_its_state(why: str) -> None:
    """It notices another owner and a restored older state without writing."""
    fed = await Fed.new()
    past = fed.store.snapshot()
    await fed.take(search("c", 1, NOON_S, "a"))
    await fed.state.check(once)
    if why == "fenced":
        await fed.store.claim(0, b"another", {})
    else:
        fed.store.restore(past)

    with pytest.raises(PartitionLost, match=why):
        await fed.state.check(once)
