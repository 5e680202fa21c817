"""Ratios of window sums, which alerts about slow changes and about labels compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stream_metrics.core.alerts.promql import Promql
from stream_metrics.core.engine.series import PREFIX

NAMED: Final = 'agent!="other", release!="other"'
"""Agents (or releases) with series of their own: ``other`` is a changing mixture."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two window sums.

    ``above`` and ``below`` are families with the labels that select from them; ``drops`` are
    further labels to add up over. ``count`` counts the items of the ratio (None: ``below`` does),
    recorded as ``counted``. ``windows`` are recorded.
    """

    name: str
    above: str
    below: str
    counted: str
    windows: tuple[str, ...]
    count: str | None = None
    drops: tuple[str, ...] = ()

    def value(self, window: str) -> Promql:
        """The recorded ratio of a window."""
        return Promql(f"agent:streammetrics_{self.name}:ratio_{window}")

    def usual(self, window: str) -> Promql:
        """The recorded ratio of all windows of that length in the last day."""
        return Promql(f"agent:streammetrics_{self.name}:usual_{window}")

    def number(self, window: str) -> Promql:
        """The recorded number of items of a window."""
        return Promql(f"agent:streammetrics_{self.counted}:sum_{window}")

    def records(self) -> Iterator[tuple[str, str]]:
        """The recording rules: each with its name and expression."""
        for window in self.windows:
            below = self._sum(self.below, window)
            yield self.value(window).text, f"{self.part(window)}\n  / ({below} > 0)"
            yield self.number(window).text, self._sum(self.count or self.below, window)

    def part(self, window: str) -> str:
        """The expression of the numerator in a window.

        A worker with very many series omits those that are 0; ``or 0 *`` restores them.
        """
        above, below = (self._sum(family, window) for family in (self.above, self.below))
        return f"({above}\n  or 0 * {below})"

    def _sum(self, family: str, window: str) -> str:
        """The sum of a family over workers; ``without`` keeps a site's own labels."""
        metric, _, labels = family.partition("|")
        chosen = ", ".join(filter(None, (labels, f'window="{window}"')))
        without = ", ".join(("instance", "pod", "window", *self.drops))
        return f"sum without ({without}) ({PREFIX}{metric}{{{chosen}}})"


def indented(text: str) -> str:
    """The lines of an expression, each on a line of its own and indented."""
    return "".join(f"\n  {line}" for line in text.splitlines())


SRR: Final = Ratio(
    "duplicate_results_per_results", "duplicate_results", "results", "results", ("24h",)
)
RERANKED: Final = Ratio(
    "rerank_ndcg_shown_per_baseline", 'rerank_ndcg_sum|order="shown"',
    'rerank_ndcg_sum|order="baseline"', "reranked_searches", ("1h",), "rerank_ndcg_count",
    ("order",),
)  # fmt: skip
LABELLED: Final = Ratio(
    "labelled_results_per_unique_results", "labelled_results", "unique_results", "unique_results",
    ("5m", "1h"),
)  # fmt: skip
