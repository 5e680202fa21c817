"""The cost of the bridge compared with decoding alone: `python -m benchmarks bridge`.

Decoding alone and a whole bridge (which decodes, assembles and interprets traces, and passes events
on) process the same payloads alternately, in one process and without Kafka. Times are CPU times.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure, figures_table, ratios
from benchmarks.inprocess import once
from benchmarks.ran import RAN
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.events import Limits
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Options, mapping
from stream_metrics.core.telemetry.assembly import Assembly, Bounds, ReadPosition
from stream_metrics.core.telemetry.interpreter import InterpretedTrace, TraceInterpreter
from stream_metrics.core.telemetry.otlp.payloads import OtlpDecoder, spans_of
from stream_metrics.live.bridge.bridge import Assemblies, Bridge, Told
from stream_metrics.live.memory import MemoryDeadLetters
from tests.otlp import as_protobuf
from tests.sessions import records, traces

TRACES = 2_000
OPEN_TRACES = 10_000
FETCH_RECORDS = 500
START_MS = 1_718_020_800_000


def run(*, quick: bool, records: int | None, rounds: int | None) -> str:
    """The report: spans per second and core, and memory with many open traces."""
    RAN.note(ENGINE)
    number = 200 if quick else records or TRACES
    log = _log(number)
    spans = sum(len(spans_of(record.value or b"")) for record in log)
    decoding, assembling, bridge = [], [], []
    for _ in range(rounds or (2 if quick else 7)):
        gc.collect()
        decoding.append(spans / _seconds(lambda: [spans_of(one.value or b"") for one in log]))
        gc.collect()
        assembling.append(spans / _seconds(lambda: _assemble(log)))
        gc.collect()
        bridge.append(spans / _seconds(lambda: asyncio.run(run_bridge(log))))
    span_mb, peak = _open_traces_mb(1_000 if quick else OPEN_TRACES)
    figures = [
        Figure("decoding alone", decoding, "spans/s of a core"),
        Figure("and putting traces together", assembling, "spans/s of a core"),
        Figure("  of decoding alone", ratios(assembling, decoding), ""),
        Figure("the bridge", bridge, "spans/s of a core"),
        Figure("the bridge, of decoding alone", ratios(bridge, decoding), ""),
        Figure(f"memory of {1_000 if quick else OPEN_TRACES:,} open traces", [peak], "MB"),
        Figure("  of it spans", [span_mb], "MB"),
    ]
    head = f"The bridge: {number:,} traces, {spans:,} spans in {len(log):,} records\n\n"
    return head + figures_table(figures)


def _log(number: int) -> list[Record]:
    made = traces(1, number)
    return [
        Record(one.value, one.key, START_MS + at, "traces", 0, at)
        for at, one in enumerate(records(made, 1, open_at_once=100))
    ]


def _seconds(work: object) -> float:
    begun = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - begun


def _assemble(log: Sequence[Record]) -> None:
    assembly = Assembly(Bounds())
    for record in log:
        assembly.read(record.offset, record.timestamp_ms or 0, spans_of(record.value or b""))
    assembly.finish()


class _InMemoryTopics:
    """The bridge's source, output and metrics, at no cost: in memory, and counts are dropped."""

    def __init__(self, log: Sequence[Record]) -> None:
        self._log, self._at = log, 0
        self.events = 0

    async def fetch(self) -> Sequence[Record]:
        """The next records."""
        part = self._log[self._at : self._at + FETCH_RECORDS]
        self._at += len(part)
        return part

    def ended(self) -> Mapping[int, int]:
        """The end time of the partition once all records were read."""
        return {0: 2 * START_MS} if self._at == len(self._log) else {}

    async def commit(self) -> None:
        """Do nothing."""

    async def send(self, told: Sequence[Told]) -> Sequence[Told]:
        """Count the events."""
        self.events += len(told)
        return ()

    def bad_records(self, counts: Counter[str]) -> None:
        """Do nothing."""

    def bug(self, bug: Bug) -> None:
        """Do nothing."""

    def produced(self, events: int) -> None:
        """Do nothing."""

    def trace_closed(self, interpreted: InterpretedTrace) -> None:
        """Do nothing."""

    def read(self, spans: int, late: int) -> None:
        """Do nothing."""

    def open_traces(self, traces: int, open_bytes: int) -> None:
        """Do nothing."""


async def run_bridge(log: Sequence[Record]) -> None:
    """Let a bridge over memory read all records."""
    assemblies = Assemblies(Bounds())
    assemblies.begin({0: ReadPosition(0, 0)})
    interpreter = TraceInterpreter(mapping(), Options(), Limits())
    memory = _InMemoryTopics(log)
    bridge = Bridge(
        memory,
        assemblies,
        OtlpDecoder(),
        interpreter,
        memory,
        MemoryDeadLetters(),
        once,
        memory,
        "traces",
    )
    while await bridge.turn():
        pass
    if not memory.events:
        raise RuntimeError("no trace was interpreted")


def _open_traces_mb(number: int) -> tuple[float, float]:
    """MB of spans in this number of open traces, and MB by which the process grew."""
    made = [(one[0].trace_id.hex().encode(), as_protobuf(one[:-1])) for one in traces(2, number)]
    gc.collect()
    before = _resident()
    assemblies = Assemblies(Bounds())
    assemblies.begin({0: ReadPosition(0, 0)})
    assembly = assemblies.of(0)
    if assembly is None:
        raise RuntimeError("the partition is missing")
    for offset, (_, value) in enumerate(made):
        assembly.read(offset, START_MS, spans_of(value))
    gc.collect()
    if assembly.open_traces != number:
        raise RuntimeError(f"{assembly.open_traces:,} of {number:,} traces are open")
    return assembly.open_bytes / 1e6, (_resident() - before) / 1e6


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
