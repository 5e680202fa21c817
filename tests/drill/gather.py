"""The evidence about many agents at every minute, as the reference in numpy has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.alerts.calibration import FALSE_ALARMS, threshold
from stream_metrics.core.alerts.figures import FIGURES, LOW, Figure
from stream_metrics.core.alerts.thresholds import JUDGED_OF_USUAL
from tests.drill.evidence import (
    AGO,
    DAY,
    Reals,
    Weights,
    accumulate,
    bernoulli_weights,
    normal_weights,
    steps,
    usual,
)

ALERT_OF: Final[Mapping[str, str]] = {
    "srr": "SRRSpike",
    "results": "StreamMetricsResultsDrop",
    "sre": "StreamMetricsEfficiencyDrop",
    "gain": "StreamMetricsGainDrop",
    "missed_searches": "StreamMetricsRetrievalMissed",
    "wrong_routes": "StreamMetricsRoutingAccuracyDrop",
    "reranking": "StreamMetricsRerankingWorse",
    "repeated_searches": "StreamMetricsSearchesRepeated",
    "empty_searches": "StreamMetricsSearchesEmpty",
}
IN_USE: Final = {figure.name: threshold(figure.name, FALSE_ALARMS) for figure in FIGURES}
"""The thresholds of the rules, in nats."""
LATELY: Final = (10, 30)
KEEP: Final = 10  # minutes that an alert keeps firing
ENOUGH_PERIODS: Final = 6  # of five minutes in the usual day, with documents
Flags = NDArray[np.bool_]


def weights(figure: Figure, above: Reals, below: Reals) -> Weights:
    """The weights for each shift (the first axis), for agents and minutes."""
    model = figure.model
    if model is None:
        ratio = usual(above, below, LOW, figure.high).ratio
        found = [
            bernoulli_weights(
                ratio, np.minimum(ratio + np.maximum(shift.times * ratio, shift.least), figure.high)
            )
            for shift in figure.shifts
        ]
    else:
        floor = (model.times, float(model.power), float(model.complement))
        known = usual(above, below, LOW, figure.high, floor)
        found = [
            normal_weights(known, figure.sign, shift.times, shift.least) for shift in figure.shifts
        ]
    return Weights(*map(np.stack, zip(*found, strict=True)))


def evidence(
    figure: Figure,
    above: Reals,
    below: Reals,
    threshold: float | Reals,
    unlabelled: Flags | None = None,
    weighed: Weights | None = None,
) -> Reals:
    """The evidence for each shift, in units of the threshold; NaN where nothing is judged.

    ``above`` and ``below`` are what the counts gained, by agent and minute, NaN without a sample.
    Thresholds may be many, along a first axis of their own. ``unlabelled`` are minutes in which
    labels are missing, ``weighed`` the weights if they are known.
    """
    step, found, of_thresholds = _gathered(
        figure, above, below, threshold, unlabelled, weighed or weights(figure, above, below)
    )
    return np.where(np.isnan(step), np.nan, found / of_thresholds)


def reached(
    figure: Figure, above: Reals, below: Reals, thresholds: Reals, unlabelled: Flags,
    weighed: Weights,
) -> Flags:  # fmt: skip
    """Whether the evidence for each shift exceeds each threshold, the first axis."""
    step, found, of_thresholds = _gathered(figure, above, below, thresholds, unlabelled, weighed)
    return np.ascontiguousarray(found > of_thresholds) & ~np.isnan(step)


def _gathered(
    figure: Figure, above: Reals, below: Reals, threshold: float | Reals,
    unlabelled: Flags | None, weighed: Weights,
) -> tuple[Reals, Reals, Reals]:  # fmt: skip
    """What each minute adds, and the evidence in nats; thresholds with as many axes."""
    of_thresholds = np.reshape(threshold, np.shape(threshold) + (1,) * above.ndim)
    missing = unlabelled if figure.labelled else None
    step = steps(above, below, weighed, missing)
    idle = below <= 0 if missing is None else (below <= 0) | missing
    found = accumulate(step, of_thresholds, np.broadcast_to(idle, step.shape), figure.most)
    return step, found, of_thresholds[..., None]


def lately(below: Reals) -> Flags:
    """Whether traffic came in the last ten or the last thirty minutes; else no alert is active."""
    sums = np.cumsum(np.nan_to_num(below), axis=-1)
    found = np.zeros(below.shape, np.bool_)
    for minutes in LATELY:
        before = np.concatenate([np.zeros((*sums.shape[:-1], minutes)), sums], axis=-1)
        found |= sums > before[..., : sums.shape[-1]]
    return found


def are_unlabelled(labelled: Reals, unique: Reals) -> Flags:
    """The minutes in which few documents of the last hour have a label, by agent.

    Both are sums of an hour; NaN without a sample. Few are less than a share of what is usual
    so soon after the search; without a usual share, labels are not known to come either.
    """
    found = unique > 0
    usual = usual_share(labelled, unique)
    return ~(found & (labelled / np.where(found, unique, 1.0) > JUDGED_OF_USUAL * usual))


def usual_share(labelled: Reals, unique: Reals) -> Reals:
    """By minute, the share of the last day, as of an hour ago; NaN with too few periods."""
    some = (unique > 0) & (np.arange(unique.shape[-1]) % 5 == 0)
    known = closed_day(some * 1.0) >= ENOUGH_PERIODS
    return np.where(known, closed_day(labelled) / np.maximum(closed_day(unique), 1.0), np.nan)


def closed_day(values: Reals) -> Reals:
    """By minute, the sum over a day that ends an hour ago; both of its ends count."""
    sums = np.cumsum(np.nan_to_num(values), axis=-1)
    sums = np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)
    ends = np.arange(values.shape[-1]) - AGO + 1
    return np.asarray(sums[..., np.maximum(ends, 0)] - sums[..., np.maximum(ends - DAY - 1, 0)])


def alarms(active: Flags, pending: int = 0, keep: int = KEEP) -> Flags:
    """The minutes in which an alert begins to fire, from those in which its condition holds.

    Of ``pending`` and ``keep``, one has to be 0.
    """
    fires = _all_of_last(active, pending + 1) & (np.arange(active.shape[-1]) >= pending)
    before = np.roll(fires, 1, axis=-1)
    before[..., 0] = False
    return fires & _all_of_last(~before, keep + 1)


def _all_of_last(flags: Flags, minutes: int) -> Flags:
    """Whether something held in each of so many minutes; none but the first looks further back."""
    missed = np.cumsum(~flags, axis=-1)
    earlier = np.concatenate(
        [np.zeros((*flags.shape[:-1], minutes), missed.dtype), missed], axis=-1
    )[..., : flags.shape[-1]]
    return np.asarray(missed == earlier)


FIGURE_OF: Final = {ALERT_OF[figure.name]: figure for figure in FIGURES}
