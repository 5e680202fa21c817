"""Who sends to ``stream-metrics serve``, and who is told by it: the client package, ``send --to``,
and a webhook."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from random import Random
from threading import Timer

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from stream_metrics_client import AsyncRecorder, Recorder

from deploy.local.process import free_port
from stream_metrics.cli.serving import ServeProcess, listening
from stream_metrics.cli.settings import Settings
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import database_of, prepare_database
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.notify import notifier
from tests.helpers import ran, wait_until
from tests.serving import check_file, serving
from tests.unit.test_serve import read_all, settings, until_read, working
from tests.unit.test_worst import searched


async def test_what_the_client_records_is_there_after_restarts(tmp_path: Path) -> None:
    """The process is stopped twice while the agent goes on; each event counts once, and one that is
    refused is told with its reason."""
    port = free_port()
    recorder = AsyncRecorder(f"http://127.0.0.1:{port}", agent="support")
    for part in range(3):
        for number in range(40):
            turn = recorder.turn(f"c-{part}-{number}")
            found = turn.iteration().search("parental leave", [{"doc_id": "a"}, {"doc_id": "b"}])
            turn.label({found.result_ids[0]: 3 if number else 7})
        async with working(tmp_path, otlp_port=port) as (process, _, _):
            assert await recorder.flush(60), recorder.last_error
            await read_all(process)
    assert await recorder.close(60)

    assert (recorder.sent, recorder.failed, recorder.refused) == (237, 3, {"invalid": 3})
    stored = await check_file(database_of(tmp_path))
    ids = [json.loads(value)["event_id"] for value in stored if value]
    assert len(ids) == len(set(ids)) == 237


@pytest.mark.slow
def test_kills_lose_nothing_that_the_client_records(tmp_path: Path) -> None:
    """The process is killed while events come, twice; in the end each is there, and rows are those
    of one pass over the log, in which an event may be twice."""
    rng, port = Random(5), free_port()
    recorder = Recorder(f"http://127.0.0.1:{port}", agent="support")
    for kills in range(3):
        with serving(tmp_path, port=port) as served:
            if kills < 2:
                Timer(rng.uniform(0.02, 0.3), served.process.kill).start()
            for number in range(400):
                turn = recorder.turn(f"c-{kills}-{number % 40}")
                turn.iteration().search("parental leave", [{"doc_id": "a"}, {"doc_id": "b"}])
                recorder.flush(0.001)
            if kills < 2:
                served.process.wait(30)
            else:
                assert recorder.close(60), recorder.last_error
                until_read(served)
                assert served.stop() == 0

    assert (recorder.sent, recorder.failed, recorder.dropped) == (1_200, 0, 0)
    stored = asyncio.run(check_file(database_of(tmp_path)))
    assert len({json.loads(value)["event_id"] for value in stored if value}) == 1_200


async def test_a_token_lets_in_both_senders(tmp_path: Path) -> None:
    """The client is given it, the command reads its file; without it, both say what is missing."""
    token = tmp_path / "token"
    token.write_text("t0ken\n")
    environment = {"STREAM_METRICS_SERVE__TOKEN_FILE": str(token)}
    event = json.dumps(searched("c", 1, "ab", int(time.time())))
    async with working(tmp_path, token_file=token) as (process, _, receiver):
        recorder, stranger = AsyncRecorder(receiver, token="t0ken"), AsyncRecorder(receiver)
        for one in (recorder, stranger):
            one.forget("c")
        assert await recorder.close(60)
        await wait_until(lambda: stranger.last_error, 30, "no reason is said")
        assert not await stranger.close(0)
        command = ("send", "--to", receiver)
        done = await asyncio.to_thread(ran, *command, given=event, environment=environment)
        refused = await asyncio.to_thread(ran, *command, given=event)
        await read_all(process)

    assert "wants a token, and no token was given (401: " in str(stranger.last_error)
    assert done.returncode == 0
    assert done.stdout.endswith(f"Sent 1 event to {receiver}.\n")
    assert refused.returncode == 2
    assert "wants a token (401: " in refused.stderr
    assert len(await check_file(database_of(tmp_path))) == 2


@asynccontextmanager
async def telling(folder: Path, url: str) -> AsyncIterator[None]:
    """A process that tells a webhook."""
    document = settings(folder).model_dump(exclude_unset=True)
    document["state"] = {"digest_key": "a secret of the tests"}
    chosen = Settings.model_validate({**document, "notify": {"url": url, "format": "slack"}})
    database = Database(prepare_database(folder))
    process = ServeProcess(chosen, database)
    try:
        async with listening(process, chosen):
            work = asyncio.create_task(process.run())
            yield
            process.stop()
            await work
    finally:
        await database.close()


def strange(agent: str, lately: str) -> list[Entry]:
    """A usual day of an agent, and an hour in which its searches find something else; each was
    received when it was made."""
    now = int(time.time())
    day = [(f"d-{n}", "abcde", now - 4_000 - 120 * n) for n in range(600)]
    hour = [(f"h-{n}", lately, now - 10 * n) for n in range(300)]
    entries = []
    for name, found, at in sorted(day + hour, key=itemgetter(2)):
        event = searched(f"{agent}-{name}", 1, found, at, agent=agent)
        key = f"{agent}-{name}".encode()
        entries.append(Entry(key, json.dumps(event).encode(), 1_000 * at))
    return entries


async def test_a_process_without_servers_tells_of_its_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once: after a restart, only the second one is news, since what was told is kept."""
    monkeypatch.setattr(notifier, "LOOK_SECONDS", 0.05)
    posted: list[str] = []

    async def take(request: web.Request) -> web.Response:
        posted.append((await request.json())["text"])
        return web.Response(text="ok")

    def told_of(agent: str) -> Callable[[], bool]:
        return lambda: any(f"|{agent}>" in text for text in posted)

    app = web.Application()
    app.router.add_post("/hook", take)
    async with TestServer(app) as server:
        url = str(server.make_url("/hook"))
        for agent, lately in (("first", "aaaaa"), ("second", "a")):
            database = Database(prepare_database(tmp_path))
            await Log(database).append(EVENTS, strange(agent, lately), 0)
            await database.close()
            async with telling(tmp_path, url):
                await wait_until(told_of(agent), 60, lambda: str(posted))

    first, second = posted
    assert first.startswith("*SRR spike*\n")
    assert "usually it is 0%" in first
    assert "agent=first|first>" in first
    assert second.startswith("*Results drop*\n")
    assert "first" not in second
