"""Rerankers, joiners and postprocessors, which take the places of the searches they were given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from stream_metrics.telemetry.documents import (
    Document,
    Known,
    Problem,
    flat,
    in_flattened,
    in_value,
    listed,
    named,
)
from stream_metrics.telemetry.mapping import Role
from stream_metrics.telemetry.searches import Doubt, Got, query_of
from stream_metrics.telemetry.spans import Span
from stream_metrics.telemetry.told import Told
from stream_metrics.telemetry.tree import Tree

MOST_COMPARED: Final = 100_000  # searches times rerankers of a turn


def rerankers(tree: Tree, covered: dict[str, str]) -> set[str]:
    """The outermost spans that rerank or join what was found, outside of searches."""
    around = tree.around(covered)
    spans = [
        span
        for span in tree.of(Role.RERANKER, Role.JOINER, Role.POSTPROCESSOR)
        if span.span_id not in covered and _passes_documents_on(span, tree, around)
    ]
    ids = [span.span_id for span in spans]
    outer = tree.marked(ids)
    return {id for id in ids if outer[id] == id}


def reranked(
    tree: Tree, found: list[Got], spans: Iterable[Span], told: Told
) -> tuple[list[Got], list[Doubt]]:
    """The searches of one turn, with those whose results these spans changed replaced."""
    doubts: list[Doubt] = []
    order = sorted(spans, key=lambda span: (span.start_ns, span.span_id))
    if len(order) * len(found) > MOST_COMPARED:
        message = f"its turn has {len(found):,} searches and {len(order):,} rerankers"
        return found, [Doubt(order[0], "too_large", message)]
    known_of: dict[str, Known] = {}
    for span in order:
        row = tree.rows[span.span_id]
        output = named(span, row.documents)
        inputs = _inputs(span, row.inputs)
        if row.role is Role.POSTPROCESSOR and not any(one.end_ns <= span.start_ns for one in found):
            if inputs and any(not _without(inputs, one, known_of) for one in found):
                message = "it was given what a search found, which ends later by its clock"
                doubts.append(Doubt(span, "time_out_of_range", message))
            continue
        if output.problem or output.documents is None or inputs is None:
            reason, message = output.problem or (
                "truncated" if span.dropped_attributes else "content_off",
                "it names no documents that went in, or none that came out",
            )
            doubts.append(Doubt(span, reason, message))
            continue
        left, used = _sources_of_each(span, _parts(span, row.inputs) or [inputs], found, known_of)
        if not used and row.role is Role.POSTPROCESSOR:
            continue  # of documents from elsewhere, as those that are indexed
        if left or (not used and output.documents):
            doubts.append(
                Doubt(span, "unrecognised", "no search that is told returned what it was given")
            )
            continue
        if any(one.parts and one.span.parent_id != span.parent_id for one in used):
            message = "what it was given was reranked before, elsewhere; a search may have no span"
            doubts.append(Doubt(span, "unrecognised", message))
            continue
        used_ids = {one.span.span_id for one in used}
        found = [one for one in found if one.span.span_id not in used_ids]
        told.reranked += len(used)
        each = [document for one in used for document in one.documents]
        known = Known(each)
        routes = {one.route for one in used}
        found.append(
            Got(
                span,
                min([one.start_ns for one in used], default=span.start_ns),
                max(span.start_ns, span.end_ns),
                query_of(span, row.query) or next((one.query for one in used if one.query), None),
                routes.pop() if len(routes) == 1 else None,
                tuple(_completed(document, each, known) for document in output.documents),
                None if row.role is Role.JOINER else tuple(inputs),
                tuple(id for one in used for id in (one.span.span_id, *one.parts)),
            )
        )
    return found, doubts


def _sources_of_each(
    span: Span,
    lists: Iterable[Sequence[Document]],
    found: Iterable[Got],
    known_of: dict[str, Known],
) -> tuple[list[Document], list[Got]]:
    """The same of each of the lists that a joiner was given: no two are of one search."""
    rest = [*found]
    left: list[Document] = []
    used: list[Got] = []
    for each in lists:
        missing, some = _sources(span, each, rest, known_of)
        left += missing
        used += some
        taken = {one.span.span_id for one in some}
        rest = [one for one in rest if one.span.span_id not in taken]
    return left, used


def _sources(
    span: Span, inputs: Sequence[Document], found: Iterable[Got], known_of: dict[str, Known]
) -> tuple[Sequence[Document], list[Got]]:
    """The latest searches that returned what a reranker was given, and what none of them did.

    One that returned all of it is preferred, the more if it has the same parent or returned nothing
    else: of branches that run side by side each has its own.
    """
    before = [one for one in found if one.end_ns <= span.start_ns]
    before.sort(key=lambda one: (-one.end_ns, -one.start_ns, one.span.span_id))
    before.sort(
        key=lambda one: (
            one.span.parent_id != span.parent_id,
            len(one.documents) != len(inputs),
        )
    )
    for one in before:
        if inputs and not _without(inputs, one, known_of):
            return [], [one]
    before.sort(key=lambda one: (-one.end_ns, -one.start_ns, one.span.span_id))
    left, used = inputs, []
    for one in before:
        rest = _without(left, one, known_of)
        if len(rest) < len(left):
            left = rest
            used.append(one)
        if not left:
            break
    return left, used


def _without(documents: Sequence[Document], one: Got, known_of: dict[str, Known]) -> list[Document]:
    if one.span.span_id not in known_of:
        known_of[one.span.span_id] = Known(one.documents)
    known = known_of[one.span.span_id]
    return [given for given in documents if known.place(given) is None]


def _passes_documents_on(span: Span, tree: Tree, around: set[str]) -> bool:
    """Whether a postprocessor got documents and gave some, or hides both.

    Of rerankers that is certain. What has searches inside of it may have got documents of others.
    """
    row = tree.rows[span.span_id]
    if row.role is not Role.POSTPROCESSOR:
        return True
    inputs, output = _inputs(span, row.inputs), named(span, row.documents)
    if output.documents is None and not _hides(span, row.documents):
        return False
    if inputs is None and span.span_id not in around:
        said = any(span.value(name) is not None for name in row.inputs)
        return _hides(span, row.inputs) and (said or span.dropped_attributes > 0)
    return bool(inputs)


def _hides(span: Span, names: Sequence[str]) -> bool:
    """Whether the span does not say whether there were documents: all is missing, or unreadable."""
    values = [value for name in names if (value := span.value(name)) is not None]
    return all(isinstance(in_value(value), Problem) for value in values)


def _inputs(span: Span, names: Iterable[str]) -> list[Document] | None:
    for name in names:
        value = span.value(name)
        one = in_value(flat(value)) if value is not None else in_flattened(span, name)
        if isinstance(one, list):
            return one
    return None


def _parts(span: Span, names: Iterable[str]) -> list[list[Document]]:
    """The lists that a joiner was given, if it was given several."""
    for name in names:
        value = listed(span.value(name))
        if isinstance(value, list) and value and all(isinstance(one, list) for one in value):
            parts = [in_value(one) for one in value]
            if all(isinstance(one, list) for one in parts):
                return [one for one in parts if isinstance(one, list)]
    return []


def _completed(document: Document, each: Sequence[Document], known: Known) -> Document:
    """With what the search said of it, where a reranker leaves that out."""
    place = known.place(document)
    return document if place is None else document.filled(replace(each[place], score=None))
