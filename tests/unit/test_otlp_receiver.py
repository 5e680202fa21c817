"""Traces and logs over HTTP as OTLP has it: what is accepted, stored, refused, and how that is
said."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import by_trace, spans_of
from stream_metrics.core.telemetry.otlp.weight import MAX_MESSAGES, is_too_heavy
from stream_metrics.live.health import Health
from stream_metrics.live.local.connections import LimitedServer
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.otlp import JSON_LEVELS, OtlpReceiver
from stream_metrics.live.local.receiver import Answer, Doors, Receiver
from stream_metrics.live.local.scores import Scores
from stream_metrics.live.local.tables import SPANS
from tests.full_disk import files_up_to
from tests.otlp import SpanSpec, as_json, as_protobuf, document
from tests.unit.test_hostile_traces import OTHER_SIGNALS

NOW_MS: Final = 1_718_020_800_000
JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
ENCODINGS: Final = {JSON: as_json, PROTOBUF: as_protobuf}
ONE: Final = [SpanSpec(1, 1, attributes={"a": "b"}), SpanSpec(1, 2, 1)]
SEVERAL: Final = [*ONE, SpanSpec(2, 1), SpanSpec(3, 1), SpanSpec(2, 2, 1)]
STRAY: Final = [*ONE, SpanSpec(0, 1), SpanSpec(0, 2)]


class Seen:
    """What was counted."""

    def __init__(self) -> None:
        self.statuses: list[tuple[str, int]] = []
        self.numbers: list[tuple[int, int]] = []

    def answered(self, path: str, status: int) -> None:
        """See ``Counts``."""
        self.statuses.append((path, status))

    def accepted(self, events: int) -> None:
        """See ``Counts``."""

    def refused(self, reasons: Any) -> None:
        """See ``Counts``."""

    def spans(self, accepted: int, rejected: int) -> None:
        """See ``Counts``."""
        self.numbers.append((accepted, rejected))

    def log_records(self, scores: int, others: int) -> None:
        """See ``Counts``."""
        self.numbers.append((scores, others))


@dataclass
class Answered:
    """An answer."""

    status: int
    body: bytes
    headers: Any


@dataclass
class Place:
    """A receiver that listens, and what is behind it."""

    url: str
    session: aiohttp.ClientSession
    database: Database
    health: Health
    scores: Scores
    seen: Seen

    async def post(
        self, body: Any, kind: str = PROTOBUF, path: str = "traces", **headers: str
    ) -> Answered:
        """The answer to a request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.url}/v1/{path}"
        async with self.session.post(
            url, data=body, headers={"Content-Type": kind, **named}
        ) as got:
            return Answered(got.status, await got.read(), got.headers)

    async def stored(self) -> dict[str, list[bytes]]:
        """The payloads in the log, by the traces that are their keys."""
        found: dict[str, list[bytes]] = {}
        for one in (await Log(self.database).read({SPANS: 0}))[SPANS]:
            assert one.timestamp_ms == NOW_MS
            found.setdefault((one.key or b"").decode(), []).append(one.value or b"")
        return found


@asynccontextmanager
async def receiving(folder: Path, doors: Doors | None = None) -> AsyncIterator[Place]:
    """A receiver on a free port, over a new file."""
    database, health, seen = Database(folder / "a.db"), Health(reasons={}), Seen()
    log, scores = Log(database), Scores(database, lambda: NOW_MS)
    receiver = Receiver(log, Limits(), doors or Doors(), seen, health, lambda: NOW_MS)
    app = web.Application()
    receiver.add_to(app)
    OtlpReceiver(receiver, log, scores, lambda: NOW_MS).add_to(app)
    server = LimitedServer(app)
    port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            yield Place(f"http://127.0.0.1:{port}", session, database, health, scores, seen)
    finally:
        await server.stop()
        await database.close()


async def in_chunks(body: bytes, size: int = 100) -> AsyncIterator[bytes]:
    """A body that is sent without its length."""
    for at in range(0, len(body), size):
        yield body[at : at + size]


def message_of(answer: Answered) -> str:
    """The message of a ``google.rpc.Status`` in the encoding that the answer names."""
    if answer.headers["Content-Type"] == JSON:
        return str(json.loads(answer.body)["message"])
    # Its fields have the numbers and types of those of a Status.
    return str(ExportTracePartialSuccess.FromString(answer.body).error_message)


@pytest.mark.parametrize("kind", ENCODINGS)
@pytest.mark.parametrize("way", ["plain", "gzip", "chunks"])
async def test_spans_are_stored_by_trace(tmp_path: Path, kind: str, way: str) -> None:
    """Before they are accepted; those of one trace as they were sent."""
    one, several = ENCODINGS[kind](ONE), ENCODINGS[kind](SEVERAL)
    headers = {"Content_Encoding": "gzip"} if way == "gzip" else {}
    async with receiving(tmp_path) as place:
        for body in (one, several):
            packed = gzip.compress(body) if way == "gzip" else body
            sent = in_chunks(packed) if way == "chunks" else packed
            answer = await place.post(sent, kind, **headers)
            assert (answer.status, answer.body) == (200, b"{}" if kind == JSON else b"")
            assert answer.headers["Content-Type"] == kind

        stored = await place.stored()

    parts = by_trace(several)
    assert stored.pop(f"{1:032x}") == [one, parts.pop(f"{1:032x}")]
    assert stored == {trace: [part] for trace, part in parts.items()}
    assert place.seen.numbers == [(2, 0), (5, 0)]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b"{}"),
        (JSON, b' {"resourceSpans": []}'),
        (JSON, b'{"resourceSpans":null}'),
        (PROTOBUF, b""),
    ],
)
async def test_an_empty_export_is_accepted(tmp_path: Path, kind: str, body: bytes) -> None:
    """Nothing is stored."""
    async with receiving(tmp_path) as place:
        assert (await place.post(body, kind)).status == 200
        assert await place.stored() == {}


@pytest.mark.parametrize("kind", ENCODINGS)
async def test_spans_of_no_trace_are_told(tmp_path: Path, kind: str) -> None:
    """They are stored, so that the bridge counts them among what it refuses."""
    async with receiving(tmp_path) as place:
        answer = await place.post(ENCODINGS[kind](STRAY), kind)
        stored = await place.stored()

    if kind == JSON:
        found = json.loads(answer.body)["partialSuccess"]
        rejected, why = int(found["rejectedSpans"]), found["errorMessage"]
    else:
        partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        rejected, why = partial.rejected_spans, partial.error_message
    assert (answer.status, rejected) == (200, 2)
    assert "without a trace id" in why
    assert len(spans_of(stored[""][0])) == 2
    assert place.seen.numbers == [(2, 2)]


DEEP: Final = b'{"resourceSpans":' + b"[" * JSON_LEVELS + b"]" * JSON_LEVELS + b"}"


@pytest.mark.parametrize(
    ("body", "kind", "status", "why"),
    [
        (as_json(ONE), "text/plain", 415, "in Content-Type"),
        (as_json(ONE), PROTOBUF, 400, "the body is JSON"),
        (as_protobuf(ONE), JSON, 400, "not OTLP spans in JSON"),
        (b"", JSON, 400, "not OTLP spans in JSON"),
        (b'{"type": "forget"}', JSON, 400, "not OTLP spans in JSON"),
        (as_json(ONE)[:-2], JSON, 400, "incomplete"),
        (as_protobuf(ONE)[:-2], PROTOBUF, 400, "incomplete"),
        (b"junk", PROTOBUF, 400, "not OTLP traces in protobuf"),
        (DEEP, JSON, 400, "levels of nested JSON"),
        (b"[" * 100_000, JSON, 400, "levels of nested JSON"),
        (OTHER_SIGNALS["logs in JSON"], JSON, 400, "send them to /v1/logs"),
        (OTHER_SIGNALS["metrics in JSON"], JSON, 400, "which are not accepted"),
        (OTHER_SIGNALS["gauges"], PROTOBUF, 400, "not OTLP traces"),
        (OTHER_SIGNALS["sums"], PROTOBUF, 400, "metrics, logs or profiles"),
        (OTHER_SIGNALS["logs"], PROTOBUF, 400, "traces"),
        (as_json(ONE).replace(b"traceId", b"trace_id"), JSON, 400, "`traceId` instead"),
        (bytes(3_001), PROTOBUF, 413, "more than 3000 bytes"),
        (as_protobuf([SpanSpec(at, 1) for at in range(1, 12)]), PROTOBUF, 413, "than 10 traces"),
    ],
)  # fmt: skip
async def test_what_is_no_export_is_refused(
    tmp_path: Path, body: bytes, kind: str, status: int, why: str
) -> None:
    """With a status that says that sending it again does not help, and nothing is stored."""
    if len(body) == 100_000:
        body, headers = gzip.compress(body), {"Content_Encoding": "gzip"}
    else:
        headers = {}
    async with receiving(tmp_path, Doors(body_bytes=3_000, events=10)) as place:
        answer = await place.post(body, kind, **headers)

        assert answer.status == status
        assert why in message_of(answer)
        assert answer.headers["Content-Type"] == (PROTOBUF if kind == PROTOBUF else JSON)
        assert "Retry-After" not in answer.headers
        assert await place.stored() == {}
        assert place.seen.statuses == [("/v1/traces", status)]


def within(*fields: int, value: bytes) -> bytes:
    """Protobuf: a value in fields inside each other."""
    for field in reversed(fields):
        length, size = bytearray(), len(value)
        while size > 0x7F:
            length.append(size & 0x7F | 0x80)
            size >>= 7
        value = bytes([field << 3 | 2, *length, size]) + value
    return value


@pytest.mark.parametrize(
    ("kind", "body", "parts"),
    [
        (PROTOBUF, within(1, 2, value=b"\x12\x00" * 50), 52),
        (PROTOBUF, within(1, 2, 2, value=b"\x4a\x00" * 50), 53),
        (PROTOBUF, within(1, 2, 2, 11, value=b"\x1a\x00" * 50), 54),
        (PROTOBUF, within(1, 1, 1, 2, 5, value=b"\x0a\x00" * 50), 55),
        (PROTOBUF, within(1, 2, 2, 9, 2, 6, value=b"\x0a\x02\x12\x00" * 25), 56),
        (PROTOBUF, within(1, 2, 2, value=b"\x09" + bytes(8) + b"\x10\x80\x01\x4a\x00"), 4),
        (JSON, b'{"resourceSpans":[{"scopeSpans":[{"spans":[{},{},{}]}]}]}', 11),
        (PROTOBUF, as_protobuf(ONE), 12),
        (PROTOBUF, as_protobuf(ONE)[:-1], 12),
    ],
)
def test_the_parts_of_a_payload_are_counted_without_decoding_it(
    kind: str, body: bytes, parts: int
) -> None:
    """However they are nested: each takes memory once it is decoded."""
    limits = {"marks": parts} if kind == JSON else {"most": parts}
    below = {name: number - 1 for name, number in limits.items()}

    assert not is_too_heavy(body, "spans", as_json=kind == JSON, **limits)
    assert is_too_heavy(body, "spans", as_json=kind == JSON, **below)


async def test_a_body_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    """With a hundred times its own size, from a thousandth of that on the network."""
    body = within(1, 2, value=b"\x12\x00" * (MAX_MESSAGES + 1))
    async with receiving(tmp_path) as place:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = await place.post(gzip.compress(body), Content_Encoding="gzip")
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert answer.status == 413
    assert "too many parts" in message_of(answer)
    assert grown_kib < 64 << 10


def of_one_resource(kind: str, spans: int, size: int) -> bytes:
    """Spans of as many traces, of one resource with that many bytes."""
    made = TracesData()
    made.resource_spans.add().resource.attributes.add().value.string_value = "r" * size
    for number in range(spans):
        payload = TracesData.FromString(as_protobuf([SpanSpec(number + 1, 1)]))
        made.resource_spans[0].scope_spans.extend(payload.resource_spans[0].scope_spans)
    if kind == PROTOBUF:
        return bytes(made.SerializeToString())
    one = document([SpanSpec(number + 1, 1) for number in range(spans)])
    for each in one["resourceSpans"][1:]:
        one["resourceSpans"][0]["scopeSpans"] += each["scopeSpans"]
    resource = {"attributes": [{"key": "", "value": {"stringValue": "r" * size}}]}
    return json.dumps(
        {"resourceSpans": [one["resourceSpans"][0] | {"resource": resource}]}
    ).encode()


@pytest.mark.parametrize("kind", ENCODINGS)
async def test_a_resource_is_not_copied_to_fill_the_disk(tmp_path: Path, kind: str) -> None:
    """Each trace's payload has its own copy of it."""
    async with receiving(tmp_path, Doors(inflated_bytes=60_000)) as place:
        answer = await place.post(of_one_resource(kind, 7, 10_000), kind)
        assert (answer.status, await place.stored()) == (413, {})
        assert "spans of 7 traces with a large resource" in message_of(answer)

        assert (await place.post(of_one_resource(kind, 5, 10_000), kind)).status == 200
        assert len(await place.stored()) == 5


@pytest.mark.parametrize("kind", ENCODINGS)
async def test_a_large_export_is_accepted(tmp_path: Path, kind: str) -> None:
    """Megabytes of texts, and more spans than an SDK ever sends at once."""
    spans = [SpanSpec(1, at, attributes={"a": "text, {} [] " * 300}) for at in range(1, 1_001)]
    async with receiving(tmp_path) as place:
        body = ENCODINGS[kind](spans)
        assert (await place.post(in_chunks(body, 1 << 16), kind)).status == 200
        assert len(body) > 3 << 20
        assert place.seen.numbers == [(1_000, 0)]


@pytest.mark.parametrize("kind", ENCODINGS)
async def test_a_truncated_export_is_refused_or_has_its_first_spans(
    tmp_path: Path, kind: str
) -> None:
    """Nothing else is ever stored, and the receiver answers the next request."""
    whole = ENCODINGS[kind](ONE)
    async with receiving(tmp_path) as place:
        for length in range(1, len(whole), 7):
            answer = await place.post(whole[:length], kind)
            assert answer.status in (200, 400)
        stored = await place.stored()

    expected = spans_of(whole)
    for values in stored.values():
        for value in values:
            assert expected[: len(found := spans_of(value))] == found


@pytest.mark.parametrize("kind", ENCODINGS)
async def test_a_full_disk_is_said_in_the_encoding_of_the_request(
    tmp_path: Path, kind: str
) -> None:
    """With a time after which to try again."""
    async with receiving(tmp_path) as place:
        with files_up_to(0):
            answer = await place.post(ENCODINGS[kind](ONE), kind)

        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert message_of(answer) == "the disk takes nothing now"
        assert "disk" in place.health.reasons
        assert await place.stored() == {}
        assert (await place.post(ENCODINGS[kind](ONE), kind)).status == 200


async def test_a_backlog_of_spans_is_told(tmp_path: Path) -> None:
    """No more is accepted than the bridge reads."""
    async with receiving(tmp_path, Doors(max_backlog=3)) as place:
        assert (await place.post(as_protobuf(SEVERAL))).status == 200

        answer = await place.post(as_protobuf(ONE))

        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "3 records are stored that were not read yet" in message_of(answer)
        assert "backlog" in place.health.reasons


@pytest.mark.parametrize("path", ["traces", "logs", "events"])
async def test_a_token_guards_every_path(tmp_path: Path, path: str) -> None:
    """Also where exporters send it in ``OTEL_EXPORTER_OTLP_HEADERS``."""
    async with receiving(tmp_path, Doors(token="a secret")) as place:
        assert (await place.post(b"{}", JSON, path)).status == 401
        found = await place.post(b"{}", JSON, path, Authorization="Bearer a secret")

        assert found.status == (400 if path == "events" else 200)


# -- logs


def logs(*records: tuple[str, int, int]) -> LogsData:
    """Log records, each with the name of its event, and the numbers of its trace and span."""
    made = LogsData()
    scope = made.resource_logs.add().scope_logs.add()
    for name, trace, span in records:
        one = scope.log_records.add()
        one.event_name, one.time_unix_nano = name, 0
        one.trace_id = trace.to_bytes(16, "big") if trace else b""
        one.span_id = span.to_bytes(8, "big") if span else b""
        one.body.string_value = "a text"
    return made


async def test_results_of_evaluations_wait_and_others_are_counted(tmp_path: Path) -> None:
    """What names no span can be no label."""
    name = "gen_ai.evaluation.result"
    made = logs((name, 1, 2), ("other", 1, 2), (name, 1, 0), (name, 0, 2), ("", 0, 0), (name, 3, 4))
    async with receiving(tmp_path) as place:
        answer = await place.post(made.SerializeToString(), PROTOBUF, "logs")
        waiting = await place.scores.waiting()

    partial = ExportLogsServiceResponse.FromString(answer.body).partial_success
    assert (answer.status, partial.rejected_log_records) == (200, 2)
    assert {trace[-1]: len(one.ids) for trace, one in waiting.items()} == {"1": 1, "3": 1}
    assert place.seen.numbers == [(2, 2)]


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (as_json(ONE), JSON, "send them to /v1/traces"),
        (as_protobuf(ONE), PROTOBUF, "not OTLP logs in protobuf"),
        (b"{", JSON, "not OTLP logs in JSON"),
        (json.dumps(document(ONE)).encode(), PROTOBUF, "the body is JSON"),
    ],
)
async def test_what_is_no_log_is_refused(tmp_path: Path, body: bytes, kind: str, why: str) -> None:
    """Spans that are sent to the wrong address are not lost in silence."""
    async with receiving(tmp_path) as place:
        answer = await place.post(body, kind, "logs")

        assert (answer.status, why in message_of(answer)) == (400, True), message_of(answer)


async def test_a_bug_is_an_answer(tmp_path: Path) -> None:
    """It names nothing of the request, and says that sending it again does not help."""

    async def take(_: web.Request, body: bytes) -> Answer:
        raise KeyError(body)

    def respond(_: web.Request, answer: Answer) -> web.Response:
        return web.json_response(answer.document, status=answer.status)

    bugs: list[Bug] = []
    database = Database(tmp_path / "a.db")
    receiver = Receiver(
        Log(database), Limits(), Doors(), Seen(), Health(), lambda: NOW_MS, bugs.append
    )
    app = web.Application()
    app.router.add_post("/", receiver.handler(take, respond))
    server = LimitedServer(app)
    port = await server.start("127.0.0.1", 0)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}", data=b"a secret") as got,
    ):
        assert got.status == 500
        assert "secret" not in await got.text()
    await server.stop()
    await database.close()
    assert [bug.kind.partition(" ")[0] for bug in bugs] == ["KeyError"]
