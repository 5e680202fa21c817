"""The servers of other tests: they start, keep their data, and die on request."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, TopicAlreadyExistsError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from deploy.local.kafka.cluster import Kafka, admin, make_cluster_id
from deploy.local.servers import Alertmanager, Prometheus, RedisServer
from tests.helpers import rest_long, wait_until

MESSAGES = [b"one", b"two", b"three"]


async def produce(kafka: Kafka, topic: str, values: Sequence[bytes]) -> None:
    """Produce records, acknowledged by all replicas."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all")
    async with producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def consume(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    """The first values of the topic's partition 0."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    place = TopicPartition(topic, 0)
    async with consumer, asyncio.timeout(30):
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        return [(await consumer.getone()).value for _ in range(count)]


def a_topic() -> str:
    """A unique name."""
    return f"t-{uuid.uuid4().hex}"


async def test_kafka_round_trip(kafka: Kafka) -> None:
    """Records are consumed in the order in which they were produced."""
    topic = await kafka.create_topic(a_topic(), partitions=4)

    await produce(kafka, topic, MESSAGES)

    assert await consume(kafka, topic, 3) == MESSAGES


def test_no_cluster_id_looks_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tool gets no id that begins with a hyphen, as one in 64 would."""
    drawn = iter([uuid.UUID(bytes=b"\xfb" + bytes(15)), uuid.UUID(bytes=bytes(16))])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))

    assert make_cluster_id() == "A" * 22


async def test_kafka_topic_config(kafka: Kafka) -> None:
    """A topic has the requested configuration, and creating it again is an error."""
    topic = await kafka.create_topic(a_topic(), config={"max.message.bytes": "1234"})

    with pytest.raises(KafkaError):
        await produce(kafka, topic, [b"x" * 2_000])
    with pytest.raises(TopicAlreadyExistsError):
        await kafka.create_topic(topic)


async def test_kafka_creates_no_topic_by_itself(kafka: Kafka) -> None:
    """A request for a missing topic does not create it."""
    topic = a_topic()
    async with admin(kafka.bootstrap_servers) as client:
        await client.describe_topics([topic])

        assert topic not in await client.list_topics()


@pytest.mark.parametrize("how", rest_long(["kill9", "stop"]))
async def test_kafka_keeps_data(kafka_factory: Callable[..., Awaitable[Kafka]], how: str) -> None:
    """A broker that was stopped or killed has the same records at the same address afterwards."""
    kafka = await kafka_factory()
    address = kafka.bootstrap_servers
    topic = await kafka.create_topic(a_topic())
    await produce(kafka, topic, MESSAGES)

    if how == "kill9":
        kafka.kill9()
    await kafka.restart()

    assert address == kafka.bootstrap_servers
    assert await consume(kafka, topic, 3) == MESSAGES


@pytest.mark.long
async def test_kafka_quorum_survives_a_broker(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """With one of three brokers killed, producing with all acks and consuming continue."""
    kafka = await kafka_factory(brokers=3)
    topic = await kafka.create_topic(a_topic())
    await produce(kafka, topic, MESSAGES)

    kafka.brokers[0].kill9()
    await produce(kafka, topic, MESSAGES)

    assert await consume(kafka, topic, 6) == MESSAGES * 2


async def test_redis_keeps_data_when_killed(
    redis_factory: Callable[..., Awaitable[RedisServer]],
) -> None:
    """With fsync always, an acknowledged write survives kill -9."""
    redis = await redis_factory(fsync="always")
    async with Redis.from_url(redis.url) as client:
        await client.set("key", "value")

    redis.kill9()
    await redis.start()

    async with Redis.from_url(redis.unix_url) as client:
        assert await client.get("key") == b"value"


async def test_redis_is_fit_for_state(redis_server: RedisServer) -> None:
    """The Redis of the tests does not evict, and has an append-only file."""
    async with Redis.from_url(redis_server.url, decode_responses=True) as client:
        found = await client.config_get("maxmemory-policy", "appendonly")

    assert found == {"maxmemory-policy": "noeviction", "appendonly": "yes"}


async def test_redis_takes_options(redis_factory: Callable[..., Awaitable[RedisServer]]) -> None:
    """An option of the factory takes effect."""
    redis = await redis_factory(options={"maxmemory": "10mb", "requirepass": "secret"})

    async with Redis.from_url(redis.url, password="secret", decode_responses=True) as client:
        assert (await client.config_get("maxmemory"))["maxmemory"] == "10485760"


async def test_paused_server_does_not_answer(
    redis_factory: Callable[..., Awaitable[RedisServer]],
) -> None:
    """A paused server keeps its connections and does not answer until it is resumed."""
    redis = await redis_factory()
    async with Redis.from_url(redis.url, socket_timeout=0.2, retry=None) as client:
        redis.pause()
        with pytest.raises(RedisError):
            await client.ping()

        redis.resume()

        assert await client.ping()


async def test_paused_server_can_be_stopped(
    redis_factory: Callable[..., Awaitable[RedisServer]],
) -> None:
    """It is resumed first, so that it ends gracefully."""
    redis = await redis_factory()
    redis.pause()

    assert await redis.stop() == 0


async def test_prometheus_answers_a_query(
    prometheus_factory: Callable[..., Awaitable[Prometheus]],
) -> None:
    """Prometheus scrapes its targets and shows which of them is down."""
    dead = "127.0.0.1:1"
    prometheus = await prometheus_factory({"dead": [dead]})

    async def seen() -> list[str]:
        return [series["value"][1] for series in await prometheus.query('up{job="dead"}')]

    assert await wait_until(seen, 10, "Prometheus did not scrape") == ["0"]


async def test_alert_reaches_a_webhook(
    tmp_path: Path,
    prometheus_factory: Callable[..., Awaitable[Prometheus]],
    alertmanager_factory: Callable[..., Awaitable[Alertmanager]],
) -> None:
    """A rule that fires in Prometheus is delivered by Alertmanager to a webhook."""
    got: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        got.extend(alert["labels"]["alertname"] for alert in (await request.json())["alerts"])
        return web.Response()

    rules = tmp_path / "rules.yml"
    rule = {"alert": "TargetDown", "expr": "up == 0"}
    rules.write_text(json.dumps({"groups": [{"name": "test", "rules": [rule]}]}))
    async with webhook(receive) as url:
        alertmanager = await alertmanager_factory(url)
        prometheus = await prometheus_factory(
            {"dead": ["127.0.0.1:1"]}, rule_files=[rules], alertmanagers=[alertmanager.address]
        )
        await wait_until(prometheus.firing, 10, "the rule does not fire")

        await wait_until(lambda: got, 20, "no alert was delivered")

    assert {"TargetDown"} == set(got)


@asynccontextmanager
async def webhook(
    receive: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[str]:
    """The URL of a server that passes every POST to ``receive``."""
    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/"
    finally:
        await runner.cleanup()


async def test_children_die_with_a_killed_parent(tmp_path: Path) -> None:
    """A server ends with the process that started it, even if that is killed."""
    start = (
        "import asyncio, pathlib, sys;"
        "from deploy.local.servers import RedisServer;"
        "server = RedisServer(pathlib.Path(sys.argv[1]));"
        "asyncio.run(server.start()); print(server.pid, flush=True); input()"
    )
    pipe = asyncio.subprocess.PIPE
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", start, str(tmp_path), stdin=pipe, stdout=pipe
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())

    parent.kill()
    await parent.wait()

    await wait_until(lambda: not exists(child), 10, f"the server {child} still runs")


def exists(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"
