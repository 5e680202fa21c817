"""Evidence that figures have shifted, from what has arrived in each minute.

Evidence is a cumulative sum in units of its threshold, by the formulas of
``tests/drill/evidence.py``. It begins at 0 ``WATCHED`` minutes ago, so that it follows from the
minutes of ``HORIZON`` alone: whoever reads these finds the same, in whatever order they were
filled, and nothing else has to be kept over a restart. It is that of an endless sum once that has
been at an end of its range in this time, and otherwise below it by what is left of older evidence.

Sums are of integers, so that they do not depend on where they began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import BILLIONTHS
from stream_metrics.core.alerts.evidence import IDLE_LOSES, LATELY, LEAST_ACTIVE
from stream_metrics.core.alerts.figures import LOW, STRADDLED, Figure
from stream_metrics.core.alerts.thresholds import JUDGED_OF_USUAL

DAY: Final = 1_440  # minutes
AGO: Final = 60  # minutes that the usual day ends before now
WATCHED: Final = 720  # minutes, from no evidence on
FORGOTTEN: Final = 60  # minutes without a usual value, after which no evidence is left
HORIZON: Final = WATCHED + 2 * (DAY + AGO - 1)
"""Minutes that evidence depends on: each has a usual day, whose minutes have one, too."""

_HOUR: Final = 60
_SPREAD: Final = 5  # minutes: documents of a day that has them in few of its parts tell no share
_LEAST_SPREAD: Final = 6
_FINE: Final = 1 << 40  # parts of a unit in which residuals are kept

Minutes = Mapping[int, Mapping[str, int]]
"""By the number of a minute, what it added to each count, less what it took back."""


class Added(NamedTuple):
    """What a minute adds to evidence, in units of the threshold.

    ``steps`` are those of a small and of a large shift; None where nothing is usual yet.
    ``traffic`` is what it has that can be judged.
    """

    steps: tuple[float, ...] | None
    traffic: int


class Usual(NamedTuple):
    """The usual ratio, and the variance of the numerator for each unit of the denominator."""

    ratio: float
    variance: float

    def assumed(self, figure: Figure) -> float:
        """The usual ratio as evidence takes it: neither 0 nor, for a share, 1."""
        return min(max(self.ratio, LOW), figure.high)

    def weights(self, figure: Figure) -> list[tuple[float, float]]:
        """What a unit of the numerator and of the denominator add, in nats, by shift."""
        assumed = self.assumed(figure)
        return [figure.weights(shift, assumed, self.variance) for shift in figure.shifts]


class Evidence(NamedTuple):
    """Evidence of a shift, in units of the threshold, and for how many minutes it is above 0."""

    value: float
    minutes: int


class Came(NamedTuple):
    """What a minute had of the numerator and the denominator, and whether that can be judged."""

    above: float
    below: float
    judged: bool


class Noticed(NamedTuple):
    """The least traffic in which a shift is noticed: ``below`` of the denominator, at ``ratio``."""

    below: float
    ratio: float


def span(counts: Minutes, now: int) -> range:
    """The minutes up to ``now`` that evidence depends on, from the first that has anything on."""
    oldest = now - HORIZON + 1
    return range(min((m for m in counts if oldest <= m <= now), default=now + 1), now + 1)


def added(figure: Figure, counts: Minutes, now: int, threshold: float) -> list[Added]:
    """What each of the last ``WATCHED`` minutes adds, from the first of ``span`` on.

    ``threshold`` is in nats.
    """
    return Watch(figure, threshold).added(counts, now)


class Watch:
    """What minutes add to the evidence about a figure of an agent; goes on where it was, if it can.

    If something of an earlier minute has changed, it begins anew. ``usual`` is what was usual in
    the last minute, ``active`` how many minutes of its usual day had traffic.
    """

    def __init__(self, figure: Figure, threshold: float) -> None:
        self._figure, self._threshold = figure, threshold
        self._unit = 1e-9 if figure.below in BILLIONTHS else 1.0
        self._begin(0)

    def _begin(self, first: int) -> None:
        self._first = first
        self._above: list[int] = []
        self._below: list[int] = []
        self._judged: list[bool] = []
        self._added: deque[Added] = deque(maxlen=WATCHED)
        self.usual: Usual | None = None
        self.active = 0
        self._day = _Day(self._figure, self._unit)

    def added(
        self, counts: Minutes, now: int, missing: Collection[int] | None = None
    ) -> list[Added]:
        """As the function of this name; ``missing`` is what ``unlabelled`` says, if it is known."""
        figure, minutes = self._figure, span(counts, now)
        if not figure.labelled:
            missing = ()
        elif missing is None:
            missing = unlabelled(counts, now)
        nothing: Mapping[str, int] = {}
        there = [counts.get(minute, nothing) for minute in minutes]
        above = [of.get(figure.above, 0) for of in there]
        below = [of.get(figure.below, 0) for of in there]
        judged = [minute not in missing for minute in minutes]
        done = self._done(minutes, above, below, judged)
        self._above, self._below, self._judged = above, below, judged
        for up, down, is_judged in zip(above[done:], below[done:], judged[done:], strict=True):
            self._add(up, down, is_judged)
        return list(self._added)[-len(minutes) :] if minutes else []

    def _done(
        self, minutes: range, above: Sequence[int], below: Sequence[int], judged: Sequence[bool]
    ) -> int:
        """How many of these minutes have been added; begins anew if they are not the same."""
        done = self._first + len(self._below) - minutes.start
        # From a whole horizon on, nothing depends on what was before it.
        same = minutes.start == self._first or len(minutes) == HORIZON
        # Labels of minutes that are not watched any more say nothing of the others.
        recent = done - max(0, len(minutes) - WATCHED)
        if (
            same
            and 0 < done <= len(below)
            and self._below[-done:] == below[:done]
            and self._above[-done:] == above[:done]
            and (recent <= 0 or self._judged[-recent:] == judged[done - recent : done])
        ):
            self._first = minutes.start
            return done
        self._begin(minutes.start)
        return 0

    def _add(self, above: int, below: int, judged: bool) -> None:
        self.usual, self.active = self._day.usual(), self._day.active
        self._day.add(above, below)
        steps = None
        if self.usual is not None:
            steps = _steps(
                self.usual.weights(self._figure),
                Came(self._unit * above, self._unit * below, judged),
                self._threshold,
            )
        self._added.append(Added(steps, below if judged else 0))

    def lately(self, minutes: int) -> list[Came]:
        """What came in the last minutes; fewer if there was nothing before."""
        came = zip(self._above, self._below, self._judged, strict=True)
        skipped = max(0, len(self._below) - minutes)
        return [
            Came(self._unit * above, self._unit * below, judged)
            for above, below, judged in islice(came, skipped, None)
        ]


def _steps(
    weights: Sequence[tuple[float, float]], came: Came, threshold: float
) -> tuple[float, ...]:
    """What a minute adds to evidence of each shift; less than nothing may have been withdrawn."""
    lowers = came.below < 0 or not came.judged
    nats = [up * came.above + down * came.below for up, down in weights]
    return tuple((min(each, 0.0) if lowers else each) / threshold for each in nats)


def pooled(agents: Iterable[Sequence[Added]]) -> list[Added]:
    """What minutes add to the evidence about several agents together; each ends with the same."""
    series = [each[-WATCHED:] for each in agents]
    longest = max(map(len, series), default=0)
    nothing = Added(None, 0)
    found = []
    for back in range(longest, 0, -1):
        there = [each[-back] if back <= len(each) else nothing for each in series]
        steps = [each.steps for each in there if each.steps is not None]
        together = tuple(map(sum, zip(*steps, strict=True))) if steps else None
        found.append(Added(together, sum(each.traffic for each in there)))
    return found


def gathered(figure: Figure, minutes: Sequence[Added]) -> tuple[Evidence, ...] | None:
    """The evidence of a small and of a large shift after the last of these minutes, at most 2.

    None where nothing is usual in that minute.
    """
    if not minutes or minutes[-1].steps is None:
        return None
    values, lasting = deque(course(figure, minutes[-WATCHED:]), maxlen=1).pop()
    return tuple(map(Evidence, values, lasting))


def course(
    figure: Figure, minutes: Iterable[Added]
) -> Iterator[tuple[Sequence[float], Sequence[int]]]:
    """The evidence of each shift after each minute, and for how many it is above 0."""
    values, unknown, most = [0.0] * len(figure.shifts), 0, figure.most
    lasting = [0] * len(values)
    for steps, traffic in minutes:
        if steps is None:
            unknown += 1
            if unknown >= FORGOTTEN:
                values, lasting = [0.0] * len(values), [0] * len(values)
        else:
            unknown = 0
            keeps = 1.0 if traffic > 0 else 1.0 - IDLE_LOSES
            values = [
                min(max(value * keeps + min(max(step, -most), most), 0.0), 2.0)
                for value, step in zip(values, steps, strict=True)
            ]
            lasting = [n + 1 if value > 0 else 0 for n, value in zip(lasting, values, strict=True)]
        yield values, lasting


def noticed(figure: Figure, usual: Usual, threshold: float) -> Noticed | None:
    """The least traffic in which a shift raises evidence to its threshold, on average.

    None if the usual ratio is so near to its end that it cannot shift far enough.
    """
    assumed, found = usual.assumed(figure), []
    for shift, (above, below) in zip(figure.shifts, usual.weights(figure), strict=True):
        ratio = max(assumed + figure.sign * shift.size(assumed), 0.0)
        if figure.sign > 0:
            ratio = min(ratio, 1.0 if figure.model else figure.high)
        gained = above * ratio + below
        if gained > 0:
            found.append(Noticed(threshold / gained, ratio))
    return min(found, key=lambda each: each.below, default=None)


def would_show(
    figure: Figure, usual: Usual, ratio: float, minutes: Iterable[Came], threshold: float
) -> bool:
    """Whether evidence would have reached its threshold in this traffic, had that ratio come.

    A minute adds no more than its limit, and evidence ages without traffic.
    """
    weights = usual.weights(figure)
    shifted = (
        Added(
            _steps(weights, Came(ratio * came.below, came.below, came.judged), threshold),
            int(came.judged and came.below > 0),
        )
        for came in minutes
    )
    return any(max(values) > 1 for values, _ in course(figure, shifted))


def ratio_lately(figure: Figure, counts: Minutes, now: int) -> float | None:
    """The ratio of what came in the last ten minutes, or in the last half hour if nothing did.

    None if nothing came in that time, either: no alert is active then.
    """
    for minutes in LATELY:
        there = [counts.get(minute, {}) for minute in range(now - minutes + 1, now + 1)]
        below = sum(each.get(figure.below, 0) for each in there)
        if below > 0:
            return sum(each.get(figure.above, 0) for each in there) / below
    return None


class _Day:
    """The usual day of the minute that comes next; minutes are added one by one."""

    def __init__(self, figure: Figure, unit: float) -> None:
        self._figure, self._unit = figure, unit
        # What the numerator and the denominator gained, and what the former had beyond the usual.
        self._minutes: deque[tuple[int, int, int | None]] = deque(maxlen=DAY + AGO - 1)
        self._last: deque[tuple[int, int]] = deque(maxlen=STRADDLED)
        self._above = self._below = self._active = self._present = 0
        self._residuals = self._sum = self._squares = 0

    def add(self, above: int, below: int) -> None:
        """Go on to the next minute."""
        minutes, ratio = self._minutes, self._assumed()
        residual = None
        if ratio is not None and self._last:
            beyond = sum(a for a, _ in self._last) - ratio * sum(b for _, b in self._last)
            residual = round(self._unit * beyond * _FINE)
        if len(minutes) == DAY + AGO - 1:
            self._count(minutes[0], -1)
        minutes.append((above, below, residual))
        self._last.append((above, below))
        if len(minutes) >= AGO:
            self._count(minutes[-AGO], 1)

    def _count(self, minute: tuple[int, int, int | None], sign: int) -> None:
        above, below, residual = minute
        self._above += sign * above
        self._below += sign * below
        self._active += sign * (below > 0)
        self._present += sign
        if residual is not None:
            self._residuals += sign
            self._sum += sign * residual
            self._squares += sign * residual * residual

    @property
    def active(self) -> int:
        """How many minutes had traffic."""
        return self._active

    def _assumed(self) -> float | None:
        if self._below <= 0 or self._active < LEAST_ACTIVE:
            return None
        return min(max(self._above / self._below, LOW), self._figure.high)

    def usual(self) -> Usual | None:
        """What is usual; None if too little is known."""
        figure, assumed = self._figure, self._assumed()
        if assumed is None:
            return None
        variance = 0.0
        if figure.model is not None:
            count = self._residuals
            if count < LEAST_ACTIVE:
                return None
            of_sums = (count * self._squares - self._sum**2) / (count * _FINE) ** 2
            mean = self._unit * self._below / self._present
            variance = max(figure.model.floor(assumed), of_sums / (STRADDLED * mean))
        return Usual(self._above / self._below, variance)


def unlabelled(counts: Minutes, now: int) -> Collection[int]:
    """The minutes in whose last hour far fewer labels came for the documents than is usual.

    The iterations that are settled then are those that need no label, which are not like the
    others. Where it is not known what is usual, labels are not known to come either.
    """
    return frozenset(minute for minute, came in _labels(counts, now) if not came)


def _labels(counts: Minutes, now: int) -> Iterator[tuple[int, bool]]:
    hours: deque[tuple[int, int, int]] = deque(maxlen=DAY + AGO + 1)
    labelled = unique = day_labelled = day_unique = day_parts = 0
    for minute in span(counts, now):
        for at, sign in ((minute, 1), (minute - _HOUR, -1)):
            of = counts.get(at, {}) if at >= now - HORIZON + 1 else {}
            labelled += sign * of.get("labelled_results", 0)
            unique += sign * of.get("unique_results", 0)
        gone = hours[0] if len(hours) == DAY + AGO + 1 else (0, 0, 0)
        hours.append((labelled, unique, unique > 0 and minute % _SPREAD == 0))
        came = hours[-AGO - 1] if len(hours) > AGO else (0, 0, 0)
        day_labelled += came[0] - gone[0]
        day_unique += came[1] - gone[1]
        day_parts += came[2] - gone[2]
        usual = day_labelled / max(day_unique, 1) if day_parts >= _LEAST_SPREAD else None
        known = usual is not None and unique > 0
        yield minute, known and labelled / unique > JUDGED_OF_USUAL * (usual or 0.0)
