"""Ranked metrics of a turn's searches, judged by the turn's ground truth or by its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from . import ranking as plain
from .turns import Found, Turn


class Ranking(NamedTuple):
    """A search's results by name, the grade of each name, and what else metrics look at.

    A result that repeats one above has a name of its own, without a grade.
    """

    names: list[str]
    truth: Mapping[str, float]
    rel: float
    judged: list[bool]
    new: list[bool]


_DEEP = 10_000


def _share(flags: list[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


METRICS: dict[str, Callable[[Ranking], float | None]] = {
    "aqwv@2": lambda r: _aqwv(r, 2),
    "err@3": lambda r: plain.err(r.names, r.truth, 3),
    "hit@1": lambda r: plain.hit(r.names, r.truth, 1, r.rel),
    "judged@2": lambda r: _share(r.judged[:2]),
    "map": lambda r: plain.average_precision(r.names, r.truth, _DEEP, r.rel),
    "mrr": lambda r: plain.reciprocal_rank(r.names, r.truth, _DEEP, r.rel),
    "ndcg(gains=exponential)@2": lambda r: plain.ndcg(r.names, r.truth, 2, "exponential"),
    "ndcg@10": lambda r: plain.ndcg(r.names, r.truth, 10),
    "novelty@3": lambda r: _share(r.new[:3]),
    "precision(rel=3)@2": lambda r: plain.precision(r.names, r.truth, 2, 3),
    "recall@2": lambda r: plain.recall(r.names, r.truth, 2, r.rel),
    "redundancy@3": lambda r: _share([name.startswith("again ") for name in r.names[:3]]),
}


def _aqwv(ranking: Ranking, k: int) -> float | None:
    binary = {name: float(grade >= ranking.rel) for name, grade in ranking.truth.items()}
    return plain.aqwv(ranking.names, binary, k)


def scores(
    turn: Turn, search_id: str, names: tuple[str, ...], source: str | None = None
) -> dict[str, float]:
    """The defined scores of a search, maybe by one source; none if the turn has no judgements."""
    ranking = ranking_of(turn, search_id, source=source)
    if ranking is None:
        return {}
    found = {name: METRICS[name](ranking) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def ranking_of(
    turn: Turn, search_id: str, *, unjudged: bool = False, source: str | None = None
) -> Ranking | None:
    """The ranking of a search with its judgements; None without any, unless requested.

    Labels are those that count, or of one source.
    """
    relevant = None if turn.completed is None else turn.completed.entry
    if relevant is not None and turn.options.joined_grades:
        return _by_joined_ids(turn, search_id, relevant)
    documents = {one.placement.first for one in turn.found}
    if relevant is not None:
        truth = {f"doc {doc_id}": float(grade) for doc_id, grade in relevant.items()}
        rel = 1.0
    else:
        gain_of = turn.gain_of if source is None else partial(turn.gain_by, source)
        labels = {first: gain_of(first) for first in documents}
        truth = {f"{first}": float(gain) for first, gain in labels.items() if gain is not None}
        rel = float(turn.options.good_gain)
        if not truth and not unjudged:
            return None
    mine = [one for one in turn.found if one.search_id == search_id]
    mine.sort(key=lambda one: one.rank)
    firsts = [one.placement.first for one in mine]
    doc_ids = [one.raw["doc_id"] for one in mine]
    called = [_name(one, by_doc=relevant is not None) for one in mine]
    return Ranking(
        [
            f"again {at}"
            if firsts[at] in firsts[:at]
            or (doc_ids[at] is not None and doc_ids[at] in doc_ids[:at])
            else name
            for at, name in enumerate(called)
        ],
        truth,
        rel,
        [name in truth for name in called],
        _new(turn, mine),
    )


def _by_joined_ids(turn: Turn, search_id: str, relevant: Mapping[str, int]) -> Ranking | None:
    """The ranking by a ground truth that names a document by any of its ids; None without ids."""
    mine = sorted(
        (one for one in turn.found if one.search_id == search_id), key=lambda one: one.rank
    )
    ids = [turn.ids_of(one) for one in mine]
    asked = mine or turn.found
    if relevant and asked and not any(turn.ids_of(one) for one in asked):
        return None
    names = [
        " or ".join(sorted(its)) if its else f"no doc_id {one.placement.first}"
        for one, its in zip(mine, ids, strict=True)
    ]
    truth: dict[str, float] = {}
    for doc_id, grade in relevant.items():
        holder = next((one for one in turn.found if one.raw["doc_id"] == doc_id), None)
        name = doc_id if holder is None else " or ".join(sorted(turn.ids_of(holder)))
        truth[name] = max(truth.get(name, 0.0), float(grade))
    return Ranking(
        [f"again {at}" if name in names[:at] else name for at, name in enumerate(names)],
        truth,
        1.0,
        [name in truth for name in names],
        _new(turn, mine),
    )


def _new(turn: Turn, mine: list[Found]) -> list[bool]:
    """Whether no earlier search of the turn returned the document of each result of a search."""
    earlier = turn.found[: turn.found.index(mine[0])] if mine else []
    return [
        not any(other.placement.first == one.placement.first for other in earlier) for one in mine
    ]


def _name(one: Found, *, by_doc: bool) -> str:
    """The name of a result in the ground truth."""
    if not by_doc:
        return f"{one.placement.first}"
    return "no doc_id" if one.raw["doc_id"] is None else f"doc {one.raw['doc_id']}"
