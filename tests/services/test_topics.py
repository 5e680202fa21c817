"""``stream-metrics topics create`` on a real broker."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping

import pytest

from deploy.local.kafka.cluster import Kafka
from deploy.local.traces import TRACES_TOPIC_CONFIG
from deploy.local.waiting import wait_until
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.clients.kafka.topics import partition_counts, topic_configs
from tests.forked import COMMAND

pytestmark = pytest.mark.service

Names = tuple[str, str]
Look = Callable[[], Awaitable[list[int | None]]]


@pytest.fixture
def names() -> Names:
    """Two unique names of topics."""
    mark = uuid.uuid4().hex[:8]
    return f"searches-{mark}", f"labels-{mark}"


def traces_of(names: Names) -> str:
    """The topic of traces for these topics."""
    return names[0].replace("searches", "traces")


async def create(kafka: Kafka, names: Names, *arguments: str) -> tuple[int | None, str]:
    """Run the command; returns exit code and all output."""
    settings = {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAM_METRICS_KAFKA__TOPICS": f'["{names[0]}", "{names[1]}"]',
        "STREAM_METRICS_BRIDGE__TOPIC": traces_of(names),
    }
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "topics",
        "create",
        *arguments,
        env={**os.environ, **settings},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


@pytest.fixture
def counts(kafka: Kafka, names: Names) -> Look:
    """Partition counts of the two topics and of their dead-letter topics."""
    wanted = [*names, *(f"{name}.dlq" for name in names)]
    options = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers, topics=names)

    async def look() -> list[int | None]:
        found = await partition_counts(options, wanted)
        return [found.get(name) for name in wanted]

    return look


async def test_missing_topics_are_made_and_others_left(
    kafka: Kafka, names: Names, counts: Look
) -> None:
    """All four have the requested partitions; a second run changes nothing."""
    first = await create(kafka, names, "--partitions", "3")
    second = await create(kafka, names, "--partitions", "5")

    assert (first[0], first[1].count("3 partitions, created")) == (0, 4)
    assert (second[0], second[1].count("3 partitions, was there already")) == (0, 4)
    assert await counts() == [3, 3, 3, 3]


async def test_new_topics_have_the_partitions_of_the_one_that_is_there(
    kafka: Kafka, names: Names, counts: Look
) -> None:
    """Workers would not start with the requested count."""
    await kafka.create_topic(names[1], 2)

    assert (await create(kafka, names, "--partitions", "6"))[0] == 0
    assert await counts() == [2, 2, 2, 2]


async def test_unequal_input_topics_are_refused(kafka: Kafka, names: Names) -> None:
    """The error has both counts, and nothing is created."""
    await kafka.create_topic(names[0], 2)
    await kafka.create_topic(names[1], 4)

    code, said = await create(kafka, names)

    assert code == 2
    assert f"{names[0]} has 2, {names[1]} has 4" in said


async def test_records_must_be_kept_for_longer_than_state(kafka: Kafka, names: Names) -> None:
    """Otherwise the worker could not rebuild a lost Redis from the topics."""
    code, said = await create(kafka, names, "--keep-days", "0.5")

    assert code == 2
    assert "not longer than state.ttl (24h)" in said


async def test_more_copies_than_brokers_is_said_so(kafka: Kafka, names: Names) -> None:
    """The broker's error is printed."""
    code, said = await create(kafka, names, "--copies", "3")

    assert code == 2
    assert "InvalidReplicationFactorError" in said


async def test_topics_of_traces_have_the_times_of_the_broker(kafka: Kafka, names: Names) -> None:
    """With --traces the topics of the bridge equal those in the tests of the Collector."""
    code, said = await create(kafka, names, "--partitions", "3", "--traces")

    made = [traces_of(names), f"{traces_of(names)}.dlq"]
    assert code == 0, said
    assert [f"{name}: 3 partitions, created" in said for name in made] == [True, True]
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    for name in made:

        async def known(name: str = name) -> Mapping[str, str]:
            # brokers answer the request before they show clients the new topic
            return (await topic_configs(settings, [name])).get(name) or {}

        config = await wait_until(known, 30, f"{name} is not there")
        assert TRACES_TOPIC_CONFIG.items() <= config.items()


async def test_traces_must_be_kept_longer_than_the_bridge_may_read_again(
    kafka: Kafka, names: Names
) -> None:
    """A shorter retention than a restart needs is refused, and nothing is created."""
    code, said = await create(kafka, names, "--traces", "--keep-traces-days", "0.01")

    assert code == 2
    assert "not longer than bridge.trace_max (15m)" in " ".join(said.split())
