"""The spans of one trace as a tree, with the role of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from stream_metrics.core.telemetry.roles.mapping import Role, Row, SpanMapping
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from stream_metrics.core.telemetry.spans import NO_ID, Span

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


def deduplicate(spans: Iterable[Span]) -> list[Span]:
    """One span for each span id: the preferred one."""
    by_id: dict[str, Span] = {}
    for span in spans:
        kept = by_id.get(span.span_id)
        by_id[span.span_id] = span if kept is None else preferred(kept, span)
    return list(by_id.values())


def preferred(kept: Span, span: Span) -> Span:
    """Of two spans with the same id, the one that ended last; a digest breaks ties."""
    if span != kept and (span.end_ns, _digest(span)) > (kept.end_ns, _digest(kept)):
        return span
    return kept


def _digest(span: Span) -> bytes:
    try:
        content = msgspec.msgpack.encode(span, order="deterministic")
    except (OverflowError, RecursionError, TypeError, UnicodeEncodeError, ValueError):
        content = b""  # spans that cannot be encoded are equivalent
    return hashlib.blake2b(content, digest_size=16).digest()


def kind_of(span: Span) -> str:
    """The kind of a span for display: its scope, and the attribute that names its kind."""
    value = next(
        (f"{name}={span.attributes[name]}" for name in _PRODUCTS if name in span.attributes),
        span.name,
    )
    return f"{span.scope or 'no scope'}: {value}"[:200]


class SpanTree:
    """The spans of a trace with their parents and roles.

    Attributes:
        ordered: The spans from the roots downwards, level by level.
        depth: The number of levels.
        orphans: Spans whose parent is missing.
        in_cycles: Spans that are their own ancestors, or descendants of such spans.
        ignored: The ids of spans left out, and of the descendants of evaluators.
        left_out: The spans of scopes that are not to be used.
        rows: The row of each span that has one, by span id.
        coarse: The ids of spans with times in whole milliseconds.
        told: What messages tell of the results of tools in other words, by span id.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        mapping: SpanMapping,
        scopes: ScopeChoice,
        coarse: frozenset[str] = frozenset(),
    ) -> None:
        self.coarse = coarse
        self.told: dict[str, Any] = {}
        self.by_id = {span.span_id: span for span in spans}
        self.orphans: list[Span] = []
        inside: dict[str, list[Span]] = {}
        roots: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.start_ns, span.span_id)):
            if not span.parent_id:
                roots.append(span)
            elif span.parent_id in self.by_id:
                inside.setdefault(span.parent_id, []).append(span)
            else:
                self.orphans.append(span)
        self.ordered: list[Span] = []
        self.depth = 0
        wave = [*roots, *self.orphans]
        while wave:
            self.depth += 1
            self.ordered += wave
            wave = [inner for span in wave for inner in inside.get(span.span_id, ())]
        reached = {span.span_id for span in self.ordered}
        self.in_cycles = [span for span in self.by_id.values() if span.span_id not in reached]
        self.rows: dict[str, Row] = {}
        self.ignored: set[str] = set()
        self.left_out: list[Span] = []
        in_evaluators: set[str] = set()
        for span in self.ordered:
            row = mapping.row(span, inside.get(span.span_id, ()))
            if scopes.leaves_out(span):
                self.ignored.add(span.span_id)
                self.left_out.append(span)
            elif span.parent_id in in_evaluators:
                in_evaluators.add(span.span_id)
                self.ignored.add(span.span_id)
            elif row is not None:
                self.rows[span.span_id] = row
                if row.role is Role.EVALUATOR:
                    in_evaluators.add(span.span_id)
        self._in_turns = self.nearest_ancestor(Role.TURN)
        self._longest: dict[str, int] = {}

    def role(self, span: Span) -> Role | None:
        """The role of the span; None if no row matches it."""
        row = self.rows.get(span.span_id)
        return row.role if row else None

    def role_is_uncertain(self, span: Span) -> bool:
        """Whether dropped attributes may have named another role."""
        if not span.dropped_attributes or span.span_id in self.ignored:
            return False
        if "openinference.span.kind" in span.attributes:
            return False
        role = self.role(span)
        return role in (None, Role.OTHER) or (role is Role.TURN and span.span_id in self._in_turns)

    def longest_text(self, span: Span) -> int:
        """The length of the longest attribute text that the span's process wrote."""
        if not self._longest:
            for member in self.ordered:
                lengths = (len(x) for x in member.attributes.values() if isinstance(x, str))
                process = repr(member.resource)
                self._longest[process] = max(self._longest.get(process, 0), *lengths, 0)
        return self._longest[repr(span.resource)]

    def with_role(self, *roles: Role) -> list[Span]:
        """The spans with one of these roles, from the roots downwards."""
        return [span for span in self.ordered if self.role(span) in roles]

    def parent(self, span: Span) -> Span | None:
        """The parent of the span; None for a root or an orphan."""
        return None if span.parent_id == NO_ID else self.by_id.get(span.parent_id)

    def nearest_ancestor(self, *roles: Role) -> dict[str, str]:
        """For each span, the id of the nearest ancestor with one of these roles, if it has one."""
        nearest: dict[str, str] = {}
        for span in self.ordered:
            outer = self.parent(span)
            if outer is None:
                continue
            if self.role(outer) in roles:
                nearest[span.span_id] = outer.span_id
            elif outer.span_id in nearest:
                nearest[span.span_id] = nearest[outer.span_id]
        return nearest

    def inherited_in_turn(self, value_of: Callable[[Span], str | None]) -> dict[str, str | None]:
        """The value of each span, or else of the nearest ancestor up to its turn."""
        values: dict[str, str | None] = {}
        for span in self.ordered:
            value = value_of(span)
            if value is None and self.role(span) is not Role.TURN:
                value = values.get(span.parent_id)
            values[span.span_id] = value
        return values

    def outermost(self, marks: Iterable[str]) -> dict[str, str]:
        """For each span that is marked or has a marked ancestor, the outermost marked span."""
        marks = set(marks)
        outermost: dict[str, str] = {}
        for span in self.ordered:
            outer = outermost.get(span.parent_id)
            if outer is not None:
                outermost[span.span_id] = outer
            elif span.span_id in marks:
                outermost[span.span_id] = span.span_id
        return outermost

    @cached_property
    def around_models(self) -> set[str]:
        """The ids of all ancestors of model calls and turns."""
        return self.ancestors(span.span_id for span in self.with_role(Role.MODEL, Role.TURN))

    def ancestors(self, marks: Iterable[str]) -> set[str]:
        """The ids of all ancestors of the marked spans."""
        ancestors: set[str] = set()
        for id in marks:
            span = self.by_id.get(id)
            while span is not None and span.parent_id not in ancestors:
                ancestors.add(span.parent_id)
                span = self.parent(span)
        return ancestors
