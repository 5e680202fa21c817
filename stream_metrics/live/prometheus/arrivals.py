"""Counters of what arrives, from which alert rules gather evidence minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from stream_metrics.core.alerts.arrivals import BILLIONTHS, COUNTS
from stream_metrics.live.prometheus.catalogue import PREFIX

_HELP: Final = "{}: what batches {}, by {}, for alerts only."


class ArrivalCounters:
    """For each count of ``core.alerts.arrivals`` and each agent, one counter of what batches added
    and one of what they took back.

    ``dimension`` is the name of the label for agents.
    """

    def __init__(self, registry: CollectorRegistry, dimension: str) -> None:
        def counter(way: str, name: str, what: str) -> Counter:
            help = _HELP.format(COUNTS[name].removesuffix(", in billionths"), what, dimension)
            return Counter(f"{PREFIX}{way}_{name}", help, [dimension], registry=registry)

        self._counters = {
            name: (counter("arrived", name, "added"), counter("withdrawn", name, "took back"))
            for name in COUNTS
        }
        self._known: set[str] = set()

    def know(self, agents: Iterable[str]) -> None:
        """Begin all counters of these agents at 0, so that rates see their first change."""
        for agent in agents:
            if agent not in self._known:
                self._known.add(agent)
                for pair in self._counters.values():
                    for one in pair:
                        one.labels(agent)

    def add(self, net: Mapping[str, Mapping[str, int]]) -> None:
        """Add what ``net_arrivals`` says of a batch."""
        self.know(net)
        for agent, counts in net.items():
            for name, value in counts.items():
                arrived, withdrawn = self._counters[name]
                amount = abs(value) / 1e9 if name in BILLIONTHS else abs(value)
                (arrived if value > 0 else withdrawn).labels(agent).inc(amount)
