"""A test collection (queries and their qrels) and a run over it, joined into rankings to score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.checks import check_ids, check_ranking, check_rel
from stream_metrics.core.metrics.ranking.names import RankedMetric
from stream_metrics.core.metrics.ranking.relevance import (
    Query,
    Relevance,
    Retrieved,
    judge_ids,
    judge_subtopics,
)
from stream_metrics.lab.evaluation.scoring import Ranking
from stream_metrics.lab.metrics.ontology import Ontology, with_similarities

Grades = Mapping[str, float]
Run = Mapping[str, Sequence[str]]
"""Document ids by query, the best first."""

QuerySet = Literal["qrels", "intersection"]


class Apart(NamedTuple):
    """A query with a document that was retrieved for it and one that is judged."""

    query: str
    retrieved: str
    judged: str


@dataclass(frozen=True, slots=True)
class Collection:
    """The queries of a test collection and what is relevant to them.

    Attributes:
        qrels: The grade of each judged document, by query. The queries are the query set.
        subtopics: Grades by query and subtopic, if documents are judged by subtopic; ``qrels``
            is then empty.
        dimensions: The dimensions of each query, by which figures can be split.
    """

    qrels: Mapping[str, Grades] = field(default_factory=dict)
    subtopics: Mapping[str, Mapping[str, Grades]] = field(default_factory=dict)
    dimensions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def queries(self) -> list[str]:
        """The query set, sorted by code point."""
        return sorted({*self.qrels, *self.subtopics})

    def judged(self, query: str) -> set[str]:
        """The documents that are judged for a query."""
        by_subtopic = self.subtopics.get(query, {}).values()
        return {*self.qrels.get(query, ()), *chain.from_iterable(by_subtopic)}

    def documents_apart(self, run: Run) -> Apart | None:
        """An example from a run that retrieved no judged document for any query.

        None if it retrieved one, or if no query of it has both results and judgements.

        >>> Collection({"1": {"a": 1}, "2": {"b": 0}}).documents_apart({"1": ["x"], "2": ["b"]})
        >>> Collection({"1": {"a": 1}}).documents_apart({"1": ["x.txt"]})
        Apart(query='1', retrieved='x.txt', judged='a')
        """
        apart = None
        for query in self.queries:
            judged, retrieved = self.judged(query), run.get(query, ())
            if not judged.isdisjoint(retrieved):
                return None
            if apart is None and judged and retrieved:
                apart = Apart(query, retrieved[0], min(judged))
        return apart


@dataclass(frozen=True, slots=True)
class JudgingOptions:
    """How a run is judged.

    Attributes:
        rel: The lowest relevant grade, for metrics that do not set their own.
        graded: Whether NDCG uses the grades as gains by default.
        queries: ``qrels``: a query that the run lacks is scored as an empty ranking.
            ``intersection``: it is left out.
        ignore_identical_ids: Remove a result whose document has the query's own id, as BEIR does
            where queries are documents.
        limit: Score only this many queries, the first by code point. None: all.
        fallback: Judges queries of the run that have no qrels, by a predicate. Queries that it does
            not judge are dropped. None: all queries without qrels are dropped.
    """

    rel: float = 1.0
    graded: bool = True
    queries: QuerySet = "qrels"
    ignore_identical_ids: bool = False
    limit: int | None = None
    fallback: Relevance | None = None

    def __post_init__(self) -> None:
        check_rel(self.rel)


class Joined(NamedTuple):
    """Rankings in query order, and how many queries only one side has.

    Attributes:
        rankings: The rankings to score.
        missing: Queries of the qrels without a ranking in the run. They are scored as empty, or
            left out with ``intersection``.
        dropped: Queries of the run that nothing judges.
    """

    rankings: list[Ranking]
    missing: int
    dropped: int


class Similarities(NamedTuple):
    """What ``max_ont_sim`` needs: an ontology, and the formulas from ``similarity_formulas``."""

    ontology: Ontology
    formulas: Mapping[str, int | None]


def join(
    collection: Collection,
    run: Run,
    judging: JudgingOptions = JudgingOptions(),
    similarities: Similarities | None = None,
) -> Joined:
    """Judge each query's ranking by its qrels, or by ``judging.fallback`` if it has none.

    Args:
        collection: What is relevant.
        run: What was retrieved.
        judging: How the run is judged.
        similarities: Compares the documents, as terms of an ontology, with the relevant ones.

    Returns:
        The rankings, sorted by query id, and the counts of queries that only one side has.

    Raises:
        ValueError: A ranking has no order, a grade is not a number, or some ids are texts and
            others are not. Or the ontology has no such formula, or returns a value outside [0, 1]
            for a formula that it does not declare as unbounded.
        PredicateError: The predicate cannot judge a query.

    >>> found = join(Collection({"1": {"a": 1}, "2": {"a": 1}}), {"1": ["a"], "3": ["a"]})
    >>> [(one.unit, list(one.judged.grades)) for one in found.rankings], found.missing
    ([('1', [1]), ('2', [])], 1)
    """
    for name, given in (("qrels", collection.qrels), ("the run", run)):
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise ValueError(f"{name} is a {kind}; give a dictionary by query id")
    check_ids(collection.qrels, collection.subtopics, run, what="query")
    fallback = _judged_by_fallback(collection, run, judging)
    known = set(collection.queries)
    queries = sorted(known | fallback.keys())
    if judging.queries == "intersection":
        missing = sum(query not in run for query in known)
        queries = [query for query in queries if query in run][: judging.limit]
    else:
        queries = queries[: judging.limit]
        missing = sum(query not in run for query in queries)
    rankings = []
    for query in queries:
        dimensions = collection.dimensions.get(query, {})
        if query in fallback:
            rankings.append(Ranking(query, fallback[query], dimensions=dimensions))
            continue
        try:
            ranking = _found(run, query, judging)
            judged = _judged(collection, query, ranking, judging)
        except ValueError as error:
            raise ValueError(f"query {query!r}: {error}") from error
        if similarities is not None:
            judged = _with_similarities(
                judged, collection.qrels.get(query, {}), ranking, similarities
            )
        rankings.append(Ranking(query, judged, dimensions=dimensions))
    dropped = sum(query not in known and query not in fallback for query in run)
    return Joined(rankings, missing, dropped)


def _found(run: Run, query: str, judging: JudgingOptions) -> Sequence[str]:
    ranking = run.get(query, ())
    check_ranking(ranking)
    if judging.ignore_identical_ids:
        return [document for document in ranking if document != query]
    return ranking


def _judged_by_fallback(
    collection: Collection, run: Run, judging: JudgingOptions
) -> dict[str, Judged]:
    """The run's queries without qrels that ``judging.fallback`` judges."""
    if judging.fallback is None:
        return {}
    known = {*collection.queries}
    rows = {}
    for query in sorted(query for query in run if query not in known):
        results = [Retrieved(document, document) for document in _found(run, query, judging)]
        dimensions = collection.dimensions.get(query, {})
        row = judging.fallback.judge(Query(results, query_id=query, dimensions=dimensions))
        if row is not None:
            rows[query] = row
    return rows


def _judged(
    collection: Collection, query: str, ranking: Sequence[str], judging: JudgingOptions
) -> Judged:
    subtopics = collection.subtopics.get(query)
    if subtopics is None:
        grades = collection.qrels[query]
        return judge_ids(ranking, grades, rel=judging.rel, graded=judging.graded)
    by_subtopic = judge_subtopics(ranking, subtopics, rel=judging.rel)
    return by_subtopic._replace(graded=judging.graded)


def _with_similarities(
    judged: Judged, grades: Grades, ranking: Sequence[str], similarities: Similarities
) -> Judged:
    expected = sorted(term for term, grade in grades.items() if grade >= judged.rel)
    return with_similarities(
        judged, similarities.ontology, expected, ranking, similarities.formulas
    )


def similarity_formulas(metrics: Sequence[RankedMetric]) -> dict[str, int | None]:
    """The ontology formulas that the metrics need, each with the depth it is needed to.

    A depth of None means the whole ranking. Empty: no metric needs an ontology.

    >>> from stream_metrics.core.metrics.ranking.registry import parse
    >>> similarity_formulas([parse("max_ont_sim@3"), parse("max_ont_sim@10"), parse("mrr")])
    {'lin': 10}
    """
    depths: dict[str, int | None] = {}
    for metric in metrics:
        if metric.name == "max_ont_sim":
            formula = str(metric.option("formula"))
            depth = None if metric.judged_only else metric.k
            known = depths.get(formula, 0)
            depths[formula] = None if known is None or depth is None else max(known, depth)
    return depths
