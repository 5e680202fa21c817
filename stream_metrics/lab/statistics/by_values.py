"""The statistics as plain functions of lists of scores, for notebooks and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from numbers import Integral
from typing import TypedDict

from stream_metrics.core.metrics.ranking.checks import number
from stream_metrics.lab.choices import ALPHA, CONFIDENCE, RESAMPLES, TEST_RESAMPLES
from stream_metrics.lab.statistics.comparison import compare
from stream_metrics.lab.statistics.intervals import estimate
from stream_metrics.lab.statistics.units import LARGEST, Units
from stream_metrics.lab.statistics.unpaired import compare_unpaired


class TTestResult(TypedDict):
    """The result of ``statistical_significance_test``."""

    t_statistic: float | None
    p_value: float | None
    significant: bool
    mean_a: float
    mean_b: float


def _units(scores: Sequence[float]) -> Units:
    if isinstance(scores, Mapping | str | set) or not hasattr(scores, "__len__"):
        raise ValueError(f"scores are a list of numbers, not a {type(scores).__name__}")
    if not len(scores):
        raise ValueError("there are no scores")
    numbers = []
    for at, score in enumerate(scores):
        numbers.append(number(score, f"score {at} (from 0)", finite=False))
        if not abs(numbers[-1]) <= LARGEST:
            raise ValueError(f"score {at} (from 0) is {score}, beyond {LARGEST:g}")
    return Units.of_values((f"{at:09}", value) for at, value in enumerate(numbers))


def _share(value: float, name: str) -> float:
    """A probability; raises ``ValueError``."""
    found = number(value, name)
    if not 0 < found < 1:
        raise ValueError(f"{name} is {value}; it must be between 0 and 1, as in 0.95 or 0.05")
    return found


def _count(value: int) -> int:
    """A number of resamples; raises ``ValueError``."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"n_bootstrap is {value!r}; draw at least one resample")
    return int(value)


def calculate_confidence_interval(
    scores: Sequence[float], confidence_level: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """Student's t interval of a mean; no bounds for one score.

    Raises:
        ValueError: There are no scores, one is not a finite number, or an option is out of range.

    >>> low, high = calculate_confidence_interval([0.2, 0.4, 0.9])
    >>> round(low, 4), round(high, 4)
    (-0.3957, 1.3957)
    """
    confidence = _share(confidence_level, "confidence_level")
    found = estimate(_units(scores), "t", confidence=confidence)
    return found.ci_low, found.ci_high


def statistical_significance_test(
    scores_a: Sequence[float], scores_b: Sequence[float], alpha: float = ALPHA
) -> TTestResult:
    """Student's t-test of two independent samples, with pooled variance.

    Scores of the same queries are not independent: use ``paired_bootstrap_test`` for them.

    Raises:
        ValueError: There are no scores, one is not a finite number, or an option is out of range.
    """
    alpha = _share(alpha, "alpha")
    found = compare_unpaired(_units(scores_a), _units(scores_b), "pooled_t")
    return {
        "t_statistic": found.statistic,
        "p_value": found.p,
        "significant": found.p is not None and found.p < alpha,
        "mean_a": fsum(scores_a) / len(scores_a),
        "mean_b": fsum(scores_b) / len(scores_b),
    }


def bootstrap_confidence_interval(
    values: Sequence[float], n_bootstrap: int = RESAMPLES, confidence_level: float = CONFIDENCE
) -> tuple[float, float | None, float | None]:
    """The mean and its percentile bootstrap interval; no bounds for one value.

    Raises:
        ValueError: There are no values, one is not a finite number, or an option is out of range.
    """
    confidence, count = _share(confidence_level, "confidence_level"), _count(n_bootstrap)
    found = estimate(_units(values), confidence=confidence, resample_count=count)
    assert found.mean is not None
    return found.mean, found.ci_low, found.ci_high


def paired_bootstrap_test(
    values_a: Sequence[float], values_b: Sequence[float], n_bootstrap: int = TEST_RESAMPLES
) -> tuple[float | None, bool]:
    """The p-value of the plain paired bootstrap, and whether it is below 0.05.

    It rejects too often with fewer than 50 queries; ``compare`` has the studentised bootstrap.

    Raises:
        ValueError: There are no values, one is not a finite number, the lists differ in length, or
            an option is out of range.
    """
    if len(values_a) != len(values_b):
        raise ValueError(f"{len(values_a)} and {len(values_b)} values: give one pair per query")
    found = compare(
        _units(values_a), _units(values_b), "plain_bootstrap", resample_count=_count(n_bootstrap)
    )
    return found.p, found.p is not None and found.p < ALPHA
