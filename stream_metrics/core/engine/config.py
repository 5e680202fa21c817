"""Every setting that changes what the engine computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.metrics.labels import HUMAN_FIRST, Counting
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
    """Thresholds, tables and limits with which state is computed.

    ``good_gain``: the lowest gain of a good result. ``gain_of_document``: which label counts for a
    document with several results, ``first`` (that of the first labelled result) or ``max``.
    ``settled_percent``: the lowest percentage of labelled documents of a settled iteration.
    ``dimension``: whether windows are by ``agent`` or by ``release``. ``retrieval``: the ranked
    metrics to sum over searches. ``labels``: whose labels count (``metrics.labels.Counting``).
    ``model_labellers``: patterns for the labellers that are models.
    """

    good_gain: int = 2
    gain_of_document: str = "first"
    settled_percent: int = 90
    dimension: str = "agent"
    retrieval: tuple[RankedMetric, ...] = ()
    labels: Counting = HUMAN_FIRST
    model_labellers: tuple[str, ...] = ()
    rules: DedupRules = field(default_factory=DedupRules)
    limits: Limits = field(default_factory=Limits)

    @property
    def max_names(self) -> int:
        """The largest number of agents, or releases, with series of their own."""
        return MAX_AGENTS if self.dimension == "agent" else MAX_RELEASES
