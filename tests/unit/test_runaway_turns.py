"""Turns that run away: what a worker measures, and what its page and ``top`` say of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from stream_metrics.core.alerts.alert import CRITICAL
from stream_metrics.core.alerts.arrivals import YOUNG_MS
from stream_metrics.core.engine.config import DEFAULT_AGENT, EngineConfig
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.page.finding import OK, Finding
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.worker_rules import Worker, runaway_turns
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.runaways import MOST, STILL_MS, RunawayTurn, RunawayTurns
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S, search

NOON_MS = NOON_S * 1000
FEW = 5  # iterations that are many here


class Fed:
    """A worker of one partition for which five iterations are many; its clock is ``now_ms``."""

    def __init__(self, store: MemoryStore | None = None, *, building: bool = False) -> None:
        self.now_ms = NOON_MS
        self.store = store or MemoryStore()
        self.registry = CollectorRegistry()
        self.operations = Operations(self.registry, [TOPIC])
        self.operations.runaways = RunawayTurns(lambda: self.now_ms)
        self.operations.generation(2, building=building)

    async def take(self, *sent: tuple[bytes, bytes, int | None], **changes: Any) -> None:
        """Claim the partition, and process records as one batch."""
        options = {"now_ms": lambda: self.now_ms, "runaway_iterations": FEW, **changes}
        state = await opened(
            self.store, MemoryDeadLetters(), 1_000, telemetry=self.operations, **options
        )
        first = state.positions[TOPIC].offset
        records = [Record(v, k, t, TOPIC, 0, first + n) for n, (k, v, t) in enumerate(sent)]
        await state.process(records, once)

    def longest(self) -> float:
        """What the worker says of the agent, 0 if that is nothing."""
        name = "streammetrics_runaway_turn_iterations"
        return self.registry.get_sample_value(name, {"agent": DEFAULT_AGENT}) or 0


def iterations(first: int, last: int, conversation: str = "c") -> list[tuple[bytes, bytes, int]]:
    """Search iterations of one turn, whose records are of noon."""
    made = [search(conversation, n, NOON_S, f"d{n}") for n in range(first, last + 1)]
    return [(key, value, NOON_MS) for key, value, _ in made]


async def test_a_turn_runs_away_from_so_many_iterations_on() -> None:
    """One below, it does not."""
    fed = Fed()

    await fed.take(*iterations(1, FEW - 1))
    before = fed.longest()
    await fed.take(*iterations(FEW, FEW + 2))

    assert (before, fed.longest()) == (0, FEW + 2)


async def test_an_agent_is_measured_from_its_first_search_on() -> None:
    """So that a panel has a line at 0, and not none, where no turn runs away."""
    fed = Fed()
    await fed.take(*iterations(1, 1))

    of = {"agent": DEFAULT_AGENT}
    assert fed.registry.get_sample_value("streammetrics_runaway_turn_iterations", of) == 0


async def test_turns_of_one_conversation_are_no_runaway_together() -> None:
    """Each of them counts for itself."""
    fed = Fed()
    for turn in (1, 2):
        for key, value, at in iterations(1, FEW - 1):
            event = json.loads(value) | {"turn": turn, "event_id": f"{turn}-{hash(value)}"}
            await fed.take((key, json.dumps(event).encode(), at))

    assert fed.longest() == 0


async def test_a_turn_without_another_iteration_has_stopped() -> None:
    """Labels that still come do not make it go on."""
    fed = Fed()
    await fed.take(*iterations(1, FEW))
    fed.now_ms += STILL_MS - 1
    before = fed.longest()

    fed.now_ms += 1

    assert (before, fed.longest()) == (FEW, 0)


async def test_a_turn_that_goes_on_is_known_again_after_a_restart() -> None:
    """By its next iteration, because its iterations are in the state."""
    fed = Fed()
    await fed.take(*iterations(1, FEW))
    restarted = Fed(fed.store)

    await restarted.take(*iterations(FEW + 1, FEW + 1))

    assert restarted.longest() == FEW + 1


async def test_what_goes_beyond_a_limit_still_counts() -> None:
    """The turn keeps three iterations, and goes on asking."""
    fed = Fed()
    engine = EngineConfig(limits=replace(Limits(), results_per_turn=3))

    await fed.take(*iterations(1, 40), engine=engine)

    assert fed.longest() == 40


@pytest.mark.parametrize("away_ms", [-YOUNG_MS, YOUNG_MS, None])
async def test_what_is_far_from_the_present_does_not_run_away(away_ms: int | None) -> None:
    """A worker that catches up reads yesterday's loops."""
    fed = Fed()
    timed = [
        (key, value, None if away_ms is None else at + away_ms)
        for key, value, at in iterations(1, FEW)
    ]

    await fed.take(*timed)

    assert fed.longest() == 0


async def test_a_build_measures_nothing() -> None:
    """The workers of the state in force read the same records."""
    fed = Fed(building=True)

    await fed.take(*iterations(1, FEW))

    assert fed.longest() == 0


async def test_an_erased_conversation_is_not_named_any_more() -> None:
    """Nor counted."""
    fed = Fed()
    await fed.take(*iterations(1, FEW), *iterations(1, FEW, "kept"))
    erase = {"type": "forget", "event_id": "f", "occurred_at": NOON_S + 9, "conversation_id": "c"}

    await fed.take((b"c", json.dumps(erase).encode(), NOON_MS))

    assert [one.conversation_id for one in fed.operations.runaways.going_on()] == ["kept"]


def test_memory_of_runaway_turns_is_bounded() -> None:
    """Those that went on last are remembered."""
    turns = RunawayTurns(lambda: NOON_MS)

    for number in range(MOST + 2):
        turns.note([RunawayTurn("a", f"c{number}", 1, 50 + number, NOON_MS)])

    found = turns.going_on()
    assert (len(found), found[0].iterations, found[-1].iterations) == (MOST, 51 + MOST, 52)


def test_the_page_names_the_conversations() -> None:
    """The longest first, and of many only three."""
    turns = [RunawayTurn("support", f"c-{n}", 3, 1_000 - n, NOON_MS) for n in range(5)]

    def judged(*runaways: RunawayTurn) -> Finding:
        return runaway_turns(Worker(OperationsSample(0.0), History(), {}, runaways=runaways))

    assert judged() == Finding(OK, "no turn runs away")
    assert judged(*turns) == Finding(
        CRITICAL,
        "turn 3 of conversation c-0 (support) has 1,000 iterations; "
        "turn 3 of conversation c-1 (support) has 999 iterations; "
        "turn 3 of conversation c-2 (support) has 998 iterations; 2 more run away",
    )
