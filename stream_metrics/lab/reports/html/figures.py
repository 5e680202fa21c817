"""Tables and tiles of figures with intervals, and of their strata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from markupsafe import Markup

from stream_metrics.lab.evaluation.estimates import LANGUAGE
from stream_metrics.lab.evaluation.observations import better_of, distinct_name, title_of
from stream_metrics.lab.evaluation.wording import interval, number, variance
from stream_metrics.lab.reports.html.markup import Cell, Section, folded, parts, section, table

MOST_ACROSS: Final = 3
"""The most strata that are shown as columns; more do not fit on paper."""
METRICS_ACROSS: Final = 4
"""The most metrics that are shown as columns of a table with one row per stratum."""


def titled(one: str, *more: Markup) -> Markup:
    """The title of a figure, the name to type if it differs, and ``more`` below."""
    found: Markup = parts().titled(title_of(one), distinct_name(one), more)
    return found


def tile(
    one: str, found: Mapping[str, float | None], ci: str, context: str | None = None
) -> Markup:
    """A tile with one figure; ``ci`` is the title of its interval, ``context`` a remark."""
    bounds = interval({**found})
    shown = f"{ci} {bounds}" if bounds != "-" else "no interval"
    made: Markup = parts().tile(
        title_of(one), number(found["value"]), context, shown, better_of(one)
    )
    return made


def figures_table(
    names: Sequence[str],
    figures: Mapping[str, Mapping[str, Any]],
    ci: str,
    caption: str = "Figures with intervals",
    context: Mapping[str, str] = MappingProxyType({}),
) -> Markup:
    """A table with one row per figure.

    Args:
        names: The figures, in the order of the rows.
        figures: The values and intervals by name.
        ci: The title of the intervals.
        caption: The caption for screen readers.
        context: Remarks on some figures, by name.
    """
    rows = []
    for one in names:
        found = figures[one]
        better = better_of(one)
        n = found.get("n")
        rows.append(
            (
                titled(one, *([parts().muted(context[one])] if one in context else [])),
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
) -> Markup:
    """The strata of a dimension in a folded card, with warnings and tables that fit on paper.

    Up to ``MOST_ACROSS`` strata are columns, with one row per metric. More strata are rows, with
    the metrics divided among several tables.
    """
    caption = f"{by} {dimension}"
    across = len(strata["units"]) <= MOST_ACROSS
    tables = (
        [_metrics_down(caption, strata, names)] if across else _strata_down(caption, strata, names)
    )
    warned: dict[str, list[str]] = {}
    for stratum, note in strata["notes"].items():
        warned.setdefault(note, []).append(stratum)
    notes = [f"{', '.join(several)}: {note}" for note, several in warned.items()]
    summary = f"{len(strata['units'])} strata"
    if strata["notes"]:
        summary += f", {len(strata['notes'])} with a warning"
    return folded(
        caption,
        summary,
        parts().bullets(notes, "notes") if notes else None,
        *tables,
    )


def strata_of(by: str, strata: Mapping[str, Any], names: Sequence[str]) -> list[Section]:
    """A section with the strata of each dimension; empty without dimensions."""
    found = [stratified(one, strata[one], names, by) for one in language_first(strata)]
    return [section(f"{by} stratum", *found)] if found else []


def language_first(dimensions: Iterable[str]) -> list[str]:
    """The dimensions with the language first, because means over languages say little.

    >>> language_first(["agent", "language"])
    ['language', 'agent']
    """
    return sorted(dimensions, key=lambda one: one != LANGUAGE)


def _metrics_down(caption: str, strata: Mapping[str, Any], names: Sequence[str]) -> Markup:
    """A table with one row per metric and one column per stratum."""
    units = strata["units"]
    titles = ("Metric", *(f"{one} (n={n:,})" for one, n in units.items()), "Average", "Variance")
    rows = []
    for one in names:
        found = strata["metrics"][one]
        own = (_of_stratum(found["strata"][stratum]) for stratum in units)
        average, spread = found["stratum_average"], found["cross_stratum_variance"]
        rows.append((parts().breakable(title_of(one)), *own, number(average), variance(spread)))
    return table(caption, titles, rows)


def _strata_down(caption: str, strata: Mapping[str, Any], names: Sequence[str]) -> list[Markup]:
    """Tables with one row per stratum, one column per metric, and rows of average and variance."""
    tables = []
    for start in range(0, len(names), METRICS_ACROSS):
        few = names[start : start + METRICS_ACROSS]
        found = [strata["metrics"][one] for one in few]
        titles = [title_of(one) for one in few]
        rows: list[tuple[Cell, ...]] = [
            (parts().isolated(name), f"{n:,}", *(_of_stratum(one["strata"][name]) for one in found))
            for name, n in strata["units"].items()
        ]
        rows.append(("Average", "", *(number(one["stratum_average"]) for one in found)))
        rows.append(("Variance", "", *(variance(one["cross_stratum_variance"]) for one in found)))
        about = f"{caption}: {', '.join(titles)}"
        tables.append(table(about, ("Stratum", "n", *titles), rows))
    return tables


def _of_stratum(found: Mapping[str, Any]) -> Markup:
    made: Markup = parts().two_lines(number(found["mean"]), interval({**found}))
    return made
