"""The incidents: many kinds and sizes, spread over agents, hours and days."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.random import Generator

from tests.drill.power import Ratio
from tests.drill.world import DAY, HOUR, MINUTE, START_US, Agent, Incident, busyness

WARM_UP_DAYS: Final = 2
SOON: Final = 10  # minutes of labelled data in which an incident is to be caught
LASTS_US: Final = 90 * MINUTE
_APART_US: Final = 27 * HOUR  # so that the last one has left the baseline
_WITHIN_US: Final = 12 * HOUR
_SLOT_US: Final = 15 * MINUTE


class Kind(NamedTuple):
    """A kind of incident: the sizes that it comes in, the alert that is meant for it, and the
    plain rule beside that.

    ``real``: the strength from which its size is real. ``labelled``: whether only labels show it.
    ``slow``: it comes over days, so that nobody can see it in ten minutes. ``ratio``: what it
    moves, of one agent. ``times``: its size is real only if it makes the ratio so many times what
    the agent's is when healthy (SRRSpike promises 1.5 times; what makes just that is seen half the
    time).
    """

    name: str
    says: str
    strengths: tuple[float, ...]
    real: float
    alert: str
    plain: str
    labelled: bool = False
    slow: bool = False
    ratio: Ratio | None = None
    times: float = 0.0


_SRR: Final = Ratio(("d",), ("r",))
_SRE: Final = Ratio(("sg",), ("sr",))
_GAIN: Final = Ratio(("sG",), ("si",))
_RESULTS: Final = Ratio(("r",), ("s",))
_MISSED: Final = Ratio(("q|skip|yes",), ("q|skip|yes", "q|skip|no", "q|search|yes", "q|search|no"))
_ROUTED: Final = Ratio(("R|any|yes",), ("R|any|yes", "R|any|no"))
_RERANKED: Final = Ratio(("ks|shown",), ("ks|baseline",))
_REPEATED: Final = Ratio(("aa",), ("a",))
_EMPTY: Final = Ratio(("e",), ("s",))

KINDS: Final = (
    Kind("same_pages", "an index returns the same pages", (0.2, 0.4, 0.6, 0.8), 0.8,
         "SRRSpike", "PlainRedundancy", ratio=_SRR, times=1.6),
    Kind("rewriter_loops", "a query rewriter loops", (0.25, 0.5, 0.9), 0.5,
         "SRRSpike", "PlainRedundancy", ratio=_SRR, times=1.6),
    Kind("off_topic", "searches miss their topic: SRE", (0.4, 0.7, 1.0), 0.7,
         "StreamMetricsEfficiencyDrop", "PlainEfficiency", True, ratio=_SRE),
    Kind("off_topic", "searches miss their topic: gain", (0.4, 0.7, 1.0), 0.7,
         "StreamMetricsGainDrop", "PlainGain", True, ratio=_GAIN),
    Kind("empty_index", "an index returns nothing", (0.3, 0.7, 1.0), 0.7,
         "StreamMetricsResultsDrop", "PlainResults", ratio=_RESULTS),
    Kind("gate_skips", "the gate is stuck on skip", (0.3, 0.6, 0.95), 0.6,
         "StreamMetricsRetrievalMissed", "PlainMissed", True, ratio=_MISSED),
    Kind("router_stuck", "the router is stuck on one route", (0.4, 0.7, 1.0), 0.7,
         "StreamMetricsRoutingAccuracyDrop", "PlainRouting", True, ratio=_ROUTED),
    Kind("reranker_inverted", "the reranker is inverted", (0.4, 0.7, 1.0), 0.7,
         "StreamMetricsRerankingWorse", "PlainReranking", True, ratio=_RERANKED),
    Kind("drift", "redundancy drifts up over three days", (0.6,), 0.6,
         "StreamMetricsRedundancyDrift", "PlainRedundancy", slow=True),
    Kind("labeller_down", "the labeller is down", (1.0,), 1.0,
         "StreamMetricsLabelsStopped", "PlainLabels"),
    Kind("labels_late", "half of the labels come an hour late", (0.5,), 0.5,
         "StreamMetricsJudgedShareLow", "PlainJudged"),
    Kind("consumer_stalled", "the consumer is stalled", (1.0,), 1.0,
         "StreamMetricsConsumerLagGrowing", "PlainLag"),
    Kind("asks_again", "a loop begins", (0.1, 0.3, 0.7), 0.3,
         "StreamMetricsSearchesRepeated", "PlainRepeated", ratio=_REPEATED),
    Kind("empty_route", "an index is empty for one route", (0.3, 0.7, 1.0), 0.7,
         "StreamMetricsSearchesEmpty", "PlainEmpty", ratio=_EMPTY),
)  # fmt: skip

_OF_AGENTS: Final = tuple(dict.fromkeys((k.name, k.strengths) for k in KINDS[:8]))
_LOOPS: Final = tuple((k.name, k.strengths) for k in KINDS[-2:])
_OF_ALL: Final = ("labeller_down", "labels_late", "consumer_stalled")


Planning = Callable[[Sequence[Agent], int, Generator], list[Incident]]
"""What goes wrong with agents over so many days; ``incidents``, or as it."""


def incidents(agents: Sequence[Agent], days: int, rng: Generator) -> list[Incident]:
    """Incidents over ``days``: one of everybody now and then, and of each agent in between."""
    of_all = list(_of_all(days, rng))
    found = list(of_all)
    for number, agent in enumerate(agents):
        if number % 7 == 6:
            found += _drifts(agent, days, rng)
            continue
        for incident in _of_agent(agent, days, rng, _OF_AGENTS):
            if not any(_near(incident, other) for other in of_all):
                found.append(incident)
    return found


def loops(agents: Sequence[Agent], days: int, rng: Generator) -> list[Incident]:
    """Loops and empty routes of each agent, in worlds of their own: the others stay as they are."""
    return [incident for agent in agents for incident in _of_agent(agent, days, rng, _LOOPS)]


def deploys(days: int, rng: Generator) -> list[Incident]:
    """Three new releases a week, each with half a minute in which nothing is read."""
    found = []
    for day in range(days):
        if day % 7 in (1, 2, 3):
            start_us = START_US + day * DAY + 9 * HOUR + int(rng.integers(0, 8 * HOUR))
            start_us -= start_us % MINUTE - 15_000_000
            found.append(Incident("deploy", None, start_us, start_us + MINUTE // 2))
    return found


def _of_all(days: int, rng: Generator) -> Iterator[Incident]:
    kinds = [str(kind) for kind in rng.permutation(_OF_ALL)]
    for at, day in enumerate(range(WARM_UP_DAYS, days - 1, 2)):
        kind = kinds[at % len(kinds)]
        start_us = START_US + day * DAY + int(rng.integers(8 * HOUR, 16 * HOUR))
        lasts_us = 45 * MINUTE if kind == "consumer_stalled" else 2 * HOUR
        strength = 0.5 if kind == "labels_late" else 1.0
        yield Incident(kind, None, start_us, start_us + lasts_us, strength)


def _of_agent(
    agent: Agent, days: int, rng: Generator, kinds: Sequence[tuple[str, tuple[float, ...]]]
) -> Iterator[Incident]:
    """One after the other, each a day and more after the last, mostly where there is traffic."""
    free_us = START_US + WARM_UP_DAYS * DAY
    while free_us < START_US + (days - 1) * DAY:
        starts_us = free_us + _SLOT_US * np.arange(_WITHIN_US // _SLOT_US)
        weights = busyness(starts_us) + 0.05
        start_us = int(rng.choice(starts_us, p=weights / weights.sum()))
        start_us += int(rng.integers(0, _SLOT_US))
        name, strengths = kinds[int(rng.integers(len(kinds)))]
        strength = float(rng.choice(strengths))
        yield Incident(name, agent.name, start_us, start_us + LASTS_US, strength)
        free_us = start_us + _APART_US


def _drifts(agent: Agent, days: int, rng: Generator) -> Iterator[Incident]:
    """Three days of drift, from the ninth day on, so that a week before was healthy."""
    for day in range(8, days - 3, 12):
        start_us = START_US + day * DAY + int(rng.integers(0, 12 * HOUR))
        yield Incident("drift", agent.name, start_us, start_us + 3 * DAY, 0.6)


def _near(one: Incident, other: Incident) -> bool:
    return one.start_us < other.end_us + 4 * HOUR and other.start_us < one.end_us + 4 * HOUR
