"""Topics as a source: recorded or replayed, with the figures of live workers."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError

from deploy.local.kafka.cluster import Kafka, admin
from deploy.local.servers import RedisServer
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import read_records
from stream_metrics.lab.sources.kafka.mark import EARLIEST, END, Mark
from stream_metrics.lab.sources.kafka.topic_reader import TopicReader
from stream_metrics.lab.traffic import generate
from tests.helpers import rest_long, wait_until
from tests.services.live import LiveSystem, produce, said, stored
from tests.services.test_live import few, new_topics

pytestmark = pytest.mark.service

START_MS = 1_718_020_800_000
FORMS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


@pytest.fixture
async def system(kafka: Kafka, redis_server: RedisServer, tmp_path: Path) -> LiveSystem:
    """Topics with traffic, some of it out of order or invalid, without workers."""
    group = f"record-{tmp_path.name}-{os.getpid()}"
    topics = await new_topics(kafka, group)
    traffic = generate(replace(few(seed=11), conversations=300))
    produced = await produce(kafka, {"events": topics[0], "labels": topics[1]}, traffic)
    folder = tmp_path / "system"
    folder.mkdir()
    return LiveSystem(kafka, redis_server, folder, group, topics, produced)


async def ran(system: LiveSystem, *arguments: str) -> str:
    """The output of a command that must succeed."""
    code, text = await said(system, *arguments)
    assert code == 0, text
    return text


@pytest.mark.parametrize("form", rest_long(FORMS))
async def test_live_state_and_replays_are_the_same_bytes(system: LiveSystem, form: str) -> None:
    """A topic gives the same bytes when exported, replayed from Kafka, and replayed from a file."""
    await system.start_workers(2)
    await system.reach(1.0)
    now, folder = str(system.produced.last_us), system.folder
    source, file = "kafka:" + ",".join(system.topics), str(folder / f"recording.{form}")
    await ran(system, "export", "--now", now, "--out", str(folder / "live"))
    await ran(system, "replay", source, "--now", now, "--out", str(folder / "kafka"))
    await ran(system, "record", "--out", file)
    await ran(system, "replay", file, "--now", now, "--out", str(folder / "file"))
    assert await system.stop_workers() == [0, 0]

    for name in ("conversations.jsonl", "windows.json"):
        live = (folder / "live" / name).read_bytes()
        assert {(folder / out / name).read_bytes() for out in ("kafka", "file")} == {live}, name
    reports = [json.loads((folder / out / "report.json").read_text()) for out in ("kafka", "file")]
    assert reports[0]["bad_records"]["count"] == len(system.produced.broken) > 0
    assert [report.pop("source") for report in reports] == [[source], [f"recording.{form}"]]
    assert reports[0] == reports[1]


async def test_a_topic_is_replayed_to_the_same_bytes_again(system: LiveSystem) -> None:
    """Nothing depends on the sizes of fetches, not even the numbers of bad records."""
    for out in ("one", "two"):
        await ran(system, "replay", "kafka:", "--out", str(system.folder / out))

    for name in ("conversations.jsonl", "windows.json", "report.json"):
        one, two = ((system.folder / out / name).read_bytes() for out in ("one", "two"))
        assert one == two, name


async def test_a_recording_has_every_record_unchanged(system: LiveSystem) -> None:
    """Position, time, key and value are kept; partitions are in the order of offsets."""
    text = await ran(system, "record", "--out", str(system.folder / "all.jsonl.zst"))

    found = list(read_records([str(system.folder / "all.jsonl.zst")]))
    for topic in system.topics:
        for number in range(4):
            place = (topic, number)
            assert [r for r in found if (r.topic, r.partition) == place] == [
                r for r in system.produced.records if (r.topic, r.partition) == place
            ]
    assert f"{len(system.produced.records):,} records written to" in text


async def test_validate_names_bad_records_by_partition_and_offset(system: LiveSystem) -> None:
    """They are the records that a worker rejects, and no others; the exit code is 2."""
    code, text = await said(system, "validate", "kafka:", "--limit", "100000")

    named = re.findall(r"error: (\S+)/(\d+) offset (\d+): ", text)
    assert code == 2
    assert {(topic, int(number), int(offset)) for topic, number, offset in named} == (
        system.produced.broken
    )


async def test_a_replay_uses_no_consumer_group(system: LiveSystem) -> None:
    """It joins none and commits nothing, so that a live group is undisturbed."""
    await ran(system, "replay", "kafka:", "--out", str(system.folder / "out"))

    async with admin(system.kafka.bootstrap_servers) as client:
        groups = {group for group, *_ in await client.list_consumer_groups()}
    assert system.group not in groups


async def test_missing_topics_are_named(system: LiveSystem) -> None:
    """The error is one line, the exit code is 2, and no file is written."""
    code, text = await said(system, "record", "--topic", "nobody", "--out", "nothing.jsonl")

    assert (code, text) == (2, "error: topics do not exist: nobody; check their names")


@pytest.fixture
async def topic(kafka: Kafka, tmp_path: Path) -> str:
    """A topic of two partitions."""
    name = f"source-{tmp_path.name}-{os.getpid()}"
    await kafka.create_topic(name, 2)
    return name


@pytest.fixture
async def sender(kafka: Kafka, topic: str) -> AsyncIterator[AIOKafkaProducer]:
    """A producer of transactions."""
    async with AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic
    ) as producer:
        yield producer


async def send(sender: AIOKafkaProducer, topic: str, partition: int, *minutes: int) -> None:
    """Send a record for each of the minutes, each in its own transaction."""
    async with sender.transaction():
        for minute in minutes:
            await sender.send(
                topic, b"%d" % minute, partition=partition, timestamp_ms=START_MS + 60_000 * minute
            )


async def values(source: TopicReader) -> list[bytes | None]:
    """The values that are read."""
    return [record.value async for batch in source.batches() for record in batch]


def settings(kafka: Kafka) -> KafkaSettings:
    """The settings of the topic."""
    return KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


async def test_reading_ends_after_markers_and_aborted_records(
    kafka: Kafka, topic: str, sender: AIOKafkaProducer
) -> None:
    """The last offsets of a log may have no records, and are not waited for."""
    await send(sender, topic, 0, 1, 3)
    await send(sender, topic, 1, 2)
    for partition in (0, 1):
        await sender.begin_transaction()
        await sender.send(topic, b"aborted", partition=partition)
        await sender.abort_transaction()

    source = TopicReader(settings(kafka), [topic])

    assert await values(source) == [b"1", b"2", b"3"]
    assert [span.end for span in source.spans.values()] == [5, 4]


async def test_gaps_of_compaction_are_skipped(
    kafka_factory: Callable[..., Awaitable[Kafka]],
) -> None:
    """Offsets may be missing at the beginning, between others and before the end."""
    kafka = await kafka_factory(properties={"log.cleaner.backoff.ms": "100"})
    compacted = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
    await kafka.create_topic("compacted", config=compacted)
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(40):  # each in a segment of its own
            await producer.send_and_wait("compacted", b"%d" % number, key=b"%d" % (number % 4))

    async def compact() -> bool:
        return len(await stored(kafka, ["compacted"])) < 10

    await wait_until(compact, 90, "the topic was not compacted")
    source = TopicReader(settings(kafka), ["compacted"])

    found = [record.offset async for batch in source.batches() for record in batch]

    assert found[-4:] == [36, 37, 38, 39]
    assert len(found) < 10
    assert source.offsets == 40
    middle = TopicReader(settings(kafka), ["compacted"], Mark("offset", 5), Mark("offset", 20))
    assert await values(middle) == []


async def test_reading_ends_where_the_log_ended_at_its_start(
    kafka: Kafka, topic: str, sender: AIOKafkaProducer
) -> None:
    """Records that arrive during the reading are not read."""
    await send(sender, topic, 0, 1, 2)
    source = TopicReader(settings(kafka), [topic])
    batches = source.batches()

    first = await anext(batches)
    await send(sender, topic, 0, 3)
    await send(sender, topic, 1, 1)

    found = first + [record for batch in [b async for b in batches] for record in batch]
    assert [record.value for record in found] == [b"1", b"2"]


async def test_an_open_transaction_is_not_waited_for(
    kafka: Kafka, topic: str, sender: AIOKafkaProducer
) -> None:
    """Reading ends before its first record, as for every consumer of committed records."""
    await send(sender, topic, 0, 1)
    await sender.begin_transaction()
    await sender.send_and_wait(topic, b"open", partition=0)
    try:
        assert await values(TopicReader(settings(kafka), [topic])) == [b"1"]
    finally:
        await sender.abort_transaction()


def minute(number: int) -> Mark:
    """A bound by time."""
    return Mark("time", START_MS + 60_000 * number)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (EARLIEST, END, "1 2 3 4 5 6"),
        (minute(3), END, "3 4 5 6"),
        (minute(3), minute(5), "3 4"),
        (EARLIEST, minute(0), ""),
        (minute(7), END, ""),
        (Mark("offset", 1), END, "3 4 5 6"),
        (Mark("offset", 1), Mark("offset", 2), "3 4"),
        (EARLIEST, Mark("offset", 99), "1 2 3 4 5 6"),
        (END, END, ""),
        (EARLIEST, EARLIEST, ""),
    ],
)
async def test_marks_bound_what_is_read(
    kafka: Kafka, topic: str, sender: AIOKafkaProducer, since: Mark, until: Mark, expected: str
) -> None:
    """Each partition is read from the first bound up to, but not including, the second."""
    await send(sender, topic, 0, 1, 3, 5)
    await send(sender, topic, 1, 2, 4, 6)

    found = await values(TopicReader(settings(kafka), [topic], since, until))

    assert b" ".join(value or b"" for value in found).decode() == expected


async def test_deleted_offsets_are_an_error(
    kafka: Kafka, topic: str, sender: AIOKafkaProducer
) -> None:
    """The error says that Kafka has deleted the requested record."""
    await send(sender, topic, 0, 1, 2, 3)
    async with admin(kafka.bootstrap_servers) as client:
        await client.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})

    source = TopicReader(settings(kafka), [topic], Mark("offset", 0))

    assert await values(source) == [b"3"]
    assert source.spans[topic, 0].missed == 2


async def test_records_come_from_code_without_a_loop(kafka: Kafka, topic: str) -> None:
    """Synchronous code reads them one by one, and may stop at any."""
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)

    def first_two() -> list[Record]:
        records = TopicReader(settings(kafka), [topic]).records()
        found = [next(records), next(records)]
        records.close()
        return found

    assert [record.value for record in await asyncio.to_thread(first_two)] == [b"0", b"1"]


async def test_unresponsive_brokers_end_the_reading(
    kafka_factory: Callable[[], Awaitable[Kafka]],
) -> None:
    """A command ends with an error then, and does not wait for ever."""
    kafka = await kafka_factory()
    await kafka.create_topic("silent")
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for _ in range(20):
            await producer.send_and_wait("silent", bytes(100_000))
    impatient = {"request_timeout_ms": 2_000, "max_partition_fetch_bytes": 1024}
    batches = TopicReader(settings(kafka).model_copy(update=impatient), ["silent"]).batches()
    await anext(batches)
    kafka.pause()
    try:
        with pytest.raises(KafkaError):
            await read_on(batches)
    finally:
        kafka.resume()


async def read_on(batches: AsyncIterator[list[Record]]) -> None:
    """Read to the end."""
    async for _ in batches:
        pass
