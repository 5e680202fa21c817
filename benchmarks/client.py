"""What `stream-metrics-client` costs the agent that calls it, with and without a broker.

`python -m benchmarks client`. A search is recorded with documents as LangChain's are, to a file.
The times are wall and CPU times of calls in the agent's thread. The sending thread runs meanwhile,
as it does in an agent: wall times include the time in which it holds the GIL, and other work of the
machine.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "client/src"
SIZES = ((10, 0), (10, 1_000), (50, 2_000))
EVENTS = 100_000


@dataclass
class Document:
    """A document with the attributes of LangChain's documents."""

    page_content: str
    id: str
    metadata: dict[str, Any] = field(default_factory=dict)


def run(*, quick: bool, records: int | None, rounds: int | None) -> str:
    """The report: the cost of a search by the size of its results, and without a broker."""
    if str(SOURCE) not in sys.path:
        sys.path.append(str(SOURCE))
    calls = 500 if quick else 5_000
    lines = ["The client, in the agent's thread: µs a search", ""]
    lines.append("  results × characters   checked      p50      p99  CPU: p50      p99")
    for results, characters in SIZES:
        for strict in (False, True):
            times = [_searches(results, characters, calls, strict) for _ in range(rounds or 3)]
            p50, p99, cpu_p50, cpu_p99 = min(times)
            lines.append(
                f"  {results:>7} × {characters:<12,} {'strict' if strict else 'no':>8} "
                f"{p50:>8.1f} {p99:>8.1f} {cpu_p50:>9.1f} {cpu_p99:>8.1f}"
            )
    return "\n".join([*lines, "", _without_broker(EVENTS // 10 if quick else records or EVENTS)])


def _searches(results: int, characters: int, calls: int, strict: bool) -> tuple[float, ...]:
    """Median and 99th percentile of a call's wall time, and of its CPU time."""
    from stream_metrics_client import Recorder

    documents = [Document("x" * characters, f"doc-{n}") for n in range(results)]
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(
            Path(folder) / "events.jsonl",
            strict=strict,
            turn_numbers=lambda _: 1,
            max_events=calls + 1,
            max_bytes=2**33,
        )
        step = recorder.turn("conversation").iteration()
        step.search("query", documents)  # starts the thread
        gc.collect()
        times, processor = _timed(lambda: step.search("query", documents), calls)
        closed = recorder.close(120)
        if not closed or recorder.sent != calls + 1:
            raise RuntimeError(f"only {recorder.sent} of {calls + 1} events were written")
    return tuple(_quantile_us(each, share) for each in (times, processor) for share in (0.5, 0.99))


def _without_broker(events: int) -> str:
    """Searches while no broker answers: how long the calls take, and what is dropped."""
    from stream_metrics_client import Recorder

    recorder = Recorder("kafka://127.0.0.1:1?client=aiokafka", turn_numbers=lambda _: 1)
    step = recorder.turn("conversation").iteration()
    documents = [Document("x" * 200, f"doc-{n}") for n in range(10)]
    begun = time.monotonic()
    times, _ = _timed(lambda: step.search("query", documents), events)
    seconds = time.monotonic() - begun
    waiting, dropped = recorder.pending, recorder.dropped
    if waiting + dropped != events or recorder.sent or recorder.failed:
        raise RuntimeError("an event is neither waiting nor counted as dropped")
    begun = time.monotonic()
    recorder.close(1.0)
    closing = time.monotonic() - begun
    if recorder.dropped != events:
        raise RuntimeError(f"{recorder.dropped:,} of {events:,} events are counted as dropped")
    return (
        f"{events:,} searches of 10 results × 200 characters while no broker answers: "
        f"{seconds:.2f} s\n"
        f"  a call: p50 {_quantile_us(times, 0.5):.1f} µs, p99 {_quantile_us(times, 0.99):.1f} µs, "
        f"longest {times[-1] / 1_000_000:.2f} ms\n"
        f"  waiting {waiting:,}, dropped {dropped:,}; close(1.0) took {closing:.2f} s, "
        f"then dropped {recorder.dropped:,}"
    )


def _timed(call: Callable[[], object], calls: int) -> tuple[list[int], list[int]]:
    """Wall and CPU times of calls in nanoseconds, each in ascending order."""
    times, processor = [], []
    for _ in range(calls):
        begun, worked = time.perf_counter_ns(), time.thread_time_ns()
        call()
        processor.append(time.thread_time_ns() - worked)
        times.append(time.perf_counter_ns() - begun)
    return sorted(times), sorted(processor)


def _quantile_us(times: Sequence[int], share: float) -> float:
    """The quantile ``share`` of ascending times, in µs."""
    return times[min(len(times) - 1, int(len(times) * share))] / 1_000
