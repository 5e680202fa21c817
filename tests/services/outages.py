"""What can be taken away from a live system, and its traffic meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from deploy.local.kafka.cluster import Kafka
from stream_metrics.core.alerts.obstacles import KAFKA, REDIS, RIGHTS, WRITES
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.otlp import as_protobuf
from tests.services.bridged import EVENT_PARTITIONS, BridgedSystem
from tests.services.neighbours import DAMAGED, GOOD, Turns

WORKER, BRIDGE = "worker", "bridge"
DIRECT: Final = "direct"  # the agent whose events are sent without a bridge
DAMAGED_EVERY: Final = 60  # traces


@dataclass(frozen=True, slots=True)
class Outage:
    """One thing to take away: brokers by number, Redis, or a user's right.

    ``whose`` are the services that must wait for it, ``alert`` and ``reason`` what must fire then;
    an outage without an alert must not be noticed. ``named`` is a pattern of the cause, which must
    be in a log.
    """

    name: str
    what: str
    alert: str = ""
    reason: str = ""
    whose: tuple[str, ...] = ()
    named: str = ""
    brokers: tuple[int, ...] = ()
    redis: bool = False
    right: tuple[str, str, str] | None = None  # operation, kind, suffix of the name


def _right(name: str, user: str, alert: str, reason: str, *right: str) -> Outage:
    operation, kind, suffix = right
    who = {WORKER: "The workers lose", BRIDGE: "The bridge loses"}[user]
    which = f"the {kind} `…{suffix}`" if suffix else f"their {kind}"
    what = f"{who} the right to {operation.upper()} {which}."
    place = rf"\S*{re.escape(suffix)}\b"
    named = f"READ {kind} {place}" if operation == "Read" else f"cannot write .*{place}"
    return Outage(name, what, alert, reason, (user,), named, right=(operation, kind, suffix))


OUTAGES: Final = (
    Outage("kafka", "All three brokers are killed.", KAFKA, "kafka", (WORKER, BRIDGE),
           "brokers do not answer", brokers=(1, 2, 3)),
    Outage("redis", "Redis is killed.", REDIS, "redis", (WORKER,), "Redis is unavailable",
           redis=True),
    *(Outage(f"broker-{one}", f"Broker {one} of three is killed.", brokers=(one,))
      for one in (1, 2, 3)),
    _right("read-events", WORKER, RIGHTS, "rights", "Read", "topic", "-events"),
    _right("read-labels", WORKER, RIGHTS, "rights", "Read", "topic", "-labels"),
    _right("write-dead-letters", WORKER, WRITES, "dead_letters", "Write", "topic", "-events.dlq"),
    _right("read-group", WORKER, RIGHTS, "rights", "Read", "group", ""),
    _right("bridge-read-traces", BRIDGE, RIGHTS, "rights", "Read", "topic", "-traces"),
    _right("bridge-write-events", BRIDGE, WRITES, "topic", "Write", "topic", "-events"),
    _right("bridge-write-dead-letters", BRIDGE, WRITES, "dead_letters", "Write", "topic",
           "-traces.dlq"),
    _right("bridge-read-group", BRIDGE, RIGHTS, "rights", "Read", "group", "-bridge"),
)  # fmt: skip
BY_NAME: Final = {one.name: one for one in OUTAGES}


@dataclass
class Minute:
    """What was said at the end of a minute; ``lines`` were logged during it.

    ``alerts`` are by state, name and reason. ``lag`` are the samples of the workers' and of the
    bridge's ``/metrics``, in records. ``read_up_to`` is in Unix seconds, None if ``top`` told none.
    """

    number: int
    away: bool
    alerts: dict[str, int]
    verdict: str
    pill: str
    tile: str
    readyz: dict[str, str]
    bridge: str
    top: str
    top_code: int
    read_up_to: float | None
    lines: dict[str, int]
    sentence: str
    lag: dict[str, list[float]]


@dataclass
class Result:
    """One outage. Seconds count from the beginning of it, or from the return; None is never.

    ``cause`` is the first sentence of a log that names it.
    """

    name: str
    began: float = 0.0
    minutes: list[Minute] = field(default_factory=list)
    fired: dict[str, float] = field(default_factory=dict)
    cause: str = ""
    ready_after: float | None = None
    resolved_after: float | None = None
    sent: int = 0
    unsent: int = 0
    rows: int = 0
    commit: str = ""
    wrong: list[str] = field(default_factory=list)


@dataclass
class Traffic:
    """Events and traces, until ``over``. What the brokers never confirmed is not in ``invalid``."""

    kafka: Kafka
    system: BridgedSystem
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _sent: list[tuple[bool, asyncio.Future[Any]]] = field(default_factory=list)
    unsent: int = 0
    sent: int = 0
    invalid: set[tuple[str, int, int]] = field(default_factory=set)
    producer: AIOKafkaProducer | None = None

    async def send(
        self, topic: str, value: bytes, key: bytes | None, *, valid: bool, to: int | None = None
    ) -> None:
        """Send without waiting for the brokers, to a partition by the key or to that number."""
        assert self.producer is not None
        try:
            place = await self.producer.send(topic, value, key=key, partition=to)
            self._sent.append((valid, place))
        except KafkaError:
            self.unsent += 1

    async def run(self, seconds: float) -> None:
        """Send for as long as that, or until ``over``; then wait for what is on its way."""
        start = int(time.time())
        events, labels = self.system.topics
        profile = TrafficProfile(
            seed=start, conversations=int(0.7 * seconds), start=start, duration_seconds=seconds,
            agents=(DIRECT,), turns=(1, 1), iterations=(1, 3), result_bytes=200, invalid=0.005,
        )  # fmt: skip
        records, turns = generate(profile), Turns(start)
        waiting = next(records)
        async with AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
            self.producer = producer
            for number in range(int(seconds)):
                service = GOOD[number % len(GOOD)]
                spans = turns.turn(service)
                key = spans[0].trace_id.hex().encode()
                await self.send(self.system.traces, as_protobuf(spans), key, valid=True)
                if number % DAMAGED_EVERY == 0:
                    await self.damaged()
                while waiting.timestamp_ms <= 1_000 * time.time():
                    topic = events if waiting.stream == "events" else labels
                    await self.send(topic, waiting.value, waiting.key, valid=waiting.valid)
                    waiting = next(records)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.over.wait(), 1.0)
                if self.over.is_set():
                    break
            await self._confirmed()

    async def damaged(self, *, everywhere: bool = False) -> None:
        """Send a damaged trace, and an invalid event to one partition or to each."""
        await self.send(self.system.traces, DAMAGED[0], b"damaged", valid=False)
        for number in range(EVENT_PARTITIONS) if everywhere else [0]:
            await self.send(self.system.topics[0], b"{", b"damaged", valid=False, to=number)

    async def _confirmed(self) -> None:
        answers = await asyncio.gather(*(one for _, one in self._sent), return_exceptions=True)
        for (valid, _), place in zip(self._sent, answers, strict=True):
            if isinstance(place, BaseException):
                self.unsent += 1
                continue
            self.sent += 1
            if not valid:
                self.invalid.add((place.topic, place.partition, place.offset))
