"""Figures with intervals, and their strata, as every page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stream_metrics.adapters.html.markup import (
    Child,
    Safe,
    breakable,
    card,
    element,
    joined,
    section,
    table,
)
from stream_metrics.evaluation.observed import better_of, name_beside, title_of
from stream_metrics.evaluation.wording import interval, number, variance

MOST_ACROSS: Final = 3
"""Strata beside each other, with their average and variance: more do not fit on paper."""
METRICS_ACROSS: Final = 4
"""Metrics beside each other, where the strata stand below each other."""


def titled(one: str, *more: Child) -> Safe:
    """The title of a figure, the name to type if it is another, and ``more`` below."""
    typed = name_beside(one)
    return joined(
        breakable(title_of(one)),
        None if typed is None else (" ", element("code", breakable(typed), class_="muted")),
        *((element("br"), one) for one in more),
    )


def tile(one: str, found: Mapping[str, float | None], ci: str) -> Safe:
    """A figure by itself; ``ci`` is the title of its interval."""
    better = better_of(one)
    bounds = interval({**found})
    return element(
        "div",
        element("h3", title_of(one)),
        element("p", number(found["value"]), class_="value"),
        element("p", f"{ci} {bounds}" if bounds != "-" else "no interval", class_="muted"),
        element("p", f"{better} is better", class_="muted") if better != "neither" else None,
        class_="card tile",
    )


def figures_table(
    names: Sequence[str],
    figures: Mapping[str, Mapping[str, Any]],
    ci: str,
    caption: str = "Figures with intervals",
) -> Safe:
    """A row a figure; ``ci`` is the title of the intervals."""
    rows = []
    for one in names:
        found = figures[one]
        better = better_of(one)
        n = found.get("n")
        rows.append(
            (
                titled(one),
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
    """A section about the strata of a dimension, in tables that fit on paper.

    A few strata stand beside each other, and metrics below; of more strata each is a row, and the
    metrics are dealt out to several tables.
    """
    caption = f"{by} {dimension}"
    across = len(strata["units"]) <= MOST_ACROSS
    tables = (
        [_metrics_down(caption, strata, names)] if across else _strata_down(caption, strata, names)
    )
    told: dict[str, list[str]] = {}
    for stratum, note in strata["notes"].items():
        told.setdefault(note, []).append(stratum)
    notes = [element("li", f"{', '.join(several)}: {note}") for note, several in told.items()]
    return section(
        caption,
        element("div", element("ul", *notes), class_="card notes") if notes else None,
        *map(card, tables),
    )


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
