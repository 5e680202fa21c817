"""Sends events over HTTP to `POST /v1/events`, for ``stream-metrics send --to``.

Events without an answer are sent again with the same ids, by which they count once.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from stream_metrics.cli.common import UsageError

PATH: Final = "/v1/events"
BODY_BYTES: Final = 4 << 20
BODY_EVENTS: Final = 500
ANSWER_SECONDS: Final = 30.0
ATTEMPTS: Final = 6
FIRST_PAUSE: Final = 0.25
MAX_PAUSE: Final = 60.0
_PASSING: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class Refusal(NamedTuple):
    """An event that the server refused: its position among those sent, from 0, and why."""

    position: int
    why: str


class _Again(Exception):
    """A request is to be repeated after ``pause`` seconds; says why."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


@dataclass
class HttpSender:
    """Sends to an address; raises ``UsageError`` for one that is none.

    ``note`` is told why a request is repeated.
    """

    to: str
    token: str | None = field(default=None, repr=False)
    note: Callable[[str], None] = lambda _: None
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self.url, self._place = _address(self.to)

    async def send(self, values: Sequence[bytes]) -> list[Refusal]:
        """Send events in order; returns those that the server refused.

        Raises ``UsageError``, which says what to do, if the server does not take them.
        """
        refused: list[Refusal] = []
        headers = {"Content-Type": "application/x-ndjson"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=ANSWER_SECONDS)
        done = 0
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            for part in _parts(values):
                try:
                    found = await self._part(session, part)
                except UsageError as error:
                    if not done:
                        raise
                    raise UsageError(
                        f"{error}. {done:,} of {len(values):,} events were taken before. Send them "
                        "all again: each counts once, by its id"
                    ) from error
                refused += (Refusal(done + position, why) for position, why in found)
                done += len(part)
        return refused

    async def _part(self, session: aiohttp.ClientSession, part: list[bytes]) -> list[Refusal]:
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._request(session, part)
            except _Again as again:
                if attempt == ATTEMPTS:
                    raise UsageError(f"--to {self.to}: {again}, {ATTEMPTS} times") from again
                self.note(f"{again}; sending again")
                await self.pause(max(pause, again.pause))
                pause *= 2
        raise AssertionError("unreachable")

    async def _request(self, session: aiohttp.ClientSession, part: list[bytes]) -> list[Refusal]:
        body = gzip.compress(b"".join(value.replace(b"\n", b" ") + b"\n" for value in part), 1)
        headers = {"Content-Encoding": "gzip"}
        place = self._place
        try:
            async with session.post(
                self.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return _outcome(response, await _json(response), len(part), self.to, place)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
            raise UsageError(
                f"--to {self.to}: no TLS with {place} ({error}); check the address, and name a "
                "private authority's certificate in SSL_CERT_FILE"
            ) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UsageError(
                f"--to {self.to}: nothing answers at {place} ({_reason(error)}); start "
                "`stream-metrics serve` there, or correct the address"
            ) from error
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            raise _Again(f"{place} has not answered for {ANSWER_SECONDS:.0f} s") from error
        except (ConnectionError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise _Again(f"{place} closed the connection before it answered") from error
        except aiohttp.ClientError as error:
            raise UsageError(
                f"--to {self.to}: {place} does not answer as a web server does; check the address"
            ) from error


def _reason(error: Exception) -> str:
    """What the system says of a connection that could not be made."""
    number = getattr(error, "errno", None)
    if number is not None and number > 0:  # asyncio words these itself
        return os.strerror(number)
    return getattr(error, "strerror", None) or "timed out"


def _address(to: str) -> tuple[str, str]:
    """The URL of events at an address, and its host and port; raises ``UsageError``."""
    parts = urlsplit(to)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if "@" in parts.netloc:
        raise UsageError(
            "--to takes no user and password; serve.token_file names the file of a token"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.query:
        raise UsageError(f"--to {to}: write http://host:port or https://host:port")
    path = parts.path.rstrip("/")
    path = path if path.endswith(PATH) else path + PATH
    return f"{parts.scheme}://{parts.netloc}{path}", parts.netloc


def _parts(values: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The events in parts that fit into a request; a larger one is a part of its own."""
    part: list[bytes] = []
    size = 0
    for value in values:
        size += len(value)
        if part and (size > BODY_BYTES or len(part) == BODY_EVENTS):
            yield part
            part, size = [], len(value)
        part.append(value)
    if part:
        yield part


async def _json(response: aiohttp.ClientResponse) -> Any:
    try:
        return json.loads(await response.read())
    except ValueError:
        return None


def _outcome(
    response: aiohttp.ClientResponse, body: Any, events: int, to: str, place: str
) -> list[Refusal]:
    """What the server refused; raises if the answer is not about all events."""
    status = response.status
    if status in (200, 400):
        try:
            found = [
                Refusal(one["place"] - 1, f"{one['reason']}: {one['message']}")
                for one in body["refused"]
            ]
            if body["accepted"] + len(found) == events:
                return found
        except (KeyError, TypeError):
            pass
    said = body.get("error") if isinstance(body, dict) else None
    told = f"{status}: {said}" if isinstance(said, str) else f"{status}"
    if status in _PASSING:
        raise _Again(f"{place} takes no events for now ({told})", _seconds(response))
    if status == HTTPStatus.UNAUTHORIZED:
        todo = f"{place} wants a token ({told}); name a file with it in serve.token_file"
    elif status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        todo = f"{place} does not take a request of {events:,} events ({told}); raise its limit"
    else:
        todo = (
            f"{place} does not take events at {PATH} ({told}); name the OTLP port of "
            "`stream-metrics serve`"
        )
    raise UsageError(f"--to {to}: {todo}")


def _seconds(response: aiohttp.ClientResponse) -> float:
    """For how many seconds the server wants nothing, up to ``MAX_PAUSE``."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), MAX_PAUSE) if text.isdecimal() else 0.0
