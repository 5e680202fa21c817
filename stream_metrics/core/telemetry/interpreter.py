"""Interprets closed traces one after the other, and compares each with the traces before it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.events import Event, events
from stream_metrics.core.telemetry.interpretation import Interpretation, Turn
from stream_metrics.core.telemetry.options import Options
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.roles.mapping import SpanMapping

MAX_REMEMBERED_TURNS: Final = 100_000


class InterpretedTrace(NamedTuple):
    """The interpretation of a trace and its events; ``rejected`` are events that no worker accepts.

    ``conflicts`` counts turns whose number a remembered turn of another span has, ``forgotten``
    the searches that were forgotten before a second recording of them could come.
    """

    interpretation: Interpretation
    events: list[Event]
    rejected: list[BadRecord]
    conflicts: int
    forgotten: int = 0


class TraceInterpreter:
    """Interprets traces in the order in which they are closed."""

    def __init__(self, mapping: SpanMapping, options: Options, limits: Limits) -> None:
        self._mapping, self._options, self._limits = mapping, options, limits
        self._recordings = Recordings()
        self._turns: OrderedDict[tuple[str, int], str] = OrderedDict()

    def interpret(self, closed: ClosedTrace) -> InterpretedTrace:
        """Interpret the trace."""
        interpretation = closed.interpret(self._mapping, self._options)
        forgotten = self._recordings.forgotten_soon
        self._recordings.refuse_repeated(interpretation)
        forgotten = self._recordings.forgotten_soon - forgotten
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
        return InterpretedTrace(interpretation, found, rejected, conflicts, forgotten)

    def _conflicts(self, trace_id: str, turn: Turn) -> bool:
        """Whether another span has the turn's number; the first one is remembered."""
        span = f"{trace_id}:{turn.span_id}"
        other = self._turns.setdefault((turn.conversation, turn.number), span)
        if len(self._turns) > MAX_REMEMBERED_TURNS:
            self._turns.popitem(last=False)
        return other != span
