"""Receives requests over HTTP, and appends the events in them to the log.

The order of effects of a request (each must hold before the next begins):

1. limit    who it comes from, how many there are at once, its size and its time
2. inflate  the body, in steps, up to a limit
3. check    every event; those that are refused are told with place, reason and message
4. append   the others, in one transaction, which other requests share
5. answer   once they are on the disk
"""

from __future__ import annotations

import asyncio
import hmac
import json
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from aiohttp import hdrs, web

from stream_metrics.core.events.bodies import MAX_PARTS, Placed, events_of, has_too_many_parts
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.foreign import with_form
from stream_metrics.core.events.limits import Limits
from stream_metrics.live.local.database import FileDamaged, FileUnavailable
from stream_metrics.live.local.log import Backlog, Entry, Log
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.worker.ahead import AheadDecoder
from stream_metrics.live.worker.clock import wall_ms
from stream_metrics.live.worker.retry import Reasons

EVENTS_PATH: Final = "/v1/events"
CHECKED_AT_ONCE: Final = 100  # events, so that others do not wait long for the event loop
INFLATED_STEP: Final = 4 << 10  # bytes of a body: what follows a short member is copied
PATIENCE_SECONDS: Final = 1.0  # for which a request waits for who reads what came before it
RETRY_SECONDS: Final = 3  # OpenTelemetry's exporters give up after 10: so they try four times
TROUBLED_SECONDS: Final = 15.0  # how long a refused request is a reason on ``/readyz``
_JSON: Final = "application/json; charset=utf-8"
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Doors:
    """What is let in. Bodies are held as they came until it is their turn to be inflated. Those of
    at most ``small_bytes`` then make room for the next, so that they are committed together.

    ``token``, if it is set, is asked for. ``max_backlog`` bounds the records that are still to be
    read.
    """

    token: str | None = None
    max_backlog: int = 100_000
    body_bytes: int = 16 << 20
    inflated_bytes: int = 64 << 20
    held_bytes: int = 128 << 20
    events: int = 100_000
    parts: int = MAX_PARTS
    requests: int = 64
    inflated_at_once: int = 2
    small_bytes: int = 32 << 10
    body_seconds: float = 30.0


class Counts(Protocol):
    """Receives counts; every method is cheap and never raises."""

    def answered(self, path: str, status: int) -> None: ...
    def accepted(self, events: int) -> None: ...
    def refused(self, reasons: Mapping[str, int]) -> None: ...
    def spans(self, accepted: int, rejected: int) -> None: ...
    def log_records(self, scores: int, others: int) -> None: ...


class Answer(NamedTuple):
    """A status, and what the body says. ``retry_seconds`` says when to try again."""

    status: int
    document: Mapping[str, Any]
    retry_seconds: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that HTTP wants for the status."""
        headers: dict[str, str] = {}
        if self.status == 401:
            headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
        if self.retry_seconds is not None:
            headers[hdrs.RETRY_AFTER] = str(self.retry_seconds)
        return headers


class Refused(Exception):
    """The whole request is refused."""

    def __init__(self, status: int, why: str, retry_seconds: int | None = None) -> None:
        super().__init__(why)
        self.answer = Answer(status, {"error": why}, retry_seconds)


Take = Callable[[web.Request, bytes], Awaitable[Answer]]
Respond = Callable[[web.Request, Answer], web.Response]


class Receiver:
    """Answers requests with events, and lets in those of others; ``clock`` is in milliseconds of
    Unix time.

    While requests cannot be stored, ``reasons`` says why.
    """

    def __init__(
        self,
        log: Log,
        limits: Limits,
        doors: Doors,
        counts: Counts,
        reasons: Reasons,
        clock: Callable[[], int] = wall_ms,
        on_bug: Callable[[Bug], None] = lambda _: None,
    ) -> None:
        self._log = log
        self._limits = limits
        self.ahead: AheadDecoder | None = None
        self.doors = doors
        self.counts = counts
        self._reasons = reasons
        self._clock = clock
        self._on_bug = on_bug
        self._requests = self._held_bytes = 0
        self._turns = asyncio.Semaphore(doors.inflated_at_once)
        self._ends: dict[str, asyncio.TimerHandle] = {}  # of reasons

    def add_to(self, app: web.Application) -> None:
        """Add the route to an application."""
        app.router.add_post(EVENTS_PATH, self.handler(self._events, _response))

    def handler(
        self, take: Take, respond: Respond
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A handler of requests whose bodies ``take`` gets, inflated, if they are let in."""

        async def handle(request: web.Request) -> web.Response:
            try:
                self._check(request)
                with self._among_others():
                    answer = await self._take(request, take)
            except Refused as refused:
                answer = refused.answer
            self.counts.answered(request.path, answer.status)
            return respond(request, answer)

        return handle

    # -- 1. and 2. the body ---------------------------------------------------------------------

    def _check(self, request: web.Request) -> None:
        if hdrs.ORIGIN in request.headers:
            raise Refused(403, "requests from web pages are not accepted")
        token = self.doors.token
        if token is not None:
            scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
            known = hmac.compare_digest(
                given.strip().encode("utf-8", "surrogateescape"), token.encode()
            )
            if not known or scheme.lower() != "bearer":
                raise Refused(401, "send the header `Authorization: Bearer` with the token")
        if (request.content_length or 0) > self.doors.body_bytes:
            raise self._too_large()

    def _too_large(self) -> Refused:
        return Refused(413, f"the body has more than {self.doors.body_bytes} bytes; send less")

    @contextmanager
    def _among_others(self) -> Iterator[None]:
        if self._requests >= self.doors.requests:
            raise Refused(503, "too many requests at once", retry_seconds=1)
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def _take(self, request: web.Request, take: Take) -> Answer:
        chunks: list[bytes] = []
        try:
            await self._read(request, chunks)
            await self._log.pace(EVENTS, PATIENCE_SECONDS)
            async with self._turns:
                inflated = await self._inflated(request, b"".join(chunks))
                if len(inflated) > self.doors.small_bytes:
                    return await self._taken(take, request, inflated)
            return await self._taken(take, request, inflated)
        finally:
            self._held_bytes -= sum(map(len, chunks))

    async def _read(self, request: web.Request, chunks: list[bytes]) -> None:
        """Read the body into ``chunks``, which count as held."""
        left = self.doors.body_bytes
        try:
            async with asyncio.timeout(self.doors.body_seconds):
                async for chunk in request.content.iter_any():
                    chunks.append(chunk)
                    self._held_bytes += len(chunk)
                    left -= len(chunk)
                    if left < 0:
                        raise self._too_large()
                    if self._held_bytes > self.doors.held_bytes:
                        raise Refused(503, "too many large requests at once", retry_seconds=1)
        except TimeoutError:
            raise Refused(408, "the body did not arrive in time") from None
        except (ConnectionError, RuntimeError, web.RequestPayloadError):
            raise Refused(400, "the connection ended within the body") from None

    async def _taken(self, take: Take, request: web.Request, body: bytes) -> Answer:
        try:
            return await take(request, body)
        except Refused:
            raise
        except Exception as error:
            self._on_bug(Bug.of(error))
            raise Refused(500, "an error of this process, which its log names") from error

    async def _inflated(self, request: web.Request, body: bytes) -> bytes:
        encoding = request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower()
        if encoding in ("", "identity"):
            return body
        if encoding != "gzip":
            raise Refused(415, "send the body as it is, or with `Content-Encoding: gzip`")
        inflated = await asyncio.to_thread(inflate, body, self.doors.inflated_bytes)
        if inflated is None:
            most = self.doors.inflated_bytes
            raise Refused(413, f"the body inflates to more than {most} bytes; send less")
        return inflated

    # -- 3. to 5. events ------------------------------------------------------------------------

    async def _events(self, _: web.Request, body: bytes) -> Answer:
        if has_too_many_parts(body, self.doors.parts):
            raise Refused(413, "the body has too many parts; send less at once")
        now_ms = self._clock()
        entries: list[Entry] = []
        refusals: list[dict[str, object]] = []
        reasons: Counter[str] = Counter()
        placed, number = events_of(body), 0
        while chunk := list(islice(placed, CHECKED_AT_ONCE)):
            number += len(chunk)
            if number > self.doors.events:
                raise Refused(413, f"more than {self.doors.events} events; send fewer at once")
            for place, bad in self._check_events(chunk, entries, now_ms):
                reasons[bad.reason] += 1
                refusals.append({"place": place, "reason": bad.reason, "message": bad.message})
            await asyncio.sleep(0)
        if not number:
            raise Refused(400, "there is no event in the body")
        if entries:
            await self.stored(self._log.append(EVENTS, entries, now_ms, self.doors.max_backlog))
        self.counts.accepted(len(entries))
        self.counts.refused(reasons)
        document = {"accepted": len(entries), "refused": refusals}
        return Answer(200 if entries else 400, document)

    def _check_events(
        self, chunk: Iterable[Placed], entries: list[Entry], now_ms: int
    ) -> Iterator[tuple[int, BadRecord]]:
        """Add the valid events to ``entries``; the places of the others, and what is wrong."""
        for place, value in chunk:
            found = self._entry(value, now_ms)
            if isinstance(found, BadRecord):
                yield place, found
            else:
                entries.append(found)

    def _entry(self, value: bytes, now_ms: int) -> Entry | BadRecord:
        """The event as an entry of the log, decoded if the loop decodes it alike."""
        if self.ahead is not None:
            with suppress(Exception):  # the loop meets it again, and tells it
                found = self.ahead.decode(value, now_ms)
                if isinstance(found, BadRecord):
                    return found
                return Entry(found.event.conversation_id.encode(), value, None, found)
        event = decode(value, timestamp_ms=now_ms, limits=self._limits)
        if isinstance(event, BadRecord):
            return with_form(event, value)
        return Entry(event.conversation_id.encode(), value)

    async def stored(self, storing: Awaitable[object]) -> None:
        """Wait until something is on the disk; raises ``Refused``."""
        try:
            await storing
        except (FileUnavailable, FileDamaged) as error:
            self._trouble(FileUnavailable.reason, str(error))
            raise Refused(503, "the disk takes nothing now", retry_seconds=RETRY_SECONDS) from error
        except Backlog as error:
            self._trouble("backlog", str(error))
            raise Refused(503, str(error), retry_seconds=RETRY_SECONDS) from error

    def _trouble(self, reason: str, why: str) -> None:
        """Tell why a request was refused, until none is any more."""
        self._reasons.set(reason, why)
        if (end := self._ends.pop(reason, None)) is not None:
            end.cancel()
        loop = asyncio.get_running_loop()
        self._ends[reason] = loop.call_later(TROUBLED_SECONDS, self._reasons.clear, reason)


def inflate(body: bytes, most: int) -> bytes | None:
    """What ``gzip`` has packed, of one or several members; None if that is more than ``most``.

    Raises ``Refused`` if it is not that. No more than ``most`` bytes and one are ever made.
    """
    parts, left, at = list[bytes](), most + 1, 0
    packed, member = memoryview(body), None
    try:
        while at < len(packed):
            step = packed[at : at + INFLATED_STEP]
            member = member or zlib.decompressobj(_GZIP)
            parts.append(member.decompress(step, left))
            left -= len(parts[-1])
            if not left:
                return None
            at += len(step) - len(member.unused_data)
            if member.eof:
                member = None
    except zlib.error:
        raise Refused(400, "the body is no gzip data, as `Content-Encoding` says") from None
    if member is not None:
        raise Refused(400, "the body is no complete gzip data")
    return b"".join(parts)


def _response(_: web.Request, answer: Answer) -> web.Response:
    headers = {hdrs.CONTENT_TYPE: _JSON, hdrs.CACHE_CONTROL: "no-store", **answer.headers}
    body = json.dumps(answer.document).encode() + b"\n"
    return web.Response(status=answer.status, body=body, headers=headers)
