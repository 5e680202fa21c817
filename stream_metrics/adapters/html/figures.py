"""Figures with intervals, and their strata, as every page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from stream_metrics.adapters.html.markup import (
    Child,
    Safe,
    Section,
    breakable,
    element,
    folded,
    joined,
    section,
    table,
)
from stream_metrics.evaluation.estimates import LANGUAGE
from stream_metrics.evaluation.observed import better_of, name_beside, title_of
from stream_metrics.evaluation.wording import interval, number, variance

MOST_ACROSS: Final = 3
"""Strata beside each other, with their average and variance: more do not fit on paper."""
METRICS_ACROSS: Final = 4
"""Metrics beside each other, where the strata stand below each other."""


def _note(text: str) -> Safe:
    return element("span", text, class_="muted")


def titled(one: str, *more: Child) -> Safe:
    """The title of a figure, the name to type if it is another, and ``more`` below."""
    typed = name_beside(one)
    return joined(
        breakable(title_of(one)),
        None if typed is None else (" ", element("code", breakable(typed), class_="muted")),
        *((element("br"), one) for one in more),
    )


def tile(one: str, found: Mapping[str, float | None], ci: str, context: str | None = None) -> Safe:
    """A figure by itself; ``ci`` is the title of its interval, ``context`` what else to know."""
    better = better_of(one)
    bounds = interval({**found})
    return element(
        "div",
        element("h3", title_of(one)),
        element("p", number(found["value"]), class_="value"),
        None if context is None else element("p", context),
        element("p", f"{ci} {bounds}" if bounds != "-" else "no interval", class_="muted"),
        element("p", f"{better} is better", class_="muted") if better != "neither" else None,
        class_="card tile",
    )


def figures_table(
    names: Sequence[str],
    figures: Mapping[str, Mapping[str, Any]],
    ci: str,
    caption: str = "Figures with intervals",
    context: Mapping[str, str] = MappingProxyType({}),
) -> Safe:
    """A row a figure.

    Args:
        names: The figures, in the order of the rows.
        figures: Their values and intervals.
        ci: The title of the intervals.
        caption: What a screen reader says of the table.
        context: Of some figures, by name, what the reader must know beside the value.
    """
    rows = []
    for one in names:
        found = figures[one]
        better = better_of(one)
        n = found.get("n")
        rows.append(
            (
                titled(one, *([_note(context[one])] if one in context else [])),
                number(found["value"]),
                interval({**found}),
                number(found.get("sd")),
                "-" if n is None else f"{n:,}",
                "-" if better == "neither" else better,
            )
        )
    return table(caption, ("Figure", "Value", ci, "SD", "n", "Better"), rows)


def stratified(
    dimension: str, strata: Mapping[str, Any], names: Sequence[str], by: str = "By"
) -> Safe:
    """The strata of a dimension, folded, in tables that fit on paper, with their warnings inside.

    A few strata stand beside each other, and metrics below; of more strata each is a row, and the
    metrics are dealt out to several tables.
    """
    caption = f"{by} {dimension}"
    across = len(strata["units"]) <= MOST_ACROSS
    tables = (
        [_metrics_down(caption, strata, names)] if across else _strata_down(caption, strata, names)
    )
    warned: dict[str, list[str]] = {}
    for stratum, note in strata["notes"].items():
        warned.setdefault(note, []).append(stratum)
    notes = [element("li", f"{', '.join(several)}: {note}") for note, several in warned.items()]
    summary = f"{len(strata['units'])} strata"
    if strata["notes"]:
        summary += f", {len(strata['notes'])} with a warning"
    return folded(
        caption,
        summary,
        element("ul", *notes, class_="notes") if notes else None,
        *tables,
    )


def strata_of(by: str, strata: Mapping[str, Any], names: Sequence[str]) -> list[Section]:
    """A section with the strata of each dimension; none without a dimension."""
    found = [stratified(one, strata[one], names, by) for one in language_first(strata)]
    return [section(f"{by} stratum", *found)] if found else []


def language_first(dimensions: Iterable[str]) -> list[str]:
    """The dimensions in their order, but language first: means over languages say little of any.

    >>> language_first(["agent", "language"])
    ['language', 'agent']
    """
    return sorted(dimensions, key=lambda one: one != LANGUAGE)


def _metrics_down(caption: str, strata: Mapping[str, Any], names: Sequence[str]) -> Safe:
    """A row a metric, a column a stratum."""
    units = strata["units"]
    titles = ("Metric", *(f"{one} (n={n:,})" for one, n in units.items()), "Average", "Variance")
    rows = []
    for one in names:
        found = strata["metrics"][one]
        own = (_of_stratum(found["strata"][stratum]) for stratum in units)
        average, spread = found["stratum_average"], found["cross_stratum_variance"]
        rows.append((breakable(title_of(one)), *own, number(average), variance(spread)))
    return table(caption, titles, rows)


def _strata_down(caption: str, strata: Mapping[str, Any], names: Sequence[str]) -> list[Safe]:
    """A row a stratum, a column a metric, and at the end how strata lie to each other."""
    tables = []
    for start in range(0, len(names), METRICS_ACROSS):
        few = names[start : start + METRICS_ACROSS]
        found = [strata["metrics"][one] for one in few]
        titles = [title_of(one) for one in few]
        rows: list[tuple[Child, ...]] = [
            (element("bdi", name), f"{n:,}", *(_of_stratum(one["strata"][name]) for one in found))
            for name, n in strata["units"].items()
        ]
        rows.append(("Average", "", *(number(one["stratum_average"]) for one in found)))
        rows.append(("Variance", "", *(variance(one["cross_stratum_variance"]) for one in found)))
        about = f"{caption}: {', '.join(titles)}"
        tables.append(table(about, ("Stratum", "n", *titles), rows))
    return tables


def _of_stratum(found: Mapping[str, Any]) -> Safe:
    return joined(number(found["mean"]), element("br"), interval({**found}))
