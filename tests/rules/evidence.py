"""Agents whose counters Prometheus' rules turn into evidence, and what numpy makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from stream_metrics.core.alerts.arrivals import COUNTS
from stream_metrics.core.alerts.evidence import SHIFTS
from stream_metrics.core.alerts.figures import FIGURES, Figure
from tests.drill.evidence import Reals, accumulate, steps
from tests.drill.gather import evidence, weights
from tests.rules.cases import JOB, Series, name

MINUTES: Final = 420
LOOKBACK: Final = 5  # minutes for which Prometheus takes an old sample for the present one
EXPECTED: Final = "expected_evidence"
CALM: Final = {
    "srr": 0.25, "found": 1.0, "sre": 0.3, "gain": 5.0, "missed": 0.05, "wrong": 0.08, "shown": 1.1,
    "repeated": 0.05, "empty": 0.03,
}  # fmt: skip
BAD: Final = {
    "srr": 0.55, "found": 0.2, "sre": 0.08, "gain": 0.5, "missed": 0.6, "wrong": 0.5, "shown": 0.8,
    "repeated": 0.5, "empty": 0.5,
}  # fmt: skip


def traffic(seed: int, rate: float, figures: Mapping[str, float] = CALM) -> dict[str, Reals]:
    """What every count gains by minute from turns that come at random; labels come later."""
    rng = np.random.default_rng(seed)
    turns = rng.poisson(rate, MINUTES)
    returned = np.array([rng.integers(10, 60, n).sum() for n in turns])
    results = (figures["found"] * returned).astype(int)
    settled, later = np.roll(results, 2), np.roll(turns, 2)
    settled[:2] = later[:2] = 0
    found = {
        "duplicate_results": rng.binomial(results, figures["srr"]),
        "results": results,
        "searches": 3 * turns,
        "settled_good_results": rng.binomial(settled, figures["sre"]),
        "settled_results": settled,
        "settled_gain": rng.poisson(figures["gain"] * later),
        "settled_iterations": later,
        "missed_searches": rng.binomial(3 * turns, figures["missed"]),
        "labelled_gate_decisions": 3 * turns,
        "wrong_routes": rng.binomial(3 * turns, figures["wrong"]),
        "labelled_routes": 3 * turns,
        "rerank_ndcg_shown": turns * 2 * figures["shown"] * rng.uniform(0.9, 1.1, MINUTES),
        "rerank_ndcg_baseline": 2 * turns,
        "queried_searches": 3 * turns,
        "repeated_searches": rng.binomial(3 * turns, figures["repeated"]),
        "empty_searches": rng.binomial(3 * turns, figures["empty"]),
    }
    assert found.keys() == COUNTS.keys()
    return {count: values.astype(float) for count, values in found.items()}


def changed(calm: dict[str, Reals], minutes: slice, other: dict[str, Reals]) -> dict[str, Reals]:
    """``calm`` with some minutes of another course."""
    mixed = {count: values.copy() for count, values in calm.items()}
    for count, values in mixed.items():
        values[minutes] = other[count][minutes]
    return mixed


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent by minute, and how Prometheus sees its workers.

    ``workers``: the minutes in which each is scraped. ``missed``: minutes without samples, which
    Prometheus marks (True) or not. ``restarts`` of the first worker reset its counters.
    ``unlabelled``: minutes in which few documents of the last minutes have a label. ``label``
    names the agent, or the release.
    """

    claim: str
    arrived: Mapping[str, Reals]
    withdrawn: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    workers: Sequence[range] = (range(MINUTES),)
    missed: Mapping[int, bool] = field(default_factory=dict)
    restarts: Sequence[int] = ()
    unlabelled: range = range(0)
    label: tuple[str, str] = ("agent", "a")
    instances: str = "worker"

    def series(self, counts: Iterable[str] = COUNTS) -> Series:
        """Counters, by default all, and the share of documents with a label."""
        found: Series = {}
        named = dict([self.label])
        for number, scraped in enumerate(self.workers):
            of = {**JOB, "instance": f"{self.instances}-{number}:9464"}
            starts = [scraped.start, *(self.restarts if number == 0 else ())]
            boots = np.repeat(starts, np.diff([*starts, scraped.stop]))
            found[name("process_start_time_seconds", **of)] = self._samples(1_000 + boots, scraped)
            for way in ("arrived", "withdrawn"):
                for count in counts:
                    gained = self._gained(way, count)
                    total = np.concatenate(
                        [
                            # A counter begins at 0; one that was reset has what came since.
                            np.cumsum(gained[start:end]) - (gained[start] if not number_of else 0)
                            for number_of, (start, end) in enumerate(
                                pairwise([*starts, scraped.stop])
                            )
                        ]
                    )
                    series = name(f"streammetrics_{way}_{count}_total", **named, **of)
                    found[series] = self._samples(total, scraped)
        few = " ".join(str(20 if minute in self.unlabelled else 90) for minute in range(MINUTES))
        of = {**JOB, "instance": f"{self.instances}-0:9464", **named, "window": "1h"}
        found[name("streammetrics_window_labelled_results", **of)] = few
        found[name("streammetrics_window_unique_results", **of)] = f"100x{MINUTES - 1}"
        return found

    def _gained(self, way: str, count: str) -> Reals:
        if way == "arrived":
            return self.arrived[count]
        gained = np.zeros(MINUTES)
        for minute, value in self.withdrawn.get(count, {}).items():
            gained[minute] = value
        return gained

    def _samples(self, values: Reals, scraped: range) -> str:
        texts = ["_"] * MINUTES
        for minute, value in zip(scraped, values.tolist(), strict=True):
            texts[minute] = repr(float(value))
        for minute, marked in self.missed.items():
            texts[minute] = "stale" if marked else "_"
        if scraped.stop < MINUTES:
            texts[scraped.stop] = "stale"
        return " ".join(texts)

    def net(self, count: str) -> Reals:
        """What rules may see of a count by minute: NaN without a sample."""
        gained = self._gained("arrived", count) - self._gained("withdrawn", count)
        seen = np.zeros(MINUTES)
        for number, scraped in enumerate(self.workers):
            there = [minute for minute in scraped if minute not in self.missed]
            for before, now in pairwise(there):
                marked = any(self.missed[minute] for minute in range(before + 1, now))
                restarted = number == 0 and now in self.restarts
                if now - before <= LOOKBACK + 1 and not marked and not restarted:
                    seen[now] += gained[before + 1 : now + 1].sum()
        for minute, marked in self.missed.items():
            last = max(m for m in range(minute) if m not in self.missed)
            if marked or minute - last > LOOKBACK:
                seen[minute] = np.nan
        first = self.workers[0].start
        seen[:first] = np.nan
        return seen

    def evidence(self, figure: Figure, threshold: float) -> Reals:
        """The evidence of each shift in units of the threshold; NaN where nothing is judged."""
        above, below = self.net(figure.above), self.net(figure.below)
        unlabelled = np.isin(np.arange(MINUTES), self.unlabelled)
        return evidence(figure, above, below, threshold, unlabelled)

    def expected(self, thresholds: Mapping[str, float]) -> tuple[Series, Reals]:
        """What numpy finds, as series of ``EXPECTED``, and how many values a minute has."""
        found: Series = {}
        judged = np.zeros(MINUTES)
        for figure in FIGURES:
            gathered = self.evidence(figure, thresholds[figure.name])
            for size, values in zip(SHIFTS, gathered, strict=True):
                known = ~np.isnan(values)
                judged += known
                texts = [
                    repr(float(value)) if here else "stale" if before else "_"
                    for value, here, before in zip(
                        values, known, np.concatenate([[False], known]), strict=False
                    )
                ]
                series = name(EXPECTED, agent="a", figure=figure.name, shift=size, **JOB)
                found[series] = " ".join(texts)
        return found, judged


def pooled(agents: Sequence[Agent], figure: Figure, threshold: float) -> Reals:
    """The evidence of each shift about all agents of a pool, in units of the threshold."""
    above, below = (
        np.array([agent.net(count) for agent in agents]) for count in (figure.above, figure.below)
    )
    added = steps(above, below, weights(figure, above, below))
    unknown = np.isnan(added).all(axis=1)
    step = np.where(unknown, np.nan, np.nansum(added, axis=1))
    idle = np.broadcast_to(np.nansum(below, axis=0) <= 0, step.shape)
    return np.where(unknown, np.nan, accumulate(step, threshold, idle, figure.most) / threshold)


_QUIET: Final = traffic(2, 0.5)
_FORGOTTEN: Final = {
    "results": 2_000, "duplicate_results": 380, "searches": 100, "settled_results": 2_000,
    "settled_good_results": 640, "settled_iterations": 90, "settled_gain": 500,
    "labelled_gate_decisions": 100, "missed_searches": 2, "labelled_routes": 100,
    "wrong_routes": 6, "rerank_ndcg_shown": 110, "rerank_ndcg_baseline": 100,
    "queried_searches": 100, "repeated_searches": 5, "empty_searches": 3,
}  # fmt: skip
_ASLEEP: Final = {count: np.zeros(MINUTES) for count in COUNTS}

AGENTS: Final = (
    Agent("calm", traffic(1, 1.0)),
    Agent("a quiet agent with an incident",
          changed(_QUIET, slice(250, 320), traffic(22, 0.5, BAD))),
    Agent(
        "a missed scrape, a gap of 4 minutes and one of 7", traffic(3, 1.0),
        missed={200: True, **dict.fromkeys((*range(230, 234), *range(260, 267)), False)},
    ),
    Agent("restarts after which counters soon pass what they were", traffic(4, 1.0),
          restarts=(180, 182, 240)),
    Agent("a usual ratio of 0", traffic(5, 1.0, dict.fromkeys(CALM, 0.0))),
    Agent("2,000 healthy results are forgotten", traffic(6, 1.0),
          withdrawn={count: {220: float(value)} for count, value in _FORGOTTEN.items()}),
    Agent(
        "late labels take evidence back",
        changed(_QUIET, slice(250, 290), traffic(22, 0.5, BAD)),
        withdrawn={"duplicate_results": {292: 150.0}, "missed_searches": {292: 8.0},
                   "wrong_routes": {292: 8.0}},
    ),
    Agent("a rebalance moves all to another worker", traffic(7, 1.0),
          workers=(range(210), range(208, MINUTES))),
    Agent(
        "an agent with an incident goes to sleep",
        changed(changed(traffic(8, 0.6), slice(240, 300), traffic(28, 0.6, BAD)),
                slice(300, MINUTES), _ASLEEP),
    ),
    Agent("a new agent is not judged", traffic(9, 1.0), workers=(range(240, MINUTES),)),
    Agent("labels stay away", changed(_QUIET, slice(250, 320), traffic(22, 0.5, BAD)),
          unlabelled=range(250, 320)),
    Agent("labels stay away in the middle of an incident",
          changed(_QUIET, slice(220, MINUTES), traffic(22, 0.5, BAD)), unlabelled=range(270, 390)),
)  # fmt: skip
