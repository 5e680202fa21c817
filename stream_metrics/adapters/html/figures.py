"""Figures with intervals, and their strata, as every page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stream_metrics.adapters.html.markup import Safe, card, element, joined, section, table
from stream_metrics.evaluation.observed import better_of, title_of
from stream_metrics.evaluation.wording import interval, number


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
                title_of(one),
                "-" if better == "neither" else better,
                number(found["value"]),
                interval({**found}),
                number(found.get("sd")),
                "-" if n is None else f"{n:,}",
            )
        )
    return table(caption, ("Figure", "Better", "Value", ci, "SD", "n"), rows, words=2)


def stratified(
    dimension: str, strata: Mapping[str, Any], names: Sequence[str], by: str = "By"
) -> Safe:
    """A section: a row a metric, a column a stratum."""
    units = strata["units"]
    caption = f"{by} {dimension}"
    titles = ("Metric", *(f"{one} (n={n:,})" for one, n in units.items()), "Average", "Variance")
    cells = []
    for one in names:
        found = strata["metrics"][one]
        cells.append(
            (
                title_of(one),
                *(
                    joined(number(found["strata"][stratum]["mean"]), element("br"),
                           interval({**found["strata"][stratum]}))
                    for stratum in units
                ),
                number(found["stratum_average"]), number(found["cross_stratum_variance"]),
            )
        )  # fmt: skip
    notes = [element("li", f"{stratum}: {note}") for stratum, note in strata["notes"].items()]
    return section(
        caption,
        element("div", element("ul", *notes), class_="card notes") if notes else None,
        card(table(caption, titles, cells)),
    )
