"""What follows from a turn's items: documents, iterations, labels; kept up to date or rebuilt.

In canonical order a search is appended; a label changes the integers of one document and its
iteration. What arrives out of order rebuilds the turn from its fingerprints (``rebuild``), by the
same steps.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_metrics.dedup.fingerprint import Fingerprinter
from stream_metrics.dedup.index import DedupCounts, TurnIndex
from stream_metrics.dedup.tables import NAMED_TYPES
from stream_metrics.engine.config import OTHER, EngineConfig
from stream_metrics.engine.state import Document, Iteration, Search, Turn
from stream_metrics.metrics.decisions import RankedDocument, Rerank, rerank
from stream_metrics.metrics.gain import ITERATIONS_CAP

TYPE_LABELS = tuple(kind.name for kind in NAMED_TYPES)
_TYPE_LABELS = frozenset(TYPE_LABELS)


def type_label(canonical: str) -> str:
    """The entity type as metrics name it: one of the named types, or ``other``."""
    return canonical if canonical in _TYPE_LABELS else OTHER


def member_label(turn: Turn, search: Search, at: int) -> int | None:
    """The label of one result.

    The first occurrence of a ``result_id`` in the turn holds the handle and takes label events
    (also a withdrawal, after which the inline gain does not come back); others keep their inline
    gain.
    """
    result_id = search.result_ids[at]
    holder = turn.handles[result_id]
    if holder[0] is search and holder[1] == at:
        label = turn.labels.get(result_id)
        if label is not None:
            return label[1]
    return search.gains[at] if search.gains is not None else None


def document_label(turn: Turn, document: Document, config: EngineConfig) -> int | None:
    """The label that stands for a document, None if no member has one."""
    if document.first_labelled < 0 or document.counts is None:
        return None
    if config.gain_of_document == "max":
        return max(gain for gain in range(5) if document.counts[gain])
    return member_label(turn, *document.members[document.first_labelled])


def labels_conflict(document: Document) -> bool:
    """Whether members carry different labels."""
    return document.counts is not None and sum(1 for count in document.counts if count) > 1


def iteration_of(turn: Turn, number: int) -> Iteration:
    """The iteration of that number, made if it is new."""
    iteration = turn.iterations.get(number)
    if iteration is None:
        iteration = turn.iterations[number] = Iteration(number)
    return iteration


def counted(turn: Turn) -> list[Iteration]:
    """The iterations in which search was invoked, in order; the compact number is the place + 1."""
    iterations = [it for it in turn.iterations.values() if it.searches]
    iterations.sort(key=lambda it: it.number)
    return iterations


class TurnKeeper:
    """Appends searches to turns and moves labels, under one configuration."""

    def __init__(
        self,
        config: EngineConfig,
        fingerprinter: Fingerprinter,
        counts: DedupCounts,
        before_change: Callable[[Turn, int], None] | None = None,
    ) -> None:
        """``before_change`` hears of an iteration whose figures a label is about to change."""
        self.before_change = before_change
        self.config = config
        self.fingerprinter = fingerprinter
        self.counts = counts

    def clear(self, turn: Turn) -> None:
        """Drop what is derived; the items stay."""
        turn.order = []
        turn.iterations = {}
        turn.documents = []
        turn.handles = {}
        turn.index = TurnIndex(self.fingerprinter, self.counts)
        turn.first_by_doc = {}

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
        turn.index.count_into(self.counts)
        documents: list[int] = []
        evidence: list[str] = []
        for fingerprint in search.fingerprints:
            decision = turn.index.append(fingerprint)
            documents.append(decision.document)
            evidence.append(decision.evidence or "")
        search.documents, search.evidence = documents, evidence
        self.place(turn, search)

    def index_again(self, turn: Turn) -> None:
        """Fill the candidate index of a loaded turn; its decisions are stored and stay."""
        turn.index = TurnIndex(self.fingerprinter, DedupCounts())
        turn.first_by_doc = {}
        for search in turn.order:
            assert search.fingerprints is not None
            for fingerprint, document in zip(search.fingerprints, search.documents, strict=True):
                turn.index.append_decided(fingerprint, document)
            self._note_documents(turn, search)

    def place(self, turn: Turn, search: Search) -> None:
        """Count a search whose documents are decided: handles, documents, its iteration."""
        number, baseline = search.carrier.iteration, search.baseline
        iteration = iteration_of(turn, number)
        iteration.searches.append(search)
        turn.order.append(search)
        iteration.results += len(search.result_ids)
        search.members = []
        handles, labels, gains = turn.handles, turn.labels, search.gains
        for at, result_id in enumerate(search.result_ids):
            label = None if gains is None else gains[at]
            if result_id not in handles:
                handles[result_id] = (search, at)
                if result_id in labels:
                    label = labels[result_id][1]
            number_of_document = search.documents[at]
            if number_of_document == len(turn.documents):
                document = Document()
                turn.documents.append(document)
                iteration.unique += 1
            else:
                document = turn.documents[number_of_document]
                first = document.members[0][0]
                same = first.carrier.iteration == number
                key = (search.types[at], search.evidence[at], same)
                iteration.duplicates[key] = iteration.duplicates.get(key, 0) + 1
            search.members.append(len(document.members))
            document.members.append((search, at))
            if baseline is not None and baseline[at] is not None:
                document.ranked_in = (document.ranked_in or set()) | {number}
            if label is not None:
                self.relabel(turn, search, at, None, label)
        if search.fingerprints is not None and turn.first_by_doc is not None:
            self._note_documents(turn, search)

    def _note_documents(self, turn: Turn, search: Search) -> None:
        assert search.fingerprints is not None
        assert turn.first_by_doc is not None
        for fingerprint in search.fingerprints:
            document = fingerprint.qrels_doc
            if document is not None:
                turn.first_by_doc.setdefault(document, search.carrier.iteration)

    def relabel(
        self, turn: Turn, search: Search, at: int, old: int | None, new: int | None
    ) -> Document:
        """Move one result's label from ``old`` to ``new``, and its document's share with it."""
        document = turn.documents[search.documents[at]]
        counts = document.counts
        if counts is None:
            counts = document.counts = [0, 0, 0, 0, 0]
        if old is not None:
            counts[old] -= 1
        member = search.members[at]
        if new is not None:
            counts[new] += 1
            if document.first_labelled < 0 or member < document.first_labelled:
                document.first_labelled = member
        elif member == document.first_labelled:
            document.first_labelled = self._next_labelled(turn, document, member)
        self._credit(turn, document)
        return document

    def _next_labelled(self, turn: Turn, document: Document, after: int) -> int:
        for member in range(after + 1, len(document.members)):
            if member_label(turn, *document.members[member]) is not None:
                return member
        return -1

    def _credit(self, turn: Turn, document: Document) -> None:
        """Bring the iteration of the first occurrence in line with the document's label."""
        label, credited = document_label(turn, document, self.config), document.credited
        if label == credited:
            return
        if self.before_change is not None:
            self.before_change(turn, document.members[0][0].carrier.iteration)
            for number in document.ranked_in or ():
                self.before_change(turn, number)
        iteration = turn.iterations[document.members[0][0].carrier.iteration]
        good_gain = self.config.good_gain
        if credited is None:
            iteration.labelled += 1
        elif credited >= good_gain:
            iteration.good -= 1
            iteration.gain -= credited
        if label is None:
            iteration.labelled -= 1
        elif label >= good_gain:
            iteration.good += 1
            iteration.gain += label
        document.credited = label

    def qrels(self, turn: Turn) -> int | None:
        """Iterations until every relevant document was retrieved, from ``relevant``; or None."""
        completed = turn.completed
        if completed is None or completed.relevant is None or not turn.first_by_doc:
            return None
        good = [d for d, grade in completed.relevant.items() if grade >= self.config.good_gain]
        if not good:
            return None
        compact = {it.number: i for i, it in enumerate(counted(turn), 1)}
        needed = 1
        for document in good:
            number = turn.first_by_doc.get(document)
            if number is None:
                return ITERATIONS_CAP
            needed = max(needed, compact[number])
        return min(needed, ITERATIONS_CAP)


def rerank_of(turn: Turn, search: Search) -> Rerank | None:
    """The reranking comparison of one search, None if it does not take part."""
    baseline = search.baseline
    if baseline is None:
        return None
    ranked = [
        RankedDocument(search.documents[at], turn.documents[search.documents[at]].credited, rank)
        for at, rank in enumerate(baseline)
        if rank is not None
    ]
    return rerank(ranked)
