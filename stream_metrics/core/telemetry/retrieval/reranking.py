"""Rerankers, joiners and postprocessors, which replace the searches they were given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from stream_metrics.core.telemetry.contents.documents import (
    Document,
    DocumentIndex,
    UnusableDocuments,
    documents_in_attributes,
    documents_in_value,
    documents_of,
    find_list,
    flatten_lists,
)
from stream_metrics.core.telemetry.interpretation import Interpretation
from stream_metrics.core.telemetry.retrieval.searches import (
    Retrieval,
    SpanProblem,
    elsewhere,
    query_of,
)
from stream_metrics.core.telemetry.roles.mapping import Role
from stream_metrics.core.telemetry.roles.tree import SpanTree
from stream_metrics.core.telemetry.spans import Span

MAX_COMPARISONS: Final = 1_000_000  # searches of a turn times rerankers and their documents


def find_rerankers(tree: SpanTree, covered: dict[str, str]) -> set[str]:
    """The outermost spans that rerank or join documents outside searches."""
    around = tree.ancestors(covered)
    spans = [
        span
        for span in tree.with_role(Role.RERANKER, Role.JOINER, Role.POSTPROCESSOR)
        if span.span_id not in covered and _passes_documents_on(span, tree, around)
    ]
    ids = [span.span_id for span in spans]
    outer = tree.outermost(ids)
    return {id for id in ids if outer[id] == id}


def apply_rerankers(
    tree: SpanTree,
    retrievals: list[Retrieval],
    spans: Iterable[Span],
    interpretation: Interpretation,
) -> tuple[list[Retrieval], list[SpanProblem]]:
    """The searches of one turn, with those that these spans reranked or joined replaced."""
    problems: list[SpanProblem] = []
    order = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    given = {span.span_id: _inputs(span, tree.rows[span.span_id].inputs) for span in order}
    number = sum(len(inputs or ()) for inputs in given.values())
    if (len(order) + number) * len(retrievals) > MAX_COMPARISONS:
        message = (
            f"its turn has {len(retrievals):,} searches, and {len(order):,} rerankers of "
            f"{number:,} documents"
        )
        return retrievals, [SpanProblem(order[0], "too_large", message)]
    known_of: dict[str, DocumentIndex] = {}
    for span in order:
        row = tree.rows[span.span_id]
        output = documents_of(span, row.documents)
        inputs = given[span.span_id]
        if row.role is Role.POSTPROCESSOR and not any(
            retrieval.end_ns <= span.start_ns for retrieval in retrievals
        ):
            if inputs and any(
                not _without(inputs, retrieval, known_of) for retrieval in retrievals
            ):
                message = "it was given the results of a search that ends later by its clock"
                problems.append(SpanProblem(span, "time_out_of_range", message))
            continue
        if output.problem or output.documents is None or inputs is None:
            reason, message = output.problem or (
                "truncated" if span.dropped_attributes else "content_off",
                "it records no input documents, or no output documents",
            )
            if reason == "content_off" and (other := elsewhere(span, row)):
                reason, message = "unrecognised", other
            problems.append(SpanProblem(span, reason, message))
            continue
        left, used = _sources_of_each(
            span, _parts(span, row.inputs) or [inputs], retrievals, known_of
        )
        if not used and row.role is Role.POSTPROCESSOR:
            continue  # its documents are not of a search; they may be indexed
        if left or (not used and output.documents):
            problems.append(
                SpanProblem(span, "unrecognised", "no recorded search returned its input")
            )
            continue
        if any(
            retrieval.parts and retrieval.span.parent_id != span.parent_id for retrieval in used
        ):
            message = "its input was reranked elsewhere before; a search may have no span"
            problems.append(SpanProblem(span, "unrecognised", message))
            continue
        used_ids = {retrieval.span.span_id for retrieval in used}
        retrievals = [
            retrieval for retrieval in retrievals if retrieval.span.span_id not in used_ids
        ]
        interpretation.reranked += len(used)
        each = [document for retrieval in used for document in retrieval.documents]
        known = DocumentIndex(each)
        routes = {retrieval.route for retrieval in used}
        retrievals.append(
            Retrieval(
                span,
                min([retrieval.start_ns for retrieval in used], default=span.start_ns),
                max(span.start_ns, span.end_ns),
                query_of(span, row.query)
                or next((retrieval.query for retrieval in used if retrieval.query), None),
                routes.pop() if len(routes) == 1 else None,
                tuple(_completed(document, each, known) for document in output.documents),
                None if row.role is Role.JOINER else tuple(inputs),
                tuple(
                    id for retrieval in used for id in (retrieval.span.span_id, *retrieval.parts)
                ),
            )
        )
    return retrievals, problems


def _sources_of_each(
    span: Span,
    lists: Iterable[Sequence[Document]],
    retrievals: Iterable[Retrieval],
    known_of: dict[str, DocumentIndex],
) -> tuple[list[Document], list[Retrieval]]:
    """The sources of each list that a joiner was given; no two lists have the same search."""
    rest = [*retrievals]
    left: list[Document] = []
    used: list[Retrieval] = []
    for each in lists:
        missing, some = _sources(span, each, rest, known_of)
        left += missing
        used += some
        taken = {retrieval.span.span_id for retrieval in some}
        rest = [retrieval for retrieval in rest if retrieval.span.span_id not in taken]
    return left, used


def _sources(
    span: Span,
    inputs: Sequence[Document],
    retrievals: Iterable[Retrieval],
    known_of: dict[str, DocumentIndex],
) -> tuple[Sequence[Document], list[Retrieval]]:
    """The documents that no search returned, and the latest searches that returned the others.

    A search that returned all of them is preferred, more so with the same parent or nothing else:
    of concurrent branches each has its own.
    """
    before = [retrieval for retrieval in retrievals if retrieval.end_ns <= span.start_ns]
    before.sort(
        key=lambda retrieval: (-retrieval.end_ns, -retrieval.start_ns, retrieval.span.span_id)
    )
    before.sort(
        key=lambda retrieval: (
            retrieval.span.parent_id != span.parent_id,
            len(retrieval.documents) != len(inputs),
        )
    )
    for retrieval in before:
        if inputs and not _without(inputs, retrieval, known_of):
            return [], [retrieval]
    before.sort(
        key=lambda retrieval: (-retrieval.end_ns, -retrieval.start_ns, retrieval.span.span_id)
    )
    left, used = inputs, []
    for retrieval in before:
        rest = _without(left, retrieval, known_of)
        if len(rest) < len(left):
            left = rest
            used.append(retrieval)
        if not left:
            break
    return left, used


def _without(
    documents: Sequence[Document], retrieval: Retrieval, known_of: dict[str, DocumentIndex]
) -> list[Document]:
    if retrieval.span.span_id not in known_of:
        known_of[retrieval.span.span_id] = DocumentIndex(retrieval.documents)
    known = known_of[retrieval.span.span_id]
    return [given for given in documents if known.position(given) is None]


def _passes_documents_on(span: Span, tree: SpanTree, around: set[str]) -> bool:
    """Whether a postprocessor received and returned documents, or records neither.

    Rerankers always do. One with searches inside it may have received documents of others.
    """
    row = tree.rows[span.span_id]
    if row.role is not Role.POSTPROCESSOR:
        return True
    inputs, output = _inputs(span, row.inputs), documents_of(span, row.documents)
    if output.documents is None and not _hides(span, row.documents):
        return False
    if inputs is None and span.span_id not in around:
        said = any(span.value(name) is not None for name in row.inputs)
        return _hides(span, row.inputs) and (said or span.dropped_attributes > 0)
    return bool(inputs)


def _hides(span: Span, names: Sequence[str]) -> bool:
    """Whether the span does not record if there were documents: all is missing or unreadable."""
    values = [value for name in names if (value := span.value(name)) is not None]
    return all(isinstance(documents_in_value(value), UnusableDocuments) for value in values)


def _inputs(span: Span, names: Iterable[str]) -> list[Document] | None:
    for name in names:
        value = span.value(name)
        documents = (
            documents_in_value(flatten_lists(value))
            if value is not None
            else documents_in_attributes(span, name)
        )
        if isinstance(documents, list):
            return documents
    return None


def _parts(span: Span, names: Iterable[str]) -> list[list[Document]]:
    """The lists that a joiner was given, if it was given several."""
    for name in names:
        value = find_list(span.value(name))
        if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
            parts = [documents_in_value(item) for item in value]
            if all(isinstance(part, list) for part in parts):
                return [part for part in parts if isinstance(part, list)]
    return []


def _completed(document: Document, each: Sequence[Document], known: DocumentIndex) -> Document:
    """The document, with what the reranker left out taken from the search."""
    place = known.position(document)
    return document if place is None else document.filled_from(replace(each[place], score=None))
