"""The evidence that figures have shifted, as gauges; the rules of alerts compare it with 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_metrics.core.alerts.evidence import SHIFTS
from stream_metrics.core.alerts.standing import Gathered
from stream_metrics.live.prometheus.catalogue import PREFIX

_DIRECTIONS: Final = {1: "up", -1: "down"}


class EvidenceGauges(Collector):
    """What ``gathered`` says, of all partitions; nothing while it is None.

    Exactly one worker of a group sets it. ``dimension`` is the name of the label for agents.
    """

    def __init__(self, registry: CollectorRegistry, dimension: str) -> None:
        self.gathered: Gathered | None = None
        self._dimension = dimension
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The gauges; they are there without samples, too."""
        gathered, dimension = self.gathered, self._dimension
        evidence = GaugeMetricFamily(
            f"{PREFIX}evidence",
            "Evidence that a figure has shifted in its bad direction, from 0 to 2; an alert fires "
            "above 1. By what has arrived in all partitions, told by the worker that owns "
            "partition 0; no sample while too little is usual, or nothing comes.",
            labels=[dimension, "figure", "direction", "shift"],
        )
        ratio = GaugeMetricFamily(
            f"{PREFIX}arrived_ratio",
            "The figure by what has arrived in the last ten minutes, or in the last half hour if "
            "nothing came in those; where there is evidence.",
            labels=[dimension, "figure"],
        )
        until = GaugeMetricFamily(
            f"{PREFIX}evidence_timestamp_seconds",
            "End of the last minute for which evidence is told. The worker that owns partition 0 "
            "always has it.",
        )
        if gathered is not None:
            until.add_metric([], 60.0 * (gathered.minute + 1))
            for agent, figures in gathered.stands.items():
                for name, stands in figures.items():
                    if stands.evidence is None or stands.ratio is None:
                        continue
                    ratio.add_metric([agent, name], stands.ratio)
                    direction = _DIRECTIONS[stands.figure.sign]
                    for shift, value in zip(SHIFTS, stands.evidence, strict=True):
                        evidence.add_metric([agent, name, direction, shift], value)
        yield from (evidence, ratio, until)
