"""A span as plain data, whichever encoding it came in."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

LONGEST_NAME: Final = 64
NO_ID: Final = "invalid"
"""What stands for the id of a parent that is given but is no id: no span has it."""


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened during a span."""

    name: str
    time_ns: int
    attributes: dict[str, Any]


class Link(msgspec.Struct, frozen=True):
    """Another span that a span names, perhaps of another trace."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True):
    """What is read of a span.

    Attributes:
        trace_id, span_id: Lower-case hexadecimal; empty if missing or of the wrong length.
        parent_id: The same; empty for a root, ``NO_ID`` for a parent whose id is malformed.
        start_ns, end_ns: Nanoseconds since 1970, bounded so that they fit 63 bits.
        failed: Whether the status is an error.
        attributes: The span's own; ``resource`` those of what sent it.
        name: What the instrumentation calls the span; ``kind`` is OTLP's number.
        scope, scope_version: The instrumentation that wrote it.
        dropped_attributes: How many the SDK left out, for its limit.
        links: Other spans that it names: an evaluator's names the span that was evaluated.
    """

    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    name: str = ""
    kind: int = 0
    scope: str = ""
    scope_version: str = ""
    events: tuple[SpanEvent, ...] = ()
    dropped_attributes: int = 0
    links: tuple[Link, ...] = ()

    def value(self, name: str) -> Any:
        """The span's attribute, else that of its first event that has it, else None."""
        if name in self.attributes:
            return self.attributes[name]
        for event in self.events:
            if name in event.attributes:
                return event.attributes[name]
        return None

    def text(self, *names: str) -> str | None:
        """The first of the attributes that is a text, or a whole number, and says something."""
        return next((found for name in names if (found := text(self.value(name)))), None)


def service_of(span: Span) -> str | None:
    """The service that sent the span; None if it has no name, or only an SDK's."""
    found = short(text(span.resource.get("service.name")))
    return None if found is None or found.startswith("unknown_service") else found


def short(name: str | None) -> str | None:
    """A name that events may have; None for one that is too long."""
    return name if name is not None and len(name) <= LONGEST_NAME else None


def text(value: Any) -> str | None:
    """A text, or a whole number as one; an empty or redacted text says nothing.

    >>> text("a"), text(7), text(" "), text(True), text("__REDACTED__"), text("***")
    ('a', '7', None, None, None, None)
    """
    if type(value) is int:
        return str(value)
    if type(value) is not str or _SAYS_NOTHING.fullmatch(value.strip()):
        return None
    return value


# Nothing, only punctuation, or what filters write in the place of a text.
_SAYS_NOTHING: Final = re.compile(
    r"[\W_]*|x{3,}|redacted|masked"
    r"|[\[<({*_]+[^\[\]<>]{0,40}(redact|mask|hidden|scrubb|anonymi|obfuscat|filtered|removed)"
    r"[^\[\]<>]{0,60}[\])>}*_]+",
    re.IGNORECASE,
)
