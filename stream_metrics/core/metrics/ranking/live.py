"""The ranked metrics that can be computed live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stream_metrics.core.metrics.ranking.names import Definition, MetricNameError, RankedMetric
from stream_metrics.core.metrics.ranking.registry import parse_all

LARGEST_GRADE: Final = 4
LARGEST_NUMBER: Final = 1_000
"""The largest value of an option for which sums in whole billionths stay exact."""

_ONTOLOGY: Final = "max_ont_sim"


def is_live(definition: Definition) -> bool:
    """Whether a family can be computed from labels or the ground truth of a turn."""
    return definition.name != _ONTOLOGY


def live_metrics(names: Iterable[str]) -> tuple[RankedMetric, ...]:
    """Parse names and suites into metrics, without repeats, sorted by name.

    Raises:
        MetricNameError: A name is not a metric, or the metric cannot be computed from labels or the
            ground truth of a turn. The message says why.

    >>> [str(metric) for metric in live_metrics(["ndcg_at_10", "mrr", "NDCG@10"])]
    ['mrr', 'ndcg@10']
    """
    metrics = parse_all(names)
    for metric in metrics:
        _check(metric)
    return tuple(sorted(metrics, key=str))


def _check(metric: RankedMetric) -> None:
    if not is_live(metric.definition):
        raise MetricNameError(
            f"{metric} cannot be computed live: events do not contain the expected terms"
        )
    for option in metric.definition.options:
        value = metric.option(option.name)
        if option.collection and value not in option.choices:
            raise MetricNameError(
                f"{metric} cannot be computed live: a turn may have more documents than the "
                f"collection that it names; take {option.name}={option.choices[0]}"
            )
        if option.name == "max_grade" and metric.number("max_grade") < LARGEST_GRADE:
            raise MetricNameError(
                f"{metric} cannot be computed live: labels go up to {LARGEST_GRADE}; take "
                f"max_grade={LARGEST_GRADE} or more"
            )
        if isinstance(value, float) and value > LARGEST_NUMBER:
            raise MetricNameError(
                f"{metric} cannot be computed live: take {option.name}={LARGEST_NUMBER} or less"
            )
