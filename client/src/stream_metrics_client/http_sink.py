"""The sink of an address that takes events over HTTP, such as that of `stream-metrics serve`.

A request has events as lines of JSON. What the answer refuses has failed; events without an answer
are sent again. They keep their ids, by which they count once.
"""

from __future__ import annotations

import gzip
import http.client
import json
import selectors
import ssl
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from stream_metrics_client.records import Record, Report, SinkOpener, WriteResult

PATH: Final = "/v1/events"
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 30.0
"""For how long a request waits for its answer."""

LOOK_SECONDS: Final = 2.0
"""After how long without an answer the sink says so."""

MAX_PAUSE: Final = 300.0
"""The longest time for which a server can ask for silence, in seconds."""

_BODY_BYTES: Final = 4 << 20
_GZIP_BYTES: Final = 1 << 10
_ANSWER_BYTES: Final = 4 << 20
_SAID_LENGTH: Final = 300


@dataclass(frozen=True)
class HttpTarget:
    """Where events go; `place` names it in messages."""

    host: str
    port: int | None
    path: str
    tls: bool
    token: str | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """Host and port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def http_target(url: str, token: str | None = None) -> HttpTarget:
    """The target of an `http://` or `https://` address; raises `ValueError`."""
    parts = urlsplit(url)
    if "@" in parts.netloc:  # the message must not repeat a password
        raise ValueError("the sink's URL takes no user and password; pass a token")
    try:
        port = parts.port
    except ValueError:
        port = -1
    path = parts.path.rstrip("/")
    if not parts.hostname or port == -1 or parts.query or parts.fragment or not _is_plain(path):
        raise ValueError(f"the sink {url!r} must be http://host:port or https://host:port")
    if token is not None and not (token and _is_plain(token)):
        raise ValueError("the token must be ASCII characters without spaces")
    if not path.endswith(PATH):
        path += PATH
    return HttpTarget(parts.hostname, port, path, parts.scheme == "https", token)


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def make_http_opener(url: str, token: str | None) -> SinkOpener:
    """A function that opens the sink of an address; raises `ValueError`."""
    target = http_target(url, token)
    return lambda report: HttpSink(target, report)


class Answer(NamedTuple):
    """The answer to a request: status, header `Retry-After` or `Location`, and body."""

    status: int
    retry_after: str | None
    location: str | None
    body: Any

    def refused(self, events: int) -> list[tuple[str, str]] | None:
        """Reason and message of each refused event; None if it is no answer about all events."""
        try:
            found = [(str(one["reason"]), str(one["message"])) for one in self.body["refused"]]
            whole = self.body["accepted"] + len(found) == events
        except (KeyError, TypeError, ValueError):
            return None
        return found if whole and self.status in (200, 400) else None

    @property
    def said(self) -> str:
        """What the answer says of its status, to follow the status."""
        said = self.body.get("error") if isinstance(self.body, dict) else None
        return f": {said[:_SAID_LENGTH]}" if isinstance(said, str) and said.isprintable() else ""

    @property
    def pause(self) -> float:
        """For how many seconds the server wants nothing."""
        if self.retry_after is None:
            return 0.0
        try:
            seconds = float(self.retry_after)
        except ValueError:
            try:
                until = parsedate_to_datetime(self.retry_after)
            except ValueError:
                return 0.0
            until = until.replace(tzinfo=until.tzinfo or UTC)
            seconds = (until - datetime.now(UTC)).total_seconds()
        return min(max(0.0, seconds), MAX_PAUSE)


class HttpSink:
    """Sends events to an address, over one connection that is kept."""

    def __init__(
        self,
        target: HttpTarget,
        report: Report,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._target, self._report = target, report
        self._answer_seconds, self._look_seconds = answer_seconds, look_seconds
        self._connection: http.client.HTTPConnection | None = None

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Send records in order, until one request gets no answer about its events."""
        written, left = WriteResult(), deque(_parts(records))
        while left:
            part = left.popleft()
            try:
                answer = self._exchange(part)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                return _kept(written, [part, *left], self._trouble(error))
            refused = answer.refused(len(part))
            if refused is not None:
                for reason, message in refused:
                    written.add_refused(reason, message)
            elif answer.status != 413:
                written.pause = answer.pause
                return _kept(written, [part, *left], self._problem(answer))
            elif len(part) > 1:
                middle = len(part) // 2
                left.extendleft((part[middle:], part[:middle]))
            else:
                written.add_failed(f"{self._target.place} does not take {len(part[0].value)} bytes")
        return written

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- requests -----------------------------------------------------------------------------

    def _exchange(self, part: Sequence[Record]) -> Answer:
        """Send a request, on a new connection if the server has closed the last one meanwhile."""
        body = b"".join(record.value + b"\n" for record in part)
        headers = {"Content-Type": "application/x-ndjson", "User-Agent": "stream-metrics-client"}
        if len(body) >= _GZIP_BYTES:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        if self._target.token is not None:
            headers["Authorization"] = f"Bearer {self._target.token}"
        if self._connection is not None:
            try:
                return self._request(self._connection, body, headers)
            except ConnectionError:
                self.close()
        self._connection = self._connect()
        return self._request(self._connection, body, headers)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._target.host, self._target.port
        connection = (
            http.client.HTTPSConnection(
                host, port, timeout=CONNECT_SECONDS, context=ssl.create_default_context()
            )
            if self._target.tls
            else http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        )
        try:
            connection.connect()
        except ssl.SSLError:
            raise
        except OSError as error:
            raise _Unreachable(error.strerror or str(error)) from error
        connection.sock.settimeout(self._answer_seconds)
        return connection

    def _request(
        self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
    ) -> Answer:
        connection.request("POST", self._target.path, body, headers)
        self._await_answer(connection)
        response = connection.getresponse()
        said = response.read(_ANSWER_BYTES)
        if response.will_close or not response.isclosed():
            self.close()
        try:
            found = json.loads(said)
        except ValueError:
            found = None
        after, location = response.getheader("Retry-After"), response.getheader("Location")
        return Answer(response.status, after, location, found)

    def _await_answer(self, connection: http.client.HTTPConnection) -> None:
        """Wait until an answer begins, and say again and again that none has come."""
        begun = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(connection.sock, selectors.EVENT_READ)
            while not selector.select(self._look_seconds):
                waited = time.monotonic() - begun
                self._report(self._silent(waited))
                if waited >= self._answer_seconds:
                    raise TimeoutError

    # --- why events are kept back -------------------------------------------------------------

    def _silent(self, seconds: float) -> str:
        return f"{self._target.place} has not answered for {seconds:.0f} s"

    def _trouble(self, error: Exception) -> str:
        """A sentence about a request without an answer."""
        place = self._target.place
        match error:
            case _Unreachable():
                return f"nothing answers at {place} ({error})"
            case ssl.SSLError():
                return (
                    f"no TLS with {place} ({error.reason or error}); check the address, and name "
                    "a private authority's certificate in SSL_CERT_FILE"
                )
            case TimeoutError():
                return self._silent(self._answer_seconds)
            case ConnectionError():
                return f"{place} closed the connection before it answered"
            case _:
                return f"{place} does not answer as a web server does ({type(error).__name__})"

    def _problem(self, answer: Answer) -> str:
        """A sentence about an answer that does not say what became of the events."""
        place, status = self._target.place, f"{answer.status}{answer.said}"
        if answer.status == 401:
            token = "no token was given" if self._target.token is None else "the token is wrong"
            return f"{place} wants a token, and {token} ({status}); pass that of serve.token_file"
        if answer.status in (429, 503):
            return f"{place} takes no events for now ({status})"
        if answer.location is not None and 300 <= answer.status < 400:
            return f"{place} names another address ({status}): {answer.location[:_SAID_LENGTH]}"
        if answer.status < 300 or answer.status in (400, 404, 405):
            return (
                f"{place} does not take events at {self._target.path} ({status}); name the OTLP "
                "port of stream-metrics serve"
            )
        return f"{place} answers {status}"


class _Unreachable(OSError):
    """No connection; says why."""


def _parts(records: Sequence[Record]) -> Iterator[list[Record]]:
    """The records in parts that fit into a request; a larger one is a part of its own."""
    part: list[Record] = []
    size = 0
    for record in records:
        size += len(record.value)
        if part and size > _BODY_BYTES:
            yield part
            part, size = [], len(record.value)
        part.append(record)
    if part:
        yield part


def _kept(written: WriteResult, parts: Sequence[Sequence[Record]], reason: str) -> WriteResult:
    """The result with all records of some parts to be sent again."""
    for part in parts:
        for record in part:
            written.add_retry(record, reason)
    return written
