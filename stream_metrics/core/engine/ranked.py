"""Ranked metrics of searches, and the iteration that completed the ground truth.

Each search is a ranking. All searches of a turn share one set of judgements: the ground truth of
its ``turn_completed`` event, else its labels. Without either, no search of the turn has scores. A
new search does not change other scores; a label may change those of all searches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import isnan

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import Search, Turn
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
    judge = Relevance(good_gain=config.good_gain).judge
    judged = [row for query in queries_of(turn, searches) if (row := judge(query)) is not None]
    values = score(judged, config.retrieval).values.tolist() if judged else [[]] * len(searches)
    for search, scores in zip(searches, values, strict=True):
        turn.scores[search.search_id] = [None if isnan(value) else value for value in scores]


def queries_of(turn: Turn, searches: Iterable[Search]) -> Iterator[Query]:
    """Searches of a turn as rankings, each with the turn's ground truth and labels.

    Requires an engine with ranked metrics or loaded fingerprints. Document ids are digests in hex.
    """
    relevant, labels = _relevant(turn), _labels(turn)
    for search in searches:
        yield Query(_results(turn, search), relevant, labels)


def _relevant(turn: Turn) -> dict[str, float] | None:
    """Grades of the ground truth by document id, a digest in hex."""
    relevant = turn.relevant
    return None if relevant is None else {doc.hex(): grade for doc, grade in relevant.items()}


def _labels(turn: Turn) -> dict[Hashable, float]:
    """The labels of the turn's documents."""
    return {
        document: float(gain)
        for document, gain in enumerate(turn.document_gains)
        if gain is not None
    }


def _results(turn: Turn, search: Search) -> list[Retrieved]:
    doc_ids = search.doc_ids
    if doc_ids is None:
        assert search.fingerprints is not None  # a restored search has one of the two
        doc_ids = search.fingerprints.documents
    first, firsts = search.start, turn.first_results
    return [
        Retrieved(document, None if doc is None else doc.hex(), None, firsts[document] < first)
        for document, doc in zip(search.documents, doc_ids, strict=True)
    ]


def until_all_relevant(turn: Turn, good_gain: int) -> int | None:
    """The number of iterations until every relevant document was retrieved, None if undefined.

    Fingerprints must be loaded.
    """
    relevant = turn.relevant
    if relevant is None or not turn.result_searches:
        return None
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


def note_documents(first_by_doc: dict[bytes, int], search: Search) -> None:
    """Add the documents that a search retrieves first; searches must be in canonical order."""
    assert search.fingerprints is not None
    for document in search.fingerprints.documents:
        if document is not None:
            first_by_doc.setdefault(document, search.iteration)
