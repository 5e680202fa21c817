"""Rows of `queries.jsonl`, computed for each search from the definitions and the texts."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from typing import Any

from .generation import f1, invisible, words
from .retrieval import METRICS, Ranking, ranking_of
from .turns import Turn, Won

FACTS = ("agent", "release", "route")
WHOLE_TRUTH = ("aqwv@2", "map", "recall@2")
"""Metrics that need all relevant documents, including those that were not retrieved."""
ENOUGH = Fraction(3, 10)


def rows(turn: Turn, articles: Collection[str]) -> list[dict[str, Any]]:
    """The rows of a turn's searches in canonical order, with the scores of ``METRICS``."""
    return [_row(turn, name, won, articles) for name, won in sorted(turn.searches.items(), key=_at)]


def _at(item: tuple[str, Won]) -> tuple[Any, ...]:
    name, won = item
    return (won.event.body["iteration"], won.entry["ordinal"], won.event.time, won.index, name)


def _row(turn: Turn, search_id: str, won: Won, articles: Collection[str]) -> dict[str, Any]:
    recorded = {} if turn.completed is None else turn.completed.event.body["dimensions"]
    facts = {"release": won.event.body["release"], "route": won.entry["route"]}
    dimensions = {name: value for name, value in recorded.items() if name not in FACTS}
    dimensions |= {name: value for name, value in facts.items() if value is not None}
    row: dict[str, Any] = {
        "conversation_id": turn.conversation,
        "turn": turn.number,
        "search_id": search_id,
        "agent": won.event.body["agent"],
        "dimensions": dict(sorted(dimensions.items())),
        "strategy": None,
        "n_retrieved": len(won.entry["results"]),
        "n_judged": 0,
        "n_relevant": None,
        "scores": dict.fromkeys(METRICS),
    }
    ranking = ranking_of(turn, search_id)
    truth = turn.completed is not None and turn.completed.entry is not None
    if ranking is None and truth:
        return row  # results without ids, of which the ground truth says nothing
    if ranking is not None:
        return row | {
            "strategy": "qrels" if truth else "judged",
            "n_judged": sum(ranking.judged),
            "n_relevant": sum(grade >= ranking.rel for grade in ranking.truth.values()),
            "scores": {name: compute(ranking) for name, compute in METRICS.items()},
        }
    relevant = _overlapping(turn, won, articles)
    if relevant is None:
        return row
    return row | {
        "strategy": "token_overlap",
        "n_judged": len(relevant),
        "scores": {name: _score(turn, search_id, name, relevant) for name in METRICS},
    }


def _overlapping(turn: Turn, won: Won, articles: Collection[str]) -> list[bool] | None:
    """By rank, whether the text overlaps a reference answer; None if one of the two is missing."""
    references = [] if turn.completed is None else turn.completed.event.body["references"]
    texts = [text_of(raw) for raw in won.entry["results"]]
    if not references or not any(texts):
        return None
    goals = [words(reference, articles) for reference in references]
    found = [words(text, articles) for text in texts]
    return [bool(said) and any(f1(said, goal) >= ENOUGH for goal in goals) for said in found]


def text_of(raw: dict[str, Any]) -> str:
    """The title, and the content or else the snippet, if there is something to see."""
    body = [raw.get(name) or "" for name in ("content", "snippet")]
    parts = [raw.get("title") or "", next(filter(_is_seen, body), "")]
    return "\n".join(filter(_is_seen, parts))


def _is_seen(text: str) -> bool:
    return any(not invisible(sign) and not sign.isspace() for sign in text)


def _score(turn: Turn, search_id: str, name: str, relevant: list[bool]) -> float | None:
    """The score of a search if nothing is known of documents below the cut-off."""
    if name in WHOLE_TRUTH:
        return None
    plain = ranking_of(turn, search_id, unjudged=True)
    assert plain is not None
    k = int(name.partition("@")[2] or len(relevant))
    names = [
        one if one.startswith("again ") else f"result {at}" for at, one in enumerate(plain.names)
    ]
    truth = {one: 1.0 for one, yes in list(zip(names, relevant, strict=True))[:k] if yes}
    truth = {one: grade for one, grade in truth.items() if not one.startswith("again ")}
    ranking = Ranking(names, truth, 1.0, [True] * len(names), plain.new)
    if name == "precision(rel=3)@2":  # judgements without grades
        return sum(one in truth for one in names[:2]) / 2
    return METRICS[name](ranking)
