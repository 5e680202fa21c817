"""What each metric means, as data: documentation, label sets and dashboards come from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

RETRIEVED_GOOD_GAIN: Final = "Retrieved good gain: gain of new good documents per search iteration"
ROUTING_AND_GATING: Final = "Routing accuracy, gate efficiency and reranking improvement"


OWN: Final = "This project's own; docs/reference/metrics.md has the worked example."
NO_SEARCH: Final = "no iteration searched"
NEVER: Final = "never"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric's description.

    Attributes:
        name: Unique, parses back; the key in rows where a row has the figure by itself (the
            figures of the blocks ``gate``, ``routing`` and ``reranking`` stand there).
        title: The field's own name for it.
        help: What it tells, in one sentence.
        formula: In plain text; i is the compact number of an iteration, N the last.
        unit: ``1`` (a ratio or a score), ``results``, ``gain``, ``iterations``.
        low, high: The range; ``high`` None is unbounded.
        better: Whether a higher or a lower value is better, or neither.
        none_means: When the value is None (undefined).
        family: What it is documented with.
        turn_windows: Whether its value at the end of a turn is exported as a window sum.
        reference: Where the definition comes from.
    """

    name: str
    title: str
    help: str
    formula: str
    unit: str
    better: Literal["higher", "lower", "neither"]
    none_means: str = NO_SEARCH
    low: float = 0.0
    high: float | None = None
    family: str = RETRIEVED_GOOD_GAIN
    turn_windows: bool = False
    reference: str = OWN


_DISCOUNT: Final = (
    "Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4), "
    "2002; here the discount applies to iterations instead of ranks."
)
_NDCG: Final = (
    "Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, ACM TOIS 20(4), "
    "2002; NDCG with linear gains."
)
_RATIO_NONE: Final = "the denominator is 0"

METRICS: Final[tuple[Metric, ...]] = (
    Metric("cg", "CG", "Total gain of the good documents found so far.", "sum of G_k, k = 1..i",
           "gain", "higher"),
    Metric("rg", "RG", "Good gain per iteration.", "CG@i / i", "gain", "higher", high=None,
           turn_windows=True),
    Metric("dcg", "DCG", "CG in which later iterations count less.",
           "sum of G_k / log2(k + 1), k = 1..i", "gain", "higher",
           reference=_DISCOUNT),
    Metric("drg", "DRG", "Discounted good gain per iteration.", "DCG@i / i", "gain", "higher",
           turn_windows=True,
           reference=_DISCOUNT),
    Metric("avg_gain", "AvgGain", "Good gain per result of one iteration; 0 without results.",
           "G_i / R_i", "gain", "higher", high=4.0),
    Metric("rag", "RAG", "Mean of AvgGain over the iterations.",
           "(sum of AvgGain_k, k = 1..i) / i", "gain", "higher", high=4.0, turn_windows=True),
    Metric("drag", "DRAG", "RAG in which later iterations count less.",
           "(sum of AvgGain_k / log2(k + 1), k = 1..i) / i", "gain", "higher", high=4.0,
           turn_windows=True,
           reference=_DISCOUNT),
    Metric("sre", "SRE", "Search result efficiency: share of results that are new and good.",
           "GR@i / R@i", "1", "higher", high=1.0, turn_windows=True),
    Metric("sre_upper", "SRE upper bound",
           "What SRE would be if every unlabelled document were good.",
           "(GR@N + unlabelled unique documents) / R@N", "1", "higher", high=1.0),
    Metric("srr", "SRR",
           "Search result redundancy: share of results that repeat a document of the turn.",
           "DupR@i / R@i", "1", "lower", high=1.0, turn_windows=True),
    Metric("iterations_for_all_good_results", "Iterations for all good results",
           "Number of iterations until all good documents were retrieved, at most 100.",
           "min(k, 100), k the smallest i at which all are retrieved", "iterations", "lower",
           low=1.0, high=100.0, turn_windows=True,
           none_means="no good document is known, or, with qrels, no result has a `doc_id`"),
    Metric("gate_efficiency", "Gate efficiency",
           "Share of labelled gate decisions that correctly skipped a search.",
           "correct skips / labelled decisions", "1", "higher", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE),
    Metric("gate_accuracy", "Gate accuracy", "Share of labelled gate decisions that were correct.",
           "(correct skips + correct searches) / labelled decisions", "1", "higher", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE),
    Metric("skip_precision", "Skip precision",
           "Share of labelled skips where no search was needed.",
           "correct skips / (correct skips + missed)", "1", "higher", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE),
    Metric("skip_recall", "Skip recall", "Share of unneeded searches that the gate skipped.",
           "correct skips / (correct skips + wasted)", "1", "higher", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE),
    Metric("routing_accuracy", "Routing accuracy",
           "Share of labelled, routed searches that took the best route.",
           "searches with selected = optimal / labelled routed searches", "1", "higher", high=1.0,
           family=ROUTING_AND_GATING, none_means=_RATIO_NONE),
    Metric("reranking_improvement", "Reranking improvement",
           "Relative change of NDCG by reranking. Results that the reranker removed do not count.",
           "(mean NDCG shown - mean NDCG baseline) / mean NDCG baseline", "1", "higher",
           low=-1.0, family=ROUTING_AND_GATING,
           none_means="no search has two ranked results and a label, or the baseline is 0",
           reference=_NDCG),
)  # fmt: skip

BY_NAME: Final = {metric.name: metric for metric in METRICS}


def parse(name: str) -> Metric:
    """The metric of that name; raises ``KeyError`` with the nearest names for any other.

    >>> parse("srr").title
    'SRR'
    """
    try:
        return BY_NAME[name]
    except KeyError:
        raise KeyError(f"unknown metric {name!r}; known are {', '.join(BY_NAME)}") from None
