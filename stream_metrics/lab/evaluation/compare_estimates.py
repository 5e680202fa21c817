"""Comparison of what runs' random samples of labels say, by people and a model together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from stream_metrics.core.alerts.estimates import Interval, difference
from stream_metrics.lab.evaluation.notes import Run

Block = dict[str, Any]

_NOTE: Final = (
    "estimates are from labels by people and a model together; n counts conversations that both "
    "labelled. A difference is significant if 0 is not in its 95% interval; no p is adjusted for it"
)


class _Sampled(NamedTuple):
    """A combined estimate, and the number of conversations that people and the model labelled."""

    found: Interval
    conversations: int


def compared_estimates(runs: Sequence[Run]) -> Block:
    """The part ``estimates`` of ``compare.json``, in the form of ``family``.

    It is there only if the first run and another have a combined estimate of a figure. The samples
    of two runs are taken as independent, which is right or too careful.
    """
    by_run = [_combined(run.report) for run in runs]
    metrics = {
        figure: {
            "better": "higher",
            "values": [None if (one := of.get(figure)) is None else _value(one) for of in by_run],
            "comparisons": compared,
        }
        for figure, first in by_run[0].items()
        if (
            compared := [
                _compared(run.name, of[figure], first)
                for run, of in zip(runs[1:], by_run[1:], strict=True)
                if figure in of
            ]
        )
    }
    if not metrics:
        return {}
    return {"estimates": {"tables": {"estimates": {"metrics": metrics}}, "notes": [_NOTE]}}


def _combined(report: Mapping[str, Any]) -> dict[str, _Sampled]:
    """The combined estimates of a run over all its agents, by figure."""
    return {
        figure: _Sampled(
            Interval(one["value"], one["ci_low"], one["ci_high"]), of["conversations"]["both"]
        )
        for figure, of in report.get("estimates", {}).get("all", {}).items()
        if (one := of["combined"]) is not None
    }


def _value(one: _Sampled) -> Block:
    value, low, high = one.found
    return {
        "value": value,
        "n": one.conversations,
        "units": one.conversations,
        "ci_low": low,
        "ci_high": high,
    }


def _compared(run: str, one: _Sampled, first: _Sampled) -> Block:
    value, low, high = difference(one.found, first.found)
    assert low is not None
    assert high is not None
    significant = low > 0 or high < 0
    return {
        "run": run,
        "paired": False,
        "n": one.conversations + first.conversations,
        "first": first.found.value,
        "value": one.found.value,
        "difference": value,
        "ci_low": low,
        "ci_high": high,
        "effect": None,
        "p": None,
        "p_adjusted": None,
        "significant": significant,
        "verdict": ("better" if value > 0 else "worse") if significant else None,
        "reason": None,
    }
