"""The bridge: records of traces in, events out. It keeps nothing but what Kafka keeps.

The order of effects, for each round (``docs/concepts/bridge.md`` says what happens if one of them
fails):

1. fetch     the next records of the trace partitions that the group gave this bridge
2. decode    their payloads to spans
3. assemble  traces of them, by the times of the records (``telemetry.assembly``)
4. tell      events of the traces that are closed
5. produce   the events to the input topics, and wait until they are acknowledged
6. dead      produce dead letters of the records that cannot be used, and wait likewise
7. commit    the offset before the first record of any trace that is not closed

A round that is cut off is done again, so that an event may be produced twice. State knows it by its
version, and takes it once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import structs

from stream_metrics.events.decode import BadRecord
from stream_metrics.events.record import DeadLetter, Record
from stream_metrics.ports import DeadLetters
from stream_metrics.telemetry import Event, Span, TwoScopes
from stream_metrics.telemetry.assembly import Assembly, Bounds, Closed, Place
from stream_metrics.telemetry.teller import Teller, Telling
from stream_metrics.worker.patience import Retry

CLOCK_MARGIN_MS: Final = 1_000
"""By how much the clocks of this machine and of the brokers may differ where a partition has been
read to its end."""

NO_KEY: Final = (
    "the record has no key, so the spans of its trace may be on any partition: set "
    "`partition_traces_by_id: true` in the Collector's Kafka exporter, or start the bridge with "
    "--rekey"
)
TOO_LARGE: Final = (
    "an event of this trace is larger than its topic accepts: raise `max.message.bytes` of the "
    "input topics, or set `otlp.content` to off"
)
PENDING_EVENTS: Final = 1_000
PENDING_BYTES: Final = 4 << 20
SPANS_AT_ONCE: Final = 1_000


class Inputs(Protocol):
    """The topic of traces, as one member of a consumer group reads it."""

    async def fetch(self) -> Sequence[Record]:
        """The next records, those of each partition in its order; none after a short while.

        When it returns, ``Assemblies`` has the partitions that are this member's.
        """
        ...

    def ended(self) -> Mapping[int, int]:
        """Up to which time in milliseconds partitions have been read to their ends."""
        ...

    async def taken(self) -> None:
        """Whoever reads next begins where ``Assemblies.commit`` says, as far as it is ours."""
        ...


class Payloads(Protocol):
    """How payloads are read."""

    def spans(self, value: bytes | None) -> list[Span] | BadRecord:
        """The spans of a payload, or why it has none."""
        ...

    def trace_ids(self, record: Record) -> Sequence[str]:
        """The trace ids of the same spans, at less expense; where there are none, the trace that
        the record's key names."""
        ...


class Events(Protocol):
    """The input topics."""

    async def send(self, events: Sequence[Event]) -> Sequence[Event]:
        """Those that are too large for their topic; returns when all others are stored for good.

        Raises ``InputTopicsUnavailable``; then some may be stored.
        """
        ...


class Counts(Protocol):
    """Receives operational counts; every method is cheap and never raises."""

    def bad_records(self, counts: Counter[str]) -> None: ...
    def produced(self, events: int) -> None: ...
    def told(self, telling: Telling) -> None: ...
    def read(self, spans: int, late: int) -> None: ...
    def held(self, traces: int, held_bytes: int) -> None: ...


class Assemblies:
    """The traces of this bridge's partitions."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._of: dict[int, Assembly] = {}

    def begin(self, places: Mapping[int, Place], since_ms: Mapping[int, int] | None = None) -> None:
        """These partitions are ours, and no others; nothing of them has been read.

        ``since_ms``: from which record time on traces are told, where the first records were
        deleted.
        """
        self._of = {
            number: Assembly(self.bounds, place, (since_ms or {}).get(number, 0))
            for number, place in places.items()
        }

    def of(self, partition: int) -> Assembly | None:
        """The traces of a partition; None if it is another's."""
        return self._of.get(partition)

    def commit(self, partition: int, next_offset: int) -> Place | None:
        """From where whoever reads the partition next must read; None if it is another's."""
        assembly = self._of.get(partition)
        return None if assembly is None else assembly.commit(next_offset)

    def sizes(self) -> tuple[int, int]:
        """How many traces are open, and the size of their spans."""
        held = self._of.values()
        return sum(one.open_traces for one in held), sum(one.held_bytes for one in held)

    def counted(self) -> tuple[int, int]:
        """How many spans were read since the last call, and how many of them were late."""
        spans = sum(one.spans for one in self._of.values())
        late = sum(one.late for one in self._of.values())
        for one in self._of.values():
            one.spans = one.late = 0
        return spans, late


class Bridge:
    """Turns traces into events, round by round."""

    def __init__(
        self,
        inputs: Inputs,
        assemblies: Assemblies,
        payloads: Payloads,
        teller: Teller,
        events: Events,
        dead_letters: DeadLetters,
        retry: Retry,
        counts: Counts,
        topic: str,
    ) -> None:
        self._topic = topic
        self._inputs = inputs
        self._assemblies = assemblies
        self._payloads = payloads
        self._teller = teller
        self._events = events
        self._dead_letters = dead_letters
        self._retry = retry
        self._counts = counts
        self._letters: list[DeadLetter] = []
        self._pending: list[tuple[Event, Record]] = []
        self._bytes = 0
        self._spans = 0  # since others had the loop

    async def turn(self) -> int:
        """One round; how many records were fetched. Raises ``TwoScopes``."""
        self._letters, self._pending, self._bytes = [], [], 0
        records = await self._inputs.fetch()
        for record in records:
            assembly = self._assemblies.of(record.partition)
            if assembly is None:
                continue
            before = assembly.spans
            await self._tell(record.partition, self._take(assembly, record))
            await self._worked(1 + assembly.spans - before)
        for partition, ended_ms in self._inputs.ended().items():
            assembly = self._assemblies.of(partition)
            if assembly is not None:
                closed = assembly.pass_to(ended_ms - CLOCK_MARGIN_MS)
                await self._tell(partition, closed)
        await self._flush()
        await self._inputs.taken()
        self._counts.read(*self._assemblies.counted())
        self._counts.held(*self._assemblies.sizes())
        return len(records)

    def _take(self, assembly: Assembly, record: Record) -> Sequence[Closed]:
        """The traces that the record closes."""
        offset, time_ms = record.offset, record.timestamp_ms or 0
        if assembly.is_noted(offset, time_ms):
            assembly.note(time_ms, self._payloads.trace_ids(record))
            return ()
        if record.key is None:
            self._letters.append(DeadLetter(record.as_sent, "no_key", NO_KEY))
            return assembly.refuse(
                offset, time_ms, self._payloads.trace_ids(record), "no_key", NO_KEY
            )
        found = self._payloads.spans(record.value)
        if isinstance(found, BadRecord):
            self._letters.append(DeadLetter(record.as_sent, found.reason, found.message))
            ids = self._payloads.trace_ids(record)
            message = f"the record at offset {offset} cannot be read: {found.message}"
            return assembly.refuse(offset, time_ms, ids, "unreadable", message)
        return assembly.read(offset, time_ms, found)

    async def _tell(self, partition: int, closed: Iterable[Closed]) -> None:
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
                if trace.spans >= SPANS_AT_ONCE:
                    telling = await asyncio.to_thread(self._teller.tell, trace)
                else:
                    telling = self._teller.tell(trace)
            except (MemoryError, TwoScopes):
                raise
            except Exception as error:
                why = f"a bug, met in trace {trace.trace_id}: {type(error).__name__}"
                self._letters.append(DeadLetter(place, "internal_error", why))
                continue
            self._counts.told(telling)
            self._letters += (DeadLetter(place, b.reason, b.message) for b in telling.rejected)
            self._pending += ((event, place) for event in telling.events)
            self._bytes += sum(len(event.value) for event in telling.events)
            if len(self._pending) >= PENDING_EVENTS or self._bytes >= PENDING_BYTES:
                await self._flush()
            await self._worked(1 + trace.spans)

    async def _worked(self, spans: int) -> None:
        """Let others have the loop once in a while, such as heartbeats to the group."""
        self._spans += spans
        if self._spans >= SPANS_AT_ONCE:
            self._spans = 0
            await asyncio.sleep(0)

    async def _flush(self) -> None:
        """Produce what is pending, and wait until it is stored for good."""
        pending, self._pending, self._bytes = self._pending, [], 0
        if pending:
            events = [event for event, _ in pending]
            large = frozenset(await self._retry(lambda: self._events.send(events)))
            self._counts.produced(len(events) - len(large))
            self._letters += (
                DeadLetter(
                    structs.replace(place, key=event.conversation.encode(), value=event.value),
                    "too_large",
                    TOO_LARGE,
                )
                for event, place in pending
                if event in large
            )
        letters, self._letters = self._letters, []
        if letters:
            await self._retry(lambda: self._dead_letters.send(letters))
            self._counts.bad_records(Counter(letter.reason for letter in letters))
