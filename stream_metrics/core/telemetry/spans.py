"""A span as plain data, independent of its encoding."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

MAX_NAME_LENGTH: Final = 64
MIN_TEXT_LENGTH: Final = 8
"""The length from which a text in a name is certainly what the user wrote."""
NO_ID: Final = "invalid"
"""The parent id of a span whose parent id is malformed. No span has this id."""


class SpanEvent(msgspec.Struct, frozen=True):
    """An event of a span."""

    name: str
    time_ns: int
    attributes: dict[str, Any]


class Link(msgspec.Struct, frozen=True):
    """A link from a span to another span, possibly of another trace."""

    trace_id: str
    span_id: str


class Span(msgspec.Struct, frozen=True):
    """The parts of a span that are used.

    Attributes:
        trace_id, span_id: Lower-case hexadecimal; empty if missing or of the wrong length.
        parent_id: The same; empty for a root, ``NO_ID`` for a malformed parent id.
        start_ns, end_ns: Nanoseconds since 1970, clamped to 63 bits.
        failed: Whether the status is an error.
        attributes, resource: The attributes of the span, and of the resource that sent it.
        name: The span's name.
        kind: The number of OTLP's span kind.
        scope, scope_version: The instrumentation scope.
        dropped_attributes: The number of attributes that the SDK dropped because of its limit.
        links: Other spans: an evaluator links to the span that it evaluated.
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
        """The span's attribute, else that of the first of its events that has it, else None."""
        if name in self.attributes:
            return self.attributes[name]
        for event in self.events:
            if name in event.attributes:
                return event.attributes[name]
        return None

    def text(self, *names: str) -> str | None:
        """The first of the attributes that is a non-empty text or an integer; None if there is
        none."""
        return next((found for name in names if (found := text(self.value(name)))), None)


def service_of(span: Span) -> str | None:
    """The ``service.name`` of the span's resource; None if it is missing or an SDK's default."""
    found = short(text(span.resource.get("service.name")))
    return None if found is None or found.startswith("unknown_service") else found


def short(name: str | None) -> str | None:
    """The name, or None if it is too long for an event."""
    return name if name is not None and len(name) <= MAX_NAME_LENGTH else None


def has_text(name: str, asked: str | None) -> bool:
    """Whether a name contains what the user asked, or is a part of it.

    >>> has_text("desk.Where is my order?.run", "Where is my order?"), has_text("desk", "desk?")
    (True, False)
    """
    if asked is None or len(asked) < MIN_TEXT_LENGTH:
        return False
    return asked in name or (len(name) >= 2 * MIN_TEXT_LENGTH and name in asked)


def text(value: Any) -> str | None:
    """The value as text if it is a text or an integer; None if it is empty or redacted.

    >>> text("a"), text(7), text(" "), text(True), text("__REDACTED__"), text("***")
    ('a', '7', None, None, None, None)
    """
    if type(value) is int:
        return str(value)
    if type(value) is not str or _EMPTY_OR_REDACTED.fullmatch(value.strip()):
        return None
    return value


# Empty, only punctuation, or what redaction filters write instead of a text. Its parts are bounded,
# because a long row of brackets or underscores would otherwise be tried at each of them.
_EMPTY_OR_REDACTED: Final = re.compile(
    r"[\W_]*|x{3,}|redacted|masked"
    r"|[\[<({*_]{1,40}+[^\[\]<>]{0,40}(redact|mask|hidden|scrubb|anonymi|obfuscat|filtered|removed)"
    r"[^\[\]<>]{0,60}[\])>}*_]{1,40}",
    re.IGNORECASE,
)
