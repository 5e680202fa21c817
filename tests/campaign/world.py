"""Everything of a round that runs: servers, workers, load and watcher."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local.kafka.cluster import Kafka
from deploy.local.waiting import wait_until
from stream_metrics.traffic import TrafficRecord
from tests.campaign.faults import Need
from tests.campaign.load import Load, read_traffic
from tests.campaign.log import Log, read_log
from tests.campaign.plan import Plan
from tests.campaign.servers import (
    Brokers,
    ClusterRedis,
    PlainRedis,
    SentinelRedis,
    StateServers,
)
from tests.campaign.watch import Watcher
from tests.services.live import COMMAND, PARTITIONS, Worker

GROUP: Final = "campaign"
TOPICS: Final = ("campaign-events", "campaign-labels")
SESSION_SECONDS: Final = 6.0
TAIL_LINES: Final = 12
LAST: Final = ("nice", "-n", "19")  # of what waits for a core
REPOSITORY: Final = Path(__file__).resolve().parents[2]


class CommandFailed(AssertionError):
    """A command of ours ended with an error; the message has what it said."""


class ObedientWorker(Worker):
    """A worker that obeys orders to kill itself at a step."""

    def command(self) -> list[str]:
        """The worker's command behind the launcher."""
        return [sys.executable, "-m", "tests.campaign.launcher", "worker"]

    @property
    def stopped(self) -> bool:
        """Whether it was stopped by SIGSTOP."""
        if not self.running:
            return False
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    @property
    def rss_bytes(self) -> int:
        """Memory that it holds now."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


class World:
    """The servers of a plan, its workers and its load; ``problems`` is what went wrong."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.topics = TOPICS
        self.problems: list[str] = []
        self.workers: list[ObedientWorker] = []
        self.everyone: list[ObedientWorker] = []
        self.most_rss_bytes = 0
        self.extra = 0  # offsets in the log that are not of the load
        self.lost_letters: set[tuple[str, int, int]] = set()
        self.orders = folder / "orders"
        self.brokers = Brokers(folder, 3 if plan.servers is Need.THREE_BROKERS else 1)
        self.redis = _redis(plan.servers, folder)
        self.watcher = Watcher(
            self.redis.options(GROUP), self.kafka.bootstrap_servers, GROUP, TOPICS
        )
        self.load: Load
        self._running = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = 0

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            await self._start()
        except BaseException:
            await self._running.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            left = set(self._tasks)
            while left:  # a client may take a cancellation for its own and go on
                for task in left:
                    task.cancel()
                _, left = await asyncio.wait(left, timeout=1)
        finally:
            await self._running.aclose()

    async def _start(self) -> None:
        options = self.plan.options
        async with asyncio.TaskGroup() as group:
            group.create_task(self.brokers.start(self._running))
            group.create_task(self.redis.start(self._running))
            made = group.create_task(
                _traffic(self.folder, options.seed, options.events, options.conversations)
            )
        for topic in TOPICS:
            await self.kafka.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
            await self.kafka.create_topic(f"{topic}.dlq", PARTITIONS)
        streams = {"events": TOPICS[0], "labels": TOPICS[1]}
        self.load = Load(self.kafka.bootstrap_servers, streams, made.result(), options.rate)
        self._running.callback(self._kill_workers)
        for work in (self.load.run, self.watcher.watch_state, self.watcher.watch_commits):
            self._tasks.append(asyncio.create_task(work()))
        self._tasks.append(asyncio.create_task(self._look_after()))

    def _kill_workers(self) -> None:
        for worker in self.everyone:
            worker.kill9()

    # -- servers --------------------------------------------------------------------------------

    @property
    def kafka(self) -> Kafka:
        """The brokers themselves."""
        return self.brokers.kafka

    @property
    def plain_redis(self) -> PlainRedis:
        """The one Redis of plain servers."""
        assert isinstance(self.redis, PlainRedis)
        return self.redis

    # -- workers --------------------------------------------------------------------------------

    def start_worker(self) -> ObedientWorker:
        """Launch one more, without waiting for it."""
        self._numbers += 1
        worker = ObedientWorker(self.folder, f"worker-{self._numbers}", self._settings())
        worker.launch()
        self.workers.append(worker)
        self.everyone.append(worker)
        return worker

    def _settings(self) -> dict[str, str]:
        return {
            **self._common(),
            **self.redis.outside(),
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": self.brokers.outside,
            "CAMPAIGN_ORDERS": str(self.orders),
            "PYTHONPATH": str(REPOSITORY),
        }

    def _common(self) -> dict[str, str]:
        return {
            "STREAM_METRICS_KAFKA__GROUP_ID": GROUP,
            "STREAM_METRICS_KAFKA__TOPICS": json.dumps(TOPICS),
            "STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": str(int(SESSION_SECONDS * 1000)),
            "STREAM_METRICS_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS": "2",
            "STREAM_METRICS_STATE__BATCH_RECORDS": "100",
            "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        }

    def kill(self, worker: ObedientWorker) -> None:
        """SIGKILL; it is one of the workers no longer."""
        self.workers.remove(worker)
        worker.kill9()

    def killed(self, worker: ObedientWorker) -> None:
        """Take note that it has killed itself as it was told."""
        self.workers.remove(worker)

    async def retire(self, worker: ObedientWorker) -> None:
        """SIGTERM; it must end with 0."""
        self.workers.remove(worker)
        code = await worker.stop(30)
        if code != 0:
            self.problems.append(f"{worker.name} was told to end and ended with {code}")

    async def all_ready(self, deadline_seconds: float = 60) -> None:
        """Wait until every worker says that it is ready."""
        for worker in list(self.workers):
            await wait_until(
                worker.ready,
                deadline_seconds,
                f"{worker.name} is not ready",
            )

    async def _look_after(self) -> None:
        """Note memory, and workers that end by themselves."""
        gone: set[str] = set()
        while True:
            for worker in self.workers:
                self.most_rss_bytes = max(self.most_rss_bytes, worker.rss_bytes)
                code = worker.exit_code
                if code is not None and worker.name not in gone and not self.ordered(code):
                    gone.add(worker.name)
                    self.problems.append(f"{worker.name} ended by itself with {code}")
            await asyncio.sleep(0.2)

    def ordered(self, code: int) -> bool:
        """Whether an order to die may be the reason of that exit code."""
        return code == -9

    # -- progress -------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """How much of the load the state has passed."""
        return (self.watcher.total - self.extra) / len(self.load.records)

    async def until(
        self,
        condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
        what: str,
        deadline_seconds: float = 120,
    ) -> None:
        """Wait for it; raises with ``what`` if it does not come."""
        await wait_until(condition, deadline_seconds, what)

    async def until_past(self, total: int, deadline_seconds: float = 60) -> None:
        """Wait until the state has passed more than ``total`` offsets."""

        def past() -> bool:
            self.load.trickle()
            return self.watcher.total > total

        await self.until(past, "the state has taken nothing", deadline_seconds)

    async def ends(self) -> dict[tuple[str, int], int]:
        """The ends of the log."""
        return await self.watcher.ends(PARTITIONS)

    def tails(self) -> str:
        """The ends of all workers' logs."""
        return "\n".join(
            "\n".join([f"--- {w.name} ({w.exit_code})", *w.log_tail().splitlines()[-TAIL_LINES:]])
            for w in self.everyone
        )

    # -- commands -------------------------------------------------------------------------------

    async def command(self, *arguments: str) -> str:
        """Run ``stream-metrics`` past all proxies; see ``run``.

        It leaves the machine to workers and servers of a round whose times are measured.
        """
        settings = {
            **self._common(),
            **self.redis.inside(),
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
        }
        return await run([*LAST, *COMMAND, *arguments], settings)

    async def record_log(self) -> Log:
        """Write down what the brokers kept of the input topics."""
        program = [*LAST, sys.executable, "-m", "tests.campaign.log"]
        await run([*program, str(self.folder), self.kafka.bootstrap_servers, *TOPICS])
        return read_log(self.folder)

    async def dead_letters(self) -> set[tuple[str, int, int]]:
        """Where the records stood that are on the dead-letter topics."""
        listed = await self.command("dlq", "list", "--json")
        letters = [json.loads(line) for line in listed.splitlines()]
        return {(letter["topic"], letter["partition"], letter["offset"]) for letter in letters}


async def _traffic(folder: Path, *arguments: int) -> list[TrafficRecord]:
    await run([sys.executable, "-m", "tests.campaign.load", str(folder), *map(str, arguments)])
    return await asyncio.to_thread(read_traffic, folder / "traffic")


async def run(
    command: Sequence[str], settings: Mapping[str, str] | None = None, deadline_seconds: float = 300
) -> str:
    """Run a command; what it writes to standard output.

    Raises ``CommandFailed`` if it ends with another code than 0.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(settings or {}), "PYTHONPATH": str(REPOSITORY)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(deadline_seconds):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {error.decode()}\n{out.decode()}")
    return out.decode()


def _redis(need: Need, folder: Path) -> StateServers:
    if need is Need.SENTINEL:
        return SentinelRedis(folder)
    return ClusterRedis(folder) if need is Need.CLUSTER else PlainRedis(folder)


def now() -> float:
    """The watcher's clock."""
    return time.monotonic()
