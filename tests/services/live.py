"""A live system for tests: topics with traffic, a Redis, and worker processes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from deploy.local.kafka.cluster import Kafka
from deploy.local.process import ChildProcess, Process, ServerFailed, free_port
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import record_line
from stream_metrics.lab.traffic import TrafficRecord
from stream_metrics.live.ports import StoreUnavailable
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import state_in_force
from tests import forked
from tests.forked import COMMAND

PARTITIONS = 4
ESTABLISHED = "01"  # a connection's state in /proc/net/tcp

LEFT_OVER = (
    "Traceback",
    "Exception ignored",
    "never awaited",
    "never closed",
    "never retrieved",
    "Task was destroyed",
    "Unclosed",
    "unclosed",
)
"""What Python and its libraries say of errors that nobody handles, and of what is left open."""

LAUNCHED: list[Worker] = []  # by the current test


async def run_command(
    environment: Mapping[str, str], *arguments: str, typed: str = ""
) -> tuple[int, str, str]:
    """Run ``stream-metrics``; returns the exit code, standard output and standard error.

    Fails if it leaves something open, or an error without a message for people.
    """
    everything = {**os.environ, "PYTHONWARNINGS": forked.WARNINGS, **environment}
    code, out, error = await forked.run(arguments, everything, typed)
    assert not any(sign in error for sign in LEFT_OVER), f"{' '.join(arguments)}:\n{error}"
    return code, out, error


def unanswered_calls(port: int) -> int:
    """The number of connections to a local server on this port with bytes that it has not read."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    connections = (line.split() for line in lines)
    return sum(
        state == ESTABLISHED
        and int(local.partition(":")[2], 16) == port
        and int(queues.partition(":")[2], 16) > 0
        for _, local, _, state, queues, *_ in connections
    )


class Worker(ChildProcess):
    """``stream-metrics worker``, serving HTTP on a free port."""

    def __init__(
        self, folder: Path, name: str, environment: Mapping[str, str], *options: str
    ) -> None:
        self.name = name
        self._options = options
        super().__init__(folder)
        self.port = free_port()
        self._environment = {**environment, "STREAM_METRICS_WEB__PORT": str(self.port)}

    @property
    def address(self) -> str:
        """``host:port`` of its HTTP server."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process without waiting for it."""
        LAUNCHED.append(self)
        super().launch()

    def command(self) -> list[str]:
        """The command in the README."""
        return [*COMMAND, "worker", *self._options]

    def environment(self) -> Mapping[str, str]:
        """The settings."""
        return self._environment

    def _spawn(self) -> Process:
        command = self.command()
        if command[: len(COMMAND)] != COMMAND:
            return super()._spawn()
        environment = {**os.environ, **self.environment()}
        with self.log.open("ab") as log, open(os.devnull, "rb") as nothing:
            files = (nothing.fileno(), log.fileno(), log.fileno())
            arguments = command[len(COMMAND) :]
            started = forked.start(arguments, environment, self.folder, files, session=True)
        return started or super()._spawn()

    async def ready(self) -> bool:
        """Whether ``/readyz`` reports that it is ready."""
        return (await self.readyz())[0] == 200

    async def pages(self) -> bool:
        """Whether it serves HTTP."""
        return (await self.readyz())[0] != 0

    async def readyz(self) -> tuple[int, dict[str, Any]]:
        """Status and body of ``/readyz``; status 0 while nobody listens."""
        return await self._get("/readyz")

    async def healthz(self) -> tuple[int, dict[str, Any]]:
        """Status and body of ``/healthz``; status 0 while nobody listens."""
        return await self._get("/healthz")

    async def figure(self, name: str) -> float:
        """The sum of a metric's series on ``/metrics``."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(f"http://{self.address}/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        found = [line for line in lines if line.partition("{")[0].partition(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def owned(self) -> float:
        """The number of partitions that it owns; 0 while it does not serve HTTP."""
        return await self.figure("streammetrics_assigned_partitions") if await self.pages() else 0

    async def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{self.address}{path}") as answer,
            ):
                return answer.status, await answer.json()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, {}


@dataclass(frozen=True, slots=True)
class Produced:
    """The records of the topics, and which of them are invalid."""

    records: tuple[Record, ...]
    broken: frozenset[tuple[str, int, int]]
    searches: int

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The end of every partition that has records."""
        ends: dict[tuple[str, int], int] = {}
        for record in self.records:
            place = (record.topic, record.partition)
            ends[place] = max(ends.get(place, 0), record.offset + 1)
        return ends

    @property
    def last_us(self) -> int:
        """The largest record timestamp in microseconds."""
        return 1000 * max(record.timestamp_ms or 0 for record in self.records)

    def __add__(self, more: Produced) -> Produced:
        """These records, followed by others."""
        return Produced(
            self.records + more.records,
            self.broken | more.broken,
            self.searches + more.searches,
        )

    def write(self, path: Path) -> None:
        """Save as a recording."""
        path.write_bytes(b"".join(record_line(record) for record in self.records))


async def produce(
    kafka: Kafka,
    topics: Mapping[str, str],
    traffic: Iterable[TrafficRecord],
    headers: Sequence[tuple[str, bytes]] = (),
) -> Produced:
    """Send traffic, each record with ``headers``; ``topics`` maps the generator's streams to
    topics."""
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=20, max_request_size=9_000_000
    )
    await producer.start()
    try:
        sent = [
            (
                record,
                await producer.send(
                    topics[record.stream],
                    record.value,
                    key=record.key,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(headers),
                ),
            )
            for record in traffic
        ]
        await producer.flush()
    finally:
        await producer.stop()
    records, broken, searches = [], set(), 0
    for record, future in sent:
        place = future.result()
        records.append(
            Record(
                record.value,
                record.key,
                record.timestamp_ms,
                place.topic,
                place.partition,
                place.offset,
            )
        )
        if not record.valid:
            broken.add((place.topic, place.partition, place.offset))
        elif record.stream == "events" and b'"search_iteration"' in record.value:
            searches += 1
    return Produced(tuple(records), frozenset(broken), searches)


async def stored(kafka: Kafka, topics: Iterable[str]) -> list[Any]:
    """Every committed record in the topics, as returned by the client, by partition."""
    counts = await partition_counts(
        KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), topics
    )
    places = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed"
    )
    await consumer.start()
    found: dict[TopicPartition, list[Any]] = {place: [] for place in places}
    try:
        consumer.assign(places)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=500)).items():
                found[place] += records
    finally:
        await consumer.stop()
    return [record for records in found.values() for record in records]


async def recorded(kafka: Kafka, topics: Iterable[str]) -> tuple[Record, ...]:
    """Every committed record in the topics as a ``Record``."""
    return tuple(
        Record(r.value, r.key, r.timestamp, r.topic, r.partition, r.offset)
        for r in await stored(kafka, topics)
    )


@dataclass
class LiveSystem:
    """A consumer group, its topics with traffic, its Redis and its workers.

    ``settings`` are environment variables in addition to those of every system.
    """

    kafka: Kafka
    redis: RedisServer
    folder: Path
    group: str
    topics: tuple[str, ...]
    produced: Produced
    workers: list[Worker] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The settings of workers and commands."""
        return {
            "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "STREAM_METRICS_KAFKA__GROUP_ID": self.group,
            "STREAM_METRICS_KAFKA__TOPICS": json.dumps(self.topics),
            "STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "STREAM_METRICS_KAFKA__HEARTBEAT_INTERVAL_MS": "1000",
            "STREAM_METRICS_REDIS__URL": self.redis.url,
            "STREAM_METRICS_REDIS__SOCKET_TIMEOUT_SECONDS": "2",
            "STREAM_METRICS_STATE__DIGEST_KEY": "a secret of the tests",
            "STREAM_METRICS_STATE__BATCH_RECORDS": "100",
            **self.settings,
        }

    async def start_workers(self, count: int) -> None:
        """Launch workers without waiting for them."""
        for _ in range(count):
            name = f"{self.group}-worker-{len(self.workers)}"
            worker = Worker(self.folder, name, self.environment)
            self.folder.mkdir(parents=True, exist_ok=True)
            worker.launch()
            self.workers.append(worker)

    async def stop_workers(self) -> list[int | None]:
        """Send SIGTERM to all workers, and return their exit codes."""
        return list(await asyncio.gather(*(worker.stop() for worker in self.workers)))

    async def read(self) -> int:
        """The number of records in the state, of all partitions; 0 while Redis is unavailable."""
        store = connect(RedisOptions(url=self.redis.url, namespace=self.group))
        try:
            state = await state_in_force(store)
            states = [await state.describe(number) for number in await state.partitions()]
        except StoreUnavailable:
            return 0
        finally:
            await store.close()
        return sum(p.offset for state in states for p in state.positions.values())

    def none_ended(self) -> None:
        """Raise ``ServerFailed``, with the log, if a worker exited without being killed."""
        for worker in self.workers:
            if worker.exit_code not in (None, -9):
                raise ServerFailed(f"{worker.name} ended:\n{worker.log_tail()}")

    @property
    def total(self) -> int:
        """The number of records sent to the topics, including those deleted since."""
        return sum(self.produced.ends.values())

    async def reach(self, share: float, deadline_seconds: float = 240) -> int:
        """Wait until that share of the records is in the state; returns their number."""
        goal = int(share * self.total)

        async def there() -> int:
            self.none_ended()
            read = await self.read()
            return read if read >= goal else 0

        return await wait_until(
            there,
            deadline_seconds,
            lambda: f"the state does not have {goal} records:\n{self.workers[0].log_tail()}",
        )

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Run ``stream-metrics`` with the system's settings; returns the exit code and standard
        output, or standard error if the code is not 0."""
        code, out, error = await run_command(self.environment, *arguments)
        return code, out if code == 0 else error

    async def compare(self, now_us: int) -> tuple[Path, Path]:
        """Export the live state and replay the same records; returns both directories."""
        recording = self.folder / f"{self.group}.jsonl"
        self.produced.write(recording)
        live, replayed = self.folder / f"{self.group}-live", self.folder / f"{self.group}-replayed"
        now = str(now_us)
        for arguments in (
            ("export", "--out", str(live), "--now", now),
            ("replay", str(recording), "--out", str(replayed), "--now", now),
        ):
            code, text = await self.command(*arguments)
            assert code == 0, text
        return live, replayed

    async def dead_letters(self) -> set[tuple[str, int, int]]:
        """Topic, partition and offset of the records on the dead-letter topics."""
        code, text = await self.command("dlq", "list", "--format", "json")
        assert code == 0, text
        letters = [json.loads(line) for line in text.splitlines()]
        return {(letter["topic"], letter["partition"], letter["offset"]) for letter in letters}


async def said(system: LiveSystem, *arguments: str) -> tuple[int, str]:
    """A command's exit code, and its output on one line: standard output, then standard error."""
    wide = {"COLUMNS": "500", **system.environment}
    code, out, error = await run_command(wide, *arguments)
    return code, " ".join(f"{out} {error}".split())
