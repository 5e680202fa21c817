"""Estimates from labels of random samples, as the page shows them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from stream_metrics.core.alerts.estimates import Estimates, Interval, estimates_of, most_due
from stream_metrics.core.engine.windows import Sums
from stream_metrics.core.metrics.label_sums import BOTH, MODEL, SRE

HEADS: Final = frozenset("L")
OFF_SHOWN: Final = 3
"""The most agents of which the page says how far the model is off: those with the most."""


def document(
    window: str,
    sums: Sums,
    agents: Mapping[str, Sums],
    *,
    cut_off: bool = False,
    behind: Collection[str] = (),
) -> dict[str, Any] | None:
    """The estimates of a window, and where the model is off; None without a random sample.

    ``sums`` are those of the agents shown together, ``agents`` those of each. ``cut_off``: the
    window reaches back into a day whose sample ended early, so it has no combined estimate.
    Figures ``behind`` have no estimate from a model's labels, because many are yet to come.
    """
    found = estimates_of(sums)
    if not found:
        return None
    return {
        "window": window,
        "figures": {
            figure: _figure(of, cut_off=cut_off, behind=figure in behind)
            for figure, of in found.items()
        },
        "cut_off": cut_off,
        "off": [] if SRE in behind else judges_off(agents),
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
