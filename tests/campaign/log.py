"""``python -m tests.campaign.log FOLDER BOOTSTRAP TOPIC...``: record what a single pass reads.

That is what the brokers kept, behind what ``FOLDER`` has of records that were read before they
went (``history.py``). Beside the recording ``log.jsonl`` it writes a ``Log`` of it to ``log.json``.
``FOLDER`` holds the traffic that was sent. With ``--part N`` first it writes that part of the
history instead.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.files import read_records, record_line
from tests.campaign.history import History, Span
from tests.campaign.load import digest, read_traffic

RecordId = tuple[str, int, int]  # topic, partition, offset


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a single pass: its size, its last timestamp, and its invalid records.

    ``sent`` is the number of conversations in the traffic, including deleted ones.
    """

    records: int
    conversations: int
    sent: int
    last_us: int
    invalid: tuple[RecordId, ...]


def read_log(folder: Path) -> Log:
    """The log that was recorded in ``folder``."""
    return msgspec.json.decode((folder / "log.json").read_bytes(), type=Log)


async def record(folder: Path, bootstrap_servers: str, topics: Sequence[str]) -> None:
    """Write both files."""
    traffic = read_traffic(folder / "traffic")
    broken = {digest(r.key, r.value, r.timestamp_ms) for r in traffic if not r.valid}
    count, last_ms = 0, 0
    keys: set[bytes | None] = set()
    invalid: list[RecordId] = []
    with (folder / "log.jsonl").open("wb") as file:
        async for found in everything(folder, bootstrap_servers, topics):
            file.write(record_line(found))
            count += 1
            keys.add(found.key)
            last_ms = max(last_ms, found.timestamp_ms or 0)
            if digest(found.key, found.value, found.timestamp_ms) in broken:
                invalid.append((found.topic, found.partition, found.offset))
    sent = len({record.key for record in traffic})
    log = Log(count, len(keys), sent, 1000 * last_ms, tuple(invalid))
    (folder / "log.json").write_bytes(msgspec.json.encode(log))


async def write_part(
    folder: Path, bootstrap_servers: str, topics: Sequence[str], number: int
) -> None:
    """Write a part of the history, while the brokers still have it."""
    history = History(folder)
    spans = history.parts[number]
    with history.part(number).open("wb") as file:
        async for found in committed(bootstrap_servers, topics):
            if any(span.holds(found.topic, found.partition, found.offset) for span in spans):
                file.write(record_line(found))


async def everything(
    folder: Path, bootstrap_servers: str, topics: Sequence[str]
) -> AsyncIterator[Record]:
    """The saved records, then those after them on the brokers."""
    history = History(folder)
    for found in kept_aside(history):
        yield found
    begins = history.begins()
    async for found in committed(bootstrap_servers, topics):
        if found.offset >= begins.get((found.topic, found.partition), 0):
            yield found


def kept_aside(history: History) -> Iterator[Record]:
    for number, spans in enumerate(history.parts):
        for found in read_records([str(history.part(number))]) if spans else ():
            if any(span.holds(found.topic, found.partition, found.offset) for span in spans):
                yield found


async def committed(bootstrap_servers: str, topics: Sequence[str]) -> AsyncIterator[Record]:
    """Every committed record of ``topics`` up to their current ends."""
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


async def count(bootstrap_servers: str, spans: Sequence[Span]) -> int:
    """The number of committed records on the brokers in these spans."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, isolation_level="read_committed"
    )
    await consumer.start()
    found = 0
    try:
        left = {TopicPartition(span.topic, span.partition): span for span in spans}
        consumer.assign(list(left))
        for place, span in left.items():
            consumer.seek(place, span.first)
        while left:
            fetched: dict[TopicPartition, list[Any]] = await consumer.getmany(timeout_ms=200)
            for place, records in fetched.items():
                if place in left:
                    found += sum(record.offset < left[place].before for record in records)
            left = {p: s for p, s in left.items() if await consumer.position(p) < s.before}
    finally:
        await consumer.stop()
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.log", description=__doc__)
    parser.add_argument("--part", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("bootstrap")
    parser.add_argument("topics", nargs="+")
    chosen = parser.parse_args()
    where = (chosen.folder, chosen.bootstrap, chosen.topics)
    asyncio.run(record(*where) if chosen.part is None else write_part(*where, chosen.part))


if __name__ == "__main__":
    main()
