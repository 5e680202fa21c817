"""What `check` says of the state: that which a worker would say, and nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from deploy.local.servers import RedisServer
from stream_metrics.adapters.memory import MemoryStore
from stream_metrics.adapters.redis.connect import RedisOptions, connect
from stream_metrics.cli import app
from stream_metrics.layout import Identity
from stream_metrics.ports import Position
from stream_metrics.runtime import identity
from stream_metrics.settings import Settings
from stream_metrics.worker.standing import Standing, standing

COUNTS = {"events": 2}
OURS = identity(Settings(), {})


async def stored(ours: Identity = OURS, counts: Mapping[str, int] | None = None) -> MemoryStore:
    """Both partitions of a group."""
    store = MemoryStore()
    built = replace(ours, partition_counts=counts or COUNTS)
    for number in range(2):
        await store.claim(number, b"worker", built, {"events": Position(0)})
    return store


async def obstacles(store: MemoryStore, counts: Mapping[str, int] | None = None) -> str:
    """Why workers would fail."""
    return "; ".join((await standing(store, OURS, counts or COUNTS)).obstacles)


async def test_state_that_fits_is_no_obstacle() -> None:
    """Its partitions and schemas are told."""
    assert await standing(await stored(), OURS, COUNTS) == Standing((0, 1), (), (1,), ())


async def test_no_state_is_no_obstacle() -> None:
    """A new group begins."""
    assert await standing(MemoryStore(), OURS, COUNTS) == Standing((), (), (), ())


async def test_other_partition_counts_are_an_obstacle() -> None:
    """As a worker says, with the way out."""
    assert "stream-metrics reshard" in await obstacles(await stored(), {"events": 3})


async def test_without_the_topics_counts_the_rest_is_compared() -> None:
    """Where Kafka does not tell, counts are no obstacle; another group is."""
    store = await stored()

    assert (await standing(store, OURS, None)).obstacles == ()
    [why] = (await standing(store, replace(OURS, group="stranger"), None)).obstacles
    assert "belongs to group" in why


async def test_other_settings_are_an_obstacle_once() -> None:
    """All partitions share it, and the first is named."""
    store = await stored(identity(Settings.model_validate({"metrics": {"good_gain": 3}}), {}))

    [why] = (await standing(store, OURS, COUNTS)).obstacles

    assert "state partition 0" in why
    assert "stream-metrics migrate" in why


async def test_a_schema_of_a_later_release_is_an_obstacle() -> None:
    """This release cannot read it."""
    assert "schema 99" in await obstacles(await stored(replace(OURS, schema_version=99)))


async def test_a_hold_is_an_obstacle() -> None:
    """Workers are refused until the command has been run again."""
    store = await stored()
    await store.hold(b"mark", "migrate")

    assert "stream-metrics migrate" in await obstacles(store)


async def test_a_wipe_that_was_cut_off_is_told() -> None:
    """Workers end it."""
    store = await stored()
    await store.wipe(1)

    assert await standing(store, OURS, COUNTS) == Standing((0,), (1,), (1,), ())


@pytest.fixture
def namespace(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisOptions:
    """An empty namespace, which the settings point to; there is no Kafka."""
    options = RedisOptions(url=redis_server.url, namespace=f"standing-{uuid4()}")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", options.url)
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", options.namespace)
    monkeypatch.setenv("STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    return options


def fill(options: RedisOptions, **damage: bytes) -> None:
    """Claim a partition as a worker does, and overwrite fields of what Redis holds of it."""

    async def work() -> None:
        store = connect(options)
        await store.claim(0, b"worker", replace(OURS, partition_counts=COUNTS), {})
        if damage:
            client: Any = store.client
            tag = await client.hget(store.keys.layout, "0")
            fields = {name.replace("_", ":"): value for name, value in damage.items()}
            await client.hset(store.keys.partition(tag.decode()).meta, mapping=fields)
        await store.close()

    asyncio.run(work())


def lines(about: str) -> list[str]:
    """What `check` says of it."""
    said = CliRunner().invoke(app, ["check"], terminal_width=500)
    return [line for line in said.stdout.splitlines() if line.startswith(about)]


def test_check_tells_of_state_also_without_kafka(namespace: RedisOptions) -> None:
    """How many partitions there are, by which schema they are stored, and under which tables."""
    fill(namespace)

    [line] = lines("state")

    assert " ".join(line.split()) == "state ok 1 partitions, by schema 1, dedup.tables 1"


def test_check_tells_of_a_new_group(namespace: RedisOptions) -> None:
    """There is no state yet."""
    [line] = lines("state")

    assert line.split()[1:] == ["ok", "none", "yet"]


def test_check_says_that_state_is_damaged(namespace: RedisOptions) -> None:
    """A worker would halt the partition, and name the way out."""
    fill(namespace, i_schema=b"damaged")

    [line, *_] = lines("state")

    assert line.split()[1] == "error"


def test_check_changes_nothing(namespace: RedisOptions) -> None:
    """What Redis holds is the same afterwards."""
    fill(namespace)

    async def content() -> dict[bytes, object]:
        async with Redis.from_url(namespace.url) as raw:
            names = [n async for n in raw.scan_iter(f"sm:{namespace.namespace}:*")]
            return {name: await raw.hgetall(name) for name in names}

    before = asyncio.run(content())
    lines("state")

    assert len(before) == 2
    assert asyncio.run(content()) == before
