"""Every setting that changes what the engine computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.metrics.ranking.names import RankedMetric

OTHER: Final = "other"
DEFAULT_AGENT: Final = "default"
WINDOW_BUCKETS: Final = 60
MAX_AGENTS: Final = 50
MAX_RELEASES: Final = 10
MAX_ROUTES: Final = 20
MAX_RETRIEVAL: Final = 24


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Thresholds, tables and limits that the state was, or is to be, built with.

    ``good_gain``: the gain from which a result is good. ``gain_of_document``: whose label stands
    for a document with several occurrences, ``first`` (the first that has one) or ``max``.
    ``settled_percent``: the share of labelled documents from which an iteration is settled.
    ``dimension``: what windows are kept by, ``agent`` or ``release``. ``retrieval``: the ranked
    metrics that are summed up over searches.
    """

    good_gain: int = 2
    gain_of_document: str = "first"
    settled_percent: int = 90
    dimension: str = "agent"
    retrieval: tuple[RankedMetric, ...] = ()
    rules: DedupRules = field(default_factory=DedupRules)
    limits: Limits = field(default_factory=Limits)

    @property
    def max_names(self) -> int:
        """How many agents, or releases, have series of their own."""
        return MAX_AGENTS if self.dimension == "agent" else MAX_RELEASES
