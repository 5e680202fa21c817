"""Which ranked metrics can be summed up while events come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stream_metrics.metrics.ranking.names import Definition, MetricNameError, RankedMetric
from stream_metrics.metrics.ranking.registry import parse_all

LARGEST_GRADE: Final = 4
LARGEST_NUMBER: Final = 1_000
"""What an option may be at most, so that whole numbers of billionths stay exact."""

_ONTOLOGY: Final = "max_ont_sim"


def is_live(definition: Definition) -> bool:
    """Whether labels, or the ground truth of a turn, are enough to compute a family."""
    return definition.name != _ONTOLOGY


def live_metrics(names: Iterable[str]) -> tuple[RankedMetric, ...]:
    """The metrics of several names, or of suites, each once, in the order of their names.

    Raises:
        MetricNameError: A name is no metric; or its score cannot be told from labels or from the
            ground truth of a turn, whatever they are. The message says why.

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
