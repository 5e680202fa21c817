"""Ranked metrics of one ranking, computed rank by rank from their definitions.

A ranking is a list of (document, grade or None); the truth a map of document to grade. Nothing is
shared with the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2

Ranking = Sequence[str]
Grades = Mapping[str, float]


def _gains(ranking: Ranking, truth: Grades) -> list[float]:
    """The grades by rank, at least 0, with each document once."""
    return [
        max(truth.get(one, 0.0), 0.0) if one not in ranking[:at] else 0.0
        for at, one in enumerate(ranking)
    ]


def _hits(ranking: Ranking, truth: Grades, rel: float) -> list[bool]:
    return [gain >= rel for gain in _gains(ranking, truth)]


def _total(truth: Grades, rel: float) -> int:
    return sum(grade >= rel for grade in truth.values())


def hit(ranking: Ranking, truth: Grades, k: int, rel: float = 1) -> float:
    """Is a relevant document in the top k?"""
    return float(any(_hits(ranking, truth, rel)[:k]))


def precision(ranking: Ranking, truth: Grades, k: int, rel: float = 1) -> float:
    """Relevant in the top k ÷ k."""
    return sum(_hits(ranking, truth, rel)[:k]) / k


def precision_of_retrieved(ranking: Ranking, truth: Grades, k: int, rel: float = 1) -> float:
    """Relevant in the top k ÷ results in the top k."""
    top = _hits(ranking, truth, rel)[:k]
    return sum(top) / len(top) if top else 0.0


def recall(ranking: Ranking, truth: Grades, k: int, rel: float = 1) -> float:
    """Relevant in the top k ÷ relevant."""
    total = _total(truth, rel)
    return sum(_hits(ranking, truth, rel)[:k]) / total if total else 0.0


def reciprocal_rank(ranking: Ranking, truth: Grades, k: int, rel: float = 1) -> float:
    """1 ÷ the first relevant rank."""
    for rank, is_hit in enumerate(_hits(ranking, truth, rel)[:k], 1):
        if is_hit:
            return 1 / rank
    return 0.0


def average_precision(
    ranking: Ranking, truth: Grades, k: int, rel: float = 1, *, min_k: bool = False
) -> float:
    """Precision at the relevant ranks, summed, ÷ relevant or min(k, relevant)."""
    hits = _hits(ranking, truth, rel)[:k]
    total = _total(truth, rel)
    summed = sum(sum(hits[:rank]) / rank for rank in range(1, len(hits) + 1) if hits[rank - 1])
    below = min(k, total) if min_k else total
    return summed / below if below else 0.0


def ndcg(ranking: Ranking, truth: Grades, k: int, gains: str = "linear", rel: float = 1) -> float:
    """DCG ÷ DCG of the best order of the truth."""

    def gain(grade: float) -> float:
        if gains == "binary":
            return float(grade >= rel)
        return grade if gains == "linear" else 2.0**grade - 1

    def dcg(grades: Sequence[float]) -> float:
        return sum(gain(grade) / log2(rank + 1) for rank, grade in enumerate(grades[:k], 1))

    best = dcg(sorted((max(grade, 0.0) for grade in truth.values()), reverse=True))
    return dcg(_gains(ranking, truth)) / best if best else 0.0


def aqwv(
    ranking: Ranking, truth: Grades, k: int, beta: float = 40, collection: int | None = None
) -> float | None:
    """1 − misses − β · false alarms."""
    total = _total(truth, 1)
    top = _hits(ranking, truth, 1)[:k]
    if not total:
        return None
    missed = 1 - sum(top) / total
    false = top.count(False)
    if collection is not None:
        return 1 - missed - beta * false / (collection - total)
    return 1 - missed - beta * (false / len(top) if top else 0.0)


def err(ranking: Ranking, truth: Grades, k: int, max_grade: float = 4) -> float:
    """Expected reciprocal rank."""
    found, goes_on = 0.0, 1.0
    for rank, gain in enumerate(_gains(ranking, truth)[:k], 1):
        stops = (2.0**gain - 1) / 2.0**max_grade
        found += goes_on * stops / rank
        goes_on *= 1 - stops
    return found


def rbp(
    ranking: Ranking,
    truth: Grades,
    k: int | None = None,
    p: float = 0.8,
    rel: float = 1,
    max_grade: float | None = None,
) -> float:
    """Rank-biased precision; graded if the largest grade is given."""
    gains = _gains(ranking, truth)[:k]
    worth = [float(g >= rel) if max_grade is None else g / max_grade for g in gains]
    return (1 - p) * sum(x * p**at for at, x in enumerate(worth))


def rbp_residual(ranking: Ranking, truth: Grades, k: int | None = None, p: float = 0.8) -> float:
    """The weight of all ranks minus that of judged ones."""
    judged = [one in truth for one in ranking][:k]
    return 1 - (1 - p) * sum(p**at for at, known in enumerate(judged) if known)


def q_measure(ranking: Ranking, truth: Grades, beta: float = 1) -> float:
    """Sakai's blended ratio, averaged over the relevant documents."""
    best = sorted((grade for grade in truth.values() if grade > 0), reverse=True)
    gains = _gains(ranking, truth)
    summed = 0.0
    for rank in range(1, len(gains) + 1):
        if gains[rank - 1] > 0:
            count = sum(gain > 0 for gain in gains[:rank])
            summed += (count + beta * sum(gains[:rank])) / (rank + beta * sum(best[:rank]))
    return summed / len(best) if best else 0.0


def alpha_ndcg(
    ranking: Ranking, truth: Grades, k: int, alpha: float = 0.5, rel: float = 1
) -> float:
    """Alpha-nDCG: each repetition is worth 1 − α of the previous one; the ideal is greedy."""
    worth = [
        (1 - alpha) ** ranking[:at].count(one) if truth.get(one, 0.0) >= rel else 0.0
        for at, one in enumerate(ranking)
    ]
    pool = [one for one, grade in truth.items() if grade >= rel]
    pool += [one for at, one in enumerate(ranking) if worth[at] and one in ranking[:at]]
    best: list[float] = []
    taken: list[str] = []
    while pool:
        at = max(range(len(pool)), key=lambda place: (1 - alpha) ** taken.count(pool[place]))
        best.append((1 - alpha) ** taken.count(pool[at]))
        taken.append(pool.pop(at))

    def dcg(values: Sequence[float]) -> float:
        return sum(value / log2(rank + 1) for rank, value in enumerate(values[:k], 1))

    return dcg(worth) / dcg(best) if dcg(best) else 0.0


def condensed(ranking: Ranking, truth: Grades) -> list[str]:
    """The ranking without unjudged documents."""
    return [one for one in ranking if one in truth]


def cut(line: str) -> list[str]:
    """The fields of a line of a TREC file as trec_eval's C code cuts them, sign by sign."""
    fields = [""]
    for sign in line:
        if sign in " \t\n\v\f\r":
            fields.append("")
        else:
            fields[-1] += sign
    return [field for field in fields if field]
