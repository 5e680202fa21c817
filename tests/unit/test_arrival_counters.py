"""The counters by arrival of a worker: what is counted, when, and for whom."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from stream_metrics.core.alerts.arrivals import BILLIONTHS, COUNTS, OF_LOOPS, YOUNG_MS
from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.config import DEFAULT_AGENT, OTHER, EngineConfig
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Position
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.worker.partition import PartitionLost, StatePartition
from tests.property.test_arrivals import counted
from tests.property.test_partition import TOPIC, once, opened
from tests.strategies import arrivals, streams
from tests.unit.test_state_partition import labels, search

NOON_S = 1_718_020_800
NOON_MS = NOON_S * 1000
Sent = tuple[bytes, bytes, int | None]
ONE_OF_TWO = search("c", 1, NOON_S, "a", "a")  # the second result repeats the first


class Fed:
    """A state partition whose clock stands at noon, and the metrics of its worker."""

    def __init__(self, state: StatePartition, registry: CollectorRegistry) -> None:
        self.state, self._registry = state, registry

    @classmethod
    async def new(
        cls, store: MemoryStore | None = None, *, building: bool = False, **changes: Any
    ) -> Fed:
        """The partition of a worker that has just taken it over."""
        registry = CollectorRegistry()
        operations = Operations(registry, [TOPIC])
        operations.generation(2, building=building)
        options = {"now_ms": lambda: NOON_MS, **changes}
        state = await opened(
            store or MemoryStore(), MemoryDeadLetters(), 1_000, telemetry=operations, **options
        )
        return cls(state, registry)

    async def take(self, *sent: Sent) -> None:
        """Process records as one batch."""
        first = self.state.positions[TOPIC].offset
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(sent)]
        await self.state.process(records, once)

    def counters(self, way: str) -> dict[tuple[str, str], float]:
        """The counters of one way by agent and count, also those at 0."""
        ends = {f"streammetrics_{way}_{name}_total": name for name in COUNTS}
        return {
            (sample.labels["agent"], ends[sample.name]): sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name in ends
        }

    def net(self) -> dict[tuple[str, str], int]:
        """What arrived less what was withdrawn, in the units of ``COUNTS``, without zeros."""
        withdrawn = self.counters("withdrawn")
        found = {
            key: round((value - withdrawn[key]) * (1e9 if key[1] in BILLIONTHS else 1))
            for key, value in self.counters("arrived").items()
        }
        return {key: value for key, value in found.items() if value}


async def test_what_a_batch_adds_has_arrived() -> None:
    """Here a search with two results, of which one repeats the other."""
    fed = await Fed.new()

    await fed.take(ONE_OF_TWO)

    assert fed.net() == {
        (DEFAULT_AGENT, "searches"): 1,
        (DEFAULT_AGENT, "results"): 2,
        (DEFAULT_AGENT, "duplicate_results"): 1,
    }


async def test_what_a_batch_takes_back_is_withdrawn() -> None:
    """A gain that a later label lowers was counted: both counters only ever grow."""
    fed = await Fed.new()
    await fed.take(search("c", 1, NOON_S, "a"), labels("c", 2, NOON_S + 1, "1-0"))
    lowered = json.loads(labels("c", 3, NOON_S + 2, "1-0")[1])
    lowered["labels"][0]["gain"] = 0

    await fed.take((b"c", json.dumps(lowered).encode(), NOON_MS))

    key = (DEFAULT_AGENT, "settled_good_results")
    assert (fed.counters("arrived")[key], fed.counters("withdrawn")[key]) == (1, 1)


@given(st.data())
async def test_arrived_less_withdrawn_is_what_conversations_contribute(
    data: st.DataObject,
) -> None:
    """In any order and any batches, as long as all records are young and nothing is erased."""
    drawn = [(key, value, NOON_MS) for key, value, _ in data.draw(streams())]
    stream: list[Sent] = [sent for sent in drawn if b'"forget"' not in sent[1]]
    batches = data.draw(arrivals(stream))
    fed = await Fed.new()

    for batch in batches:
        await fed.take(*batch)

    expected: Counter[tuple[str, str]] = Counter(counted(batches)[1])
    assert fed.net() == expected


@pytest.mark.parametrize("away_ms", [-YOUNG_MS, YOUNG_MS, None])
async def test_records_that_are_far_from_the_present_count_nothing(away_ms: int | None) -> None:
    """A backlog repeats hours, and the clock of a broker may be wrong."""
    fed = await Fed.new()
    key, value, _ = ONE_OF_TWO

    await fed.take((key, value, None if away_ms is None else NOON_MS + away_ms))

    assert fed.net() == {}


@pytest.mark.parametrize("away_ms", [1 - YOUNG_MS, YOUNG_MS - 1])
async def test_records_of_the_last_ten_minutes_count(away_ms: int) -> None:
    """The clocks of brokers and workers differ a little in either direction."""
    fed = await Fed.new()
    key, value, _ = ONE_OF_TWO

    await fed.take((key, value, NOON_MS + away_ms))

    assert fed.net()


async def test_a_conversation_with_an_old_record_in_the_batch_counts_nothing() -> None:
    """Its changes are not told apart by record. Other conversations of the batch count."""
    fed = await Fed.new()
    key, value, _ = search("old", 1, NOON_S, "a")

    await fed.take((key, value, NOON_MS - YOUNG_MS), search("old", 2, NOON_S, "b"), ONE_OF_TWO)

    assert fed.net()[DEFAULT_AGENT, "searches"] == 1


async def test_erasing_a_conversation_withdraws_nothing() -> None:
    """It says nothing about how its agent does now."""
    fed = await Fed.new()
    await fed.take(ONE_OF_TWO)
    before = fed.net()
    forget = {"type": "forget", "event_id": "f", "occurred_at": NOON_S + 9, "conversation_id": "c"}

    await fed.take((b"c", json.dumps(forget).encode(), NOON_MS))

    assert fed.net() == before


async def test_a_refused_write_counts_nothing() -> None:
    """The new owner of the partition reads the records again."""
    store = MemoryStore()
    fed = await Fed.new(store)
    await store.claim(0, b"another", {TOPIC: Position(0)})

    with pytest.raises(PartitionLost):
        await fed.take(ONE_OF_TWO)

    assert fed.net() == {}


async def test_a_build_counts_nothing() -> None:
    """The workers of the state in force count these records."""
    fed = await Fed.new(building=True)

    await fed.take(ONE_OF_TWO)

    assert fed.net() == {}


async def test_without_a_wall_clock_nothing_is_counted() -> None:
    """A replay has no present in which something could arrive."""
    fed = await Fed.new(now_ms=None)

    await fed.take(ONE_OF_TWO)

    assert fed.net() == {}


async def test_counters_of_known_agents_begin_at_zero_when_a_partition_is_taken_over() -> None:
    """A counter that begins with its first change would hide that change from rates."""
    store = MemoryStore()
    await (await Fed.new(store)).take(ONE_OF_TWO)

    fed = await Fed.new(store, agents=("configured",))

    zeros = {(agent, name): 0 for agent in (DEFAULT_AGENT, "configured") for name in COUNTS}
    assert fed.counters("arrived") == fed.counters("withdrawn") == zeros


async def test_counters_are_bounded_whatever_agents_there_are() -> None:
    """Agents beyond the limit share the counters of ``other``."""
    fed = await Fed.new()

    for number in range(120):
        key, value, at = search(f"c-{number}", 1, NOON_S, "a")
        event = json.loads(value) | {"agent": f"agent-{number}"}
        await fed.take((key, json.dumps(event).encode(), at))

    agents = {agent for agent, _ in fed.counters("arrived")}
    assert len(agents) == 51
    assert fed.net()[OTHER, "searches"] == 70


@pytest.mark.parametrize("number", [1, 2])
async def test_state_without_figures_of_loops_has_no_counters_of_them(number: int) -> None:
    """They are absent, because 0 would say that no search was repeated or empty."""
    fed = await Fed.new(engine=EngineConfig(rules=DedupRules(tables=published()[number])))

    await fed.take(ONE_OF_TWO)

    assert {name for _, name in fed.counters("arrived")} == COUNTS.keys() - OF_LOOPS


async def test_repeated_and_empty_searches_arrive() -> None:
    """Here the second of two searches repeats the first, and finds nothing."""
    fed = await Fed.new()
    for number, found in ((1, "a"), (2, "")):
        key, value, at = search("c", number, NOON_S + number, *found)
        event = json.loads(value)
        event["searches"][0]["query"] = "where are the keys"
        await fed.take((key, json.dumps(event).encode(), at))

    counts = {name: value for (_, name), value in fed.net().items() if name in OF_LOOPS}
    assert counts == {"queried_searches": 2, "repeated_searches": 1, "empty_searches": 1}
