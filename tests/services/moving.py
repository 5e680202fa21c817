"""A group on real servers whose state partitions are replaced, by commands that may be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import NewPartitions

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.adapters.redis.connect import RedisOptions, connect
from stream_metrics.adapters.redis.store import RedisStore
from stream_metrics.traffic import TrafficProfile, TrafficRecord, generate
from tests.services.live import LiveSystem, Produced, produce

SOON = 90


def traffic(seed: int, conversations: int = 300) -> list[TrafficRecord]:
    """Traffic of the last half hour, with part 8's shares of disorder."""
    profile = TrafficProfile(
        seed=seed,
        conversations=conversations,
        start=int(time.time()) - 1_800,
        duration_seconds=1_200,
        turns=(1, 2),
        iterations=(1, 6),
        results_per_search=4,
        documents=300,
    )
    return list(generate(profile))


@dataclass
class Group:
    """A live system whose topics, settings and records change."""

    system: LiveSystem

    @classmethod
    async def made(
        cls, kafka: Kafka, redis: RedisServer, folder: Path, name: str, partitions: int
    ) -> Group:
        """With empty topics of so many partitions, and no worker yet."""
        group = f"{name}-{os.getpid()}"
        topics = (f"{group}-events", f"{group}-labels")
        made = cls(
            LiveSystem(kafka, redis, folder / group, group, topics, Produced((), frozenset(), 0))
        )
        made.system.settings["STREAM_METRICS_KAFKA__METADATA_MAX_AGE_MS"] = "1000"
        await made.create(topics, partitions)
        return made

    async def create(self, topics: Iterable[str], partitions: int) -> None:
        """Make topics, with their dead-letter topics."""
        for topic in topics:
            await self.system.kafka.create_topic(topic, partitions)
            await self.system.kafka.create_topic(f"{topic}.dlq", partitions)

    async def add_partitions(self, total: int) -> None:
        """Raise the count of every input topic."""
        wanted = {topic: NewPartitions(total) for topic in self.system.topics}
        async with admin(self.system.kafka.bootstrap_servers) as client:
            await client.create_partitions(wanted)

    async def produce(
        self, records: Iterable[TrafficRecord], topics: tuple[str, ...] | None = None
    ) -> None:
        """Send more, to the input topics unless told otherwise."""
        events, labels = topics or self.system.topics
        streams = {"events": events, "labels": labels}
        self.system.produced += await produce(self.system.kafka, streams, records)

    def kept(self, firsts: Mapping[tuple[str, int], int]) -> Produced:
        """What is left of the records where logs begin at these offsets."""
        held = self.system.produced
        records = [r for r in held.records if r.offset >= firsts.get((r.topic, r.partition), 0)]
        return Produced(tuple(records), held.broken, held.searches)

    @asynccontextmanager
    async def working(self, count: int = 1) -> AsyncIterator[None]:
        """Workers that read all, and are stopped at the end."""
        await self.system.start_workers(count)
        try:
            yield
            await self.all_read()
        finally:
            await self.system.stop_workers()
            self.system.workers.clear()

    async def all_read(self, below: int = 1_000) -> None:
        """Wait until what lies in the input topics, on partitions ``below``, is in the state."""
        topics, produced = self.system.topics, self.system.produced
        ends = {p: n for p, n in produced.ends.items() if p[0] in topics and p[1] < below}

        left: dict[tuple[str, int], tuple[int, int]] = {}
        says: list[object] = []

        async def there() -> bool:
            async with self.store() as store:
                found = {
                    (topic, number): position.offset
                    for number in await store.partitions()
                    for topic, position in (await store.describe(number)).positions.items()
                }
            left.clear()
            left.update({p: (found.get(p, 0), n) for p, n in ends.items() if found.get(p, 0) < n})
            says[:] = [await worker.readyz() for worker in self.system.workers]
            return not left

        def message() -> str:
            logs = "\n".join(worker.log_tail() for worker in self.system.workers)
            return f"not all is read: {left}\n{says}\n{logs}"

        await wait_until(there, SOON, message)

    async def run(self, *arguments: str, orders: str = "") -> tuple[int, str]:
        """A command; with ``orders`` it dies where they say. Exit code, and what it said."""
        file = self.system.folder / "orders"
        self.system.folder.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        if orders:
            file.write_text(f"{orders} KILL")
        environment: Mapping[str, str] = {
            **os.environ,
            **self.system.environment,
            "CAMPAIGN_ORDERS": str(file),
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.campaign.launcher", *arguments),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    async def killed(self, *arguments: str, at: Iterable[str]) -> None:
        """Run a command again and again; each time it is killed at the next place."""
        for place in at:
            code, said = await self.run(*arguments, orders=place)
            assert code == -signal.SIGKILL, (place, said)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RedisStore]:
        """The namespace."""
        store = connect(RedisOptions(url=self.system.redis.url, namespace=self.system.group))
        try:
            yield store
        finally:
            await store.close()

    async def partitions(self) -> list[int]:
        """The state partitions in force."""
        async with self.store() as store:
            return await store.partitions()

    async def same_as_replay(self) -> None:
        """The live state, exported, is one pass over all records, byte for byte; and the windows
        add up to the conversations."""
        live, replayed = await self.system.compare(self.system.produced.last_us)
        for name in ("conversations.jsonl", "windows.json"):
            assert (live / name).read_bytes() == (replayed / name).read_bytes(), name
        assert (live / "conversations.jsonl").stat().st_size
        code, said = await self.run("audit")
        assert code == 0, said
