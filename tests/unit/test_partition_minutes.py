"""The minutes of arrival of a state partition: from the log, whatever happens to its workers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.alerts.minutes import Arrived, ArrivedMinutes
from stream_metrics.core.engine.config import DEFAULT_AGENT
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from tests.property.test_partition import TOPIC, once, opened
from tests.strategies import arrivals, streams
from tests.unit.test_state_partition import labels, search

NOON_S = 1_718_020_800
NOON_MS = NOON_S * 1000
Sent = tuple[bytes, bytes, int | None]
MINUTE = NOON_MS // 60_000
SEARCHED = {"searches": 1, "results": 2, "duplicate_results": 1, "unique_results": 1}
Counts = dict[int, dict[str, int]]


async def take(store: MemoryStore, batches: Sequence[Sequence[Sent]]) -> None:
    """Process batches by a worker that has just taken the partition over."""
    state = await opened(store, MemoryDeadLetters(), 1_000, now_ms=lambda: NOON_MS)
    for batch in batches:
        first = state.positions[TOPIC].offset
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(batch)]
        await state.process(records, once)


def at(sent: Sent, minutes: float) -> Sent:
    """A record that was written so long after noon."""
    return sent[0], sent[1], NOON_MS + int(60_000 * minutes)


async def stored(store: MemoryStore) -> Counts:
    """What the store has of the one agent, without counts that are 0."""
    minutes, found = ArrivedMinutes(), Arrived()
    for (window, minute, agent), sums in (await store.buckets(0)).items():
        minutes.load(window, minute, agent, sums)
    found.update({0: minutes.hours()})
    return found.agents.get(DEFAULT_AGENT, {})


async def after(batches: Sequence[Sequence[Sent]], *, restarts: bool = False) -> Counts:
    """The minutes after some batches; ``restarts`` is before each."""
    store = MemoryStore()
    for part in ([batch] for batch in batches) if restarts else [batches]:
        await take(store, part)
    return await stored(store)


async def test_a_record_counts_in_the_minute_of_the_log() -> None:
    """Not in that of its search, nor in that in which a worker gets to it."""
    found = await after([[at(search("c", 1, NOON_S - 900, "a", "a"), -300)]])

    assert found == {MINUTE - 300: SEARCHED}


async def test_a_late_label_counts_when_it_comes() -> None:
    """Its search counted before, and what a correction takes back is taken back then."""
    lowered = json.loads(labels("c", 3, NOON_S + 2, "1-0")[1])
    lowered["labels"][0]["gain"] = 0
    found = await after(
        [
            [at(search("c", 1, NOON_S, "a"), 0)],
            [at(labels("c", 2, NOON_S + 1, "1-0"), 90)],
            [at((b"c", json.dumps(lowered).encode(), None), 100)],
        ]
    )

    assert found[MINUTE] == {"searches": 1, "results": 1, "unique_results": 1}
    assert found[MINUTE + 90]["settled_good_results"] == 1
    assert found[MINUTE + 100]["settled_good_results"] == -1


async def test_a_record_without_a_time_counts_nothing() -> None:
    """It cannot be told when it was written."""
    key, value, _ = search("c", 1, NOON_S, "a", "a")

    assert await after([[(key, value, None)]]) == {}


@pytest.mark.parametrize("cut", [1, 2])
async def test_erasing_a_conversation_counts_nothing(cut: int) -> None:
    """That healthy searches are gone is no sign that others are worse; nor do batches matter."""
    forget = {"type": "forget", "event_id": "f", "occurred_at": NOON_S, "conversation_id": "c"}
    sent = [
        at(search("c", 1, NOON_S, "a", "a"), 0),
        at((b"c", json.dumps(forget).encode(), None), 0),
    ]

    assert await after([sent[:cut], sent[cut:]][: 3 - cut]) == {MINUTE: SEARCHED}


@settings(max_examples=10)
@given(st.data())
async def test_minutes_depend_neither_on_batches_nor_on_restarts(data: st.DataObject) -> None:
    """Records of several minutes in one batch count each in its own."""
    drawn = data.draw(streams())
    sent = [at((key, value, None), number // 2) for number, (key, value, _) in enumerate(drawn)]
    batches = data.draw(arrivals(sent))
    in_order = [record for batch in batches for record in batch]

    expected = await after([[record] for record in in_order], restarts=True)

    assert await after(batches) == expected
    assert await after([in_order]) == expected
