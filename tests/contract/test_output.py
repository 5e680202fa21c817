"""What every output promises: one writer per partition, order, and increasing versions."""

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
class SharedTopic:
    """Two workers' outputs to one topic, its content, and outputs to a missing topic."""

    one: Outputs
    two: Outputs
    read: Callable[[], Awaitable[list[Message]]]
    missing: Outputs

    async def versions(self, conversation: str) -> list[int]:
        """The versions of a conversation's messages, in the order of the topic."""
        return [version for name, version, _ in await self.read() if name == conversation]


@pytest_asyncio.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.service)])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[SharedTopic]:
    """Outputs in memory, and on a real Kafka."""
    if request.param == "memory":
        topic, unavailable = MemoryTopic(), MemoryTopic()
        unavailable.available = False

        async def read() -> list[Message]:
            return [(m.conversation_id, m.version, m.value) for m in topic.messages]

        yield SharedTopic(
            MemoryOutputs(topic), MemoryOutputs(topic), read, MemoryOutputs(unavailable)
        )
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

    async def read_topic() -> list[Message]:
        found = await stored(kafka, [name])
        return [(r.key.decode(), int(dict(r.headers)[VERSION]), r.value) for r in found]

    existing = settings(name)
    outputs = KafkaOutputs(existing), KafkaOutputs(existing), KafkaOutputs(settings(f"no-{name}"))
    try:
        yield SharedTopic(outputs[0], outputs[1], read_topic, outputs[2])
    finally:
        for each in outputs:
            await each.stop()


def row(conversation: str, value: bytes | None = b"{}") -> OutputMessage:
    """A message."""
    return OutputMessage(conversation, value)


async def test_messages_are_stored_as_sent(shared: SharedTopic) -> None:
    """Each has its conversation as key, its value or null, and the version of its batch."""
    output = shared.one.of(0)
    await output.begin()
    await output.send([row("a", b'{"a":1}'), row("b", None)])
    await output.send([row("c", b'{"c":1}')])

    found = sorted(await shared.read())

    assert [(name, value) for name, _, value in found] == [
        ("a", b'{"a":1}'),
        ("b", None),
        ("c", b'{"c":1}'),
    ]
    assert found[0][1] == found[1][1] < found[2][1]


async def test_versions_increase_across_writers(shared: SharedTopic) -> None:
    """A conversation's versions increase in the order of the topic, across writers."""
    for output in (shared.one.of(0), shared.two.of(0), shared.one.of(0)):
        await output.begin()
        for _ in range(3):
            await output.send([row("c")])

    versions = await shared.versions("c")

    assert len(versions) == 9
    assert versions == sorted(set(versions))


async def test_an_earlier_writer_is_fenced(shared: SharedTopic) -> None:
    """Once a second writer has begun, the first writes nothing and gets an error."""
    first, second = shared.one.of(0), shared.two.of(0)
    await first.begin()
    await first.send([row("c", b'"first"')])
    await second.begin()

    with pytest.raises(OutputFenced):
        await first.send([row("c", b'"late"')])
    assert not first.begun
    await second.send([row("c", b'"second"')])

    assert [value for _, _, value in await shared.read()] == [b'"first"', b'"second"']


async def test_a_fenced_writer_can_begin_again(shared: SharedTopic) -> None:
    """Beginning again fences the other writer in turn."""
    first, second = shared.one.of(0), shared.two.of(0)
    await first.begin()
    await second.begin()
    with pytest.raises(OutputFenced):
        await first.send([row("c")])

    await first.begin()

    with pytest.raises(OutputFenced):
        await second.send([row("c")])
    await first.send([row("c")])
    assert len(await shared.versions("c")) == 1


async def test_writers_of_different_partitions_do_not_fence_each_other(shared: SharedTopic) -> None:
    """Writers of different state partitions write at the same time."""
    outputs = [shared.one.of(0), shared.two.of(1), shared.one.of(2)]
    for output in outputs:
        await output.begin()
    for number, output in enumerate(outputs):
        await output.send([row(f"c-{number}")])

    assert sorted(name for name, _, _ in await shared.read()) == ["c-0", "c-1", "c-2"]


async def test_a_missing_topic_is_an_error(shared: SharedTopic) -> None:
    """Beginning or sending fails with a message that says what to do; sending needs a new begin."""
    output = shared.missing.of(0)

    async def begin_and_send() -> None:
        await output.begin()
        await output.send([row("c")])

    with pytest.raises(OutputUnavailable, match="output topic"):
        await begin_and_send()
    assert not output.begun


async def test_writers_that_are_not_kept_are_closed(shared: SharedTopic) -> None:
    """Writers of partitions that moved to other workers are closed; the rest keep writing."""
    removed, kept = shared.one.of(0), shared.one.of(1)
    for output in (removed, kept):
        await output.begin()

    await shared.one.keep({1, 2})

    assert shared.one.of(1) is kept
    assert shared.one.of(0) is not removed
    await kept.send([row("c")])
    assert len(await shared.versions("c")) == 1
