"""Which tests run, how many examples properties try, and the real servers that some tests need.

A test that needs no server and takes less than a second has no mark. The marks, which
``pyproject.toml`` defines, say what else a test needs:

- ``service`` starts a real server or a browser. All tests in ``tests/services`` have it, and every
  user of a fixture in ``SERVICE_FIXTURES``. A test that starts a server without it fails.
- ``slow`` takes more than a second of processor time: ``make test-fast`` leaves it out.
- ``long`` adds to a test without the mark: further cases of a claim, more seeds, each step at which
  a process may be killed (``tests.helpers.rest_long`` marks the cases). Or it takes long by itself,
  as building the image does, what measures memory over many records, and what looks whether the
  schedules of other tests reach every step. ``make test`` leaves it out; ``make test-all`` runs it.
- ``kernel`` needs the compiled kernel, ``compiled`` the wheel with modules that mypyc compiles.

The hypothesis profile gives the number of examples of a property, or ``tests.helpers.examples`` if
it needs more or fewer than others.

A missing server is an error that names the command to install it, never a skip. The session's
``kafka`` is shared by all of its processes, ``redis_server`` by the tests of one: use your own
topics, groups and namespaces there, and a factory if the test kills, pauses or restarts a server.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from hypothesis import Phase, settings

from deploy.local.install import (
    ALERTMANAGER,
    JAVA,
    PROMETHEUS,
    REDIS,
    SERVERS,
    advice,
    chromium,
    missing,
)
from deploy.local.kafka.cluster import Kafka
from deploy.local.process import blocking
from deploy.local.servers import Alertmanager, Collector, Prometheus, RedisServer, promtool
from stream_metrics.core.compiled import ENGINE, KERNEL

# They import frameworks and run only in environments that have them (``make conformance``,
# ``make test-spark``).
collect_ignore_glob = ["conformance/programs/*", "spark"]

settings.register_profile("fast", max_examples=10, deadline=None, print_blob=True)
settings.register_profile("default", max_examples=25, deadline=None, print_blob=True)
settings.register_profile("long", max_examples=120, deadline=None, print_blob=True)
settings.register_profile("thorough", max_examples=5_000, deadline=None, print_blob=True)
settings.register_profile(  # for broken builds: whether an example fails, not the smallest one
    "find", max_examples=200, deadline=None, database=None, phases=[Phase.generate]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

Server = TypeVar("Server", Kafka, RedisServer, Prometheus, Alertmanager, Collector)

SERVICE_FIXTURES = frozenset(
    {
        "alertmanager_factory",
        "browser_path",
        "cluster_process",
        "kafka",
        "kafka_factory",
        "own_process",
        "prometheus_factory",
        "promtool_path",
        "redis_factory",
        "redis_process",
        "redis_server",
        "sentinel_process",
    }
)
TESTS = Path(__file__).parent
SERVICE_FOLDER = TESTS / "services"
SERVICE_PLACES = tuple(
    TESTS / name
    for name in (
        "services",
        "contract",
        "property/test_partition.py",
        "unit/test_audit.py",
        "unit/test_operating_commands.py",
        "unit/test_stored_state.py",
        "unit/test_top.py",
    )
)
"""What has tests that need a server: a run of these only imports nothing else."""
LONGEST = tuple(
    SERVICE_FOLDER / f"test_{name}.py"
    for name in (
        "dist", "image", "canaries", "campaign", "spike", "upgrade", "log_flood", "bridge",
        "kafka_security", "page", "record", "watchdog", "live", "alert_rules",
        "shown", "gaps", "redis_security", "output", "build", "repartition", "stack",
    )
)  # fmt: skip
"""The files of tests on servers that take longest: they begin first, so that none ends alone."""
SERVERS_STARTED = frozenset(
    name
    for need in (REDIS, PROMETHEUS, ALERTMANAGER, JAVA)
    for name in (need.program, *need.other_names)
)
COMPILED = ("kernel", "compiled")
WITHOUT_SERVERS = "not service and not long"

_running: pytest.Item | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Leave out tests that need servers if none are chosen, and restore signals.

    A job started in the background or by ``nohup`` ignores some signals, and its child processes
    inherit that. A handler that does nothing is not inherited: children start with the default
    action, and this process still ignores the signal.
    """
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = WITHOUT_SERVERS
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    sys.addaudithook(_only_service_tests_start_servers)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say how to run the tests that this run leaves out."""
    lines = []
    if config.option.markexpr == WITHOUT_SERVERS:
        lines.append("without servers: make test runs all, -m service those on real servers")
    lines += [f"left out: tests marked {why} (make kernel)" for why in _not_compiled().values()]
    return lines


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without tests on servers if only those are chosen."""
    chosen = str(config.option.markexpr).split()[:1] == ["service"]
    return (chosen and collection_path.is_file() and not _may_need_servers(collection_path)) or None


def _may_need_servers(path: Path) -> bool:
    return any(map(path.is_relative_to, SERVICE_PLACES))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need a server, and leave out tests that need missing compiled code."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if SERVICE_FOLDER in item.path.parents or fixtures & SERVICE_FIXTURES:
            item.add_marker(pytest.mark.service)
        if item.get_closest_marker("service") and not _may_need_servers(item.path):
            raise pytest.UsageError(f"{item.nodeid} needs a server: see SERVICE_PLACES")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    absent = _not_compiled().keys()
    for item in items:
        (left_out if absent & {mark.name for mark in item.iter_markers()} else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    ranks = {path: rank for rank, path in enumerate(LONGEST)}
    items[:] = sorted(kept, key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish() -> None:
    """Exclude everything imported and collected from garbage collection.

    Otherwise each full collection scans thousands of tests, which takes half a second.
    """
    gc.collect()
    gc.freeze()


def _not_compiled() -> dict[str, str]:
    """Marks of tests that cannot run here, with the reasons.

    CI sets ``CI``, and ``make test``, which compiles first, sets ``NEED_COMPILED``: there, tests
    fail if compiled code is missing.
    """
    if os.environ.get("STREAM_METRICS_KERNEL") == "python":
        return {mark: f"{mark}, since STREAM_METRICS_KERNEL is python" for mark in COMPILED}
    if os.environ.get("CI") or os.environ.get("NEED_COMPILED"):
        return {}
    absent = {}
    if not KERNEL:
        absent["kernel"] = "kernel, which is not built"
    if ENGINE != "compiled":
        absent["compiled"] = "compiled, since the sources run here"
    return absent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember which test runs."""
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


def _only_service_tests_start_servers(event: str, arguments: tuple[Any, ...]) -> None:
    """Fail a test that starts a server without the mark ``service``."""
    if event != "subprocess.Popen" or _running is None or _running.get_closest_marker("service"):
        return
    command = [os.fsdecode(part) for part in arguments[1]]
    started = SERVERS_STARTED & {Path(part).name for part in command}
    if started and not {"-version", "--version"} & set(command):
        raise RuntimeError(
            f"{_running.nodeid} starts {' and '.join(started)}: mark it pytest.mark.service"
        )


def need_servers() -> None:
    """Fail with the command that installs what is missing."""
    if absent := missing(SERVERS):
        names = ", ".join(need.program for need in absent)
        pytest.fail(f"missing: {names}; install with: {advice(absent)}", pytrace=False)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka of one broker for the session, for all of its processes.

    The process that needs it first starts it, and stops it when no other one uses it any more.
    """
    need_servers()
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-kafka"
    folder.mkdir(exist_ok=True)
    started = folder / "kafka.pickle"
    with (folder / "lock").open("w") as lock, (folder / "users").open("w") as users:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if own := not started.exists():
            server = Kafka(folder)
            described = pickle.dumps(server)
            blocking(server.start())
            started.write_bytes(described)
        else:
            server = pickle.loads(started.read_bytes())  # noqa: S301 -- written above
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(lock, fcntl.LOCK_UN)
        yield server
        if own:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_EX)  # when the other processes have ended
            blocking(server.stop())
            started.unlink()


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
