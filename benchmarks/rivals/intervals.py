"""The bootstrap interval of a mean by each tool, on the same values and with the same draws."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from benchmarks.rivals import serve

SEED: Final = 20_240_501


@lru_cache(maxsize=1)
def scores(count: int) -> Any:
    """Seeded scores between 0 and 1."""
    return np.random.default_rng(8).beta(2, 5, size=count)


def ours(method: Any, values: int, resamples: int) -> list[float | None]:
    """As ``stream-metrics evaluate`` has it made, from a column of scores."""
    from stream_metrics.lab.statistics.intervals import estimate
    from stream_metrics.lab.statistics.units import Units

    units = Units.of_columns(np.arange(values), scores(values))
    found = estimate(units, method, resample_count=resamples, seed=SEED)
    return [found.ci_low, found.ci_high]


def scipy(method: str, values: int, resamples: int, batch: int) -> list[float]:
    """Vectorised, with the ``batch`` that bounds memory, as scipy's documentation advises."""
    from scipy.stats import bootstrap

    found = bootstrap(
        (scores(values),),
        np.mean,
        n_resamples=resamples,
        batch=batch,
        vectorized=True,
        method={"percentile": "percentile", "bca": "BCa"}[method],
        rng=np.random.Generator(np.random.PCG64(SEED)),
    ).confidence_interval
    return [float(found.low), float(found.high)]


if __name__ == "__main__":
    serve({"ours": ours, "scipy": scipy})
