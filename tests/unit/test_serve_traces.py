"""From spans over HTTP to events: traces of real frameworks, scores that come later, restarts,
hostile spans, and what is said of refusals."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from prometheus_client import CollectorRegistry, generate_latest

from stream_metrics.cli.serving_traces import Traces
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.lab.sources.otlp.traces import TraceStore
from stream_metrics.live.health import Health
from stream_metrics.live.local import scores as module
from stream_metrics.live.local.connections import LimitedServer
from stream_metrics.live.local.database import Database, Job, T
from stream_metrics.live.local.log import Log, Retention
from stream_metrics.live.local.otlp import OtlpReceiver
from stream_metrics.live.local.receiver import Doors, Receiver
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.local.traces import READER
from stream_metrics.live.page.operations import History, OperationsSample
from stream_metrics.live.page.worker_rules import Worker
from stream_metrics.live.prometheus.receiver import ReceiverMetrics
from stream_metrics.live.worker.clock import Clock
from tests.helpers import rest_long
from tests.otlp import RETRIEVER, SpanSpec, as_json, as_protobuf, documents
from tests.simulation.system import ImmediateRetry
from tests.telemetry import CAPTURES

NOW_MS: Final = 1_796_000_000_000  # after the captures
EXPORTS: Final = CAPTURES.parent / "exports"
"""Requests of `@opentelemetry/exporter-trace-otlp-http` 0.221.0 and `-proto` 0.223.1 in Node."""
SETTINGS: Final = Settings.model_validate(
    {
        "bridge": {"settle": "2s", "trace_max": "10s"},
        "labels": {"grades": {"relevant": 3}, "position": ["position"], "document": ["document"]},
    }
)
NAMES: Final = sorted(path.name.removesuffix(".jsonl.gz") for path in CAPTURES.glob("*.gz"))
TURN: Final = {"openinference.span.kind": "AGENT", "session.id": "s"}
SEARCHED: Final = [
    SpanSpec(1, 1, 0, 0, 9, TURN),
    SpanSpec(1, 2, 1, 1, 2, {**RETRIEVER, **documents("a", "b")}),
]


class CountedDatabase(Database):
    """Counts what it is asked to write."""

    asked = 0

    async def write(self, job: Job[T]) -> T:
        """See ``Database.write``."""
        self.asked += 1
        return await super().write(job)


@dataclass
class Place:
    """A process without its engine: what it receives, and what becomes of it."""

    url: str
    session: aiohttp.ClientSession
    database: CountedDatabase
    log: Log
    traces: Traces
    registry: CollectorRegistry
    health: Health
    times: list[float] = field(default_factory=lambda: [NOW_MS, 0.0])

    async def post(self, body: bytes, path: str = "traces", *, packed: bool = False) -> int:
        """Send an export as an SDK does; the status."""
        json_ = body.lstrip()[:1] == b"{"
        headers = {"Content-Type": "application/json" if json_ else "application/x-protobuf"}
        if packed:
            headers["Content-Encoding"] = "gzip"
        sent = gzip.compress(body, 1) if packed else body
        url = f"{self.url}/v1/{path}"
        async with self.session.post(url, data=sent, headers=headers) as got:
            return got.status

    async def close_all(self) -> None:
        """Let the time pass after which every trace is closed and told."""
        for _ in range(4):
            self.times[0] += SETTINGS.bridge.trace_max_ms
            self.times[1] += 3
            while await self._reads():
                pass

    async def _reads(self) -> bool:
        before = await self.log.committed(READER)
        await self.traces.turn()
        return before != await self.log.committed(READER)

    async def events(self) -> list[Record]:
        """The events."""
        return (await self.log.read({EVENTS: 0}, 1 << 20, 1 << 40))[EVENTS]

    def counted(self, metric: str) -> dict[str, float]:
        """The samples of a metric that are not 0, by their labels."""
        lines = generate_latest(self.registry).decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith(f"{metric}{{"))
        return {labels.removeprefix(metric): float(v) for labels, _, v in found if float(v)}


@asynccontextmanager
async def receiving(folder: Path) -> AsyncIterator[Place]:
    """Such a process over the file in a folder."""
    database, registry = CountedDatabase(folder / "a.db"), CollectorRegistry()
    health = Health(reasons={})
    times = [NOW_MS, 0.0]
    clock = Clock(lambda: int(times[0]), lambda: times[1])
    log, counts = Log(database), ReceiverMetrics(registry, TOPICS)
    retry = ImmediateRetry(health, lambda: None)
    source = LocalSource(log, READER, [SPANS], retry, wait_seconds=0)
    traces = Traces(
        SETTINGS, database, log, registry, health, counts, clock, retry, source, lambda: times[1]
    )
    receiver = Receiver(log, Limits(), Doors(), counts, health, clock.now_ms)
    app = web.Application()
    OtlpReceiver(receiver, log, traces.scores, clock.now_ms).add_to(app)
    server = LimitedServer(app)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{port}"
            yield Place(url, session, database, log, traces, registry, health, times)
    finally:
        await server.stop()
        await database.close()


def replayed(payloads: Sequence[bytes]) -> Counter[tuple[bytes | None, bytes | None]]:
    """The events of a replay of files with these payloads."""
    options = SETTINGS.otlp.options(SETTINGS.labels.grading)
    with TraceStore(SETTINGS.otlp.mapping(), options, SETTINGS.engine_config().limits) as store:
        for payload in payloads:
            store.add_payload(payload)
        return Counter((record.key, record.value) for record in store.records())


def found(records: Sequence[Record]) -> Counter[tuple[bytes | None, bytes | None]]:
    """The keys and values of records."""
    return Counter((record.key, record.value) for record in records)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXPORTS.glob("*.http")))
async def test_what_exporters_in_javascript_send_is_read(tmp_path: Path, name: str) -> None:
    """Each byte as recorded: in chunks without a length, some of them packed."""
    request = (EXPORTS / f"{name}.http").read_bytes()
    assert b"\r\nTransfer-Encoding: chunked\r\n" in request
    async with receiving(tmp_path) as place:
        port = urlsplit(place.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in (request[:300], request[300:]):
            writer.write(part)
            await writer.drain()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
        await place.close_all()
        events = await place.events()

    read = [json.loads(event.value or b"") for event in events]
    searches = [search for event in read for search in event.get("searches", ())]
    assert found(events) == replayed([body_of(request)])
    assert [[one["doc_id"] for one in search["results"]] for search in searches] == [
        ["travel", "expenses"],
        ["travel", "trains"],
    ]


def body_of(request: bytes) -> bytes:
    """The body of a request in chunks, unpacked."""
    head, _, left = request.partition(b"\r\n\r\n")
    body = b""
    while left:
        size, _, left = left.partition(b"\r\n")
        body, left = body + left[: int(size, 16)], left[int(size, 16) + 2 :]
    return gzip.decompress(body) if b"Content-Encoding: gzip" in head else body


@pytest.mark.parametrize("name", rest_long(NAMES, 6))
async def test_events_are_those_of_a_replay_of_the_same_spans(tmp_path: Path, name: str) -> None:
    """Traces of a real framework, sent as its SDK sends them, some of them packed."""
    payloads = gzip.decompress((CAPTURES / f"{name}.jsonl.gz").read_bytes()).splitlines()
    async with receiving(tmp_path) as place:
        for number, payload in enumerate(payloads):
            assert await place.post(payload, packed=number % 2 == 0) == 200
        await place.close_all()

        assert found(await place.events()) == replayed(payloads)
        assert place.traces.open_traces == 0


@pytest.mark.parametrize("encode", [as_json, as_protobuf])
async def test_both_encodings_give_the_same_events(tmp_path: Path, encode: Any) -> None:
    """Spans of several traces, in one export."""
    spans = [*SEARCHED, SpanSpec(2, 1, 0, 0, 9, {**TURN, "session.id": "t"})]
    async with receiving(tmp_path) as place:
        assert await place.post(encode(spans)) == 200
        await place.close_all()

        assert found(await place.events()) == replayed([as_json(spans)])


async def test_a_trace_is_told_once_over_restarts(tmp_path: Path) -> None:
    """Also one that came while another one was open, so that its spans are read again."""
    open_ = as_protobuf([SpanSpec(9, 2, 1, 0, 1, RETRIEVER)])
    async with receiving(tmp_path) as place:
        await place.traces.turn()
        assert await place.post(open_) == 200
        assert await place.post(as_protobuf(SEARCHED)) == 200
        place.times[0] += SETTINGS.bridge.settle_ms + 2_000
        for _ in range(3):
            place.times[1] += 3
            await place.traces.turn()
        assert place.traces.open_traces == 1
        assert (await place.log.committed(READER))[SPANS][0] == 0
        told = found(await place.events())
        assert told
    async with receiving(tmp_path) as place:
        await place.close_all()

        assert found(await place.events()) == told


async def test_a_clock_that_is_set_back_tells_nothing_twice(tmp_path: Path) -> None:
    """Even if spans come late, with earlier times, and are read again with the others."""
    late = [SpanSpec(1, 3, 1, 3, 4, {**RETRIEVER, **documents("c")})]
    async with receiving(tmp_path) as place:
        await place.traces.turn()
        assert await place.post(as_protobuf([SpanSpec(9, 2, 1, 0, 1, RETRIEVER)])) == 200
        assert await place.post(as_protobuf(SEARCHED)) == 200
        place.times[0] += SETTINGS.bridge.settle_ms + 2_000
        for _ in range(3):
            place.times[1] += 3
            await place.traces.turn()
        told = found(await place.events())
        assert told
    async with receiving(tmp_path) as place:
        place.times[0] -= 3_600_000
        assert await place.post(as_protobuf(late)) == 200
        await place.close_all()
        place.times[0] += 3_700_000
        await place.close_all()

        assert found(await place.events()) == told
        assert place.traces.open_traces == 0


async def test_a_trace_is_whole_although_the_clock_is_set_back_before_it(tmp_path: Path) -> None:
    """Its first spans are not taken for old ones, which nothing can follow."""
    async with receiving(tmp_path) as place:
        assert await place.post(as_protobuf(SEARCHED)) == 200
        await place.close_all()
        whole = found(await place.events())
        other = [replace(one, trace=2) for one in SEARCHED]
        place.times[0] -= 3_600_000
        assert await place.post(as_protobuf(other[1:])) == 200
        await place.traces.turn()
        assert await place.post(as_protobuf(other[:1])) == 200
        await place.close_all()

        assert len(found(await place.events())) == 2 * len(whole)


async def test_refusals_are_counted_and_named(tmp_path: Path) -> None:
    """In metrics and on the page, with what helps."""
    lost = [SpanSpec(1, 1, attributes={"db.vector.query": "x"})]
    async with receiving(tmp_path) as place:
        assert await place.post(as_json(lost)) == 200
        assert await place.post(as_json([SpanSpec(0, 1)])) == 200
        await place.close_all()
        counted = place.counted("streammetrics_bridge_refused_total")
        page = place.traces.page.render(reasons=True)
        said = place.traces.page.recent.of_refusals(Worker(OperationsSample(0), History(), {}))

    assert said.level == "warning"
    assert said.why.startswith("0 traces became events in the last 15 minutes; refused: ")
    assert "unrecognised of " in said.why

    reasons = {labels.partition('reason="')[2].rstrip('"}'): n for labels, n in counted.items()}
    assert reasons == {"unrecognised": 1, "bad_id": 1}
    assert "unrecognised" in page
    assert "db.vector.query" in page


@pytest.mark.parametrize(
    "spans",
    [
        [SpanSpec(1, 1, attributes={f"retrieval.documents.{at}.document.id": "d"
                                    for at in range(5_000)} | RETRIEVER)],
        [SpanSpec(1, 1, attributes={f"db.vector.{at}": at for at in range(5_000)})],
        [SpanSpec(1, at, at, attributes=RETRIEVER) for at in range(1, 50)],
        [SpanSpec(1, 1, 2), SpanSpec(1, 2, 1)],
        [SpanSpec(1, 1, 0, -2_000_000_000, -2_000_000_000, TURN), *SEARCHED[1:]],
        [SpanSpec(1, 1, 0, 0, 9, TURN | {"output.value": "[" * 100_000})],
    ],
    ids=["documents", "attributes", "own parents", "cycle", "long ago", "brackets"],
)  # fmt: skip
async def test_hostile_spans_change_nothing_for_others(
    tmp_path: Path, spans: list[SpanSpec]
) -> None:
    """They are accepted, and refused by name; a trace that comes after them is told."""
    good = [
        SpanSpec(7, one.span, one.parent, one.start_ms, one.end_ms, one.attributes)
        for one in SEARCHED
    ]
    async with receiving(tmp_path) as place:
        assert await place.post(as_protobuf(spans)) == 200
        assert await place.post(as_protobuf(good)) == 200
        await place.close_all()

        told = found(await place.events())
    assert told == replayed([as_protobuf(spans), as_protobuf(good)])
    assert told >= replayed([as_protobuf(good)])


# -- scores


def scores(*marks: tuple[int, int, str], trace: int = 1) -> bytes:
    """Log records with a score each: a span, a position, and a label."""
    made = LogsData()
    scope = made.resource_logs.add().scope_logs.add()
    for span, position, label in marks:
        one = scope.log_records.add()
        one.event_name = "gen_ai.evaluation.result"
        one.trace_id, one.span_id = trace.to_bytes(16, "big"), span.to_bytes(8, "big")
        one.time_unix_nano = (NOW_MS + position) * 1_000_000
        for key, value in (("name", "Relevance"), ("score.label", label)):
            part = one.attributes.add()
            part.key, part.value.string_value = f"gen_ai.evaluation.{key}", value
        part = one.attributes.add()
        part.key, part.value.int_value = "position", position
    return bytes(made.SerializeToString())


def labels(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What events with labels say."""
    read = [json.loads(record.value or b"") for record in records]
    return [one for event in read if "labels" in event for one in event["labels"]]


LABELS: Final = [
    {"result_id": f"{2:016x}/1", "gain": 3},
    {"result_id": f"{2:016x}/2", "gain": 3},
]


@pytest.mark.parametrize("when", ["before", "after", "much later"])
async def test_scores_become_labels_whenever_they_come(tmp_path: Path, when: str) -> None:
    """Before their spans, which another exporter sends, or once their trace was told; also in a
    process that starts later."""
    sent = scores((2, 0, "relevant"), (2, 1, "relevant"))
    async with receiving(tmp_path) as place:
        if when == "before":
            assert await place.post(sent, "logs") == 200
            await place.traces.turn()
        assert await place.post(as_protobuf(SEARCHED)) == 200
        await place.close_all()
        if when == "after":
            assert await place.post(sent, "logs") == 200
            await place.traces.turn()
        if when != "much later":
            assert labels(await place.events()) == LABELS
            return
    async with receiving(tmp_path) as place:
        assert await place.post(sent, "logs") == 200
        await place.close_all()

        assert labels(await place.events()) == LABELS


async def test_scores_that_are_no_labels_are_named(tmp_path: Path) -> None:
    """By reason: an unknown grade, a position that no result has, and a span that never came."""
    async with receiving(tmp_path) as place:
        assert await place.post(as_protobuf(SEARCHED)) == 200
        sent = scores((2, 0, "so-so"), (2, 5, "relevant"), (3, 0, "relevant"))
        assert await place.post(sent, "logs") == 200
        await place.close_all()
        counted = place.counted("streammetrics_bridge_refused_total")
        page = place.traces.page.render(reasons=True)

        assert labels(await place.events()) == []
        assert await place.traces.scores.waiting() == {}
    reasons = {one.partition('reason="')[2].rstrip('"}') for one in counted}
    assert reasons == {"label_no_grade", "label_no_document", "label_no_span"}
    assert all(reason in page for reason in reasons)


async def test_a_text_that_a_score_names_is_not_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in the log nor on the page: a score may name a document by what it says."""
    sent = LogsData.FromString(scores((2, 0, "relevant")))
    [record] = sent.resource_logs[0].scope_logs[0].log_records
    record.attributes[-1].key = "document"
    record.attributes[-1].value.string_value = "a secret of the company"
    async with receiving(tmp_path) as place:
        assert await place.post(as_protobuf(SEARCHED)) == 200
        assert await place.post(sent.SerializeToString(), "logs") == 200
        await place.close_all()
        told = place.traces.page.render(reasons=True) + "".join(capfd.readouterr())

    assert "the span did not return a text of 23 characters" in told
    assert "secret" not in told


async def test_a_score_without_its_trace_is_given_up(tmp_path: Path) -> None:
    """After the time that a trace may take."""
    async with receiving(tmp_path) as place:
        assert await place.post(scores((2, 0, "relevant")), "logs") == 200
        await place.traces.turn()
        assert len(await place.traces.scores.waiting()) == 1

        await place.close_all()

        assert await place.traces.scores.waiting() == {}
        [refused] = place.counted("streammetrics_bridge_refused_total")
        assert "label_no_span" in refused


async def test_scores_that_wait_long_keep_no_other_from_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are of traces that never come."""
    monkeypatch.setattr(module, "LOOKED_AT", 2)
    async with receiving(tmp_path) as place:
        for trace in range(2, 7):
            assert await place.post(scores((2, 0, "relevant"), trace=trace), "logs") == 200
        assert await place.post(scores((2, 0, "relevant")), "logs") == 200
        assert await place.post(as_protobuf(SEARCHED)) == 200
        for _ in range(12):
            place.times[0] += module.LOOK_MS
            place.times[1] += 1
            await place.traces.turn()

        assert labels(await place.events()) == LABELS[:1]
        assert await place.log.waiting_scores() == 5


async def test_scores_that_are_given_up_together_hold_nobody_up(tmp_path: Path) -> None:
    """However many traces they are of, they are one transaction."""
    async with receiving(tmp_path) as place:
        for trace in range(2, 22):
            assert await place.post(scores((2, 0, "relevant"), trace=trace), "logs") == 200
        await place.traces.turn()
        place.times[0] += SETTINGS.bridge.trace_max_ms
        before = place.database.asked

        await place.traces.turn()

        assert await place.log.waiting_scores() == 0
        assert place.database.asked - before < 5


async def test_a_score_is_about_the_trace_as_it_was_told(tmp_path: Path) -> None:
    """Spans that came too late make no label of a score of a search that was refused."""
    async with receiving(tmp_path) as place:
        assert await place.post(as_protobuf(SEARCHED[1:])) == 200
        await place.close_all()
        assert await place.post(as_protobuf(SEARCHED[:1])) == 200
        await place.close_all()
        assert await place.post(scores((2, 0, "relevant")), "logs") == 200
        await place.close_all()
        counted = place.counted("streammetrics_bridge_refused_total")

        assert await place.events() == []
    assert any('reason="label_' in one for one in counted)


# -- retention


async def test_old_spans_are_deleted_and_new_ones_are_told_after_a_restart(
    tmp_path: Path,
) -> None:
    """What says which traces have begun stays, without its texts, so that none is left out."""
    bridge = SETTINGS.bridge
    async with receiving(tmp_path) as place:
        for trace in range(1, 4):
            assert await place.post(as_protobuf([SpanSpec(trace, 1, 0, 0, 9, TURN)])) == 200
        await place.close_all()
        place.times[0] += 2 * bridge.known_ms
        retention = Retention({EVENTS: 1 << 40, SPANS: 0}, 1 << 40, bridge.known_ms)
        while await place.log.trim(retention, int(place.times[0])):
            pass
        assert (await place.log.extents([SPANS]))[SPANS] == Extent(2, 3)
        [kept] = (await place.log.read({SPANS: 2}))[SPANS]
        assert kept.value == b'{"resourceSpans":[]}'
        later = place.times[0]
    async with receiving(tmp_path) as place:
        place.times[0] = later
        fresh = [
            SpanSpec(8, one.span, one.parent, one.start_ms, one.end_ms, one.attributes)
            for one in SEARCHED
        ]
        before = len(await place.events())
        assert await place.post(as_protobuf(fresh)) == 200
        await place.close_all()

        assert len(await place.events()) == before + 1
