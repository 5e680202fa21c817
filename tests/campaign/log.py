"""``python -m tests.campaign.log FOLDER BOOTSTRAP TOPIC...``: record what the brokers kept.

Beside the recording ``log.jsonl`` it writes a ``Log`` of it to ``log.json``. ``FOLDER`` holds the
traffic that was sent.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.adapters.files import record_line
from stream_metrics.ports import Record
from tests.campaign.load import digest, read_traffic

Place = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class Log:
    """What a reader of committed records finds: how much, up to when, and which are invalid."""

    records: int
    conversations: int
    last_us: int
    invalid: tuple[Place, ...]


def read_log(folder: Path) -> Log:
    """The log that was recorded in ``folder``."""
    return msgspec.json.decode((folder / "log.json").read_bytes(), type=Log)


async def record(folder: Path, bootstrap_servers: str, topics: Sequence[str]) -> None:
    """Write both files."""
    broken = {
        digest(sent.key, sent.value, sent.timestamp_ms)
        for sent in read_traffic(folder / "traffic")
        if not sent.valid
    }
    count, last_ms = 0, 0
    keys: set[bytes | None] = set()
    invalid: list[Place] = []
    with (folder / "log.jsonl").open("wb") as file:
        async for found in committed(bootstrap_servers, topics):
            file.write(record_line(found))
            count += 1
            keys.add(found.key)
            last_ms = max(last_ms, found.timestamp_ms or 0)
            if digest(found.key, found.value, found.timestamp_ms) in broken:
                invalid.append((found.topic, found.partition, found.offset))
    log = Log(count, len(keys), 1000 * last_ms, tuple(invalid))
    (folder / "log.json").write_bytes(msgspec.json.encode(log))


async def committed(bootstrap_servers: str, topics: Sequence[str]) -> AsyncIterator[Record]:
    """Every committed record of ``topics`` up to their ends as they are now."""
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    try:
        numbers = {topic: consumer.partitions_for_topic(topic) or () for topic in topics}
        places = [TopicPartition(topic, n) for topic, found in numbers.items() for n in found]
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        left = {place for place in places if await consumer.position(place) < ends[place]}
        while left:
            fetched: dict[TopicPartition, list[Any]] = await consumer.getmany(timeout_ms=200)
            for place, records in fetched.items():
                for r in records:
                    if r.offset < ends[place]:
                        yield Record(
                            r.value, r.key, r.timestamp, place.topic, place.partition, r.offset
                        )
            left = {place for place in left if await consumer.position(place) < ends[place]}
    finally:
        await consumer.stop()


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
