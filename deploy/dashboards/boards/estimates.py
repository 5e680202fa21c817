"""Estimates from labels of random samples, a row of the dashboard about quality."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.boards.queries import AGENT
from deploy.dashboards.panels import Panel, Query, Row
from deploy.dashboards.promql import recorded, window
from stream_metrics.core.alerts.estimate_records import ESTIMATE, OFF

LENGTH: Final = "24h"
_OF: Final = (("", ""), ("_lower", ", at least"), ("_upper", ", at most"))
_EMPTY: Final = (
    "Empty where no labels have `sample: random`, while judges have many turns yet to label, and "
    "where over 5% of what was drawn for the model is not labelled; needs the recording rules."
)


def _estimate(title: str, figure: str, unit: str) -> Panel:
    """The combined estimate of a figure and its bounds, by agent."""
    queries = [
        Query(
            recorded(f"{ESTIMATE}{bound}", by="combined", figure=figure, window=LENGTH),
            AGENT + words,
        )
        for bound, words in _OF
    ]
    return Panel(
        title,
        "The estimate from labels by people and by a model together, with its 95% interval. "
        + _EMPTY,
        queries,
        unit,
        width=12,
    )


ESTIMATES: Final = Row(
    "From random samples of people and of a model, last 24 hours, by agent",
    [
        _estimate("SRE, estimated", "sre", "percentunit"),
        _estimate("Gain per iteration, estimated", "gain", "short"),
        Panel(
            "How much too kind the model is",
            "SRE by the model's labels less SRE by people's, where both labelled, with its 95% "
            f"interval. If 0 is not in it, the model is off. {_EMPTY}",
            [
                Query(recorded(f"{OFF}{bound}", figure="sre", window=LENGTH), AGENT + words)
                for bound, words in _OF
            ],
            "percentunit",
            width=12,
            minimum=None,
        ),
        Panel(
            "Conversations with labels",
            "Conversations of random samples, by who labelled them: both, people or the model. "
            "Sixty by people make an interval that one can use. Unlabelled: those with turns that "
            "were drawn for the model and have no labels of it.",
            [
                Query(
                    window("label_sums", "agent, sample", LENGTH, figure="gain", sum="n"),
                    AGENT + ": {{sample}}",
                )
            ],
            "short",
            width=12,
            decimals=0,
        ),
    ],
)
