"""Queries that several dashboards share."""

from __future__ import annotations

from typing import Final

from deploy.dashboards.panels import Query
from deploy.dashboards.promql import ratio, window

AGENT: Final = "{{agent}}"


def turn_mean(metric: str, length: str) -> Query:
    """A metric's mean over turns, each at its last iteration; sums are in billionths."""
    mean = ratio(
        window("turn_metric_sum", "agent", length, metric=metric) + " / 1e9",
        window("turn_metric_count", "agent", length, metric=metric),
    )
    return Query(mean, AGENT)
