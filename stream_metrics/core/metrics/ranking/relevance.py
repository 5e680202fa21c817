"""Judge results by qrels, a custom predicate, labels, or overlap with a reference answer.

The first strategy that is available for a query, in this order, judges its ranking.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from operator import gt
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.events.wire import Result
from stream_metrics.core.metrics.ranking.batch import UNJUDGED, Judged
from stream_metrics.core.metrics.ranking.checks import (
    check_ids,
    check_ranking,
    check_rel,
    checked_grades,
    checked_scores,
)
from stream_metrics.core.metrics.ranking.subtopics import Subtopics
from stream_metrics.core.metrics.text import overlap_f1, tokens_of_each
from stream_metrics.core.metrics.words import WORDS_VERSION

_NO_DIMENSIONS: Final[Mapping[str, str]] = MappingProxyType({})
MOST_RELEVANT: Final = 1_000_000
"""The largest total of a predicate: each relevant document takes memory."""


class Retrieved(NamedTuple):
    """One result of a ranking, in the order shown.

    ``document`` is equal for results that are the same document of the turn. ``before``: an earlier
    search of the turn returned the document. ``recorded``: the result from the event, if its texts
    were read.
    """

    document: Hashable
    doc_id: str | None = None
    text: str | None = None
    before: bool = False
    recorded: Result | None = None


class JoinedIds(NamedTuple):
    """Which results a custom rule judges together: those of one document or ``doc_id``.

    Attributes:
        units: By rank, equal for results that are judged together.
        named: By unit, a result of the turn for each ``doc_id`` of the unit. Units may be missing
            whose results all have the same ``doc_id``.
    """

    units: Sequence[Hashable]
    named: Mapping[Any, Sequence[Retrieved]]


class Query(NamedTuple):
    """A ranking, and everything that may judge it.

    Attributes:
        results: The results by rank.
        relevant: The complete ground truth (qrels): grade by ``doc_id``. None: there are no qrels.
            Empty: nothing is relevant.
        labels: Grade by document, over all searches of the turn. None or empty: nothing is
            labelled.
        references: The reference answers.
        language: The language of texts and answers.
        query_id: The id of the query in a test collection, or the ``search_id`` of a recorded
            search.
        conversation_id, turn: The position of a recorded search.
        text: The search query, if recorded.
        question: The question of the turn, if recorded.
        dimensions: The values by which figures can be split.
        without_ids: Nothing can be compared with the qrels, because no result has a ``doc_id``.
            Nothing judges the ranking then.
        joined: How a custom rule judges what deduplication has joined. None: each result by itself.
    """

    results: Sequence[Retrieved]
    relevant: Mapping[str, float] | None = None
    labels: Mapping[Hashable, float] | None = None
    references: Sequence[str] = ()
    language: str | None = None
    query_id: str = ""
    conversation_id: str | None = None
    turn: int | None = None
    text: str | None = None
    question: str | None = None
    dimensions: Mapping[str, str] = _NO_DIMENSIONS
    without_ids: bool = False
    joined: JoinedIds | None = None

    @property
    def place(self) -> str:
        """A description of the query for messages.

        >>> Query([], query_id="s1", conversation_id="c", turn=2).place
        "conversation 'c', turn 2, search 's1'"
        """
        if self.conversation_id is None:
            return f"query {self.query_id!r}"
        turn = None if self.turn is None else turn_text(self.turn)
        return f"conversation {self.conversation_id!r}, turn {turn}, search {self.query_id!r}"


class RecordedSearch(NamedTuple):
    """A search of a conversation, as a ranking to judge.

    Attributes:
        conversation_id, turn, search_id, agent: The identity of the search.
        dimensions: The values by which figures can be split.
        query: The results, and everything that may judge them.
    """

    conversation_id: str
    turn: int
    search_id: str
    agent: str
    dimensions: Mapping[str, str]
    query: Query


class PredicateError(ValueError):
    """A predicate cannot be used, raised an error, or returned an invalid value."""


class Predicate(Protocol):
    """A custom rule of relevance."""

    def total(self, query: Query) -> int | None:
        """The number of relevant documents for a query; None if the rule does not apply."""

    def relevant(self, query: Query, result: Retrieved) -> bool:
        """Whether a result is relevant."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """How queries are judged.

    Attributes:
        rel: The lowest relevant grade of qrels, for metrics that do not set their own.
        good_gain: The lowest relevant grade of labels.
        graded: Whether NDCG uses grades as gains by default.
        overlap: The lowest token F1 with a reference answer for which a text is relevant.
        predicate: A custom rule, which is tried after qrels and before labels.
        predicate_name: The predicate's name in messages.
        words_version: The version of the rules for words (``words.WORDS_VERSION``).
    """

    rel: float = 1.0
    good_gain: float = 2.0
    graded: bool = True
    overlap: float = 0.3
    predicate: Predicate | None = field(default=None)
    predicate_name: str = "the predicate"
    words_version: int = WORDS_VERSION

    def __post_init__(self) -> None:
        if not (self.rel > 0 and self.good_gain > 0):
            raise ValueError(
                f"rel={self.rel:g}, good_gain={self.good_gain:g}: grades of relevant documents "
                "are above 0"
            )

    def judge(self, query: Query) -> Judged | None:
        """Judge a ranking by the first strategy that is available; None if there is none.

        Raises:
            PredicateError: The predicate raised an error, returned an invalid value, or found more
                relevant documents than its total.

        >>> Relevance().judge(Query([Retrieved(1, "a")], {"a": 2, "b": 0})).grades
        [2]
        """
        if query.without_ids:
            return None
        if query.relevant is not None:
            return self._by_qrels(query, query.relevant)
        if self.predicate is not None:
            total = self._total(query, self.predicate)
            if total is not None:
                return self._by_predicate(query, self.predicate, total)
        if query.labels:
            return self._by_labels(query, query.labels)
        if query.references and any(result.text for result in query.results):
            return self._by_overlap(query)
        return None

    def _by_qrels(self, query: Query, relevant: Mapping[str, float]) -> Judged:
        if query.results and type(query.results[0].doc_id) is not type(next(iter(relevant), "")):
            named = [result.doc_id for result in query.results if result.doc_id is not None]
            check_ids(named, [*islice(relevant, 1)])
        return Judged(
            grades=[
                UNJUDGED if result.doc_id is None else relevant.get(result.doc_id, UNJUDGED)
                for result in query.results
            ],
            truth=list(relevant.values()),
            strategy="qrels",
            rel=self.rel,
            graded=self.graded,
            earlier=repeats(query.results),
            before=_before(query.results),
        )

    def _total(self, query: Query, predicate: Predicate) -> int | None:
        """The predicate's total; None if it does not apply."""
        total: Any = self._call("total(query)", query, lambda: predicate.total(query))
        if total is None:
            return None
        if isinstance(total, bool) or not isinstance(total, int | np.integer) or total < 0:
            raise self._bad_value(
                f"total(query) gave {total!r}", query, "an integer from 0 on, or None"
            )
        if total > MOST_RELEVANT:
            needed = f"at most {MOST_RELEVANT:,}, or None"
            raise self._bad_value(f"total(query) gave {total!r}", query, needed)
        return int(total)

    def _relevant(self, query: Query, result: Retrieved, predicate: Predicate) -> float:
        what = f"relevant(query, result) of the result {result.doc_id!r}"
        answer: Any = self._call(what, query, lambda: predicate.relevant(query, result))
        if not isinstance(answer, bool | np.bool_):
            raise self._bad_value(f"{what} gave {answer!r}", query, "True or False")
        return float(answer)

    def _call(self, what: str, query: Query, ask: Callable[[], object]) -> object:
        try:
            return ask()
        except Exception as error:  # user code may raise anything
            raise PredicateError(
                f"{self.predicate_name}: {what} raised {_raised(error)} for {query.place}"
            ) from error

    def _bad_value(self, what: str, query: Query, needed: str) -> PredicateError:
        return PredicateError(f"{self.predicate_name}: {what} for {query.place}; expected {needed}")

    def _by_predicate(self, query: Query, predicate: Predicate, total: int) -> Judged:
        grades = [self._relevant(query, result, predicate) for result in query.results]
        if query.joined is None:
            earlier, every = repeats(query.results), total
        else:
            grades, every = self._of_units(query, query.joined, grades, predicate, total)
            earlier = _above(query.joined.units)
        count = sum(grade for at, grade in enumerate(grades) if earlier is None or not earlier[at])
        if count > total:
            raise PredicateError(
                f"{self.predicate_name} found {count:g} relevant documents for {query.place}, but "
                f"its total is {total}; total must count every relevant document"
            )
        return Judged(
            grades=grades,
            truth=[1.0] * every,
            strategy="custom",
            graded=False,
            boolean=True,
            earlier=earlier,
            before=_before(query.results),
        )

    def _of_units(
        self,
        query: Query,
        joined: JoinedIds,
        own: Sequence[float],
        predicate: Predicate,
        total: int,
    ) -> tuple[list[float], int]:
        """The best grade of each result's unit, and the number of relevant units.

        The rule's total counts ids; several relevant ids of one unit are one document to find.
        """
        best: dict[Hashable, float] = {}
        by_id: dict[Hashable, dict[str, float]] = {}
        for unit, result, grade in zip(joined.units, query.results, own, strict=True):
            best[unit] = max(grade, best.get(unit, 0.0))
            if result.doc_id is not None:
                grades = by_id.setdefault(unit, {})
                grades[result.doc_id] = max(grade, grades.get(result.doc_id, 0.0))
        for unit, others in joined.named.items():
            grades = by_id.setdefault(unit, {})
            for other in others:
                assert other.doc_id is not None
                if other.doc_id not in grades:
                    grades[other.doc_id] = self._relevant(query, other, predicate)
        twice = 0
        for unit, grades in by_id.items():
            relevant = int(sum(grades.values()))
            best[unit] = max(best.get(unit, 0.0), float(relevant > 0))
            twice += max(relevant - 1, 0)
        every = max(total - twice, min(total, int(sum(best.values()))))
        return [best[unit] for unit in joined.units], every

    def _by_labels(self, query: Query, labels: Mapping[Hashable, float]) -> Judged:
        return Judged(
            grades=[labels.get(result.document, UNJUDGED) for result in query.results],
            truth=list(labels.values()),
            strategy="judged",
            rel=self.good_gain,
            graded=self.graded,
            earlier=repeats(query.results),
            before=_before(query.results),
        )

    def _by_overlap(self, query: Query) -> Judged:
        language, version = query.language, self.words_version
        answers = tokens_of_each(query.references, language, version)
        texts = tokens_of_each([result.text or "" for result in query.results], language, version)
        grades = []
        for text in texts:
            best = max(overlap_f1(text, answer) for answer in answers)
            grades.append(float(bool(text) and best >= self.overlap))
        return Judged(
            grades=grades,
            truth=None,
            strategy="token_overlap",
            graded=False,
            boolean=True,
            earlier=repeats(query.results),
            before=_before(query.results),
        )


def repeats(results: Sequence[Retrieved]) -> list[int] | None:
    """By rank, how many results above have the same document or ``doc_id``; None if there are none.

    >>> repeats([Retrieved(1, "a"), Retrieved(2, "a"), Retrieved(1)])
    [0, 1, 1]
    """
    named = [result.doc_id for result in results if result.doc_id is not None]
    if len({result.document for result in results}) == len(results) and len({*named}) == len(named):
        return None
    documents: dict[Hashable, int] = {}
    ids: dict[str, int] = {}
    counts = []
    for result in results:
        above = documents.get(result.document, 0)
        documents[result.document] = above + 1
        if result.doc_id is not None:
            above_id = ids.get(result.doc_id, 0)
            ids[result.doc_id] = above_id + 1
            above = max(above, above_id)
        counts.append(above)
    return counts if any(counts) else None


def _above(units: Sequence[Hashable]) -> list[int]:
    """By rank, how many results above belong to the same unit."""
    seen: dict[Hashable, int] = {}
    counts = []
    for unit in units:
        counts.append(seen.get(unit, 0))
        seen[unit] = counts[-1] + 1
    return counts


def _before(results: Sequence[Retrieved]) -> list[bool] | None:
    flags = [result.before for result in results]
    return flags if any(flags) else None


def _raised(error: Exception) -> str:
    """An error of user code on one line, with the file and line that raised it."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{said} ({Path(last.filename).name}, line {last.lineno})"


# -- rankings of ids --------------------------------------------------------------------------


def judge_ids(
    ranking: Sequence[str],
    relevant: Mapping[str, float],
    *,
    rel: float = 1.0,
    graded: bool = True,
) -> Judged:
    """Judge a ranking of document ids by qrels.

    Args:
        ranking: The ids, the best first. A repeated id keeps its rank and has no gain.
        relevant: The query's complete ground truth: grade by id.
        rel: The lowest relevant grade, for metrics that do not set their own.
        graded: Whether NDCG uses the grades as gains by default.

    Raises:
        ValueError: The ranking has no order, a grade or ``rel`` is not a number, or some ids are
            texts and others are not.

    >>> judge_ids(["b", "x", "b"], {"b": 1}).earlier
    [0, 0, 1]
    """
    check_ranking(ranking)
    ranking = [*ranking]  # an iterator can be read once
    check_rel(rel)
    relevant = checked_grades(relevant)
    check_ids(ranking, relevant)
    earlier = None
    if len(set(ranking)) < len(ranking):
        seen: dict[str, int] = {}
        earlier = []
        for document in ranking:
            earlier.append(seen.get(document, 0))
            seen[document] = earlier[-1] + 1
    get = relevant.get
    return Judged(
        grades=[get(document, UNJUDGED) for document in ranking],
        truth=list(relevant.values()),
        rel=rel,
        graded=graded,
        earlier=earlier,
    )


def judge_subtopics(
    ranking: Sequence[str], qrels: Mapping[str, Mapping[str, float]], *, rel: float = 1.0
) -> Judged:
    """Judge a ranking by qrels that grade a document for each subtopic of the query.

    Args:
        ranking: The ids, the best first.
        qrels: Grade by subtopic and id. A document's grade is the largest over the subtopics.
        rel: The lowest grade for which a document covers a subtopic.

    Raises:
        ValueError: As for ``judge_ids``.

    If several documents are equally good for the ideal ranking, it takes the one with the last id,
    as ndeval does.
    """
    covered: dict[str, set[str]] = {}
    grades: dict[str, float] = {}
    for subtopic, judged in qrels.items():
        for document, grade in checked_grades(judged).items():
            grades[document] = max(grades.get(document, 0.0), grade)
            if grade >= rel:
                covered.setdefault(document, set()).add(subtopic)
    sets = {
        document: frozenset(subtopics)
        for document, subtopics in sorted(covered.items(), reverse=True)
    }
    judged_row = judge_ids(ranking, grades, rel=rel)
    subtopics = Subtopics(
        tuple(sets.get(document, frozenset()) for document in ranking), tuple(sets.values())
    )
    return judged_row._replace(subtopics=subtopics)


def order_by_score(scores: Mapping[str, float], *, float32: bool = False) -> list[str]:
    """Sort a run's documents by score, descending; ties by document id, descending.

    Args:
        scores: Score by document id.
        float32: Round scores to single precision first, for the same ties as trec_eval.

    Raises:
        ValueError: A score is not a number, or some ids are texts and others are not.

    >>> order_by_score({"a": 0.5, "b": 0.5, "c": 1.0})
    ['c', 'b', 'a']
    """
    scores = checked_scores(scores)
    values = list(scores.values())
    if not float32 and len(values) > 1 and all(map(gt, values, values[1:])):
        return list(scores)  # already sorted, as in most files; comparisons with NaN are False
    for document, score in scores.items():
        if score != score:
            raise ValueError(f"the score of document {document!r} is not a number")
    if float32:
        with np.errstate(over="ignore"):  # values that are too large become infinite, as in C
            scores = {document: _single(score) for document, score in scores.items()}
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)


def _single(score: float) -> float:
    """A score in single precision."""
    try:
        return float(np.float32(score))
    except OverflowError:  # a whole number beyond the range of doubles
        return inf if score > 0 else -inf
