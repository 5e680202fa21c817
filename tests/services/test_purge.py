"""The command ``stream-metrics purge`` on real servers."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from deploy.local.kafka.cluster import Kafka
from deploy.local.servers import RedisServer
from stream_metrics.live.layout import Identity, Layout
from stream_metrics.live.ports import BatchWrite, ConversationWrite, Position, Wiping, Written
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.redis.keys import OFFSET
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.generations import admit, begin, state_in_force
from tests.forked import COMMAND
from tests.helpers import rest_long, wait_until

pytestmark = pytest.mark.service

CONVERSATIONS = 700  # more than one step takes
NOT_ANSWERED = 2


class Abandoned:
    """A namespace with the state of two partitions, and the command for it."""

    def __init__(self, store: RedisStore, raw: Redis, settings: dict[str, str]) -> None:
        self.store, self.raw, self.settings = store, raw, settings
        self.name = settings["STREAM_METRICS_KAFKA__GROUP_ID"]

    async def fill(self) -> None:
        """Write the state."""
        identity = Identity(self.name, 1, "fingerprint", {"searches": 2})
        state = self.store.generation(await begin(self.store, identity, 0))
        for partition in (0, 1):
            await state.claim(partition, b"owner", {"searches": Position(0)})
            found = [
                ConversationWrite(n.to_bytes(16, "big"), {b"p": b"1"}, {b"f": b"1"})
                for n in range(CONVERSATIONS)
            ]
            batch = BatchWrite(
                partition, b"owner", b"1", {"searches": 0}, {"searches": Position(1)}, found
            )
            assert await state.write(batch) == Written()
        await admit(self.store, "agents", ["a"], [], 1)
        await self.store.keep_note("told", b"an agent")

    async def keys(self) -> int:
        """The number of keys in the namespace, without the layout."""
        found = [key async for key in self.raw.scan_iter(self.store.keys.prefix + ":*")]
        return len(set(found) - {self.store.keys.layout})

    async def purge(self, *arguments: str, typed: str = "") -> tuple[int, str]:
        """Run the command; returns its exit code and standard error."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "purge",
            *arguments,
            env={**os.environ, **self.settings},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate(typed.encode())
        assert process.returncode is not None
        return process.returncode, said.decode()


@pytest_asyncio.fixture
async def abandoned(kafka: Kafka, redis_server: RedisServer) -> AsyncIterator[Abandoned]:
    """A namespace with state whose group has no members."""
    name = f"old-{uuid.uuid4().hex[:12]}"
    store = connect(RedisOptions(url=redis_server.url, namespace=name))
    settings = {
        "STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "STREAM_METRICS_KAFKA__GROUP_ID": name,
        "STREAM_METRICS_REDIS__URL": redis_server.url,
    }
    async with Redis.from_url(redis_server.url) as raw:
        made = Abandoned(store, raw, settings)
        await made.fill()
        yield made
    await store.close()


async def test_it_shows_what_it_deletes_and_deletes_all(abandoned: Abandoned) -> None:
    """Once the namespace is typed, nothing is left but a layout that says so, and partitions and
    conversations were named."""
    code, said = await abandoned.purge(typed=f"{abandoned.name}\n")

    assert code == 0
    assert "generations    1" in said
    assert "conversations  1,400" in said
    assert await abandoned.keys() == 0
    layout = await abandoned.store.layout()
    assert layout == Layout(version=layout.version)


async def test_yes_does_not_ask(abandoned: Abandoned) -> None:
    """This is for scripts; a namespace other than that of the settings can be given."""
    del abandoned.settings["STREAM_METRICS_KAFKA__GROUP_ID"]

    code, _ = await abandoned.purge("--yes", "--namespace", abandoned.name)

    assert (code, await abandoned.keys()) == (0, 0)


async def test_damaged_state_is_deleted_too(abandoned: Abandoned) -> None:
    """A partition with unreadable offsets can be deleted."""
    async for key in abandoned.raw.scan_iter(abandoned.store.keys.prefix + ":*meta"):
        await abandoned.raw.hset(key, OFFSET + b"searches", "damaged")

    code, said = await abandoned.purge("--yes")

    assert (code, await abandoned.keys()) == (0, 0), said


async def test_a_partition_with_a_damaged_list_is_deleted(
    abandoned: Abandoned,
) -> None:
    """It is deleted even if a string replaces the list."""
    async for key in abandoned.raw.scan_iter(abandoned.store.keys.prefix + ":*idle"):
        await abandoned.raw.set(key, "foreign")

    code, said = await abandoned.purge("--yes")

    assert (code, await abandoned.keys()) == (0, 0), said


@pytest.mark.parametrize(
    ("typed", "exits"), rest_long([("y\n", 1), ("", NOT_ANSWERED), ("yes\n", 1)])
)
async def test_anything_else_deletes_nothing(abandoned: Abandoned, typed: str, exits: int) -> None:
    """Only the name of the namespace confirms, and no answer at all is an error."""
    before = await abandoned.keys()

    code, said = await abandoned.purge(typed=typed)

    assert (code, await abandoned.keys()) == (exits, before)
    assert ("use --yes to delete it" in said) == (exits == NOT_ANSWERED)


async def test_it_refuses_while_the_group_has_members(kafka: Kafka, abandoned: Abandoned) -> None:
    """A member may be a worker that writes; --force overrides."""
    before = await abandoned.keys()
    topic = await kafka.create_topic(abandoned.name)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, group_id=abandoned.name
    )
    await consumer.start()
    try:
        await wait_until(lambda: consumer.assignment(), 30, "the consumer has not joined")
        code, said = await abandoned.purge("--yes")
        assert (code, await abandoned.keys()) == (2, before)
        assert "has 1 members" in said

        code, _ = await abandoned.purge("--yes", "--force")
        assert (code, await abandoned.keys()) == (0, 0)
    finally:
        await consumer.stop()


async def test_it_refuses_if_kafka_is_unavailable(abandoned: Abandoned) -> None:
    """Without Kafka nothing shows whether a worker is running; --force overrides."""
    abandoned.settings["STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS"] = "127.0.0.1:1"
    before = await abandoned.keys()

    code, said = await abandoned.purge("--yes")
    assert (code, await abandoned.keys()) == (2, before)
    assert "does not tell" in said

    code, _ = await abandoned.purge("--yes", "--force")
    assert (code, await abandoned.keys()) == (0, 0)


async def test_an_interrupted_purge_is_resumed(abandoned: Abandoned) -> None:
    """The rest of an earlier purge is named and deleted."""
    state = await state_in_force(abandoned.store)
    for _ in range(2):
        assert isinstance(await state.wipe(1), Wiping)

    code, said = await abandoned.purge("--yes")

    assert (code, await abandoned.keys()) == (0, 0)
    assert "cut off: [1]" in said


async def test_an_empty_namespace_is_not_an_error(abandoned: Abandoned) -> None:
    """A second purge says that nothing is stored."""
    await abandoned.purge("--yes")

    code, said = await abandoned.purge("--yes")

    assert (code, "has no state" in said) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "url"),
    [(("--namespace", "a b"), None), (("--yes",), "redis://127.0.0.1:1/0")],
    ids=["namespace", "redis"],
)
async def test_invalid_arguments_exit_with_2(
    abandoned: Abandoned, arguments: tuple[str, ...], url: str | None
) -> None:
    """An invalid namespace or an unreachable Redis is one line."""
    if url:
        abandoned.settings["STREAM_METRICS_REDIS__URL"] = url

    code, said = await abandoned.purge(*arguments)

    assert code == 2
    assert said.startswith("error: ")
    assert "Traceback" not in said
