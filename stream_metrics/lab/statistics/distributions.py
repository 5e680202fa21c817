"""The functions that need scipy (the extra ``eval``), which the live worker does not install."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from stream_metrics.lab.extras import install_hint
from stream_metrics.lab.statistics.units import Floats


@lru_cache(maxsize=1)
def _stats() -> Any:
    try:
        from scipy import stats
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise ModuleNotFoundError(
            install_hint("a t or rank test", "scipy", "eval"), name="scipy"
        ) from error
    return stats


def t_quantile(probability: float, degrees: float) -> float:
    """The quantile of Student's t distribution."""
    return float(_stats().t.ppf(probability, degrees))


def t_paired(one: Floats, other: Floats) -> tuple[float, float]:
    """Statistic and two-sided p of the paired t-test."""
    return _tested(_stats().ttest_rel, one, other)


def t_unpaired(one: Floats, other: Floats, *, pooled: bool) -> tuple[float, float]:
    """Statistic and two-sided p of Welch's t-test, or of Student's with pooled variance."""
    return _tested(_stats().ttest_ind, one, other, equal_var=pooled)


def wilcoxon(differences: Floats) -> tuple[float, float]:
    """Statistic and two-sided p of Wilcoxon's signed-rank test; zeros are left out."""
    return _tested(_stats().wilcoxon, differences, zero_method="wilcox")


def _tested(test: Callable[..., Any], *samples: Floats, **options: Any) -> tuple[float, float]:
    with warnings.catch_warnings():
        # scipy warns if a sample is constant; the callers handle the cases that matter.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = test(*samples, **options)
    return float(found.statistic), float(found.pvalue)
