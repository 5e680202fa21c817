"""Interprets closed traces one after the other, and checks what they share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.events import Event, events
from stream_metrics.core.telemetry.interpretation import Interpretation, Turn, check_scopes
from stream_metrics.core.telemetry.mapping import SpanMapping
from stream_metrics.core.telemetry.options import Options

MAX_REMEMBERED_TURNS: Final = 100_000
MAX_REMEMBERED_SCOPES: Final = 1_000


class InterpretedTrace(NamedTuple):
    """The interpretation of a trace and its events; ``rejected`` are events that no worker accepts.

    ``conflicts`` counts turns whose number a remembered turn of another span has.
    """

    interpretation: Interpretation
    events: list[Event]
    rejected: list[BadRecord]
    conflicts: int


class TraceInterpreter:
    """Interprets traces; ``scopes`` are the pairs of service and scope of their searches."""

    def __init__(self, mapping: SpanMapping, options: Options, limits: Limits) -> None:
        self.scopes: frozenset[tuple[str, str]] = frozenset()
        self._mapping, self._options, self._limits = mapping, options, limits
        self._turns: OrderedDict[tuple[str, int], str] = OrderedDict()

    def add_scopes(self, scopes: Iterable[tuple[str, str]]) -> None:
        """Record scopes of earlier searches; raises ``ConflictingScopes``."""
        known = self.scopes.union(scopes)
        if not self._options.scopes:
            check_scopes(known)
        if len(known) <= MAX_REMEMBERED_SCOPES:
            self.scopes = known

    def interpret(self, closed: ClosedTrace) -> InterpretedTrace:
        """Interpret the trace; raises ``ConflictingScopes``."""
        interpretation = closed.interpret(self._mapping, self._options)
        self.add_scopes(interpretation.scopes)
        found, rejected = [], []
        for event in events(interpretation, self._options.content):
            read = decode(event.value, timestamp_ms=closed.timestamp_ms, limits=self._limits)
            if isinstance(read, BadRecord):
                rejected.append(read)
            else:
                found.append(event)
        conflicts = sum(
            self._conflicts(interpretation.trace_id, turn) for turn in interpretation.turns
        )
        return InterpretedTrace(interpretation, found, rejected, conflicts)

    def _conflicts(self, trace_id: str, turn: Turn) -> bool:
        """Whether another span has the turn's number; the first one is remembered."""
        span = f"{trace_id}:{turn.span_id}"
        other = self._turns.setdefault((turn.conversation, turn.number), span)
        if len(self._turns) > MAX_REMEMBERED_TURNS:
            self._turns.popitem(last=False)
        return other != span
