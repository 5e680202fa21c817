"""Rows of the settings: how the results of a tool are read, and which tools search."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import jmespath
from jmespath.exceptions import JMESPathError

from stream_metrics.core.telemetry.contents.documents import Document, usual_document
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.shapes.reading import (
    Reading,
    Unread,
    as_alone,
    innermost,
    plain_text,
    read_items,
)
from stream_metrics.core.telemetry.shapes.texts import block, without_numbers
from stream_metrics.core.telemetry.spans import Span, text

TOOL_NAMES: Final = (
    "gen_ai.tool.name",
    "tool.name",
    "ai.toolCall.name",
    "haystack.tool.name",
    "mcp.tool.name",
    "spring.ai.tool.definition.name",
    "traceloop.entity.name",
)
_RUN: Final = re.compile(
    r"^(execute_tool|tools/call|running tool:?|tool:?|ai\.toolCall)\s+|\.(run|tool|call)$"
)
WHOLE: Final = "whole"
Kind = Literal["search", "other"]


def tool_name(span: Span) -> str:
    """The name of the tool that ran."""
    return span.text(*TOOL_NAMES) or _RUN.sub("", span.name)


@dataclass(frozen=True, slots=True)
class UserShape:
    """A row of ``otlp.shapes``; the paths are JMESPath, those of fields in an item.

    Attributes:
        tool: A pattern for the names of the tools whose results it reads.
        items: The list of results; None if the result is a text.
        id, url, title, text, score: The fields of a result; None for the usual names.
        split: The text between the passages of a result that is a text; ``whole`` if the text is
            one passage.
        empty: Texts that say that nothing was found.
    """

    tool: str = "*"
    items: str | None = None
    id: str | None = None
    url: str | None = None
    title: str | None = None
    text: str | None = None
    score: str | None = None
    split: str | None = None
    empty: tuple[str, ...] = ()

    def read(self, value: Any) -> Reading | Unread | None:
        """The results in a value; None if it is not of this row, which has texts that say nothing
        was found only."""
        written = plain_text(value)
        if written is not None and written.strip() in self.empty:
            return Reading((), self.source)
        if self.split is not None and written is not None:
            parts = [written] if self.split == WHOLE else written.split(self.split)
            parts = without_numbers([part.strip() for part in parts])
            found = [one for part in parts if (one := block(part)) is not None]
            return Reading(tuple(map(as_alone, found)), self.source)
        if self.items is None:
            return None
        listed = _search(self.items, _parsed(value))
        if listed is None:
            listed = _search(self.items, innermost(value))
        if not isinstance(listed, list):
            return Unread("unrecognised", f"{self.source} finds no list at {self.items!r}")
        named = any((self.id, self.url, self.title, self.text, self.score))
        documents = (None if named else read_items(listed, self.items)) or [
            *map(self._document, listed)
        ]
        scored = self.score is not None and bool(documents)
        return Reading(tuple(map(as_alone, documents)), self.source, scored=scored)

    @property
    def source(self) -> str:
        """How the row is named to people."""
        return f"the row of otlp.shapes for {self.tool}"

    def _document(self, item: Any) -> Document:
        usual = usual_document(item) if isinstance(item, dict) else Document(text=text(item))
        id, url = _text(self.id, item), _text(self.url, item)
        score: Any = usual.score if self.score is None else _search(self.score, item)
        return Document(
            id if self.id is not None else usual.id,
            url if self.url is not None else usual.url,
            usual.page,
            _text(self.title, item) if self.title is not None else usual.title,
            _text(self.text, item) if self.text is not None else usual.text,
            float(score) if type(score) in (int, float) else None,
            usual.fields,
            "id" if id is not None else usual.id_name,
        )


def _parsed(value: Any) -> Any:
    inner = parse_value(value.strip()) if isinstance(value, str) else value
    return value if inner is None else inner


def _search(path: str, value: Any) -> Any:
    try:
        return jmespath.search(path, value)
    except (JMESPathError, RecursionError):
        return None  # such as a function of a value of another type


def _text(path: str | None, item: Any) -> str | None:
    return None if path is None else text(_search(path, item))


def problem_of_path(path: str) -> str | None:
    """Why the text is no path of JMESPath; None if it is one.

    >>> problem_of_path("payload.rows[*]") is None, problem_of_path("rows[") is None
    (True, False)
    """
    try:
        jmespath.compile(path)
    except JMESPathError as error:
        return str(error).splitlines()[0]
    return None


@dataclass(frozen=True, slots=True)
class ToolRows:
    """The rows of the settings about tools, by patterns of their names."""

    shapes: tuple[UserShape, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)

    def shapes_of(self, tool: str) -> Iterable[UserShape]:
        """The rows that read results of the tool, in their order."""
        return (row for row in self.shapes if fnmatchcase(tool, row.tool))

    def kind_of(self, tool: str) -> Kind | None:
        """Whether the tool searches, as the settings say; None if they do not say it."""
        exact = self.kinds.get(tool)
        if exact is not None:
            return exact
        return next((kind for name, kind in self.kinds.items() if fnmatchcase(tool, name)), None)
