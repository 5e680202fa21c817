"""What a judge asks, whatever comes in which order, and what all judges together may spend."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.reading import Reading
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.budget import (
    NOTHING,
    Book,
    Cost,
    Entry,
    Limits,
    Prices,
    day_of,
)
from stream_metrics.core.judge.labels import label_events, labeller_of
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurns, Work
from tests.strategies import KeyedRecord, arrivals, streams

FAR_MS = 4_000_000_000_000
JUDGE = {"model": "m", "judge": "0123456789abcdef"}
IDS = st.text(max_size=12)
SHARES = st.floats(0, 1)
NOON_MS = 1_781_000_000_000


def opened(records: list[KeyedRecord]) -> OpenTurns:
    """The turns of these records, all in the sample."""
    turns = OpenTurns(EngineConfig(), Sampler(b""), labeller_of(**JUDGE), Times(0, 0))
    for offset, (key, value, stamp) in enumerate(records):
        turns.add(Record(value, key, stamp, "t", 0, offset), 1.0)
    return turns


def works(turns: OpenTurns) -> dict[tuple[str, int], Work]:
    """What is to be graded."""
    found = [turn.work() for turn in turns.due(FAR_MS)]
    return {(one.conversation_id, one.turn): one for one in found if one is not None}


@given(st.data(), streams())
def test_each_document_is_asked_about_once(data: st.DataObject, stream: list[KeyedRecord]) -> None:
    """In any order of arrival: documents are those of the engine, labels name their results, and
    with these labels nothing is left to ask."""
    arrived = [one for batch in data.draw(arrivals(stream)) for one in batch]
    turns = opened(arrived)
    found = works(turns)
    wanted = Counter[tuple[str, int]]()
    for conversation in {key.decode() for key, _, _ in stream}:
        reading = Reading(conversation, EngineConfig())
        reading.feed(Record(value, key, stamp) for key, value, stamp in arrived)
        for one in reading.turns():
            read = reading.turn(one.number)
            results = [r for it in read.iterations for s in it.searches for r in s.results]
            holders: dict[str, int] = {}
            for result in results:
                holders.setdefault(result.place.result_id, result.place.position)
            reachable = set()
            for result in results:
                first = result.place if result.repeats is None else result.repeats.first
                if holders[result.place.result_id] == result.place.position:
                    reachable.add(first.position)
            wanted[conversation, one.number] = len(reachable)
    assert {at: len(work.asks) for at, work in found.items()} == {
        at: number for at, number in wanted.items() if at in found
    }
    assert all(number == 0 for at, number in wanted.items() if at not in found)
    again = opened(arrived)
    for at, work in found.items():
        assert len({ask.result_id for ask in work.asks}) == len(work.asks)
        grades = {ask.result_id: 2 for ask in work.asks}
        for value in label_events(work, grades, **JUDGE):
            again.add(Record(value, at[0].encode(), FAR_MS, "t", 0, 0), 1.0)
    assert all(not one.asks for one in works(again).values())


@given(st.data(), streams())
def test_what_is_asked_does_not_depend_on_the_order_of_arrival(
    data: st.DataObject, stream: list[KeyedRecord]
) -> None:
    """Nor on repetitions."""
    one, other = (
        opened([record for batch in data.draw(arrivals(stream)) for record in batch])
        for _ in range(2)
    )
    assert works(one) == works(other)


@given(st.binary(max_size=64), IDS, SHARES, SHARES)
def test_samples_are_nested(key: bytes, conversation: str, one: float, other: float) -> None:
    """What is in at a low rate is in at any higher one; at 0 nothing is, at 1 everything."""
    sampler = Sampler(key)
    low, high = sorted((one, other))
    assert not sampler.includes(conversation, 0)
    assert sampler.includes(conversation, 1)
    assert sampler.includes(conversation, low) <= sampler.includes(conversation, high)


COSTS = st.builds(Cost, st.integers(0, 60), st.integers(0, 60))
STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["reserve", "settle", "die"]), COSTS,
              st.floats(0, 1), st.integers(0, 40_000)),
    max_size=60,
)  # fmt: skip


@given(STEPS, st.integers(0, 100), st.integers(0, 100), st.integers(1, 5))
def test_judges_that_write_one_log_never_spend_more_than_they_may(
    steps: list[tuple[int, str, Cost, float, int]], tokens: int, picos: int, calls: int
) -> None:
    """Whoever dies with calls in flight: what was granted is within each limit at every moment,
    also if the calls cost all that was reserved for them."""
    limits = Limits(calls, tokens, picos)
    book, now_ms, lives = Book(hold_ms=30_000), NOON_MS, [0, 0, 0]
    granted: list[tuple[int, Cost]] = []  # time, and what it cost at most
    flying: dict[int, list[tuple[int, Cost]]] = {0: [], 1: [], 2: []}
    for who, what, cost, share, passed_ms in steps:
        now_ms += passed_ms
        day, name = day_of(now_ms), f"{who}.{lives[who]}"
        if what == "die":
            lives[who] += 1
            flying[who] = []
        elif what == "reserve":
            before = book.entry(day, name)
            book.put(day, name, before.with_call(cost, now_ms))
            if book.verdict(limits, cost, now_ms, included=True) == "granted":
                granted.append((now_ms, cost))
                flying[who].append((len(granted) - 1, cost))
            else:
                book.put(day, name, before)
        elif flying[who]:
            at, reserved = flying[who].pop()
            used = Cost(int(reserved.tokens * share), int(reserved.picos * share))
            if day_of(granted[at][0]) == day:
                book.put(day, name, book.entry(day, name).settled(reserved, used, now_ms))
                granted[at] = (granted[at][0], used)
        today = [spent for at_ms, spent in granted if day_of(at_ms) == day]
        assert sum(one.tokens for one in today) <= tokens
        assert sum(one.picos for one in today) <= picos
        times = [at_ms for at_ms, _ in granted]
        assert all(sum(at <= one < at + 60_000 for one in times) <= calls for at in times)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25_000)), max_size=40), st.integers(1, 4)
)
def test_no_minute_has_more_calls_than_judges_may_make_together(
    steps: list[tuple[int, int]], calls: int
) -> None:
    """Wherever it begins, also across midnight."""
    limits, book, now_ms = Limits(calls_per_minute=calls), Book(hold_ms=30_000), NOON_MS
    times: list[int] = []
    for who, passed_ms in steps:
        now_ms += passed_ms
        day, name = day_of(now_ms), str(who)
        before = book.entry(day, name)
        book.put(day, name, before.with_call(NOTHING, now_ms))
        if book.verdict(limits, NOTHING, now_ms, included=True) == "granted":
            times.append(now_ms)
        else:
            book.put(day, name, before)
    assert all(sum(at <= one < at + 60_000 for one in times) <= calls for at in times)


@given(st.lists(COSTS, max_size=8), st.integers(0, 9), SHARES)
def test_an_entry_is_stored_as_it_is(costs: list[Cost], settled: int, rate: float) -> None:
    """So a judge reads what another has written."""
    entry = Entry()
    for at, cost in enumerate(costs):
        entry = entry.with_call(cost, NOON_MS + at * 700)
    for cost in costs[:settled]:
        entry = entry.settled(cost, NOTHING, NOON_MS + 9_000)
    entry = entry.changed(NOON_MS, rate=rate)
    assert Entry.decode(entry.encode()) == entry


@given(st.integers(0, 10**7), st.integers(0, 10**4), st.floats(0, 1_000), st.floats(0, 1_000))
def test_money_is_what_prices_say(prompt: int, answer: int, price: float, other: float) -> None:
    """To a millionth of what a million tokens cost."""
    cost = Prices.per_million(price, other).cost(prompt, answer)
    exact = (prompt * price + answer * other) * 1_000_000
    assert abs(cost.picos - exact) <= (prompt + answer) * 0.5 + exact * 1e-9
    assert cost.tokens == prompt + answer
