"""The formulas of the ranked metrics over a batch of rankings.

Each function takes a batch and a metric with its options, and returns one score per ranking; NaN is
undefined. Sums run along the ranks in order (``accumulate``), so that a score is identical to the
bit in any batch.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, log, log2
from typing import Final

import numpy as np

from stream_metrics.core.metrics.ranking.batch import Bools, Floats, Ints, Rankings
from stream_metrics.core.metrics.ranking.names import MAX_GRADE, RankedMetric

LARGEST_EXPONENT: Final = 1_000.0
"""The largest grade of a gain that doubles with each grade: a million of them still add up."""
SMALL_EXPONENT: Final = 2.0**-10
LARGEST_GAIN: Final = 2.0**53
"""The largest grade that is a gain itself: up to here, different whole numbers stay different."""


def largest_gain(metric: RankedMetric) -> float:
    """The largest grade whose gains add up in doubles."""
    gains = None if metric.name == "q_measure" else metric.option("gains")
    if gains == "binary":
        return inf
    return LARGEST_EXPONENT if gains == "exponential" else LARGEST_GAIN


def max_grade(metric: RankedMetric) -> float:
    """The largest grade that the metric was told; any if it does not use grades as gains."""
    takes_gains = any(option.name == "gains" for option in metric.definition.options)
    return inf if takes_gains and metric.option("gains") != "linear" else metric.number(MAX_GRADE)


def total(terms: Floats) -> Floats:
    """The sum of each row, added from the first column on."""
    if not terms.shape[1]:
        return np.zeros(len(terms))
    return np.asarray(np.add.accumulate(terms, axis=1)[:, -1], dtype=np.float64)


# Logarithms and powers use `math`, whose results vary less between machines than those of numpy's
# vector code.


@lru_cache(maxsize=64)
def logs(count: int) -> Floats:
    """log2(i + 1) for the ranks i = 1..count."""
    values = np.array([log2(i + 1) for i in range(1, count + 1)])
    values.flags.writeable = False
    return values


@lru_cache(maxsize=64)
def powers(base: float, count: int) -> Floats:
    """base ** i for i = 0..count - 1."""
    values = np.array([base**i for i in range(count)])
    values.flags.writeable = False
    return values


def ratio(numerators: Floats | Ints, denominators: Floats | Ints, empty: float) -> Floats:
    """The quotients by row; ``empty`` where the denominator is 0."""
    out = np.full(len(numerators), empty)
    np.divide(numerators, denominators, out=out, where=np.asarray(denominators) != 0)
    return out


def relevant(batch: Rankings, metric: RankedMetric) -> Bools:
    """Whether each rank of the top k has the first occurrence of a relevant document."""
    thresholds = batch.thresholds(metric.rel)
    return np.asarray(batch.gains[:, : metric.k] >= thresholds[:, None])


def all_relevant(batch: Rankings, metric: RankedMetric) -> Ints:
    """The number of relevant documents; only those in the top k if the ground truth is unknown."""
    whole = batch.relevant_documents(metric.rel)
    if batch.truth_known.all():
        return whole
    return np.where(batch.truth_known, whole, count(relevant(batch, metric)))


def count(cells: Bools) -> Ints:
    """The number of true cells in each row."""
    return np.asarray(np.count_nonzero(cells, axis=1), dtype=np.int64)


def has_relevant(batch: Rankings, metric: RankedMetric) -> Bools:
    """Whether each query has something relevant by the metric's definition."""
    by = metric.definition.relevant_by
    if by == "none":
        return np.ones(len(batch.lengths), np.bool_)
    floor = batch.thresholds(metric.rel)
    by_grade = np.full(len(floor), by == "grade")
    if by == "gains":
        gains = metric.option("gains")
        by_grade = batch.graded if gains is None else np.full(len(floor), gains != "binary")
    floor = np.where(by_grade, np.nextafter(0.0, 1.0), floor)[:, None]
    known = np.asarray((batch.truth >= floor).any(axis=1))
    if batch.truth_known.all():
        return known
    return np.where(batch.truth_known, known, (batch.gains[:, : metric.k] >= floor).any(axis=1))


def _where_known(batch: Rankings, scores: Floats) -> Floats:
    """The scores, undefined where the ground truth is unknown."""
    return np.where(batch.truth_known, scores, np.nan)


# -- sets -------------------------------------------------------------------------------------


def hit(batch: Rankings, metric: RankedMetric) -> Floats:
    """1 if a relevant result is in the top k."""
    return np.asarray(relevant(batch, metric).any(axis=1), dtype=np.float64)


def precision(batch: Rankings, metric: RankedMetric) -> Floats:
    """Relevant in the top k ÷ k, or ÷ results in the top k; 0 if nothing was retrieved."""
    hits = count(relevant(batch, metric))
    assert metric.k is not None
    if metric.option("denominator") == "k":
        return np.asarray(hits / float(metric.k), dtype=np.float64)
    return ratio(hits, batch.retrieved(metric.k), 0.0)


def recall(batch: Rankings, metric: RankedMetric) -> Floats:
    """Relevant in the top k ÷ all relevant; 0 if nothing is relevant."""
    hits = count(relevant(batch, metric))
    return _where_known(batch, ratio(hits, all_relevant(batch, metric), 0.0))


def p_miss(batch: Rankings, metric: RankedMetric) -> Floats:
    """Share of the relevant documents that are not in the top k."""
    hits = count(relevant(batch, metric))
    every = all_relevant(batch, metric)
    return _where_known(batch, ratio(every - hits, every, np.nan))


def p_fa(batch: Rankings, metric: RankedMetric) -> Floats:
    """False alarms: of the results in the top k, or of the collection's non-relevant documents."""
    false = batch.retrieved(metric.k) - count(relevant(batch, metric))
    collection = _collection(metric)
    if collection is None:
        return ratio(false, batch.retrieved(metric.k), 0.0)
    others = collection - all_relevant(batch, metric)
    if (others < np.maximum(false, 1)).any():
        raise ValueError(
            f"{metric}: a collection of {collection:,} documents is too small for the documents "
            "retrieved and relevant; give the size of the whole collection"
        )
    return _where_known(batch, false / others)


def _collection(metric: RankedMetric) -> int | None:
    fa = str(metric.option("fa"))
    return int(fa.removeprefix("collection(").removesuffix(")")) if "(" in fa else None


def aqwv(batch: Rankings, metric: RankedMetric) -> Floats:
    """1 − P_miss − β · P_FA."""
    return 1.0 - p_miss(batch, metric) - metric.number("beta") * p_fa(batch, metric)


def judged(batch: Rankings, metric: RankedMetric) -> Floats:
    """Share of the results in the top k that have a judgement."""
    number = batch.judged[:, : metric.k].sum(axis=1)
    return ratio(number, batch.retrieved(metric.k), np.nan)


# -- ranks ------------------------------------------------------------------------------------


def mrr(batch: Rankings, metric: RankedMetric) -> Floats:
    """1 ÷ rank of the first relevant result; 0 without one."""
    cells = relevant(batch, metric)
    if not cells.shape[1]:
        return np.zeros(len(cells))
    return np.where(cells.any(axis=1), 1.0 / (cells.argmax(axis=1) + 1), 0.0)


def average_precision(batch: Rankings, metric: RankedMetric) -> Floats:
    """Sum of precision at each relevant rank ÷ all relevant (or the smaller of that and k)."""
    cells = relevant(batch, metric)
    every = all_relevant(batch, metric)
    if metric.option("normalise") == "min_k" and metric.k is not None:
        every = np.minimum(every, metric.k)
    rows, columns = np.nonzero(cells)
    starts = np.searchsorted(rows, np.arange(len(cells)))
    precisions = (np.arange(1, len(rows) + 1) - starts[rows]) / (columns + 1)
    # Adds up in the order of the ranks, as `total` does, and leaves out the zeros.
    sums = np.bincount(rows, precisions, minlength=len(cells))
    return _where_known(batch, ratio(sums, every, 0.0))


def ndcg(batch: Rankings, metric: RankedMetric) -> Floats:
    """DCG of the top k ÷ DCG of the best order of the complete ground truth, cut at k."""
    k = metric.k
    gains = batch.gains[:, :k]
    best = -np.sort(-gains, axis=1) if not batch.truth_known.all() else gains
    width = max(best.shape[1], batch.truth[:, :k].shape[1])
    ideal = np.zeros((len(gains), width))
    ideal[:, : batch.truth[:, :k].shape[1]] = batch.truth[:, :k]
    ideal[~batch.truth_known, : best.shape[1]] = best[~batch.truth_known]
    dcg = total(_gains(batch, metric, gains) / logs(gains.shape[1]))
    return ratio(dcg, total(_gains(batch, metric, ideal) / logs(width)), 0.0)


def _gains(batch: Rankings, metric: RankedMetric, grades: Floats) -> Floats:
    """The gains of grades; by default binary where grades are not used as gains."""
    kind = metric.option("gains")
    if kind == "exponential":
        gains = np.exp2(grades) - 1.0
        small = (grades > 0) & (grades < SMALL_EXPONENT)
        if small.any():  # where the difference would cancel
            gains[small] = np.expm1(grades[small] * log(2.0))
        return gains
    if kind == "linear":
        return grades
    binary = (grades >= batch.thresholds(metric.rel)[:, None]).astype(np.float64)
    if kind == "binary":
        return binary
    return np.where(batch.graded[:, None], grades, binary)


def err(batch: Rankings, metric: RankedMetric) -> Floats:
    """Expected reciprocal rank: a reader stops at rank r with probability R_r."""
    gains = batch.gains[:, : metric.k]
    stops = (np.exp2(gains) - 1.0) / 2.0 ** metric.number(MAX_GRADE)
    ranks = np.arange(1, gains.shape[1] + 1)
    passed = np.ones_like(stops)
    np.multiply.accumulate(1.0 - stops[:, :-1], axis=1, out=passed[:, 1:])
    return total(stops * passed / ranks)


def rbp(batch: Rankings, metric: RankedMetric) -> Floats:
    """Rank-biased precision: a reader continues to the next rank with probability p."""
    p = metric.number("p")
    gains = relevant(batch, metric).astype(np.float64)
    if metric.option("gains") == "linear":
        gains = batch.gains[:, : metric.k] / metric.number(MAX_GRADE)
    return (1.0 - p) * total(gains * powers(p, gains.shape[1]))


def rbp_residual(batch: Rankings, metric: RankedMetric) -> Floats:
    """The weight of what RBP does not know: unjudged ranks, and all ranks after the last."""
    p = metric.number("p")
    shown = batch.retrieved(metric.k)
    depth = batch.judged[:, : metric.k].shape[1]
    unknown = ~batch.judged[:, : metric.k] & (np.arange(depth) < shown[:, None])
    masses = powers(p, depth + 1)
    return (1.0 - p) * total(unknown * masses[:depth]) + masses[shown]


def q_measure(batch: Rankings, metric: RankedMetric) -> Floats:
    """Blended ratios (C + β·cg) ÷ (r + β·cg*) at relevant ranks, summed, ÷ all relevant."""
    beta = metric.number("beta")
    gains = batch.gains
    depth = gains.shape[1]
    every = (batch.truth > 0).sum(axis=1)
    ideal = np.zeros_like(gains)
    width = min(depth, batch.truth.shape[1])
    ideal[:, :width] = batch.truth[:, :width]
    cells = gains > 0
    above = np.cumsum(cells, axis=1) + beta * np.cumsum(gains, axis=1)
    below = np.arange(1, depth + 1) + beta * np.cumsum(ideal, axis=1)
    terms = np.where(cells, above / below, 0.0)
    return _where_known(batch, ratio(total(terms), every, 0.0))


# -- diversity --------------------------------------------------------------------------------


def alpha_ndcg(batch: Rankings, metric: RankedMetric) -> Floats:
    """DCG in which each repeat of a document has 1 − α of the gain of the previous one.

    The best order has every relevant document once, then the retrieved repeats by descending gain.
    In rankings judged by subtopic, subtopics repeat instead.
    """
    k, alpha = metric.k, metric.number("alpha")
    thresholds = batch.thresholds(metric.rel)[:, None]
    worths = powers(1.0 - alpha, int(batch.repeats.max(initial=0)) + 1)
    worth = np.where(batch.grades >= thresholds, worths[batch.repeats], 0.0)
    shown = worth[:, :k]
    seen = np.where(batch.truth_known[:, None], worth, _cut(worth, k))
    again = -np.sort(-np.where(batch.repeats > 0, seen, 0.0), axis=1)
    first = all_relevant(batch, metric)
    discount = 1.0 / logs(int(first.max(initial=0)) + again.shape[1] + 1)
    if k is not None:
        discount[k:] = 0.0
    once = np.concatenate([[0.0], np.cumsum(discount)])[first]
    places = first[:, None] + np.arange(again.shape[1])
    ideal = once + total(again * discount[places])
    scores = ratio(total(shown / logs(shown.shape[1])), ideal, 0.0)
    for at, subtopics in enumerate(batch.subtopics):
        if subtopics is not None:
            scores[at] = subtopics.alpha_ndcg(alpha, k)
    return scores


def _cut(values: Floats, k: int | None) -> Floats:
    """The values with zeros after rank k."""
    if k is None:
        return values
    kept = values.copy()
    kept[:, k:] = 0.0
    return kept


def novelty(batch: Rankings, metric: RankedMetric) -> Floats:
    """Share of the top k whose document no earlier search of the turn returned."""
    shown = batch.retrieved(metric.k)
    return ratio(shown - batch.before[:, : metric.k].sum(axis=1), shown, np.nan)


def redundancy(batch: Rankings, metric: RankedMetric) -> Floats:
    """Share of the top k that repeats a document above it in the same ranking."""
    repeats = (batch.repeats[:, : metric.k] > 0).sum(axis=1)
    return ratio(repeats, batch.retrieved(metric.k), np.nan)


def max_ont_sim(batch: Rankings, metric: RankedMetric) -> Floats:
    """The largest similarity of an expected term to one in the top k; 0 without results."""
    formula = str(metric.option("formula"))
    values = batch.similarities.get(formula)
    if values is None:
        return np.full(len(batch.lengths), np.nan)
    best = values[:, : metric.k].max(axis=1, initial=0.0)
    return np.where(batch.similarities_known[formula], best, np.nan)
