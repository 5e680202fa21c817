"""What a row of the table of shapes says, and the paths that it is written in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from stream_metrics.core.telemetry.spans import text

EACH: Final = "*"
_STEP: Final = re.compile(r'"(?P<quoted>[^"]+)"|(?P<key>[^.\[\]"]+)|\[(?P<number>\d+)\]')


@dataclass(frozen=True, slots=True)
class Shape:
    """One form in which a product returns results.

    Names in items are paths: ``content.text``, ``snippets[0].snippet``; the first that has a text
    counts. What a row does not name is read by the usual names.

    Attributes:
        source: The product, and where its form is described.
        items: Where the list is, in the object that is returned; ``*`` is any key.
        marks: Some item has one of these, or the list is none of this row.
        anywhere: What items have to have, all of it, to be of this row in whichever list.
        beside: What an object with an empty list has besides, or it is none of this row. Without
            any the place of the list is enough.
        always_beside: Whether that goes for any list, since the marks are common ones.
        aside: Other sections of the answer, whose lists are no part of it.
        inside: Objects in an item that have its fields, besides the item.
        id: The item's own id; None if what looks like one is a number of the result or request.
        document_id: The id of what the item is a part of, if it has none of its own.
        url, title, text: The item's address, title and text.
        scores: The item's score, distance or rank.
        without_list: What shows an empty search where the list itself is left out, with its value.
    """

    source: str
    items: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    anywhere: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    always_beside: bool = False
    aside: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    id: tuple[str, ...] | None = ()
    document_id: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    title: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    without_list: tuple[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Parallel:
    """A form that has a list for each field, all of one length, perhaps inside a list for each
    query."""

    source: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    metadata: tuple[str, ...]
    scores: tuple[str, ...]


@cache
def steps(path: str) -> tuple[str | int, ...]:
    """The keys and positions of a path.

    >>> steps('hits[0]."@search.score"')
    ('hits', 0, '@search.score')
    """
    return tuple(
        int(match["number"]) if match["number"] else match["quoted"] or match["key"]
        for match in _STEP.finditer(path)
    )


def values_at(value: Any, path: str) -> Iterator[Any]:
    """What a value has at a path; several values where the path has a ``*``."""
    found = [value]
    for step in steps(path):
        inner: list[Any] = []
        for one in found:
            if step == EACH:
                inner += one.values() if isinstance(one, dict) else one if type(one) is list else ()
            elif isinstance(step, int):
                inner += one[step : step + 1] if isinstance(one, list) else ()
            elif isinstance(one, dict) and step in one:
                inner.append(one[step])
        found = inner
    yield from found


def has(value: Any, paths: Sequence[str]) -> bool:
    """Whether the value has something at one of the paths.

    >>> has({"hits": {"total": 0}}, ("took", "hits.total")), has({"hits": None}, ("hits.total",))
    (True, False)
    """
    return any(one is not None for path in paths for one in values_at(value, path))


def text_at(value: Any, paths: Sequence[str]) -> tuple[str, str] | None:
    """The first text at one of the paths, and its path; of several values the lines of all."""
    for path in paths:
        parts: list[Any] = []
        for one in values_at(value, path):
            parts += one if isinstance(one, list) else (one,)
        texts = [found for part in parts if (found := text(part)) is not None]
        if texts:
            return "\n".join(texts), path
    return None
