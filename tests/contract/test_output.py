"""What every output promises: one writer a partition, an order, and versions that grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

import pytest
import pytest_asyncio

from deploy.local.kafka.cluster import Kafka
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.kafka.output import VERSION, KafkaOutputs
from stream_metrics.live.memory import MemoryOutputs, MemoryTopic
from stream_metrics.live.ports import OutputFenced, OutputMessage, Outputs, OutputUnavailable
from tests.services.live import stored

Message = tuple[str, int, bytes | None]  # conversation, version, value
PARTITIONS = 3


@dataclass
class Scene:
    """Two workers' ways to one topic, what lies on it, and ways to a topic that is not there."""

    one: Outputs
    two: Outputs
    read: Callable[[], Awaitable[list[Message]]]
    nowhere: Outputs

    async def versions(self, conversation: str) -> list[int]:
        """Of the messages of one conversation, in the order in which they lie there."""
        return [version for name, version, _ in await self.read() if name == conversation]


@pytest_asyncio.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.service)])
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The same scene in memory and in a real Kafka."""
    if request.param == "memory":
        topic, away = MemoryTopic(), MemoryTopic()
        away.available = False

        async def read() -> list[Message]:
            return [(m.conversation_id, m.version, m.value) for m in topic.messages]

        yield Scene(MemoryOutputs(topic), MemoryOutputs(topic), read, MemoryOutputs(away))
        return
    kafka: Kafka = request.getfixturevalue("kafka")
    name = f"output-{uuid4()}"
    await kafka.create_topic(name, PARTITIONS)

    def settings(topic: str) -> KafkaSettings:
        return KafkaSettings(
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=f"group-{topic}",
            output_topic=topic,
            request_timeout_ms=2_000,
        )

    async def lying() -> list[Message]:
        found = await stored(kafka, [name])
        return [(r.key.decode(), int(dict(r.headers)[VERSION]), r.value) for r in found]

    there = settings(name)
    ways = KafkaOutputs(there), KafkaOutputs(there), KafkaOutputs(settings(f"no-{name}"))
    try:
        yield Scene(ways[0], ways[1], lying, ways[2])
    finally:
        for each in ways:
            await each.stop()


def row(conversation: str, value: bytes | None = b"{}") -> OutputMessage:
    """A message."""
    return OutputMessage(conversation, value)


async def test_messages_lie_there_as_sent(scene: Scene) -> None:
    """Each has its conversation as key, its value (or none), and the version of its batch."""
    way = scene.one.of(0)
    await way.begin()
    await way.send([row("a", b'{"a":1}'), row("b", None)])
    await way.send([row("c", b'{"c":1}')])

    found = sorted(await scene.read())

    assert [(name, value) for name, _, value in found] == [
        ("a", b'{"a":1}'),
        ("b", None),
        ("c", b'{"c":1}'),
    ]
    assert found[0][1] == found[1][1] < found[2][1]


async def test_versions_grow_whoever_writes(scene: Scene) -> None:
    """A conversation's versions grow in the order in which its messages lie, over writers."""
    for way in (scene.one.of(0), scene.two.of(0), scene.one.of(0)):
        await way.begin()
        for _ in range(3):
            await way.send([row("c")])

    versions = await scene.versions("c")

    assert len(versions) == 9
    assert versions == sorted(set(versions))


async def test_an_earlier_writer_is_shut_out(scene: Scene) -> None:
    """Once a second one has begun, nothing of the first arrives, and it hears of that."""
    first, second = scene.one.of(0), scene.two.of(0)
    await first.begin()
    await first.send([row("c", b'"first"')])
    await second.begin()

    with pytest.raises(OutputFenced):
        await first.send([row("c", b'"late"')])
    assert not first.begun
    await second.send([row("c", b'"second"')])

    assert [value for _, _, value in await scene.read()] == [b'"first"', b'"second"']


async def test_who_was_shut_out_can_begin_again(scene: Scene) -> None:
    """Beginning again shuts the other one out in turn."""
    first, second = scene.one.of(0), scene.two.of(0)
    await first.begin()
    await second.begin()
    with pytest.raises(OutputFenced):
        await first.send([row("c")])

    await first.begin()

    with pytest.raises(OutputFenced):
        await second.send([row("c")])
    await first.send([row("c")])
    assert len(await scene.versions("c")) == 1


async def test_partitions_do_not_shut_each_other_out(scene: Scene) -> None:
    """Writers for different state partitions write side by side."""
    ways = [scene.one.of(0), scene.two.of(1), scene.one.of(2)]
    for way in ways:
        await way.begin()
    for number, way in enumerate(ways):
        await way.send([row(f"c-{number}")])

    assert sorted(name for name, _, _ in await scene.read()) == ["c-0", "c-1", "c-2"]


async def test_a_topic_that_is_not_there_is_said_so(scene: Scene) -> None:
    """Beginning or sending fails with what to do, and sending needs a new beginning."""
    way = scene.nowhere.of(0)

    async def begin_and_send() -> None:
        await way.begin()
        await way.send([row("c")])

    with pytest.raises(OutputUnavailable, match="output topic"):
        await begin_and_send()
    assert not way.begun


async def test_what_is_not_kept_is_closed(scene: Scene) -> None:
    """Ways of partitions that went to others are closed; the others write on."""
    gone, kept = scene.one.of(0), scene.one.of(1)
    for way in (gone, kept):
        await way.begin()

    await scene.one.keep({1, 2})

    assert scene.one.of(1) is kept
    assert scene.one.of(0) is not gone
    await kept.send([row("c")])
    assert len(await scene.versions("c")) == 1
