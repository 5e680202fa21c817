"""What a span tells: a search or none, and of which conversation, agent and release.

Pure: the same span gives the same bytes, whatever came before it. What only the other spans of a
trace can tell (turn, iteration, and what a span leaves to its ancestors) is for whoever has these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from stream_metrics.adapters.otlp.spans import Span

NOT_RECORDED = (
    "the span names no documents: let the instrumentation record `gen_ai.retrieval.documents`"
)


@dataclass(frozen=True, slots=True)
class Names:
    """Which attributes say what; of several the first that a span has.

    Attributes:
        retrievals: Attribute and value of spans that are retrievals.
        conversation, agent, release: Attributes of a span, or of its resource.
        query: Attributes of a span with the text that was searched for.
        documents: Attributes with the documents as a list, as JSON, or flattened behind the name.
        ids: Names in a document, or in its metadata, that are ID components of the result.
        fields: The same of fields of the result.
    """

    retrievals: frozenset[tuple[str, str]]
    conversation: tuple[str, ...]
    agent: tuple[str, ...]
    release: tuple[str, ...]
    query: tuple[str, ...]
    documents: tuple[str, ...]
    ids: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """A retrieval span as a search: its query, and its results as JSON.

    ``problem`` says why it cannot be used, where the decoding of the event would not say it well.
    """

    query: str | None
    results: bytes
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a span tells by itself; None is what it leaves to its ancestors."""

    conversation: str | None
    agent: str | None
    release: str | None
    search: Search | None


def told(span: Span, names: Names) -> Told:
    """What the span tells; never raises on what it holds."""
    is_retrieval = any(
        name in span.attributes and span.attributes[name] == value
        for name, value in names.retrievals
    )
    return Told(
        _first(span, names.conversation),
        _first(span, names.agent),
        _first(span, names.release),
        _search(span, names) if is_retrieval else None,
    )


def _first(span: Span, names: tuple[str, ...]) -> str | None:
    """The first of the attributes that is there and says something."""
    for attributes in (span.attributes, span.resource):
        for name in names:
            found = _text(attributes.get(name))
            if found is not None:
                return found
    return None


def _text(value: Any) -> str | None:
    """A text, or a whole number as one; an empty text says nothing.

    >>> _text("a"), _text(7), _text(""), _text(True)
    ('a', '7', None, None)
    """
    if type(value) is int:
        return str(value)
    return value if type(value) is str and value else None


def _search(span: Span, names: Names) -> Search:
    query = next((text for name in names.query if (text := _text(span.attributes.get(name)))), None)
    documents, problem = _documents(span, names)
    if problem is not None:
        return Search(query, msgspec.json.encode(problem), problem)  # a text is no list of results
    results = [_result(span.span_id, rank, one, names) for rank, one in enumerate(documents, 1)]
    try:
        return Search(query, msgspec.json.encode(results))
    except RecursionError:
        problem = "a document holds too many levels of nested values"
        return Search(query, msgspec.json.encode(problem), problem)


def _documents(span: Span, names: Names) -> tuple[list[Any], str | None]:
    """The documents by rank, or why there are none to be had.

    An empty list leaves no trace in flattened form, so that a span without documents found none,
    unless it should have told them as a list, and did not fail.
    """
    for name in names.documents:
        value = span.attributes.get(name)
        if isinstance(value, str):
            value = _parsed(value)
            if not isinstance(value, list):
                return [], f"the attribute {name} is no JSON list of documents"
        if value is not None:
            if not isinstance(value, list):
                return [], f"the attribute {name} is no list of documents"
            return value, None
        flattened = _flattened(span.attributes, name + ".")
        if flattened:
            return flattened, None
    if not span.failed and any(name.startswith("gen_ai.") for name, _ in _kinds(span, names)):
        return [], NOT_RECORDED
    return [], None


def _kinds(span: Span, names: Names) -> Iterator[tuple[str, str]]:
    """By which attributes it is a retrieval."""
    return (pair for pair in names.retrievals if span.attributes.get(pair[0]) == pair[1])


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _flattened(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Documents of which each part is an attribute, in the order of their numbers.

    >>> _flattened({"d.1.document.id": "b", "d.0.document.id": "a", "d.x": 1}, "d.")
    [{'id': 'a'}, {'id': 'b'}]
    """
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        number, dot, part = name[len(prefix) :].partition(".")
        if dot and number.isdecimal() and number.isascii() and len(number) < 10:
            found.setdefault(int(number), {})[part.removeprefix("document.")] = value
    return [found[number] for number in sorted(found)]


def _result(span_id: str, rank: int, document: Any, names: Names) -> Any:
    """A document as a result; what is no document stays as it is, for the decoding to refuse."""
    if not isinstance(document, dict):
        return document
    parts = {name.removeprefix("document."): value for name, value in document.items()}
    metadata = parts.get("metadata")
    if isinstance(metadata, str):
        metadata = _parsed(metadata)
    said = {**(metadata if isinstance(metadata, dict) else {}), **parts}
    doc_id = parts.get("id")
    result = {
        "result_id": f"{span_id}/{rank}",
        "doc_id": str(doc_id) if type(doc_id) is int else doc_id or None,
        "url": _url(said),
        "title": _text(said.get("title")),
        "content": parts.get("content"),
        "score": parts.get("score"),
        "ids": {name: text for name in names.ids if (text := _text(said.get(name)))},
        "fields": {name: said[name] for name in names.fields if _is_scalar(said.get(name))},
    }
    return {name: value for name, value in result.items() if value not in (None, {})}


def _url(said: dict[str, Any]) -> str | None:
    """The address of a document: what says it is one, else a source that is one."""
    source = _text(said.get("source"))
    is_url = source is not None and source.startswith(("http://", "https://"))
    return _text(said.get("url")) or (source if is_url else None)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bool | int | float)
