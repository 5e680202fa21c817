"""Confidence intervals of a figure over units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, isfinite, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from stream_metrics.lab.choices import CONFIDENCE, METHODS, RESAMPLES, SEED, Method
from stream_metrics.lab.statistics.distributions import t_quantile
from stream_metrics.lab.statistics.sums import resampled_sums
from stream_metrics.lab.statistics.units import Floats, Units

TIE: Final = 1e-12


class Estimate(NamedTuple):
    """A figure with its interval; bounds are None for fewer than two units.

    ``mean`` is Σ sums ÷ Σ counts; for the method ``t``, it is the mean of the units' means, to
    which the interval applies. ``note`` is a remark on the interval, or None.
    """

    mean: float | None
    n: int
    units: int
    sd: float | None
    ci_low: float | None
    ci_high: float | None
    method: Method
    note: str | None = None


def estimate(
    units: Units,
    method: Method = "percentile",
    *,
    confidence: float = CONFIDENCE,
    resample_count: int = RESAMPLES,
    seed: int = SEED,
) -> Estimate:
    """A figure with its interval.

    Args:
        units: The values.
        method: ``percentile``: quantiles of the bootstrap, by linear interpolation. ``bca``: the
            same, corrected for bias and skewness (Efron, 1987). ``t``: Student's, of the units'
            means. ``wilson``: of a share of 0/1 values, one value per unit (Wilson, 1927).
        confidence: The confidence level.
        resample_count: The number of bootstrap resamples.
        seed: The seed of the random draws.

    Raises:
        ValueError: The method does not exist, the confidence is not between 0 and 1, or ``wilson``
            is requested for values other than 0 and 1.

    >>> estimate(Units.of_values([("a", 1.0), ("b", 0.0), ("c", 1.0)]), "wilson")[:6]
    (0.6666666666666666, 3, 3, 0.5773502691896258, 0.20765960080204776, 0.9385080552796037)
    """
    return _estimate(units, method, confidence, resample_count, seed)


def estimate_all(
    figures: Mapping[str, Units],
    *,
    confidence: float = CONFIDENCE,
    resample_count: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Estimate each figure with its percentile interval, as ``estimate`` does.

    Figures with the same number of units share their resamples.

    >>> units = Units.of_values([("a", 1.0), ("b", 0.0), ("c", 0.5)])
    >>> estimate_all({"one": units, "two": units})["two"] == estimate(units)
    True
    """
    by_size: dict[int, list[str]] = {}
    for name, units in figures.items():
        by_size.setdefault(units.size, []).append(name)
    found = {}
    for size, names in by_size.items():
        drawn: list[Floats | None] = [None] * len(names)
        if size >= 2:
            drawn[:] = _resampled_together(
                [figures[name] for name in names], resample_count, seed, 0
            )
        for name, values in zip(names, drawn, strict=True):
            units = figures[name]
            found[name] = _estimate(units, "percentile", confidence, resample_count, seed, values)
    return {name: found[name] for name in figures}


def _estimate(
    units: Units,
    method: Method,
    confidence: float,
    resample_count: int,
    seed: int,
    figures: Floats | None = None,
) -> Estimate:
    """``estimate``, optionally from figures that are already resampled."""
    if method not in METHODS:
        raise ValueError(f"no interval is called {method!r}; there are {', '.join(METHODS)}")
    mean = units.figure
    if method == "t" and units.keys:
        mean = fsum(units.means) / units.size
    if units.size < 2:
        few = "fewer than two units" if units.size else "no values"
        return Estimate(mean, units.n, units.size, units.sd, None, None, method, few)
    tail = tail_of(confidence)
    if method == "wilson":
        low, high = _wilson(units, tail)
        return Estimate(mean, units.n, units.size, units.sd, low, high, method)
    note = _note(units, method)
    if method == "t":
        half = t_quantile(1 - tail, units.size - 1) * _standard_error(units)
        assert mean is not None
        return Estimate(mean, units.n, units.size, units.sd, mean - half, mean + half, method, note)
    drawn = resampled(units, resample_count, seed) if figures is None else figures
    tails = (tail, 1 - tail)
    if method == "bca" and note is None:
        corrected = _bca_tails(units, drawn, tail)
        if corrected is None:
            note = "BCa is undefined for these values: this is the percentile interval"
        tails = corrected or tails
    low, high = quantiles(drawn, tails)
    return Estimate(mean, units.n, units.size, units.sd, low, high, method, note)


def tail_of(confidence: float) -> float:
    """The probability below an interval, which equals that above it.

    Raises:
        ValueError: The confidence is not between 0 and 1.

    >>> tail_of(0.95)
    0.025
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: it must be between 0 and 1, as in 0.95")
    return round((1 - confidence) / 2, 15)


def percentile_interval(figures: Floats, confidence: float) -> tuple[float, float]:
    """The percentile interval of resampled figures."""
    tail = tail_of(confidence)
    return quantiles(figures, (tail, 1 - tail))


def quantiles(figures: Floats, shares: tuple[float, float]) -> tuple[float, float]:
    """Two quantiles of the figures, by linear interpolation."""
    low, high = np.quantile(figures, shares)
    return float(low), float(high)


def resampled(units: Units, count: int, seed: int = SEED, stream: int = 0) -> Floats:
    """The figure in each resample."""
    return _resampled_together([units], count, seed, stream)[0]


def _resampled_together(
    several: Sequence[Units], count: int, seed: int, stream: int
) -> list[Floats]:
    """The same for several figures with the same number of units."""
    below = [b"" if units.single else units.counts.tobytes() for units in several]
    others = {key: units.counts for key, units in zip(below, several, strict=True) if key}
    columns = [*(units.sums for units in several), *others.values()]
    above = resampled_sums(columns, count, seed=seed, stream=stream)
    counts: dict[bytes, int | Floats] = {b"": several[0].size}
    counts.update(zip(others, above[len(several) :], strict=True))
    return [sums / counts[key] for sums, key in zip(above, below, strict=False)]


def _note(units: Units, method: Method) -> str | None:
    means = units.means
    if (means != means[0]).any():
        if method == "t" and units.binary and units.single:
            return "the values are 0 and 1: the Wilson interval covers the true share more often"
        return None
    if units.binary and units.single:
        return "all values are equal, so the interval has no width; the Wilson interval has one"
    return "all values are equal, so the interval has no width"


def _standard_error(units: Units) -> float:
    means = units.means.tolist()
    middle = fsum(means) / len(means)
    return sqrt(fsum((one - middle) ** 2 for one in means) / (len(means) - 1) / len(means))


def _bca_tails(units: Units, figures: Floats, tail: float) -> tuple[float, float] | None:
    """The corrected tail probabilities; None if bias or skewness are undefined."""
    point = fsum(units.sums) / fsum(units.counts)
    # A resample equal to the point estimate counts half; rounding must not move it to either side.
    near = TIE * max(1.0, abs(point))
    below = (int((figures < point - near).sum()) + int((figures <= point + near).sum())) / 2
    below /= len(figures)
    left_out = (fsum(units.sums) - units.sums) / (fsum(units.counts) - units.counts)
    off = left_out.mean() - left_out
    scale = float((off**2).sum()) ** 1.5
    if not 0 < below < 1 or scale <= 1e-300:
        return None
    acceleration = float((off**3).sum()) / (6 * scale)
    normal = NormalDist()
    bias = normal.inv_cdf(below)
    tails = []
    for z in (normal.inv_cdf(tail), normal.inv_cdf(1 - tail)):
        tails.append(normal.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))))
    return (tails[0], tails[1]) if all(isfinite(one) for one in tails) else None


def _wilson(units: Units, tail: float) -> tuple[float, float]:
    if not (units.binary and units.single):
        raise ValueError("the Wilson interval needs values 0 and 1, one per unit; choose another")
    n, share = units.size, fsum(units.sums) / units.size
    z2 = NormalDist().inv_cdf(tail) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)
