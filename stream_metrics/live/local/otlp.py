"""Receives traces and logs as OTLP over HTTP, and stores them before it answers.

Spans go to the log by trace, as the bridge reads them. Of log records, results of evaluations are
stored until they become labels; others are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from aiohttp import hdrs, web

from stream_metrics.core.events.decode import levels
from stream_metrics.core.telemetry.labels.evaluations import RESULT
from stream_metrics.core.telemetry.otlp.answers import Partial, exported, status
from stream_metrics.core.telemetry.otlp.json_keys import signal_of
from stream_metrics.core.telemetry.otlp.logs import LogRecord, log_records_of
from stream_metrics.core.telemetry.otlp.payloads import by_trace, trace_ids_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError, TooManyCopies
from stream_metrics.core.telemetry.otlp.weight import LIGHT_BYTES, is_too_heavy
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.receiver import Answer, Doors, Receiver, Refused, Respond
from stream_metrics.live.local.scores import Scores
from stream_metrics.live.local.tables import SPANS
from stream_metrics.live.worker.clock import wall_ms

TRACES_PATH: Final = "/v1/traces"
LOGS_PATH: Final = "/v1/logs"
LARGE_BYTES: Final = 1 << 18  # of a body that is decoded beside the event loop
JSON_LEVELS: Final = 200  # of nested objects and lists

_JSON: Final = "application/json"
_PROTOBUF: Final = "application/x-protobuf"
_PATHS: Final = {"spans": TRACES_PATH, "logs": LOGS_PATH}
_SPANS_REJECTED: Final = (
    "spans without a trace id of 16 bytes, which belong to no trace, are not used"
)
_SCORES_REJECTED: Final = f"{RESULT} records without trace id and span id are not used"

T = TypeVar("T")


class OtlpReceiver:
    """Answers exports of traces and logs; ``receiver`` lets requests in.

    ``clock`` is in milliseconds of Unix time.
    """

    def __init__(
        self, receiver: Receiver, log: Log, scores: Scores, clock: Callable[[], int] = wall_ms
    ) -> None:
        self._receiver = receiver
        self._log = log
        self._scores = scores
        self._clock = clock

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        let_in, add = self._receiver.handler, app.router.add_post
        add(TRACES_PATH, let_in(self._traces, _respond("rejectedSpans")))
        add(LOGS_PATH, let_in(self._logs, _respond("rejectedLogRecords")))

    async def _traces(self, request: web.Request, body: bytes) -> Answer:
        doors = self._receiver.doors
        split = await _decoded(request, body, "spans", lambda: _split(body, doors))
        entries, spans, rejected = split or ([], 0, 0)
        if entries:
            storing = self._log.append(SPANS, entries, self._clock, doors.max_backlog)
            await self._receiver.stored(storing)
        self._receiver.counts.spans(spans - rejected, rejected)
        return _accepted(rejected, _SPANS_REJECTED)

    async def _logs(self, request: web.Request, body: bytes) -> Answer:
        records = await _decoded(request, body, "logs", lambda: log_records_of(body)) or []
        found = [one for one in records if one.event == RESULT]
        scores = [self._timed(one) for one in found if one.trace_id and one.span_id]
        if scores:
            storing = self._scores.append(scores, self._receiver.doors.max_backlog)
            await self._receiver.stored(storing)
        self._receiver.counts.log_records(len(scores), len(records) - len(found))
        return _accepted(len(found) - len(scores), _SCORES_REJECTED)

    def _timed(self, record: LogRecord) -> LogRecord:
        """The record, with the time at which it came if it has none."""
        if record.time_ns:
            return record
        return msgspec.structs.replace(record, time_ns=self._clock() * 1_000_000)


def _split(body: bytes, doors: Doors) -> tuple[list[Entry], int, int]:
    """A payload for each trace, and the numbers of spans and of spans without a trace."""
    ids = trace_ids_of(body)
    traces = set(ids)
    if len(traces) > doors.events:
        raise Refused(413, f"spans of more than {doors.events} traces; send fewer at once")
    try:
        parts = {ids[0]: body} if len(traces) == 1 else by_trace(body, doors.inflated_bytes)
    except TooManyCopies as error:
        why = f"spans of {len(traces)} traces with a large resource; send fewer at once"
        raise Refused(413, why) from error
    entries = [Entry(trace.encode(), part) for trace, part in parts.items()]
    return entries, len(ids), ids.count("")


def _accepted(rejected: int, why: str) -> Answer:
    return Answer(200, {"partial": Partial(rejected, why)} if rejected else {})


async def _decoded(
    request: web.Request, body: bytes, signal: str, decode: Callable[[], T]
) -> T | None:
    """What a body of this signal has, None if it is empty; raises ``Refused``."""
    as_json = _is_json(request)

    def checked() -> T | None:
        if as_json and body.translate(None, b" \t\r\n") == b"{}":
            return None
        _check(body, signal, as_json=as_json)
        return decode()

    try:
        if len(body) >= LARGE_BYTES:
            return await asyncio.to_thread(checked)
        return checked()
    except OtlpError as error:
        raise Refused(400, str(error)) from error


def _is_json(request: web.Request) -> bool:
    if request.content_type in (_JSON, _PROTOBUF):
        return request.content_type == _JSON
    raise Refused(415, f"send {_PROTOBUF} or {_JSON}, and say so in Content-Type")


def _check(body: bytes, signal: str, *, as_json: bool) -> None:
    """Raise ``Refused`` unless the body seems to be what the request says."""
    if len(body) >= LIGHT_BYTES and is_too_heavy(body, signal, as_json=as_json):
        raise Refused(413, "the body has too many parts; send less at once")
    found = signal_of(body)
    if not as_json:
        if found is not None:
            raise Refused(400, f"the body is JSON, but Content-Type is {_PROTOBUF}")
        return
    openers = body.count(b"[") + body.count(b"{")
    if openers > JSON_LEVELS and levels(body, JSON_LEVELS) > JSON_LEVELS:
        raise Refused(
            400, f"more than {JSON_LEVELS} levels of nested JSON, or brackets are missing"
        )
    if found == signal:
        return
    if found is None:
        raise Refused(400, f"not OTLP {signal} in JSON")
    where = f"; send them to {_PATHS[found]}" if found in _PATHS else ", which are not accepted"
    raise Refused(400, f"these are OTLP {found}{where}")


def _respond(rejected: str) -> Respond:
    """Write answers in the encoding of the request; ``rejected`` is a key of the answer in JSON."""

    def respond(request: web.Request, answer: Answer) -> web.Response:
        as_json = request.content_type != _PROTOBUF
        error = answer.document.get("error")
        if error is None:
            body = exported(answer.document.get("partial"), rejected, as_json=as_json)
        else:
            body = status(answer.status, error, as_json=as_json)
        headers = {hdrs.CONTENT_TYPE: _JSON if as_json else _PROTOBUF, **answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    return respond
