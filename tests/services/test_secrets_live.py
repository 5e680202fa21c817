"""No secret in the settings leaves a running system, whatever is printed or fails."""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import aiohttp
import pytest

from deploy.local.certificates import Authority
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import free_port
from deploy.local.servers import RedisServer
from stream_metrics.cli.settings import Settings
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.helpers import rest_long, wait_until
from tests.planted import USER, by_environment, by_file, leaked, planted, secret_settings
from tests.services.live import LiveSystem, Worker, produce, said
from tests.services.test_live import new_topics

pytestmark = pytest.mark.service

Redises = Callable[..., Awaitable[RedisServer]]
REDIS = planted(("redis", "password"))
KEY = planted(("web", "tls_key_password"))
PAGES = planted(("web", "users", "*"))
SOME_COMMANDS = (
    ("check",),
    ("export", "--out", "{out}"),
    ("dlq", "list"),
)
COMMANDS = (
    *SOME_COMMANDS,
    ("config",),
    ("audit",),
    ("forget", "c-nobody", "--yes"),
    ("build", "--again", "--dry-run"),
    ("purge", "--yes"),
)


def test_every_secret_is_found() -> None:
    """Secrets in the settings are found by their types, including those in maps."""
    found = set(secret_settings())

    assert {("redis", "password"), ("kafka", "sasl_password"), ("state", "digest_key")} <= found
    assert ("web", "users", "*") in found
    assert Settings.model_fields.keys() >= {path[0] for path in found}


def test_a_leak_is_noticed() -> None:
    """A planted secret is found in a text, and in an encoded header."""
    header = base64.b64encode(f"{USER}:{PAGES}".encode())

    assert leaked(f"cannot log in with {REDIS}!")
    assert leaked(b"Authorization: Basic " + header)
    assert not leaked("cannot log in with **********")


async def system_with(
    kafka: Kafka, redis: RedisServer, folder: Path, case: str, settings: dict[str, str]
) -> LiveSystem:
    """A system with some traffic in its topics, secrets in its settings, and pages with TLS."""
    group = f"secrets-{case}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    streams = {"events": topics[0], "labels": topics[1]}
    produced = await produce(kafka, streams, generate(TrafficProfile(seed=9, conversations=30)))
    system = LiveSystem(kafka, redis, folder / group, group, topics, produced)
    own = Authority(folder / "own").issue("pages", KEY)
    system.settings = {
        "STREAM_METRICS_LOG__LEVEL": "DEBUG",
        "STREAM_METRICS_WEB__TLS_CERTIFICATE": str(own.certificate),
        "STREAM_METRICS_WEB__TLS_KEY": str(own.key),
        **settings,
    }
    return system


async def page(worker: Worker, path: str, password: str | None = None) -> str:
    """Status, headers and body of a page; empty while no server listens."""
    given = base64.b64encode(f"{USER}:{password}".encode()).decode()
    headers = {} if password is None else {"Authorization": f"Basic {given}"}
    context = ssl.create_default_context(cafile=str(worker.folder.parent / "own" / "ca.crt"))
    url = f"https://{worker.address}{path}"
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
            session.get(url, ssl=context) as answer,
        ):
            return f"{answer.status} {answer.headers} {await answer.text()}"
    except (aiohttp.ClientError, TimeoutError):
        return ""


async def outputs(system: LiveSystem, commands: Iterable[tuple[str, ...]]) -> list[str]:
    """All output of commands, two of which run at a time."""
    slots = asyncio.Semaphore(2)

    async def output(command: tuple[str, ...]) -> str:
        arguments = [part.format(out=system.folder / "out") for part in command]
        async with slots:
            code, text = await said(system, *arguments)
        return f"{arguments} ended with {code}: {text}"

    return list(await asyncio.gather(*map(output, commands)))


def process(worker: Worker) -> str:
    """The command line, which other users of the machine can see."""
    return Path(f"/proc/{worker.pid}/cmdline").read_text()


@pytest.mark.parametrize("way", rest_long(["environment", "file", "url"]))
async def test_secrets_stay_inside(
    kafka: Kafka, redis_factory: Redises, tmp_path: Path, way: str
) -> None:
    """With secrets in the environment, files and the URL, no output of a healthy system has any."""
    redis = await redis_factory(options={"requirepass": REDIS})
    given = by_file(tmp_path) if way == "file" else by_environment()
    if way == "url":
        del given["STREAM_METRICS_REDIS__PASSWORD"]
        place = redis.url.removeprefix("redis://")
        given["STREAM_METRICS_REDIS__URL"] = f"redis://default:{REDIS}@{place}"
    system = await system_with(kafka, redis, tmp_path, way, given)
    await system.start_workers(1)
    worker = system.workers[0]

    async def ready() -> bool:
        assert worker.exit_code is None, worker.log_tail()
        return (await page(worker, "/readyz")).startswith("200")

    await wait_until(ready, 120, worker.log_tail)
    shown = [
        *[await page(worker, path) for path in ("/metrics", "/healthz", "/readyz", "/nowhere")],
        *[await page(worker, "/metrics", password) for password in (PAGES, "wrong")],
        process(worker),
        *await outputs(system, COMMANDS if way == "environment" else SOME_COMMANDS),
    ]
    await system.stop_workers()
    shown.append(worker.log.read_text())

    assert sum("streammetrics_" in text for text in shown) == 1, "for the right password only"
    assert any("partitions taken over" in text for text in shown), "the worker's log is there"
    assert sum("ended with 0" in text for text in shown) >= 3, "most commands did their work"
    for text in shown:
        assert not leaked(text), text


@pytest.mark.parametrize(
    "trouble", rest_long(["refused", "unreachable", "no URL", "no login", "no key"])
)
async def test_secrets_stay_inside_when_something_fails(
    kafka: Kafka, redis_factory: Redises, tmp_path: Path, trouble: str
) -> None:
    """With a Redis that refuses the password, one that is away, a URL that is none, brokers
    that take no login, and a wrong password for the pages' key, nothing that is said of it shows a
    secret."""
    redis = await redis_factory(options={"requirepass": "another"})
    place = {
        "unreachable": f"localhost:{free_port()}/0",
        "no URL": "localhost:no-port/0",
    }.get(trouble, redis.url.removeprefix("redis://"))
    given = {
        **by_environment(),
        "STREAM_METRICS_REDIS__URL": f"redis://operator:{REDIS}@{place}?password={REDIS}",
    }
    if trouble == "no login":
        given["STREAM_METRICS_KAFKA__SECURITY_PROTOCOL"] = "SASL_PLAINTEXT"
        given["STREAM_METRICS_KAFKA__SASL_MECHANISM"] = "PLAIN"
        given["STREAM_METRICS_KAFKA__SASL_USERNAME"] = "operator"
    elif trouble == "no key":
        given["STREAM_METRICS_WEB__TLS_KEY_PASSWORD"] = planted(("web", "tls_key_password_wrong"))
    system = await system_with(kafka, redis, tmp_path, trouble.replace(" ", "-"), given)
    await system.start_workers(1)
    worker = system.workers[0]
    shown = [process(worker), *await outputs(system, SOME_COMMANDS)]

    async def told() -> bool:
        return worker.exit_code is not None or "503" in await page(worker, "/readyz")

    await wait_until(told, 60, worker.log_tail)
    if worker.exit_code is None:
        for path in ("/metrics", "/healthz", "/readyz"):
            shown += [await page(worker, path), await page(worker, path, PAGES)]
    await system.stop_workers()
    shown.append(worker.log.read_text())

    assert worker.log.read_text(), "something was said of it"
    assert not any("streammetrics_" in text and text.startswith("401") for text in shown)
    for text in shown:
        assert not leaked(text), text
