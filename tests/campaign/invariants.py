"""What must hold at the end of a round, whatever struck."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_metrics.adapters.files import record_line
from stream_metrics.ports import Record
from tests.campaign.load import digest
from tests.campaign.world import TOPICS, World

MOST_RSS_BYTES: Final = 400 * 1024 * 1024
FORBIDDEN: Final = re.compile(r"Traceback|[Uu]nhandled|never retrieved|never awaited")
SHOWN: Final = 5


@dataclass(slots=True)
class Log:
    """What the brokers kept: a recording of it, and where the invalid records stand."""

    recording: Path
    records: int = 0
    last_us: int = 0
    invalid: set[tuple[str, int, int]] = field(default_factory=set)


async def read_back(world: World) -> Log:
    """Read all input topics as a reader of committed records does."""
    broken = {
        digest(record.key, record.value, record.timestamp_ms)
        for record in world.load.records
        if not record.valid
    }
    log = Log(world.folder / "log.jsonl")
    with log.recording.open("wb") as file:
        async for record in committed(world, TOPICS, await world.ends()):
            file.write(record_line(record))
            log.records += 1
            log.last_us = max(log.last_us, 1000 * (record.timestamp_ms or 0))
            if digest(record.key, record.value, record.timestamp_ms) in broken:
                log.invalid.add((record.topic, record.partition, record.offset))
    return log


async def committed(
    world: World, topics: tuple[str, ...], ends: dict[tuple[str, int], int]
) -> AsyncIterator[Record]:
    """Every committed record of ``topics`` up to ``ends``."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=world.kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    try:
        left = {TopicPartition(*place): end for place, end in ends.items() if end}
        consumer.assign(list(left))
        await consumer.seek_to_beginning(*left)
        while left:
            found = await consumer.getmany(timeout_ms=200, max_records=5_000)
            for place, records in found.items():
                for r in records:
                    yield Record(
                        r.value, r.key, r.timestamp, place.topic, place.partition, r.offset
                    )
            for place, end in list(left.items()):
                if await consumer.position(place) >= end:
                    del left[place]
                    consumer.pause(place)
    finally:
        await consumer.stop()


async def figures(world: World, log: Log) -> list[str]:
    """Rows and window sums are the replay's, byte for byte."""
    live, replayed = world.folder / "live", world.folder / "replayed"
    now = str(log.last_us)
    await world.command("replay", str(log.recording), "--out", str(replayed), "--now", now)
    await world.command("export", "--out", str(live), "--now", now)
    found: list[str] = []
    for name in ("conversations.jsonl", "windows.json"):
        ours, theirs = (live / name).read_bytes(), (replayed / name).read_bytes()
        if ours != theirs:
            found += [f"{name} differs: {line}" for line in differing(name, ours, theirs)]
    if not (replayed / "conversations.jsonl").stat().st_size:
        found.append("the replay has no rows: nothing was compared")
    return found


def differing(name: str, ours: bytes, theirs: bytes) -> list[str]:
    """Where two files differ: the first few rows or sums, and how many there are."""
    if name == "windows.json":
        mine, other = (_sums(json.loads(text)["sums"]) for text in (ours, theirs))
    else:
        mine, other = (_rows(text) for text in (ours, theirs))
    places = sorted(key for key in mine.keys() | other.keys() if mine.get(key) != other.get(key))
    shown = [f"{key}: live {mine.get(key)}, replay {other.get(key)}" for key in places[:SHOWN]]
    return [f"{len(places)} places", *shown]


def _rows(text: bytes) -> dict[str, str]:
    rows = [json.loads(line) for line in text.splitlines()]
    return {f"{row['conversation_id']}/{row['turn']}": json.dumps(row) for row in rows}


def _sums(entries: list[dict[str, str | int]]) -> dict[str, str]:
    return {
        json.dumps({k: v for k, v in entry.items() if k != "value"}): str(entry["value"])
        for entry in entries
    }


async def letters(world: World, log: Log) -> list[str]:
    """The dead letters are the invalid records, each at least once, and nothing else."""
    found = await world.dead_letters() | world.lost_letters
    wrong = []
    if missing := sorted(log.invalid - found):
        wrong.append(f"{len(missing)} invalid records have no dead letter: {missing[:SHOWN]}")
    if strange := sorted(found - log.invalid):
        wrong.append(f"{len(strange)} dead letters of valid records: {strange[:SHOWN]}")
    if not log.invalid:
        wrong.append("the log has no invalid record: dead letters were not tested")
    return wrong


def memory(world: World) -> list[str]:
    """No worker held more memory than the bound."""
    if 0 < world.most_rss_bytes <= MOST_RSS_BYTES:
        return []
    return [f"a worker held {world.most_rss_bytes >> 20} MiB, bound {MOST_RSS_BYTES >> 20} MiB"]


def logs(world: World) -> list[str]:
    """No worker's log speaks of an exception that nobody took care of."""
    wrong = []
    for worker in world.everyone:
        lines = worker.log.read_text(errors="replace").splitlines() if worker.log.exists() else []
        said = [line for line in lines if FORBIDDEN.search(line)]
        if said:
            wrong.append(f"{worker.name} logged {len(said)} such lines, first: {said[0][:2000]}")
    return wrong
