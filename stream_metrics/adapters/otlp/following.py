"""Topics of traces in a replay: the rules of the bridge, with an end that stays where it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stream_metrics.adapters.otlp.payloads import UNREADABLE, id_of_key, spans_of, trace_ids_of
from stream_metrics.adapters.otlp.spans import OtlpError
from stream_metrics.adapters.otlp.traces import Counts
from stream_metrics.events.record import Record
from stream_metrics.telemetry.assembly import Assembly, Bounds, Closed

Where = tuple[str, int]  # topic and partition


class Unreadable(Exception):
    """A record is no payload; ``closed`` is the trace that is refused for it, if it is known."""

    def __init__(self, closed: list[Closed]) -> None:
        super().__init__("no OTLP traces")
        self.closed = closed


@dataclass(frozen=True, slots=True)
class Part:
    """What is read of a partition.

    Attributes:
        first, end: The offsets between which the first records of traces are that are told. What is
            read before tells which traces began there, what is read behind may close some.
        is_cut: Whether records before those that are read were deleted.
    """

    first: int
    end: int
    is_cut: bool = False


class Following:
    """Puts the traces of topics together as ``worker.bridge`` does."""

    def __init__(self, bounds: Bounds) -> None:
        self._payloads = 0
        self._early = 0  # spans of traces that may have begun before what is read: not told
        self._bounds = bounds
        self._of: dict[Where, Assembly] = {}
        self._parts: dict[Where, Part] = {}
        self._early_until_ms: dict[Where, int] = {}

    def count(self, counts: Counts) -> None:
        """Add what was read, late and early."""
        late = sum(one.late for one in self._of.values())
        spans = sum(one.spans for one in self._of.values())
        counts.payloads += self._payloads
        counts.spans += spans + self._early
        counts.late += late
        counts.early += self._early

    def read(self, record: Record, part: Part) -> list[Closed]:
        """Take a payload; raises ``OtlpUnavailable``, and ``Unreadable`` for what is none."""
        where, time_ms = (record.topic, record.partition), record.timestamp_ms or 0
        assembly = self._begun(where, part, record)
        try:
            if self._is_early(where, part, record):
                ids = trace_ids_of(record.value or b"")
                self._early += len(ids)
                assembly.note(time_ms, ids)
                return []
            found = spans_of(record.value or b"")
        except OtlpError as error:
            raise Unreadable(self.refuse(record, part)) from error
        self._payloads += 1
        return _begun_within(part, assembly.read(record.offset, time_ms, found))

    def refuse(self, record: Record, part: Part) -> list[Closed]:
        """Take a record that cannot be read: the trace that its key names is refused."""
        trace_id = id_of_key(record.key)
        if trace_id is None:
            return []
        where, time_ms = (record.topic, record.partition), record.timestamp_ms or 0
        assembly = self._begun(where, part, record)
        if self._is_early(where, part, record):
            assembly.note(time_ms, [trace_id])
            return []
        message = f"the record at offset {record.offset} cannot be read"
        closed = assembly.refuse(record.offset, time_ms, [trace_id], UNREADABLE, message)
        return _begun_within(part, closed)

    def finish(self) -> Iterator[Closed]:
        """All traces that are left."""
        for where, assembly in sorted(self._of.items()):
            yield from _begun_within(self._parts[where], assembly.finish())

    def _begun(self, where: Where, part: Part, record: Record) -> Assembly:
        found = self._of.get(where)
        if found is None:
            found = self._of[where] = Assembly(self._bounds)
            self._parts[where] = part
            if part.is_cut:
                until_ms = (record.timestamp_ms or 0) + self._bounds.known_ms
                self._early_until_ms[where] = until_ms
        return found

    def _is_early(self, where: Where, part: Part, record: Record) -> bool:
        """Whether the record's traces may have begun before what is read."""
        if record.offset < part.first:
            return True
        until_ms = self._early_until_ms.get(where)
        if until_ms is not None and (record.timestamp_ms or 0) < until_ms:
            return True
        self._early_until_ms.pop(where, None)
        return False


def _begun_within(part: Part, closed: list[Closed]) -> list[Closed]:
    return [one for one in closed if one.offset < part.end]
