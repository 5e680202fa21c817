"""What the rules of evidence and fixed thresholds make of a simulated world.

Alerts go by what a worker tells, by the worker's own code. Operating curves have hundreds of
thresholds, for which the reference in numpy finds the same at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from stream_metrics.core.alerts.figures import BY_NAME, FIGURES, Figure
from stream_metrics.core.alerts.thresholds import RERANKED_SEARCHES, RERANKING
from tests.drill.evaluation import Firing, Rule, firings
from tests.drill.evidence import Reals, Weights
from tests.drill.gather import (
    ALERT_OF,
    IN_USE,
    KEEP,
    Flags,
    alarms,
    are_unlabelled,
    lately,
    reached,
    weights,
)
from tests.drill.minutes import LABELS, net
from tests.drill.plan import KINDS
from tests.drill.simulation import World
from tests.drill.told import counts_of, steps, without_labels
from tests.drill.told import evidence as told_evidence
from tests.drill.world import MINUTE, START_US

RATIO_OF: Final = {kind.alert: kind.ratio for kind in KINDS if kind.ratio is not None}
_AT_ONCE: Final = 8  # thresholds, for the sake of memory
RISES: Final = (
    "srr",
    "missed_searches",
    "repeated_searches",
    "empty_searches",
)  # others are worse if the ratio of window sums falls


class Inputs(NamedTuple):
    """What a world has of a figure: by agent and minute, and the weights by shift too.

    ``may_fire``: whether there was traffic lately. ``fires_anyway``: whether a condition beside
    evidence holds.
    """

    above: Reals
    below: Reals
    unlabelled: Flags
    weighed: Weights
    may_fire: Flags
    fires_anyway: Flags

    def reached(self, figure: Figure, thresholds: Reals) -> Flags:
        """Whether evidence has reached each threshold, by shift, agent and minute."""
        return reached(figure, self.above, self.below, thresholds, self.unlabelled, self.weighed)


def inputs(world: World, figure: Figure) -> Inputs:
    """What the figure is judged by."""
    above, below, *labels = (
        np.stack([net(world.arrived[agent.name], count) for agent in world.agents])
        for count in (figure.above, figure.below, *LABELS)
    )
    unlabelled = are_unlabelled(*map(_of_hour, labels))
    never_better = _never_better(world) & (figure.name == "reranking")
    return Inputs(
        above, below, unlabelled, weights(figure, above, below), lately(below), never_better,
    )  # fmt: skip


def _of_hour(values: Reals) -> Reals:
    """By minute, the sum of the last hour."""
    sums = np.cumsum(values, axis=-1)
    before = np.concatenate([np.zeros((*sums.shape[:-1], 60)), sums], axis=-1)
    return np.asarray(sums - before[..., : sums.shape[-1]])


def told(world: World, thresholds: Mapping[str, float] = IN_USE) -> dict[str, Reals]:
    """The evidence that a worker tells of each figure, by shift, agent and minute."""
    found: dict[str, list[Reals]] = {figure.name: [] for figure in FIGURES}
    for agent in world.agents:
        counts = counts_of(world.arrived[agent.name])
        missing = without_labels(counts, world.minutes)
        for figure in FIGURES:
            nats = thresholds[figure.name]
            unlabelled = missing if figure.labelled else ()
            added = steps(figure, counts, world.minutes, nats, unlabelled)
            found[figure.name].append(told_evidence(figure, added))
    return {name: np.stack(of, axis=1) for name, of in found.items()}


def _shown(world: World, active: Flags) -> Flags:
    """What Prometheus sees in each minute of what holds in each minute of the log.

    While the consumer stands still, it is that of the minute before; while a process is new,
    nothing is told.
    """
    minutes = np.arange(world.minutes)
    for trouble in world.incidents:
        if trouble.kind == "consumer_stalled":
            start, end = (
                -((START_US - at_us) // MINUTE) for at_us in (trouble.start_us, trouble.end_us)
            )
            read = end + 1 + (end - start) // 20  # once the backlog is read
            minutes[start:read] = start - 1
    found = active[:, minutes]
    found[:, sorted(world.restarts)] = False
    return found


def _never_better(world: World) -> Flags:
    """Whether reranking has done harm for an hour, whatever is usual."""
    ratio, count = plain_ratio(world, BY_NAME["reranking"], "1h"), window_sum(world, "1h", ["kc"])
    harm = ratio < RERANKING - 4 * 0.25 / np.sqrt(np.maximum(count, 1))
    return harm & (count >= RERANKED_SEARCHES)


def judge(
    world: World, thresholds: Mapping[str, float] = IN_USE, page: float = 1.0
) -> tuple[list[Rule], list[Firing]]:
    """The alerts of evidence, and every time that one fires.

    ``thresholds`` are in nats, by figure. An alert pages if the evidence of the large shift is
    ``page`` times its threshold.
    """
    rules: list[Rule] = []
    found: list[Firing] = []
    gathered = told(world, thresholds)
    for figure in FIGURES:
        below = np.stack([net(world.arrived[agent.name], figure.below) for agent in world.agents])
        small, large = (
            _shown(world, lately(below) & (of_shift > least))
            for of_shift, least in zip(gathered[figure.name], (1, page), strict=True)
        )
        severities = {"warning": small | large}
        if figure.name == "reranking":
            severities["warning"] |= _never_better(world)
        if figure.pages:
            severities["critical"] = large
        for severity, active in severities.items():
            rules.append(Rule(ALERT_OF[figure.name], severity, "", 0, KEEP))
            found += fired(world, rules[-1], active)
    return rules, found


def fired(world: World, rule: Rule, holds: Flags) -> Iterator[Firing]:
    """The firings of a rule whose condition holds in these minutes, by agent."""
    for agent, active in zip(world.agents, holds, strict=True):
        yield from firings(rule, {"agent": agent.name}, np.flatnonzero(active).tolist())


def begun(world: World, figure: Figure, thresholds: Reals) -> Iterator[tuple[Flags, Flags]]:
    """For each threshold, the minutes in which the alert of evidence begins, by agent.

    First those of either shift, and then those of the large one alone.
    """
    of = inputs(world, figure)
    for part in np.array_split(thresholds, -(-len(thresholds) // _AT_ONCE)):
        begin = of.may_fire & of.reached(figure, part) | of.fires_anyway
        either: Flags = np.any(begin, axis=1)
        yield from zip(alarms(either), alarms(begin[:, -1]), strict=True)


class Plain(NamedTuple):
    """A fixed threshold for a ratio over a window, which has to hold for so many minutes."""

    window: str
    wait: int


def beyond(figure: Figure, ratio: Reals, threshold: float) -> Flags:
    """The minutes in which a ratio is worse than a fixed threshold."""
    return ratio > threshold if figure.name in RISES else ratio < threshold


def plain_begun(world: World, figure: Figure, plain: Plain, thresholds: Reals) -> Iterator[Flags]:
    """For each threshold, the minutes in which the alert begins, by agent."""
    ratio = plain_ratio(world, figure, plain.window)
    for threshold in thresholds.tolist():
        yield alarms(beyond(figure, ratio, threshold), plain.wait, 0)


def plain_ratio(world: World, figure: Figure, window: str) -> Reals:
    """The ratio of window sums, by agent and minute; NaN if there is nothing to divide by."""
    of = RATIO_OF[ALERT_OF[figure.name]]
    return quotient(*(window_sum(world, window, codes) for codes in of))


def quotient(above: Reals, below: Reals) -> Reals:
    """One by the other; NaN if there is nothing to divide by."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def window_sum(world: World, window: str, codes: Sequence[str]) -> Reals:
    """The sum of some codes by agent and minute; without a scrape, that of the minute before."""
    found = np.stack(
        [
            np.sum([world.sums[agent.name][window][code] for code in codes], axis=0, dtype=float)
            for agent in world.agents
        ]
    )
    missed = sorted(world.restarts)
    found[:, missed] = found[:, np.array(missed, np.int64) - 1]
    return found
