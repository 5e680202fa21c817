"""A live system behind a bridge: a topic of traces, bridges and workers as processes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.adapters.kafka.groups import PASSING
from tests.services.live import COMMAND, LiveSystem, Produced, Worker
from tests.sessions import Sent

TRACE_PARTITIONS = 3
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


class BridgeProcess(Worker):
    """``stream-metrics bridge`` with its pages on a free port."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, name, environment)
        self._environment = {**environment, "STREAM_METRICS_BRIDGE__PORT": str(self.port)}

    def command(self) -> list[str]:
        """The command of the documentation."""
        return [*COMMAND, "bridge"]


@dataclass
class BridgedSystem(LiveSystem):
    """A topic of traces, the input topics, and who works on them."""

    bridges: list[BridgeProcess] = field(default_factory=list)

    @property
    def traces(self) -> str:
        """The topic of traces."""
        return f"{self.group}-traces"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of bridges, workers and commands."""
        return {
            "STREAM_METRICS_BRIDGE__TOPIC": self.traces,
            "STREAM_METRICS_BRIDGE__GROUP_ID": f"{self.group}-bridge",
            "STREAM_METRICS_BRIDGE__SETTLE": "2s",
            "STREAM_METRICS_METRICS__TURN_SCOPE": "all",
            **super().environment,
        }

    async def bridge(self) -> BridgeProcess:
        """Start a bridge, without waiting for it."""
        one = BridgeProcess(
            self.folder, f"{self.group}-bridge-{len(self.bridges)}", self.environment
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        one.launch()
        self.bridges.append(one)
        return one

    async def send(self, records: Iterable[Sent], partition: int | None = None) -> int:
        """Send records to the topic of traces, those of a key to one partition; how many."""
        number = 0
        async with AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers, linger_ms=5
        ) as producer:
            for record in records:
                await producer.send(self.traces, record.value, key=record.key, partition=partition)
                number += 1
            await producer.flush()
        return number

    async def commits(self) -> dict[int, int]:
        """The commits of the bridge's group, by partition."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)
        await client.start()
        try:
            found = await client.list_consumer_group_offsets(f"{self.group}-bridge")
        except PASSING:
            return {}  # nobody has joined the group yet
        finally:
            await client.close()
        return {place.partition: commit.offset for place, commit in found.items()}

    async def behind(self) -> float:
        """How many records the bridges that live have not read."""
        alive = [one for one in self.bridges if one.exit_code is None and await one.pages()]
        return sum([await one.figure("streammetrics_bridge_lag_records") for one in alive])

    async def told(self, records: int, within_seconds: float = 60) -> None:
        """Wait until the bridge has told all of so many records."""

        async def done() -> bool:
            for one in self.bridges:
                assert one.exit_code in (None, 0, -9), one.log_tail()
            return sum((await self.commits()).values()) >= records

        await wait_until(done, within_seconds, lambda: self.bridges[-1].log_tail())

    async def counted(self) -> None:
        """Wait until the state has all events, and no more come."""
        self.produced = await self.in_input_topics()
        await self.reach(1.0)

    async def in_input_topics(self) -> Produced:
        """What lies in the input topics."""
        from tests.services.live import recorded

        return Produced(await recorded(self.kafka, self.topics), frozenset(), 0)


async def bridged(
    kafka: Kafka, redis_server: RedisServer, folder: Path, **settings: str
) -> BridgedSystem:
    """A system with all its topics, nothing in them, and nobody at work."""
    group = f"{folder.name}-{os.getpid()}".replace("[", "-").replace("]", "")
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, 4)
        await kafka.create_topic(f"{topic}.dlq", 1)
    await kafka.create_topic(f"{group}-traces", TRACE_PARTITIONS, APPEND_TIME)
    await kafka.create_topic(f"{group}-traces.dlq", 1)
    named = {f"STREAM_METRICS_{name.upper()}": value for name, value in settings.items()}
    return BridgedSystem(
        kafka, redis_server, folder, group, topics, Produced((), frozenset(), 0), settings=named
    )


def rows(folder: Path) -> list[bytes]:
    """The rows that a command wrote, in one order."""
    return sorted((folder / "conversations.jsonl").read_bytes().splitlines())


def loaded(folder: Path) -> list[dict[str, object]]:
    """The same, parsed."""
    return [json.loads(line) for line in rows(folder)]
