"""The registry of ranked metrics: definitions, options, names and suites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from stream_metrics.core.metrics.ranking import scores
from stream_metrics.core.metrics.ranking.names import (
    MAX_GRADE,
    Definition,
    MetricNameError,
    Option,
    RankedMetric,
    read,
)
from stream_metrics.core.metrics.registry import NEVER, Metric

RANKED: Final = "Ranked retrieval"

_JUDGED_ONLY: Final = Option(
    "judged_only", "Remove unjudged results first; the others move up.", False
)
_REL: Final = Option(
    "rel",
    "The lowest relevant grade. Defaults to 1 for qrels and to `metrics.good_gain` for labels.",
    low_open=True,
)
_MAX_GRADE: Final = Option(MAX_GRADE, "The highest possible grade.", 4.0, low_open=True)
_MAX_EXPONENT: Final = replace(_MAX_GRADE, high=scores.LARGEST_EXPONENT)
_LARGEST_BETA: Final = 1e15
_BETA: Final = Option(
    "beta", "The cost of a false alarm relative to a miss.", 40.0, high=_LARGEST_BETA
)
_FA: Final = Option(
    "fa",
    "The denominator of P_FA: the results in the top k, or the non-relevant documents of a "
    "collection of N.",
    "retrieved",
    choices=("retrieved",),
    collection=True,
)
_P: Final = Option("p", "The probability that a reader continues to the next rank.", 0.8, high=1.0)

_NO_TRUTH: Final = "the full ground truth is unknown (token overlap)"
_EMPTY: Final = "nothing was retrieved"


def _metric(
    name: str,
    title: str,
    help_: str,
    formula: str,
    reference: str,
    *,
    better: str = "higher",
    low: float = 0.0,
    high: float | None = 1.0,
    none_means: str = NEVER,
) -> Metric:
    assert better in ("higher", "lower", "neither")
    return Metric(
        name,
        title,
        help_,
        formula,
        "1",
        "lower" if better == "lower" else "neither" if better == "neither" else "higher",
        none_means=none_means,
        low=low,
        high=high,
        family=RANKED,
        reference=reference,
    )


_CRANFIELD: Final = "Cleverdon, The Cranfield tests on index language devices, Aslib 19(6), 1967."
_TREC: Final = "Buckley and Voorhees, Retrieval system evaluation, in TREC, MIT Press, 2005."
_MATERIAL: Final = (
    "The MATERIAL programme's AQWV, with the top k as detections instead of a threshold."
)

DEFINITIONS: Final[tuple[Definition, ...]] = (
    Definition(
        _metric("hit", "Hit@k", "Whether a relevant result is in the top k.",
                "1 if a relevant result is in the top k, else 0",
                "Also known as hit rate, and as success in TREC."),
        scores.hit, (_REL, _JUDGED_ONLY), aliases=("hr", "hit_rate", "success"),
    ),
    Definition(
        _metric("precision", "Precision@k", "Share of the top k that is relevant.",
                "relevant in top k / k", _CRANFIELD),
        scores.precision,
        (
            Option("denominator", "The denominator: k, or the number of results in the top k.",
                   "k", choices=("k", "retrieved")),
            _REL,
            _JUDGED_ONLY,
        ),
        aliases=("p",),
    ),
    Definition(
        _metric("recall", "Recall@k", "Share of all relevant documents that are in the top k.",
                "relevant in top k / all relevant", _CRANFIELD, none_means=_NO_TRUTH),
        scores.recall, (_REL, _JUDGED_ONLY), aliases=("r",),
    ),
    Definition(
        _metric("mrr", "MRR, MRR@k", "Reciprocal rank of the first relevant result.",
                "1 / rank of the first relevant result (in the top k), 0 if there is none",
                "Voorhees, The TREC-8 question answering track report, 1999."),
        scores.mrr, (_REL, _JUDGED_ONLY), cutoff="optional", aliases=("rr",),
        long_names=("mean_reciprocal_rank", "reciprocal_rank"),
    ),
    Definition(
        _metric("map", "MAP, MAP@k", "Mean precision at the ranks of all relevant documents.",
                "(sum of precision@i over relevant ranks i, up to k) / all relevant", _TREC,
                none_means=_NO_TRUTH),
        scores.average_precision,
        (
            Option("normalise", "The denominator: all relevant, or the smaller of that and k.",
                   "relevant", choices=("relevant", "min_k")),
            _REL,
            _JUDGED_ONLY,
        ),
        cutoff="optional", aliases=("ap",),
        long_names=("mean_average_precision", "average_precision"),
    ),
    Definition(
        _metric("ndcg", "NDCG, NDCG@k", "Discounted gain relative to the best order of the full "
                "ground truth.",
                "DCG@k / IDCG@k, DCG@k = sum of gain_i / log2(i + 1), i = 1..k",
                "Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, "
                "ACM TOIS 20(4), 2002; gains=exponential: Burges et al., ICML 2005."),
        scores.ndcg,
        (
            Option("gains", "The gain of a grade g: g, 1 if relevant, or 2^g - 1. Defaults to "
                   "linear for qrels and labels, otherwise to binary.",
                   choices=("linear", "binary", "exponential")),
            _REL,
            _JUDGED_ONLY,
        ),
        cutoff="optional", relevant_by="gains", largest_grade=scores.largest_gain,
        long_names=("normalized_discounted_cumulative_gain",
                 "normalised_discounted_cumulative_gain"),
    ),
    Definition(
        _metric("aqwv", "AQWV@k", "1 minus weighted misses and false alarms.",
                "1 - P_miss - beta * P_FA", _MATERIAL, low=-40.0,
                none_means=f"nothing is relevant, or {_NO_TRUTH}"),
        scores.aqwv, (_BETA, _FA, _REL, _JUDGED_ONLY), companions=("p_miss", "p_fa"),
    ),
    Definition(
        _metric("p_miss", "P_miss@k", "Share of the relevant documents that are not in the top k.",
                "(all relevant - relevant in top k) / all relevant", _MATERIAL, better="lower",
                none_means=f"nothing is relevant, or {_NO_TRUTH}"),
        scores.p_miss, (_REL, _JUDGED_ONLY),
    ),
    Definition(
        _metric("p_fa", "P_FA@k", "Share of false alarms; 0 if nothing was retrieved.",
                "non-relevant in top k / results in top k; with fa=collection(N): "
                "non-relevant in top k / (N - all relevant)", _MATERIAL, better="lower",
                none_means=f"{_NO_TRUTH}, with `fa=collection(N)`"),
        scores.p_fa, (_FA, _REL, _JUDGED_ONLY),
    ),
    Definition(
        _metric("err", "ERR@k", "Expected reciprocal rank of the result that satisfies a reader.",
                "sum of R_r / r * product of (1 - R_j), j < r; R = (2^g - 1) / 2^max_grade",
                "Chapelle et al., Expected reciprocal rank for graded relevance, CIKM 2009."),
        scores.err, (_MAX_EXPONENT, _JUDGED_ONLY), cutoff="optional", relevant_by="grade",
        largest_grade=scores.max_grade,
    ),
    Definition(
        _metric("rbp", "RBP", "Gain per rank read, for a reader who continues to the next "
                "rank with probability p.",
                "(1 - p) * sum of x_i * p^(i - 1); x is 0 or 1, with gains=linear g / max_grade",
                "Moffat and Zobel, Rank-biased precision, ACM TOIS 27(1), 2008."),
        scores.rbp,
        (
            _P,
            Option("gains", "The x of a grade g: 1 if relevant, or g / max_grade.", "binary",
                   choices=("binary", "linear")),
            _MAX_GRADE,
            _REL,
            _JUDGED_ONLY,
        ),
        cutoff="optional", relevant_by="gains", largest_grade=scores.max_grade,
        companions=("rbp_residual",),
    ),
    Definition(
        _metric("rbp_residual", "RBP residual",
                "How much RBP could rise if unjudged documents were relevant.",
                "(1 - p) * sum of p^(i - 1) over unjudged ranks and all ranks after the last",
                "Moffat and Zobel, Rank-biased precision, ACM TOIS 27(1), 2008.",
                better="neither"),
        scores.rbp_residual, (_P, _JUDGED_ONLY), cutoff="optional", relevant_by="none",
    ),
    Definition(
        _metric("q_measure", "Q-measure", "Average precision for graded relevance.",
                "(sum over relevant ranks r of (C(r) + beta * cg(r)) / (r + beta * cg*(r))) / "
                "all relevant; C counts relevant results, cg sums grades, cg* those of the best "
                "order",
                "Sakai, Ranking the NTCIR systems based on multigrade relevance, AIRS 2004.",
                none_means=_NO_TRUTH),
        scores.q_measure,
        (
            Option("beta", "The weight of grades; 0 gives average precision.", 1.0,
                   high=_LARGEST_BETA),
            _JUDGED_ONLY,
        ),
        cutoff="none", aliases=("q",), relevant_by="grade", largest_grade=scores.largest_gain,
    ),
    Definition(
        _metric("alpha_ndcg", "α-NDCG@k", "NDCG in which repeats of a document (or subtopic) "
                "count less.",
                "sum of (1 - alpha)^c / log2(i + 1) over relevant ranks / the same for the best "
                "order; c: earlier occurrences of the document",
                "Clarke et al., Novelty and diversity in information retrieval evaluation, "
                "SIGIR 2008."),
        scores.alpha_ndcg,
        (Option("alpha", "The share of gain lost by each repeat.", 0.5, high=1.0), _REL,
         _JUDGED_ONLY),
        cutoff="optional",
    ),
    Definition(
        _metric("novelty", "Novelty@k", "Share of the top k that no earlier search of the turn "
                "returned.",
                "results of documents new to the turn in top k / results in top k",
                "This project's own.", none_means=_EMPTY),
        scores.novelty, (_JUDGED_ONLY,), relevant_by="none",
    ),
    Definition(
        _metric("redundancy", "Redundancy@k", "Share of the top k that repeats a document of the "
                "same ranking.",
                "repeats in top k / results in top k", "This project's own.", better="lower",
                none_means=_EMPTY),
        scores.redundancy, (_JUDGED_ONLY,), relevant_by="none",
    ),
    Definition(
        _metric("max_ont_sim", "MaxOntSim@k", "Highest ontology similarity between a retrieved and "
                "an expected term; 1 for an exact match.",
                "largest similarity of an expected term to a term in the top k, 0 if none was "
                "retrieved",
                "That of the similarity, such as Lin, ICML 1998.",
                none_means="no term is expected"),
        scores.max_ont_sim,
        (Option("formula", "The name of the similarity in the ontology.", "lin", word=True),
         _JUDGED_ONLY),
        relevant_by="none",
    ),
    Definition(
        _metric("judged", "Judged@k", "Share of the top k that is judged. Trust the other scores "
                "less where this is low.",
                "judged in top k / results in top k", "Judged@k in ir-measures.",
                better="neither", none_means=_EMPTY),
        scores.judged, (_JUDGED_ONLY,), relevant_by="none",
    ),
)  # fmt: skip

BY_NAME: Final[dict[str, Definition]] = {
    **{alias: definition for definition in DEFINITIONS for alias in definition.aliases},
    **{definition.name: definition for definition in DEFINITIONS},
}

CUTOFFS: Final = (1, 3, 5, 10)
DEEPER: Final = (20,)
"""The additional cut-off of precision and recall."""

# Lists of metrics that a kind of benchmark commonly reports, in its usual definitions.
SUITES: Final[dict[str, tuple[str, ...]]] = {
    "default": (
        *(f"{name}@{k}" for name in ("hit", "ndcg") for k in CUTOFFS),
        *(f"{name}@{k}" for name in ("precision", "recall") for k in (*CUTOFFS, *DEEPER)),
        "mrr", "mrr@10", "map@10", "judged@10",
    ),
    "chatbot": (
        "hit@1", "hit@3", "hit@5", "hit@10", "ndcg@5", "ndcg@10", "mrr", "map@10",
        "precision(denominator=retrieved)@5", "recall@5",
    ),
    "answers": (
        *(f"{name}@{k}" for name in ("precision", "recall") for k in (*CUTOFFS, *DEEPER)),
        "mrr", *(f"mrr@{k}" for k in CUTOFFS), *(f"ndcg(gains=binary)@{k}" for k in CUTOFFS),
        "map", "aqwv@10",
    ),
    "code": (
        "ndcg(gains=binary)@5", "ndcg(gains=binary)@10", "precision@5", "recall@10", "mrr",
    ),
    "ontology": (
        "mrr", *(f"{name}@{k}" for name in ("hit", "max_ont_sim", "ndcg", "recall")
                 for k in CUTOFFS),
        *(f"precision(denominator=retrieved)@{k}" for k in CUTOFFS),
        *(f"map(normalise=min_k)@{k}" for k in CUTOFFS),
    ),
}  # fmt: skip


def parse(text: str) -> RankedMetric:
    """Parse the name of a ranked metric.

    Raises:
        MetricNameError: There is no such metric, option, value or cut-off.

    >>> str(parse("NDCG_at_10")), str(parse("p(denominator=k, rel=2)@5"))
    ('ndcg@10', 'precision(rel=2)@5')
    """
    return read(text, BY_NAME)


def parse_all(texts: Iterable[str]) -> list[RankedMetric]:
    """Parse names and suites into metrics, without repeats, in order; a text is one name."""
    texts = [texts] if isinstance(texts, str) else texts
    found = [parse(name) for text in texts for name in _members(text)]
    return list(dict.fromkeys(found))


def _members(text: str) -> tuple[str, ...]:
    """The names in a suite, or the name itself."""
    if not isinstance(text, str):
        raise MetricNameError(f"{text!r} is not a metric: write a name, as in 'ndcg@10'")
    return SUITES.get(text.strip().lower(), (text,))


def companions(metric: RankedMetric) -> list[RankedMetric]:
    """The metrics reported together with this one, with the options that both take.

    >>> [str(one) for one in companions(parse("aqwv(fa=collection(1000))@10"))]
    ['p_miss@10', 'p_fa(fa=collection(1000))@10']
    """
    found = []
    for name in metric.definition.companions:
        definition = BY_NAME[name]
        takes = {option.name for option in definition.options}
        given = tuple((option, value) for option, value in metric.given if option in takes)
        found.append(RankedMetric(definition, name, given, metric.k))
    return found
