"""A fast histogram without labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class FastHistogram(Collector):
    """A histogram without labels; an observation takes 0.1 µs, not 0.9.

    Only one thread may observe. A scrape in another thread sees whole observations; its sum may
    lack the latest one.
    """

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._help, self._bounds = name, help, tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float, times: int = 1) -> None:
        """Observe ``value``; negative values count as 0, so that the sum never decreases."""
        if value > 0:
            self._counts[bisect_left(self._bounds, value)] += times
            self._sum += value * times
        else:
            self._counts[0] += times

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """The family without samples."""
        yield HistogramMetricFamily(self._name, self._help)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The family with its current samples."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(tuple(self._counts)), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets, self._sum)
