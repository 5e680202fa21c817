"""The registry of metrics: each is one object with its meaning and its computation.

Rows, their published schema, window sums, reports, documentation, dashboards and the page iterate
over the registry. A metric added here appears in all of them (``docs/extending.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import fsum
from typing import Any, Final, Literal, NamedTuple

from stream_metrics.core.metrics.turn_totals import TurnTotals

RETRIEVED_GOOD_GAIN: Final = "Retrieved good gain: gain of new good documents per search iteration"
LOOPS: Final = "Loops: searches that repeat or find nothing"
ROUTING_AND_GATING: Final = "Routing accuracy, gate efficiency and reranking improvement"

OWN: Final = "This project's own; docs/reference/metrics.md has the worked example."
NO_SEARCH: Final = "no iteration searched"
NEVER: Final = "never"

ITERATIONS: Final = "iterations_for_all_good_results"
BASES: Final = ("qrels", "retrieved")
"""What may define "all good documents" of a turn."""

BLOCKS: Final = ("gate", "routing", "reranking")
"""Blocks of a row that contain counts of their own."""

Place = Literal["iteration", "through", "turn", "count", "gate", "routing", "reranking"]
Quotient = tuple[tuple[str, ...], tuple[str, ...]]


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: The unique name.
        title: The usual name in the literature.
        help: A description in one sentence.
        formula: The formula as plain text; i is the number of a counted iteration, N the last.
        unit: ``1`` (a ratio or a score), ``results``, ``gain``, ``iterations``.
        better: Whether a higher or a lower value is better, or neither.
        compute: Computes the value from a turn's running totals; returns None if undefined. None
            for metrics that are computed in another way.
        place: Where a row has the value: ``iteration`` (of each iteration alone), ``through``
            (cumulative up to each iteration, and for the whole turn), ``turn`` (for the turn only),
            ``count`` (for the turn only; 0 without a search), or in the block of this name.
        field: The key in the row, if it differs from the name.
        whole: Whether every value is a whole number.
        none_means: When the value is None (undefined); empty if it never is.
        low, high: The range. ``high`` is None if there is no upper bound.
        family: The section of the documentation.
        windowed: Whether the value at the end of a turn is summed in windows over turns.
        bases: The bases by which its window sums are kept separate.
        quotient: The counts of a row that are summed for the figure over many rows: numerators,
            denominators.
        series: The window series whose quotient is the figure over a window.
        reference: The source of the definition.
    """

    name: str
    title: str
    help: str
    formula: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    compute: Callable[[TurnTotals], float | None] | None = None
    place: Place = "through"
    field: str = ""
    whole: bool = False
    none_means: str = NO_SEARCH
    low: float = 0.0
    high: float | None = None
    family: str = RETRIEVED_GOOD_GAIN
    windowed: bool = False
    bases: tuple[str, ...] = ()
    quotient: Quotient | None = None
    series: tuple[str, str] | None = None
    reference: str = OWN

    @property
    def key(self) -> str:
        """The key in the row or block."""
        return self.field or self.name

    @property
    def reported(self) -> str:
        """The key in reports."""
        return self.name if self.place in BLOCKS else self.key

    @property
    def path(self) -> str:
        """The path in a row."""
        if self.place in ("through", "turn", "count"):
            return self.key
        return (
            f"iterations[].{self.key}" if self.place == "iteration" else f"{self.place}.{self.key}"
        )

    def label(self, basis: str = "") -> str:
        """The value of the label ``metric`` of the window sums."""
        return f"{self.name}_{basis}" if self.bases else self.name

    @property
    def labels(self) -> tuple[str, ...]:
        """All values of the label ``metric``; empty if the metric is not windowed."""
        return tuple(map(self.label, self.bases or ("",))) if self.windowed else ()


_DISCOUNT: Final = (
    "Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4), "
    "2002; here the discount applies to iterations instead of ranks."
)
_NDCG: Final = (
    "Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4), "
    "2002; NDCG with linear gains."
)
_RATIO_NONE: Final = "the denominator is 0"
_DECIDED: Final = ("correct_skip", "missed", "correct_search", "wasted")
_RESULTS: Final = ("results",)
_ITERATIONS: Final = ("n",)

METRICS: Final[tuple[Metric, ...]] = (
    Metric("cg", "CG", "Total gain of the good documents found so far.", "sum of G_k, k = 1..i",
           "gain", "higher", lambda t: t.gain, whole=True),
    Metric("rg", "RG", "Good gain per iteration.", "CG@i / i", "gain", "higher",
           lambda t: t.gain / t.n, windowed=True, quotient=(("gain",), _ITERATIONS),
           series=("settled_gain", "settled_iterations")),
    Metric("dcg", "DCG", "CG in which later iterations count less.",
           "sum of G_k / log2(k + 1), k = 1..i", "gain", "higher",
           lambda t: fsum(t.gains_discounted), reference=_DISCOUNT),
    Metric("drg", "DRG", "Discounted good gain per iteration.", "DCG@i / i", "gain", "higher",
           lambda t: fsum(t.gains_discounted) / t.n, windowed=True, reference=_DISCOUNT),
    Metric("avg_gain", "AvgGain", "Good gain per result of one iteration; 0 without results.",
           "G_i / R_i", "gain", "higher", lambda t: t.averages[-1], "iteration", high=4.0,
           quotient=(("gain",), _RESULTS)),
    Metric("rag", "RAG", "Mean of AvgGain over the iterations.",
           "(sum of AvgGain_k, k = 1..i) / i", "gain", "higher",
           lambda t: fsum(t.averages) / t.n, high=4.0, windowed=True),
    Metric("drag", "DRAG", "RAG in which later iterations count less.",
           "(sum of AvgGain_k / log2(k + 1), k = 1..i) / i", "gain", "higher",
           lambda t: fsum(t.averages_discounted) / t.n, high=4.0, windowed=True,
           reference=_DISCOUNT),
    Metric("sre", "SRE", "Search result efficiency: share of results that are new and good.",
           "GR@i / R@i", "1", "higher", lambda t: t.good / t.results if t.results else 0.0,
           high=1.0, windowed=True, quotient=(("good_unique",), _RESULTS),
           series=("settled_good_results", "settled_results")),
    Metric("srr", "SRR",
           "Search result redundancy: share of results that repeat a document of the turn.",
           "DupR@i / R@i", "1", "lower", lambda t: t.duplicates / t.results if t.results else 0.0,
           high=1.0, windowed=True, quotient=(("duplicates",), _RESULTS),
           series=("duplicate_results", "results")),
    Metric("sre_upper", "SRE upper bound",
           "What SRE would be if every unlabelled document were good.",
           "(GR@N + unlabelled unique documents) / R@N", "1", "higher",
           lambda t: (t.good + t.unlabelled) / t.results if t.results else 0.0, "turn", high=1.0),
    Metric(ITERATIONS, "Iterations for all good results",
           "Number of iterations until all good documents were retrieved, at most 100.",
           "min(k, 100), k the smallest i at which all are retrieved", "iterations", "lower",
           lambda t: t.until_all_good, "turn", whole=True, low=1.0, high=100.0, windowed=True,
           bases=BASES,
           none_means="no good document is known, or, with qrels, no result has a `doc_id`"),
    Metric("repeated_searches", "Repeated searches",
           "Searches whose query and route an earlier search of the turn had.",
           "searches k with a query, and with that and the route of one of searches 1..k-1",
           "searches", "lower", lambda t: t.repeated if t.queries_known else None, "count",
           whole=True, family=LOOPS,
           none_means="the state was built under `dedup.tables` 1 or 2, without digests of queries",
           quotient=(("repeated_searches",), ("queried_searches",)),
           series=("repeated_searches", "queried_searches")),
    Metric("empty_searches", "Empty searches", "Searches without a result.",
           "searches k with no result", "searches", "lower", lambda t: t.empty, "count",
           whole=True, family=LOOPS, none_means="",
           quotient=(("empty_searches",), ("searches",)), series=("empty_searches", "searches")),
    Metric("iterations_without_new", "Iterations without new documents",
           "Iterations that searched and found no document that is new in the turn.",
           "iterations i with UR@i = UR@(i-1)", "iterations", "lower", lambda t: t.without_new,
           "count", whole=True, family=LOOPS, none_means="",
           quotient=(("iterations_without_new",), _ITERATIONS),
           series=("iterations_without_new", "iterations")),
    Metric("trailing_without_new", "Last iterations without new documents",
           "Iterations at the end of the turn that found no new document: what to stop earlier "
           "would have saved.",
           "N - i, i the last iteration with UR@i > UR@(i-1), or 0", "iterations", "lower",
           lambda t: t.trailing, "count", whole=True, family=LOOPS, none_means="",
           quotient=(("trailing_without_new",), _ITERATIONS),
           series=("trailing_without_new", "iterations")),
    Metric("gate_efficiency", "Gate efficiency",
           "Share of labelled gate decisions that correctly skipped a search.",
           "correct skips / labelled decisions", "1", "higher",
           place="gate", field="efficiency", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE,
           quotient=(("correct_skip",), _DECIDED)),
    Metric("gate_accuracy", "Gate accuracy", "Share of labelled gate decisions that were correct.",
           "(correct skips + correct searches) / labelled decisions", "1", "higher",
           place="gate", field="accuracy", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE,
           quotient=(("correct_skip", "correct_search"), _DECIDED)),
    Metric("skip_precision", "Skip precision",
           "Share of labelled skips where no search was needed.",
           "correct skips / (correct skips + missed)", "1", "higher", place="gate", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE,
           quotient=(("correct_skip",), ("correct_skip", "missed"))),
    Metric("skip_recall", "Skip recall", "Share of unneeded searches that the gate skipped.",
           "correct skips / (correct skips + wasted)", "1", "higher", place="gate", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE,
           quotient=(("correct_skip",), ("correct_skip", "wasted"))),
    Metric("routing_accuracy", "Routing accuracy",
           "Share of labelled, routed searches that took the best route.",
           "searches with selected = optimal / labelled routed searches", "1", "higher",
           place="routing", field="accuracy", high=1.0, family=ROUTING_AND_GATING,
           none_means=_RATIO_NONE, quotient=(("correct",), ("labelled",))),
    Metric("reranking_improvement", "Reranking improvement",
           "Relative change of NDCG by reranking. Results that the reranker removed do not count.",
           "(mean NDCG shown - mean NDCG baseline) / mean NDCG baseline", "1", "higher",
           place="reranking", field="improvement", low=-1.0, family=ROUTING_AND_GATING,
           none_means="no search has two ranked results and a label, or the baseline is 0",
           reference=_NDCG),
)  # fmt: skip

LABELLED_SHARE: Final = Metric(
    "labelled_share", "Labelled share", "Share of unique documents that have a label.",
    "labelled unique documents / unique documents", "1", "neither", field="labelled", high=1.0,
    quotient=(("labelled",), ("unique",)), series=("labelled_results", "unique_results"),
)  # fmt: skip
"""Indicates how far the other metrics can be trusted. It covers many turns and is in no row."""

BY_NAME: Final = {metric.name: metric for metric in METRICS}


def metrics_at(*places: Place) -> tuple[Metric, ...]:
    """The metrics in any of these places of a row, in the order of the registry."""
    return tuple(metric for metric in METRICS if metric.place in places)


def values(metrics: Iterable[Metric], through: TurnTotals) -> dict[str, float | None]:
    """The values of metrics from a turn's running totals, by key."""
    return {one.key: None if one.compute is None else one.compute(through) for one in metrics}


def quotients(metrics: Iterable[Metric], counts: Any) -> dict[str, float | None]:
    """The values of metrics that are quotients of the attributes of ``counts``, by key."""
    found: dict[str, float | None] = {}
    for metric in metrics:
        assert metric.quotient is not None
        above, below = (sum(getattr(counts, name) for name in names) for names in metric.quotient)
        found[metric.key] = above / below if below else None
    return found


CUMULATIVE: Final = metrics_at("through")
QUOTIENTS: Final = tuple(one for one in (*METRICS, LABELLED_SHARE) if one.quotient is not None)
"""The metrics that are a quotient of sums over many rows."""
WINDOWED: Final = tuple(metric for metric in METRICS if metric.windowed)
TURN_LABELS: Final = tuple(label for metric in WINDOWED for label in metric.labels)
"""The values of the label ``metric`` of window sums over turns."""


def parse(name: str) -> Metric:
    """The metric with this name; raises ``KeyError`` that lists the names if there is none.

    >>> parse("srr").title
    'SRR'
    """
    try:
        return BY_NAME[name]
    except KeyError:
        raise KeyError(f"unknown metric {name!r}; known are {', '.join(BY_NAME)}") from None
