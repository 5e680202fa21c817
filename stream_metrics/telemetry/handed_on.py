"""Whether what is around a search handed on what the search returned.

A tool that keeps the best of what its retriever found, or a node of a graph that sorts it, has no
span for that. What such spans return betrays it, as documents or as the texts of these.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from stream_metrics.telemetry.documents import Document, Known, flat, in_value, named, same
from stream_metrics.telemetry.mapping import Role
from stream_metrics.telemetry.searches import MOST_SIDE_BY_SIDE, OUTPUTS, Doubt, Got
from stream_metrics.telemetry.spans import Span
from stream_metrics.telemetry.tree import Tree

LONGEST_OUTPUT: Final = 1 << 20
MOST_SHOWN: Final = 10_000  # searches times model calls of a turn
_BEGINNING: Final = 160  # characters of a text in which there is what it is found again by
_PROBE: Final = re.compile(r"[A-Za-z0-9 ,;:()-]{12,60}")
_LEVELS: Final = 16  # of spans around a search that are looked at


def probe(text: str) -> str | None:
    """What a text is found again by: words in it that are the same in JSON, and with other spacing.

    >>> probe("A \\"worn\\" chain\\nstretches over time.")
    'stretches over time'
    """
    return max(_PROBE.findall(text[:_BEGINNING]), key=len, default=None)


def _said(span: Span, names: Iterable[str]) -> str:
    """The texts that a span returned, as far as these are short enough to be looked through."""
    values = [span.value(name) for name in names]
    texts = [value for value in values if isinstance(value, str) and len(value) <= LONGEST_OUTPUT]
    return "\n".join(texts)


def _probes(documents: Iterable[Document]) -> list[str]:
    return [found for one in documents if one.text and (found := probe(one.text))]


def _places(documents: Iterable[Document], said: str) -> list[int]:
    """Where the texts of documents stand in what was said; -1 for one that does not."""
    return [said.find(one) for one in _probes(documents)]


def inside_tools(tree: Tree) -> dict[str, str]:
    """The tools of searches that hang beside these, as some tracers write it.

    A search is of a tool's if it ran while the tool did, and was for what the tool was asked, or
    the tool returned its documents.
    """
    beside: dict[str, list[Span]] = {}
    for span in tree.of(Role.TOOL, Role.SEARCH):
        beside.setdefault(span.parent_id, []).append(span)
    found: dict[str, str] = {}
    for spans in beside.values():
        if len({tree.role(span) for span in spans}) < 2:
            continue
        running: list[Span] = []
        taken: set[str] = set()
        for span in sorted(spans, key=lambda one: (one.start_ns, -one.end_ns, one.span_id)):
            running = [tool for tool in running if tool.end_ns >= span.start_ns]
            if tree.role(span) is Role.TOOL:
                running = [*running[-MOST_SIDE_BY_SIDE:], span]
                continue
            tools = [t for t in running if t.end_ns >= span.end_ns and t.scope == span.scope]
            fits = {tool.span_id: _belongs(tree, span, tool) for tool in tools}
            best = max(fits, key=lambda id: (fits[id], id not in taken), default=None)
            if best is not None and fits[best] > (0, 0):
                taken.add(best)
                found[span.span_id] = best
    return found


def _belongs(tree: Tree, search: Span, tool: Span) -> tuple[int, int]:
    """How much of a search a tool returned, and whether it was asked for the same."""
    row, of_tool = tree.rows[search.span_id], tree.rows[tool.span_id]
    documents = named(search, row.documents).documents or ()
    said = _said(tool, of_tool.documents)
    returned = sum(place >= 0 for place in _places(documents, said))
    query, asked = _said(search, row.query[:1]), _said(tool, of_tool.query)
    return returned, int(bool(query) and query in asked)


def _lists(span: Span, names: Iterable[str]) -> list[list[Document]]:
    """All lists of documents in these attributes, be it under names of the program's own."""
    found = []
    for name in names:
        value = span.value(name)
        inner = flat(value)
        for one in (value, *(inner.values() if isinstance(inner, dict) else ())):
            documents = in_value(one, True)
            if isinstance(documents, list) and documents:
                found.append(documents)
    return found


def not_handed_on(
    tree: Tree, before: Sequence[Got], found: Sequence[Got], numbers: Mapping[str, int]
) -> Iterator[Doubt]:
    """Spans around the searches of one iteration that did not hand on what these returned.

    Args:
        tree: The trace.
        before: The searches of a turn, before rerankers took the places of some.
        found: What the agent got, as far as spans with roles tell.
        numbers: The iteration of each search.
    """
    returned = {
        key for one in (*before, *found) for key in (_ids(one.documents), _texts(one.documents))
    }
    inside: dict[str, list[Got]] = {}
    for one in found:
        outer = tree.parent(one.span)
        for _ in range(_LEVELS):
            if outer is None or tree.role(outer) is Role.TURN:
                break
            inside.setdefault(outer.span_id, []).append(one)
            outer = tree.parent(outer)
    models = tree.around(span.span_id for span in tree.of(Role.MODEL, Role.TURN))
    for id, searches in inside.items():
        span, role = tree.by_id[id], tree.role(tree.by_id[id])
        if len({numbers[one.span.span_id] for one in searches}) > 1:
            continue
        if role is Role.TOOL and id not in models:
            lost = _lost_text(_said(span, tree.rows[id].documents), searches)
        elif role in (None, Role.OTHER) and id not in tree.ignored:
            lost = any(
                _lost(documents, searches)
                for documents in _lists(span, OUTPUTS)
                if _ids(documents) not in returned and _texts(documents) not in returned
            )
        else:
            continue
        if lost:
            message = f"{span.name!r} did not hand on all that was found inside of it as it was"
            yield Doubt(span, "unrecognised", message)


def not_all_shown(models: Sequence[Span], found: Sequence[Got]) -> Iterator[Doubt]:
    """Searches of which the model that followed was shown a part only.

    The program left the rest out, in a step without a span. What a later call is shown counts, too:
    some programs have a model look at each document by itself.
    """
    if len(models) * len(found) > MOST_SHOWN:
        return
    calls = sorted(models, key=lambda span: (span.start_ns, span.span_id))
    starts = sorted(one.start_ns for one in found)
    for one in found:
        later = [span for span in calls if span.start_ns >= one.end_ns]
        at = bisect_left(starts, one.end_ns)
        following = starts[at] if at < len(starts) else None
        window = [span for span in later if following is None or span.start_ns < following]
        probes = _probes(one.documents)
        if any(_shows(span, each) for span in window for each in probes) and not all(
            any(_shows(span, each) for span in later) for each in probes
        ):
            message = f"{window[-1].name!r} was shown a part of it only"
            yield Doubt(one.span, "unrecognised", message)


def _shows(span: Span, text: str) -> bool:
    return any(isinstance(value, str) and text in value for value in span.attributes.values())


def side_by_side_or_nested(tree: Tree, found: Sequence[Got]) -> Iterator[Doubt]:
    """Searches that may be parts of others beside which they hang.

    A retriever that calls another without handing on its callbacks leaves such spans. One that ran
    while the other did, for the same query, and returned the same is that, or runs side by side.
    Where an instrumentation hangs all spans beside each other, time alone leaves that open.
    """
    beside: dict[tuple[str, str | None, str], list[Got]] = {}
    for one in found:
        if one.span.parent_id and tree.role(one.span) is Role.SEARCH:
            query = None if tree.rows[one.span.span_id].flat else one.query or one.span.span_id
            beside.setdefault((one.span.parent_id, query, one.span.scope), []).append(one)
    for (_, query, _), each in beside.items():
        order = sorted(each, key=lambda one: (one.start_ns, -one.end_ns, one.span.span_id))
        for outer, inner in pairwise(order):
            if inner.end_ns > outer.end_ns:
                continue
            if (
                query is None
                or _part(outer.documents, inner.documents)
                or _part(inner.documents, outer.documents)
            ):
                message = f"nothing tells whether it is a part of {outer.span.name!r} beside it"
                yield Doubt(inner.span, "unrecognised", message)


def left_beside(
    found: Sequence[Got], numbers: Mapping[str, int], inferred: bool
) -> Iterator[Doubt]:
    """Searches of which a reranker may have got the results, beside those that it had them from.

    What it was given is then all theirs, too, and no decision of the agent lies between.
    """
    for one in found[:MOST_SIDE_BY_SIDE]:
        if not one.before:
            continue
        known = Known(one.before)
        for other in found[:MOST_SIDE_BY_SIDE]:
            if (
                other.before is None
                and other.documents
                and other.end_ns <= one.span.start_ns
                and (inferred or numbers[other.span.span_id] == numbers[one.span.span_id])
                and all(known.place(document) is not None for document in other.documents)
            ):
                message = f"nothing tells whether {one.span.name!r} was given its results, too"
                yield Doubt(other.span, "unrecognised", message)


def _part(some: Sequence[Document], all_: Sequence[Document]) -> bool:
    """Whether these are all those in their order, or fewer of them in any order."""
    if not some or len(some) > len(all_):
        return False
    if len(some) == len(all_):
        return all(same(one, other) for one, other in zip(some, all_, strict=True))
    return all(any(same(one, other) for other in all_) for one in some)


def _ids(documents: Sequence[Document]) -> tuple[str | None, ...]:
    return ("id", *(one.id for one in documents))


def _texts(documents: Sequence[Document]) -> tuple[str | None, ...]:
    return ("text", *(one.text for one in documents))


def _lost(documents: Sequence[Document], searches: Sequence[Got]) -> bool:
    """Whether documents of the searches are missing, or in another order than a search had them."""
    ids = {one.id: place for place, one in reversed([*enumerate(documents)]) if one.id}
    texts = {one.text: place for place, one in reversed([*enumerate(documents)]) if one.text}
    each = [
        [ids.get(one.id or "", texts.get(one.text or "", -1)) for one in search.documents]
        for search in searches
    ]
    return _changed(each)


def _lost_text(said: str, searches: Sequence[Got]) -> bool:
    return _changed([_places(search.documents, said) for search in searches])


def _changed(each: Sequence[Sequence[int]]) -> bool:
    """Whether of the places some are missing, though not all, or those of one search disordered."""
    places = [place for of_search in each for place in of_search]
    if max(places, default=-1) < 0:
        return False  # nothing of it was handed on in this form
    disordered = len(each) == 1 and any(a > b for a, b in pairwise(places))
    return min(places) < 0 or disordered
