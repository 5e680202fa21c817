"""Ranked metrics of searches, and the iteration that completed the ground truth.

Each search is a ranking. All searches of a turn share one set of judgements: the ground truth of
its ``turn_completed`` event, else its labels. Without either, no search of the turn has scores. A
new search changes other scores only where it joins documents or ids of the ground truth (``Units``,
under tables with ``joined_grades``); a label may change those of all searches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import isnan

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.joined import DocIds, Units
from stream_metrics.core.engine.state import Search, Turn
from stream_metrics.core.metrics.ranking.names import RankedMetric
from stream_metrics.core.metrics.ranking.relevance import Query, Relevance, Retrieved
from stream_metrics.core.metrics.ranking.scoring import score
from stream_metrics.core.metrics.turn_totals import ITERATIONS_CAP


def scores_of(turn: Turn, search: Search, config: EngineConfig) -> Sequence[float | None]:
    """The scores of a search, one for each of ``config.retrieval``; empty if it is not judged.

    None is an undefined score. Computes the missing scores of all searches of the turn together.
    """
    found = turn.scores.get(search.search_id)
    if found is None:
        _score(turn, config)
        found = turn.scores[search.search_id]
    return found


def _score(turn: Turn, config: EngineConfig) -> None:
    searches = [search for search in turn.order if search.search_id not in turn.scores]
    found = scores_by(turn, searches, turn.document_gains, config.retrieval, config)
    for search, scores in zip(searches, found, strict=True):
        turn.scores[search.search_id] = scores


def scores_by(
    turn: Turn,
    searches: Sequence[Search],
    gains: Sequence[int | None],
    metrics: tuple[RankedMetric, ...],
    config: EngineConfig,
) -> list[list[float | None]]:
    """The scores of searches of a turn, like ``scores_of``, by these gains of its documents."""
    judge = Relevance(good_gain=config.good_gain).judge
    joined = config.rules.tables.joined_grades
    rows = [judge(query) for query in queries_of(turn, searches, gains, joined=joined)]
    judged = [row for row in rows if row is not None]
    values = iter(score(judged, metrics, checked=True).values.tolist() if judged else ())
    return [
        [] if row is None else [None if isnan(value) else value for value in next(values)]
        for row in rows
    ]


def queries_of(
    turn: Turn,
    searches: Iterable[Search],
    gains: Sequence[int | None] | None = None,
    *,
    joined: bool = False,
) -> Iterator[Query]:
    """Searches of a turn as rankings, each with the turn's ground truth and labels.

    Requires an engine with ranked metrics or loaded fingerprints. Document ids are digests in hex
    or, if they are ``joined`` and there is a ground truth, the numbers of units. ``gains`` are
    those of the turn's documents, by default the ones that count.
    """
    relevant = _relevant(turn)
    labels = _labels(turn.document_gains if gains is None else gains)
    if joined and relevant is not None:
        yield from _queries_of_units(turn, searches, labels)
        return
    for search in searches:
        yield Query(_results(turn, search), relevant, labels)


def _queries_of_units(
    turn: Turn, searches: Iterable[Search], labels: dict[Hashable, float]
) -> Iterator[Query]:
    units, firsts = units_of(turn), turn.first_results
    unit_of = [units.of(document) for document in range(len(firsts))]
    names = [str(unit) if units.is_named(unit) else None for unit in unit_of]
    relevant = {str(unit): float(grade) for unit, grade in units.graded.items()}
    relevant |= {doc.hex(): float(grade) for doc, grade in units.missing().items()}
    no_ids = bool(relevant) and bool(turn.result_searches) and not units.any_named
    for search in searches:
        results = [
            Retrieved(unit_of[document], names[document], None, firsts[document] < search.start)
            for document in search.documents
        ]
        without = no_ids or (bool(results) and not any(found.doc_id for found in results))
        yield Query(results, relevant, labels, without_ids=without and bool(relevant))


def units_of(turn: Turn) -> Units:
    """The units of a turn with a ground truth, made on demand; ids must be loaded."""
    units = turn.units
    if units is None:
        assert turn.relevant is not None
        units = turn.units = units_by(turn, turn.relevant)
    return units


def units_by(turn: Turn, relevant: dict[bytes, int]) -> Units:
    """The units of a turn by this ground truth."""
    units = Units(relevant)
    for search in turn.order:
        units.add(search.documents, doc_ids_of(search))
    return units


def doc_ids_of(search: Search) -> DocIds:
    """The digests under which a ground truth names the documents of a search's results."""
    if search.doc_ids is not None:
        return search.doc_ids
    assert search.fingerprints is not None  # a restored search has one of the two
    return search.fingerprints.documents


def _relevant(turn: Turn) -> dict[str, float] | None:
    """Grades of the ground truth by document id, a digest in hex."""
    relevant = turn.relevant
    return None if relevant is None else {doc.hex(): grade for doc, grade in relevant.items()}


def _labels(gains: Sequence[int | None]) -> dict[Hashable, float]:
    """The labels of the turn's documents."""
    return {document: float(gain) for document, gain in enumerate(gains) if gain is not None}


def _results(turn: Turn, search: Search) -> list[Retrieved]:
    first, firsts = search.start, turn.first_results
    return [
        Retrieved(document, None if doc is None else doc.hex(), None, firsts[document] < first)
        for document, doc in zip(search.documents, doc_ids_of(search), strict=True)
    ]


def until_all_relevant(turn: Turn, good_gain: int, *, joined: bool) -> int | None:
    """The number of iterations until every relevant document was retrieved, None if undefined.

    Fingerprints must be loaded. If ids are ``joined``, a unit is retrieved with its first document.
    """
    relevant = turn.relevant
    if relevant is None or not turn.result_searches:
        return None
    if joined:
        return _until_all_units(turn, good_gain)
    good = [document for document, grade in relevant.items() if grade >= good_gain]
    if not good:
        return None
    if turn.first_by_doc is None:
        turn.first_by_doc = {}
        for search in turn.order:
            note_documents(turn.first_by_doc, search)
    if not turn.first_by_doc:
        return None
    needed = 1
    for document in good:
        number = turn.first_by_doc.get(document)
        if number is None:
            return ITERATIONS_CAP
        needed = max(needed, turn.iterations[number].compact)
    return min(needed, ITERATIONS_CAP)


def _until_all_units(turn: Turn, good_gain: int) -> int | None:
    units = units_of(turn)
    good = [unit for unit, grade in units.graded.items() if grade >= good_gain]
    if not units.any_named:
        return None
    if any(grade >= good_gain for grade in units.missing().values()):
        return ITERATIONS_CAP
    if not good:
        return None
    last = max(good)  # documents are numbered in order of first occurrence
    search = turn.result_searches[turn.first_results[last]]
    return min(turn.iterations[search.iteration].compact, ITERATIONS_CAP)


def note_documents(first_by_doc: dict[bytes, int], search: Search) -> None:
    """Add the documents that a search retrieves first; searches must be in canonical order."""
    assert search.fingerprints is not None
    for document in search.fingerprints.documents:
        if document is not None:
            first_by_doc.setdefault(document, search.iteration)
