"""Which result of a trace each score is about, and which gain that is.

A score counts only where exactly one document is meant, and a setting says what it is worth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stream_metrics.events.decode import EARLIEST_US, LATEST_US
from stream_metrics.telemetry.documents import Document, Known, named, same
from stream_metrics.telemetry.evaluations import Evaluation, Grading
from stream_metrics.telemetry.mapping import Role
from stream_metrics.telemetry.spans import Span
from stream_metrics.telemetry.told import Label, Reason, Result, Search, Turn
from stream_metrics.telemetry.tree import Tree

MOST_STEPS: Final = 2_000_000  # searches of a trace times how deep its spans are nested
_SEARCHING: Final = (Role.SEARCH, Role.RERANKER, Role.JOINER)
_NAMING: Final = (*_SEARCHING, Role.TOOL, Role.POSTPROCESSOR)


_Hit = tuple[int, int, str]  # the end, the start and the id of a search


class Unused(NamedTuple):
    """A score that cannot be used: where it is from, and why."""

    origin: str
    reason: Reason
    message: str


class _Unclear(Exception):
    """Why no result can be said; never leaves this module."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason: Reason = reason
        self.message = message


class _Documents:
    """The documents of a span, to be looked up by what names them."""

    def __init__(self, documents: Sequence[Document], results: Sequence[Result] = ()) -> None:
        self.each = documents
        self._places: dict[str, list[int]] = {}
        self._known: Known | None = None
        for place, one in enumerate(documents):
            of_result = results[place].doc_id if results else None
            for name in {one.id, one.url, one.page, one.text and one.text.strip(), of_result}:
                if name:
                    self._places.setdefault(name, []).append(place)

    @property
    def names(self) -> Iterable[str]:
        """All ids, texts and addresses of the documents."""
        return self._places

    def places(self, name: str) -> list[int]:
        """Where the document is that has this id, text or address."""
        return self._places.get(name.strip(), [])

    def chosen(self, one: Evaluation) -> int:
        """The place of the document that is meant."""
        places: Sequence[int] = range(len(self.each))
        if one.document is not None:
            places = self.places(one.document)
            if not places:
                message = f"the span did not return {one.document[:100]!r}"
                raise _Unclear("label_no_document", message)
        if one.position is not None:
            if one.position not in places:
                what = "another document there" if one.document else f"{len(self.each)} documents"
                message = f"position {one.position}: the span has {what}"
                raise _Unclear("label_no_document", message)
            return one.position
        if not places:
            raise _Unclear("label_no_document", "the span found nothing")
        first = self.each[places[0]]
        if any(same(first, self.each[place]) is not True for place in places[1:]):
            message = f"the span has {len(self.each)} documents, and nothing says which is meant"
            raise _Unclear("label_ambiguous", message)
        return places[0]

    def alike(self, document: Document, place: int, count: int) -> int:
        """Where a document is that another span had at ``place`` of ``count``."""
        self._known = self._known or Known(self.each)
        found = self._known.place(document)
        if found is not None:
            return found
        if len(self.each) == count and same(document, self.each[place]) is None:
            return place
        message = "the agent did not get the document: it was left out later"
        raise _Unclear("label_no_document", message)


class Results:
    """The results of a trace that was told, to be found by the spans that returned them.

    ``became`` has the spans whose results another span has now: what is inside of a search, was
    reranked or joined, or was told by another instrumentation too, each with the search's id.
    """

    def __init__(self, tree: Tree | None, turns: Iterable[Turn], became: Mapping[str, str]) -> None:
        self._tree = tree
        self._became = became
        self._searches = {
            search.span_id: (turn, search) for turn in turns for search in turn.searches
        }
        self._documents: dict[str, _Documents | None] = {}
        self._inside: dict[str, set[str]] = {}
        self._returned: dict[str, list[_Hit]] = {}
        self._hits: dict[tuple[str, str], list[_Hit]] = {}

    def labels(
        self, evaluations: Iterable[Evaluation], grading: Grading
    ) -> tuple[list[Label], list[Unused]]:
        """The labels that evaluations give, in no order, and those that give none."""
        found: dict[tuple[str, int], dict[int, list[tuple[Evaluation, Label]]]] = {}
        unused = []
        for one in evaluations:
            try:
                label = self._label(one, grading)
            except _Unclear as why:
                unused.append(Unused(one.origin, why.reason, why.message))
                continue
            gains = found.setdefault((label.result_id, label.time_us), {})
            gains.setdefault(label.gain, []).append((one, label))
        labels = []
        for (result_id, _), gains in found.items():
            each = [pair for gain in gains.values() for pair in gain]
            if len(gains) == 1:
                labels.append(min((label for _, label in each), key=_labeller))
                continue
            listed = " and ".join(map(str, sorted(gains)))
            message = f"scores of one time give the result {result_id} the gains {listed}"
            unused += [Unused(one.origin, "label_conflict", message) for one, _ in each]
        return labels, unused

    def _label(self, one: Evaluation, grading: Grading) -> Label:
        if not grading.covers(one.name):
            raise _Unclear("label_other_name", f"it is called {one.name!r}")
        turn, search, place = self._result(one)
        gain = grading.gain(one.score, one.label, minimized=one.minimized)
        if gain is None:
            given = [repr(part) for part in (one.score, one.label) if part is not None]
            message = f"nothing says what {' and '.join(given)} is worth" if given else "no score"
            raise _Unclear("label_no_grade", message)
        if not EARLIEST_US <= one.time_us <= LATEST_US:
            raise _Unclear("label_malformed", f"its time is {one.time_us} µs after 1970")
        result_id = f"{search.span_id}/{place + 1}"
        return Label(turn, result_id, gain, one.time_us, one.labeller)

    def _result(self, one: Evaluation) -> tuple[Turn, Search, int]:
        """The turn, the search, and the place of the result in it, from 0."""
        if not one.span_id:
            raise _Unclear("label_no_span", "it names no span, or several")
        if self._tree is None:
            raise _Unclear("label_not_told", "the span's trace was set aside")
        span = self._tree.by_id.get(one.span_id)
        if span is None or one.trace_id not in ("", span.trace_id):
            raise _Unclear("label_no_span", f"the trace has no span {one.span_id}")
        found = self._searches.get(self._became.get(span.span_id, span.span_id))
        if found is None:
            turn, search = self._around(one, span, self._tree)
            return turn, search, self._of(search).chosen(one)
        turn, search = found
        if search.span_id == span.span_id:
            return turn, search, self._of(search).chosen(one)
        own = self._named(span, self._tree)
        if own is None and one.document is None:
            raise _Unclear("label_no_document", "the span names no documents, nor does the score")
        if own is None:
            return turn, search, self._of(search).chosen(one)
        place = own.chosen(one)
        return turn, search, self._of(search).alike(own.each[place], place, len(own.each))

    def _around(self, one: Evaluation, span: Span, tree: Tree) -> tuple[Turn, Search]:
        """The search inside of a span that is none, and names a document that it returned."""
        inside = self._searches_inside(tree).get(span.span_id)
        if not inside:
            if tree.role(span) in _SEARCHING or not self._searches:
                raise _Unclear("label_not_told", "the span's search was set aside")
            raise _Unclear("label_no_search", f"{span.name!r} is no search, and has none inside")
        if one.document is None:
            raise _Unclear("label_no_document", f"{span.name!r} is no search; name the document")
        hits = self._returned_in(span.span_id, one.document.strip(), tree)
        if one.before_ns is not None:
            before = bisect_right(hits, one.before_ns, key=lambda hit: hit[0])
            hits = hits[before - 1 : before] if before else []
        if not hits:
            raise _Unclear("label_no_document", f"no search in it returned {one.document[:100]!r}")
        if len(hits) > 1:
            raise _Unclear("label_ambiguous", f"{len(hits)} searches in it returned the document")
        return self._searches[hits[0][-1]]

    def _returned_in(self, id: str, name: str, tree: Tree) -> list[_Hit]:
        """The searches inside of a span that returned the document of this name, by end."""
        if not self._returned:
            for one, (_, search) in self._searches.items():
                hit = (max(tree.by_id[one].end_ns, search.start_ns), search.start_ns, one)
                for held in self._of(search).names:
                    self._returned.setdefault(held, []).append(hit)
        found = self._hits.get((id, name))
        if found is None:
            inside = self._inside[id]
            found = sorted(hit for hit in self._returned.get(name, ()) if hit[-1] in inside)
            self._hits[id, name] = found
        return found

    def _searches_inside(self, tree: Tree) -> dict[str, set[str]]:
        """Of each span the searches inside of it that were told."""
        if len(self._searches) * tree.depth > MOST_STEPS:
            message = f"the trace has {len(self._searches):,} searches; give scores to their spans"
            raise _Unclear("too_large", message)
        if not self._inside:
            for id in self._searches:
                outer = tree.parent(tree.by_id[id])
                while outer is not None:
                    self._inside.setdefault(outer.span_id, set()).add(id)
                    outer = tree.parent(outer)
        return self._inside

    def _of(self, search: Search) -> _Documents:
        """The documents of a search that was told."""
        found = self._documents.get(search.span_id)
        if found is None:
            documents = [result.document for result in search.results]
            found = self._documents[search.span_id] = _Documents(documents, search.results)
        return found

    def _named(self, span: Span, tree: Tree) -> _Documents | None:
        """The documents that a span names whose results another span has."""
        if span.span_id not in self._documents:
            row = tree.rows.get(span.span_id)
            naming = row is not None and row.role in _NAMING
            own = named(span, row.documents).documents if row is not None and naming else None
            self._documents[span.span_id] = None if own is None else _Documents(own)
        return self._documents[span.span_id]


def _labeller(label: Label) -> str:
    return label.labeller or ""
