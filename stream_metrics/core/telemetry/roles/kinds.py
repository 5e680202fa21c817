"""Detects searches that the rows miss, by attributes such as ``openinference.span.kind``.

Rows match spans by the values of such attributes. A span with a value that no row names has no
role, so a search may be missed. This module decides for which values that is likely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Final

from stream_metrics.core.telemetry.spans import Span, text

SEARCHING: Final = re.compile(
    r"(?<![a-z])search|Search|[Rr]etriev|(?<![a-z])look(s|ing)?[ _]?up|[Kk]nowledge"
    r"|(?<![a-z])(kb|rag|faq|wiki(pedia)?|handbook|docs|documents|documentation|passages|corpus"
    r"|articles|tavily|duckduckgo)(?![a-z])"
)
"""Matches names of spans and tools that suggest a search."""

_OF_AGENTS: Final = re.compile(
    r"(final_answer|final_result|finish|exit_loop|escalate|think|set_model_response|write_todos"
    r"|\(merged tools\)|attempt_completion|transfer_(back_)?to_\w+|handoff(_to_\w+| to .+)?"
    r"|hand_?off_to_.+|delegate_to_\w+)$",
    re.IGNORECASE,
)
"""Tools that frameworks give to agents, and that return nothing from outside."""

_BEGINS_JSON: Final = re.compile(
    r"""\{\s*(["'}<\d-]|$)|\[(?!\d{1,4}\].)\s*([\[{("'<\]\d-]|\w*(\(|$)|(null|true|false|none|nan|inf)\b)""",
    re.IGNORECASE,
)
_KIND: Final = re.compile(r"(kind|type|operation\.name)$", re.IGNORECASE)
_SEARCHES: Final = re.compile(r"(?<!re)search|retriev|rank|look_?up|knowledge|quer(y|ies)")


def normalized(value: str) -> str:
    """A value as rows compare it: in lower case and without JSON's quotes.

    >>> normalized('"RETRIEVER"')
    'retriever'
    """
    return value.strip('"').casefold()


class SpanKinds:
    """The known values of attributes that name the kind of a span.

    ``values`` are the attributes and values that a row or convention knows, each with whether the
    row names documents. ``holders`` are the attributes in whose JSON keys are looked up.
    """

    def __init__(self, values: Iterable[tuple[str, str, bool]], holders: Iterable[str]) -> None:
        self._known: dict[str, dict[str, bool]] = {}
        self._patterns: dict[str, list[str]] = {}
        self._holders = tuple(sorted(set(holders)))
        for name, value, names_documents in values:
            if "*" in value or "?" in value:
                if not _KIND.search(name):
                    continue
                self._patterns.setdefault(name, []).append(normalized(value))
            elif value:
                known = self._known.setdefault(name, {})
                known[normalized(value)] = known.get(normalized(value), False) or names_documents

    def truncation(
        self, span: Span, limit: int | None, longest: Callable[[Span], int]
    ) -> str | None:
        """How a text-length limit may have cut off the kind of the span; None if nothing shows it.

        Args:
            span: The span to check.
            limit: The length at which the trace's texts were certainly cut off; None if they were
                not.
            longest: Returns the length of the longest text that the process of a span wrote.
        """
        for name, known in self._known.items():
            value = span.attributes.get(name)
            if not isinstance(value, str) or normalized(value) in known:
                continue
            whole = _begun(value, known)
            if whole is not None and longest(span) <= len(value):
                return f"{name} is {value!r}, the beginning of {whole!r}"
        for name, patterns in self._patterns.items():
            value = span.attributes.get(name)
            if isinstance(value, str) and len(value) == limit and not _fits(value, patterns):
                return f"{name} is {value!r}, as long as the longest text"
        return None

    def truncated_attribute(self, span: Span) -> str | None:
        """The attribute in whose JSON a key is looked up and which was cut off; None if there is
        none."""
        for name in self._holders:
            value = span.attributes.get(name)
            if isinstance(value, str) and is_truncated_json(value):
                return name
        return None

    def unknown_search_kind(self, span: Span) -> str | None:
        """Why a span without a role may still be a search; None if nothing suggests it."""
        for name, known in self._known.items():
            value = span.attributes.get(name)
            if value is None or not _KIND.search(name):
                continue
            if not isinstance(value, str) or text(value) is None:
                return f"{name} is no text that names a kind"
            found = normalized(value)
            if found in known:
                continue
            beginning = found.rstrip(".…")
            begins = any(one.startswith(beginning) for one, names in known.items() if names)
            if begins or _SEARCHES.search(found):
                return f"no row matches {name} = {value[:100]!r}"
        return None

    def is_unknown(self, span: Span) -> bool:
        """Whether the span names its kind, and no value of it is known."""
        found = [
            normalized(value) in known
            for name, known in self._known.items()
            if isinstance(value := span.attributes.get(name), str) and _KIND.search(name)
        ]
        return bool(found) and not any(found)

    def names_of(self, span: Span) -> str:
        """The span's name, followed by kinds that programs choose themselves."""
        values = (span.attributes.get(name) for name in self._patterns)
        return " ".join((span.name, *(one for one in values if isinstance(one, str))))


def is_truncated_json(value: str) -> bool:
    """Whether the text is JSON, or a Python literal, without its end.

    >>> cut = ('{"thread_id": "t-1"', "{}, they said", "[Document(id=", "[Docu")
    >>> [is_truncated_json(value) for value in cut]
    [True, True, True, True]
    >>> whole = ('{"thread_id": "t-1"}', "[prod] Europe", "{name}: text", "[1] A chain wears.")
    >>> [is_truncated_json(value) for value in whole]
    [False, False, False, False]
    """
    start, end = value[:1], value.rstrip()[-1:]
    is_open = (start == "{" and end != "}") or (start == "[" and end != "]")
    return is_open and _BEGINS_JSON.match(value) is not None


def _begun(value: str, known: Iterable[str]) -> str | None:
    """The known value that begins with this one, which may end in dots; None if there is none."""
    beginning = normalized(value).rstrip(".…")
    return next((one for one in known if beginning and one.startswith(beginning)), None)


def _fits(value: str, patterns: Iterable[str]) -> bool:
    return any(one != "*" and fnmatchcase(normalized(value), one) for one in patterns)


def suggests_search(value: Any) -> bool:
    """Whether a name or description suggests a search."""
    return isinstance(value, str) and SEARCHING.search(value) is not None


def is_of_agents(name: str) -> bool:
    """Whether a tool of this name is one that frameworks give to agents.

    >>> is_of_agents("transfer_to_billing"), is_of_agents("search_docs")
    (True, False)
    """
    return _OF_AGENTS.match(name) is not None
