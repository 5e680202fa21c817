"""Workers and ``check --topics`` report topics with different partitioners."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.lab.traffic import generate
from stream_metrics.live.kafka.partitioners import PARTITIONERS
from tests.helpers import wait_until
from tests.services.live import PARTITIONS, LiveSystem, Produced, recorded, said
from tests.services.test_live import few, new_topics

pytestmark = pytest.mark.service

GAUGE = "streammetrics_topics_keyed_differently"


async def system_keyed(
    kafka: Kafka, redis: RedisServer, folder: Path, by: Mapping[str, str]
) -> LiveSystem:
    """Topics with little traffic, each with the partitioner of that name."""
    group = f"keys-{folder.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    to = {"events": topics[0], "labels": topics[1]}
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=20)
    await producer.start()
    try:
        for record in generate(few(seed=21)):
            key = record.key
            place = None if key is None else PARTITIONERS[by[record.stream]](key, PARTITIONS)
            await producer.send(
                to[record.stream],
                record.value,
                key=key,
                partition=place,
                timestamp_ms=record.timestamp_ms,
            )
        await producer.flush()
    finally:
        await producer.stop()
    records = await recorded(kafka, topics)
    return LiveSystem(
        kafka, redis, folder / "system", group, topics, Produced(records, frozenset(), 0)
    )


async def test_different_partitioners_are_reported_in_three_places(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """With librdkafka's default for searches and Java's for labels most labels are lost; the log
    (once), a gauge and ``check`` report it."""
    system = await system_keyed(
        kafka, redis_server, tmp_path, {"events": "crc32", "labels": "murmur2"}
    )
    searches, labels = system.topics
    await system.start_workers(1)
    (worker,) = system.workers
    await system.reach(1.0)

    async def told() -> bool:
        return await worker.figure(GAUGE) == 1

    await wait_until(told, 30, worker.log_tail)
    code, text = await said(system, "check", "--topics")
    assert await system.stop_workers() == [0]

    log = worker.log.read_text()
    assert log.count("input topics are keyed by different partitioners") == 1
    assert code == 2
    assert f"keys of {searches} ok placed by CRC-32" in text
    assert f"keys of {labels} ok placed by murmur2" in text
    assert "error the topics are keyed by different partitioners" in text

    system.settings["STREAM_METRICS_KAFKA__REPARTITION_TOPIC"] = f"{system.group}-internal"
    _, text = await said(system, "check", "--topics")
    assert "keys ok workers repartition" in text


@pytest.mark.long  # the unit tests show the same of every partitioner
async def test_topics_with_the_same_partitioner_are_accepted(
    kafka: Kafka, redis_server: RedisServer, tmp_path: Path
) -> None:
    """This includes a common partitioner other than Kafka's default."""
    system = await system_keyed(
        kafka, redis_server, tmp_path, {"events": "crc32", "labels": "crc32"}
    )
    await system.start_workers(1)
    (worker,) = system.workers
    await system.reach(1.0)

    async def looked() -> bool:
        return await worker.figure("streammetrics_consumer_lag_records") == 0

    await wait_until(looked, 30, worker.log_tail)
    code, text = await said(system, "check", "--topics")
    gauge = await worker.figure(GAUGE)
    assert await system.stop_workers() == [0]

    assert (code, gauge) == (0, 0), text
    assert text.count("placed by CRC-32") == 2
    assert "input topics are keyed" not in worker.log.read_text()
