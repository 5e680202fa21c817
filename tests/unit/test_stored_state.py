"""``check`` reports on the state as a worker would, and changes nothing."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from deploy.local.servers import RedisServer
from stream_metrics.cli import app
from stream_metrics.cli.options import identity
from stream_metrics.cli.settings import Settings
from stream_metrics.live.layout import Generation
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.ports import Position
from stream_metrics.live.redis.connect import RedisOptions, connect
from stream_metrics.live.worker.ownership.generations import begin, change
from stream_metrics.live.worker.ownership.stored_state import StoredState, inspect_state

COUNTS = {"events": 2}
OURS = identity(Settings(), COUNTS)


async def stored() -> tuple[MemoryStore, Generation]:
    """A generation with both partitions started."""
    space = MemoryStore()
    generation = await begin(space, OURS, 0)
    store = space.generation(generation)
    for number in range(2):
        await store.claim(number, b"worker", {"events": Position(0)})
    return store, generation


async def test_started_partitions_are_reported() -> None:
    """The report says if there are none yet."""
    assert await inspect_state(*await stored()) == StoredState((0, 1), (), ())
    generation = await begin(empty := MemoryStore(), OURS, 0)
    assert await inspect_state(empty.generation(generation), generation) == StoredState((), (), ())


async def test_an_interrupted_wipe_is_reported() -> None:
    """Workers will complete it."""
    store, generation = await stored()
    await store.wipe(1)

    assert await inspect_state(store, generation) == StoredState((0,), (1,), ())


@pytest.fixture
def namespace(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisOptions:
    """An empty namespace that the settings point to; Kafka is unavailable."""
    options = RedisOptions(url=redis_server.url, namespace=f"standing-{uuid4()}")
    monkeypatch.setenv("STREAM_METRICS_REDIS__URL", options.url)
    monkeypatch.setenv("STREAM_METRICS_REDIS__NAMESPACE", options.namespace)
    monkeypatch.setenv("STREAM_METRICS_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "500")  # each finding on a line of its own
    return options


def fill(options: RedisOptions, **damage: bytes) -> None:
    """Claim a partition as a worker does, and overwrite fields of its value in Redis."""

    async def work() -> None:
        space = connect(options)
        generation = await begin(space, OURS, 0)
        await space.generation(generation).claim(0, b"worker", {"events": Position(0)})
        if damage:
            client: Any = space.client
            fields = {name.replace("_", ":"): value for name, value in damage.items()}
            await client.hset(space.keys.partition(generation.places[0]).meta, mapping=fields)
        await space.close()

    asyncio.run(work())


def lines(about: str) -> list[str]:
    """The lines of `check` with this subject."""
    said = CliRunner().invoke(app, ["check"])
    return [line for line in said.stdout.splitlines() if line.startswith(about)]


def test_check_reports_state_even_without_kafka(namespace: RedisOptions) -> None:
    """It prints the number of partitions, their schema and their tables."""
    fill(namespace)

    [line] = lines("state")

    assert " ".join(line.split()) == (
        "state ok generation 1, in force, 1 partitions, by schema 1, dedup.tables 3"
    )


def test_check_reports_a_new_group(namespace: RedisOptions) -> None:
    """It says that there is no state yet."""
    [line] = lines("state")

    assert line.split()[1:] == ["ok", "none", "yet"]


def test_check_reports_damaged_state(namespace: RedisOptions) -> None:
    """A worker would halt the partition; the report has the remedy."""
    fill(namespace, o_events=b"damaged")

    [line, *_] = lines("state")

    assert line.split()[1] == "error"


def test_check_changes_nothing(namespace: RedisOptions) -> None:
    """The content of Redis is the same afterwards."""
    fill(namespace)

    async def content() -> dict[bytes, object]:
        async with Redis.from_url(namespace.url) as raw:
            names = [n async for n in raw.scan_iter(f"sm:{namespace.namespace}:*")]
            return {name: await raw.hgetall(name) for name in names}

    before = asyncio.run(content())
    lines("state")

    assert len(before) == 2
    assert asyncio.run(content()) == before


def built(options: RedisOptions, *, good_gain: int = 3, switched: bool = False) -> None:
    """Build another generation as `stream-metrics build` does, and switch to it if asked."""

    async def work() -> None:
        space = connect(options)
        other = Settings.model_validate({"metrics": {"good_gain": good_gain}})
        await change(space, lambda now: now.registered(identity(other, COUNTS), "mark", 1))
        if switched:
            await change(space, lambda now: now.switched(2, 2))
        await space.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("ours", "good_gain", "state", "joins"),
    [
        ("2", 3, "ok generation 1, in force, 1 partitions", "join generation 1"),
        ("3", 3, "ok generation 2, being built, 0 partitions", "join generation 2"),
        ("1", 3, "error the state of group", "join neither"),
        ("2", 2, "ok generation 1, in force, 1 partitions", "generation 1; if they are started by"),
    ],
)
def test_check_reports_a_build_and_who_joins_it(
    namespace: RedisOptions,
    monkeypatch: pytest.MonkeyPatch,
    ours: str,
    good_gain: int,
    state: str,
    joins: str,
) -> None:
    """It prints the differences, the progress, and the generation that has these settings."""
    fill(namespace)
    assert lines("build") == []
    built(namespace, good_gain=good_gain)
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", ours)

    [line], [build] = lines("state"), lines("build")
    assert " ".join(line.split()).startswith(f"state {state}")
    differ = "metrics.good_gain was 2, is 3" if good_gain == 3 else "the same settings"
    assert f"generation 2 is being built beside generation 1 ({differ})" in build
    assert "0 of 2 partitions are worked on" in build
    assert joins in build


def test_check_reports_an_unfinished_switch(
    namespace: RedisOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which settings can complete it."""
    fill(namespace)
    built(namespace, switched=True)
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")

    [line] = lines("build")
    assert "warning" in line
    assert "generation 1 has ended, and is not deleted yet. Workers of generation 2 do that" in line
