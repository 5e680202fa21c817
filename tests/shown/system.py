"""A worker that has read the last hours, traffic that goes on, and a Prometheus that scrapes."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import Prometheus, RedisServer
from deploy.local.stack import DEPLOY, RETRIEVAL, Command, generator_command
from deploy.local.waiting import wait_until
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from tests.label_samples import in_samples
from tests.otlp import SpanSpec, as_protobuf
from tests.services.bridged import BridgedSystem, bridged
from tests.services.live import produce
from tests.sessions import KINDS, Sent, trace_of

JOB: Final = "stream-metrics"
BRIDGE_JOB: Final = "stream-metrics-bridge"
SECONDS: Final = 4 * 3_600  # so that it is known what is usual, with some to spare
WITHIN_SECONDS: Final = 120
CONVERSATIONS: Final = 600
SEED: Final = 2  # another than the generator's: its conversations are others
LIVE_CONVERSATIONS_PER_HOUR: Final = 7_200
REFUSED: Final = 'streammetrics_bridge_refused_total{agent="billing"}'
TRACES_EACH: Final = 10


class Shown(NamedTuple):
    """A system at work, and who watches it."""

    system: BridgedSystem
    prometheus: Prometheus


@asynccontextmanager
async def shown(kafka: Kafka, folder: Path) -> AsyncIterator[Shown]:
    """A worker, whose Redis has the memory limit of ours, and a bridge, scraped from the start on.

    They have read traces of two agents, of which one is refused, and the traffic of the last hours
    up to now; nothing more comes.
    """
    async with RedisServer(folder / "redis", config=DEPLOY / "redis" / "redis.conf") as redis:
        work = folder / f"shown-{uuid.uuid4().hex[:8]}"
        system = await bridged(kafka, redis, work, metrics__retrieval=RETRIEVAL)
        await system.start_workers(1)
        bridge = await system.bridge()
        (worker,) = system.workers
        try:
            await wait_until(worker.ready, WITHIN_SECONDS, "the worker is not ready")
            await wait_until(bridge.ready, WITHIN_SECONDS, bridge.log_tail)
            jobs = {JOB: [worker.address], BRIDGE_JOB: [bridge.address]}
            rules = [DEPLOY / "prometheus" / "estimates.rules.yml"]
            async with Prometheus(
                folder / "prometheus", jobs, rule_files=rules, interval="1s"
            ) as prometheus:
                await system.interpreted(await system.send(told_and_refused(1)))
                await wait_until(
                    partial(prometheus.query, f"{REFUSED} > 0 and on () streammetrics_ready == 1"),
                    WITHIN_SECONDS,
                    "Prometheus has not scraped worker and bridge",
                )
                streams = {"events": system.topics[0], "labels": system.topics[1]}
                system.produced = await system.in_input_topics() + await produce(
                    kafka, streams, last_hours()
                )
                await system.reach(1.0)
                yield Shown(system, prometheus)
        finally:
            await bridge.stop()
            await system.stop_workers()


@asynccontextmanager
async def live_traffic(watched: Shown) -> AsyncIterator[None]:
    """What ``make stack`` and the containers have for traffic, and some more traces.

    Refused traces are seen in rates for a minute only, so there has to be evidence by then.
    """
    system, prometheus = watched
    await wait_until(
        partial(prometheus.query, "streammetrics_evidence"), WITHIN_SECONDS, "no evidence is told"
    )
    await system.send(told_and_refused(2))
    much = ["--conversations", str(LIVE_CONVERSATIONS_PER_HOUR)]
    command = [*generator_command(), *much]
    async with Command(system.folder / "generator", command, system.environment):
        yield


def told_and_refused(seed: int) -> list[Sent]:
    """Traces of an agent, and of another one whose kinds of spans a limit has cut off."""
    made = [trace_of(2 * TRACES_EACH * seed + at) for at in range(TRACES_EACH)]
    for at in range(TRACES_EACH):
        trace = 2 * TRACES_EACH * seed + TRACES_EACH + at
        name = {"service.name": "billing"}
        made.append([SpanSpec(trace, 1, 0, 0, 9, {KINDS: "RETR"}, name)])
    return [Sent(spans[0].trace_id.hex().encode(), as_protobuf(spans)) for spans in made]


def last_hours() -> list[TrafficRecord]:
    """The records of the last hours, as they would have come until now, with random samples."""
    now_s = int(time.time())
    profile = TrafficProfile(
        seed=SEED,
        conversations=CONVERSATIONS,
        start=now_s - SECONDS,
        duration_seconds=SECONDS,
    )
    records = generate(profile)
    return [one for one in in_samples(records) if one.timestamp_ms <= now_s * 1_000]
