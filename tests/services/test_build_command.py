"""Output and exit codes of ``stream-metrics build`` before any worker runs, on real servers."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from stream_metrics.cli.options import identity
from stream_metrics.cli.settings import Settings
from stream_metrics.live.layout import Layout
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import begin
from tests.forked import COMMAND
from tests.helpers import wait_until

pytestmark = pytest.mark.service

ENDS_SECONDS = 120
KEY = "a secret of the tests"
GOOD_GAIN = "STREAM_METRICS_METRICS__GOOD_GAIN"


@dataclass
class Asked:
    """A namespace with state in two partitions, and the command on it."""

    space: RedisStore
    settings: dict[str, str]
    topics: tuple[str, str]

    async def layout(self) -> Layout:
        """The generations of the namespace."""
        return await self.space.layout()

    async def build(
        self, *arguments: str, typed: str = "", settings: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """Run the command with another `metrics.good_gain`; returns the exit code and output."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "build",
            *arguments,
            env={**os.environ, **self.settings, GOOD_GAIN: "3", **(settings or {})},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(ENDS_SECONDS):
                said, _ = await process.communicate(typed.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return process.returncode, " ".join(said.decode().split())


@pytest_asyncio.fixture
async def asked(kafka: Kafka, redis_server: RedisServer) -> AsyncIterator[Asked]:
    """Live state, and topics with a few recent records."""
    name = f"asked-{uuid.uuid4().hex[:12]}"
    topics = (f"{name}-searches", f"{name}-labels")
    for topic in topics:
        await kafka.create_topic(topic, 2)
    settings = {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAM_METRICS_KAFKA__GROUP_ID": name,
        "STREAM_METRICS_KAFKA__TOPICS": f'["{topics[0]}", "{topics[1]}"]',
        "STREAM_METRICS_REDIS__URL": redis_server.url,
        "STREAM_METRICS_STATE__DIGEST_KEY": KEY,
    }
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for topic in topics:
            await producer.send_and_wait(topic, b"{}", partition=0)
            await producer.send_and_wait(topic, b"{}", partition=0)
    space = connect(RedisOptions(url=redis_server.url, namespace=name))
    built = Settings.model_validate(
        {"kafka": {"group_id": name, "topics": topics}, "state": {"digest_key": KEY}}
    )
    await begin(space, identity(built, dict.fromkeys(topics, 2)), time.time_ns() // 1_000_000)
    yield Asked(space, settings, topics)
    await space.close()


async def test_a_dry_run_shows_differences_and_needs(asked: Asked) -> None:
    """It starts no build."""
    before = await asked.layout()

    code, said = await asked.build("--dry-run")

    assert code == 0
    assert "metrics.good_gain was 2, is 3" in said
    assert "memory: about 0 bytes more; Redis uses" in said
    assert await asked.layout() == before


async def test_live_settings_are_rebuilt_only_with_again(asked: Asked) -> None:
    """Repeating an interrupted command after workers have finished the switch builds nothing."""
    before, same = await asked.layout(), {GOOD_GAIN: "2"}

    code, said = await asked.build("--yes", settings=same)
    assert (code, await asked.layout()) == (0, before)
    assert "generation 1 is in force, and was built with these settings" in said

    code, said = await asked.build("--again", "--dry-run", settings=same)
    assert code == 0
    assert "nothing differs: the same is built again" in said


async def test_it_builds_nothing_unless_the_answer_is_yes(asked: Asked) -> None:
    """Other answers exit with 1, and no build is started."""
    before = await asked.layout()

    code, said = await asked.build(typed="n\n")

    assert (code, await asked.layout()) == (1, before)
    assert "Build this beside the state in force?" in said


async def test_topics_that_begin_too_late_are_refused_unless_accepted(
    kafka: Kafka, asked: Asked
) -> None:
    """It names the log, when it begins and until when figures would be too low."""
    async with admin(kafka.bootstrap_servers) as client:
        place = TopicPartition(asked.topics[0], 0)
        await client.delete_records({place: RecordsToDelete(before_offset=1)})

    code, said = await asked.build("--dry-run")
    assert code == 2
    assert f"{asked.topics[0]}/0 begins at " in said
    assert "so figures would be too low until " in said
    assert "accept that with --from-retained" in said

    code, said = await asked.build("--dry-run", "--from-retained")
    assert code == 0, said
    assert "figures would be too low" in said


async def test_a_running_build_can_be_followed_and_given_up(asked: Asked) -> None:
    """A second command with the same settings follows the build, and is refused with others. The
    first command exits when the build is given up; giving up twice is not an error."""
    first = asyncio.create_task(asked.build("--yes"))

    async def registered() -> bool:
        return (await asked.layout()).building is not None

    await wait_until(registered, 60, "nothing is being built")
    code, said = await asked.build(settings={GOOD_GAIN: "1"})
    assert code == 2
    assert "generation 2 is being built otherwise (metrics.good_gain was 3, is 1)" in said
    assert "--give-up" in said
    code, said = await asked.build("--dry-run")
    assert code == 0
    assert "generation 2 is being built already" in said

    for _ in range(2):
        code, said = await asked.build("--give-up")
        assert (code, said) == (0, "nothing is being built")
    code, said = await first
    assert code == 2
    assert "Start workers with these settings: stream-metrics worker" in said
    assert "0 of 2 partitions are worked on; behind: not known yet" in said
    assert "generation 2 is not being built any more" in said


async def test_without_state_there_is_nothing_to_build(asked: Asked) -> None:
    """The first workers create it."""
    code, said = await asked.build(
        "--yes", settings={"STREAM_METRICS_REDIS__NAMESPACE": f"empty-{uuid.uuid4().hex}"}
    )

    assert code == 2
    assert "there is no state yet: start the workers" in said
