"""The bridge: reads records of traces and writes events. Its only state is what Kafka stores.

The order of effects in each round (``docs/concepts/bridge.md`` says what happens if one fails):

1. fetch      the next records of the trace partitions assigned to this bridge
2. decode     their payloads to spans
3. assemble   traces from them, by the times of the records (``telemetry.assembly``)
4. interpret  the traces that are closed, as events
5. produce    the events to the input topics, and wait for their acknowledgement
6. dead       produce dead letters of the records that cannot be used, and wait likewise
7. commit     the offset before the first record of any open trace

An interrupted round is repeated, so an event may be produced twice. State recognises it by its
version and applies it once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import structs

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.core.telemetry import Event, Span
from stream_metrics.core.telemetry.assembly import Assembly, Bounds, ClosedTrace, ReadPosition
from stream_metrics.core.telemetry.interpreter import InterpretedTrace, TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import id_of_key
from stream_metrics.live.ports import DeadLetters
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import BugCounts, report_bugs

CLOCK_MARGIN_MS: Final = 1_000
"""How far the clocks of this machine and the brokers may differ at the end of a partition."""

NO_KEY: Final = (
    "the record has no key, so the spans of its trace may be on any partition: set "
    "`partition_traces_by_id: true` in the Collector's Kafka exporter, or start the bridge with "
    "--rekey"
)
TOO_LARGE: Final = (
    "an event of this trace is larger than its topic accepts: raise `max.message.bytes` of the "
    "input topics, or set `otlp.content` to off"
)
MAX_PENDING_EVENTS: Final = 1_000
MAX_PENDING_BYTES: Final = 4 << 20
MAX_SPANS_PER_SLICE: Final = 1_000
LARGE_BYTES: Final = 1 << 20  # of a record that is decoded beside the event loop


class Inputs(Protocol):
    """The topic of traces, as one member of a consumer group reads it."""

    async def fetch(self) -> Sequence[Record]:
        """The next records, in order within each partition; none after a short wait.

        On return, ``Assemblies`` has the partitions assigned to this member.
        """
        ...

    def ended(self) -> Mapping[int, int]:
        """The record time in milliseconds up to which each partition has been read to its end."""
        ...

    async def commit(self) -> None:
        """Commit the positions that ``Assemblies.commit`` returns for the partitions still
        assigned."""
        ...


class PayloadDecoder(Protocol):
    """Decodes payloads."""

    def spans(self, value: bytes | None) -> list[Span] | BadRecord:
        """The spans of a payload, or why it has none."""
        ...

    def trace_ids(self, record: Record) -> Sequence[str]:
        """The trace ids of the record's spans, at a lower cost than ``spans``; if it is unreadable,
        the trace that its key names."""
        ...


class Told(NamedTuple):
    """An event, and its trace: the id as key, and the partition and offset of the first record."""

    event: Event
    trace: Record


class EventWriter(Protocol):
    """Writes events to the input topics."""

    async def send(self, told: Sequence[Told]) -> Sequence[Told]:
        """Write events; those that are too large for their topic. Returns once the others are
        stored. All events of a trace are in one call.

        Raises ``InputTopicsUnavailable``; some events may then be stored.
        """
        ...


class BridgeCounts(BugCounts, Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def bad_records(self, counts: Counter[str]) -> None: ...
    def produced(self, events: int) -> None: ...
    def trace_closed(self, interpreted: InterpretedTrace) -> None: ...
    def read(self, spans: int, late: int) -> None: ...
    def open_traces(self, traces: int, open_bytes: int) -> None: ...


class Assemblies:
    """The assemblies of this bridge's partitions."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._of: dict[int, Assembly] = {}

    def begin(
        self, places: Mapping[int, ReadPosition], since_ms: Mapping[int, int] | None = None
    ) -> None:
        """Replace the assigned partitions; nothing of them has been read.

        ``since_ms`` is the record time from which traces are used where earlier records were
        deleted.
        """
        self._of = {
            number: Assembly(self.bounds, place, (since_ms or {}).get(number, 0))
            for number, place in places.items()
        }

    def of(self, partition: int) -> Assembly | None:
        """The assembly of a partition; None if it is not assigned."""
        return self._of.get(partition)

    def commit(self, partition: int, next_offset: int) -> ReadPosition | None:
        """Where the next reader of the partition must start; None if it is not assigned."""
        assembly = self._of.get(partition)
        return None if assembly is None else assembly.commit(next_offset)

    def is_open(self, partition: int, trace_id: str) -> bool:
        """Whether spans may still be added to a trace."""
        assembly = self._of.get(partition)
        return assembly is None or assembly.is_open(trace_id)

    def sizes(self) -> tuple[int, int]:
        """The number of open traces, and the bytes of their spans."""
        held = self._of.values()
        return sum(one.open_traces for one in held), sum(one.open_bytes for one in held)

    def counted(self) -> tuple[int, int]:
        """The numbers of spans and late spans that were read since the last call."""
        spans = sum(one.spans for one in self._of.values())
        late = sum(one.late for one in self._of.values())
        for one in self._of.values():
            one.spans = one.late = 0
        return spans, late


class Bridge:
    """Converts traces to events, in rounds."""

    def __init__(
        self,
        inputs: Inputs,
        assemblies: Assemblies,
        payloads: PayloadDecoder,
        interpreter: TraceInterpreter,
        events: EventWriter,
        dead_letters: DeadLetters,
        retry: Retry,
        counts: BridgeCounts,
        topic: str,
    ) -> None:
        self._topic = topic
        self._inputs = inputs
        self._assemblies = assemblies
        self._payloads = payloads
        self._interpreter = interpreter
        self._events = events
        self._dead_letters = dead_letters
        self._retry = retry
        self._counts = counts
        self._letters: list[DeadLetter] = []
        self._pending: list[Told] = []
        self._bytes = 0
        self._spans = 0  # since the last yield to the event loop

    async def turn(self) -> int:
        """Run one round; the number of records fetched."""
        self._letters, self._pending, self._bytes = [], [], 0
        records = await self._inputs.fetch()
        for record in records:
            assembly = self._assemblies.of(record.partition)
            if assembly is None:
                continue
            before = assembly.spans
            await self._interpret(record.partition, await self._add_record(assembly, record))
            await self._yield_to_loop(1 + assembly.spans - before)
        for partition, ended_ms in self._inputs.ended().items():
            assembly = self._assemblies.of(partition)
            if assembly is not None:
                closed = assembly.advance_to(ended_ms - CLOCK_MARGIN_MS)
                await self._interpret(partition, closed)
        await self._flush()
        await self._inputs.commit()
        self._counts.read(*self._assemblies.counted())
        self._counts.open_traces(*self._assemblies.sizes())
        return len(records)

    async def _add_record(self, assembly: Assembly, record: Record) -> Sequence[ClosedTrace]:
        """Add a record; the traces that it closes."""
        offset, time_ms = record.offset, record.timestamp_ms or 0
        if assembly.needs_only_ids(offset, time_ms):
            assembly.note(time_ms, self._trace_ids(record))
            return ()
        if record.key is None:
            self._letters.append(DeadLetter(record.produced, "no_key", NO_KEY))
            return assembly.refuse(offset, time_ms, self._trace_ids(record), "no_key", NO_KEY)
        try:
            if len(record.value or b"") >= LARGE_BYTES:
                found = await asyncio.to_thread(self._payloads.spans, record.value)
            else:
                found = self._payloads.spans(record.value)
            if not isinstance(found, BadRecord):
                return assembly.read(offset, time_ms, found)
            letter = DeadLetter(record.produced, found.reason, found.message)
        except Exception as error:
            letter = DeadLetter.of_bug(record.produced, error)
        self._letters.append(letter)
        message = f"the record at offset {offset} cannot be read: {letter.message}"
        return assembly.refuse(offset, time_ms, self._trace_ids(record), "unreadable", message)

    def _trace_ids(self, record: Record) -> Sequence[str]:
        """The trace ids of the record's spans; if it cannot be read, the trace of its key."""
        try:
            return self._payloads.trace_ids(record)
        except Exception:  # a bug, which reading the spans reports
            found = id_of_key(record.key)
            return () if found is None else (found,)

    async def _interpret(self, partition: int, closed: Iterable[ClosedTrace]) -> None:
        for trace in closed:
            place = Record(
                None,
                trace.trace_id.encode() or None,
                trace.last_ms,
                self._topic,
                partition,
                trace.offset,
            )
            try:
                if trace.spans >= MAX_SPANS_PER_SLICE:
                    interpreted = await asyncio.to_thread(self._interpreter.interpret, trace)
                else:
                    interpreted = self._interpreter.interpret(trace)
            except Exception as error:
                met = f"trace {trace.trace_id}"
                self._letters.append(DeadLetter.of_bug(place, error, met))
                continue
            self._counts.trace_closed(interpreted)
            self._letters += (DeadLetter(place, b.reason, b.message) for b in interpreted.rejected)
            self._pending += (Told(event, place) for event in interpreted.events)
            self._bytes += sum(len(event.value) for event in interpreted.events)
            if len(self._pending) >= MAX_PENDING_EVENTS or self._bytes >= MAX_PENDING_BYTES:
                await self._flush()
            await self._yield_to_loop(1 + trace.spans)

    async def _yield_to_loop(self, spans: int) -> None:
        """Yield to the event loop regularly, so that heartbeats are sent."""
        self._spans += spans
        if self._spans >= MAX_SPANS_PER_SLICE:
            self._spans = 0
            await asyncio.sleep(0)

    async def _flush(self) -> None:
        """Produce pending events and dead letters, and wait until they are stored."""
        pending, self._pending, self._bytes = self._pending, [], 0
        if pending:
            large = await self._retry(lambda: self._events.send(pending))
            self._counts.produced(len(pending) - len(large))
            self._letters += (
                DeadLetter(
                    structs.replace(trace, key=event.conversation.encode(), value=event.value),
                    "too_large",
                    TOO_LARGE,
                )
                for event, trace in large
            )
        letters, self._letters = self._letters, []
        if letters:
            report_bugs(letters, self._counts)
            await self._retry(lambda: self._dead_letters.send(letters))
            self._counts.bad_records(Counter(letter.reason for letter in letters))
