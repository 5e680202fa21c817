"""``docs/reference/metrics.md``, from the definitions of the metrics of turns."""

from __future__ import annotations

from typing import Final

from docs.pages import page
from stream_metrics.core.metrics.registry import (
    CUMULATIVE,
    LOOPS,
    METRICS,
    NO_SEARCH,
    OWN,
    Metric,
)
from stream_metrics.core.metrics.turn_totals import TurnTotals

_INTRO: Final = """\
# Metrics

An agent answers a question (a *turn*) by searching, often several times. Each round of searches is
an *iteration*. The metrics on this page tell how much of what a turn found was new, and how much
was good. Other pages have the metrics of [retrieval](metrics-retrieval.md) and of
[answers](metrics-answers.md), and what workers [export to Prometheus](metrics-prometheus.md).

- Only iterations with at least one search count. They are numbered i = 1 … N without gaps.
- Results that are the same document are found by deduplication. The first one is *unique*, the
  others are *duplicates*. A document belongs to the iteration that returned it first.
- A document's *gain* is the label (0 to 4) of its first occurrence that has one. Labels of a model
  count where people [gave none](../guides/labels.md#people-and-models). A document is *good* if its
  gain is 2 or more (`metrics.good_gain`). An unlabelled document has no gain and is not good.

| symbol | meaning |
|---|---|
| G_i | gain of the good documents that iteration i was the first to return |
| R_i | results of iteration i, including duplicates |
| R@i | results of iterations 1 to i |
| UR@i | unique documents among them |
| GR@i | good documents among them |
| DupR@i | duplicates among them: R@i − UR@i |
| CG@i | G_1 + … + G_i |

An undefined value is `null` in files and has no series in Prometheus. It is never shown as 0.
If no document has a label, SRE and the gains in files are 0, as the formulas say. Pages and printed
summaries show no value then.
Unless a metric says otherwise, it is undefined if the turn has no search. If searches ran and found
nothing, SRR, SRE and the gains are 0. Counts of loops are 0 without a search.

A metric with a Prometheus label is exported as `streammetrics_window_turn_metric_sum` and `_count`,
taken at the last iteration of each turn. The sum is in billionths: an SRR of 0.25 adds 250000000.
Metrics without a source are this project's own.
"""


_ABOUT: Final = {
    LOOPS: """\
An agent that asks the same again, or goes on without finding anything new, shows it without any
label. Queries are compared as texts of results are: without regard to case, white space, and the
spelling of accents. Searches without a query, or with a blank one, are never repeated ones. In a
row, `searches` are the searches of the turn, and `queried_searches` those with a query.

The state stores a keyed digest of 8 bytes of each query, and no text.

A turn that grows beyond a [limit](settings.md) takes no more searches. `beyond_limit` in its row
counts the `searches` that were left out, and their `results`, as often as they came; no other
figure includes them.
"""
}


def turns_page() -> str:
    """The page about metrics of turns."""
    parts = [_INTRO, _example()]
    for family in dict.fromkeys(metric.family for metric in METRICS):
        parts.append(f"## {family}\n")
        if family in _ABOUT:
            parts.append(_ABOUT[family])
        parts.extend(_metric(metric) for metric in METRICS if metric.family == family)
    return page(*parts)


def _metric(metric: Metric) -> str:
    high = "no upper bound" if metric.high is None else f"{metric.high:g}"
    lines = [
        f"### {metric.title}",
        "",
        metric.help,
        "",
        f"    {metric.formula}",
        "",
        f"- field: `{metric.path}`",
        f"- range: {metric.low:g} to {high}{'' if metric.unit == '1' else f', in {metric.unit}'}; "
        f"{metric.better} is better",
    ]
    if metric.place == "count":
        above, below = (" + ".join(names) for names in metric.quotient or ((), ()))
        lines.append(f"- over many turns: the sum of `{above}` / the sum of `{below}`")
    if metric.none_means not in (NO_SEARCH, ""):
        lines.append(f"- `null` when: {metric.none_means}")
    if metric.reference != OWN:
        lines.append(f"- source: {metric.reference}")
    if metric.labels:
        listed = " and ".join(f'`metric="{label}"`' for label in metric.labels)
        lines.append(f"- Prometheus: {listed}")
    return "\n".join([*lines, ""])


EXAMPLE: Final = (
    ("2 results, new, gains 3 and 2", (2, 2, 2, 2, 5)),
    ("3 results: 2 new, gains 4 and 1; 1 duplicate", (3, 2, 1, 2, 4)),
    ("3 results: 1 new, gain 2; 2 duplicates", (3, 1, 1, 1, 2)),
)


def _example() -> str:
    """The worked example; the values come from the code that computes the live ones."""
    through = TurnTotals()
    rows: dict[str, list[float]] = {}
    for _, counts in EXAMPLE:
        through.add(*counts)
        found = {
            "G_i": counts[-1],
            "AvgGain": through.averages[-1],
            "R@i": through.results,
            "UR@i": through.unique,
            "GR@i": through.good,
            "DupR@i": through.duplicates,
            **{
                one.title: one.compute(through) or 0
                for one in CUMULATIVE
                if one.compute is not None
            },
        }
        for title, value in found.items():
            rows.setdefault(title, []).append(value)
    lines = ["## A worked example", "", "One turn with three iterations:", ""]
    lines += [f"{i}. {text}" for i, (text, _) in enumerate(EXAMPLE, 1)]
    lines += ["", "| | i = 1 | i = 2 | i = 3 |", "|---|---|---|---|"]
    for title, row in rows.items():
        lines.append(f"| {title} | " + " | ".join(_number(value) for value in row) + " |")
    lines += [
        "",
        "The document with gain 1 in iteration 2 is labelled but not good, so it counts in UR "
        "but not in G.",
        f"All good documents are retrieved after {through.until_all_good} iterations.",
        "",
    ]
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if value != int(value) else f"{int(value)}"
