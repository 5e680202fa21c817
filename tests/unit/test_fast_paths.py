"""The fast paths give exact results; each test catches a mutation of them."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.cells import scaled
from stream_metrics.core.engine.changes import Changes, Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, digest_event
from stream_metrics.core.engine.state import Cell, Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, parse_window
from stream_metrics.core.engine.window_sums import SumsAt, WindowSums
from stream_metrics.core.engine.windows import (
    MIN_DELETIONS,
    Names,
    Windows,
    oldest_bucket,
)
from stream_metrics.core.events.decode import Event, decode
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.export import export_state
from tests.faulty import Bug, BuggyDeduplicators
from tests.property.test_partition import TOPIC, once, opened, options

NOON_S = 1_718_020_800
SECOND = 1_000_000


class Fed:
    """A conversation to which events are applied, each in its own batch."""

    def __init__(self, **changes: Any) -> None:
        self.config = replace(EngineConfig(), **changes)
        self.dedup = deduplicator(self.config.rules, b"")
        self.step = Step(self.config, lambda _: self.dedup)
        self.conversation = Conversation("c")
        self.seen = Observations()
        self.cells: list[tuple[int, Cell]] = []
        self.number = 0

    def event(self, kind: str, **fields: Any) -> DigestedEvent:
        """A valid event, newer than all before it."""
        self.number += 1
        body = {"type": kind, "event_id": f"e{self.number:03}", "conversation_id": "c", "turn": 1,
                "occurred_at": NOON_S + self.number, **fields}  # fmt: skip
        event = decode(json.dumps(body).encode(), limits=self.config.limits)
        assert isinstance(event, Event)
        return digest_event(event, self.dedup, "", self.config.rules.tables)

    def take(self, *events: DigestedEvent) -> Changes:
        """Apply ``events`` as one batch, and return its changes."""
        changes = self.step.apply(self.conversation, events, self.seen)
        self.cells += changes.cells
        return changes

    def search(self, search_id: str, *docs: str, **fields: Any) -> DigestedEvent:
        """A search; its n-th result is ``search_id-n`` and has the n-th of ``docs``."""
        results = [
            {"result_id": f"{search_id}-{n}", "doc_id": doc} for n, doc in enumerate(docs, 1)
        ]
        extra = {k: fields.pop(k) for k in ("routing",) if k in fields}
        sent = {"search_id": search_id, "results": results, **extra}
        return self.event("search_iteration", **{"iteration": 1, **fields}, searches=[sent])

    def labels(self, **gains: int | None) -> DigestedEvent:
        """Labels by result id, with ``_`` for ``-``."""
        given = [{"result_id": r.replace("_", "-"), "gain": g} for r, g in gains.items()]
        return self.event("relevance_labels", labels=given)


NEAR_HALVES = st.builds(
    lambda n, towards: math.nextafter((n + 0.5) / 1e9, towards),
    st.integers(0, 10**12),
    st.sampled_from([-math.inf, math.inf]),
)


@given(
    st.floats(0, 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NEAR_HALVES
    | st.integers(-(2**40), 2**40).map(lambda n: n / 1024)
)
def test_billionths_are_correctly_rounded(value: float) -> None:
    """The result is nearest to the double's exact value, with ties to even."""
    assert scaled(value) == round(Fraction(value) * 10**9)


@pytest.mark.parametrize(("mode", "after"), [("first", 2), ("max", 4)])
def test_a_withdrawn_label_reveals_that_of_the_next_duplicate(mode: str, after: int) -> None:
    """Inheritance from duplicates applies again, in canonical order."""
    fed = Fed(gain_of_document=mode)
    fed.take(fed.search("s", "D", "D", "X", "D"))
    fed.take(fed.labels(s_1=3, s_2=2, s_4=4))
    fed.take(fed.labels(s_1=None))
    iteration = fed.conversation.turns[1].iterations[1]
    assert (iteration.gain, iteration.good, iteration.labelled) == (after, 1, 1)
    fed.take(fed.labels(s_2=None, s_4=None))
    assert (iteration.gain, iteration.good, iteration.labelled) == (0, 0, 0)


def test_a_repeated_result_id_is_counted() -> None:
    """In one search or in several, the first in canonical order has the handle."""
    fed = Fed()
    same = [{"result_id": "r"}, {"result_id": "r"}, {"result_id": "q"}]
    more = [{"result_id": "q"}, {"result_id": "p"}]
    first = {"search_id": "a", "results": same}
    fed.take(fed.event("search_iteration", iteration=1, searches=[first]))
    assert fed.seen.counts["result_id_conflicts"] == 1
    second = {"search_id": "b", "results": more}
    fed.take(fed.event("search_iteration", iteration=2, searches=[second]))
    assert fed.seen.counts["result_id_conflicts"] == 2


def test_an_event_below_the_only_turn_is_stale() -> None:
    """Its own turn need not exist yet."""
    fed = Fed()
    fed.take(fed.event("search_iteration", iteration=1, turn=2))
    fed.take(fed.event("search_iteration", iteration=1, turn=2))
    assert fed.seen.counts["stale"] == 0
    fed.take(fed.event("search_iteration", iteration=1, turn=1))
    assert fed.seen.counts["stale"] == 1


def test_a_label_in_its_results_batch_has_a_delay() -> None:
    """The label comes first in the batch, and none waits at its end."""
    fed = Fed()
    search = fed.search("s", "D")
    fed.take(fed.labels(s_1=3), search)
    assert fed.seen.label_delays_us == {SECOND: 1}
    assert fed.seen.counts["labels_waiting"] == 0


def test_a_label_that_comes_after_a_later_one_is_counted() -> None:
    """It changes nothing; a repeated event is not counted."""
    fed = Fed()
    fed.take(fed.search("s", "D", "E"))
    earlier, later = fed.labels(s_1=4, s_2=4), fed.labels(s_1=0)
    fed.take(later)
    fed.take(later)
    assert fed.seen.counts["labels_superseded"] == 0
    fed.take(earlier)
    assert fed.seen.counts["labels_superseded"] == 1
    assert fed.seen.counts["labels_revised"] == 0
    assert fed.conversation.turns[1].iterations[1].gain == 4


@pytest.mark.slow
def test_dropped_state_is_freed_without_garbage_collection() -> None:
    """There are no reference cycles."""
    fed = Fed()
    gc.collect()
    gc.disable()
    try:
        fed.take(fed.search("s", "D", "D"), fed.labels(s_1=3))
        fed.take(fed.search("t", "D", "E", iteration=2), fed.labels(s_1=1, t_2=4))
        fed.conversation = Conversation("d")
        left = gc.collect()
    finally:
        gc.enable()

    assert left == 0


def test_unadmitted_routes_are_subtracted_as_they_were_added() -> None:
    """A search moves from a route without its own series to one that has series."""
    fed = Fed()
    at = NOON_S + 1
    first = fed.search("s", "D", routing={"selected": "hidden"}, occurred_at=at)
    again = fed.search("s", "D", routing={"selected": "named"}, occurred_at=at)
    names = Names(frozenset({"default"}), frozenset({"named"}))
    windows = Windows((parse_window("5m"),))
    for event, counted in ((first, "R|other|unknown"), (again, "R|named|unknown")):
        before = len(fed.cells)
        fed.take(event)
        windows.install(windows.changes(fed.cells[before:], names, at * SECOND))
        sums = WindowSums.of_partitions([windows], at * SECOND).of("5m", "default")
        assert {c: v for c, v in sums.items() if c.startswith("R|")} == {counted: 1}


@pytest.mark.parametrize(
    "names", [("1m", "7m", "1h"), ("90s", "24h", "11m"), ("5m",), ("24h", "1m", "5m", "6h")]
)
def test_windows_equal_the_sums_of_their_cells(names: tuple[str, ...]) -> None:
    """Buckets that are merged step by step agree with sums computed directly from the cells."""
    specs = tuple(map(parse_window, names))
    start = NOON_S * SECOND
    cells = [Cell(start + 37 * SECOND * n, "default", {"r": 1 + n, "i": 1}) for n in range(400)]
    known = Names(frozenset({"default"}), frozenset())
    windows = Windows(specs)
    for at in range(0, len(cells), 7):
        touched = windows.changes([(1, c) for c in cells[at : at + 7]], known, start)
        windows.install(touched)
    for step in (0, 50, 399):
        now = start + 37 * SECOND * step
        direct = SumsAt(specs, known, now)
        for cell in cells:
            direct.take(cell.time_us, cell.agent, cell.sums)
        kept = WindowSums.of_partitions([windows], now)
        assert sorted(map(repr, kept.entries())) == sorted(map(repr, direct.entries()))


def test_a_late_cell_creates_no_expired_bucket() -> None:
    """It changes only windows that still cover its time."""
    start = NOON_S * SECOND
    windows = Windows((parse_window("1m"), parse_window("1h")))
    known = Names(frozenset({"default"}), frozenset())
    late = Cell(start, "default", {"r": 1})
    windows.install(windows.changes([(1, late)], known, start + 600 * SECOND))
    assert {name: len(buckets) for name, buckets in windows.buckets.items()} == {"1m": 0, "1h": 1}


def sent(number: int, doc: str) -> Record:
    """A record with a search of one result."""
    results = [{"result_id": f"r{number}", "doc_id": doc}]
    body = {"type": "search_iteration", "event_id": f"e{number}", "conversation_id": "c", "turn": 1,
            "occurred_at": NOON_S + number, "iteration": number + 1,
            "searches": [{"search_id": f"s{number}", "results": results}]}  # fmt: skip
    return Record(json.dumps(body).encode(), b"c", None, TOPIC, 0, number)


@pytest.mark.parametrize("broken_key", ["k", "new"])
async def test_a_bug_in_digesting_rejects_one_event(broken_key: str) -> None:
    """Whichever key fails, the others are digested with their conversation."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    state = await opened(store, letters, 0)
    await state.process([sent(0, "D")], once)
    both = options().keys | {"new": b"a new key"}
    bug = Bug(RuntimeError, at_record=lambda value: b'"e1"' in value)
    dedups = BuggyDeduplicators(both[broken_key], bug)
    state = await opened(store, letters, 0, keys=both, key_id="new", dedups=dedups)

    await state.process([sent(1, "E"), sent(2, "D")], once)

    assert [(x.record.offset, x.reason) for x in letters.letters] == [(1, "internal_error")]
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    assert export.rows[0]["duplicates_of"] == {"r2": "r0"}


def test_expired_buckets_are_dropped_in_small_numbers() -> None:
    """A batch stays small however many have expired; those that remain count nowhere."""
    start, many = NOON_S * SECOND, 3 * MIN_DELETIONS
    windows = Windows((parse_window("1m"),))
    known = Names(frozenset(f"a{n}" for n in range(many)), frozenset())
    cells = [(1, Cell(start, f"a{n}", {"r": 1})) for n in range(many)]
    windows.install(windows.changes(cells, known, start))
    later = start + 3_600 * SECOND
    left = []
    for _ in range(4):
        left.append(len(windows.buckets["1m"]))
        assert not WindowSums.of_partitions([windows], later).agents()
        windows.install(windows.changes([], known, later))

    assert left == [many, many - MIN_DELETIONS, many - 2 * MIN_DELETIONS, 0]


def test_expired_buckets_are_dropped_as_fast_as_new_ones_come() -> None:
    """A batch that creates many buckets drops even more, so they do not accumulate."""
    windows = Windows((parse_window("1m"),))
    agents = [f"a{n}" for n in range(2 * MIN_DELETIONS)]
    known = Names(frozenset(agents), frozenset())
    for hour in range(20):
        at = (NOON_S + 3_600 * hour) * SECOND
        cells = [(1, Cell(at, agent, {"r": 1})) for agent in agents]
        windows.install(windows.changes(cells, known, at))
        assert len(windows.buckets["1m"]) == len(agents)


class CountedBuckets(dict[tuple[int, str], bytes]):
    """Counts iterations over all buckets."""

    walks = 0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self.walks += 1
        return super().__iter__()


def test_buckets_are_not_scanned_while_none_can_have_expired() -> None:
    """Only when record time passes the end of a bucket does a batch look at them."""
    windows = Windows((parse_window("1h"),))
    known = Names(frozenset({"default"}), frozenset())
    counted = windows.buckets["1h"] = CountedBuckets()
    start = NOON_S * SECOND
    for minute in range(61):
        cell = Cell(start + 60 * minute * SECOND, "default", {"r": 1})
        windows.install(windows.changes([(1, cell)], known, cell.time_us))
    assert len(windows.buckets["1h"]) == 61
    counted.walks = 0
    for second in range(59):
        windows.install(windows.changes([], known, start + (3_600 + second) * SECOND))
    assert counted.walks == 0
    for second in range(60, 180):
        windows.install(windows.changes([], known, start + (3_600 + second) * SECOND))

    assert len(windows.buckets["1h"]) == 59
    assert counted.walks == 4  # per minute: one scan finds expired buckets, one finds none


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 4_000)), max_size=40))
def test_no_bucket_outlives_its_window(steps: list[tuple[int, int]]) -> None:
    """Wherever cells fall as time goes on, the next batch drops expired buckets."""
    specs = (parse_window("1m"), parse_window("1h"))
    windows, known = Windows(specs), Names(frozenset({"default"}), frozenset())
    now = NOON_S * SECOND
    for ahead, late in steps:
        now += ahead * SECOND
        cell = Cell(now - late * SECOND, "default", {"r": 1})
        windows.install(windows.changes([(1, cell)], known, now))
        for window in specs:
            oldest = oldest_bucket(window, now)
            assert all(bucket >= oldest for bucket, _ in windows.buckets[window.name])
