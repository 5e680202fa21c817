"""Agents by what arrives of them in each minute, and what a worker tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stream_metrics.core.alerts.arrivals import BILLIONTHS, COUNTS
from stream_metrics.core.alerts.calibration import FALSE_ALARMS, threshold
from stream_metrics.core.alerts.evidence import LEVEL, NOW, SHIFTS
from stream_metrics.core.alerts.figures import Figure
from stream_metrics.core.alerts.shifts import pooled
from tests.drill.evidence import Reals
from tests.drill.told import counts_of, evidence, ratios, steps, without_labels
from tests.rules.cases import JOB, Series, name

MINUTES: Final = 420
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
    """An agent by minute: what each count gains.

    ``unlabelled``: minutes in whose last hour few documents got a label. ``since``: its first
    minute. ``label`` names the agent, or the release.
    """

    arrived: Mapping[str, Reals]
    unlabelled: range = range(0)
    since: int = 0
    label: tuple[str, str] = ("agent", "a")

    def counts(self) -> dict[int, Mapping[str, int]]:
        """By minute, as state has them."""
        arrived = {
            count: np.rint(values * (1e9 if count in BILLIONTHS else 1)).astype(np.int64)
            for count, values in self.arrived.items()
        }
        labelled = np.full(MINUTES, 90)
        labelled[self.unlabelled] = 0
        documents = {"unique_results": np.full(MINUTES, 100), "labelled_results": labelled}
        found = counts_of({**arrived, **documents})
        return {minute: counts for minute, counts in found.items() if minute >= self.since}


def told(
    figure: Figure,
    agents: Iterable[Agent],
    pool: Iterable[str] = (),
    tellers: Sequence[tuple[str, range]] = (("worker-1", range(MINUTES)),),
) -> Series:
    """What workers tell of a figure of agents; some may be in a ``pool``.

    ``tellers`` are workers, each with the minutes in which it tells.
    """
    nats, pool = threshold(figure.name, FALSE_ALARMS), frozenset(pool)
    found: Series = {}
    added = {}
    for agent in agents:
        counts = agent.counts()
        missing = without_labels(counts, MINUTES) if figure.labelled else frozenset[int]()
        added[agent.label] = counts, steps(figure, counts, MINUTES, nats, missing)
    together = pooled(each for (_, who), (_, each) in added.items() if who in pool)
    of_pool = evidence(figure, together)
    for (kind, who), (counts, each) in added.items():
        values = evidence(figure, each)
        if who in pool:
            values = np.where(np.isnan(values), np.nan, np.fmax(values, of_pool))
        ratio = ratios(figure, counts, np.flatnonzero(~np.isnan(values[0])).tolist())
        of = {**JOB, kind: who, "figure": figure.name}
        for worker, tells in tellers:
            here = {**of, "instance": f"{worker}:9464"}
            found[name(NOW, **here)] = _samples(ratio, tells)
            for shift, of_shift in zip(SHIFTS, values.tolist(), strict=True):
                labels = {"direction": "up" if figure.sign > 0 else "down", "shift": shift}
                known = {minute: of_shift[minute] for minute in ratio}
                found[name(LEVEL, **here, **labels)] = _samples(known, tells)
    return found


def _samples(values: Mapping[int, float], tells: range) -> str:
    """As promtool reads them; Prometheus marks where a series ends."""
    known = [repr(values[m]) if m in values and m in tells else None for m in range(MINUTES)]
    return " ".join(
        value or ("stale" if before else "_")
        for before, value in zip([None, *known], known, strict=False)
    )
