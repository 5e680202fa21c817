"""Estimates from labels of random samples, as the page shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stream_metrics.core.alerts.estimates import Estimates, Interval, estimates_of, most_due
from stream_metrics.core.engine.windows import Sums
from stream_metrics.core.metrics.label_sums import BOTH, GAIN, MODEL, SRE, SUMS

HEADS: Final = frozenset("L")
_DRAWN: Final = tuple(f"L|{GAIN}|{sample}|n" for sample in SUMS)  # each counted iteration has gain
MISSED: Final = 5
"""How many conversations more must be expected in a part of a window for it to have no sample."""
MISSED_SHARE: Final = 0.05
"""Of the window's turns, the part that must be without a sample to be pointed out."""
OFF_SHOWN: Final = 3
"""The most agents of which the page says how far the model is off: those with the most."""


class Waiting(NamedTuple):
    """The figures for which a judge is too far behind, with ``due`` turns yet to label.

    ``gets_no_grades``: the endpoint of its model gives none.
    """

    behind: Collection[str] = ()
    due: int = 0
    gets_no_grades: bool = False


class Covered(NamedTuple):
    """When the sample of a window begins and ends, in Unix seconds; None if it covers that side."""

    since: float | None = None
    until: float | None = None


def covered(buckets: Sequence[Sums], times: Sequence[float]) -> Covered:
    """Which part of a window its sample is drawn from, by its buckets and when they begin.

    A judge that began yesterday noon has drawn nothing of the hours before. A side of the window is
    not covered if more than five conversations would be expected there, were as many drawn as of
    the rest, and if it has more than 5% of the turns.

    >>> before, since = {"t": 40}, {"t": 60, "L|gain|model|n": 9}
    >>> covered([before, since], [0.0, 3600.0])
    Covered(since=3600.0, until=None)
    """
    drawn = [sum(of.get(code, 0) for code in _DRAWN) for of in buckets]
    sampled = [at for at, number in enumerate(drawn) if number]
    if not sampled:
        return Covered()
    first, last = sampled[0], sampled[-1]
    turns = [of.get("t", 0) for of in buckets]
    inside = sum(turns[first : last + 1])

    def is_missed(outside: int) -> bool:
        expected = sum(drawn) * outside
        return expected > MISSED * inside and outside > MISSED_SHARE * sum(turns)

    return Covered(
        times[first] if is_missed(sum(turns[:first])) else None,
        times[last + 1] if is_missed(sum(turns[last + 1 :])) else None,
    )


def document(
    window: str,
    sums: Sums,
    agents: Mapping[str, Sums],
    part: Covered,
    judge: Waiting,
    *,
    cut_off: bool = False,
) -> dict[str, Any] | None:
    """The estimates of a window, and where the model is off; None without a random sample.

    ``sums`` are those of the agents shown together, ``agents`` those of each, and ``part`` is what
    the sample covers of the window. ``cut_off``: the window reaches back into a day whose sample
    ended early, so it has no combined estimate. Figures that wait for the ``judge`` have no
    estimate from a model's labels.
    """
    found = estimates_of(sums)
    if not found:
        return None
    return {
        "window": window,
        "figures": {
            figure: _figure(of, cut_off=cut_off, behind=figure in judge.behind)
            for figure, of in found.items()
        },
        "cut_off": cut_off,
        "due": judge.due,
        "no_grades": judge.gets_no_grades,
        **part._asdict(),
        "off": [] if SRE in judge.behind else judges_off(agents),
    }


def behind(due: int, sums: Sums) -> frozenset[str]:
    """The figures for which a judge is too far behind, with so many turns yet to label.

    ``sums`` are those of all agents.
    """
    return frozenset(
        figure
        for figure, of in estimates_of(sums).items()
        if due > most_due(of.conversations[BOTH] + of.conversations[MODEL])
    )


def judges_off(agents: Mapping[str, Sums]) -> list[str]:
    """By how much the model is off, where that is no chance, in words; the worst agents first.

    >>> one = {"n": 50, "b": 500, "y": 200, "f": 220, "bb": 5000, "by": 2000, "bf": 2200}
    >>> one |= {"yy": 820, "yf": 900, "ff": 990}
    >>> judges_off({"it-desk": {f"L|sre|both|{name}": value for name, value in one.items()}})
    ['4 points too kind to it-desk']
    """
    off = [
        (abs(interval.value), f"{_points(interval)} to {agent}")
        for agent, sums in agents.items()
        for of in _of_sre(sums)
        if (interval := of.off) is not None and is_off(interval)
    ]
    return [words for _, words in sorted(off, key=lambda one: (-one[0], one[1]))][:OFF_SHOWN]


def is_off(interval: Interval) -> bool:
    """Whether 0 is outside of the interval."""
    return (
        interval.low is not None
        and interval.high is not None
        and not (interval.low <= 0 <= interval.high)
    )


def _of_sre(sums: Sums) -> Iterable[Estimates]:
    return [of for figure, of in estimates_of(sums).items() if figure == SRE]


def _points(interval: Interval) -> str:
    points = round(abs(100 * interval.value))
    number = (
        "less than a point" if points == 0 else "1 point" if points == 1 else f"{points} points"
    )
    return f"{number} too {'kind' if interval.value > 0 else 'strict'}"


def _figure(found: Estimates, *, cut_off: bool, behind: bool) -> dict[str, Any]:
    return {
        "human": _interval(found.human),
        "model": None if behind else found.model,
        "combined": None if cut_off or behind else _interval(found.combined),
        "behind": behind,
        "incomplete": found.incomplete,
        "conversations": dict(found.conversations),
    }


def _interval(found: Interval | None) -> Sequence[float | None] | None:
    return None if found is None else list(found)
