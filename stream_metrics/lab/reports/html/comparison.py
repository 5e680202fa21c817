"""``compare.html``: the comparison of runs with the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from stream_metrics.lab.evaluation.shown_estimates import TITLE
from stream_metrics.lab.evaluation.wording import (
    about,
    adjusted_title,
    interval,
    interval_title,
    number,
    p_value,
    signed,
    significance,
)
from stream_metrics.lab.reports.html.charts import interval as drawn_interval
from stream_metrics.lab.reports.html.figures import titled
from stream_metrics.lab.reports.html.markup import (
    Cell,
    Section,
    box,
    card,
    page,
    parts,
    section,
    table,
)

Block = dict[str, Any]


def comparison_page(found: Block) -> str:
    """The page of a comparison from ``evaluation.compare_runs.compare_runs``."""
    names = [run["name"] for run in found["runs"]]
    sections: list[Section] = []
    if found["notes"]:
        notes = box("card notes", parts().bullets(found["notes"]))
        sections.append(section("Notes", notes))
    titles = _titles(found)
    sections += _family("", names, found["family"], titles)
    if "estimates" in found:
        sections += _family(TITLE, names, found["estimates"], titles)
    for dimension, strata in found["strata"].items():
        for stratum, family in strata.items():
            sections += _family(f"{dimension}: {stratum}", names, family, titles)
    return page("Comparison of runs", f"{about(found)}.", sections)


_Titles = tuple[tuple[str, ...], tuple[str, ...]]


def _titles(found: Block) -> _Titles:
    """The column titles of the tables of values and of differences."""
    interval_, adjusted = interval_title(found["confidence"]), adjusted_title(found["correction"])
    return (
        ("Metric", "Run", "Value", interval_, "n", "Better"),
        (
            "Metric", "Significant", "Difference", interval_, "Interval", "p", adjusted, "Effect",
            "n",
        ),
    )  # fmt: skip


def _family(stratum: str, names: Sequence[str], family: Block, titles: _Titles) -> list[Section]:
    before = f"{stratum}: " if stratum else ""
    differences, values = [], []
    reasons: dict[str, list[str]] = {}
    for one_table in family["tables"].values():
        for metric, block in one_table["metrics"].items():
            for run, value in zip(names, block["values"], strict=True):
                if value is not None:
                    values.append(_value(metric, block["better"], run, value))
            for one in block["comparisons"]:
                differences.append(_difference(metric, one, several=len(names) > 2))
                if one["reason"]:
                    reasons.setdefault(one["reason"], []).append(f"{metric} ({one['run']})")
    remarks = [*family["notes"]]
    remarks += [f"{reason}: {', '.join(places)}" for reason, places in reasons.items()]
    of = "" if len(names) > 2 else f" of {names[1]}"
    caption = f"{before}Differences{of} from {names[0]}"
    said = parts().bullets(remarks) if remarks else None
    return [
        section(
            caption,
            card(table(caption, titles[1], differences, words=2), said),
            lead="Each interval is drawn to its own scale; the vertical line marks no difference.",
        ),
        section(f"{before}Values", card(table(f"{before}Values", titles[0], values, words=2))),
    ]


def _value(metric: str, better: str, run: str, value: Block) -> tuple[Cell, ...]:
    return (
        titled(metric),
        parts().isolated(run),
        number(value["value"]),
        interval(value),
        f"{value['units']:,}",
        "-" if better == "neither" else better,
    )


def _difference(metric: str, one: Block, *, several: bool) -> tuple[Cell, ...]:
    """A row of the table of differences, which names its run if there are several."""
    bounds = [abs(one[key]) for key in ("ci_low", "ci_high", "difference") if one[key] is not None]
    picture = drawn_interval(
        one["ci_low"], one["difference"], one["ci_high"], max(bounds, default=0.0)
    )
    return (
        titled(metric, *((parts().isolated(one["run"], "muted"),) if several else ())),
        _verdict(one),
        signed(one["difference"]),
        interval(one, signed_bounds=True),
        picture,
        p_value(one["p"]),
        p_value(one["p_adjusted"]),
        "-" if one["effect"] is None else f"{one['effect']:+.2f}",
        f"{one['n']:,}" + ("" if one["paired"] else " unpaired"),
    )


def _verdict(one: Block) -> Markup:
    found: Markup = parts().classed(significance(one), one["verdict"])
    return found
