"""The estimates of a report as rows for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stream_metrics.core.metrics.label_sums import BOTH, GAIN, MODEL, PEOPLE, SRE, UNLABELLED
from stream_metrics.core.metrics.labels import labels_of_models
from stream_metrics.lab.evaluation.wording import interval, interval_title, number

TITLE: Final = "Estimates from random samples of labels"
ABOUT: Final = (
    "They are for all conversations, from the labels of those that were drawn at random: by people "
    "alone, by the model alone, and combined, which is the model's figure corrected by the "
    "conversations that both labelled. What the model is off by is its figure of these, less "
    "that of people."
)
COLUMNS: Final = ("Estimate", "Value", interval_title(0.95), "Conversations")
_TITLES: Final = {SRE: "SRE", GAIN: "Good gain per iteration"}


def corrects_sre(report: Mapping[str, Any]) -> bool:
    """Whether most labels are a model's, and a combined estimate of SRE corrects what it is off."""
    counts, sre = report["counts"], report.get("estimates", {}).get("all", {}).get(SRE, {})
    most = 2 * labels_of_models(counts) > counts["labelled"]
    return most and sre.get("combined") is not None


class Shown(NamedTuple):
    """An estimate of a figure, in words."""

    figure: str
    by: str
    value: str
    interval: str
    conversations: str


def shown_estimates(report: Mapping[str, Any]) -> list[Shown]:
    """The estimates of a report over all its agents; SRE and gain come first.

    Estimates without a value are left out, but if the model has not labelled too much of its
    sample, a row says so. A report has none without random samples.

    >>> sre = {"human": None, "model": 0.5, "combined": None}
    >>> sre["conversations"] = {"both": 0, "people": 0, "model": 9}
    >>> [tuple(one) for one in shown_estimates({"estimates": {"all": {"sre": sre}}})]
    [('SRE', 'by the model', '0.5000', '-', '9')]
    """
    figures = report.get("estimates", {}).get("all", {})
    first = [figure for figure in _TITLES if figure in figures]
    return [
        one
        for figure in dict.fromkeys([*first, *figures])
        for one in _of_figure(_TITLES.get(figure, figure), figures[figure])
    ]


def _of_figure(title: str, found: Mapping[str, Any]) -> list[Shown]:
    both, people, model = (found["conversations"][sample] for sample in (BOTH, PEOPLE, MODEL))
    by_model = None if found["model"] is None else {"value": found["model"], "ci_low": None}
    estimates = (
        ("by people", found["human"], f"{both + people:,}"),
        ("by the model", by_model, f"{both + model:,}"),
        ("combined", found["combined"], f"{both:,} by both, {model:,} by model"),
        ("the model is off by", found.get("judge_off"), f"{both:,}"),
    )
    shown = [
        Shown(title, by, number(one["value"]), interval(one), conversations)
        for by, one, conversations in estimates
        if one is not None
    ]
    if found.get("incomplete"):
        n = found["conversations"][UNLABELLED]
        missing = f"{n:,} not labelled whole by the model, over 5% of its sample"
        shown.append(Shown(title, "combined", "none", "-", missing))
    return shown
