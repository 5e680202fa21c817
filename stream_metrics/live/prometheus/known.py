"""A gauge whose value may be unknown."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class KnownGauge(Collector):
    """A gauge without labels that has no sample while its value is unknown, as it is at first.

    A last value or 0 in its place would be taken for the present one.
    """

    def __init__(self, name: str, help: str, registry: CollectorRegistry) -> None:
        self._name, self._help = name, help
        self._value: float | None = None
        registry.register(self)

    def set(self, value: float | None) -> None:
        """Set the value; None means that it is unknown."""
        self._value = value

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The family without samples."""
        yield GaugeMetricFamily(self._name, self._help)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The family, with a sample if the value is known."""
        yield GaugeMetricFamily(self._name, self._help, self._value)
