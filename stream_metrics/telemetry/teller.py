"""Telling closed traces one after the other, with an eye on what they have in common."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from stream_metrics.events.decode import BadRecord, decode
from stream_metrics.events.limits import Limits
from stream_metrics.telemetry.assembly import Closed
from stream_metrics.telemetry.events import Event, events
from stream_metrics.telemetry.mapping import Mapping
from stream_metrics.telemetry.options import Options
from stream_metrics.telemetry.told import Told, Turn, check_scopes

KNOWN_TURNS: Final = 100_000
KNOWN_SCOPES: Final = 1_000


class Telling(NamedTuple):
    """What a trace tells, as events; ``rejected`` are those that no worker would accept.

    ``conflicts`` counts turns whose number another span has, as far as that is remembered.
    """

    told: Told
    events: list[Event]
    rejected: list[BadRecord]
    conflicts: int


class Teller:
    """Tells traces; ``scopes`` are the pairs of service and instrumentation of their searches."""

    def __init__(self, mapping: Mapping, options: Options, limits: Limits) -> None:
        self.scopes: frozenset[tuple[str, str]] = frozenset()
        self._mapping, self._options, self._limits = mapping, options, limits
        self._turns: OrderedDict[tuple[str, int], str] = OrderedDict()

    def know(self, scopes: Iterable[tuple[str, str]]) -> None:
        """Searches of these were told before; raises ``TwoScopes``."""
        known = self.scopes.union(scopes)
        if not self._options.scopes:
            check_scopes(known)
        if len(known) <= KNOWN_SCOPES:
            self.scopes = known

    def tell(self, closed: Closed) -> Telling:
        """What the trace tells; raises ``TwoScopes``."""
        told = closed.tell(self._mapping, self._options)
        self.know(told.scopes)
        found, rejected = [], []
        for event in events(told, self._options.content):
            read = decode(event.value, timestamp_ms=closed.stamp_ms, limits=self._limits)
            if isinstance(read, BadRecord):
                rejected.append(read)
            else:
                found.append(event)
        conflicts = sum(self._conflicts(told.trace_id, turn) for turn in told.turns)
        return Telling(told, found, rejected, conflicts)

    def _conflicts(self, trace_id: str, turn: Turn) -> bool:
        """Whether another span has the turn's number; of two the first one is remembered."""
        span = f"{trace_id}:{turn.span_id}"
        other = self._turns.setdefault((turn.conversation, turn.number), span)
        if len(self._turns) > KNOWN_TURNS:
            self._turns.popitem(last=False)
        return other != span
