"""Checks whether the spans around a search returned what the search returned.

A tool that keeps the best results of its retriever, or a graph node that sorts them, has no span
for that step. The output of the surrounding spans shows it, as documents or as their texts.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    DocumentIndex,
    documents_in_value,
    documents_of,
    flatten_lists,
    same_document,
    shares_ids,
)
from stream_metrics.core.telemetry.retrieval.searches import (
    MAX_CONCURRENT_SEARCHES,
    OUTPUTS,
    Retrieval,
    SpanProblem,
)
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span

MAX_OUTPUT_LENGTH: Final = 1 << 20
MAX_SHOWN_COMPARISONS: Final = 10_000  # searches times model calls of a turn
MAX_SHOWN_CHARACTERS: Final = 1 << 33  # of the model calls, in all comparisons with documents
MAX_COMPARED_CHARACTERS: Final = 1 << 31  # of tools' outputs, in all comparisons with searches
_COMPARISON: Final = 1_000  # the cost of a comparison in characters, besides those of the output
_BEGINNING: Final = 160  # characters of a text that may contain the probe
_PROBE: Final = re.compile(r"[A-Za-z0-9 ,;:()-]{12,60}")
_LEVELS: Final = 16  # of ancestors of a search that are checked


def probe(text: str) -> str | None:
    """A phrase by which the text is found in another: the same in JSON and with other spacing.

    >>> probe("A \\"worn\\" chain\\nstretches over time.")
    'stretches over time'
    """
    return max(_PROBE.findall(text[:_BEGINNING]), key=len, default=None)


def _output_text(span: Span, names: Iterable[str]) -> str:
    """The texts that a span returned, as far as they are short enough to search."""
    values = [span.value(name) for name in names]
    texts = [
        value for value in values if isinstance(value, str) and len(value) <= MAX_OUTPUT_LENGTH
    ]
    return "\n".join(texts)


def _probes(documents: Iterable[Document]) -> list[str]:
    return [phrase for document in documents if document.text and (phrase := probe(document.text))]


def _text_offsets(documents: Iterable[Document], output: str) -> list[int]:
    """The offset of each document's text in the output; -1 if it is missing."""
    return [output.find(phrase) for phrase in _probes(documents)]


def tools_of_searches(tree: SpanTree) -> dict[str, str] | None:
    """The tool of each search that an instrumentation wrote as the tool's sibling, by span id; None
    if so many tools ran beside searches that it takes too long to say.

    A search belongs to a tool that ran at the same time, if the tool was asked the same or returned
    the search's documents.
    """
    siblings: dict[str, list[Span]] = {}
    for span in tree.with_role(Role.TOOL, Role.SEARCH):
        siblings.setdefault(span.parent_id, []).append(span)
    tools: dict[str, str] = {}
    left = MAX_COMPARED_CHARACTERS
    for spans in siblings.values():
        if len({tree.role(span) for span in spans}) < 2:
            continue
        running: list[_Tool] = []
        taken: set[str] = set()
        for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns, span.span_id)):
            running = [tool for tool in running if tool.span.end_ns >= span.start_ns]
            row = tree.rows[span.span_id]
            if row.role is Role.TOOL:
                tool = _Tool(span, _output_text(span, row.documents), _output_text(span, row.query))
                running = [*running[-MAX_CONCURRENT_SEARCHES:], tool]
                continue
            probes = _probes(documents_of(span, row.documents).documents or ())
            query = _output_text(span, row.query[:1])
            fits: dict[str, tuple[int, int]] = {}
            for tool in running:
                if tool.span.end_ns < span.end_ns or tool.span.scope != span.scope:
                    continue
                length = len(tool.output) * len(probes) + len(tool.asked)
                left -= _COMPARISON + length
                if left < 0:
                    return None
                returned = sum(phrase in tool.output for phrase in probes)
                fits[tool.span.span_id] = returned, int(bool(query) and query in tool.asked)
            best = max(fits, key=lambda id: (fits[id], id not in taken), default=None)
            if best is not None and fits[best] > (0, 0):
                taken.add(best)
                tools[span.span_id] = best
    return tools


class _Tool(NamedTuple):
    """A tool with the texts that it returned, and that it was asked."""

    span: Span
    output: str
    asked: str


def _lists(span: Span, names: Iterable[str]) -> list[list[Document]]:
    """All lists of documents in these attributes, also under names that a program chose."""
    lists = []
    for name in names:
        value = span.value(name)
        inner = flatten_lists(value)
        for item in (value, *(inner.values() if isinstance(inner, dict) else ())):
            documents = documents_in_value(item, True)
            if isinstance(documents, list) and documents:
                lists.append(documents)
    return lists


def find_changed_outputs(
    tree: SpanTree,
    before: Sequence[Retrieval],
    after: Sequence[Retrieval],
    numbers: Mapping[str, int],
) -> Iterator[SpanProblem]:
    """Spans around the searches of one iteration that changed what the searches returned.

    Args:
        tree: The trace.
        before: The searches of a turn before reranking.
        after: The searches after reranking.
        numbers: The iteration of each search.
    """
    returned = {
        key
        for retrieval in (*before, *after)
        for key in (_ids(retrieval.documents), _texts(retrieval.documents))
    }
    inside: dict[str, list[Retrieval]] = {}
    for retrieval in after:
        outer = tree.parent(retrieval.span)
        for _ in range(_LEVELS):
            if outer is None or tree.role(outer) is Role.TURN:
                break
            inside.setdefault(outer.span_id, []).append(retrieval)
            outer = tree.parent(outer)
    for id, searches in inside.items():
        span, role = tree.by_id[id], tree.role(tree.by_id[id])
        if len({numbers[retrieval.span.span_id] for retrieval in searches}) > 1:
            continue
        if role is Role.TOOL and id not in tree.around_models:
            lost = _lost_text(_output_text(span, tree.rows[id].documents), searches)
        elif role in (None, Role.OTHER) and id not in tree.ignored:
            lost = any(
                _lost(documents, searches)
                for documents in _lists(span, OUTPUTS)
                if _ids(documents) not in returned and _texts(documents) not in returned
            )
        else:
            continue
        if lost:
            message = (
                f"{span.name!r} did not return all the results of the search inside it unchanged"
            )
            yield SpanProblem(span, "unrecognised", message)


def find_partly_shown(
    models: Sequence[Span], retrievals: Sequence[Retrieval]
) -> Iterator[SpanProblem]:
    """Searches of which the following model call was shown only a part.

    The program dropped the rest in a step without a span. Later calls count too, since some
    programs have a model look at each document separately.
    """
    if len(models) * len(retrievals) > MAX_SHOWN_COMPARISONS:
        return
    calls = sorted(models, key=lambda span: (span.start_ns, span.span_id))
    starts = sorted(retrieval.start_ns for retrieval in retrievals)
    shown = _ShownTexts(MAX_SHOWN_CHARACTERS)
    for retrieval in retrievals:
        later = [span for span in calls if span.start_ns >= retrieval.end_ns]
        at = bisect_left(starts, retrieval.end_ns)
        following = starts[at] if at < len(starts) else None
        window = [span for span in later if following is None or span.start_ns < following]
        probes = _probes(retrieval.documents)
        partly = any(shown.contain(span, each) for span in window for each in probes) and not all(
            any(shown.contain(span, each) for span in later) for each in probes
        )
        if shown.left < 0:
            message = "the texts of the model calls after it are too long to search"
            yield SpanProblem(retrieval.span, "too_large", message)
            return
        if partly:
            message = f"{window[-1].name!r} was shown only a part of its results"
            yield SpanProblem(retrieval.span, "unrecognised", message)


class _ShownTexts:
    """Looks for texts in the attributes of spans; ``left`` is how many characters of these may
    still be searched, negative once there were more."""

    def __init__(self, most: int) -> None:
        self.left = most

    def contain(self, span: Span, text: str) -> bool:
        """Whether an attribute contains the text; False once ``left`` is negative."""
        for value in span.attributes.values():
            if isinstance(value, str) and self.left >= 0:
                self.left -= len(value)
                if text in value:
                    return True
        return False


def find_possibly_nested(tree: SpanTree, retrievals: Sequence[Retrieval]) -> Iterator[SpanProblem]:
    """Searches that may be part of a sibling.

    A retriever that calls another without passing on its callbacks leaves sibling spans. A search
    that ran during another, for the same query and with the same results, is either nested or
    concurrent. If an instrumentation writes all spans as siblings, time alone cannot decide.
    """
    siblings: dict[tuple[str, str | None, str], list[Retrieval]] = {}
    for retrieval in retrievals:
        if retrieval.span.parent_id and tree.role(retrieval.span) is Role.SEARCH:
            query = (
                None
                if tree.rows[retrieval.span.span_id].flattens_nesting
                else retrieval.query or retrieval.span.span_id
            )
            siblings.setdefault((retrieval.span.parent_id, query, retrieval.span.scope), []).append(
                retrieval
            )
    for (_, query, _), each in siblings.items():
        order = sorted(
            each,
            key=lambda retrieval: (retrieval.start_ns, -retrieval.end_ns, retrieval.span.span_id),
        )
        for outer, inner in pairwise(order):
            if inner.end_ns > outer.end_ns:
                continue
            if (
                query is None
                or _part(outer.documents, inner.documents)
                or _part(inner.documents, outer.documents)
            ):
                message = f"it is unclear whether it is part of its sibling {outer.span.name!r}"
                yield SpanProblem(inner.span, "unrecognised", message)


def find_possible_inputs(
    retrievals: Sequence[Retrieval], numbers: Mapping[str, int], inferred: bool
) -> Iterator[SpanProblem]:
    """Searches whose results a reranker may have been given besides those it was matched with.

    All their results are among its input, and no model call lies between.
    """
    for reranked in retrievals[:MAX_CONCURRENT_SEARCHES]:
        if not reranked.reranked_from:
            continue
        known = DocumentIndex(reranked.reranked_from)
        for other in retrievals[:MAX_CONCURRENT_SEARCHES]:
            if (
                other.reranked_from is None
                and other.documents
                and other.end_ns <= reranked.span.start_ns
                and (inferred or numbers[other.span.span_id] == numbers[reranked.span.span_id])
                and all(known.position(document) is not None for document in other.documents)
            ):
                message = f"it is unclear whether {reranked.span.name!r} was given its results too"
                yield SpanProblem(other.span, "unrecognised", message)


def _part(some: Sequence[Document], all_: Sequence[Document]) -> bool:
    """Whether ``some`` equals ``all_``, or is a proper subset of it in any order."""
    if not some or len(some) > len(all_):
        return False
    if len(some) == len(all_):
        return all(same_document(one, other) for one, other in zip(some, all_, strict=True))
    return all(any(same_document(one, other) for other in all_) for one in some)


def _ids(documents: Sequence[Document]) -> tuple[str | None, ...]:
    if shares_ids(documents):
        return _texts(documents)
    return ("id", *(document.id for document in documents))


def _texts(documents: Sequence[Document]) -> tuple[str | None, ...]:
    return ("text", *(document.form for document in documents))


def _lost(documents: Sequence[Document], searches: Sequence[Retrieval]) -> bool:
    """Whether documents of the searches are missing, or one search's are in another order."""
    of_pages = any(shares_ids(each) for each in (documents, *(one.documents for one in searches)))
    ids = {
        document.id: place
        for place, document in reversed([*enumerate(documents)])
        if document.id and not of_pages
    }
    texts = {
        document.form: place
        for place, document in reversed([*enumerate(documents)])
        if document.form
    }
    each = [
        [
            ids.get(document.id or "", texts.get(document.form or "", -1))
            for document in search.documents
        ]
        for search in searches
    ]
    return _changed(each)


def _lost_text(output: str, searches: Sequence[Retrieval]) -> bool:
    return _changed([_text_offsets(search.documents, output) for search in searches])


def _changed(each: Sequence[Sequence[int]]) -> bool:
    """Whether some positions are missing, but not all, or those of a single search are out of
    order."""
    places = [place for of_search in each for place in of_search]
    if max(places, default=-1) < 0:
        return False  # none of it was returned in this form
    disordered = len(each) == 1 and any(a > b for a, b in pairwise(places))
    return min(places) < 0 or disordered
