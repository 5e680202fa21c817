"""Finds the result that each score is about, and its gain.

A score counts only if it refers to exactly one document and a setting gives its gain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stream_metrics.core.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.core.telemetry.contents.documents import (
    Document,
    DocumentIndex,
    documents_of,
    same_document,
)
from stream_metrics.core.telemetry.interpretation import Label, Reason, Result, Search, Turn
from stream_metrics.core.telemetry.labels.evaluations import Evaluation, Grading
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span, text

MAX_STEPS: Final = 2_000_000  # searches of a trace times the depth of its tree
_SEARCHING: Final = (Role.SEARCH, Role.RERANKER, Role.JOINER)
_NAMING: Final = (*_SEARCHING, Role.TOOL, Role.POSTPROCESSOR)


_SearchEnd = tuple[int, int, str]  # the end, the start and the id of a search


class UnusedScore(NamedTuple):
    """A score that cannot be used: its source, and why."""

    origin: str
    reason: Reason
    message: str


class _NoLabel(Exception):
    """Why an evaluation gives no label; used inside this module only."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        self.message = message


def _shown(document: str) -> str:
    """What a score names, in messages, which are logged: an id or an address, and no text.

    >>> _shown("doc-1"), _shown("Refunds take a week.")
    ("'doc-1'", 'a text of 20 characters')
    """
    is_text = len(document.split()) > 1
    return f"a text of {len(document):,} characters" if is_text else repr(document[:100])


class _DocumentLookup:
    """Finds the documents of a span by id, text or address."""

    def __init__(self, documents: Sequence[Document], results: Sequence[Result] = ()) -> None:
        self.each, self._results = documents, results
        self._places: dict[str, list[int]] = {}
        self._known: DocumentIndex | None = None
        for place, document in enumerate(documents):
            of_result = (results[place].doc_id, *results[place].ids.values()) if results else ()
            for name in {
                document.id,
                document.url,
                document.page,
                document.text and document.text.strip(),
                text(document.fields.get("chunk_id")),
                *of_result,
            }:
                if name:
                    self._places.setdefault(name, []).append(place)

    @property
    def names(self) -> Iterable[str]:
        """All ids, texts and addresses of the documents."""
        return self._places

    def places(self, name: str) -> list[int]:
        """The positions of the documents with this id, text or address."""
        return self._places.get(name.strip(), [])

    def chosen(self, evaluation: Evaluation) -> int:
        """The position of the document that the evaluation refers to."""
        places: Sequence[int] = range(len(self.each))
        if evaluation.document is not None:
            places = self.places(evaluation.document)
            if not places:
                message = f"the span did not return {_shown(evaluation.document)}"
                raise _NoLabel("label_no_document", message)
        if evaluation.position is not None:
            if evaluation.position not in places:
                what = (
                    "another document there"
                    if evaluation.document
                    else f"{len(self.each)} documents"
                )
                message = f"position {evaluation.position}: the span has {what}"
                raise _NoLabel("label_no_document", message)
            return evaluation.position
        if not places:
            raise _NoLabel("label_no_document", "the span found nothing")
        if not all(self._are_same(places[0], place) for place in places[1:]):
            message = f"the span has {len(self.each)} documents, and the score names none of them"
            raise _NoLabel("label_ambiguous", message)
        return places[0]

    def _are_same(self, one: int, other: int) -> bool:
        if self._results and (self._results[one].passage or self._results[other].passage):
            return _identity(self._results[one]) == _identity(self._results[other])
        is_same = same_document(self.each[one], self.each[other]) is True
        if is_same and not self._results:  # with one id and different texts they are parts
            is_same = (
                None in (forms := {self.each[one].form, self.each[other].form}) or len(forms) == 1
            )
        return is_same

    def alike(self, document: Document, place: int, count: int) -> int:
        """The position of a document that another span had at ``place`` of ``count``."""
        self._known = self._known or DocumentIndex(self.each)
        position = self._known.certain_position(document)
        if position is not None:
            return position
        if self._known.position(document) is not None:
            message = "the agent received several parts of the page whose id the document has"
            raise _NoLabel("label_ambiguous", message)
        if len(self.each) == count and same_document(document, self.each[place]) is None:
            return place
        message = "the agent did not receive the document: a later step dropped it"
        raise _NoLabel("label_no_document", message)


class ResultIndex:
    """Finds the results of an interpreted trace by the spans that returned them.

    ``replaced_by`` maps spans whose results another span has now to that span: spans inside a
    search, reranked or joined searches, and duplicates of another instrumentation.
    """

    def __init__(
        self, tree: SpanTree | None, turns: Iterable[Turn], replaced_by: Mapping[str, str]
    ) -> None:
        self._tree = tree
        self._replaced_by = replaced_by
        self._searches = {
            search.span_id: (turn, search) for turn in turns for search in turn.searches
        }
        self._documents: dict[str, _DocumentLookup | None] = {}
        self._inside: dict[str, set[str]] = {}
        self._returned: dict[str, list[_SearchEnd]] = {}
        self._hits: dict[tuple[str, str], list[_SearchEnd]] = {}

    def labels(
        self, evaluations: Iterable[Evaluation], grading: Grading
    ) -> tuple[list[Label], list[UnusedScore]]:
        """The labels that evaluations give, in no order, and the evaluations that give none."""
        by_result: dict[tuple[str, int], dict[int, list[tuple[Evaluation, Label]]]] = {}
        unused = []
        for evaluation in evaluations:
            try:
                label = self._label(evaluation, grading)
            except _NoLabel as why:
                unused.append(UnusedScore(evaluation.origin, why.reason, why.message))
                continue
            gains = by_result.setdefault((label.result_id, label.time_us), {})
            gains.setdefault(label.gain, []).append((evaluation, label))
        labels = []
        for (result_id, _), gains in by_result.items():
            each = [pair for gain in gains.values() for pair in gain]
            if len(gains) == 1:
                labels.append(min((label for _, label in each), key=_labeller))
                continue
            listed = " and ".join(map(str, sorted(gains)))
            message = f"scores with the same time give the result {result_id} the gains {listed}"
            unused += [
                UnusedScore(evaluation.origin, "label_conflict", message) for evaluation, _ in each
            ]
        return labels, unused

    def _label(self, evaluation: Evaluation, grading: Grading) -> Label:
        if not grading.covers(evaluation.name):
            raise _NoLabel("label_other_name", f"it is called {evaluation.name!r}")
        turn, search, place = self._result(evaluation)
        gain = grading.gain(evaluation.score, evaluation.label, minimized=evaluation.minimized)
        if gain is None:
            given = [
                repr(part) for part in (evaluation.score, evaluation.label) if part is not None
            ]
            message = f"no setting gives the gain of {' and '.join(given)}" if given else "no score"
            raise _NoLabel("label_no_grade", message)
        if not EARLIEST_US <= evaluation.time_us <= LATEST_US:
            raise _NoLabel("label_malformed", f"its time is {evaluation.time_us} µs after 1970")
        result_id = f"{search.span_id}/{place + 1}"
        return Label(turn, result_id, gain, evaluation.time_us, evaluation.labeller)

    def _result(self, evaluation: Evaluation) -> tuple[Turn, Search, int]:
        """The turn, the search, and the position of the result in it, from 0."""
        if not evaluation.span_id:
            raise _NoLabel("label_no_span", "it names no span, or several")
        if self._tree is None:
            raise _NoLabel("label_not_told", "the span's trace was refused")
        span = self._tree.by_id.get(evaluation.span_id)
        if span is None or evaluation.trace_id not in ("", span.trace_id):
            raise _NoLabel("label_no_span", f"the trace has no span {evaluation.span_id}")
        pair = self._searches.get(self._replaced_by.get(span.span_id, span.span_id))
        if pair is None:
            turn, search = self._around(evaluation, span, self._tree)
            return turn, search, self._of(search).chosen(evaluation)
        turn, search = pair
        if search.span_id == span.span_id:
            return turn, search, self._of(search).chosen(evaluation)
        own = self._named(span, self._tree)
        if own is None and evaluation.document is None:
            raise _NoLabel("label_no_document", "the span names no documents, nor does the score")
        if own is None:
            return turn, search, self._of(search).chosen(evaluation)
        place = own.chosen(evaluation)
        return turn, search, self._of(search).alike(own.each[place], place, len(own.each))

    def _around(self, evaluation: Evaluation, span: Span, tree: SpanTree) -> tuple[Turn, Search]:
        """The search inside another span that returned the document that the evaluation names."""
        inside = self._searches_inside(tree).get(span.span_id)
        if not inside:
            if tree.role(span) in _SEARCHING or not self._searches:
                raise _NoLabel("label_not_told", "the span's search was refused")
            raise _NoLabel("label_no_search", f"{span.name!r} is no search, and has none inside")
        if evaluation.document is None:
            raise _NoLabel("label_no_document", f"{span.name!r} is no search; name the document")
        hits = self._returned_in(span.span_id, evaluation.document.strip(), tree)
        if evaluation.before_ns is not None:
            before = bisect_right(hits, evaluation.before_ns, key=lambda hit: hit[0])
            hits = hits[before - 1 : before] if before else []
        if not hits:
            raise _NoLabel(
                "label_no_document", f"no search in it returned {_shown(evaluation.document)}"
            )
        if len(hits) > 1:
            raise _NoLabel("label_ambiguous", f"{len(hits)} searches in it returned the document")
        return self._searches[hits[0][-1]]

    def _returned_in(self, id: str, name: str, tree: SpanTree) -> list[_SearchEnd]:
        """The searches inside a span that returned the document, by their end."""
        if not self._returned:
            for span_id, (_, search) in self._searches.items():
                hit = (max(tree.by_id[span_id].end_ns, search.start_ns), search.start_ns, span_id)
                for held in self._of(search).names:
                    self._returned.setdefault(held, []).append(hit)
        hits = self._hits.get((id, name))
        if hits is None:
            inside = self._inside[id]
            hits = sorted(hit for hit in self._returned.get(name, ()) if hit[-1] in inside)
            self._hits[id, name] = hits
        return hits

    def _searches_inside(self, tree: SpanTree) -> dict[str, set[str]]:
        """The searches inside each span."""
        if len(self._searches) * tree.depth > MAX_STEPS:
            number = f"{len(self._searches):,}"
            message = f"the trace has {number} searches, so scores must name the spans of searches"
            raise _NoLabel("too_large", message)
        if not self._inside:
            for id in self._searches:
                outer = tree.parent(tree.by_id[id])
                while outer is not None:
                    self._inside.setdefault(outer.span_id, set()).add(id)
                    outer = tree.parent(outer)
        return self._inside

    def _of(self, search: Search) -> _DocumentLookup:
        """The documents of a search."""
        lookup = self._documents.get(search.span_id)
        if lookup is None:
            documents = [result.document for result in search.results]
            lookup = self._documents[search.span_id] = _DocumentLookup(documents, search.results)
        return lookup

    def _named(self, span: Span, tree: SpanTree) -> _DocumentLookup | None:
        """The documents of a span whose results another span has."""
        if span.span_id not in self._documents:
            row = tree.rows.get(span.span_id)
            naming = row is not None and row.role in _NAMING
            own = (
                documents_of(span, row.documents).documents if row is not None and naming else None
            )
            self._documents[span.span_id] = None if own is None else _DocumentLookup(own)
        return self._documents[span.span_id]


def _identity(result: Result) -> tuple[str | None, dict[str, str]]:
    return result.doc_id, result.ids


def _labeller(label: Label) -> str:
    return label.labeller or ""
