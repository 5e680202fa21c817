"""What follows from a turn's items: documents, iterations, labels; kept up to date or rebuilt.

In canonical order a search is appended; a label changes the integers of one document and its
iteration. What arrives out of order rebuilds the turn from its fingerprints (``rebuild``), by the
same steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stream_metrics.compiled import kernel
from stream_metrics.dedup.deduplicator import Deduplicator
from stream_metrics.dedup.index import DedupCounts
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.state import Iteration, Search, Turn
from stream_metrics.metrics.decisions import Rerank, rerank
from stream_metrics.metrics.gain import ITERATIONS_CAP

_RERANKED: Final[Callable[..., Any] | None] = None if kernel is None else kernel.reranked
# In a tally, behind the numbers of results by label: the first one that has a label.
FIRST: Final = 5


def labels_conflict(turn: Turn, document: int) -> bool:
    """Whether results of one document carry different labels."""
    tally = turn.tallies.get(document)
    return tally is not None and tally[:FIRST].count(0) < FIRST - 1


def iteration_of(turn: Turn, number: int) -> Iteration:
    """The iteration of that number, made if it is new."""
    iteration = turn.iterations.get(number)
    if iteration is None:
        iteration = turn.iterations[number] = Iteration(number)
    return iteration


class Watcher:
    """Hears of what is about to change."""

    def before_change(self, turn: Turn, number: int) -> None:
        """A label is about to change the figures of the iteration of that number."""
        raise NotImplementedError


class TurnKeeper:
    """Appends searches to turns and moves labels, under one configuration."""

    def __init__(
        self,
        config: EngineConfig,
        dedup: Deduplicator,
        counts: DedupCounts,
        watcher: Watcher | None = None,
    ) -> None:
        self.watcher = watcher
        self.config = config
        self.dedup = dedup
        self.counts = counts
        self._by_max = config.gain_of_document == "max"
        self._good_gain = config.good_gain

    def clear(self, turn: Turn) -> None:
        """Drop what is derived; the items stay."""
        turn.clear()
        turn.index = self.dedup.index()

    def rebuild(self, turn: Turn) -> None:
        """Derive everything again from the items; fingerprints must be loaded."""
        self.clear(turn)
        for search in sorted(turn.searches.values(), key=lambda s: s.place):
            self.append(turn, search)
        for number in turn.gates:
            iteration_of(turn, number)

    def append(self, turn: Turn, search: Search) -> None:
        """Add a search that comes behind all others of the turn in canonical order."""
        assert turn.index is not None
        assert search.fingerprints is not None
        search.documents, search.evidence = turn.index.append(search.fingerprints, self.counts)
        self.place(turn, search)

    def index_again(self, turn: Turn) -> None:
        """Fill the candidate index of a loaded turn; its decisions are stored and stay."""
        turn.index = self.dedup.index()
        for search in turn.order:
            assert search.fingerprints is not None
            turn.index.append_decided(search.fingerprints, search.documents)

    def place(self, turn: Turn, search: Search) -> None:
        """Count a search whose documents are decided: handles, documents, its iteration."""
        number = search.carrier.iteration
        iteration = iteration_of(turn, number)
        if not iteration.searches:
            turn.counted.append(iteration)
            iteration.compact = len(turn.counted)
        iteration.searches.append(search)
        turn.order.append(search)
        position = search.first = len(turn.holders)
        iteration.results += len(search.result_ids)
        turn.documents.extend(search.documents)
        firsts = turn.firsts
        known = len(firsts)
        for at, document in enumerate(search.documents):
            turn.holders.append(search)
            turn.result_labels.append(None)
            if document == len(firsts):
                firsts.append(position + at)
                turn.credited.append(None)
            else:
                same = turn.holders[firsts[document]].carrier.iteration == number
                key = (search.types[at], search.evidence[at], same)
                iteration.duplicates[key] = iteration.duplicates.get(key, 0) + 1
        iteration.unique += len(firsts) - known
        if search.baseline is not None:
            _note_ranked(turn.ranked_in, search, number)
        if self.config.retrieval and search.fingerprints is not None:
            search.doc_ids = search.fingerprints.documents
        self._place_labels(turn, search, iteration)
        if turn.first_by_doc is not None:
            _note_documents(turn.first_by_doc, search)

    def _place_labels(self, turn: Turn, search: Search, iteration: Iteration) -> None:
        """Give the search's results their handles and labels.

        The first result of a ``result_id`` in the turn holds the handle and takes label events
        (also a withdrawal, after which the inline gain does not come back); others keep their
        inline gain.
        """
        handles, labels, gains, first = turn.handles, turn.labels, search.gains, search.first
        begun = False
        for at, result_id in enumerate(search.result_ids):
            position = first + at
            label = None if gains is None else gains[at]
            if handles.setdefault(result_id, position) == position:
                carrier = labels.get(result_id)
                if carrier is not None:
                    label = carrier.labels[result_id]
            if label is None:
                continue
            document = turn.documents[position]
            if turn.firsts[document] != position:
                self.relabel(turn, position, label)
                continue
            if not begun and self.watcher is not None:
                self.watcher.before_change(turn, iteration.number)
            begun = True
            # Of a document that only this iteration has.
            turn.result_labels[position] = label
            turn.credited[document] = label
            iteration.labelled += 1
            self._count_gain(iteration, label, 1)
        if begun:
            _forget_scores(turn)

    def relabel(self, turn: Turn, position: int, label: int | None) -> None:
        """Give one result another label, and its document's iteration what follows from it."""
        old = turn.result_labels[position]
        if label == old:
            return
        document = turn.documents[position]
        tally = turn.tallies.get(document)
        if tally is None:
            if turn.credited[document] is None and turn.firsts[document] == position:
                turn.result_labels[position] = label
                self._credit(turn, document, label)
                return
            tally = self._begin_tally(turn, document)
        turn.result_labels[position] = label
        if old is not None:
            tally[old] -= 1
        if label is not None:
            tally[label] += 1
        if self._by_max:
            gain = 4
            while gain >= 0 and not tally[gain]:
                gain -= 1
            standing = gain if gain >= 0 else None
        elif old is None and 0 <= tally[FIRST] < position:
            return  # one before it has a label
        elif tally[FIRST] < 0:  # the only label
            tally[FIRST], standing = position, label
        else:
            standing = _first_label(turn, document, tally, position)
        if standing != turn.credited[document]:
            self._credit(turn, document, standing)

    def _begin_tally(self, turn: Turn, document: int) -> list[int]:
        """A document's labels by number, where there has been none but that of its first result."""
        label = turn.credited[document]
        tally = turn.tallies[document] = [0, 0, 0, 0, 0, -1]
        if label is not None:
            tally[label] = 1
            if not self._by_max:
                tally[FIRST] = turn.firsts[document]
        return tally

    def _count_gain(self, iteration: Iteration, label: int, sign: int) -> None:
        """Add a document's label to what its iteration has found, or take it away."""
        if label >= self._good_gain:
            iteration.good += sign
            iteration.gain += sign * label

    def _credit(self, turn: Turn, document: int, label: int | None) -> None:
        """Bring the iteration of the first occurrence in line with the document's label."""
        number = turn.holders[turn.firsts[document]].carrier.iteration
        watcher = self.watcher
        if watcher is not None:
            watcher.before_change(turn, number)
            for ranked in turn.ranked_in.get(document, ()):
                watcher.before_change(turn, ranked)
        iteration, credited = turn.iterations[number], turn.credited[document]
        if credited is None:
            iteration.labelled += 1
        else:
            self._count_gain(iteration, credited, -1)
        if label is None:
            iteration.labelled -= 1
        else:
            self._count_gain(iteration, label, 1)
        turn.credited[document] = label
        _forget_scores(turn)

    def qrels(self, turn: Turn) -> int | None:
        """Iterations until every relevant document was retrieved, from ``relevant``; or None."""
        relevant = turn.ground_truth
        if relevant is None or not turn.holders:
            return None
        good = [d for d, grade in relevant.items() if grade >= self.config.good_gain]
        if not good:
            return None
        if turn.first_by_doc is None:
            turn.first_by_doc = {}
            for search in turn.order:
                _note_documents(turn.first_by_doc, search)
        if not turn.first_by_doc:
            return None
        needed = 1
        for document in good:
            number = turn.first_by_doc.get(document)
            if number is None:
                return ITERATIONS_CAP
            needed = max(needed, turn.iterations[number].compact)
        return min(needed, ITERATIONS_CAP)


def _forget_scores(turn: Turn) -> None:
    """What is relevant in the turn has changed, unless somebody has said what is."""
    if turn.scores and turn.ground_truth is None:
        turn.scores.clear()


def _note_ranked(ranked_in: dict[int, tuple[int, ...]], search: Search, number: int) -> None:
    assert search.baseline is not None
    only: tuple[int, ...] = (number,)  # what most documents have, as one object
    for at, document in enumerate(search.documents):
        if search.baseline[at] is not None:
            known = ranked_in.get(document)
            if known is None:
                ranked_in[document] = only
            elif number not in known:
                ranked_in[document] = (*known, number)


def _note_documents(first_by_doc: dict[bytes, int], search: Search) -> None:
    assert search.fingerprints is not None
    for document in search.fingerprints.documents:
        if document is not None:
            first_by_doc.setdefault(document, search.carrier.iteration)


def _first_label(turn: Turn, document: int, tally: list[int], changed: int) -> int | None:
    """The label of the document's first result that has one, after ``changed`` got another."""
    labels = turn.result_labels
    if labels[changed] is not None:
        tally[FIRST] = min(tally[FIRST], changed)
    elif tally[FIRST] == changed:
        position = changed if any(tally[:FIRST]) else -1
        while position >= 0 and labels[position] is None:
            position = turn.documents.index(document, position + 1)
        tally[FIRST] = position
    return labels[tally[FIRST]] if tally[FIRST] >= 0 else None


def rerank_of(turn: Turn, search: Search) -> Rerank | None:
    """The reranking comparison of one search, None if it does not take part."""
    found = ndcg_of(turn, search)
    return None if found is None else Rerank(*found)


def ndcg_of(turn: Turn, search: Search) -> tuple[float, float] | None:
    """The NDCG of the order shown, and of the one before; the kernel gives them without names."""
    baseline = search.baseline
    if baseline is None:
        return None
    if _RERANKED is not None:
        found: tuple[float, float] | None = _RERANKED(search.documents, baseline, turn.credited)
        return found
    documents: list[int] = []
    gains: list[int | None] = []
    ranks: list[int] = []
    for document, rank in zip(search.documents, baseline, strict=True):
        if rank is not None:
            documents.append(document)
            gains.append(turn.credited[document])
            ranks.append(rank)
    return rerank(documents, gains, ranks)
