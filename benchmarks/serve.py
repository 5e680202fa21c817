"""One process without servers, against the worker and the bridge that it replaces.

The worker reads the records from Kafka and writes to Redis; ``stream-metrics serve`` gets the same
records in requests of 500, as ``stream-metrics send --to`` sends them. The bridge has records in
memory; the process gets the same spans in requests of some 50. Each runs once a round.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import aiohttp
import numpy as np

from benchmarks.bridge import START_MS, run_bridge
from benchmarks.children import worker
from benchmarks.figures import Figure, figures_table, ratios, section
from benchmarks.freshness import Scraper, latencies
from benchmarks.linux import usage
from benchmarks.machine import ROOT
from benchmarks.pacing import send_evenly
from benchmarks.processes import SCRAPE, ShippedWorker, records_done
from benchmarks.ran import RAN, inherited
from benchmarks.servers import DIGEST_KEY, Servers, servers
from benchmarks.workload import SEED, SPAN_SECONDS, Traffic, traffic
from deploy.local.process import free_port
from stream_metrics.core.events.record import Record
from stream_metrics.core.garbage_collection import collect_rarely
from stream_metrics.lab.statistics.by_values import calculate_confidence_interval
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from tests.otlp import SpanSpec, as_json, as_protobuf
from tests.sessions import traces

RECORDS: Final = 30_000
TRACES: Final = 2_000
CONVERSATIONS: Final = 100_000
EVENTS_A_CONVERSATION: Final = 10
PER_REQUEST: Final = 500
PARTS_PER_REQUEST: Final = 20
OPEN_AT_ONCE: Final = 100
SENDERS: Final = 4
SINGLY: Final = 0.1  # of the records, for which each is a request
RATE: Final = 100.0
STARTS: Final = 5
LINES: Final = "application/x-ndjson"
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
SERVERS: Final = ("aiokafka", "faust", "redis")
NEVER_SECONDS: Final = 120.0

Encode = Callable[[Iterable[SpanSpec]], bytes]


@dataclass(frozen=True, slots=True)
class Spent:
    """What the process needed until all that it was sent was read."""

    cpu: float
    wall: float


@dataclass(slots=True)
class Throughput:
    """CPU seconds by round."""

    live: list[float] = field(default_factory=list)
    serve: list[Spent] = field(default_factory=list)
    packed: list[Spent] = field(default_factory=list)
    singly: list[Spent] = field(default_factory=list)
    bridge: list[float] = field(default_factory=list)
    spans: list[Spent] = field(default_factory=list)
    spans_json: list[Spent] = field(default_factory=list)
    spans_to_state: list[Spent] = field(default_factory=list)


def run(
    *,
    quick: bool = False,
    records: int | None = None,
    conversations: int | None = None,
    rounds: int | None = None,
) -> str:
    """Measure, and return the report; ``conversations`` are those of the restarts."""
    collect_rarely()
    sent = arriving(traffic(records or (6_000 if quick else RECORDS), invalid=0.0))
    many = conversations or (2_000 if quick else CONVERSATIONS)
    rounds = rounds or (2 if quick else 7)
    return asyncio.run(_run(sent, 200 if quick else TRACES, many, rounds, quick=quick))


async def _run(sent: Traffic, spans: int, many: int, rounds: int, *, quick: bool) -> str:
    parts = parts_of(spans)
    found = Throughput()
    async with servers(sent) as running:
        for at in range(rounds):
            await _round(running, sent, parts, found, f"round-{at}")
    fresh = [await _freshness(sent, 5.0 if quick else 20.0) for _ in range(min(rounds, 3))]
    starts = [await _start() for _ in range(STARTS)]
    head = (
        f"{sent.describe()}, none invalid; {sum(map(len, parts)):,} spans in {len(parts):,} parts "
        f"of traces; {rounds} rounds\n"
    )
    return section(
        "serve: one process over one file",
        head,
        figures_table(_events(found, len(sent.records))),
        interval("events: serve ÷ live", _events_ratio(found)),
        figures_table(_spans(found, sum(map(len, parts)))),
        interval("spans: serve ÷ bridge", _spans_ratio(found)),
        figures_table([*_fresh(fresh), *_started(starts)]),
        figures_table(await _large(many)),
        f"imports of the command: {imports()}\n",
    )


def arriving(sent: Traffic) -> Traffic:
    """The records, all of which arrive now, as those that are posted do."""
    now_ms = time.time_ns() // 1_000_000
    return Traffic([record._replace(timestamp_ms=now_ms) for record in sent.records])


def interval(what: str, values: Sequence[float]) -> str:
    """The mean of ratios with its 95% interval, as a line."""
    low, high = calculate_confidence_interval(values)
    said = f" (95% interval {low:.3f} to {high:.3f})" if low is not None else ""
    return f"{what}: {fmean(values):.3f}{said}\n"


# -- CPU of events and spans ---------------------------------------------------------------------


async def _round(
    running: Servers, sent: Traffic, parts: Sequence[Sequence[SpanSpec]], found: Throughput, at: str
) -> None:
    values = [record.value for record in sent.records]
    lines = list(bodies(values, PER_REQUEST, b"\n".join))
    gc.collect()
    await running.client.flushall()
    found.live.append((await worker(running, len(values), at))["cpu"])
    found.serve.append(await spent(lines, LINES))
    found.packed.append(await spent([_packed(body) for body in lines], LINES, packed=True))
    found.singly.append(await spent(values[: int(SINGLY * len(values))], LINES))
    found.bridge.append(await _seconds_of_bridge(parts))
    for encode, kind, to in (
        (as_protobuf, PROTOBUF, found.spans),
        (as_json, JSON, found.spans_json),
    ):
        exports = list(bodies(parts, PARTS_PER_REQUEST, _exported(encode)))
        to.append(await spent(exports, kind, "traces", "--bridge"))
        if encode is as_protobuf:
            found.spans_to_state.append(await spent(exports, kind, "traces"))


def bodies(values: Sequence[Any], size: int, join: Callable[[Any], bytes]) -> Iterator[bytes]:
    """The values in bodies of requests."""
    return (join(values[at : at + size]) for at in range(0, len(values), size))


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, 1)


def _exported(encode: Encode) -> Callable[[Sequence[Sequence[SpanSpec]]], bytes]:
    return lambda parts: encode([span for part in parts for span in part])


def parts_of(number: int) -> list[list[SpanSpec]]:
    """Traces, each in two parts that came one after the other, and many at the same time."""
    chance, left = random.Random(SEED), iter(traces(1, number))
    under_way: list[list[list[SpanSpec]]] = []
    parts: list[list[SpanSpec]] = []
    while True:
        for one in islice(left, OPEN_AT_ONCE - len(under_way)):
            middle = len(one) // 2
            under_way.append([part for part in (one[middle:], one[:middle]) if part])
        if not under_way:
            return parts
        chosen = chance.choice(under_way)
        parts.append(chosen.pop())
        if not chosen:
            under_way.remove(chosen)


async def _seconds_of_bridge(parts: Sequence[Sequence[SpanSpec]]) -> float:
    """CPU seconds of the bridge for the same spans in memory, a record for each part."""
    records = [
        Record(as_protobuf(part), part[0].trace_id.hex().encode(), START_MS + at, "traces", 0, at)
        for at, part in enumerate(parts)
    ]
    gc.collect()
    began = time.process_time()
    await run_bridge(records)
    return time.process_time() - began


async def spent(
    requests: Sequence[bytes], kind: str, path: str = "events", *flags: str, packed: bool = False
) -> Spent:
    """Send requests to a new process, and let it read."""
    headers = {"Content-Type": kind} | ({"Content-Encoding": "gzip"} if packed else {})
    async with _measured(*flags) as (ask, receiver):
        began = await ask("now")
        left = iter(requests)
        async with aiohttp.ClientSession(headers=headers) as session:

            async def send() -> None:
                for body in left:
                    async with session.post(f"{receiver}/v1/{path}", data=body) as answer:
                        if answer.status != 200:
                            raise RuntimeError(await answer.text())

            await asyncio.gather(*(send() for _ in range(SENDERS)))
        ended = await ask("read")
    return Spent(ended["cpu"] - began["cpu"], ended["wall"] - began["wall"])


@asynccontextmanager
async def _measured(*flags: str) -> AsyncIterator[tuple[Callable[[str], Any], str]]:
    """``benchmarks.served`` with a new folder: how to ask it, and its address."""
    with tempfile.TemporaryDirectory(prefix="serve-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.served", f"{folder}/data", *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=inherited() | environment({"WEB__PORT": "0", "SERVE__OTLP_PORT": "0"}),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        pipe, answers = process.stdin, process.stdout

        async def answer() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(await answers.readline())
            return found

        async def ask(what: str) -> dict[str, Any]:
            pipe.write(f"{what}\n".encode())
            return await answer()

        try:
            said = await answer()
            RAN.note(said["engine"])
            yield ask, said["receiver"]
        finally:
            pipe.close()
            await process.wait()


def environment(settings: dict[str, str]) -> dict[str, str]:
    """The settings of a process, as variables."""
    ours = {"STATE__DIGEST_KEY": DIGEST_KEY, "LOG__LEVEL": "ERROR", "BRIDGE__SETTLE": "1s"}
    return {f"STREAM_METRICS_{name}": value for name, value in (ours | settings).items()}


def _events_ratio(found: Throughput) -> list[float]:
    return ratios(found.live, [one.cpu for one in found.serve])


def _events(found: Throughput, total: int) -> list[Figure]:
    some = int(SINGLY * total)
    return [
        Figure("serve", [total / one.cpu for one in found.serve], "events/s a core"),
        Figure("live", [total / cpu for cpu in found.live], "events/s a core"),
        Figure("serve ÷ live", _events_ratio(found), "", "≥ 0.8"),
        Figure("serve, CPU an event", [1e6 * one.cpu / total for one in found.serve], "µs"),
        Figure("live, CPU an event", [1e6 * cpu / total for cpu in found.live], "µs"),
        Figure("  packed with gzip", [1e6 * one.cpu / total for one in found.packed], "µs"),
        Figure("  one event a request", [1e6 * one.cpu / some for one in found.singly], "µs"),
        Figure("serve, by the clock", [total / one.wall for one in found.serve], "events/s"),
    ]


def _spans_ratio(found: Throughput) -> list[float]:
    return ratios(found.bridge, [one.cpu for one in found.spans])


def _spans(found: Throughput, total: int) -> list[Figure]:
    return [
        Figure("serve, to events", [total / one.cpu for one in found.spans], "spans/s a core"),
        Figure("the bridge", [total / cpu for cpu in found.bridge], "spans/s a core"),
        Figure("serve ÷ the bridge", _spans_ratio(found), "", "≥ 0.8"),
        Figure("  from JSON", [total / one.cpu for one in found.spans_json], "spans/s a core"),
        Figure("  to state", [total / one.cpu for one in found.spans_to_state], "spans/s a core"),
    ]


# -- the shipped command -------------------------------------------------------------------------


class ShippedServe(ShippedWorker):
    """``stream-metrics serve`` over a folder, which outlives it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.receiver = f"http://127.0.0.1:{port}"
        self.data = folder / "data"
        settings = {"SERVE__DATA": str(self.data), "SERVE__OTLP_PORT": str(port)}
        super().__init__(folder / "serve", settings, "serve")

    async def post(self, session: aiohttp.ClientSession, body: bytes) -> None:
        """Send events, as often as the process asks for it."""
        while True:
            async with session.post(f"{self.receiver}/v1/events", data=body) as answer:
                if answer.status == 200:
                    return
                if answer.status != 503:
                    raise RuntimeError(await answer.text())
                await asyncio.sleep(float(answer.headers["Retry-After"]))


async def _freshness(sent: Traffic, seconds: float) -> list[float]:
    """Milliseconds from when an event is due to be posted to its count on ``/metrics``."""
    waiting: set[asyncio.Task[None]] = set()
    with tempfile.TemporaryDirectory(prefix="serve-") as name:
        serve, scraper = ShippedServe(Path(name)), Scraper()
        async with serve, aiohttp.ClientSession(timeout=SCRAPE) as session:
            scraping = asyncio.create_task(scraper.run(serve, session))

            async def send(record: TrafficRecord) -> None:
                task = asyncio.create_task(serve.post(session, record.value))
                waiting.add(task)
                task.add_done_callback(waiting.discard)

            count = int(RATE * seconds)
            posted = await send_evenly(iter(sent.records), send, RATE, lambda n: n >= count)
            await asyncio.gather(*waiting)
            await scraper.until(len(posted))
            scraping.cancel()
            await asyncio.gather(scraping, return_exceptions=True)
            return [1000 * one for one in latencies(posted.due, 0, scraper.answers)]


def _fresh(rounds: Sequence[Sequence[float]]) -> list[Figure]:
    def quantile(percent: int) -> list[float]:
        return [float(np.percentile(one, percent)) for one in rounds]

    what = f"posted to visible at {RATE:.0f} events/s"
    return [
        Figure(f"{what}, p50", quantile(50), "ms"),
        Figure(f"{what}, p99", quantile(99), "ms", "≤ 500"),
    ]


@dataclass(frozen=True, slots=True)
class Started:
    """A start: seconds until it was ready, and its CPU seconds by then."""

    seconds: float
    cpu: float


async def _start() -> Started:
    with tempfile.TemporaryDirectory(prefix="serve-") as name:
        return await _launched(ShippedServe(Path(name)))


async def _launched(serve: ShippedServe) -> Started:
    """Start, until ``/readyz`` says yes, and stop."""
    serve.folder.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    serve.launch()
    try:
        await _until(serve.ready, began)
        return Started(time.perf_counter() - began, usage(serve.pid).cpu_seconds)
    finally:
        await serve.stop()


async def _until(done: Callable[[], Any], began: float) -> None:
    while not await done():
        if time.perf_counter() - began > NEVER_SECONDS:
            raise TimeoutError("the process never came so far")
        await asyncio.sleep(0.01)


def _started(starts: Sequence[Started]) -> list[Figure]:
    return [
        Figure("start with an empty folder", [one.seconds for one in starts], "s", "≤ 1.5"),
        Figure("  its CPU", [one.cpu for one in starts], "s"),
    ]


# -- a large state -------------------------------------------------------------------------------


async def _large(conversations: int) -> list[Figure]:
    """Fill a folder; then kill the process and start it again, some times."""
    total = EVENTS_A_CONVERSATION * conversations
    with tempfile.TemporaryDirectory(prefix="serve-") as name:
        serve = ShippedServe(Path(name))
        async with serve, aiohttp.ClientSession(timeout=SCRAPE) as session:
            sizes, seen, sent_bytes = await _filled(serve, session, conversations, total)
            await asyncio.sleep(1)
            disk = sum(file.stat().st_size for file in serve.data.iterdir())
            restarts = []
            for at in range(STARTS):
                serve.kill9()
                restarts.append(await _reading_again(serve, session, at))
            resident = usage(serve.pid).rss_bytes
    return [
        Figure("events in the log", [total], ""),
        Figure("conversations in the state", [seen], ""),
        Figure("kill -9, start to ready", [one.seconds for one, _ in restarts], "s"),
        Figure("  to the next event's count", [two.seconds for _, two in restarts], "s", "≤ 3"),
        Figure("  CPU by then", [two.cpu for _, two in restarts], "s"),
        Figure("memory while filled, at most", [max(sizes) / 2**20], "MiB", "≤ 250"),
        Figure("memory after a restart", [resident / 2**20], "MiB"),
        Figure("disk an event, with its state", [disk / total], "B"),
        Figure("  of it as it was sent", [sent_bytes / total], "B"),
    ]


async def _filled(
    serve: ShippedServe, session: aiohttp.ClientSession, conversations: int, total: int
) -> tuple[list[int], int, int]:
    """Bytes of memory all along, conversations in the end, and bytes that were sent."""
    profile = TrafficProfile(
        seed=SEED,
        conversations=2 * conversations,
        iterations=(1, 5),
        start=int(time.time()) - SPAN_SECONDS,
        duration_seconds=SPAN_SECONDS,
        invalid=0.0,
    )
    records = islice(generate(profile), total)
    sizes: list[int] = []
    names: set[bytes | None] = set()
    sent_bytes = 0
    while part := list(islice(records, PER_REQUEST)):
        await serve.post(session, b"\n".join(record.value for record in part))
        names.update(record.key for record in part)
        sent_bytes += sum(len(record.value) for record in part)
        sizes.append(usage(serve.pid).rss_bytes)

    async def done() -> bool:
        return records_done(await serve.scrape(session)) >= total

    await _until(done, time.perf_counter())
    sizes.append(usage(serve.pid).rss_bytes)
    return sizes, len(names), sent_bytes


async def _reading_again(
    serve: ShippedServe, session: aiohttp.ClientSession, serial: int
) -> tuple[Started, Started]:
    """Start: until it is ready, and until it counts an event that was posted at once."""
    event = {
        "type": "search_iteration",
        "event_id": f"again-{serial}",
        "occurred_at": time.time(),
        "conversation_id": "again",
        "turn": 1,
        "iteration": serial + 1,
        "searches": [],
    }
    began = time.perf_counter()
    serve.launch()

    async def posted() -> bool:
        with suppress(aiohttp.ClientError, OSError):
            await serve.post(session, json.dumps(event).encode())
            return True
        return False

    async def counted() -> bool:
        return records_done(await serve.scrape(session)) >= 1

    await _until(posted, began)
    await _until(serve.ready, began)
    ready = Started(time.perf_counter() - began, usage(serve.pid).cpu_seconds)
    await _until(counted, began)
    return ready, Started(time.perf_counter() - began, usage(serve.pid).cpu_seconds)


def imports() -> str:
    """Which clients of servers the command imports, if any."""
    program = (
        "import sys, stream_metrics.cli.serve, stream_metrics.cli.serving\n"
        f"print(*[name for name in {SERVERS!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    return done.stdout.strip() or f"none of {', '.join(SERVERS)}"
