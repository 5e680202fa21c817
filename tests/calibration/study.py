"""The simulations, which resample many data sets at a time with the draws of the statistics.

All resamples are one matrix product with the counts of drawn units. The result equals ``estimate``
and ``significance`` for one data set at a time, as a test checks, and takes minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from stream_metrics.lab.choices import RESAMPLES, TEST_RESAMPLES, Method, Test
from stream_metrics.lab.statistics.comparison import TOLERANCE
from stream_metrics.lab.statistics.intervals import TIE
from stream_metrics.lab.statistics.resampling import resamples, swaps
from stream_metrics.lab.statistics.unpaired import UnpairedTest
from tests.calibration.shapes import Floats, Generator, Shape

Booleans = NDArray[np.bool_]
ALPHA: Final = 0.05
AT_A_TIME: Final = 2_000_000
"""Figures of resamples that are held at a time, of all data sets together."""

# What is promised, at how many units.
COVERAGE: Final = (0.93, 0.97)
COVERED_FROM: Final = 200
FALSE_POSITIVES: Final = 0.06
SOUND_FROM: Final = 20
SOUND_PLAIN_FROM: Final = 50

NAIVE: Final = "each search by itself"


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something happened in a number of simulations."""

    kind: Literal["coverage", "false positives"]
    shape: Shape
    n: int
    what: str
    rate: float
    simulations: int

    @property
    def error(self) -> float:
        """The standard error of the rate."""
        return float((self.rate * (1 - self.rate) / self.simulations) ** 0.5)


def missed(rate: Rate, errors: float = 0.0) -> bool:
    """Whether a rate misses its promise by more than ``errors`` standard errors.

    Nothing is promised of searches taken by themselves, of intervals of few units, of Student's
    interval for 0/1 values (Wilson's is for those), and of the plain bootstrap test of few units.
    """
    slack = errors * rate.error
    if rate.kind == "coverage":
        low, high = COVERAGE[0] - slack, COVERAGE[1] + slack
        wrong = rate.what == NAIVE or (rate.what == "t" and rate.shape.binary)
        return rate.n >= COVERED_FROM and not wrong and not low <= rate.rate <= high
    unsound = rate.what == "plain_bootstrap" and rate.n < SOUND_PLAIN_FROM
    return rate.n >= SOUND_FROM and not unsound and rate.rate > FALSE_POSITIVES + slack


def near(rate: Rate, errors: float = 2.5) -> bool:
    """Whether so many standard errors would decide if a rate is what is promised."""
    return missed(rate, -errors) and not missed(rate, errors)


class Data:
    """Sums and counts of many data sets: a row a unit, a column a data set."""

    def __init__(self, sums: Floats, counts: Floats) -> None:
        self.sums, self.counts = sums, counts
        self.n = len(sums)
        self.single = bool((counts == 1).all())
        self.means = sums / counts
        self.figure = sums.sum(axis=0) / counts.sum(axis=0)

    @property
    def flat(self) -> Booleans:
        """Data sets whose units are all equal."""
        return np.asarray((self.means == self.means[0]).all(axis=0))

    @property
    def columns(self) -> tuple[Floats, Floats]:
        """What is summed."""
        return self.sums, self.counts


def drawn(shape: Shape, generator: Generator, n: int, sets: int) -> Data:
    """Data sets of a shape."""
    sums, counts = shape.draw(generator, n * sets)
    return Data(sums.reshape(n, sets), counts.reshape(n, sets))


def drawn_pair(shape: Shape, generator: Generator, n: int, sets: int) -> tuple[Data, Data]:
    """Two systems that do not differ: in half of the units both have the same values, in the others
    each its own of the same distribution."""
    one, other = drawn(shape, generator, n, sets), drawn(shape, generator, n, sets)
    same = generator.random((n, sets)) < 0.5
    return one, Data(
        *(np.where(same, a, b) for a, b in zip(one.columns, other.columns, strict=True))
    )


@lru_cache(maxsize=4)
def weights(n: int, count: int, stream: int = 0) -> Floats:
    """How often each resample has each unit: a row a resample."""
    rows = np.concatenate(list(resamples(n, count, stream=stream)))
    places = rows + n * np.arange(count)[:, None]
    return np.bincount(places.ravel(), minlength=n * count).reshape(count, n).astype(np.float64)


# -- coverage ---------------------------------------------------------------------------------


def intervals(data: Data) -> dict[Method, tuple[Floats, Floats]]:
    """The bounds of 95% intervals of each data set, by method."""
    weight = weights(data.n, RESAMPLES)
    figures = (weight @ data.sums) / (weight @ data.counts)
    figures[:, data.flat] = data.figure[data.flat]
    ordered = np.sort(figures, axis=0)
    cut = np.full(len(data.figure), 0.025)
    tails = _bca_tails(data, figures)
    middle, n = data.means.mean(axis=0), data.n
    half = stats.t.ppf(0.975, n - 1) * data.means.std(axis=0, ddof=1) / n**0.5
    z2 = stats.norm.ppf(0.975) ** 2
    centre = (data.figure + z2 / (2 * n)) / (1 + z2 / n)
    reach = np.sqrt(np.maximum(z2 * (data.figure * (1 - data.figure) / n + z2 / (4 * n * n)), 0))
    reach /= 1 + z2 / n
    return {
        "percentile": (_quantile(ordered, cut), _quantile(ordered, 1 - cut)),
        "bca": (_quantile(ordered, tails[0]), _quantile(ordered, tails[1])),
        "t": (middle - half, middle + half),
        "wilson": (centre - reach, centre + reach),
    }


def _quantile(ordered: Floats, at: Floats) -> Floats:
    """Each column's quantile, by linear interpolation."""
    place = at * (len(ordered) - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, len(ordered) - 1)
    columns = np.arange(ordered.shape[1])
    below, above = ordered[low, columns], ordered[high, columns]
    return np.asarray(below + (above - below) * (place - low))


def _bca_tails(data: Data, figures: Floats) -> tuple[Floats, Floats]:
    near = TIE * np.maximum(1.0, np.abs(data.figure))
    below = (figures < data.figure - near).sum(axis=0) + (figures <= data.figure + near).sum(axis=0)
    share = below / (2 * len(figures))
    left_out = (data.sums.sum(axis=0) - data.sums) / (data.counts.sum(axis=0) - data.counts)
    off = left_out.mean(axis=0) - left_out
    scale = (off**2).sum(axis=0) ** 1.5
    defined = (share > 0) & (share < 1) & (scale > 1e-300) & ~data.flat
    acceleration = (off**3).sum(axis=0) / np.where(defined, 6 * scale, 1.0)
    bias = special.ndtri(np.where(defined, share, 0.5))
    tails = []
    for nominal in (0.025, 0.975):
        z = bias + special.ndtri(nominal)
        corrected = special.ndtr(bias + z / (1 - acceleration * z))
        tails.append(np.where(defined, corrected, nominal))
    return tails[0], tails[1]


def _naive(data: Data) -> tuple[Floats, Floats]:
    """Student's interval over single 0/1 searches, as if they were independent."""
    n = data.counts.sum(axis=0)
    half = stats.t.ppf(0.975, n - 1) * np.sqrt(data.figure * (1 - data.figure) / (n - 1))
    return data.figure - half, data.figure + half


def coverage(shape: Shape, n: int, simulations: int) -> list[Rate]:
    """How often each interval contains the true figure."""
    generator = generator_of(shape, n, "coverage")
    held: dict[str, int] = {}
    for sets in _blocks(simulations, RESAMPLES):
        data = drawn(shape, generator, n, sets)
        found: dict[str, tuple[Floats, Floats]] = dict(intervals(data).items())
        if not shape.binary:
            del found["wilson"]
        if shape.clustered:
            del found["t"]  # it is about the mean of the conversations' means: another figure
            found[NAIVE] = _naive(data)
        for what, (low, high) in found.items():
            hits = int(((low <= shape.mean) & (shape.mean <= high)).sum())
            held[what] = held.get(what, 0) + hits
    return _rates("coverage", shape, n, held, simulations)


# -- tests ------------------------------------------------------------------------------------


def _p(statistics: Floats, observed: Floats) -> Floats:
    floor = np.abs(observed) - TOLERANCE * np.maximum(1.0, np.abs(observed))
    return np.asarray(((np.abs(statistics) >= floor).sum(axis=0) + 1) / (len(statistics) + 1))


def _errors(weight: Floats, sides: tuple[Data, ...]) -> tuple[Floats, Floats]:
    """Difference (or figure, of one side) and its standard error in each weighting of the units.

    The squared residuals of the ratios, summed, are a quadratic form in the sums of products. Of
    units with one value each only the squares of their differences are left of it.
    """
    n = sides[0].n
    if all(side.single for side in sides):
        values = sides[0].sums - sides[1].sums if len(sides) == 2 else sides[0].sums
        figure = weight @ values / n
        squares = weight @ values**2 - n * figure**2
        return figure, np.sqrt(np.maximum(squares, 0.0) / ((n - 1) * n))
    columns = [column for side in sides for column in side.columns]
    sums = [weight @ column for column in columns]
    factors, figure = [], np.zeros_like(sums[0])
    for side in range(len(sides)):
        sign, (above, below) = (-1) ** side, sums[2 * side : 2 * side + 2]
        figure += sign * above / below
        factors += [sign * n / below, -sign * n * above / below**2]
    squares = np.zeros_like(figure)
    for i, left in enumerate(columns):
        for j, right in enumerate(columns[: i + 1]):
            squares += (1 + (i != j)) * factors[i] * factors[j] * (weight @ (left * right))
    return figure, np.sqrt(np.maximum(squares, 0.0) / ((n - 1) * n))


def _studentised(distances: Floats, errors: Floats, scale: Floats) -> Floats:
    # Squares lose half of the digits, so that "no spread" is coarser here.
    none = errors <= 1e-7 * scale
    beyond = np.where(np.abs(distances) <= TOLERANCE * scale, 0.0, np.inf)
    return np.where(none, beyond, distances / np.where(none, 1.0, errors))


def paired_p(one: Data, other: Data, count: int = TEST_RESAMPLES) -> dict[Test, Floats]:
    """The p-value of each data set by each test of ``count`` draws; 1 where the data allow none."""
    n = one.n
    differences = one.means - other.means
    scale = np.abs(differences).max(axis=0)
    observed, error = (found[0] for found in _errors(np.ones((1, n)), (one, other)))
    figures, errors = _errors(weights(n, count), (one, other))
    error = np.where(error > 0, error, 1.0)
    change = np.concatenate(list(swaps(n, count))).astype(np.float64)
    above = one.sums.sum(axis=0) + change @ (other.sums - one.sums)
    below = one.counts.sum(axis=0) + change @ (other.counts - one.counts)
    both = [a.sum(axis=0) + b.sum(axis=0) for a, b in zip(one.columns, other.columns, strict=True)]
    swapped = above / below - (both[0] - above) / (both[1] - below)
    found: dict[Test, Floats] = {
        "bootstrap": _p(_studentised(figures - observed, errors, scale), observed / error),
        "plain_bootstrap": _p(figures - observed, observed),
        "permutation": _p(swapped, observed),
    }
    with np.errstate(all="ignore"):
        varied = ~(differences == differences[0]).all(axis=0)
        p = np.ones((2, len(scale)))
        p[0, varied] = stats.ttest_1samp(differences[:, varied], 0).pvalue
        p[1, varied] = stats.wilcoxon(differences[:, varied], zero_method="wilcox").pvalue
    found |= {"t": p[0], "wilcoxon": p[1]}
    return {test: np.where(varied, p, 1.0) for test, p in found.items()}


def unpaired_p(one: Data, other: Data, count: int = TEST_RESAMPLES) -> dict[UnpairedTest, Floats]:
    """The same of samples without shared units."""
    scale = np.maximum(np.abs(one.means).max(axis=0), np.abs(other.means).max(axis=0))
    sides = []
    for stream, side in enumerate((one, other)):
        at_once = _errors(np.ones((1, side.n)), (side,))
        sides.append((at_once, _errors(weights(side.n, count, stream), (side,))))
    observed = (sides[0][0][0] - sides[1][0][0])[0]
    error = np.hypot(sides[0][0][1], sides[1][0][1])[0]
    distances = sides[0][1][0] - sides[1][1][0] - observed
    errors = np.hypot(sides[0][1][1], sides[1][1][1])
    bootstrap = _p(_studentised(distances, errors, scale), observed / np.where(error > 0, error, 1))
    spread, both = ~(one.flat | other.flat), ~(one.flat & other.flat)
    welch, pooled = np.ones(len(scale)), np.ones(len(scale))
    a, b = one.means, other.means
    welch[spread] = stats.ttest_ind(a[:, spread], b[:, spread], equal_var=False).pvalue
    with warnings.catch_warnings():
        # scipy warns of a side without spread; the pooled variance has that of the other.
        warnings.simplefilter("ignore", RuntimeWarning)
        pooled[both] = stats.ttest_ind(a[:, both], b[:, both]).pvalue
    return {"bootstrap": np.where(spread, bootstrap, 1.0), "welch": welch, "pooled_t": pooled}


def false_positives(
    shape: Shape, n: int, simulations: int, resample_count: int = TEST_RESAMPLES
) -> list[Rate]:
    """How often each test finds a difference between two equal systems."""
    generator = generator_of(shape, n, "false positives")
    found: dict[str, int] = {}
    for sets in _blocks(simulations, resample_count):
        pair = drawn_pair(shape, generator, n, sets)
        for test, p in paired_p(*pair, resample_count).items():
            found[test] = found.get(test, 0) + int((p < ALPHA).sum())
    return _rates("false positives", shape, n, found, simulations)


def false_positives_unpaired(
    shape: Shape, n: int, simulations: int, resample_count: int = TEST_RESAMPLES
) -> list[Rate]:
    """The same for samples that share no units: n of one system, 2 n of the other."""
    generator = generator_of(shape, n, "unpaired")
    found: dict[str, int] = {}
    for sets in _blocks(simulations, resample_count):
        one, other = drawn(shape, generator, n, sets), drawn(shape, generator, 2 * n, sets)
        for test, p in unpaired_p(one, other, resample_count).items():
            found[test] = found.get(test, 0) + int((p < ALPHA).sum())
    return _rates("false positives", shape, n, found, simulations)


def _blocks(simulations: int, resample_count: int) -> Iterator[int]:
    """How many data sets to make at a time."""
    most = max(1, AT_A_TIME // resample_count)
    for start in range(0, simulations, most):
        yield min(most, simulations - start)


def _rates(
    kind: Literal["coverage", "false positives"],
    shape: Shape,
    n: int,
    counts: Mapping[str, int],
    simulations: int,
) -> list[Rate]:
    return [
        Rate(kind, shape, n, what, count / simulations, simulations)
        for what, count in counts.items()
    ]


def generator_of(shape: Shape, n: int, study: str) -> Generator:
    """The data of a study: other data for another shape, size or kind, the same every time."""
    words = f"{study} {shape.name} {n}".encode()
    return np.random.Generator(np.random.PCG64(list(words)))
