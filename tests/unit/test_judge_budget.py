"""The book of what judges have spent, and what it still allows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

from stream_metrics.clients.kafka.topics import TopicsInvalid
from stream_metrics.core.judge.budget import DAY_MS, Book, Cost, Entry, Limits
from stream_metrics.live.judge.ledger import Hold, Ledger
from stream_metrics.live.judge.settings import JudgeSettings
from stream_metrics.live.kafka.judge import check_budget_topic

NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
DAY = 20_000
HOLD_MS = 60_000


def book(**entries: Entry) -> Book:
    """A book of today."""
    found = Book(HOLD_MS)
    for writer, entry in entries.items():
        found.put(DAY, writer, entry)
    return found


def spent(tokens: int, *, held: int = 0, now_ms: int = NOON_MS - 120_000) -> Entry:
    """An entry of a writer who has used or holds tokens."""
    reserved = Entry().with_call(Cost(tokens + held), now_ms)
    return reserved.settled(Cost(tokens), Cost(tokens), now_ms)


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (spent(40), spent(50), "granted"),
        (spent(40), spent(51), "spent"),
        (spent(40), spent(11, held=40, now_ms=NOON_MS), "held"),
        (spent(40), spent(11, held=40, now_ms=NOON_MS - HOLD_MS - 1), "spent"),  # it is dead
    ],
)
def test_what_is_in_flight_may_come_back(one: Entry, other: Entry, verdict: str) -> None:
    """Only what is used ends the day."""
    found = book(one=one, other=other)
    assert found.verdict(Limits(tokens_per_day=100), Cost(10), NOON_MS) == verdict


def test_a_day_whose_sample_has_ended_stays_so() -> None:
    """Even if what was in flight has come back, or limits were raised."""
    found = book(one=Entry().changed(NOON_MS, ended_ms=NOON_MS))
    assert found.verdict(Limits(), Cost(), NOON_MS) == "spent"
    assert found.verdict(Limits(), Cost(), NOON_MS + DAY_MS) == "granted"
    assert found.incomplete_until_ms(NOON_MS) == (DAY + 1) * DAY_MS
    assert found.incomplete_until_ms(NOON_MS + 8 * DAY_MS) == (DAY + 1) * DAY_MS
    assert found.incomplete_until_ms(NOON_MS + 9 * DAY_MS) is None


def test_calls_of_the_last_minute_count_wherever_they_were_made() -> None:
    """Also across midnight."""
    midnight = (DAY + 1) * DAY_MS
    found = book(one=Entry().with_call(Cost(), midnight - 30_000))
    limits = Limits(calls_per_minute=1)
    assert found.verdict(limits, Cost(), midnight + 29_999) == "minute"
    assert found.verdict(limits, Cost(), midnight + 31_000) == "granted"


def test_a_revision_that_comes_late_is_ignored() -> None:
    """A write that was given up may still be stored, after the one that followed it."""
    first = Entry().with_call(Cost(5), NOON_MS).stamped(1)
    second = first.with_call(Cost(7), NOON_MS).stamped(2)
    found = book(one=second)
    found.put(DAY, "one", first)
    assert found.spending(DAY, NOON_MS).total == Cost(12)


def test_the_rate_of_a_day_is_the_lowest_that_was_begun_with() -> None:
    """Whoever comes later takes it over."""
    found = book(one=Entry().changed(NOON_MS, rate=0.1), other=Entry())
    assert (found.rate(DAY), found.rate(DAY + 1), found.highest_rate()) == (0.1, None, 0.1)
    found.put(DAY, "other", Entry().changed(NOON_MS, rate=0.05))
    assert found.rate(DAY) == 0.05


def test_old_entries_are_no_longer_needed() -> None:
    """After the days whose end is known."""
    found = book(one=spent(1))
    assert found.outdated(DAY + 8) == []
    assert found.outdated(DAY + 9) == [(DAY, "one")]
    found.put(DAY, "one", None)
    assert found.outdated(DAY + 9) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"calls": "x"}', b"null"])
def test_what_is_no_entry_is_refused(data: bytes) -> None:
    """With a message that quotes nothing of it."""
    with pytest.raises(ValueError, match="no entry of a judge's budget"):
        Entry.decode(data)


class OneLog:
    """Implements ``EntryStore`` over a book that all share; ``first`` is called before a write."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.first: Callable[[], None] = lambda: None

    async def refresh(self) -> None:
        """There is nothing to read."""

    async def write(self, day: int, writer: str, entry: Entry | None) -> None:
        """Store at once."""
        self.first()
        self.book.put(day, writer, entry)


async def test_a_call_that_another_judge_forestalled_is_not_reserved() -> None:
    """Also if it would have been the first of the day."""
    store = OneLog(book())
    ledger = Ledger(store, store.book, Limits(tokens_per_day=100), "late", lambda: NOON_MS)
    store.first = lambda: store.book.put(DAY, "early", spent(0, held=60, now_ms=NOON_MS))
    assert await ledger.reserve(Cost(60)) == "held"
    assert store.book.spending(DAY, NOON_MS).total == Cost(60)
    assert store.book.entry(DAY, "late").calls == 0


async def test_a_call_that_is_interrupted_while_another_is_reserved_is_used() -> None:
    """Not held for ever."""
    store = OneLog(book())
    ledger = Ledger(store, store.book, Limits(), "one", lambda: NOON_MS)
    hold = await ledger.reserve(Cost(60))
    assert isinstance(hold, Hold)
    store.first = lambda: ledger.abandon(hold)
    other = await ledger.reserve(Cost(7))
    store.first = lambda: None
    assert isinstance(other, Hold)
    await ledger.settle(other, Cost(5))
    assert store.book.spending(DAY, NOON_MS).used == Cost(65)


@pytest.mark.parametrize(
    ("partitions", "policy", "why"),
    [(2, "compact", "one"), (1, "delete", "deleted"), (1, "compact,delete", "deleted")],
)
def test_a_topic_that_would_lose_what_was_spent_is_refused(
    partitions: int, policy: str, why: str
) -> None:
    """Also one that is compacted and deletes old records as well."""
    check_budget_topic("budget", 1, "compact")
    with pytest.raises(TopicsInvalid, match=why):
        check_budget_topic("budget", partitions, policy)


@pytest.mark.parametrize(
    "name", ["money_per_day", "input_price", "output_price", "timeout_seconds", "temperature"]
)
def test_what_is_reckoned_with_is_finite(name: str) -> None:
    """Nothing can be reserved at an infinite price."""
    settings = {"money_per_day": 1.0, "input_price": 1.0, "output_price": 1.0}
    with pytest.raises(ValidationError, match="finite"):
        JudgeSettings.model_validate(settings | {name: float("inf")})
