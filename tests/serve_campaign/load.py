"""Clients that send events and traces over HTTP, and send again what was not acknowledged."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import aiohttp

from tests.otlp import SpanSpec, as_json, as_protobuf, documents

CLIENTS: Final = 4
MOST_EVENTS: Final = 40  # of a request
TIMEOUT_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.01
TRICKLE_SECONDS: Final = 0.5
LITTLE: Final = 0.01  # of all
LAST: Final = 0.95
GOES_AWAY: Final = 0.03  # share of requests that are cut first
RETRIEVER: Final = {"openinference.span.kind": "RETRIEVER"}


def trace(number: int, rng: Random) -> list[SpanSpec]:
    """A turn with some searches, in a conversation of its own."""
    root = 100 * number + 1
    session = {"session.id": f"trace-{number}"}
    resource = {"service.name": f"traced-{number % 3}"}
    spans = [
        SpanSpec(number + 1, root, 0, 0, 1_000, {"openinference.span.kind": "AGENT", **session},
                 resource)
    ]  # fmt: skip
    for at in range(rng.randint(1, 5)):
        found = documents(*rng.sample(range(12), rng.randint(1, 6)))
        asked = {**RETRIEVER, "input.value": f"question {at}", **found}
        spans.append(
            SpanSpec(number + 1, root + at + 1, root, 10 * at, 10 * at + 5, asked, resource)
        )
    return spans


class Load:
    """Sends ``events`` and ``traces`` evenly over some seconds; what happened is counted.

    ``accepted`` and ``refused`` are events by the answer of the request that was acknowledged.
    With ``split``, the spans of a trace come in two requests. ``again`` counts requests that were
    sent again, ``cut`` those whose sender went away.
    """

    def __init__(
        self,
        port: int,
        events: Sequence[bytes],
        traces: Sequence[Sequence[SpanSpec]],
        seconds: float,
        rng: Random,
        *,
        split: bool,
    ) -> None:
        self._split = split
        self._port, self._seconds, self._rng = port, seconds, rng
        self._events, self._traces = list(events), list(traces)
        self._numbers = len(events), len(traces)
        self.accepted: list[bytes] = []
        self.refused: list[bytes] = []
        self.told: list[Sequence[SpanSpec]] = []
        self.again = self.cut = self.requests = 0
        self.last_answer = 0.0
        self.ended = False
        self._limit = self._trickled = 0.0
        self.wrong: list[str] = []

    @property
    def share(self) -> float:
        """How much is acknowledged."""
        return (len(self.accepted) + len(self.refused) + len(self.told)) / sum(self._numbers)

    def reached(self, share: float) -> bool:
        """Whether so much is acknowledged, or all has ended."""
        return self.ended or self.share >= share

    def answered_since(self, then: float) -> bool:
        """Whether somebody was answered since a time of the monotonic clock, or all has ended."""
        return self.ended or self.last_answer > then

    async def run(self) -> None:
        """Send all."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(f"http://127.0.0.1:{self._port}", timeout=timeout) as session,
                asyncio.TaskGroup() as clients,
            ):
                for _ in range(CLIENTS):
                    clients.create_task(self._send_events(session))
                    clients.create_task(self._send_traces(session))
        finally:
            self.ended = True

    def open(self, limit: float) -> None:
        """Send this share of all, at most."""
        self._limit = max(self._limit, limit)

    def trickle(self) -> None:
        """Let a little more be sent now and then if all that may be is acknowledged; leave some for
        the end."""
        now = time.monotonic()
        if self.share >= self._limit and now >= self._trickled + TRICKLE_SECONDS:
            self._trickled = now
            self.open(min(self.share + LITTLE, LAST))

    async def _rest(self, number: int, left: Callable[[], int], total: int) -> None:
        """Wait as long as this many take, and until more may be sent.

        What a client has taken is never held back: ``share`` would not get to the limit.
        """
        await asyncio.sleep(self._seconds * number / total * CLIENTS)
        while 1 - left() / total > self._limit:
            await asyncio.sleep(PAUSE_SECONDS)

    async def _send_events(self, session: aiohttp.ClientSession) -> None:
        while self._events:
            size = self._rng.randint(1, MOST_EVENTS)
            await self._rest(size, lambda: len(self._events), self._numbers[0])
            body, self._events = self._events[:size], self._events[size:]
            if not body:
                break  # others were quicker
            status, answer = await self._sent(session, "/v1/events", b"\n".join(body), {})
            places = {one["place"] for one in answer["refused"]}
            if status not in (200, 400) or answer["accepted"] != len(body) - len(places):
                self.wrong.append(f"an answer of {status} to {len(body)} events: {answer}")
            for place, value in enumerate(body, 1):
                (self.refused if place in places else self.accepted).append(value)

    async def _send_traces(self, session: aiohttp.ClientSession) -> None:
        while self._traces:
            await self._rest(1, lambda: len(self._traces), self._numbers[1])
            if not self._traces:
                break
            spans = self._traces.pop()
            at = self._rng.randint(0, len(spans) - 1) if self._split else 0
            for part in filter(None, (spans[at:], spans[:at])):
                as_text = self._rng.random() < 0.5
                kind = "application/json" if as_text else "application/x-protobuf"
                body = as_json(part) if as_text else as_protobuf(part)
                status, answer = await self._sent(
                    session, "/v1/traces", body, {"Content-Type": kind}
                )
                if status != 200 or answer:
                    self.wrong.append(f"an answer of {status} to spans: {answer}")
            self.told.append(spans)

    async def _sent(
        self, session: aiohttp.ClientSession, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """Send until there is an answer that is no wish to be asked again."""
        if self._rng.random() < GOES_AWAY:
            await self._go_away(path, body, headers)
        if self._rng.random() < 0.3:
            body, headers = gzip.compress(body, mtime=0), {**headers, "Content-Encoding": "gzip"}
        while True:
            self.requests += 1
            with suppress(aiohttp.ClientError, TimeoutError, json.JSONDecodeError):
                async with session.post(path, data=body, headers=headers) as answer:
                    if answer.status not in (408, 503):
                        text = await answer.read()
                        self.last_answer = time.monotonic()
                        is_json = answer.content_type == "application/json"
                        said = json.loads(text) if is_json else {"protobuf": text} if text else {}
                        return answer.status, said
            self.again += 1
            await asyncio.sleep(AGAIN_SECONDS)

    async def _go_away(self, path: str, body: bytes, headers: dict[str, str]) -> None:
        """Send a part of the body, or all of it, and do not wait for the answer."""
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(head.encode() + b"\r\n" + body[: self._rng.randint(0, len(body))])
            await writer.drain()
            writer.transport.abort()
            self.cut += 1
