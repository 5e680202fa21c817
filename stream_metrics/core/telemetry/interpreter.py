"""Interprets closed traces one after the other, and compares each with the traces before it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits, limit_of
from stream_metrics.core.telemetry.assembly import ClosedTrace
from stream_metrics.core.telemetry.events import Event, label_events, turn_events
from stream_metrics.core.telemetry.interpretation import Interpretation, Turn
from stream_metrics.core.telemetry.options import Options
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.roles.mapping import SpanMapping

MAX_REMEMBERED_TURNS: Final = 100_000


class CheckedEvents(NamedTuple):
    """The events of a trace, each with why it is rejected, and why the events of turns that are
    refused because of limits would be."""

    events: list[tuple[Event, BadRecord | None]]
    beyond_limits: list[BadRecord]


def checked_events(
    interpretation: Interpretation, limits: Limits, timestamp_ms: int | None, content: bool
) -> CheckedEvents:
    """The events of a trace, without those of turns of which one is beyond a limit.

    These turns are refused: without that event, their figures would be wrong.
    """

    def check(event: Event) -> BadRecord | None:
        read = decode(event.value, timestamp_ms=timestamp_ms, limits=limits)
        return read if isinstance(read, BadRecord) else None

    found: list[tuple[Event, BadRecord | None]] = []
    beyond: dict[str, BadRecord] = {}
    for turn in interpretation.turns:
        checked = [
            (event, check(event)) for event in turn_events(interpretation.trace_id, turn, content)
        ]
        for _, bad in checked:
            limit = None if bad is None else limit_of(bad.reason, bad.message)
            if bad is not None and limit is not None:
                message = f"an event of it is beyond a limit: {bad.message}"
                interpretation.refuse("too_large", turn.span_id, message, turn.agent, limit)
                beyond[turn.span_id] = bad
                break
        else:
            found += checked
    interpretation.drop_turns(beyond)
    of_labels = label_events(interpretation.trace_id, interpretation.labels)
    found += ((event, check(event)) for event in of_labels)
    return CheckedEvents(found, [*beyond.values()])


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
        checked, rejected = checked_events(
            interpretation, self._limits, closed.timestamp_ms, self._options.content
        )
        found = [event for event, bad in checked if bad is None]
        rejected += [bad for _, bad in checked if bad is not None]
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
