"""A live system behind a bridge: a topic of traces, bridges and workers as processes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from deploy.local.waiting import wait_until
from stream_metrics.clients.kafka.groups import TRANSIENT_ERRORS
from stream_metrics.core.events.record import Record
from tests.forked import COMMAND
from tests.services.live import LiveSystem, Produced, Worker, recorded, said
from tests.sessions import Sent, records, traces

NOW = "1800000000000000"
EVENT_PARTITIONS, TRACE_PARTITIONS = 4, 3
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}


class BridgeProcess(Worker):
    """``stream-metrics bridge``, serving HTTP on a free port."""

    def __init__(self, folder: Path, name: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, name, environment)
        self._environment = {**environment, "STREAM_METRICS_BRIDGE__PORT": str(self.port)}

    def command(self) -> list[str]:
        """The documented command."""
        return [*COMMAND, "bridge"]


@dataclass
class BridgedSystem(LiveSystem):
    """A topic of traces, the input topics, and the bridges and workers that read them."""

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
        """Start a bridge, and wait until it serves HTTP or has exited."""
        one = BridgeProcess(
            self.folder, f"{self.group}-bridge-{len(self.bridges)}", self.environment
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        one.launch()
        self.bridges.append(one)

        async def there() -> bool:
            return one.exit_code is not None or await one.pages()

        await wait_until(there, 60, one.log_tail)
        return one

    async def send(self, sent: Iterable[Sent], compression: str | None = None) -> int:
        """Send records to the topic of traces, partitioned by key; returns how many."""
        number = 0
        async with AIOKafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            linger_ms=5,
            compression_type=compression,
        ) as producer:
            for record in sent:
                await producer.send(self.traces, record.value, key=record.key)
                number += 1
            await producer.flush()
        return number

    async def commits(self) -> dict[int, int]:
        """The commits of the bridge's group, by partition."""
        client = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap_servers)
        await client.start()
        try:
            found = await client.list_consumer_group_offsets(f"{self.group}-bridge")
        except TRANSIENT_ERRORS:
            return {}  # the group has no member yet
        finally:
            await client.close()
        return {place.partition: commit.offset for place, commit in found.items()}

    async def behind(self) -> float:
        """The number of records that the running bridges have not read."""
        alive = [one for one in self.bridges if one.exit_code is None and await one.pages()]
        return sum([await one.figure("streammetrics_bridge_lag_records") for one in alive])

    async def under_way(self, victim: Worker, spans: int) -> None:
        """Wait until a bridge has read this many spans, or all, or a worker owns a partition."""

        async def there() -> bool:
            if not await victim.pages():
                return False
            if not isinstance(victim, BridgeProcess):
                return await victim.owned() > 0
            read = await victim.figure("streammetrics_bridge_spans_total")
            return read >= spans or (await victim.ready() and not await self.behind())

        await wait_until(there, 90, victim.log_tail)

    async def interpreted(self, number: int, within_seconds: float = 60) -> None:
        """Wait until the bridge has produced the events of this many records."""

        async def done() -> bool:
            for one in self.bridges:
                assert one.exit_code in (None, 0, -9), one.log_tail()
            return sum((await self.commits()).values()) >= number

        await wait_until(done, within_seconds, lambda: self.bridges[-1].log_tail())

    async def counted(self) -> None:
        """Wait until the state has all events, and no more arrive."""
        self.produced = await self.in_input_topics()
        await self.reach(1.0)

    async def in_traces(self) -> tuple[Record, ...]:
        """The records of the topic of traces."""
        return await recorded(self.kafka, [self.traces])

    async def in_input_topics(self) -> Produced:
        """The records of the input topics."""
        return Produced(await recorded(self.kafka, self.topics), frozenset(), 0)


async def bridged(
    kafka: Kafka, redis_server: RedisServer, folder: Path, **settings: str
) -> BridgedSystem:
    """A system with empty topics and no processes."""
    group = f"{folder.name}-{os.getpid()}".replace("[", "-").replace("]", "")
    topics = (f"{group}-events", f"{group}-labels")
    for topic in topics:
        await kafka.create_topic(topic, EVENT_PARTITIONS)
        await kafka.create_topic(f"{topic}.dlq", 1)
    await kafka.create_topic(f"{group}-traces", TRACE_PARTITIONS, APPEND_TIME)
    await kafka.create_topic(f"{group}-traces.dlq", 1)
    named = {f"STREAM_METRICS_{name.upper()}": value for name, value in settings.items()}
    return BridgedSystem(
        kafka, redis_server, folder, group, topics, Produced((), frozenset(), 0), settings=named
    )


@dataclass
class Campaign:
    """The result of a campaign, and whether live figures equal those of a replay."""

    seed: int
    traces: int
    spans: int = 0
    records: int = 0
    events: int = 0
    late: float = 0
    rows: int = 0
    kills: list[str] = field(default_factory=list)
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)


async def campaign(
    system: BridgedSystem, seed: int, number: int, kills: int, searches: int = 3
) -> Campaign:
    """Traces arrive while bridges and workers are killed; then the live figures are compared.

    Two bridges and two workers run. The seed chooses when one of the four is killed; another one
    takes its place.
    """
    chance = random.Random(seed)
    made = traces(seed, number, searches=searches)
    sent = list(records(made, seed, open_at_once=60))
    done = Campaign(seed, number, records=len(sent), spans=sum(map(len, made)))
    begun = time.monotonic()
    await system.bridge()
    await system.bridge()
    await system.start_workers(2)
    for part in range(kills + 1):
        first, last = (at * len(sent) // (kills + 1) for at in (part, part + 1))
        await system.send(sent[first:last])
        if part == kills:
            break
        everyone: list[Worker] = [*system.bridges, *system.workers]
        alive = [one for one in everyone if one.exit_code is None]
        # Alternate, so that both kinds are killed.
        wanted = [one for one in alive if isinstance(one, BridgeProcess) == (part % 3 != 2)]
        victim = chance.choice(wanted)
        await system.under_way(victim, chance.randrange(1, max(2, done.spans // 30)))
        victim.kill9()
        if isinstance(victim, BridgeProcess):
            done.kills.append("bridge")
            await system.bridge()
        else:
            done.kills.append("worker")
            await system.start_workers(1)
    await system.interpreted(len(sent), 300)
    await system.counted()
    for bridge in system.bridges:
        if bridge.exit_code is None:
            done.late += await bridge.figure("streammetrics_bridge_late_spans_total")
    done.events = len(system.produced.records)
    live, replayed = system.folder / "live", system.folder / "replayed"
    for folder, arguments in (
        (live, ["export"]),
        (replayed, ["replay", f"kafka:{system.traces}"]),
    ):
        code, text = await said(system, *arguments, "--out", str(folder), "--now", NOW)
        if code:
            raise RuntimeError(text)
    for name in ("conversations.jsonl", "windows.json"):
        if (live / name).read_bytes() != (replayed / name).read_bytes():
            done.differences.append(name)
    done.rows = (live / "conversations.jsonl").read_bytes().count(b"\n")
    done.seconds = time.monotonic() - begun
    return done


def rows(folder: Path) -> list[bytes]:
    """The rows that a command wrote, sorted."""
    return sorted((folder / "conversations.jsonl").read_bytes().splitlines())
