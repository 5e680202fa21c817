"""Traces put together from one partition's log, in bounded memory, by the times of its records.

What is told depends on the log alone, and each decision about a trace on no more than the records
from its first one on, together with which traces had a record in the ``known_ms`` before:

- A trace begins with the first record that has a span of it. Once ``known_ms`` have passed
  without a record of it, or ``KNOWN_TRACES`` times as many traces as may be open have come since,
  it is forgotten, and a later span begins another trace.
- It is closed as soon as time is ``settle_ms`` past its last record, if its roots have ended and
  the parent of every span is there; in any case once time is ``trace_max_ms`` past its first.
- Spans that come after that, until it is forgotten, are late, and never told.
- Where there is no room, the trace that began first is refused. So only traces that began after a
  trace decide whether there is room for it.

Hence a log may be read again from the first record of the oldest trace that is not closed, after
the traces of the ``known_ms`` before that have been noted (``Assembly.note``): every trace that
begins there is told as before, and no other.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from stream_metrics.events.decode import EARLIEST_US
from stream_metrics.telemetry.mapping import Mapping
from stream_metrics.telemetry.options import Options
from stream_metrics.telemetry.spans import Span, service_of
from stream_metrics.telemetry.tell import tell
from stream_metrics.telemetry.told import Reason, Told
from stream_metrics.telemetry.tree import preferred

KNOWN_TRACES: Final = 16
SPARE: Final = 4  # how many times as many entries a heap may have as are of use
SPAN_BYTES: Final = 250  # what keeping a span takes, beside its content

_DECODE: Final = msgspec.msgpack.Decoder(Span).decode


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long traces are waited for, and how much is held meanwhile.

    Attributes:
        settle_ms: How long nothing of a complete trace must have come.
        trace_max_ms: How long after its first record a trace is closed in any case.
        known_ms: How long after its last record a trace is known; no less than ``trace_max_ms``.
        traces, held_bytes: Open traces of a partition, and the size of their spans.
        trace_spans, trace_bytes: Different spans of one trace, and their size.
    """

    settle_ms: int = 10_000
    trace_max_ms: int = 900_000
    known_ms: int = 1_800_000
    traces: int = 10_000
    held_bytes: int = 256 << 20
    trace_spans: int = 100_000
    trace_bytes: int = 128 << 20


class Place(NamedTuple):
    """Where reading goes on, and the record time there, by which earlier records are found."""

    offset: int
    time_ms: int


START: Final = Place(0, 0)


@dataclass(frozen=True, slots=True)
class Closed:
    """A trace to which nothing is added any more.

    Attributes:
        offset: Of its first record.
        last_ms: The largest time of its records.
        spans: How many spans it has.
        held: These, encoded, of which no two have the same id; none of a trace that is refused.
        reason, message: Why it is refused, whatever its spans tell; None if it is not.
        service: Of one that is refused, the service that sent one of its spans, if that is known.
    """

    trace_id: str
    offset: int
    last_ms: int
    spans: int
    held: tuple[bytes, ...]
    reason: Reason | None = None
    message: str = ""
    service: str | None = None

    @property
    def stamp_ms(self) -> int | None:
        """The time that its events are taken to be sent at; None where its records tell none."""
        return self.last_ms if self.last_ms * 1000 >= EARLIEST_US else None

    def tell(self, mapping: Mapping, options: Options) -> Told:
        """What the trace tells, or why it is refused."""
        if self.reason is None:
            return tell(map(_DECODE, self.held), mapping, options)
        told = Told(self.trace_id, service=self.service, agent=self.service, spans=self.spans)
        told.refuse(self.reason, "", self.message)
        return told


class _Open:
    """A trace that spans may be added to."""

    __slots__ = (
        "due_ms",
        "held",
        "last_ms",
        "missing",
        "nameless",
        "order",
        "place",
        "roots",
        "size",
        "trace_id",
        "waits",
    )

    def __init__(self, trace_id: str, order: int, place: Place) -> None:
        self.trace_id = trace_id
        self.order = order
        self.place = place
        self.last_ms = place.time_ms
        self.due_ms: int | None = None  # of the entry by which it is looked at
        self.size = 0
        self.nameless = 0  # spans without an id
        self.held: dict[str, bytes] = {}
        self.missing: Counter[str] = Counter()  # parents that have not come, by their spans
        self.roots = 0
        self.waits = 0  # roots that have not ended

    def add(self, span: Span) -> None:
        """Keep the span, unless another one with its id is to be preferred."""
        if not span.span_id:
            self.nameless += 1
            return
        content = msgspec.msgpack.encode(span)
        held = self.held.get(span.span_id)
        if held is not None:
            if held == content:
                return
            other = _DECODE(held)
            if preferred(other, span) is not span:
                return
            self.size -= len(held) + SPAN_BYTES
            self._relate(other, -1)
        self.held[span.span_id] = content
        self.size += len(content) + SPAN_BYTES
        self.missing.pop(span.span_id, None)
        self._relate(span, 1)

    def _relate(self, span: Span, number: int) -> None:
        """Count a span in, or out if it is -1."""
        if not span.parent_id:
            self.roots += number
            self.waits += number * (span.end_ns == 0)
        elif span.parent_id not in self.held:
            self.missing[span.parent_id] += number
            if not self.missing[span.parent_id]:
                del self.missing[span.parent_id]

    def refusal(self, bounds: Bounds) -> tuple[Reason, str] | None:
        """Why the trace is refused, whatever else comes of it."""
        number = len(self.held)
        size = self.size - number * SPAN_BYTES
        if self.nameless:
            return "bad_id", f"{self.nameless:,} of its spans have no id of the right length"
        if number > bounds.trace_spans or size > bounds.trace_bytes:
            return "too_large", f"it has {number:,} spans of {size:,} bytes"
        return None

    def deadline_ms(self, bounds: Bounds) -> int:
        """The time from which it is closed, if nothing is added before."""
        latest = self.place.time_ms + bounds.trace_max_ms
        if self.missing or self.waits or not self.roots:
            return latest
        return min(latest, self.last_ms + bounds.settle_ms)


@dataclass(slots=True)
class _Known:
    """When the last record of a trace was, and the entry by which that is looked at."""

    last_ms: int
    fade_ms: int


class Assembly:
    """The traces of one partition, of which records are read in the order of their offsets.

    ``begin`` is where the reading goes on. Records before it were read before: they are noted. So
    are those from there to the first one of ``since_ms``: their traces may have begun in records
    that were deleted. ``late`` counts spans that came too late, ``spans`` all that were read.
    """

    def __init__(self, bounds: Bounds, begin: Place = START, since_ms: int = 0) -> None:
        self.late = 0
        self.spans = 0
        self.held_bytes = 0
        self._bounds = bounds
        self._begin = begin
        self._since_ms = since_ms
        self._time_ms = begin.time_ms
        self._open: dict[str, _Open] = {}  # by when they began
        self._known: OrderedDict[str, _Known] = OrderedDict()  # by last record
        self._ends: list[tuple[int, int, str]] = []  # a heap: no deadline is before its entry
        self._fades: list[tuple[int, str]] = []  # the same of last records
        self._order = 0

    @property
    def open_traces(self) -> int:
        """How many traces are not closed."""
        return len(self._open)

    def is_noted(self, offset: int, time_ms: int) -> bool:
        """Whether it is enough to ``note`` the record that is read next."""
        if offset < self._begin.offset or time_ms < self._since_ms:
            return True
        self._since_ms = 0
        return False

    def commit(self, next_offset: int) -> Place:
        """From where to read again if all is lost after what was read before ``next_offset``."""
        for one in self._open.values():
            return one.place
        if next_offset < self._begin.offset:
            return self._begin
        return Place(next_offset, self._time_ms)

    def note(self, time_ms: int, trace_ids: Iterable[str]) -> None:
        """Take a record of which no trace is told, and which has spans of these."""
        self._forget(time_ms)
        for trace_id in dict.fromkeys(trace_ids):
            if trace_id:
                self._touch(trace_id, time_ms)
        self._trim()

    def read(self, offset: int, time_ms: int, spans: Iterable[Span]) -> list[Closed]:
        """Take a record; the traces that are closed before it, then those there is no room for."""
        if self.is_noted(offset, time_ms):
            self.note(time_ms, (span.trace_id for span in spans))
            return []
        closed = self._arrive(time_ms)
        for trace_id, found in _by_trace(spans).items():
            self.spans += len(found)
            if not trace_id:  # nothing connects these
                closed += (_alone(span, offset, time_ms) for span in found)
                continue
            one = self._reach(trace_id, Place(offset, time_ms))
            if one is None:
                self.late += len(found)
                continue
            self.held_bytes -= one.size
            for span in found:
                one.add(span)
            self.held_bytes += one.size
            refusal = one.refusal(self._bounds)
            if refusal is None:
                self._await(one)
            else:
                closed.append(self._close(one, *refusal))
        closed += self._trim()
        closed += self._make_room()
        return closed

    def refuse(
        self, offset: int, time_ms: int, trace_ids: Iterable[str], reason: Reason, message: str
    ) -> list[Closed]:
        """Take a record that cannot be used, though these traces have spans in it: so they are
        refused, if they are not closed."""
        if self.is_noted(offset, time_ms):
            self.note(time_ms, trace_ids)
            return []
        closed = self._arrive(time_ms)
        for trace_id in dict.fromkeys(trace_ids):
            if not trace_id:
                continue
            one = self._reach(trace_id, Place(offset, time_ms))
            if one is not None:
                closed.append(self._close(one, reason, message))
        return closed + self._trim()

    def pass_to(self, time_ms: int) -> list[Closed]:
        """The traces that are closed if there is no further record with an earlier time."""
        return list(self._due(time_ms))

    def finish(self) -> list[Closed]:
        """All traces that are left, as if there is no further record at all."""
        return list(self._due(None))

    # -- one trace -------------------------------------------------------------------------------

    def _arrive(self, time_ms: int) -> list[Closed]:
        self._time_ms = time_ms
        closed = list(self._due(time_ms))
        self._forget(time_ms)
        return closed

    def _reach(self, trace_id: str, place: Place) -> _Open | None:
        """The trace that a record has spans of, unless they are late."""
        is_new = trace_id not in self._known
        self._touch(trace_id, place.time_ms)
        if is_new:
            self._order += 1
            self._open[trace_id] = _Open(trace_id, self._order, place)
        one = self._open.get(trace_id)
        if one is not None:
            one.last_ms = max(one.last_ms, place.time_ms)
        return one

    def _close(self, one: _Open, reason: Reason | None = None, message: str = "") -> Closed:
        del self._open[one.trace_id]
        self.held_bytes -= one.size
        held = tuple(one.held.values())
        kept, service = held, None
        if reason is not None:
            kept = ()
            service = service_of(_DECODE(held[0])) if held else None
        place, spans = one.place, len(held) + one.nameless
        return Closed(
            one.trace_id, place.offset, one.last_ms, spans, kept, reason, message, service
        )

    def _due(self, time_ms: int | None) -> Iterator[Closed]:
        """Close what is due then, by deadline and beginning; all, if None."""
        while self._ends and (time_ms is None or self._ends[0][0] <= time_ms):
            due_ms, order, trace_id = heapq.heappop(self._ends)
            one = self._open.get(trace_id)
            if one is None or (one.order, one.due_ms) != (order, due_ms):
                continue
            one.due_ms = one.deadline_ms(self._bounds)
            if one.due_ms > due_ms:
                heapq.heappush(self._ends, (one.due_ms, order, trace_id))
            else:
                yield self._close(one)

    def _await(self, one: _Open) -> None:
        """See to it that the trace is looked at by its deadline."""
        deadline_ms = one.deadline_ms(self._bounds)
        if one.due_ms is None or deadline_ms < one.due_ms:
            one.due_ms = deadline_ms
            heapq.heappush(self._ends, (deadline_ms, one.order, one.trace_id))
            if len(self._ends) > SPARE * (1 + len(self._open)):  # most are of closed traces
                self._ends = [
                    (each.due_ms, each.order, each.trace_id)
                    for each in self._open.values()
                    if each.due_ms is not None
                ]
                heapq.heapify(self._ends)

    def _make_room(self) -> list[Closed]:
        bounds, closed = self._bounds, []
        while len(self._open) > bounds.traces or self.held_bytes > bounds.held_bytes:
            message = (
                f"{len(self._open):,} traces with {self.held_bytes:,} bytes of spans are open in "
                "its partition"
            )
            closed.append(self._close(next(iter(self._open.values())), "no_room", message))
        return closed

    # -- what is remembered ----------------------------------------------------------------------

    def _touch(self, trace_id: str, time_ms: int) -> None:
        known = self._known.get(trace_id)
        if known is None:
            self._known[trace_id] = _Known(time_ms, time_ms)
            heapq.heappush(self._fades, (time_ms, trace_id))
            if len(self._fades) > SPARE * len(self._known):  # most are of forgotten traces
                self._fades = [(each.fade_ms, id) for id, each in self._known.items()]
                heapq.heapify(self._fades)
            return
        known.last_ms = max(known.last_ms, time_ms)
        self._known.move_to_end(trace_id)

    def _forget(self, time_ms: int) -> None:
        """Forget traces of which no record came for ``known_ms``; none of them is open."""
        before_ms = time_ms - self._bounds.known_ms
        while self._fades and self._fades[0][0] <= before_ms:
            fade_ms, trace_id = heapq.heappop(self._fades)
            known = self._known.get(trace_id)
            if known is None or known.fade_ms != fade_ms:
                continue
            if known.last_ms <= before_ms:
                del self._known[trace_id]
            else:
                known.fade_ms = known.last_ms
                heapq.heappush(self._fades, (known.fade_ms, trace_id))

    def _trim(self) -> list[Closed]:
        """Forget traces that are too many; one that is open is refused."""
        most, closed = KNOWN_TRACES * self._bounds.traces, []
        while len(self._known) > most:
            trace_id, _ = self._known.popitem(last=False)
            one = self._open.get(trace_id)
            if one is not None:
                message = f"{most:,} other traces have come since its last record"
                closed.append(self._close(one, "no_room", message))
        return closed


def _alone(span: Span, offset: int, time_ms: int) -> Closed:
    return Closed("", offset, time_ms, 1, (msgspec.msgpack.encode(span),))


def _by_trace(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, []).append(span)
    return found
