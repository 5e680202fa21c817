"""Evidence that a ratio has shifted: the reference for the recursive rules, in numpy.

For one figure of one agent, minute by minute: ``a`` and ``b`` are what its numerator and its
denominator gained by arrival, less what was withdrawn. ``p`` is the usual ratio, that of the last
day without the last hour, and ``v`` the usual variance of ``a - p * b`` for each unit of ``b``.
A shift of the ratio by ``d`` in the direction ``sign`` makes ``a`` normal with the mean
``(p + sign * d) * b`` instead of ``p * b``. The logarithm of the likelihood ratio of the two is::

    x = d / v * (sign * (a - p * b) - d * b / 2)

and for decisions, which are right or wrong each for itself, that of two Bernoulli distributions.
Both are linear in ``a`` and ``b``. The evidence is the cumulative sum that never falls below 0,

    S = clamp(S + x, 0, 2 * h)

and an alert fires from the threshold ``h`` on. For some figures, x is first limited to between
``-m * h`` and ``m * h``: with likelihood ratios that are cut off on both sides, a test withstands a
few minutes that are like no other. Without a cap, S would take hours to come down after
an incident. In a minute in which more was withdrawn than arrived, x may only lower S: that an
erased conversation was better than usual is no sign that the others are worse. In a minute without
traffic, S keeps 99%: half of it is gone after 69 such minutes, so that an agent that goes to sleep
with an incident neither fires all night nor wakes up with old evidence. So it does in a minute in
which labels are missing, of a figure that needs them.

Sources: E. S. Page, Continuous inspection schemes, Biometrika 41, 1954; J. Shin, A. Ramdas and
A. Rinaldo, E-detectors, arXiv 2203.03532, which shows that a threshold of ``log(n)`` keeps the mean
time to a false alarm above n minutes if the likelihoods are right; P. J. Huber, A robust version of
the probability ratio test, Annals of Mathematical Statistics 36, 1965.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

DAY: Final = 1_440  # minutes
AGO: Final = 60  # minutes that the usual day ends before now
LEAST_ACTIVE: Final = 30  # minutes with traffic in the usual day; without them nothing is judged
STRADDLED: Final = 3  # minutes
KEPT: Final = 60  # minutes without a sample after which the evidence is forgotten
IDLE_KEEPS: Final = 0.99  # of the evidence, in a minute without traffic


class Usual(NamedTuple):
    """The usual ratio and variance by minute; NaN where the day has too little traffic."""

    ratio: Reals
    variance: Reals


class Weights(NamedTuple):
    """What a unit of the numerator and one of the denominator add to the evidence."""

    numerator: Reals
    denominator: Reals


def usual(
    numerator: Reals,
    denominator: Reals,
    low: float = 0.02,
    high: float = 0.98,
    floor: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Usual:
    """The usual ratio and variance, by minute (the last axis); NaN marks a minute without a sample.

    The ratio is kept between ``low`` and ``high``. The variance is that of sums of ``STRADDLED``
    minutes, because the results of a turn straddle minutes, and at least
    ``c * p**m * (1 - p)**n`` for ``floor = (c, m, n)``. It is not known before the residuals of
    ``LEAST_ACTIVE`` minutes of the day are, because it may be far above the floor.
    """
    above, below = _day(numerator), _day(denominator)
    active = _day(np.where(np.isnan(denominator), 0.0, denominator > 0))
    known = (below > 0) & (active >= LEAST_ACTIVE)
    ratio = np.where(known, np.clip(above / np.where(known, below, 1.0), low, high), np.nan)
    present = _day(np.where(np.isnan(denominator), 0.0, 1.0))
    mean = np.where(known, below, 1.0) / np.where(known, present, 1.0)
    times, power, complement = floor
    variance = times * ratio**power * (1 - ratio) ** complement
    residual = _summed(numerator, STRADDLED) - ratio * _summed(denominator, STRADDLED)
    variance = np.fmax(variance, _day_variance(residual) / (STRADDLED * mean))
    measured = _day(np.where(np.isnan(residual), 0.0, 1.0)) >= LEAST_ACTIVE
    return Usual(ratio, np.where(known & measured, variance, np.nan))


def normal_weights(of: Usual, sign: int, shift: float, least: float = 0.05) -> Weights:
    """The weights for a shift of ``shift`` times the usual ratio, or ``least`` if that is more."""
    delta = np.maximum(shift * of.ratio, least)
    unit = delta / of.variance
    return Weights(sign * unit, -unit * (sign * of.ratio + delta / 2))


def bernoulli_weights(ratio: Reals, shifted: Reals) -> Weights:
    """The weights for independent decisions whose share of hits moves to ``shifted``."""
    miss = np.log((1 - shifted) / (1 - ratio))
    return Weights(np.log(shifted / ratio) - miss, miss)


def steps(
    numerator: Reals,
    denominator: Reals,
    weights: Weights,
    unlabelled: NDArray[np.bool_] | None = None,
) -> Reals:
    """What each minute adds to the evidence; NaN where there is no sample or no usual value.

    ``unlabelled`` marks minutes in which labels are missing. As in one in which more was withdrawn
    than arrived, evidence may only fall then.
    """
    found = weights.numerator * numerator + weights.denominator * denominator
    lowers = denominator < 0 if unlabelled is None else (denominator < 0) | unlabelled
    return np.where(lowers, np.minimum(found, 0.0), found)


def accumulate(
    step: Reals,
    threshold: float | Reals,
    idle: NDArray[np.bool_] | None = None,
    limit: float = np.inf,
) -> Reals:
    """The evidence after each minute, for one agent or many (the last axis are the minutes).

    ``threshold`` may be an array too, of all axes but the last one. A minute adds or takes away
    ``limit`` times the threshold at most.
    In a minute whose step is NaN, the evidence stays what it was, for up to ``KEPT`` minutes.
    ``idle`` marks minutes in which nothing arrived on balance, or in which labels are missing: in
    these, evidence grows old.

    >>> accumulate(np.array([1.0, 2.0, -0.5, np.nan, 9.0, -20.0, 1.0]), threshold=3.0).tolist()
    [1.0, 3.0, 2.5, 2.5, 6.0, 0.0, 1.0]
    """
    known = ~np.isnan(step)
    minutes = np.arange(step.shape[-1])
    missing = minutes - np.maximum.accumulate(np.where(known, minutes, -1), axis=-1)
    keeps = np.where(missing >= KEPT, 0.0, 1.0)
    if idle is not None:
        keeps = np.where(known & idle, IDLE_KEEPS, keeps)
    shape = np.broadcast_shapes(step.shape[:-1], np.shape(threshold))
    found = np.empty((step.shape[-1], *shape))
    last, most = np.zeros(shape), 2 * np.asarray(threshold)
    if limit < np.inf:
        nats = limit * np.asarray(threshold)[..., None]
        step = np.clip(step, -nats, nats)
    by_minute = (
        np.ascontiguousarray(np.moveaxis(of, -1, 0)) for of in (keeps, np.nan_to_num(step))
    )
    for now, (keep, added) in enumerate(zip(*by_minute, strict=True)):
        last = np.minimum(np.maximum(last * keep + added, 0.0), most)
        found[now] = last
    return np.moveaxis(found, 0, -1)


def _day(values: Reals) -> Reals:
    """By minute, the sum over the usual day; minutes before the first and NaN count as 0."""
    sums = np.cumsum(np.nan_to_num(values), axis=-1)
    sums = np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)
    ends = np.arange(values.shape[-1]) - AGO + 1
    return np.asarray(sums[..., np.maximum(ends, 0)] - sums[..., np.maximum(ends - DAY, 0)])


def _summed(values: Reals, minutes: int) -> Reals:
    """By minute, the sum over so many before it; NaN if all of them are missing."""
    padded = np.concatenate([np.full((*values.shape[:-1], minutes), np.nan), values], axis=-1)
    before = np.lib.stride_tricks.sliding_window_view(padded[..., :-1], minutes, axis=-1)
    return np.where(np.isnan(before).all(axis=-1), np.nan, np.nansum(before, axis=-1))


def _day_variance(values: Reals) -> Reals:
    """By minute, the variance over the usual day of the values that are there; else NaN."""
    count = _day(np.where(np.isnan(values), 0.0, 1.0))
    count = np.where(count > 0, count, np.nan)
    return np.asarray(np.maximum(_day(values**2) / count - (_day(values) / count) ** 2, 0.0))
