"""Turns as the real engine counts them: the changes of each record in the windows, with times.

One agent's traffic under one condition (healthy, or an incident of some strength) is generated and
taken record by record, in order of arrival. Each change of a window sum is kept with its turn, so
that whole turns can be placed anywhere in simulated time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.state import Conversation
from stream_metrics.core.engine.step import Step
from stream_metrics.lab.traffic import Incident, TrafficProfile, generate
from stream_metrics.lab.traffic.profile import IncidentKind

Numbers = NDArray[np.int64]
HEALTHY: Final = "healthy"

# Families that no rule asks for by agent; they would only make the simulation slow.
LEFT_OUT: Final = frozenset({"ts", "tc", "ir", "id", "iG", "D", "n", "nt"})


class Condition(NamedTuple):
    """``healthy``, or an incident's kind, and its strength."""

    kind: str = HEALTHY
    strength: float = 0.0


@dataclass(frozen=True, slots=True)
class Habits:
    """What tells one kind of agent from another: the generator's shares and lengths."""

    duplicates: float = 0.25
    iterations: tuple[int, int] = (1, 6)
    results_per_search: int = 10
    label_delay_seconds: float = 30.0
    gate_skips: float = 0.12
    seed: int = 1

    def profile(self, turns: int, condition: Condition) -> TrafficProfile:
        """Traffic of one such agent: ``turns`` conversations of a turn each, under a condition."""
        incidents: tuple[Incident, ...] = ()
        if condition.kind != HEALTHY:
            kind: IncidentKind = condition.kind  # type: ignore[assignment]
            incidents = (Incident("agent", 0, 1e9, kind, condition.strength),)
        return TrafficProfile(
            seed=self.seed, conversations=turns, duration_seconds=turns * 60.0, agents=("agent",),
            turns=(1, 1), iterations=self.iterations, searches_per_iteration=(1, 2),
            results_per_search=self.results_per_search, result_bytes=200, documents=400,
            duplicates=self.duplicates, gate_skips=self.gate_skips, inline_gains=0.0,
            label_delay_seconds=self.label_delay_seconds, redelivered=0.0, invalid=0.0,
            relevant=0.0, revisions=0.0, incidents=incidents,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turns:
    """A library of turns, as parallel arrays of changes sorted by turn.

    ``first``: where each turn's changes begin (and, last, where all end). Microseconds after the
    turn's start: ``at``, when the change arrives; ``about``, the time of the iteration that it
    changes. ``labels``: whether the change came with labels. ``deltas``: by change and ``codes``.
    """

    codes: tuple[str, ...]
    first: Numbers
    at: Numbers
    about: Numbers
    labels: NDArray[np.bool_]
    deltas: Numbers

    def __len__(self) -> int:
        return len(self.first) - 1


@dataclass(slots=True)
class _Turn:
    start_us: int
    conversation: Conversation
    changes: list[tuple[int, int, bool, dict[str, int]]] = field(default_factory=list)


def turns(habits: Habits, condition: Condition, count: int) -> Turns:
    """``count`` turns of an agent with these habits under a condition."""
    config = EngineConfig()
    dedup = deduplicator(config.rules, b"")
    decoder, step, observed = (
        RecordDecoder(dedup, "", config.rules.tables, config.limits),
        Step(config, lambda _: dedup),
        Observations(),  # which nobody reads
    )
    found: dict[str, _Turn] = {}
    for record in generate(habits.profile(count, condition)):
        event = decoder.decode(record.value, key=record.key, timestamp_ms=record.timestamp_ms)
        assert isinstance(event, DigestedEvent)
        turn = found.get(event.conversation_id)
        if turn is None:
            turn = _Turn(event.occurred_us, Conversation(event.conversation_id))
            found[event.conversation_id] = turn
        arrival_us = record.timestamp_ms * 1000 - turn.start_us
        changes = step.apply(turn.conversation, [event], observed)
        for sign, cell in changes.cells:
            sums: dict[str, int] = {}
            for code, value in cell.sums.items():
                merged = _merged(code)
                if merged:
                    sums[merged] = sums.get(merged, 0) + sign * value
            if sums:
                about_us = cell.time_us - turn.start_us
                turn.changes.append((arrival_us, about_us, record.stream == "labels", sums))
    return _arrays(list(found.values()))


def _head(code: str) -> str:
    return code.partition("|")[0]


@lru_cache(maxsize=8_192)
def _merged(code: str) -> str:
    """A code without its route: rules look at all routes together. '' of a family left out."""
    if _head(code) in LEFT_OUT:
        return ""
    if not code.startswith("R|"):
        return code
    return f"R|any|{code.rpartition('|')[2]}"


def _arrays(found: list[_Turn]) -> Turns:
    order = {head: place for place, head in enumerate(CODES)}
    rows = [change for turn in found for change in turn.changes]
    used = set[str]().union(*(row[3] for row in rows))
    codes = tuple(sorted(used, key=lambda code: (order[_head(code)], code)))
    column = {code: place for place, code in enumerate(codes)}
    deltas = np.zeros((len(rows), len(codes)), np.int64)
    places = [(at, column[code]) for at, (*_, sums) in enumerate(rows) for code in sums]
    if places:
        deltas[tuple(np.array(places).T)] = [value for *_, sums in rows for value in sums.values()]
    return Turns(
        codes,
        np.cumsum([0, *(len(turn.changes) for turn in found)]),
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.bool_),
        deltas,
    )
