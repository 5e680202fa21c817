"""Assembles traces from one partition's log, in bounded memory, by the times of its records.

The result depends on the log alone. A decision about a trace depends only on the records from its
first one on, and on which traces had a record in the ``known_ms`` before that:

- A trace begins with the first record that has a span of it. It is forgotten once ``known_ms`` have
  passed without a record of it, or once ``REMEMBERED_TRACES_RATIO`` times as many traces as may be
  open have come since. A later span then begins another trace.
- It is closed once ``settle_ms`` have passed since its last record, if its roots have ended and no
  parent is missing; in any case once ``trace_max_ms`` have passed since its first.
- Spans that arrive after that, until the trace is forgotten, are late and not used.
- If there is no room, the trace that began first is refused: among those of a service if it has
  more than ``open_traces`` or ``open_bytes`` open, among all if these have ``TOTAL_RATIO`` times as
  many. So a service whose traces do not end leaves room for others, and only traces that began
  after a trace decide whether there is room for it.

Hence a log may be read again from the first record of the oldest open trace, after the traces of
the ``known_ms`` before that have been noted (``Assembly.note``). Every trace that begins there then
closes as before, and no other does.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from stream_metrics.core.events.decode import EARLIEST_US
from stream_metrics.core.telemetry.interpret import MAX_BYTES, MAX_SPANS, interpret
from stream_metrics.core.telemetry.interpretation import FIXED, Interpretation, Reason
from stream_metrics.core.telemetry.options import Options
from stream_metrics.core.telemetry.roles.mapping import SpanMapping
from stream_metrics.core.telemetry.roles.tree import preferred
from stream_metrics.core.telemetry.spans import Span, service_of

TOTAL_RATIO: Final = 2  # of open traces of all services to those of one
REMEMBERED_TRACES_RATIO: Final = 16
MAX_HEAP_RATIO: Final = 4  # of heap entries to useful ones
SPAN_OVERHEAD_BYTES: Final = 250  # memory per stored span besides its content

OPEN_TRACES: Final = "bridge.open_traces"
OPEN_BYTES: Final = "bridge.open_bytes"

_DECODE: Final = msgspec.msgpack.Decoder(Span).decode


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long to wait for traces, and how much to keep meanwhile.

    Attributes:
        settle_ms: How long after its last record a complete trace is closed.
        trace_max_ms: How long after its first record a trace is closed in any case.
        known_ms: How long after its last record a trace is remembered; at least ``trace_max_ms``.
        open_traces, open_bytes: The most open traces of a service in a partition, and bytes of
            their spans; of all services together ``TOTAL_RATIO`` times as many.
        trace_spans, trace_bytes: The most distinct spans of one trace, and their bytes.
    """

    settle_ms: int = 10_000
    trace_max_ms: int = 900_000
    known_ms: int = 1_800_000
    open_traces: int = 10_000
    open_bytes: int = 256 << 20
    trace_spans: int = 100_000
    trace_bytes: int = 128 << 20


class ReadPosition(NamedTuple):
    """The offset at which reading continues, and the record time there, which locates earlier
    records."""

    offset: int
    time_ms: int


START: Final = ReadPosition(0, 0)


@dataclass(frozen=True, slots=True)
class ClosedTrace:
    """A trace to which nothing is added any more.

    Attributes:
        trace_id: Its id; empty if its only span has none.
        offset: The offset of its first record.
        last_ms: The latest time of its records.
        spans: The number of its spans.
        encoded_spans: Its distinct spans in MessagePack; empty for a refused trace.
        reason, message: Why it is refused before its spans are interpreted; None if it is not.
        limit: The setting of the limit that it exceeds, if that is why.
        service: Of a refused trace, the service that sent one of its spans; None if unknown.
    """

    trace_id: str
    offset: int
    last_ms: int
    spans: int
    encoded_spans: tuple[bytes, ...]
    reason: Reason | None = None
    message: str = ""
    service: str | None = None
    limit: str = FIXED

    @property
    def timestamp_ms(self) -> int | None:
        """The timestamp of its events; None if its records have no plausible time."""
        return self.last_ms if self.last_ms * 1000 >= EARLIEST_US else None

    def decoded(self) -> Iterable[Span]:
        """Its distinct spans."""
        return map(_DECODE, self.encoded_spans)

    def interpret(self, mapping: SpanMapping, options: Options) -> Interpretation:
        """The interpretation of the trace, or its refusal."""
        if self.reason is None:
            return interpret(self.decoded(), mapping, options)
        interpretation = Interpretation(
            self.trace_id, service=self.service, agent=self.service, spans=self.spans
        )
        interpretation.refuse(self.reason, "", self.message, limit=self.limit)
        return interpretation


class _OpenTrace:
    """A trace to which spans may be added."""

    __slots__ = (
        "due_ms",
        "held",
        "last_ms",
        "missing",
        "order",
        "place",
        "roots",
        "service",
        "size",
        "trace_id",
        "unfinished_roots",
        "without_id",
    )

    def __init__(self, trace_id: str, order: int, place: ReadPosition, service: str) -> None:
        self.trace_id = trace_id
        self.order = order
        self.place = place
        self.service = service  # that sent its first span
        self.last_ms = place.time_ms
        self.due_ms: int | None = None  # of its heap entry
        self.size = 0
        self.without_id = 0  # number of spans without an id
        self.held: dict[str, bytes] = {}
        self.missing: Counter[str] = Counter()  # missing parents, with the number of their children
        self.roots = 0
        self.unfinished_roots = 0  # number of roots that have not ended

    def add(self, span: Span) -> None:
        """Keep the span, unless a span with the same id is preferred."""
        if not span.span_id:
            self.without_id += 1
            return
        content = msgspec.msgpack.encode(span)
        held = self.held.get(span.span_id)
        if held is not None:
            if held == content:
                return
            other = _DECODE(held)
            if preferred(other, span) is not span:
                return
            self.size -= len(held) + SPAN_OVERHEAD_BYTES
            self._count(other, -1)
        self.held[span.span_id] = content
        self.size += len(content) + SPAN_OVERHEAD_BYTES
        self.missing.pop(span.span_id, None)
        self._count(span, 1)

    def _count(self, span: Span, number: int) -> None:
        """Update the counts of roots and missing parents: add 1 for a new span, -1 for a replaced
        one."""
        if not span.parent_id:
            self.roots += number
            self.unfinished_roots += number * (span.end_ns == 0)
        elif span.parent_id not in self.held:
            self.missing[span.parent_id] += number
            if not self.missing[span.parent_id]:
                del self.missing[span.parent_id]

    def refusal(self, bounds: Bounds) -> tuple[Reason, str, str] | None:
        """Why the trace is refused now, as reason, message and limit; None if it is not."""
        number = len(self.held)
        size = self.size - number * SPAN_OVERHEAD_BYTES
        if self.without_id:
            message = f"{self.without_id:,} of its spans have no id of the right length"
            return "bad_id", message, FIXED
        if number > bounds.trace_spans or size > bounds.trace_bytes:
            limit = MAX_SPANS if number > bounds.trace_spans else MAX_BYTES
            return "too_large", f"it has {number:,} spans of {size:,} bytes", limit
        return None

    def deadline_ms(self, bounds: Bounds) -> int:
        """The time at which it is closed if nothing is added before."""
        latest = self.place.time_ms + bounds.trace_max_ms
        if self.missing or self.unfinished_roots or not self.roots:
            return latest
        return min(latest, self.last_ms + bounds.settle_ms)


@dataclass(slots=True)
class _OpenOfService:
    """The open traces of one service in the order of their beginnings, and the bytes of their
    spans."""

    traces: dict[str, _OpenTrace] = field(default_factory=dict)
    size: int = 0


@dataclass(slots=True)
class _LastSeen:
    """The time of a trace's last record, and of the heap entry that checks it."""

    last_ms: int
    expiry_ms: int


class Assembly:
    """The traces of one partition, whose records are read in the order of their offsets.

    ``begin`` is where reading continues. Earlier records were processed before, so only their trace
    ids are noted. The same holds for later records before ``since_ms``, whose traces may have begun
    in records that were deleted. ``late`` counts late spans, ``spans`` all spans read.
    """

    def __init__(self, bounds: Bounds, begin: ReadPosition = START, since_ms: int = 0) -> None:
        self.late = 0
        self.spans = 0
        self.open_bytes = 0
        self._bounds = bounds
        self._begin = begin
        self._since_ms = since_ms
        self._time_ms = begin.time_ms
        self._open: dict[str, _OpenTrace] = {}  # in the order of their beginnings
        self._of_service: dict[str, _OpenOfService] = {}
        self._known: OrderedDict[str, _LastSeen] = (
            OrderedDict()
        )  # in the order of their last records
        self._deadlines: list[tuple[int, int, str]] = []  # heap; deadlines may be later
        self._expiries: list[tuple[int, str]] = []  # heap of times to check last records
        self._order = 0

    @property
    def open_traces(self) -> int:
        """The number of open traces."""
        return len(self._open)

    def is_open(self, trace_id: str) -> bool:
        """Whether a trace has begun, and is not closed."""
        return trace_id in self._open

    def needs_only_ids(self, offset: int, time_ms: int) -> bool:
        """Whether the next record is only to be passed to ``note``."""
        if offset < self._begin.offset or time_ms < self._since_ms:
            return True
        self._since_ms = 0
        return False

    def commit(self, next_offset: int) -> ReadPosition:
        """Where to read again if everything read before ``next_offset`` is lost."""
        for trace in self._open.values():
            return trace.place
        if next_offset < self._begin.offset:
            return self._begin
        return ReadPosition(next_offset, self._time_ms)

    def note(self, time_ms: int, trace_ids: Iterable[str]) -> None:
        """Remember the traces of a record that is not used."""
        self._forget(time_ms)
        for trace_id in dict.fromkeys(trace_ids):
            if trace_id:
                self._touch(trace_id, time_ms)
        self._forget_excess()

    def read(self, offset: int, time_ms: int, spans: Iterable[Span]) -> list[ClosedTrace]:
        """Add a record; the traces that it closes, those that there is no room for last."""
        if self.needs_only_ids(offset, time_ms):
            self.note(time_ms, (span.trace_id for span in spans))
            return []
        closed = self._advance(time_ms)
        services: dict[str, None] = {}
        for trace_id, spans_of_it in _by_trace(spans).items():
            self.spans += len(spans_of_it)
            if not trace_id:  # nothing connects spans without a trace id
                closed += (_trace_without_id(span, offset, time_ms) for span in spans_of_it)
                continue
            service = service_of(spans_of_it[0]) or ""
            trace = self._trace_for(trace_id, ReadPosition(offset, time_ms), service)
            if trace is None:
                self.late += len(spans_of_it)
                continue
            before = trace.size
            try:
                for span in spans_of_it:
                    trace.add(span)
            finally:
                self._resize(trace, trace.size - before)
            services[trace.service] = None
            refusal = trace.refusal(self._bounds)
            if refusal is None:
                self._schedule(trace)
            else:
                closed.append(self._close(trace, *refusal))
        closed += self._forget_excess()
        closed += self._make_room(services)
        return closed

    def refuse(
        self, offset: int, time_ms: int, trace_ids: Iterable[str], reason: Reason, message: str
    ) -> list[ClosedTrace]:
        """Refuse the open traces that have spans in an unusable record; the traces that closes."""
        if self.needs_only_ids(offset, time_ms):
            self.note(time_ms, trace_ids)
            return []
        closed = self._advance(time_ms)
        for trace_id in dict.fromkeys(trace_ids):
            if not trace_id:
                continue
            trace = self._trace_for(trace_id, ReadPosition(offset, time_ms), "")
            if trace is not None:
                closed.append(self._close(trace, reason, message))
        return closed + self._forget_excess()

    def advance_to(self, time_ms: int) -> list[ClosedTrace]:
        """The traces that close if no further record has an earlier time."""
        return list(self._close_due(time_ms))

    def finish(self) -> list[ClosedTrace]:
        """All open traces, closed as if no further record comes."""
        return list(self._close_due(None))

    # -- one trace -------------------------------------------------------------------------------

    def _advance(self, time_ms: int) -> list[ClosedTrace]:
        self._time_ms = time_ms
        closed = list(self._close_due(time_ms))
        self._forget(time_ms)
        return closed

    def _trace_for(self, trace_id: str, place: ReadPosition, service: str) -> _OpenTrace | None:
        """The open trace that a record has spans of; None if the spans are late."""
        is_new = trace_id not in self._known
        self._touch(trace_id, place.time_ms)
        if is_new:
            self._order += 1
            new = _OpenTrace(trace_id, self._order, place, service)
            self._open[trace_id] = new
            self._of_service.setdefault(service, _OpenOfService()).traces[trace_id] = new
        trace = self._open.get(trace_id)
        if trace is not None:
            trace.last_ms = max(trace.last_ms, place.time_ms)
        return trace

    def _close(
        self,
        trace: _OpenTrace,
        reason: Reason | None = None,
        message: str = "",
        limit: str = FIXED,
    ) -> ClosedTrace:
        del self._open[trace.trace_id]
        of_service = self._of_service[trace.service]
        del of_service.traces[trace.trace_id]
        self._resize(trace, -trace.size)
        if not of_service.traces:
            del self._of_service[trace.service]
        held = tuple(trace.held.values())
        kept, service = held, None
        if reason is not None:
            kept = ()
            service = service_of(_DECODE(held[0])) if held else None
        place, spans = trace.place, len(held) + trace.without_id
        return ClosedTrace(
            trace.trace_id,
            place.offset,
            trace.last_ms,
            spans,
            kept,
            reason,
            message,
            service,
            limit,
        )

    def _close_due(self, time_ms: int | None) -> Iterator[ClosedTrace]:
        """Close the traces that are due at a time, by deadline and beginning; all if it is None."""
        while self._deadlines and (time_ms is None or self._deadlines[0][0] <= time_ms):
            due_ms, order, trace_id = heapq.heappop(self._deadlines)
            trace = self._open.get(trace_id)
            if trace is None or (trace.order, trace.due_ms) != (order, due_ms):
                continue
            trace.due_ms = trace.deadline_ms(self._bounds)
            if trace.due_ms > due_ms:
                heapq.heappush(self._deadlines, (trace.due_ms, order, trace_id))
            else:
                yield self._close(trace)

    def _schedule(self, trace: _OpenTrace) -> None:
        """Ensure that the trace is checked at its deadline."""
        deadline_ms = trace.deadline_ms(self._bounds)
        if trace.due_ms is None or deadline_ms < trace.due_ms:
            trace.due_ms = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, trace.order, trace.trace_id))
            if len(self._deadlines) > MAX_HEAP_RATIO * (
                1 + len(self._open)
            ):  # most entries are stale
                self._deadlines = [
                    (each.due_ms, each.order, each.trace_id)
                    for each in self._open.values()
                    if each.due_ms is not None
                ]
                heapq.heapify(self._deadlines)

    def _resize(self, trace: _OpenTrace, change: int) -> None:
        self.open_bytes += change
        self._of_service[trace.service].size += change

    def _make_room(self, services: Iterable[str]) -> list[ClosedTrace]:
        """Refuse the oldest traces of services that have too many, then the oldest of all."""
        most, most_bytes, closed = self._bounds.open_traces, self._bounds.open_bytes, []
        for service in services:
            mine = self._of_service.get(service)
            while mine and (len(mine.traces) > most or mine.size > most_bytes):
                limit = OPEN_TRACES if len(mine.traces) > most else OPEN_BYTES
                closed.append(self._refuse_oldest(mine.traces, mine.size, "its service", limit))
        most, most_bytes = TOTAL_RATIO * most, TOTAL_RATIO * most_bytes
        while len(self._open) > most or self.open_bytes > most_bytes:
            limit = OPEN_TRACES if len(self._open) > most else OPEN_BYTES
            closed.append(self._refuse_oldest(self._open, self.open_bytes, "all services", limit))
        return closed

    def _refuse_oldest(
        self, among: dict[str, _OpenTrace], size: int, whose: str, limit: str
    ) -> ClosedTrace:
        message = (
            f"{len(among):,} traces of {whose} with {size:,} bytes of spans are open in its "
            "partition"
        )
        return self._close(next(iter(among.values())), "no_room", message, limit)

    # -- remembered traces -----------------------------------------------------------------------

    def _touch(self, trace_id: str, time_ms: int) -> None:
        known = self._known.get(trace_id)
        if known is None:
            self._known[trace_id] = _LastSeen(time_ms, time_ms)
            heapq.heappush(self._expiries, (time_ms, trace_id))
            if len(self._expiries) > MAX_HEAP_RATIO * len(self._known):  # most entries are stale
                self._expiries = [(each.expiry_ms, id) for id, each in self._known.items()]
                heapq.heapify(self._expiries)
            return
        known.last_ms = max(known.last_ms, time_ms)
        self._known.move_to_end(trace_id)

    def _forget(self, time_ms: int) -> None:
        """Forget traces without a record for ``known_ms``; none of them is open."""
        before_ms = time_ms - self._bounds.known_ms
        while self._expiries and self._expiries[0][0] <= before_ms:
            expiry_ms, trace_id = heapq.heappop(self._expiries)
            known = self._known.get(trace_id)
            if known is None or known.expiry_ms != expiry_ms:
                continue
            if known.last_ms <= before_ms:
                del self._known[trace_id]
            else:
                known.expiry_ms = known.last_ms
                heapq.heappush(self._expiries, (known.expiry_ms, trace_id))

    def _forget_excess(self) -> list[ClosedTrace]:
        """Forget the traces that exceed the limit; an open one is refused."""
        most, closed = REMEMBERED_TRACES_RATIO * self._bounds.open_traces, []
        while len(self._known) > most:
            trace_id, _ = self._known.popitem(last=False)
            trace = self._open.get(trace_id)
            if trace is not None:
                message = f"{most:,} other traces have come since its last record"
                closed.append(self._close(trace, "no_room", message, OPEN_TRACES))
        return closed


def _trace_without_id(span: Span, offset: int, time_ms: int) -> ClosedTrace:
    return ClosedTrace("", offset, time_ms, 1, (msgspec.msgpack.encode(span),))


def _by_trace(spans: Iterable[Span]) -> dict[str, list[Span]]:
    by_trace: dict[str, list[Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return by_trace
