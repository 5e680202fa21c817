"""Assembled traces depend only on the log, not on crashes, batches, clocks or arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_metrics.core.telemetry import Options, Span, events, interpret
from stream_metrics.core.telemetry import assembly as module
from stream_metrics.core.telemetry.assembly import Assembly, Bounds, ClosedTrace, ReadPosition
from tests.helpers import examples
from tests.telemetry import MAPPING, agent, model, search

SETTLE, LONGEST = 10, 60
DECODE = msgspec.msgpack.Decoder(Span).decode
TRACES = ("a", "b", "c", "d", "e", "f")


class TraceRecord(NamedTuple):
    """A record: its time, its spans, and whether it is unusable."""

    time_ms: int
    spans: tuple[Span, ...]
    is_bad: bool = False

    @property
    def trace_ids(self) -> list[str]:
        """The ids of its traces."""
        return [span.trace_id for span in self.spans]


Log = list[TraceRecord]
PlainTrace = tuple[str, int, tuple[Span, ...], str | None]
"""A trace: its id, the offset of its first record, its spans, and the reason of a refusal."""


SERVICES = {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["y"], "e": [""], "f": ["x", "y"], "": [""]}


def spans_of_trace(trace: str) -> list[Span]:
    """Versions of a turn's spans, sent by the trace's services in turn."""
    of: dict[str, Any] = {"trace_id": trace}
    services = cycle(SERVICES[trace])
    found = [
        agent("1", **of),
        agent("1", end=2000, **of),
        model("2", "1", 0, **of),
        search("3", "1", 5, found="ab", **of),
        search("3", "2", 5, end=9, found="ac", **of),
        model("4", "3", 7, **of),
        search("5", "missing", 8, **of),
        agent("6", start=3000, end=4000, **of),
        agent("7", start=3000, end=-1_718_020_800_000, **of),
        agent("7", start=3000, end=4000, **of),
        search("", "1", 8, **of),
        search("5", "1", 8, end=20, **of),
        search("8", "missing", 8, **of),
    ]
    return [structs.replace(one, resource={"service.name": next(services)}) for one in found]


SPANS = {trace: spans_of_trace(trace) for trace in (*TRACES, "")}
LIKELY = (0, 1, 1, 2, 3, 7, 8, 8, 9, 9, *range(13))
ANY_SPANS = [SPANS[trace][at] for trace in TRACES for at in LIKELY] + SPANS[""][:1]


@st.composite
def logs(draw: st.DrawFn, in_order: bool = True) -> Log:
    """Any log; with ``in_order`` timestamps do not decrease."""
    log, now = [], 1_000
    for _ in range(draw(st.integers(0, 40))):
        steps = st.sampled_from([0, 0, 1, 3, 9, 10, 11, 30, 59, 60, 61, 200])
        now += draw(steps) * (1 if in_order else draw(st.sampled_from([1, 1, 1, -1])))
        found = draw(st.lists(st.sampled_from(ANY_SPANS), max_size=3))
        log.append(TraceRecord(now, tuple(found), draw(st.integers(0, 19)) == 0))
    return log


BOUNDS = st.builds(
    Bounds,
    settle_ms=st.just(SETTLE),
    trace_max_ms=st.just(LONGEST),
    known_ms=st.sampled_from([LONGEST, 2 * LONGEST]),
    open_traces=st.sampled_from([1, 2, 3, 100]),
    open_bytes=st.sampled_from([1_500, 4_000, 1 << 30]),
    trace_spans=st.sampled_from([2, 100]),
)


def plain(closed: Sequence[ClosedTrace]) -> list[PlainTrace]:
    """Closed traces, reduced to what the tests compare."""
    found: list[PlainTrace] = []
    for one in closed:
        spans = tuple(sorted(map(DECODE, one.encoded_spans), key=lambda s: (s.span_id, s.end_ns)))
        found.append((one.trace_id, one.offset, spans, one.reason))
    return found


def take(assembly: Assembly, offset: int, record: TraceRecord) -> list[PlainTrace]:
    """Add a record."""
    if record.is_bad:
        of = record.trace_ids
        return plain(assembly.refuse(offset, record.time_ms, of, "unreadable", "it is damaged"))
    return plain(assembly.read(offset, record.time_ms, record.spans))


def uninterrupted(log: Log, bounds: Bounds) -> list[PlainTrace]:
    """The result of one pass."""
    assembly = Assembly(bounds)
    closed = [one for offset, record in enumerate(log) for one in take(assembly, offset, record)]
    return closed + plain(assembly.finish())


def distinct(closed: list[PlainTrace]) -> list[str]:
    """All distinct traces, sorted."""
    return sorted({repr(one) for one in closed})


def restarted(log: Log, bounds: Bounds, place: ReadPosition) -> Assembly:
    """A new assembly that continues at a position, as ``bridge`` starts."""
    assembly = Assembly(bounds, place)
    since = place.time_ms - bounds.known_ms
    first = next((at for at, record in enumerate(log) if record.time_ms >= since), place.offset)
    for record in log[first : place.offset]:
        assembly.note(record.time_ms, record.trace_ids)
    return assembly


@dataclass
class NaiveAssembly:
    """The same rules, implemented only with lists.

    ``known`` has the records of each trace that is remembered, ``open`` those of open traces in the
    order in which they were opened.
    """

    bounds: Bounds
    known: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    open: dict[str, list[tuple[int, int, list[Span]]]] = field(default_factory=dict)
    closed: list[PlainTrace] = field(default_factory=list)
    late: int = 0

    def kept(self, trace: str) -> list[Span]:
        """The spans of a trace, with the preferred version of each id."""
        spans = [span for _, _, found in self.open[trace] for span in found]
        return list({s.span_id: s for s in sorted(spans, key=lambda s: s.end_ns)}.values())

    def deadline(self, trace: str) -> int:
        """The time at which the trace closes."""
        times = [time for _, time, _ in self.open[trace]]
        kept = self.kept(trace)
        ids, roots = {span.span_id for span in kept}, [s for s in kept if not s.parent_id]
        whole = all(not s.parent_id or s.parent_id in ids for s in kept)
        settled = max(times) + self.bounds.settle_ms
        longest = times[0] + self.bounds.trace_max_ms
        return (
            min(settled, longest) if whole and roots and all(r.end_ns for r in roots) else longest
        )

    def close(self, trace: str, reason: str | None = None) -> None:
        """Close the trace."""
        spans = (
            () if reason else tuple(sorted(self.kept(trace), key=lambda s: (s.span_id, s.end_ns)))
        )
        self.closed.append((trace, self.open.pop(trace)[0][0], spans, reason))

    def read(self, offset: int, record: TraceRecord) -> None:
        """Add a record."""
        due = sorted((self.deadline(t), at, t) for at, t in enumerate(self.open))
        for deadline, _, trace in due:
            if deadline <= record.time_ms:
                self.close(trace)
        for trace, seen in list(self.known.items()):
            if max(time for _, time in seen) <= record.time_ms - self.bounds.known_ms:
                del self.known[trace]
        services: dict[str, None] = {}
        for trace in dict.fromkeys(record.trace_ids):
            found = [s for s in record.spans if s.trace_id == trace]
            if not trace:
                self.closed += [] if record.is_bad else [("", offset, (s,), None) for s in found]
                continue
            if trace not in self.known:
                self.open[trace] = []
            self.known[trace] = [*self.known.pop(trace, []), (offset, record.time_ms)]
            if trace not in self.open:
                self.late += 0 if record.is_bad else len(found)
                continue
            self.open[trace].append((offset, record.time_ms, found))
            if found:
                services[self.open[trace][0][2][0].resource["service.name"]] = None
            if record.is_bad:
                self.close(trace, "unreadable")
            elif any(not span.span_id for span in found):
                self.close(trace, "bad_id")
            elif len(self.kept(trace)) > self.bounds.trace_spans:
                self.close(trace, "too_large")
        while len(self.known) > module.REMEMBERED_TRACES_RATIO * self.bounds.open_traces:
            trace = next(iter(self.known))
            del self.known[trace]
            if trace in self.open:
                self.close(trace, "no_room")
        bounds = self.bounds
        if record.is_bad:
            return
        for service in services:
            while (mine := self.of_service(service)) and (
                len(mine) > bounds.open_traces or self.size(mine) > bounds.open_bytes
            ):
                self.close(mine[0], "no_room")
        while len(self.open) > 2 * bounds.open_traces or self.size() > 2 * bounds.open_bytes:
            self.close(next(iter(self.open)), "no_room")

    def of_service(self, service: str) -> list[str]:
        """The open traces whose first span is of a service."""
        return [
            trace
            for trace, seen in self.open.items()
            if seen[0][2][0].resource["service.name"] == service
        ]

    def size(self, among: Sequence[str] | None = None) -> int:
        """Bytes of the open traces."""
        encode = msgspec.msgpack.encode
        traces = self.open if among is None else among
        kept = [span for trace in traces for span in self.kept(trace)]
        return sum(len(encode(span)) + module.SPAN_OVERHEAD_BYTES for span in kept)


@example(
    [TraceRecord(1_000, (SPANS["a"][at],)) for at in (8, 9)] + [TraceRecord(1_020, ())],
    Bounds(10, 60, 60),
)
@example([TraceRecord(1_000, (SPANS["a"][10], SPANS[""][0]))], Bounds(10, 60, 60))
@settings(max_examples=examples(200))
@given(logs(in_order=False), BOUNDS)
def test_assembly_equals_the_naive_implementation(log: Log, bounds: Bounds) -> None:
    """Heaps, counters and the span index change no result, even if timestamps decrease."""
    naive = NaiveAssembly(bounds)
    assembly = Assembly(bounds)
    closed: list[PlainTrace] = []
    for offset, record in enumerate(log):
        naive.read(offset, record)
        closed += take(assembly, offset, record)
        assert (assembly.open_traces, assembly.open_bytes) == (len(naive.open), naive.size())

    assert closed == naive.closed
    assert assembly.late == naive.late


@settings(max_examples=examples(300))
@given(logs(), BOUNDS)
def test_a_crash_at_any_record_has_no_effect_on_traces(log: Log, bounds: Bounds) -> None:
    """A start at any commit gives the same traces with the same spans."""
    expected = distinct(uninterrupted(log, bounds))
    first = Assembly(bounds)
    closed: list[PlainTrace] = []
    for crash, record in enumerate(log):
        closed += take(first, crash, record)
        place = first.commit(crash + 1)
        second = restarted(log, bounds, place)
        again = [one for at in range(place.offset, len(log)) for one in take(second, at, log[at])]
        assert distinct([*closed, *again, *plain(second.finish())]) == expected


@settings(max_examples=examples(300))
@given(st.data(), BOUNDS)
def test_crashes_and_clocks_have_no_effect_on_traces(data: st.DataObject, bounds: Bounds) -> None:
    """The number of crashes, the age of commits, and the moments at which the end of the partition
    was reached and the clock was read have no effect."""
    in_order = data.draw(st.booleans())
    log = data.draw(logs(in_order))
    place = ReadPosition(0, log[0].time_ms if log else 0)
    assembly = restarted(log, bounds, place)
    closed: list[PlainTrace] = []
    offset = 0
    for crashes in range(data.draw(st.integers(0, 5)), -1, -1):
        until = data.draw(st.integers(offset, len(log))) if crashes else len(log)
        while offset < until:
            closed += take(assembly, offset, log[offset])
            offset += 1
            if in_order and offset < len(log) and data.draw(st.booleans()):
                closed += plain(assembly.advance_to(data.draw(st.integers(0, log[offset].time_ms))))
            if data.draw(st.booleans()):
                place = assembly.commit(offset)
        if crashes:
            assembly = restarted(log, bounds, place)
            offset = place.offset
    closed += plain(assembly.finish())

    assert distinct(closed) == distinct(uninterrupted(log, bounds))


@given(st.data())
def test_order_and_splitting_within_the_settle_time_have_no_effect(data: st.DataObject) -> None:
    """Repeated spans have no effect either."""
    wanted = data.draw(st.lists(st.sampled_from(TRACES), min_size=1, unique=True))
    whole = {trace: [SPANS[trace][at] for at in (1, 2, 3, 5, 7)] for trace in wanted}
    spans = [span for trace in wanted for span in whole[trace]]
    spans += data.draw(st.lists(st.sampled_from(spans), max_size=6))
    spans = data.draw(st.permutations(spans))
    log, now, used = [], 1_000, 0
    while used < len(spans):
        size = data.draw(st.integers(1, 6))
        log.append(TraceRecord(now, tuple(spans[used : used + size])))
        used, now = used + size, now + data.draw(st.integers(0, (SETTLE - 1) // len(spans) + 1))
    late = log[-1].time_ms - log[0].time_ms
    bounds = Bounds(settle_ms=max(SETTLE, late + 1), trace_max_ms=10_000)

    closed = uninterrupted([*log, TraceRecord(now + 20_000, ())], bounds)

    values = {
        event.value
        for _, _, found, _ in closed
        for event in events(interpret(found, MAPPING, Options()))
    }
    assert values == {
        event.value
        for trace in wanted
        for event in events(interpret(whole[trace], MAPPING, Options()))
    }
