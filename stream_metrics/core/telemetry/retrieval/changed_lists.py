"""Checks that other steps of a program pass on the documents of searches unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    names_no_documents,
    shares_ids,
)
from stream_metrics.core.telemetry.retrieval.searches import (
    INPUTS,
    OUTPUTS,
    UNKNOWN,
    Retrieval,
    SpanProblem,
    document_lists,
)
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span

MAX_COMPARISONS: Final = 100_000  # lists of steps of a turn times lists of searches


def find_changed_lists(
    tree: SpanTree, members: Iterable[Span], aside: set[str], got: Sequence[Retrieval]
) -> Iterable[SpanProblem]:
    """Spans that output documents of searches in another form than the searches returned them.

    A step without a row filtered, joined or reordered them, or they come from a search without a
    span. Spans in ``aside`` are skipped: they belong to searches, contain searches, or are ignored.
    """
    returned = _ReturnedLists(got)
    for span in members:
        if tree.role(span) not in UNKNOWN or span.span_id in aside:
            continue
        lists = document_lists(span) or [
            [] for name in OUTPUTS if names_no_documents(span.value(name))
        ]
        given = (
            [_DocumentList(documents) for documents in document_lists(span, INPUTS)]
            if lists
            else []
        )
        for documents in lists:
            shown = _DocumentList(documents)
            fed = [each for each in given if shown.of(each)]
            if not documents:
                if not any(each.names & returned.names for each in given):
                    continue
                message = f"{span.name!r} removed all results of a search, and no row matches it"
            elif returned.names.isdisjoint(shown.names):
                if fed:
                    continue
                message = f"{span.name!r} outputs documents of no search"
            elif returned.explain(shown, span.end_ns) and (
                not fed or any(shown.same(each) for each in fed)
            ):
                continue
            elif returned.compared > MAX_COMPARISONS:
                message = f"its steps output more than {MAX_COMPARISONS:,} lists to compare"
                yield SpanProblem(span, "too_large", message)
                return
            else:
                message = f"{span.name!r} changed the results of a search, and no row matches it"
            yield SpanProblem(span, "unrecognised", message)
            break


class _DocumentList:
    """A list of documents by their ids and by their texts; by texts only if ids name pages."""

    def __init__(self, documents: Sequence[Document]) -> None:
        of_pages = shares_ids(documents)
        self.ids = tuple(None if of_pages else document.id for document in documents)
        self.texts = tuple(document.form for document in documents)
        self.names = {name for name in (*self.ids, *self.texts) if name}

    def same(self, other: _DocumentList) -> bool:
        """Whether both lists have the same documents in the same order."""
        if None not in self.ids and None not in other.ids:
            return self.ids == other.ids
        return None not in self.texts and self.texts == other.texts

    def of(self, other: _DocumentList) -> bool:
        """Whether the other list has all documents of this one."""
        if None not in self.ids and None not in other.ids:
            return set(self.ids) <= set(other.ids)
        return None not in self.texts and set(self.texts) <= set(other.texts)


class _ReturnedLists:
    """The lists that the searches of a turn returned; ``compared`` counts comparisons."""

    def __init__(self, got: Sequence[Retrieval]) -> None:
        self.compared = 0
        self.names: set[str] = set()
        self._since: dict[tuple[str | None, ...], int] = {}
        self._beginning: dict[str, list[tuple[int, int, _DocumentList]]] = {}
        order = sorted(got, key=lambda retrieval: (retrieval.start_ns, retrieval.span.span_id))
        for place, retrieval in enumerate(order):
            listed = _DocumentList(retrieval.documents)
            self.names |= listed.names
            for names in (listed.ids, listed.texts):
                self._since.setdefault(names, retrieval.start_ns)
            for name in {names[0] for names in (listed.ids, listed.texts) if names} - {None}:
                entry = (place, retrieval.start_ns, listed)
                self._beginning.setdefault(str(name), []).append(entry)

    def explain(self, shown: _DocumentList, until_ns: int) -> bool:
        """Whether the list is one of those returned, several of them in sequence, or their
        union."""
        forms = [names for names in (shown.ids, shown.texts) if None not in names]
        if any(self._since.get(names, until_ns + 1) <= until_ns for names in forms):
            return True
        by_place: dict[int, _DocumentList] = {}
        for name in shown.names:
            for place, start_ns, listed in self._beginning.get(name, ()):
                self.compared += 1
                if self.compared > MAX_COMPARISONS:
                    return False
                if start_ns <= until_ns and listed.of(shown):
                    by_place[place] = listed
        whole = [by_place[place] for place in sorted(by_place)]
        return any(
            None not in mine and (_in_a_row(mine, lists) or _each_once(mine, lists))
            for mine, lists in (
                (shown.ids, [each.ids for each in whole]),
                (shown.texts, [each.texts for each in whole]),
            )
        )


def _in_a_row(names: tuple[str | None, ...], lists: Sequence[tuple[str | None, ...]]) -> bool:
    """Whether the names are whole lists in sequence."""
    parts: dict[str | None, set[tuple[str | None, ...]]] = {}
    for each in lists:
        parts.setdefault(each[0], set()).add(each)
    ends = {0}
    for place, name in enumerate(names):
        if place in ends:
            ends |= {
                place + len(part)
                for part in parts.get(name, ())
                if names[place : place + len(part)] == part
            }
    return len(names) in ends


def _each_once(names: tuple[str | None, ...], lists: Sequence[tuple[str | None, ...]]) -> bool:
    return names == tuple(dict.fromkeys(name for each in lists for name in each))
