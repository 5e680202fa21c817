"""Attributes that say what a span is, such as ``openinference.span.kind``: what may have been lost.

Rows tell spans by the values of such attributes. A value that no row names gives a span no role, so
that a search may be missed. This module says of which values that is likely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, Final

from stream_metrics.telemetry.spans import Span, text

SEARCHING: Final = re.compile(
    r"(?<![a-z])search|Search|[Rr]etriev|(?<![a-z])look(s|ing)?[ _]?up|[Kk]nowledge"
    r"|(?<![a-z])(kb|rag|faq|wiki(pedia)?|handbook|docs|documents|documentation|passages|corpus"
    r"|articles|tavily|duckduckgo)(?![a-z])"
)
"""In names of spans and tools, what says that these search."""

_BEGINS_JSON: Final = re.compile(
    r"""\{\s*(["'}<\d-]|$)|\[\s*([\[{("'<\]\d-]|\w*(\(|$)|(null|true|false|none|nan|inf)\b)""",
    re.IGNORECASE,
)
_KIND: Final = re.compile(r"(kind|type|operation\.name)$", re.IGNORECASE)
_SEARCHES: Final = re.compile(r"(?<!re)search|retriev|rank|look_?up|knowledge|quer(y|ies)")

Doubt = tuple[str, str]
"""Why it is uncertain what a span is: reason and message."""


def plain(value: str) -> str:
    """A value as rows compare it: without regard to case, or to the quotes that JSON has.

    >>> plain('"RETRIEVER"')
    'retriever'
    """
    return value.strip('"').casefold()


class Kinds:
    """The values that are known.

    ``values`` are the attributes and values that a row or a convention knows, each with whether the
    row names documents. ``holders`` are the attributes in whose JSON something is looked up.
    """

    def __init__(self, values: Iterable[tuple[str, str, bool]], holders: Iterable[str]) -> None:
        self._known: dict[str, dict[str, bool]] = {}
        self._patterns: dict[str, list[str]] = {}
        self._holders = tuple(sorted(set(holders)))
        for name, value, names_documents in values:
            if "*" in value or "?" in value:
                if not _KIND.search(name):
                    continue
                self._patterns.setdefault(name, []).append(plain(value))
            elif value:
                known = self._known.setdefault(name, {})
                known[plain(value)] = known.get(plain(value), False) or names_documents

    def lost(self, span: Span, limit: int | None, longest: Callable[[Span], int]) -> str | None:
        """What a limit of the length of texts cut off; None if that does not show.

        Args:
            span: The span to look at.
            limit: At which length texts of the trace were cut off for certain; None if at none.
            longest: How long the longest text is that the process of a span wrote.
        """
        for name, known in self._known.items():
            value = span.attributes.get(name)
            if not isinstance(value, str) or plain(value) in known:
                continue
            whole = _begun(value, known)
            if whole is not None and longest(span) <= len(value):
                return f"{name} is {value!r}, the beginning of {whole!r}"
        for name, patterns in self._patterns.items():
            value = span.attributes.get(name)
            if isinstance(value, str) and len(value) == limit and not _fits(value, patterns):
                return f"{name} is {value!r}, as long as the longest text"
        return None

    def cut_holder(self, span: Span) -> str | None:
        """The attribute in whose JSON something is looked up, and which was cut off."""
        for name in self._holders:
            value = span.attributes.get(name)
            if isinstance(value, str) and is_cut(value):
                return name
        return None

    def unknown(self, span: Span) -> str | None:
        """What of a span without a role says that it is a search nevertheless; None if nothing."""
        for name, known in self._known.items():
            value = span.attributes.get(name)
            if value is None or not _KIND.search(name):
                continue
            if not isinstance(value, str) or text(value) is None:
                return f"{name} is no text that says what it is"
            found = plain(value)
            if found in known:
                continue
            beginning = found.rstrip(".…")
            begins = any(one.startswith(beginning) for one, names in known.items() if names)
            if begins or _SEARCHES.search(found):
                return f"no row knows {name} = {value[:100]!r}"
        return None

    def is_new(self, span: Span) -> bool:
        """Whether the span has a kind, and none that is known."""
        found = [
            plain(value) in known
            for name, known in self._known.items()
            if isinstance(value := span.attributes.get(name), str) and _KIND.search(name)
        ]
        return bool(found) and not any(found)

    def called(self, span: Span) -> str:
        """The span's name, and the kinds that programs give themselves."""
        values = (span.attributes.get(name) for name in self._patterns)
        return " ".join((span.name, *(one for one in values if isinstance(one, str))))


def is_cut(value: str) -> bool:
    """Whether the text is JSON, or Python's notation of the same, whose end is missing.

    >>> is_cut('{"thread_id": "t-1"'), is_cut('{"thread_id": "t-1"}'), is_cut("{}, they said")
    (True, False, True)
    >>> is_cut("[prod] Europe"), is_cut("{name}: text"), is_cut("[Document(id="), is_cut("[Docu")
    (False, False, True, True)
    """
    start, end = value[:1], value.rstrip()[-1:]
    is_open = (start == "{" and end != "}") or (start == "[" and end != "]")
    return is_open and _BEGINS_JSON.match(value) is not None


def _begun(value: str, known: Iterable[str]) -> str | None:
    """The known value of which this one is no more than the beginning, perhaps with dots behind."""
    beginning = plain(value).rstrip(".…")
    return next((one for one in known if beginning and one.startswith(beginning)), None)


def _fits(value: str, patterns: Iterable[str]) -> bool:
    return any(one != "*" and fnmatchcase(plain(value), one) for one in patterns)


def says(value: Any) -> bool:
    """Whether a name or description says that something searches."""
    return isinstance(value, str) and SEARCHING.search(value) is not None
