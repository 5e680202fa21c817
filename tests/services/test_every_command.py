"""Every command of the reference, on real servers: its exit code, and what is left open."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiokafka import AIOKafkaProducer
from yarl import URL

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import free_port
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.core.judge.people import mark_of
from tests.commands import leaves
from tests.forked import WARNINGS
from tests.otlp import RETRIEVER, SpanSpec, as_json, documents
from tests.services.bridged import BridgedSystem, bridged
from tests.services.live import LEFT_OVER, run_command
from tests.serving import serving
from tests.unit.test_judge_commands import stream

pytestmark = pytest.mark.service

EVALUATION = ("--qrels", "examples/evaluation/qrels.txt", "--metric", "mrr")
EVENTS = Path("examples/first-events.jsonl").read_bytes()
AT_A_TIME = 2
GRADED = {
    "conversation_id": "c", "turn": 1, "search_id": "s", "result_id": "r", "query": "who",
    "asked_at": "2026-06-09T12:00:00Z", "question": "", "title": "A", "text": "words", "grade": 3,
    "drawn": mark_of("c", 1, ["r"]),
}  # fmt: skip

Line = Sequence[str]


def first(folder: Path) -> list[Line]:
    """Commands in the order in which each needs what the ones before it did."""
    return [
        ("topics", "create", "--partitions", "4"),
        ("send", "--now", "examples/first-events.jsonl"),
        ("generate", "--to-kafka", "--conversations", "20"),
        ("record", "--out", f"{folder}/recorded.jsonl"),
        ("replay", f"{folder}/recorded.jsonl", "--out", f"{folder}/replayed"),
        ("replay", "kafka:", "--out", f"{folder}/from-kafka"),
    ]


def then(folder: Path, letter: str) -> list[Line]:
    """Commands that only read, in any order."""
    return [
        ("--version",),
        ("demo", "--seconds", "1", "--port", "0", "--no-keep"),
        ("check", "--topics"),
        ("config",),
        ("rules", "--out", f"{folder}/rules"),
        ("schema",),
        ("top",),
        ("export", "--out", f"{folder}/exported"),
        ("audit",),
        ("labels", f"{folder}/scores.csv", "--traces", f"{folder}/traces.json"),
        ("judge", "run", "--dry-run", f"{folder}/recorded.jsonl"),
        ("judge", "export-for-people", f"{folder}/to-grade.jsonl", f"{folder}/recorded.jsonl"),
        ("judge", "import", f"{folder}/graded.jsonl"),
        ("judge", "agreement", f"{folder}/both.jsonl"),
        ("explain", f"{folder}/traces.json"),
        ("validate", "examples/first-events.jsonl"),
        ("dlq", "list"),
        ("dlq", "show", letter),
        ("dlq", "show", letter, "--format", "json"),
        ("report", f"{folder}/replayed"),
        ("backfill", f"{folder}/replayed", "--out", f"{folder}/history.txt"),
        ("compare", f"{folder}/replayed", f"{folder}/from-kafka"),
        ("evaluate", "--run", "examples/evaluation/run.txt", *EVALUATION),
        ("build",),
    ]


def on_folder(folder: Path) -> list[Line]:
    """Commands on the folder of one process, which serves it meanwhile."""
    data = f"{folder}/data"
    return [
        *((name, "--data", data) for name in ("top", "check", "audit", "build")),
        ("dlq", "list", "--data", data),
        ("dlq", "resubmit", "--all", "--yes", "--data", data),
        ("export", "--out", f"{folder}/of-folder", "--data", data),
        ("validate", data),
        ("record", data, "--out", f"{folder}/of-folder.jsonl"),
        ("replay", data, "--out", f"{folder}/log"),
        ("compare", f"{folder}/log", data),
        ("forget", "c-1", "--yes", "--data", data),
    ]


def last() -> list[Line]:
    """Commands that change what others read."""
    return [
        ("dlq", "resubmit", "--all", "--yes"),
        ("forget", "c-1", "--yes"),
    ]


def named(line: Line) -> str:
    """The name of a command, with that of its group."""
    return " ".join(line[: 2 if line[0] in ("dlq", "judge", "topics") else 1])


async def a_dead_letter(system: BridgedSystem) -> str:
    """Send an invalid record, and wait until it is a dead letter; returns where it was read."""
    async with AIOKafkaProducer(bootstrap_servers=system.kafka.bootstrap_servers) as producer:
        sent = await producer.send_and_wait(system.topics[0], b"no JSON", key=b"c", partition=1)
    place = (system.topics[0], sent.partition, sent.offset)

    async def there() -> bool:
        return place in await system.dead_letters()

    await wait_until(there, 60, system.workers[0].log_tail)
    return "/".join(map(str, place))


@asynccontextmanager
async def told() -> AsyncIterator[URL]:
    """The address of a server that takes whatever it is sent."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    async with TestServer(app) as server:
        yield server.make_url("/")


def read_until_interrupted(report: Path, log: IO[str]) -> int:
    """The exit code of ``read``, once its page has been there and Ctrl-C was pressed."""
    command = [sys.executable, "-m", "stream_metrics", "read", str(report), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        with urllib.request.urlopen(found[0], timeout=30) as page:  # noqa: S310
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        return process.wait(30)


@pytest.mark.long
async def test_every_command_does_its_work_and_leaves_nothing_open(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each exits with 0, and its standard error has neither tracebacks nor what was not closed."""
    system = await bridged(kafka, redis_server, tmp_path)
    span = SpanSpec(1, 1, attributes={"session.id": "s", **RETRIEVER, **documents("a", "b")})
    (tmp_path / "traces.json").write_bytes(as_json([span]))
    (tmp_path / "scores.csv").write_text(f"span_id,position,score\n{1:016x},0,1\n")
    (tmp_path / "graded.jsonl").write_text(json.dumps(GRADED))
    stream(tmp_path, 3, kinder_from=3)
    system.settings["STREAM_METRICS_LABELS__CUTOFFS"] = '{"1": 0.2, "3": 0.8}'
    system.settings["STREAM_METRICS_JUDGE__RATE"] = "1"
    system.settings["STREAM_METRICS_JUDGE__PEOPLE_RATE"] = "1"
    done = set()

    async def succeeds(line: Line, typed: str = "") -> None:
        code, out, error = await run_command(system.environment, *line, typed=typed)
        assert code == 0, f"{' '.join(line)}:\n{out}{error}"
        done.add(named(line))

    await system.start_workers(1)
    (worker,) = system.workers
    bridge = await system.bridge()
    await wait_until(worker.ready, 60, worker.log_tail)
    for line in first(tmp_path):
        await succeeds(line)
    letter = await a_dead_letter(system)
    system.produced = await system.in_input_topics()
    await system.reach(1.0)
    running = asyncio.Semaphore(AT_A_TIME)

    async def in_turn(line: Line) -> None:
        async with running:
            await succeeds(line)

    ended = await asyncio.gather(*map(in_turn, then(tmp_path, letter)), return_exceptions=True)
    assert [str(error) for error in ended if error is not None] == []
    for line in last():
        await succeeds(line)
    await succeeds(("hash-password",), "a password\n")
    for process, name in ((bridge, "bridge"), (worker, "worker")):
        assert await process.stop() == 0
        said = process.log.read_text()
        assert not any(sign in said for sign in LEFT_OVER), said
        done.add(name)
    await succeeds(("purge", "--yes", "--force"))
    async with told() as heard:
        system.settings["STREAM_METRICS_NOTIFY__URL"] = str(heard)
        await succeeds(("notify", "--test"))
    for name, value in {**system.environment, "PYTHONWARNINGS": WARNINGS}.items():
        monkeypatch.setenv(name, value)
    with (tmp_path / "serve.log").open("w+") as log, serving(tmp_path / "data", log) as one:
        assert one.post(EVENTS)["accepted"]
        for line in on_folder(tmp_path):
            await succeeds(line)
        assert await asyncio.to_thread(one.stop) == 0
        log.seek(0)
        said = log.read()
        assert not any(sign in said for sign in LEFT_OVER), said
        done.add("serve")
    with (tmp_path / "read.log").open("w+") as log:
        assert await asyncio.to_thread(read_until_interrupted, tmp_path / "replayed", log) == 130
        log.seek(0)
        said = log.read()
        assert not any(sign in said for sign in LEFT_OVER), said
        done.add("read")
    await succeeds(("purge", "--yes", "--data", f"{tmp_path}/data"))

    assert done - {"--version"} == set(leaves())


KAFKA_AWAY = [
    "topics create",
    "send examples/first-events.jsonl",
    "generate --to-kafka --conversations 1",
    "dlq list",
    "dlq show search-iterations/0/0",
    "dlq resubmit --all --yes",
    "forget c --yes",
    "record --out {folder}/recorded.jsonl",
    "replay kafka: --out {folder}/replayed",
    "replay examples/first-events.jsonl --into-kafka",
    "validate kafka:search-iterations",
    "labels {folder}/scores.csv --traces kafka:otlp_spans",
    "judge --dry-run",
    "judge agreement",
]
REDIS_AWAY = ["top", "audit", "export --out {folder}/exported", "build", "purge"]


@pytest.mark.parametrize("line", [*KAFKA_AWAY, *REDIS_AWAY])
async def test_a_command_whose_server_is_away_says_so(line: str, tmp_path: Path) -> None:
    """It exits with 2 and a last line that names the server and the cause, as one sentence."""
    where = f"127.0.0.1:{free_port()}"
    (tmp_path / "scores.csv").write_text(f"span_id,position,score\n{1:016x},0,1\n")
    settings = {
        "COLUMNS": "500",
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": where,
        "STREAM_METRICS_REDIS__URL": f"redis://{where}/0",
        "STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS": "1",
        "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        "STREAM_METRICS_LABELS__CUTOFFS": json.dumps({"1": 0.2}),
    }

    code, _, error = await run_command(settings, *line.format(folder=tmp_path).split())

    assert code == 2, error
    told = error.splitlines()[-1]
    if line in KAFKA_AWAY:
        assert told == (
            f"error: kafka {where}: Connection refused. Check `kafka.bootstrap_servers`, and "
            "whether the brokers run"
        )
    else:
        assert told.startswith(f"error: redis redis://{where}/0: Redis is unavailable: ")
    assert ".." not in told


async def test_check_tells_of_both_servers_that_are_away() -> None:
    """Standard output has a line for each, and the exit code is 2."""
    settings = {
        "COLUMNS": "500",
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "STREAM_METRICS_REDIS__URL": f"redis://127.0.0.1:{free_port()}/0",
        "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
    }

    code, out, _ = await run_command(settings, "check")

    assert code == 2
    wrong = [line.split()[0] for line in out.splitlines() if line.split()[1] == "error"]
    assert {"kafka", "redis"} <= set(wrong), out


async def test_check_tells_of_a_full_redis(
    redis_factory: Callable[..., Awaitable[RedisServer]],
) -> None:
    """It answers and can be read, but refuses writes."""
    redis = await redis_factory(options={"maxmemory": "1kb"})
    settings = {
        "COLUMNS": "500",
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "STREAM_METRICS_REDIS__URL": redis.url,
        "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
    }

    _, out, _ = await run_command(settings, "check")

    [line] = [line for line in out.splitlines() if line.startswith("redis ")]
    assert "error" in line
    assert "it refuses writes, so workers wait. Raise `maxmemory`" in line
