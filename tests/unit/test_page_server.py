"""The page's routes on a real server: their answers, limits and ends."""

from __future__ import annotations

import asyncio
import base64
import importlib.resources
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from deploy.local.waiting import wait_until
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.auth import hash_password
from stream_metrics.live.page import worst
from stream_metrics.live.page.worst import MAX_WAITING, TooManyRequests
from stream_metrics.live.ports import BatchWrite, ConversationWrite
from stream_metrics.live.settings import WebSettings
from tests.page import Showcase
from tests.unit.test_worst import searched

EVENTS = (
    searched("c-1", 1, ["a", "b"], agent="first"),
    searched("c-1", 2, ["a", "c"], agent="first"),
    searched("c-2", 1, ["a", "a", "a"] * 4, agent="second"),
)
HOSTILE = "<img src=x onerror=alert(1)>"
API = ("/api/state", "/api/stream", "/api/worst")


@asynccontextmanager
async def asking(showcase: Showcase, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the served page."""
    async with (
        showcase.served(**options) as address,
        aiohttp.ClientSession(address, timeout=aiohttp.ClientTimeout(total=30)) as session,
    ):
        yield session


async def documents(answer: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    """The first documents of a stream."""
    found: list[dict[str, Any]] = []
    async for line in answer.content:
        if line.startswith(b"data: "):
            found.append(json.loads(line.removeprefix(b"data: ")))
            if len(found) == count:
                break
    return found


async def test_the_page_and_its_files_are_served() -> None:
    """This worker serves every file to which the page or its scripts refer."""
    async with asking(await Showcase.new()) as client:
        wanted, seen = {"/"}, set[str]()
        while wanted - seen:
            path = (wanted - seen).pop()
            seen.add(path)
            async with client.get(path) as answer:
                text = await answer.text()
                assert answer.status == 200, path
                if path not in ("/metrics", "/readyz", "/healthz"):
                    policy = answer.headers["Content-Security-Policy"]
                    assert "default-src 'none'" in policy
                    assert "unsafe" not in policy
            if path == "/" or path.endswith(".js"):
                named = re.findall(r'(?:\b(?:src|href)=|^import .* from )"([^"#]+)"', text, re.M)
                wanted |= {"/" + name.removeprefix("./") for name in named}

    assert {"/", "/page.css", "/page.js", "/charts.js", "/metrics", "/readyz"} <= seen


async def test_the_page_has_nothing_inline_or_external() -> None:
    """It has no script, style or handler in its HTML, and no address of another host."""
    folder = importlib.resources.files("stream_metrics.live.page") / "static"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//cdn" not in text
        assert not re.search(r"https?://", text), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    html = (folder / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son[a-z]+=|<script(?![^>]* src=)", html)


async def test_an_unchanged_file_is_not_sent_again() -> None:
    """A client that sends its ETag gets a 304."""
    async with asking(await Showcase.new()) as client:
        async with client.get("/page.css") as answer:
            tag = answer.headers["ETag"]
        async with client.get("/page.css", headers={"If-None-Match": tag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")


async def test_the_state_is_json() -> None:
    """It is the document of a window and an agent, and is not cached."""
    async with (
        asking(await Showcase.new(*EVENTS)) as client,
        client.get("/api/state", params={"window": "5m", "agent": "first"}) as answer,
    ):
        body = await answer.json()

    assert answer.headers["Cache-Control"] == "no-store"
    assert (body["window"], body["agent"], body["sums"]["results"]) == ("5m", "first", 4)
    assert (body["partitions"]["owned"], body["partitions"]["total"]) == (1, 4)


@pytest.mark.parametrize("path", API)
@pytest.mark.parametrize("query", [{"window": "2h"}, {"agent": "x" * 65}])
async def test_invalid_parameters_are_a_400(path: str, query: dict[str, str]) -> None:
    """The answer in JSON says what is wrong."""
    async with (
        asking(await Showcase.new()) as client,
        client.get(path, params=query) as answer,
    ):
        assert answer.status == 400
        assert (await answer.json())["error"]


async def test_hostile_names_stay_data() -> None:
    """An agent's name is a JSON string, with a content type that no browser renders as a page."""
    showcase = await Showcase.new(searched(HOSTILE, 1, ["a"] * 12, agent=HOSTILE))
    async with asking(showcase) as client:
        for path in ("/api/state", "/api/worst"):
            async with client.get(path, params={"agent": HOSTILE}) as answer:
                assert answer.content_type == "application/json"
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert (await answer.json())["agent"] == HOSTILE


async def test_the_stream_sends_documents() -> None:
    """Each event is a complete document; later ones have later data."""
    showcase = await Showcase.new(*EVENTS)
    async with (
        asking(showcase) as client,
        client.get("/api/stream", params={"window": "1h"}) as answer,
    ):
        (first,) = await documents(answer, 1)
        await showcase.take([searched("c-3", 1, ["a", "b"])])

        async def later() -> bool:
            (document,) = await documents(answer, 1)
            return bool(document["sums"]["results"] == first["sums"]["results"] + 2)

        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        await wait_until(later, 10, "the stream does not tell of new results")


async def test_streams_are_capped() -> None:
    """A client beyond the limit gets an error until another has left."""
    showcase = await Showcase.new(max_streams=2)
    async with asking(showcase) as client:
        first, second = [await client.get("/api/stream") for _ in range(2)]
        async with client.get("/api/stream") as third:
            assert third.status == 503
            assert "Retry-After" in third.headers
        async with client.get("/api/state") as asked:
            assert asked.status == 200

        first.close()

        async def admitted() -> bool:
            async with client.get("/api/stream") as again:
                return again.status == 200

        await wait_until(admitted, 10, "a place that is free is not given")
        second.close()


async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    """Its place becomes free, and its buffer stays bounded."""
    showcase = await Showcase.new(*EVENTS, max_streams=1, interval_seconds=0.0, write_seconds=0.1)
    async with asking(showcase) as client:
        address = urlsplit(str(client._base_url))
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(silent, (address.hostname, address.port))
        await loop.sock_sendall(silent, b"GET /api/stream HTTP/1.1\r\nHost: page\r\n\r\n")

        async def refused() -> bool:
            async with client.get("/api/stream") as answer:
                return answer.status == 503

        async def admitted() -> bool:
            return not await refused()

        await wait_until(refused, 10, "the silent client was not given the place")
        await wait_until(admitted, 30, "the silent client was not let go")
        silent.close()


async def test_open_streams_do_not_delay_a_stop() -> None:
    """Clients are disconnected at once, including those that read nothing."""
    showcase = await Showcase.new(*EVENTS)
    async with aiohttp.ClientSession() as client:
        async with asyncio.timeout(10), showcase.served() as address:
            answer = await client.get(f"{address}/api/stream")
            assert answer.status == 200
        answer.close()


async def test_every_route_requires_a_user() -> None:
    """If the settings have users, the page, its files and its data require one."""
    users = {"someone": hash_password("correct horse", cost=4)}
    token = base64.b64encode(b"someone:correct horse").decode()
    async with asking(await Showcase.new(), users=users) as client:
        for path in ("/", "/page.js", *API):
            async with client.get(path) as answer:
                assert answer.status == 401, path
            async with client.get(path, headers={"Authorization": f"Basic {token}"}) as answer:
                assert answer.status == 200, path


@pytest.mark.parametrize("path", ["/", "/page.js", *API])
@pytest.mark.parametrize("host", ["evil.test", "evil.test:9464", "localhost.evil.test", "[.]"])
async def test_a_foreign_host_name_is_refused(path: str, host: str) -> None:
    """A site whose name resolves to this host (DNS rebinding) cannot read the page."""
    async with (
        asking(await Showcase.new(*EVENTS)) as client,
        client.get(path, headers={"Host": host}) as answer,
    ):
        assert answer.status == 403
        text = await answer.text()

    assert "web.allowed_hosts" in text
    assert host not in text


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:9464", "worker.localhost", "localhost.", "127.0.0.1:9464",
        "[::1]:80", "10.1.2.3", "worker-1:9464", "a.example.org", "b.example.org:443",
    ],
)  # fmt: skip
async def test_own_host_names_are_served(host: str) -> None:
    """These are addresses, names without a dot, and allowed names."""
    allowed = ("a.example.org", ".EXAMPLE.org")
    async with (
        asking(await Showcase.new(*EVENTS), allowed_hosts=allowed) as client,
        client.get("/api/state", headers={"Host": host}) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
async def test_routes_for_machines_accept_any_host_name(path: str) -> None:
    """Prometheus and orchestrators have their own names for a worker."""
    async with (
        asking(await Showcase.new(*EVENTS)) as client,
        client.get(path, headers={"Host": "worker-1.workers.svc.cluster.local"}) as answer,
    ):
        assert answer.status == 200


async def test_with_users_any_host_name_is_served() -> None:
    """A foreign site has no password."""
    users = {"someone": hash_password("correct horse", cost=4)}
    token = base64.b64encode(b"someone:correct horse").decode()
    headers = {"Host": "metrics.example.org", "Authorization": f"Basic {token}"}
    async with (
        asking(await Showcase.new(), users=users) as client,
        client.get("/api/state", headers=headers) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("host", ["http://a.example.org", "a.example.org:80", "*", "a..b", ""])
def test_an_allowed_host_is_a_name(host: str) -> None:
    """A URL in its place would never match."""
    with pytest.raises(ValueError, match="write only the host name"):
        WebSettings(allowed_hosts=(host,))


async def test_the_worst_conversations_are_those_of_the_window_and_agent() -> None:
    """The answer has the rankings and the number of partitions."""
    async with (
        asking(await Showcase.new(*EVENTS)) as client,
        client.get("/api/worst", params={"window": "1h", "agent": "second"}) as answer,
    ):
        body = await answer.json()

    assert [row["conversation_id"] for row in body["highest_srr"]] == ["c-2"]
    assert body["partitions"] == {"owned": 1, "total": 4, "read": [0]}
    assert body["complete"] is True


async def test_the_worst_conversations_of_other_are_those_without_series() -> None:
    """``other`` lists the conversations of agents beyond the limit, with the agents' names."""
    events = [searched(f"c-{n}", 1, ["a"] * 10, agent=f"agent-{n:03}") for n in range(60)]
    async with (
        asking(await Showcase.new(*events)) as client,
        client.get("/api/worst", params={"window": "1h", "agent": "other"}) as answer,
    ):
        body = await answer.json()

    assert body["conversations"] == 10
    assert {row["agents"][0] for row in body["highest_srr"]} == {
        f"agent-{n:03}" for n in range(50, 60)
    }


async def test_an_unknown_agent_has_no_conversations() -> None:
    """The answer is complete and empty, and does not create the agent."""
    async with asking(await Showcase.new(*EVENTS)) as client:
        async with client.get("/api/worst", params={"agent": "nobody"}) as answer:
            body = await answer.json()
        async with client.get("/api/state") as answer:
            agents = [row["agent"] for row in (await answer.json())["agents"]]

    assert (body["conversations"], body["complete"], body["highest_srr"]) == (0, True, [])
    assert agents == ["first", "second"]


async def test_the_number_of_cached_answers_is_bounded() -> None:
    """Requests for ever new agents do not increase it."""
    showcase = await Showcase.new(*EVENTS, kept_seconds=3_600.0)
    view = showcase.board.view
    first = await showcase.worst.document(view("1h", None))
    for number in range(worst.MAX_ANSWERS - 1):
        await showcase.worst.document(view("1h", f"agent-{number}"))
    assert await showcase.worst.document(view("1h", None)) is first

    await showcase.worst.document(view("1h", "one more"))
    last = await showcase.worst.document(view("1h", "another"))

    assert await showcase.worst.document(view("1h", "another")) is last
    assert await showcase.worst.document(view("1h", None)) is not first


async def test_the_worst_conversations_without_a_store_are_a_503() -> None:
    """While Redis does not answer, the error has the reason."""
    showcase = await Showcase.new(*EVENTS)
    showcase.store.available = False
    async with asking(showcase) as client, client.get("/api/worst") as answer:
        assert answer.status == 503
        assert "cannot be read" in (await answer.json())["error"]


async def test_a_damaged_conversation_replaces_the_list_by_an_error() -> None:
    """A list without it would make it look good."""
    showcase = await Showcase.new(*EVENTS)
    partition = showcase.partition
    damaged = ConversationWrite(b"k" * 16, {b"p": b"\xff"}, last_record_ms=showcase.now_us // 1000)
    offsets = {topic: position.offset for topic, position in partition.positions.items()}
    await showcase.store.write(
        BatchWrite(partition.number, partition.token, b"damage", offsets, {}, [damaged])
    )
    async with asking(showcase) as client, client.get("/api/worst") as answer:
        assert answer.status == 503
        assert "the state is damaged" in (await answer.json())["error"]


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (KeyError("a text of a user"), 500, "a bug, of which the worker's log has more: KeyError"),
        (UnknownSchema("use a later release"), 503, "use a later release"),
    ],
)
async def test_a_conversation_that_cannot_be_ranked_replaces_the_list_by_an_error(
    error: Exception, status: int, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug is reported, too; neither the answer nor the report quotes anything."""

    def failing(*_: object) -> None:
        raise error

    bugs: list[Bug] = []
    showcase = await Showcase.new(*EVENTS)
    showcase.board.inputs = replace(showcase.board.inputs, on_bug=bugs.append)
    monkeypatch.setattr("stream_metrics.live.readers.worst.decode_conversation", failing)
    async with asking(showcase) as client, client.get("/api/worst") as answer:
        text = await answer.text()

    assert answer.status == status
    assert json.loads(text)["error"].startswith(says)
    assert len(bugs) == (status == 500)
    assert "a text of a user" not in text + repr(bugs)


async def test_too_many_concurrent_requests_are_refused() -> None:
    """Requests are processed one after the other, and only a limited number may wait."""
    showcase = await Showcase.new(*EVENTS)
    views = [showcase.board.view("1h", f"agent-{n}") for n in range(MAX_WAITING + 1)]

    answers = await asyncio.gather(
        *(showcase.worst.document(view) for view in views), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [bytes] * MAX_WAITING + [TooManyRequests]


async def test_an_answer_is_cached_for_a_while() -> None:
    """A repeated request does not read the store."""
    showcase = await Showcase.new(*EVENTS, kept_seconds=3_600.0)
    view = showcase.board.view("1h", None)
    first = await showcase.worst.document(view)
    showcase.store.available = False

    assert await showcase.worst.document(view) is first


def test_an_answer_reads_a_limited_number_of_conversations() -> None:
    """This bounds the work of a request."""
    assert worst.CONVERSATIONS <= 10_000
