"""The results of a replay, or a part of one, apart from its rows, in a form that merges exactly.

Parts have no conversation in common. All figures are integers or exact sums. Counts that are sums
over rows are not included, because merging the rows computes them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, NamedTuple

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.window_sums import SumsAt
from stream_metrics.core.engine.windows import Names, names_with_series
from stream_metrics.core.engine.without_ids import WithoutIds
from stream_metrics.core.metrics.decisions import RerankSums
from stream_metrics.lab.evaluation.recorded_searches import Scoring
from stream_metrics.lab.history import History
from stream_metrics.lab.replay.label_estimates import LabelSums, added
from stream_metrics.lab.sources.place import Place

REJECTED_LISTED: Final = 100


class RejectedRecord(NamedTuple):
    """A record that a replay could not use, and why."""

    place: Place
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a replay computes, which must be equal for all parts that are merged.

    ``now_us``: the time of the window sums; None is the largest event time. ``models``: the folders
    of the models that score answers, by metric name. ``scoring``: how searches are scored; None:
    they are not scored. ``answers``: whether answers are scored.
    """

    config: EngineConfig
    turn_scope: str
    agents: tuple[str, ...]
    routes: tuple[str, ...]
    windows: tuple[Window, ...]
    now_us: int | None = None
    models: tuple[tuple[str, str], ...] = ()
    scoring: Scoring | None = None
    answers: bool = True

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics of searches."""
        return [] if self.scoring is None else [str(metric) for metric in self.scoring.metrics]

    def names(self, agents: Iterable[str], routes: Iterable[str]) -> Names:
        """The agents (or releases) and routes that have series of their own."""
        return Names(
            names_with_series(agents, self.agents, self.config.max_names),
            names_with_series(routes, self.routes, MAX_ROUTES),
        )

    def history(self, last_event_us: int) -> History:
        """An empty history with these options."""
        found = History(
            self.windows,
            dimension=self.config.dimension,
            agents=self.agents,
            routes=self.routes,
        )
        found.last_event_us = last_event_us
        return found


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of records, the reranking sums and the first bad records, by place.

    ``agents`` and ``routes`` are the first by code point, up to the number that may have series of
    their own. ``beyond_limit`` is of the turns that have a row, ``beyond_limit_of_all`` of all
    turns, which the windows have. ``without_ids`` is of the turns that have a row. ``label_sums``
    are of all turns, by agent (or release).
    """

    events: int = 0
    invalid: int = 0
    stale: int = 0
    forgotten: int = 0
    conversations: int = 0
    orphan_labels: int = 0
    last_event_us: int = 0
    agents: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    reranks: RerankSums = field(default_factory=RerankSums)
    rejected: tuple[RejectedRecord, ...] = ()
    beyond_limit: BeyondLimit = field(default_factory=BeyondLimit)
    beyond_limit_of_all: BeyondLimit = field(default_factory=BeyondLimit)
    without_ids: WithoutIds = field(default_factory=WithoutIds)
    label_sums: LabelSums = field(default_factory=dict)

    def now_us(self, options: ReplayOptions) -> int:
        """The time of the windows."""
        return self.last_event_us if options.now_us is None else options.now_us

    def window_sums(self, options: ReplayOptions) -> SumsAt:
        """An accumulator that takes the buckets of all parts and returns the window sums."""
        names = options.names(self.agents, self.routes)
        return SumsAt(options.windows, names, self.now_us(options))

    def as_data(self) -> dict[str, Any]:
        """The outcome as JSON data; exact sums are hexadecimal."""
        searches, undefined, *sums = self.reranks
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "last_event_us": self.last_event_us,
            "agents": list(self.agents),
            "routes": list(self.routes),
            "reranks": [searches, undefined, *map(hex, sums)],
            "rejected": [[list(place), *why] for place, *why in self.rejected],
            **{name: said for name in _IF_ANY if any(said := getattr(self, name))},
            **({"label_sums": self.label_sums} if self.label_sums else {}),
        }

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Outcome:
        """The inverse of ``as_data``; raises ``ValueError``, ``KeyError`` or ``TypeError``."""
        searches, undefined, *sums = data["reranks"]
        return cls(
            **{name: int(data[name]) for name in (*_COUNTS, "last_event_us")},
            agents=tuple(data["agents"]),
            routes=tuple(data["routes"]),
            reranks=RerankSums(searches, undefined, *(int(one, 16) for one in sums)),
            rejected=tuple(RejectedRecord(tuple(place), *why) for place, *why in data["rejected"]),
            beyond_limit=BeyondLimit(*data.get("beyond_limit", ())),
            beyond_limit_of_all=BeyondLimit(*data.get("beyond_limit_of_all", ())),
            without_ids=WithoutIds(*data.get("without_ids", ())),
            label_sums=added({}, data.get("label_sums", {})),
        )


_COUNTS: Final = ("events", "invalid", "stale", "forgotten", "conversations", "orphan_labels")
_IF_ANY: Final = ("beyond_limit", "beyond_limit_of_all", "without_ids")


def merge_outcomes(outcomes: Iterable[Outcome], options: ReplayOptions) -> Outcome:
    """Merge the outcomes of parts that have no conversation in common."""
    counts = dict.fromkeys((*_COUNTS, "last_event_us"), 0)
    agents: set[str] = set()
    routes: set[str] = set()
    reranks = RerankSums()
    rejected: list[RejectedRecord] = []
    beyond = of_all = BeyondLimit()
    unnamed = WithoutIds()
    label_sums: LabelSums = {}
    for one in outcomes:
        for name in _COUNTS:
            counts[name] += getattr(one, name)
        counts["last_event_us"] = max(counts["last_event_us"], one.last_event_us)
        agents = {*nsmallest(options.config.max_names, agents | {*one.agents})}
        routes = {*nsmallest(MAX_ROUTES, routes | {*one.routes})}
        reranks = reranks.plus(one.reranks)
        rejected = nsmallest(REJECTED_LISTED, [*rejected, *one.rejected])
        beyond = beyond.plus(one.beyond_limit)
        of_all = of_all.plus(one.beyond_limit_of_all)
        unnamed = unnamed.plus(one.without_ids)
        label_sums = added(label_sums, one.label_sums)
    return Outcome(
        **counts,
        agents=tuple(sorted(agents)),
        routes=tuple(sorted(routes)),
        reranks=reranks,
        rejected=tuple(rejected),
        beyond_limit=beyond,
        beyond_limit_of_all=of_all,
        without_ids=unnamed,
        label_sums=label_sums,
    )
