"""Agents, their days and nights, and what goes wrong with them: turns placed in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tests.drill.library import HEALTHY, Condition, Habits, Numbers, Turns, turns

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
START_US: Final = 1_767_571_200 * SECOND  # 2026-01-05, a Monday, midnight UTC

_KINDS: Final = (
    Habits(0.25, (1, 6), 10, 30.0, 0.12),
    Habits(0.12, (1, 3), 10, 60.0, 0.06),
    Habits(0.40, (2, 8), 10, 20.0, 0.12),
    Habits(0.20, (1, 5), 5, 120.0, 0.25),
    Habits(0.30, (1, 4), 10, 600.0, 0.10),
)
_PACE: Final = (24.0, 8.0, 3.0, 1.0)  # turns a minute at the busiest
HARDER: Final = 1.6  # how many more duplicates a hard question makes
DRIFT_STEPS: Final = 12


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent: its habits, its turns a minute at the busiest, and how hard its questions are."""

    name: str
    habits: Habits
    turns_per_minute: float
    hard_share: float = 0.2


@dataclass(frozen=True, slots=True)
class Incident:
    """What goes wrong, with whom (None: with all), from when to when, in microseconds.

    Kinds beside those of the generator: ``drift`` (same pages, slowly more), ``labeller_down``,
    ``labels_late`` (by an hour, with this probability a turn), ``consumer_stalled``, ``deploy``.
    """

    kind: str
    agent: str | None
    start_us: int
    end_us: int
    strength: float = 1.0


LABEL_METRICS: Final = frozenset({"labeller_down", "labels_late"})
OF_DELIVERY: Final = frozenset({"consumer_stalled", "deploy"})


@dataclass(frozen=True, slots=True)
class Placed:
    """An agent's turns in time: their starts, and parallel arrays of changes.

    ``at_us``: when a change arrives; ``about_us``: the time that it is about.
    """

    starts_us: Numbers
    codes: tuple[str, ...]
    at_us: Numbers
    about_us: Numbers
    labels: NDArray[np.bool_]
    deltas: Numbers


def roster(count: int, seed: int) -> list[Agent]:
    """``count`` agents of five kinds, from busy to quiet, with quick and with slow labels.

    The seed draws how much each kind repeats itself and skips, how slow its labels are, and its
    documents and questions, so that other seeds have other agents.
    """
    rng = np.random.default_rng([seed, 1])
    kinds = [_drawn(kind, rng) for kind in _KINDS]
    return [
        Agent(f"agent-{at:02}", kinds[at % len(kinds)], _PACE[at // len(kinds) % len(_PACE)])
        for at in range(count)
    ]


def _drawn(kind: Habits, rng: Generator) -> Habits:
    """Habits like these: a quarter more duplicates or a fifth less, and so on."""
    return replace(
        kind,
        duplicates=round(min(0.45, kind.duplicates * rng.uniform(0.8, 1.25)), 3),
        label_delay_seconds=round(kind.label_delay_seconds * rng.uniform(0.6, 1.3), 1),
        gate_skips=round(kind.gate_skips * rng.uniform(0.75, 1.3), 3),
        seed=int(rng.integers(1, 1 << 31)),
    )


def busyness(at_us: Numbers) -> NDArray[np.float64]:
    """How busy a moment is, 1 at the busiest: two humps by day, nights of 4%, weekends of 30%."""
    hours = (at_us - START_US) / HOUR % 24
    day = (at_us - START_US) // DAY % 7
    humps = np.exp(-(((hours - 10.5) / 2.0) ** 2)) + 0.9 * np.exp(-(((hours - 15.0) / 2.2) ** 2))
    return np.asarray(np.clip(humps, 0.04, 1.0) * np.where(day >= 5, 0.3, 1.0))


class Libraries:
    """Turns by habits and condition, each made when it is first asked for."""

    def __init__(self, turns_each: int) -> None:
        self._get: Callable[[Habits, Condition], Turns] = lru_cache(maxsize=None)(
            lambda habits, condition: turns(habits, condition, turns_each)
        )

    def get(self, habits: Habits, condition: Condition) -> Turns:
        """The library of these."""
        return self._get(habits, condition)


def conditions(
    start_us: Numbers, incidents: Sequence[Incident]
) -> Iterator[tuple[Condition, NDArray[np.intp]]]:
    """Which turns begin under which condition; incidents of one agent do not overlap."""
    healthy = np.ones(len(start_us), np.bool_)
    for incident in incidents:
        inside = (start_us >= incident.start_us) & (start_us < incident.end_us)
        if incident.kind in LABEL_METRICS | OF_DELIVERY or not inside.any():
            continue
        healthy &= ~inside
        if incident.kind != "drift":
            yield Condition(incident.kind, incident.strength), np.flatnonzero(inside)
            continue
        share = (start_us - incident.start_us) / (incident.end_us - incident.start_us)
        steps = np.floor(share * DRIFT_STEPS) + 1
        for step in range(1, DRIFT_STEPS + 1):
            strength = round(incident.strength * step / DRIFT_STEPS, 3)
            yield Condition("same_pages", strength), np.flatnonzero(inside & (steps == step))
    yield Condition(HEALTHY), np.flatnonzero(healthy)


def place(
    agent: Agent, incidents: Sequence[Incident], minutes: int, rng: Generator, shelf: Libraries
) -> Placed:
    """The agent's turns over ``minutes`` from ``START_US``; ``incidents`` are its own and all's."""
    grid = START_US + MINUTE * np.arange(minutes, dtype=np.int64)
    expected = agent.turns_per_minute * busyness(grid)
    start_us = np.repeat(grid, rng.poisson(expected)) + 0
    start_us += rng.integers(0, MINUTE, len(start_us))
    hard = rng.random(len(start_us)) < _hardness(agent, start_us, minutes, rng)
    pieces: list[Placed] = []
    for condition, chosen in conditions(start_us, incidents):
        for hard_ones in (False, True):
            which = chosen[hard[chosen] == hard_ones]
            if len(which):
                habits = harder(agent.habits) if hard_ones else agent.habits
                pieces.append(_copy(shelf.get(habits, condition), start_us[which], rng))
    codes = tuple(sorted({code for piece in pieces for code in piece.codes}))
    placed = Placed(
        start_us,
        codes,
        np.concatenate([piece.at_us for piece in pieces]),
        np.concatenate([piece.about_us for piece in pieces]),
        np.concatenate([piece.labels for piece in pieces]),
        np.concatenate([_columns(piece, codes) for piece in pieces]),
    )
    return _delay(placed, incidents, rng)


def harder(habits: Habits) -> Habits:
    """An agent's habits with hard questions."""
    longer = (habits.iterations[0], habits.iterations[1] + 1)
    return Habits(
        min(0.6, habits.duplicates * HARDER), longer, habits.results_per_search,
        habits.label_delay_seconds, habits.gate_skips, habits.seed,
    )  # fmt: skip


def _hardness(agent: Agent, start_us: Numbers, minutes: int, rng: Generator) -> NDArray[np.float64]:
    """The share of hard questions: it moves with the hour of the day, and wanders beside that."""
    hours = minutes // 60 + 2
    wander = np.zeros(hours)
    for hour in range(1, hours):
        wander[hour] = 0.8 * wander[hour - 1] + rng.normal(0, 0.04)
    at = ((start_us - START_US) // HOUR).astype(int)
    daily = 0.06 * np.sin(2 * np.pi * ((start_us - START_US) % DAY) / DAY + rng.random() * 6)
    return np.asarray(np.clip(agent.hard_share + daily + wander[at], 0.02, 0.6))


def _copy(library: Turns, start_us: Numbers, rng: Generator) -> Placed:
    """A random turn of the library at each start."""
    chosen = rng.integers(0, len(library), len(start_us))
    counts = np.diff(library.first)[chosen]
    ends = np.cumsum(counts)
    rows = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    rows += np.repeat(library.first[chosen], counts)
    began = np.repeat(start_us, counts)
    return Placed(
        start_us,
        library.codes,
        began + library.at[rows],
        began + library.about[rows],
        library.labels[rows],
        library.deltas[rows],
    )


def _columns(piece: Placed, codes: tuple[str, ...]) -> Numbers:
    wide = np.zeros((len(piece.at_us), len(codes)), np.int64)
    where = {code: at for at, code in enumerate(codes)}
    wide[:, [where[code] for code in piece.codes]] = piece.deltas
    return wide


def _delay(placed: Placed, incidents: Sequence[Incident], rng: Generator) -> Placed:
    """Arrivals as labellers and consumers in trouble make them."""
    at_us = placed.at_us.copy()
    for incident in incidents:
        inside = (at_us >= incident.start_us) & (at_us < incident.end_us)
        if incident.kind == "labeller_down":
            late = inside & placed.labels
            at_us[late] = incident.end_us + rng.integers(0, 10 * MINUTE, late.sum())
        elif incident.kind == "labels_late":
            of_turn = (placed.about_us // (2 * MINUTE) * 2_654_435_761 % 1_000) / 1_000
            late = inside & placed.labels & (of_turn < incident.strength)
            at_us[late] += HOUR
        elif incident.kind in OF_DELIVERY:
            at_us[inside] = incident.end_us + (at_us[inside] - incident.start_us) // 20
    return replace(placed, at_us=at_us)
