"""Real servers for tests, and hypothesis profiles.

A server that is missing is an error that names the command to install it, never a skip. The
session's ``kafka`` and ``redis_server`` are shared: use topics and namespaces of your own there,
and a factory where a test kills, pauses or restarts.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from hypothesis import Phase, settings

from deploy.local.install import SERVERS, advice, chromium, missing
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import blocking
from deploy.local.servers import Alertmanager, Prometheus, RedisServer, promtool

settings.register_profile("default", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=200, deadline=None, print_blob=True)
settings.register_profile("thorough", max_examples=5_000, deadline=None, print_blob=True)
settings.register_profile(  # for broken builds: whether an example fails, not the smallest one
    "find", max_examples=200, deadline=None, database=None, phases=[Phase.generate]
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)

Server = TypeVar("Server", Kafka, RedisServer, Prometheus, Alertmanager)

SERVICE_FIXTURES = frozenset(
    {
        "alertmanager_factory",
        "browser_path",
        "cluster_process",
        "kafka",
        "kafka_factory",
        "prometheus_factory",
        "promtool_path",
        "redis_factory",
        "redis_process",
        "redis_server",
        "sentinel_process",
    }
)
REAL_KINDS = frozenset({"redis", "sentinel", "cluster", "kafka"})
SERVICE_FOLDER = Path(__file__).parent / "services"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server: all of ``tests/services``, and every user of such a fixture."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if (
            SERVICE_FOLDER in item.path.parents
            or fixtures & SERVICE_FIXTURES
            or parameters.get("kind") in REAL_KINDS  # of the twins in the contract tests
        ):
            item.add_marker(pytest.mark.service)


def need_servers() -> None:
    """Fail with the command that installs what is missing."""
    if absent := missing(SERVERS):
        names = ", ".join(need.program for need in absent)
        pytest.fail(f"missing: {names}; install with: {advice(absent)}", pytrace=False)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka of one broker for the session."""
    need_servers()
    server = Kafka(tmp_path_factory.mktemp("kafka"))
    blocking(server.start())
    yield server
    blocking(server.stop())


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis for the session."""
    need_servers()
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    blocking(server.start())
    yield server
    blocking(server.stop())


@asynccontextmanager
async def factory(
    kind: type[Server], folder: Path
) -> AsyncIterator[Callable[..., Awaitable[Server]]]:
    """A function that makes and starts servers, each with a folder; all are killed at the end."""
    need_servers()
    async with AsyncExitStack() as running:
        numbers = count(1)

        async def start(*arguments: Any, **options: Any) -> Server:
            place = folder / f"{kind.__name__.lower()}-{next(numbers)}"
            server = kind(place, *arguments, **options)
            running.callback(server.kill9)
            await server.start()
            return server

        yield start


@pytest_asyncio.fixture
async def kafka_factory(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Kafka]]]:
    """Clusters of a test's own: ``await kafka_factory(brokers=3, properties={…})``."""
    async with factory(Kafka, tmp_path) as start:
        yield start


@pytest_asyncio.fixture
async def redis_factory(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[RedisServer]]]:
    """Redises of a test's own: ``await redis_factory(fsync="everysec", options={…})``."""
    async with factory(RedisServer, tmp_path) as start:
        yield start


@pytest_asyncio.fixture
async def prometheus_factory(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Prometheus]]]:
    """A test's own: ``await prometheus_factory({"job": ["host:port"]}, rule_files=[…])``."""
    async with factory(Prometheus, tmp_path) as start:
        yield start


@pytest_asyncio.fixture
async def alertmanager_factory(
    tmp_path: Path,
) -> AsyncIterator[Callable[..., Awaitable[Alertmanager]]]:
    """Alertmanagers of a test's own: ``await alertmanager_factory(webhook_url)``."""
    async with factory(Alertmanager, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def promtool_path() -> str:
    """Prometheus' own tool."""
    need_servers()
    return promtool()


@pytest.fixture(scope="session")
def browser_path() -> str:
    """Chromium."""
    return chromium()
