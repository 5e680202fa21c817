"""Events over HTTP: what is accepted, what is refused and how, and what is never half written."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.settings import LogSettings
from stream_metrics.core.events.bodies import events_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.live.health import Health
from stream_metrics.live.local.connections import LimitedServer
from stream_metrics.live.local.database import Database, Job, T
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.receiver import (
    INFLATED_STEP,
    Doors,
    Receiver,
    Refused,
    inflate,
)
from stream_metrics.live.local.tables import EVENTS
from tests.full_disk import files_up_to
from tests.unit.test_bad_input import OK, TABLE, Row

NOW_MS = 1_718_020_800_000
PATH = "/v1/events"


def event(number: int, **changes: Any) -> bytes:
    """A small valid event."""
    kept = {
        "type": "forget",
        "event_id": f"e{number}",
        "occurred_at": NOW_MS // 1000,
        "conversation_id": f"c{number}",
    }
    return json.dumps(kept | changes).encode()


GOOD = [event(number) for number in range(5)]
BAD = event(9, event_id=7)


@dataclass
class Seen:
    """What was counted."""

    statuses: list[int] = field(default_factory=list)
    events: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def answered(self, path: str, status: int) -> None:
        """See ``Counts``."""
        assert path == PATH
        self.statuses.append(status)

    def accepted(self, events: int) -> None:
        """See ``Counts``."""
        self.events += events

    def refused(self, reasons: Mapping[str, int]) -> None:
        """See ``Counts``."""
        self.reasons.update(reasons)

    def spans(self, accepted: int, rejected: int) -> None:
        """See ``Counts``."""

    def log_records(self, scores: int, others: int) -> None:
        """See ``Counts``."""


class CountedDatabase(Database):
    """Counts who waits for the writer."""

    waiting = 0

    async def write(self, job: Job[T]) -> T:
        """See ``Database.write``."""
        self.waiting += 1
        try:
            return await super().write(job)
        finally:
            self.waiting -= 1


@dataclass
class Place:
    """A receiver that listens, and what is behind it."""

    url: str
    port: int
    session: aiohttp.ClientSession
    database: CountedDatabase
    health: Health
    seen: Seen

    async def post(self, body: bytes, **headers: str) -> tuple[int, Any]:
        """The status and the document of an answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(self.url, data=BytesIO(body), headers=named) as answer:
            return answer.status, await answer.json()

    async def stored(self) -> list[bytes | None]:
        """The values in the log."""
        return [r.value for r in (await Log(self.database).read({EVENTS: 0}))[EVENTS]]


@asynccontextmanager
async def receiving(
    folder: Path, doors: Doors | None = None, **connections: Any
) -> AsyncIterator[Place]:
    """A receiver on a free port, over a new file."""
    database, health, seen = CountedDatabase(folder / "a.db"), Health(reasons={}), Seen()
    receiver = Receiver(Log(database), Limits(), doors or Doors(), seen, health, lambda: NOW_MS)
    app = web.Application()
    receiver.add_to(app)
    server = LimitedServer(app, **connections)
    port = await server.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}{PATH}"
    try:
        async with aiohttp.ClientSession() as session:
            yield Place(url, port, session, database, health, seen)
    finally:
        await server.stop()
        await database.close()


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (GOOD[0], GOOD[:1]),
        (b"\xef\xbb\xbf  " + GOOD[0] + b"\r\n", GOOD[:1]),
        (json.dumps(json.loads(GOOD[0]), indent=1).encode(), None),
        (b"[" + b" ,\n".join(GOOD) + b"]", GOOD),
        (b"\n".join(GOOD), GOOD),
        (b"\r\n\r\n".join(GOOD) + b"\r\n", GOOD),
    ],
    ids=["object", "white space", "indented", "array", "lines", "blank lines"],
)
@pytest.mark.parametrize("packed", [False, True])
async def test_events_are_stored_as_they_were_sent(
    tmp_path: Path, body: bytes, taken: list[bytes] | None, packed: bool
) -> None:
    """One object, an array, or one a line; packed by gzip or not."""
    taken = [body] if taken is None else taken
    async with receiving(tmp_path) as place:
        sent = gzip.compress(body) if packed else body
        headers = {"Content_Encoding": "gzip"} if packed else {}

        assert await place.post(sent, **headers) == (200, {"accepted": len(taken), "refused": []})

        assert await place.stored() == taken
        assert (place.seen.statuses, place.seen.events) == ([200], len(taken))


@pytest.mark.parametrize("separator", [b",", b"\n"])
async def test_what_is_refused_is_named_and_the_rest_is_stored(
    tmp_path: Path, separator: bytes
) -> None:
    """Each with its number or line, a reason and a message."""
    body = separator.join([GOOD[0], BAD, GOOD[1], b"{}"])
    async with receiving(tmp_path) as place:
        status, told = await place.post(b"[" + body + b"]" if separator == b"," else body)

        assert status == 200
        assert told["accepted"] == 2
        refused = [(one["place"], one["reason"]) for one in told["refused"]]
        assert refused == [(2, "invalid"), (4, "unknown_type")]
        assert "event_id" in told["refused"][0]["message"]
        assert await place.stored() == GOOD[:2]
        assert place.seen.reasons == {"invalid": 1, "unknown_type": 1}


@pytest.mark.parametrize("cut", [b'{"cut": ', b"[1", b"\xff"])
async def test_a_line_that_is_no_json_takes_no_other_line_with_it(
    tmp_path: Path, cut: bytes
) -> None:
    """Also where it is the first, as of a file that was cut."""
    async with receiving(tmp_path) as place:
        status, told = await place.post(cut + b"\n" + GOOD[0])

        assert (status, told["accepted"]) == (200, 1)
        assert [(one["place"], one["reason"]) for one in told["refused"]] == [(1, "not_json")]
        assert await place.stored() == GOOD[:1]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (BAD, "invalid"),
        (b"[" + GOOD[0], "not_json"),
        (b"[" + GOOD[0] + b",]", "not_json"),
        (b"{\n" + GOOD[0][1:-1], "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 2_000 + b"]" * 2_000, "too_deep"),
        (b"12", "invalid"),
        (b'{"resourceSpans": []}', "unknown_type"),
    ],
)
async def test_a_request_without_a_valid_event_is_refused(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    """A broken array has none: nobody can tell what was meant."""
    async with receiving(tmp_path) as place:
        status, told = await place.post(body)

        assert (status, told["accepted"]) == (400, 0)
        assert [(one["place"], one["reason"]) for one in told["refused"]] == [(1, reason)]
        assert await place.stored() == []


async def test_every_hostile_record_gets_its_reason(tmp_path: Path) -> None:
    """The table of part 1, in one request for each; a value is never quoted."""
    rows = [row for row in TABLE if _can_be_sent(row)]
    assert len(rows) > 100
    async with receiving(tmp_path) as place:
        for row in rows:
            assert row.value is not None
            _, told = await place.post(row.value)
            reasons = [one["reason"] for one in told["refused"]]
            assert reasons == ([] if row.expected == OK else [row.expected]), row.name


def _can_be_sent(row: Row) -> bool:
    """Whether the row is about a value alone, which no rule on bodies takes apart."""
    if row.value is None or row.key is not None or row.require_key:
        return False
    bare = row.value.strip()
    return row.timestamp_ms == NOW_MS and bool(bare) and bare[:1] not in (b"[", b"\xef")


GZIPPED_ZEROS = gzip.compress(bytes(5_001), mtime=0)
CUT = gzip.compress(GOOD[0], mtime=0)[:-9]


@pytest.mark.parametrize(
    ("body", "headers", "status", "why"),
    [
        (b"", {}, 400, "no event in the body"),
        (b" \n", {}, 400, "no event in the body"),
        (b"[]", {}, 400, "no event in the body"),
        (bytes(2_001), {}, 413, "more than 2000 bytes"),
        (GZIPPED_ZEROS, {"Content_Encoding": "gzip"}, 413, "more than 5000 bytes"),
        (b"\n".join([b"1"] * 11), {}, 413, "more than 10 events"),
        (b"[%s]" % (b"1," * 31), {}, 413, "too many parts"),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400, "no gzip data"),
        (CUT, {"Content_Encoding": "gzip"}, 400, "no complete gzip data"),
        (GOOD[0], {"Content_Encoding": "br"}, 415, "with `Content-Encoding: gzip`"),
        (GOOD[0], {"Origin": "https://example.org"}, 403, "from web pages"),
    ],
)
async def test_a_body_that_is_not_let_in_is_refused_as_a_whole(
    tmp_path: Path, body: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    """Each limit has its status and says what to do; the next request is answered as ever."""
    doors = Doors(body_bytes=2_000, inflated_bytes=5_000, events=10, parts=31)
    async with receiving(tmp_path, doors) as place:
        answer = await place.post(body, **headers)

        assert answer[0] == status
        assert why in answer[1]["error"]
        assert await place.post(GOOD[0]) == (200, {"accepted": 1, "refused": []})
        assert place.seen.statuses == [status, 200]
        assert await place.stored() == GOOD[:1]


async def test_numbers_in_an_array_do_not_fill_the_memory(tmp_path: Path) -> None:
    """Each would take fifty times its size; a sender packs them into a thousandth."""
    body = gzip.compress(b"[" + b"1," * (16 << 20) + b"1]", 1)
    async with receiving(tmp_path) as place:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        status, document = await place.post(body, Content_Encoding="gzip")
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert (status, document["error"]) == (413, "the body has too many parts; send less at once")
    assert grown_kib < 160 << 10


@pytest.mark.parametrize(
    ("body", "places"),
    [
        (b"x\n" * 3_000_000, [1]),
        (b"x\n" * 3_000_000 + GOOD[0], None),
        (b"{x\n" * 150_000, None),
    ],
    ids=["none", "the last line", "what begins like one"],
)
def test_lines_are_looked_for_quickly(body: bytes, places: list[int] | None) -> None:
    """A body of millions of lines is one broken event unless a line is an object."""
    found = [one.place for one in islice(events_of(body), 3)]

    assert found == (places or [1, 2, 3])


def test_no_more_is_inflated_than_is_let_in() -> None:
    """Also over several members, which gzip allows, and where the limit is met exactly."""
    bomb = gzip.compress(bytes(50 << 20))

    assert inflate(bomb, 1_000) is None
    assert inflate(gzip.compress(bytes(600)) * 2, 1_000) is None
    assert inflate(gzip.compress(bytes(500)) * 2, 1_000) == bytes(1_000)


def test_members_of_gzip_are_joined_wherever_a_step_ends() -> None:
    """Also empty ones, of which a body can have hundreds of thousands: each step is read once."""
    parts = [bytes(range(256)) * number for number in (0, 1, 40, 0, 900)]
    packed = b"".join(gzip.compress(part, 0) for part in parts)
    for step in range(len(packed) - 3 * INFLATED_STEP, len(packed), 509):
        assert inflate(gzip.compress(bytes(step), 0) + packed, 1 << 30) == bytes(step) + b"".join(
            parts
        )

    assert inflate(gzip.compress(b"") * 20_000 + packed, 1 << 30) == b"".join(parts)
    with pytest.raises(Refused, match="no complete gzip data"):
        inflate(packed[:-1], 1 << 30)


async def test_a_token_is_asked_for(tmp_path: Path) -> None:
    """Where one is set, nothing is read without it."""
    async with receiving(tmp_path, Doors(token="a secret")) as place:
        for wrong in ({}, {"Authorization": "Bearer a"}, {"Authorization": "Basic a secret"}):
            status, told = await place.post(GOOD[0], **wrong)
            assert (status, "secret" in str(told)) == (401, False)
        async with place.session.post(place.url, data=GOOD[0]) as answer:
            assert answer.headers["WWW-Authenticate"] == "Bearer"

        for right in ("Bearer a secret", "bearer  a secret"):
            assert (await place.post(GOOD[0], Authorization=right))[0] == 200


async def test_a_full_disk_is_no_answer_of_success(tmp_path: Path) -> None:
    """The sender may try again later; /readyz says why, and nothing is half written."""
    async with receiving(tmp_path) as place:
        with files_up_to(0):
            async with place.session.post(place.url, data=b"\n".join(GOOD)) as answer:
                status, again = answer.status, answer.headers["Retry-After"]

        assert (status, again) == (503, "5")
        assert "the disk" in place.health.reasons["disk"]
        assert not place.health.ready
        assert await place.stored() == []
        assert (await place.post(b"\n".join(GOOD)))[0] == 200
        assert await place.stored() == GOOD


async def test_a_backlog_is_told(tmp_path: Path) -> None:
    """No more is accepted than is read."""
    async with receiving(tmp_path, Doors(max_backlog=4)) as place:
        assert (await place.post(b"\n".join(GOOD[:4])))[0] == 200

        status, told = await place.post(GOOD[4])

        assert status == 503
        assert told == {"error": "4 records are stored that were not read yet"}
        assert place.health.reasons == {"backlog": told["error"]}


async def test_no_more_requests_at_once_than_are_let_in(tmp_path: Path) -> None:
    """The others are told to come again, while one has not sent its body."""
    async with receiving(tmp_path, Doors(requests=1)) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head(5) + b"{")
        while (answer := await place.post(GOOD[0]))[0] == 200:
            pass  # until the first one was heard

        assert answer == (503, {"error": "too many requests at once"})
        writer.write(b"    ")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        assert (await place.post(GOOD[0]))[0] == 200
        writer.close()


async def test_small_requests_that_arrive_together_share_a_commit(tmp_path: Path) -> None:
    """All of them wait for the disk at once, however few bodies are inflated at once."""
    async with receiving(tmp_path, Doors(inflated_at_once=1)) as place:
        free = threading.Event()
        busy = asyncio.create_task(place.database.write(lambda _: free.wait(10)))
        posts = [asyncio.create_task(place.post(one)) for one in GOOD]
        async with asyncio.timeout(10):
            while place.database.waiting < 1 + len(GOOD):
                await asyncio.sleep(0)
        free.set()

        assert await busy
        assert {status for status, _ in await asyncio.gather(*posts)} == {200}


async def test_a_body_that_does_not_arrive_is_given_up(tmp_path: Path) -> None:
    """Nothing of it is stored."""
    async with receiving(tmp_path, Doors(body_seconds=0.02)) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head(len(GOOD[0]) + 1) + GOOD[0])

        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
        await writer.wait_closed()
        assert await place.stored() == []


async def test_a_sender_that_goes_away_in_the_middle_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of its body, nor of its place among the requests, nor in the log of the process."""
    async with receiving(tmp_path, Doors(requests=1)) as place:
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(head(len(GOOD[0]) + 1) + GOOD[0])
            await writer.drain()
            writer.transport.abort()
        while (await place.post(GOOD[1]))[0] != 200:
            pass  # until the last one was noticed

        assert GOOD[0] not in await place.stored()
    assert caplog.text == ""


async def test_what_a_malformed_request_says_is_not_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither texts behind a length that is too small, nor a token in a header that is none."""
    configure_logs(LogSettings())
    async with receiving(tmp_path) as place:
        for head_ in (head(len(GOOD[0]) - 9), head(9, "Authorization: Bearer c0\x01\r\n")):
            reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
            writer.write(head(len(GOOD[0])) + GOOD[0])
            assert (await reader.readuntil(b"]}\n")).startswith(b"HTTP/1.1 200")
            writer.write(head_ + GOOD[0])
            assert b"400 Bad Request" in await reader.read()
            writer.close()

    said = capfd.readouterr().err
    assert "Error handling request from 127.0.0.1: BadHttpMethod" in said
    assert "Error handling request from 127.0.0.1: BadHttpMessage" in said
    assert "c0" not in said


@pytest.mark.parametrize("said", [b"", b"POST /v1/events HTTP/1.1\r\nHost: x\r\nX-A: "])
async def test_a_silent_connection_is_closed(tmp_path: Path, said: bytes) -> None:
    """Also one that has begun to send headers."""
    async with receiving(tmp_path, silent_seconds=0.02) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(said)

        assert await reader.read() == b""
        writer.close()


async def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """However many say nothing: for each further one, the oldest of them is closed."""
    async with receiving(tmp_path, max_connections=3) as place:
        held = [await asyncio.open_connection("127.0.0.1", place.port) for _ in range(9)]

        assert (await place.post(GOOD[0]))[0] == 200

        for reader, writer in held[:6]:
            assert await reader.read() == b""
            writer.close()
        for _, writer in held[6:]:
            writer.close()


async def test_a_request_under_way_is_not_interrupted_by_others(tmp_path: Path) -> None:
    """Its connection is the oldest, but it is not silent: only its body is slow."""
    async with receiving(tmp_path, max_connections=1) as place:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(head(len(GOOD[0]), "Expect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        other, another = await asyncio.open_connection("127.0.0.1", place.port)
        assert await other.read() == b""
        another.close()
        writer.write(GOOD[0])

        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


def head(length: int, more: str = "") -> bytes:
    """The headers of a request with a body of that many bytes."""
    return f"POST {PATH} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {length}\r\n\r\n".encode()
