"""All processes of a round: servers, workers, load and watcher."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import import_path
from deploy.local.waiting import wait_until
from stream_metrics.core.engine.codec import SCHEMAS
from stream_metrics.lab.traffic import TrafficRecord
from tests.campaign.clock import Clock
from tests.campaign.command import OBEDIENT, REPOSITORY, run
from tests.campaign.faults import Extra, Need
from tests.campaign.history import History, Span
from tests.campaign.load import Load, read_traffic
from tests.campaign.log import Log, count, read_log
from tests.campaign.plan import Plan
from tests.campaign.servers import (
    Brokers,
    ClusterRedis,
    PlainRedis,
    SentinelRedis,
    StateServers,
)
from tests.campaign.watch import Watcher
from tests.forked import COMMAND
from tests.services.live import PARTITIONS, Worker

GROUP: Final = "campaign"
TOPICS: Final = ("campaign-events", "campaign-labels")
OUTPUT: Final = "campaign-rows"
SESSION_SECONDS: Final = 6.0
TAIL_LINES: Final = 12
LAST: Final = ("nice", "-n", "19")  # lowest CPU priority


Letter = tuple[str, int, int]  # where the record stood: topic, partition, offset


class ObedientWorker(Worker):
    """A worker that kills itself at a step on an order."""

    def command(self) -> list[str]:
        """The worker's command behind the launcher."""
        return [*OBEDIENT, "worker"]

    @property
    def stopped(self) -> bool:
        """Whether it was stopped by SIGSTOP."""
        if not self.running:
            return False
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    @property
    def rss_bytes(self) -> int:
        """Its resident memory."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")


class World:
    """The servers, workers and load of a plan; ``problems`` lists failed checks."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.topics = TOPICS
        self.problems: list[str] = []
        self.workers: list[ObedientWorker] = []
        self.everyone: list[ObedientWorker] = []
        self.most_rss_bytes = 0
        self.extra = 0  # offsets in the log that are not of the load, less those that are gone
        self.lost_letters: set[Letter] = set()  # of dead-letter topics that were deleted
        self.excused_letters: set[Letter] = set()  # of records that went before they were read
        self.history = History(folder)
        self.compacted: list[tuple[list[Span], int]] = []  # and what was left there
        self.expected_gaps: set[tuple[int, str]] = set()  # partition numbers, and what is done
        self.policy = "halt"  # of workers that start from now on
        self.write_schema = SCHEMAS[0]  # of workers and commands that start from now on
        self.good_gain = 2  # the same
        self.orders = folder / "orders"
        self.clock = Clock(folder / "clock")
        self.brokers = Brokers(folder, 3 if plan.servers is Need.THREE_BROKERS else 1)
        self.redis = _redis(plan, folder)
        self.watcher = Watcher(self.redis.options(GROUP), self.kafka.bootstrap_servers, TOPICS)
        self.load: Load
        self._running = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = 0
        self._rank: tuple[str, ...] = ()

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
        if self.has_output:
            await self.kafka.create_topic(OUTPUT, PARTITIONS, {"cleanup.policy": "compact"})
        streams = {"events": TOPICS[0], "labels": TOPICS[1]}
        self.load = Load(self.kafka.bootstrap_servers, streams, made.result(), options.rate)
        self._running.callback(self._kill_workers)
        for work in (self.load.run, self.watcher.watch_state, self.watcher.watch_commits):
            self._tasks.append(asyncio.create_task(work()))
        self._tasks.append(asyncio.create_task(self._look_after()))

    def _kill_workers(self) -> None:
        for worker in self.everyone:
            worker.kill9()

    @property
    def has_output(self) -> bool:
        """Whether workers write rows to an output topic."""
        return Extra.OUTPUT in self.plan.extras

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

    def start_workers(self, count: int, policy: str | None = None) -> None:
        """Launch workers; another policy for offset gaps also applies to later workers."""
        self.policy = policy or self.policy
        for _ in range(count):
            self.start_worker()

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
            "STREAM_METRICS_KAFKA__ON_OFFSET_GAP": self.policy,
            "CAMPAIGN_ORDERS": str(self.orders),
            "CAMPAIGN_CLOCK": str(self.clock.file),
            "PYTHONPATH": import_path(REPOSITORY),
        }

    def _common(self) -> dict[str, str]:
        output = {"STREAM_METRICS_KAFKA__OUTPUT_TOPIC": OUTPUT} if self.has_output else {}
        return {
            **output,
            "STREAM_METRICS_KAFKA__GROUP_ID": GROUP,
            "STREAM_METRICS_KAFKA__TOPICS": json.dumps(TOPICS),
            "STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": str(int(SESSION_SECONDS * 1000)),
            "STREAM_METRICS_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS": "2",
            "STREAM_METRICS_STATE__BATCH_RECORDS": "100",
            "STREAM_METRICS_METRICS__GOOD_GAIN": str(self.good_gain),
            "STREAM_METRICS_STATE__WRITE_SCHEMA": str(self.write_schema),
            "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
        }

    def kill(self, worker: ObedientWorker) -> None:
        """Send SIGKILL, and remove it from the workers."""
        self.workers.remove(worker)
        worker.kill9()

    def killed(self, worker: ObedientWorker) -> None:
        """Note that it killed itself on an order."""
        self.workers.remove(worker)

    async def retire(self, worker: ObedientWorker) -> None:
        """Send SIGTERM once it handles signals; it must exit with 0."""

        async def hears() -> bool:
            return not worker.running or await worker.pages()

        await self.until(hears, f"{worker.name} does not serve its pages")
        self.workers.remove(worker)
        code = await worker.stop(30)
        if code != 0:
            self.problems.append(f"{worker.name} was told to end and ended with {code}")

    async def all_ready(self, deadline_seconds: float = 180) -> None:
        """Wait until every worker says that it is ready."""
        for worker in list(self.workers):
            await wait_until(
                worker.ready,
                deadline_seconds,
                f"{worker.name} is not ready",
            )

    async def _look_after(self) -> None:
        """Record memory, and report workers that exit by themselves."""
        gone: set[str] = set()
        seen: set[asyncio.Task[None]] = set()
        while True:
            for worker in self.workers:
                self.most_rss_bytes = max(self.most_rss_bytes, worker.rss_bytes)
                code = worker.exit_code
                if code is not None and worker.name not in gone and not self.ordered(code):
                    gone.add(worker.name)
                    self.problems.append(f"{worker.name} ended by itself with {code}")
            for task in self._tasks:
                if task.done() and task not in seen and (error := task.exception()):
                    seen.add(task)
                    self.problems.append(f"a task of the campaign: {type(error).__name__}: {error}")
            await asyncio.sleep(0.2)

    def ordered(self, code: int) -> bool:
        """Whether that exit code may come from an order."""
        return code == -9

    # -- progress -------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """The share of the load that is in the state."""
        return (self.watcher.total - self.extra) / len(self.load.records)

    async def until(
        self,
        condition: Callable[[], bool] | Callable[[], Awaitable[bool]],
        what: str,
        deadline_seconds: float = 120,
    ) -> None:
        """Wait for a condition; raises with ``what`` if it does not become true."""
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

    def give_way(self) -> None:
        """Run at low priority from now on, in favor of another round whose times are measured."""
        self._rank = LAST

    async def command(self, *arguments: str) -> str:
        """Run ``stream-metrics`` without proxies; see ``run``."""
        return await run([*self._rank, *COMMAND, *arguments], self._inside())

    async def cut_off(self, place: str, *arguments: str) -> None:
        """Run it until it kills itself at that step; raises ``CommandFailed`` otherwise."""
        orders = self.folder / "orders-of-a-command"  # workers come to the same places
        orders.write_text(f"{place} KILL")
        settings = {**self._inside(), "CAMPAIGN_ORDERS": str(orders)}
        try:
            await run([*OBEDIENT, *arguments], settings, code=-signal.SIGKILL)
        finally:
            orders.unlink(missing_ok=True)

    def _inside(self) -> dict[str, str]:
        return {
            **self._common(),
            **self.redis.inside(),
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
        }

    async def record_log(self) -> Log:
        """Record what a single pass reads from the input topics."""
        await self._log()
        return read_log(self.folder)

    async def _log(self, *options: str) -> None:
        program = [*self._rank, sys.executable, "-m", "tests.campaign.log", *options]
        await run([*program, str(self.folder), self.kafka.bootstrap_servers, *TOPICS])

    async def keep_aside(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Save the records of these partitions before ``ends``, which will be deleted."""
        await self._log("--part", str(self.history.add(ends)))

    async def count(self, spans: Sequence[Span]) -> int:
        """The number of records on the brokers in these spans."""
        return await count(self.kafka.bootstrap_servers, spans)

    async def dead_letters(self) -> set[Letter]:
        """Topic, partition and offset of the records on the dead-letter topics."""
        listed = await self.command("dlq", "list", "--format", "json")
        letters = [json.loads(line) for line in listed.splitlines()]
        return {(letter["topic"], letter["partition"], letter["offset"]) for letter in letters}

    async def excuse(self, spans: Sequence[Span]) -> None:
        """Allow dead letters of records in these spans, which will be deleted."""
        found = await self.dead_letters() | self.lost_letters
        self.excused_letters |= {
            letter for letter in found if any(span.holds(*letter) for span in spans)
        }

    def forget_letters(self, topic: str) -> None:
        """Drop what is known about dead letters of a recreated topic."""
        for letters in (self.lost_letters, self.excused_letters):
            letters -= {letter for letter in letters if letter[0] == topic}


async def _traffic(folder: Path, *arguments: int) -> list[TrafficRecord]:
    await run([sys.executable, "-m", "tests.campaign.load", str(folder), *map(str, arguments)])
    return await asyncio.to_thread(read_traffic, folder / "traffic")


def _redis(plan: Plan, folder: Path) -> StateServers:
    if plan.servers is Need.SENTINEL:
        return SentinelRedis(folder)
    if plan.servers is Need.CLUSTER:
        return ClusterRedis(folder)
    return PlainRedis(folder, has_clock=Extra.REDIS_CLOCK in plan.extras)
