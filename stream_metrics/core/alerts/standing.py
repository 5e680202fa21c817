"""The evidence about every figure of every agent, from the minutes of all partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import COUNTS
from stream_metrics.core.alerts.figures import FIGURES, Figure
from stream_metrics.core.alerts.shifts import (
    Added,
    Minutes,
    Watch,
    gathered,
    pooled,
    ratio_lately,
    span,
)
from stream_metrics.core.engine.config import OTHER

_ALL: Final = frozenset(COUNTS)


class Stands(NamedTuple):
    """The evidence of a small and of a large shift, and the ratio of what came lately.

    An alert fires from 1 on.
    """

    evidence: tuple[float, ...]
    ratio: float


class Standing:
    """The evidence about agents, minute after minute; ``thresholds`` are in nats, by figure."""

    def __init__(self, thresholds: Mapping[str, float]) -> None:
        self._thresholds = thresholds
        self._watches: dict[tuple[str, str], Watch] = {}

    def at(
        self,
        agents: Mapping[str, Minutes],
        now: int,
        pools: Mapping[str, str] | None = None,
        counts: Collection[str] = _ALL,
    ) -> dict[tuple[str, str], Stands]:
        """By agent and name of a figure, what there is after the minute ``now``.

        It is that of the agent's pool if that is more; ``pools`` are by agent. Nothing is there of
        an agent of which nothing is usual or nothing came for half an hour, nor of agents without
        series of their own, which are a mixture. ``counts`` are those that the state has.
        """
        named = {
            agent: minutes
            for agent, minutes in agents.items()
            if agent != OTHER and span(minutes, now)
        }
        found: dict[tuple[str, str], Stands] = {}
        watches: dict[tuple[str, str], Watch] = {}
        for figure in FIGURES:
            if not {figure.above, figure.below} <= frozenset(counts):
                continue
            added: dict[str, list[Added]] = {}
            for agent, minutes in named.items():
                key = agent, figure.name
                watch = self._watches.get(key) or Watch(figure, self._thresholds[figure.name])
                watches[key] = watch
                added[agent] = watch.added(minutes, now)
            of_pools = _of_pools(figure, added, pools or {})
            for agent, each in added.items():
                own, ratio = gathered(figure, each), ratio_lately(figure, named[agent], now)
                if own is not None and ratio is not None:
                    of_pool = of_pools.get((pools or {}).get(agent), own)
                    most = tuple(map(max, own, of_pool))
                    found[agent, figure.name] = Stands(most, ratio)
        self._watches = watches  # without those of agents that are gone
        return found


def _of_pools(
    figure: Figure, added: Mapping[str, list[Added]], pools: Mapping[str, str]
) -> dict[str | None, tuple[float, ...]]:
    """The evidence about each pool."""
    members: dict[str, list[list[Added]]] = {}
    for agent, each in added.items():
        if agent in pools:
            members.setdefault(pools[agent], []).append(each)
    return {
        pool: evidence
        for pool, each in members.items()
        if (evidence := gathered(figure, pooled(each))) is not None
    }
