"""The spans of one trace: which is inside which, and what each is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from stream_metrics.telemetry.mapping import Mapping, Role, Row
from stream_metrics.telemetry.spans import NO_ID, Span

_PRODUCTS: Final = (
    "openinference.span.kind",
    "langfuse.observation.type",
    "mlflow.spanType",
    "langsmith.span.kind",
    "gen_ai.operation.name",
    "gen_ai.span.kind",
    "traceloop.span.kind",
    "db.system.name",
    "db.system",
)


def unrepeated(spans: Iterable[Span]) -> list[Span]:
    """Of spans with the same id the one that is preferred."""
    found: dict[str, Span] = {}
    for span in spans:
        held = found.get(span.span_id)
        found[span.span_id] = span if held is None else preferred(held, span)
    return list(found.values())


def preferred(held: Span, span: Span) -> Span:
    """Of two spans with the same id the one that ended last, or else one by its content."""
    if span != held and (span.end_ns, _digest(span)) > (held.end_ns, _digest(held)):
        return span
    return held


def _digest(span: Span) -> bytes:
    try:
        content = msgspec.msgpack.encode(span, order="deterministic")
    except (OverflowError, RecursionError, TypeError, UnicodeEncodeError, ValueError):
        content = b""  # such spans are alike to whoever reads them
    return hashlib.blake2b(content, digest_size=16).digest()


def kind(span: Span) -> str:
    """What a person would call the kind of a span: its scope and the attribute that says it."""
    said = next(
        (f"{name}={span.attributes[name]}" for name in _PRODUCTS if name in span.attributes),
        span.name,
    )
    return f"{span.scope or 'no scope'}: {said}"[:200]


class Tree:
    """Spans from the outside inwards, with parents and roles.

    Of no two spans of ``spans`` the ids are equal. ``missing`` are the spans whose parent is not
    there, ``circular`` those that are inside of themselves, or of such. ``depth`` is how many spans
    are inside of each other at most, ``ignored`` are those of other scopes, and what evaluators do
    inside of themselves.
    """

    def __init__(self, spans: Sequence[Span], mapping: Mapping, scopes: frozenset[str]) -> None:
        self.by_id = {span.span_id: span for span in spans}
        self.missing: list[Span] = []
        inside: dict[str, list[Span]] = {}
        roots: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.start_ns, span.span_id)):
            if not span.parent_id:
                roots.append(span)
            elif span.parent_id in self.by_id:
                inside.setdefault(span.parent_id, []).append(span)
            else:
                self.missing.append(span)
        self.ordered: list[Span] = []
        self.depth = 0
        wave = [*roots, *self.missing]
        while wave:
            self.depth += 1
            self.ordered += wave
            wave = [inner for span in wave for inner in inside.get(span.span_id, ())]
        reached = {span.span_id for span in self.ordered}
        self.circular = [span for span in self.by_id.values() if span.span_id not in reached]
        self.rows: dict[str, Row] = {}
        self.ignored: set[str] = set()
        judged: set[str] = set()
        for span in self.ordered:
            row = mapping.row(span, inside.get(span.span_id, ()))
            if scopes and span.scope not in scopes:
                self.ignored.add(span.span_id)
            elif span.parent_id in judged:
                judged.add(span.span_id)
                self.ignored.add(span.span_id)
            elif row is not None:
                self.rows[span.span_id] = row
                if row.role is Role.EVALUATOR:
                    judged.add(span.span_id)
        self._in_turns = self.nearest(Role.TURN)
        self._longest: dict[str, int] = {}

    def role(self, span: Span) -> Role | None:
        """What the span is; None where no row knows it."""
        row = self.rows.get(span.span_id)
        return row.role if row else None

    def unsure(self, span: Span) -> bool:
        """Whether the attributes that were dropped may have said what the span is."""
        if not span.dropped_attributes or span.span_id in self.ignored:
            return False
        if "openinference.span.kind" in span.attributes:
            return False
        role = self.role(span)
        return role in (None, Role.OTHER) or (role is Role.TURN and span.span_id in self._in_turns)

    def longest_text(self, span: Span) -> int:
        """How long the longest text is in attributes that the span's process wrote."""
        if not self._longest:
            for one in self.ordered:
                lengths = (len(x) for x in one.attributes.values() if isinstance(x, str))
                process = repr(one.resource)
                self._longest[process] = max(self._longest.get(process, 0), *lengths, 0)
        return self._longest[repr(span.resource)]

    def of(self, *roles: Role) -> list[Span]:
        """The spans with one of these roles, from the outside inwards."""
        return [span for span in self.ordered if self.role(span) in roles]

    def parent(self, span: Span) -> Span | None:
        """The span that this is inside of."""
        return None if span.parent_id == NO_ID else self.by_id.get(span.parent_id)

    def nearest(self, *roles: Role) -> dict[str, str]:
        """Of each span the innermost span around it with one of these roles, where there is one."""
        found: dict[str, str] = {}
        for span in self.ordered:
            outer = self.parent(span)
            if outer is None:
                continue
            if self.role(outer) in roles:
                found[span.span_id] = outer.span_id
            elif outer.span_id in found:
                found[span.span_id] = found[outer.span_id]
        return found

    def within_turn(self, says: Callable[[Span], str | None]) -> dict[str, str | None]:
        """What each span says, else the nearest span around it, up to that of its turn."""
        found: dict[str, str | None] = {}
        for span in self.ordered:
            said = says(span)
            if said is None and self.role(span) is not Role.TURN:
                said = found.get(span.parent_id)
            found[span.span_id] = said
        return found

    def marked(self, marks: Iterable[str]) -> dict[str, str]:
        """Of each span the outermost of these spans that it is, or is inside of."""
        marks = set(marks)
        found: dict[str, str] = {}
        for span in self.ordered:
            outer = found.get(span.parent_id)
            if outer is not None:
                found[span.span_id] = outer
            elif span.span_id in marks:
                found[span.span_id] = span.span_id
        return found

    def around(self, marks: Iterable[str]) -> set[str]:
        """The spans that have one of these inside of them."""
        found: set[str] = set()
        marks = set(marks)
        for span in reversed(self.ordered):
            if span.span_id in marks or span.span_id in found:
                found.add(span.parent_id)
        return found
