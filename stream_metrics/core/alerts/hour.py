"""What is usual of figures in the windows of the page, by the time of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import BILLIONTHS
from stream_metrics.core.alerts.figures import Figure
from stream_metrics.core.alerts.shifts import Usual

LEAST_PARTS: Final = 5  # with traffic in the usual day; without them nothing is usual
OUTLYING: Final = 25.0  # variances: squared, how far a part of the day may be from the others
LEFT_OUT: Final = 0.25  # of the day's traffic at most
MEDIAN_SQUARE: Final = 0.455  # the median of the square of a normal variable of variance 1

Counts = Mapping[str, int]


class Part(NamedTuple):
    """What a stretch of time adds to the numerator and the denominator of a figure."""

    above: float
    below: float


def parts(figure: Figure, counts: Iterable[Counts]) -> list[Part]:
    """The numerator and the denominator of a figure in each stretch of time."""
    unit = 1e-9 if figure.below in BILLIONTHS else 1
    return [Part(unit * c.get(figure.above, 0), unit * c.get(figure.below, 0)) for c in counts]


def label_parts(counts: Iterable[Counts]) -> list[Part]:
    """Documents with a label, of all, in each stretch of time."""
    return [Part(c.get("labelled_results", 0), c.get("unique_results", 0)) for c in counts]


def ratio_of(found: Iterable[Part]) -> float | None:
    """The ratio over all parts, None without traffic."""
    above = below = 0.0
    for part in found:
        above += part.above
        below += part.below
    return above / below if below > 0 else None


def active(day: Iterable[Part]) -> int:
    """How many parts have traffic."""
    return sum(part.below > 0 for part in day)


def usual(figure: Figure, day: Sequence[Part]) -> Usual | None:
    """What is usual in the parts of a day; None if too few of them have traffic.

    Parts that lie far from the others are left out, if they are few. Yesterday's incident is not
    usual, and would make the variance so large that the same is hardly noticed today.
    """
    there = kept = [part for part in day if part.below > 0]
    if len(there) < LEAST_PARTS:
        return None
    ratio = _median((above / below, below) for above, below in there)
    squares = _median((_square(part, ratio), part.below) for part in there)
    near = _with_floor(figure, ratio, squares / MEDIAN_SQUARE)
    kept = there
    for _ in range(2):
        kept = [part for part in there if _square(part, near.ratio) <= OUTLYING * near.variance]
        near = _of_parts(figure, kept)
    few = sum(part.below for part in kept) >= (1 - LEFT_OUT) * sum(part.below for part in there)
    return near if few else _of_parts(figure, there)


def _of_parts(figure: Figure, found: Sequence[Part]) -> Usual:
    """What is usual if all of these parts are."""
    below = sum(part.below for part in found)
    ratio = sum(part.above for part in found) / below
    squares = sum(part.below * _square(part, ratio) for part in found)
    return _with_floor(figure, ratio, squares / below)


def _square(part: Part, ratio: float) -> float:
    """How far a part is from a ratio, squared, for each unit of the denominator."""
    return (part.above - ratio * part.below) ** 2 / part.below


def _with_floor(figure: Figure, ratio: float, variance: float) -> Usual:
    """A ratio with its variance, or the least one that is assumed."""
    assumed = Usual(ratio, variance).assumed(figure)
    least = figure.model.floor(assumed) if figure.model else assumed * (1 - assumed)
    return Usual(ratio, max(variance, least))


def _median(weighted: Iterable[tuple[float, float]]) -> float:
    """The median of values with weights.

    >>> _median([(1.0, 1.0), (2.0, 1.0), (9.0, 3.0)])
    9.0
    """
    ordered = sorted(weighted)
    left = sum(weight for _, weight in ordered) / 2
    for value, weight in ordered:
        left -= weight
        if left <= 0:
            return value
    return ordered[-1][0]
