"""Evidence that a figure has shifted within the last hour, from sums by the time of the search.

Prometheus gathers the same evidence from what arrives, without an end (``evidence.py``). Windows
put everything at the time of its search, and correct it there when a label comes. The sixty minutes
of the last hour are therefore gone through again, from no evidence on, whenever somebody asks:
nothing needs to be kept, and a late label counts in the minute of its search.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import BILLIONTHS
from stream_metrics.core.alerts.evidence import IDLE_LOSES
from stream_metrics.core.alerts.figures import LOW, Figure, Shift
from stream_metrics.core.alerts.promql import clamp

LEAST_ACTIVE: Final = 5  # parts with traffic in the usual day; without them nothing is judged
OUTLYING: Final = 25.0  # variances: squared, how far a part of the day may be from the others
LEFT_OUT: Final = 0.25  # of the day's traffic at most
MEDIAN_SQUARE: Final = 0.455  # the median of the square of a normal variable of variance 1
LABELLED: Final = 0.7  # of the usual share: with fewer labels, a minute only lowers evidence
AROUND: Final = 2  # minutes before and after one whose labels count with its own

Counts = Mapping[str, int]


class Part(NamedTuple):
    """What a stretch of time adds to the numerator and the denominator of a figure."""

    above: float
    below: float


class Usual(NamedTuple):
    """The usual ratio, and the variance of the numerator for each unit of the denominator."""

    ratio: float
    variance: float

    def assumed(self, figure: Figure) -> float:
        """The usual ratio as evidence takes it: neither 0 nor, for a share, 1."""
        return float(clamp(self.ratio, LOW, figure.high))


class Evidence(NamedTuple):
    """Evidence of a shift, in units of the threshold, and for how many minutes it is above 0."""

    value: float
    minutes: int


class Step(NamedTuple):
    """What a minute adds to evidence, and whether it had anything that can be judged."""

    value: float
    judged: bool


@dataclass(frozen=True, slots=True)
class Noticed:
    """The least traffic in which a shift is noticed: ``below`` of the denominator, at ``ratio``."""

    below: float
    ratio: float


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
    if len(there) < LEAST_ACTIVE:
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


def steps(
    figure: Figure,
    shift: Shift,
    known: Usual,
    hour: Sequence[Part],
    threshold: float,
    unlabelled: Collection[int] = (),
) -> list[Step]:
    """What each minute of the hour adds to the evidence of a shift, in units of ``threshold`` nats.

    ``unlabelled`` are the minutes in which labels are missing: evidence may only fall in these, and
    grows old as in minutes without traffic.
    """
    above, below = figure.weights(shift, known.assumed(figure), known.variance)
    course = []
    for minute, part in enumerate(hour):
        judged = minute not in unlabelled
        value = (above * part.above + below * part.below) / threshold
        if not judged:
            value = min(value, 0.0)
        course.append(Step(value, judged and part.below > 0))
    return course


def together(agents: Iterable[Sequence[Step]]) -> list[Step]:
    """What each minute adds to the evidence about several agents together."""
    return [
        Step(sum(step.value for step in minute), any(step.judged for step in minute))
        for minute in zip(*agents, strict=True)
    ]


def gathered(figure: Figure, added: Iterable[Step]) -> list[float]:
    """The evidence after each minute, at most 2; a minute changes it within the figure's limit."""
    values, value = [], 0.0
    for step in added:
        kept = value if step.judged else (1 - IDLE_LOSES) * value
        value = clamp(kept + clamp(step.value, -figure.most, figure.most), 0.0, 2.0)
        values.append(value)
    return values


def latest(values: Sequence[float]) -> Evidence:
    """The evidence after the last minute.

    >>> latest([0.0, 0.4, 0.0, 0.3, 0.7])
    Evidence(value=0.7, minutes=2)
    """
    minutes = 0
    while minutes < len(values) and values[-1 - minutes] > 0:
        minutes += 1
    return Evidence(values[-1] if values else 0.0, minutes)


def noticed(figure: Figure, known: Usual, threshold: float) -> Noticed | None:
    """The least traffic in which a shift raises evidence to its threshold, on average.

    None if the usual ratio is so near to its end that it cannot shift far enough.
    """
    usual_ratio, found = known.assumed(figure), []
    for shift in figure.shifts:
        above, below = figure.weights(shift, usual_ratio, known.variance)
        ratio = clamp(usual_ratio + figure.sign * shift.size(usual_ratio), 0.0)
        if figure.sign > 0:
            ratio = min(ratio, 1.0 if figure.model else figure.high)
        gained = above * ratio + below
        if gained > 0:
            found.append(Noticed(threshold / gained, ratio))
    return min(found, key=lambda each: each.below, default=None)


def waits_for_labels(figure: Figure) -> bool:
    """Whether a minute says something else of a figure before most of its labels have come.

    What the first labels say of a reranked search, later ones correct. By arrival, both are added
    up; by the time of the search, the last minutes are always half labelled.
    """
    return figure.labelled or figure.name == "reranking"


def unlabelled_minutes(hour: Sequence[Counts], share: float) -> frozenset[int]:
    """The minutes around which far fewer documents have a label than ``share``, the usual one.

    Iterations that need no label are settled at once, and are not like the others.
    """
    labels = label_parts(hour)
    return frozenset(
        minute
        for minute in range(len(labels))
        if (came := ratio_of(labels[max(0, minute - AROUND) : minute + AROUND + 1])) is not None
        and came < LABELLED * share
    )
