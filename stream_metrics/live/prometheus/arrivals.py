"""Counters of what arrives, from which alert rules gather evidence minute by minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from stream_metrics.core.alerts.arrivals import BILLIONTHS, COUNTS
from stream_metrics.live.prometheus.catalogue import PREFIX

ALL_COUNTS: Final = frozenset(COUNTS)
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
        self._counts = ALL_COUNTS
        self._known: set[str] = set()

    def know(self, agents: Iterable[str], counts: frozenset[str]) -> None:
        """Begin the counters of these agents at 0, so that rates see their first change.

        Only those of ``counts``, which the state has; the others are absent.
        """
        if counts != self._counts:
            self._counts = counts
            self._known.clear()
            for name in self._counters.keys() - counts:
                for one in self._counters[name]:
                    one.clear()
        self._begin(agents)

    def add(self, net: Mapping[str, Mapping[str, int]]) -> None:
        """Add what ``net_arrivals`` says of a batch."""
        self._begin(net)
        for agent, counts in net.items():
            for name, value in counts.items():
                arrived, withdrawn = self._counters[name]
                amount = abs(value) / 1e9 if name in BILLIONTHS else abs(value)
                (arrived if value > 0 else withdrawn).labels(agent).inc(amount)

    def _begin(self, agents: Iterable[str]) -> None:
        for agent in agents:
            if agent not in self._known:
                self._known.add(agent)
                for name in self._counts:
                    for one in self._counters[name]:
                        one.labels(agent)
