"""The evidence about every figure of every agent, from the minutes of all partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stream_metrics.core.alerts.arrivals import COUNTS
from stream_metrics.core.alerts.figures import FIGURES, Figure
from stream_metrics.core.alerts.minutes import Arrived, Hours
from stream_metrics.core.alerts.shifts import (
    Added,
    Came,
    Evidence,
    Minutes,
    Usual,
    Watch,
    gathered,
    pooled,
    ratio_lately,
    span,
    unlabelled,
)
from stream_metrics.core.engine.config import OTHER

HOUR: Final = 60  # minutes

_ALL: Final = frozenset(COUNTS)


@dataclass(frozen=True, slots=True, eq=False)
class Stands:
    """What there is about a figure of an agent after a minute.

    ``own`` is the evidence of a small and of a large shift of the agent, ``pooled`` that of its
    pool; None where nothing is usual. ``ratio`` is that of what came lately, None if nothing did.
    ``usual`` is what is usual, ``active`` how many minutes of the usual day had traffic, and
    ``hour`` what came in each minute of the last hour.
    """

    figure: Figure
    threshold: float
    own: tuple[Evidence, ...] | None
    pooled: tuple[Evidence, ...] | None
    ratio: float | None
    usual: Usual | None
    active: int
    hour: Sequence[Came]

    @property
    def evidence(self) -> tuple[float, ...] | None:
        """The agent's own evidence or that of its pool, whichever is more, by shift.

        An alert fires above 1. None where no alert is active.
        """
        if self.own is None or self.ratio is None:
            return None
        both = zip(self.own, self.pooled or self.own, strict=True)
        return tuple(max(own.value, of_pool.value) for own, of_pool in both)


Told = Mapping[str, Mapping[str, Stands]]
"""What stands, by agent and by name of a figure."""


class Gathered(NamedTuple):
    """What stands after a minute; ``late`` are the partitions that are not read up to its end."""

    minute: int
    stands: Told
    late: tuple[int, ...] = ()


class Standing:
    """The evidence about agents, minute after minute; ``thresholds`` are in nats, by figure."""

    def __init__(self, thresholds: Mapping[str, float]) -> None:
        self._thresholds = thresholds
        self._arrived = Arrived()
        self._watches: dict[tuple[str, str], Watch] = {}

    def update(
        self,
        partitions: Mapping[int, Hours],
        now: int,
        pools: Mapping[str, str] | None = None,
        counts: Collection[str] = _ALL,
    ) -> Told:
        """``at``, of what has arrived in all partitions. Raises ``DamagedState``."""
        try:
            self._arrived.update(partitions)
        except Exception:
            self._arrived = Arrived()  # it has some of it
            raise
        return self.at(self._arrived.agents, now, pools, counts)

    def at(
        self,
        agents: Mapping[str, Minutes],
        now: int,
        pools: Mapping[str, str] | None = None,
        counts: Collection[str] = _ALL,
    ) -> Told:
        """What there is after the minute ``now``; ``pools`` are by agent.

        Nothing is there of figures without any traffic, nor of agents without series of their own,
        which are a mixture. ``counts`` are those that the state has.
        """
        figures = [f for f in FIGURES if {f.above, f.below} <= frozenset(counts)]
        found: dict[str, dict[str, Stands]] = {}
        watches: dict[tuple[str, str], Watch] = {}
        added: dict[str, dict[str, list[Added]]] = {figure.name: {} for figure in figures}
        for agent, minutes in agents.items():
            if agent == OTHER or not span(minutes, now):
                continue
            found[agent] = {}
            seen = frozenset[str]().union(*minutes.values())
            there = [figure for figure in figures if figure.below in seen]
            missing = unlabelled(minutes, now) if any(f.labelled for f in there) else ()
            for figure in there:
                key = agent, figure.name
                watch = self._watches.get(key) or Watch(figure, self._thresholds[figure.name])
                watches[key] = watch
                added[figure.name][agent] = watch.added(minutes, now, missing)
        self._watches = watches  # without those of agents that are gone
        for figure in figures:
            of_pools = _of_pools(figure, added[figure.name], pools or {})
            for agent, each in added[figure.name].items():
                watch = watches[agent, figure.name]
                found[agent][figure.name] = Stands(
                    figure,
                    self._thresholds[figure.name],
                    gathered(figure, each),
                    of_pools.get((pools or {}).get(agent)),
                    ratio_lately(figure, agents[agent], now),
                    watch.usual,
                    watch.active,
                    watch.lately(HOUR),
                )
        return found


def _of_pools(
    figure: Figure, added: Mapping[str, list[Added]], pools: Mapping[str, str]
) -> dict[str | None, tuple[Evidence, ...]]:
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
