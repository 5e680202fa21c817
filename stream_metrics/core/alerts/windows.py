"""The alerts that compare a ratio of window sums with its usual value, as data.

A condition holds if the ratio is beyond a limit in each of its windows, and beyond the bound of
chance in the longest. The usual value is that of the agent's last day, as of an hour ago, so that
the first hour of an incident is not part of it. ``other`` has none, because it is a changing
mixture of agents. Prometheus' rules and the judgement of the page both come from these conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from stream_metrics.core.alerts.alert import CRITICAL, WARNING
from stream_metrics.core.alerts.bounds import (
    Bound,
    few_above,
    mean_below,
    relative_below,
    share_above,
    share_below,
    skewed_below,
    spread_below,
)
from stream_metrics.core.alerts.promql import Promql, Value
from stream_metrics.core.alerts.thresholds import (
    BASELINE,
    DECISIONS,
    DROPS,
    EVEN_RERANKED,
    ITERATIONS,
    JUDGED_OF_USUAL,
    LABELLED_OF_DAY,
    MISSED,
    MISSED_OF_USUAL,
    RERANKED,
    RERANKING,
    RERANKING_DROP,
    RESULTS,
    RESULTS_DROPS,
    ROUTES,
    ROUTING_DROP,
    SEARCHES,
    SRR_CRITICAL,
    SRR_OF_USUAL,
    SRR_WARNING,
    SRR_WINDOWS,
    USUAL_DECISIONS,
    USUAL_ITERATIONS,
    USUAL_RERANKED,
    USUAL_RESULTS,
    USUAL_ROUTES,
    USUAL_SEARCHES,
)
from stream_metrics.core.engine.series import PREFIX

TEN_MINUTES: Final = "10m"  # two windows of five minutes; only Prometheus has the older one
NAMED: Final = 'agent!="other", release!="other"'


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two window sums.

    ``above`` and ``below`` are families with the labels that select from them; ``drops`` are
    further labels to add up over. ``count`` counts the items of the ratio (None: ``below`` does),
    recorded as ``counted``. ``min_count`` are needed in a window, ``min_usual`` in the usual day.
    ``windows`` are recorded.
    """

    name: str
    above: str
    below: str
    counted: str
    windows: tuple[str, ...]
    min_count: int
    min_usual: int
    bound: Bound
    count: str | None = None
    drops: tuple[str, ...] = ()

    def value(self, window: str) -> Promql:
        """The recorded ratio of a window."""
        return Promql(f"agent:streammetrics_{self.name}:ratio_{window}")

    def usual(self, window: str | None = None) -> Promql:
        """The recorded usual value: of the last day, or of windows of the same length in it."""
        of = "baseline" if window is None else f"usual_{window}"
        return Promql(f"agent:streammetrics_{self.name}:{of}")

    def number(self, window: str) -> Promql:
        """The recorded number of items of a window."""
        return Promql(f"agent:streammetrics_{self.counted}:sum_{window}")

    def records(self) -> Iterator[tuple[str, str]]:
        """The recording rules: each with its name and expression."""
        for window in self.windows:
            below = self._sum(self.below, window)
            yield self.value(window).text, f"{self.part(window)}\n  / ({below} > 0)"
        if self.min_usual:
            above = self.part(BASELINE, NAMED, " offset 1h")
            below = self._sum(self.below, BASELINE, NAMED, " offset 1h")
            count = self._sum(self.count or self.below, BASELINE, NAMED, " offset 1h")
            yield (
                self.usual().text,
                f"{above}\n  / ({below} > 0)\n  and {count} >= {self.min_usual}",
            )
        for window in self.windows:
            yield self.number(window).text, self._sum(self.count or self.below, window)

    def part(self, window: str, agents: str = "", offset: str = "") -> str:
        """The expression of the numerator in a window.

        A worker with very many series omits those that are 0; ``or 0 *`` restores them.
        """
        if window == TEN_MINUTES:
            return f"({self.part('5m')} + {self.part('5m', offset=' offset 5m')})"
        above, below = (
            self._sum(family, window, agents, offset) for family in (self.above, self.below)
        )
        return f"({above}\n  or 0 * {below})"

    def _sum(self, family: str, window: str, agents: str = "", offset: str = "") -> str:
        """The sum of a family over workers; ``without`` keeps a site's own labels."""
        if window == TEN_MINUTES:
            return f"({self._sum(family, '5m')} + {self._sum(family, '5m', offset=' offset 5m')})"
        metric, _, labels = family.partition("|")
        chosen = ", ".join(filter(None, (labels, f'window="{window}"', agents)))
        without = ", ".join(("instance", "pod", "window", *self.drops))
        return f"sum without ({without}) ({PREFIX}{metric}{{{chosen}}}{offset})"


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a ratio is beyond what is usual: ``is_beyond`` holds in all of the windows.

    ``is_beyond`` takes a value and the usual one. ``labels`` is the window in which there must be
    about as many labels as usual. ``fixed_baseline`` is a value to use as the usual one, and the
    number of items needed then. ``limit`` is a fixed threshold that the value must exceed as well.
    """

    severity: str
    windows: tuple[str, ...]
    is_beyond: Callable[[Value, Value], Value]
    labels: str | None = None
    fixed_baseline: tuple[float, int] | None = None
    limit: float | None = None

    def promql(self, ratio: Ratio) -> Promql:
        """The condition as an expression whose value is the ratio of the first window."""
        last = self.windows[-1]
        compared, enough = self.fixed_baseline or (ratio.usual(), ratio.min_count)
        parts = [ratio.value(w) > self.limit for w in self.windows if self.limit is not None]
        parts += [self.is_beyond(ratio.value(window), compared) for window in self.windows]
        parts.append(ratio.bound(ratio.value(last), compared, ratio.number(last)))
        parts.append(Promql(f"{ratio.number(last).text}{{{NAMED}}}") >= enough)
        if self.labels is not None:
            parts += _labels_came(self.labels)
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        return whole


def _labels_came(window: str) -> list[Promql]:
    """Without labels, settled iterations are those that need none, which are not like the others.

    The share of labelled documents in the last minutes depends on how long labels take, therefore
    it is compared with that of other windows of the same length.
    """
    labelled = LABELLED.value(window)
    return [
        labelled > JUDGED_OF_USUAL * LABELLED.usual(window),
        labelled > LABELLED_OF_DAY * LABELLED.value(BASELINE),
    ]


def _above_usual(times: float) -> Callable[[Value, Value], Value]:
    return lambda value, usual: value > times * usual


def _below_usual(part: float) -> Callable[[Value, Value], Value]:
    return lambda value, usual: value < part * usual


def _under_usual(by: float) -> Callable[[Value, Value], Value]:
    return lambda value, usual: value < usual - by


def _below_even(value: Value, usual: Value) -> Value:
    return value < RERANKING


@dataclass(frozen=True, slots=True)
class WindowRule:
    """The ratio of an alert and its conditions, the worst first; any of them fires the alert."""

    ratio: Ratio
    conditions: tuple[Condition, ...]

    def promql(self, severity: str) -> str:
        """The expression of the alert with this severity."""
        found = [c.promql(self.ratio).text for c in self.conditions if c.severity == severity]
        return "\nor ".join(f"({indented(text)}\n)" for text in found)


def indented(text: str) -> str:
    """The lines of an expression, each on a line of its own and indented."""
    return "".join(f"\n  {line}" for line in text.splitlines())


def _drops(severity: str) -> tuple[Condition, ...]:
    return tuple(
        Condition(severity, (window,), _below_usual(part), labels) for window, part, labels in DROPS
    )


# The variance of the share of duplicates is about four times that of independent results, of good
# results 2.5 times, and of labelled results 20 times, because the labels of a turn arrive together.
# The variance of an iteration's gain is about six times its mean. For one search, the ratio of the
# two NDCGs has a standard deviation of 0.25, and the number of results is assumed to have one of
# 0.75 of its mean, which is more than if a third of the searches find nothing. A usual share of
# missed searches or wrong routes of 0 is assumed to be 2%.
SRR: Final = WindowRule(
    Ratio(
        "duplicate_results_per_results", "duplicate_results", "results", "results",
        ("1m", "5m", "10m", "30m", "24h"), RESULTS, USUAL_RESULTS, share_above(4.5, 4),
    ),
    tuple(
        Condition(severity, windows, _above_usual(SRR_OF_USUAL), limit=limit)
        for severity, limit in ((CRITICAL, SRR_CRITICAL), (WARNING, SRR_WARNING))
        for windows in SRR_WINDOWS
    ),
)  # fmt: skip
RESULTS_PER_SEARCH: Final = WindowRule(
    Ratio(
        "results_per_searches", "results", "searches", "searches", ("5m", "10m", "30m"), SEARCHES,
        USUAL_SEARCHES, relative_below(4, 0.75),
    ),
    tuple(Condition(CRITICAL, (window,), _below_usual(part)) for window, part in RESULTS_DROPS),
)  # fmt: skip
SRE: Final = WindowRule(
    Ratio(
        "settled_good_results_per_settled_results", "settled_good_results", "settled_results",
        "settled_results", ("5m", "10m", "30m"), RESULTS, USUAL_RESULTS, skewed_below(4, 2.5),
    ),
    _drops(CRITICAL),
)  # fmt: skip
GAIN: Final = WindowRule(
    Ratio(
        "settled_gain_per_settled_iterations", "settled_gain", "settled_iterations",
        "settled_iterations", ("5m", "10m", "30m"), ITERATIONS, USUAL_ITERATIONS, mean_below(4, 6),
    ),
    _drops(WARNING),
)  # fmt: skip
MISSED_SEARCHES: Final = WindowRule(
    Ratio(
        "missed_searches_per_labelled_decisions", 'gate_decisions|decision="skip", needed="yes"',
        'gate_decisions|needed=~"yes|no"', "labelled_gate_decisions", ("5m", "10m", "1h"),
        DECISIONS, USUAL_DECISIONS, few_above(4, least=0.02), drops=("decision", "needed"),
    ),
    tuple(
        Condition(CRITICAL, (window,), _above_usual(MISSED_OF_USUAL), limit=limit)
        for window, limit in MISSED.items()
    ),
)  # fmt: skip
CORRECT_ROUTES: Final = WindowRule(
    Ratio(
        "correct_routes_per_labelled_routes", 'routed_searches|correct="yes"',
        'routed_searches|correct=~"yes|no"', "labelled_routes", ("5m", "10m", "1h"), ROUTES,
        USUAL_ROUTES, skewed_below(4, 1, most=0.98), drops=("route", "correct"),
    ),
    tuple(Condition(WARNING, (window,), _under_usual(by)) for window, by in ROUTING_DROP.items()),
)  # fmt: skip
RERANKED_ORDER: Final = WindowRule(
    Ratio(
        "rerank_ndcg_shown_per_baseline", 'rerank_ndcg_sum|order="shown"',
        'rerank_ndcg_sum|order="baseline"', "reranked_searches", ("5m", "10m", "1h"), RERANKED,
        USUAL_RERANKED, spread_below(4, 0.25), "rerank_ndcg_count", ("order",),
    ),
    (
        Condition(WARNING, ("5m",), _below_even),
        Condition(WARNING, ("10m",), _below_even),
        Condition(WARNING, ("1h",), _under_usual(RERANKING_DROP)),
        Condition(WARNING, ("1h",), _below_even, fixed_baseline=(RERANKING, EVEN_RERANKED)),
    ),
)  # fmt: skip
LABELLED: Final = Ratio(
    "labelled_results_per_unique_results", "labelled_results", "unique_results", "unique_results",
    ("5m", "1h", "24h"), RESULTS, 0, share_below(4.5, 20, least=0.05),
)  # fmt: skip
RULES: Final = (
    SRR, RESULTS_PER_SEARCH, SRE, GAIN, MISSED_SEARCHES, CORRECT_ROUTES, RERANKED_ORDER
)  # fmt: skip
