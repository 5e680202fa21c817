"""What must hold at the end of every round."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from typing import Final

from stream_metrics.live.kafka.output import VERSION
from tests.campaign.command import CommandFailed
from tests.campaign.log import Log
from tests.campaign.world import OUTPUT, World
from tests.services.live import stored

MOST_RSS_BYTES: Final = 400 * 1024 * 1024
FORBIDDEN: Final = re.compile(r"Traceback|[Uu]nhandled|never retrieved|never awaited")
SHOWN: Final = 5
COMPARED: Final = 0.9  # minimum share of the records sent


async def figures(world: World, log: Log) -> list[str]:
    """Rows and window sums equal the replay's, byte for byte."""
    live, replayed = world.folder / "live", world.folder / "replayed"
    recording, now = world.folder / "log.jsonl", str(log.last_us)
    await asyncio.gather(
        world.command("replay", str(recording), "--out", str(replayed), "--now", now),
        world.command("export", "--out", str(live), "--now", now),
    )
    found: list[str] = []
    for name in ("conversations.jsonl", "windows.json"):
        ours, theirs = (live / name).read_bytes(), (replayed / name).read_bytes()
        if ours != theirs:
            found += [f"{name} differs: {line}" for line in differing(name, ours, theirs)]
    if not (replayed / "conversations.jsonl").stat().st_size:
        found.append("the replay has no rows: nothing was compared")
    return found


def differing(name: str, ours: bytes, theirs: bytes) -> list[str]:
    """The number of differing rows or sums of two files, and the first few."""
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
    """The dead letters are exactly the invalid records, each at least once."""
    found, invalid = await world.dead_letters() | world.lost_letters, set(log.invalid)
    wrong = []
    if missing := sorted(invalid - found):
        wrong.append(f"{len(missing)} invalid records have no dead letter: {missing[:SHOWN]}")
    if strange := sorted(found - invalid - world.excused_letters):
        wrong.append(f"{len(strange)} dead letters of valid records: {strange[:SHOWN]}")
    if not invalid:
        wrong.append("the log has no invalid record: dead letters were not tested")
    return wrong


async def audit(world: World) -> list[str]:
    """The windows equal the sums of the stored conversations."""
    try:
        await world.command("audit", "--format", "json")
    except CommandFailed as failed:
        return [str(failed)[:2_000]]
    return []


async def compaction(world: World) -> list[str]:
    """No record of a compacted topic was removed after it was read."""
    return [
        f"{spans[0].topic} had {left} records after its compaction and has {found} now"
        for spans, left in world.compacted
        if (found := await world.count(spans)) != left
    ]


async def output(world: World) -> list[str]:
    """Both kinds of readers of the output topic have the rows that were exported."""
    if not world.has_output:
        return []
    lines = (world.folder / "live" / "conversations.jsonl").read_bytes().splitlines()
    exported = {json.loads(line)["conversation_id"]: line for line in lines}
    last: dict[str, bytes | None] = {}
    newest: dict[str, tuple[int, bytes | None]] = {}
    written: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for record in await stored(world.kafka, [OUTPUT]):
        name, version = record.key.decode(), int(dict(record.headers)[VERSION])
        last[name] = record.value
        written[name].append((record.partition, record.offset, record.timestamp, version))
        if name not in newest or version > newest[name][0]:
            newest[name] = (version, record.value)
    by_version = {name: value for name, (_, value) in newest.items()}
    return [
        f"{len(places)} rows differ on the output topic, read {how}: {places[:SHOWN]}; partition, "
        f"offset, time and version of the records of the first: {written[places[0]]}"
        for how, rows in (("to its end", last), ("by version", by_version))
        if (places := sorted(n for n in exported | rows if exported.get(n) != rows.get(n)))
    ]


def gaps(world: World) -> list[str]:
    """Workers have found exactly the gaps that were made."""
    said = set()
    for worker in world.everyone:
        for line in worker.log.read_text(errors="replace").splitlines():
            if '"event": "offset gap"' in line:
                entry = json.loads(line)
                said.add((entry["partition"], entry["action"]))
    wrong = []
    if strange := sorted(said - world.expected_gaps):
        wrong.append(f"offset gaps where there are none: {strange}")
    if missed := sorted(world.expected_gaps - said):
        wrong.append(f"offset gaps that nobody found: {missed}")
    return wrong


def size(world: World, log: Log) -> list[str]:
    """The round had its planned size, and most of it was compared.

    Records that were deleted before they were read, or whose state was rebuilt, are not compared.
    """
    options = world.plan.options
    if (
        min(world.load.sent, log.records / COMPARED) >= options.events
        and min(log.sent, log.conversations / COMPARED) >= options.conversations
    ):
        return []
    return [
        f"only {world.load.sent} records of {log.sent} conversations, of which {log.records} of "
        f"{log.conversations} were compared: the round is vacuous"
    ]


def memory(world: World) -> list[str]:
    """No worker used more memory than the bound."""
    if 0 < world.most_rss_bytes <= MOST_RSS_BYTES:
        return []
    return [f"a worker held {world.most_rss_bytes >> 20} MiB, bound {MOST_RSS_BYTES >> 20} MiB"]


def logs(world: World) -> list[str]:
    """No worker's log has an unhandled exception."""
    wrong = []
    for worker in world.everyone:
        lines = worker.log.read_text(errors="replace").splitlines() if worker.log.exists() else []
        said = [line for line in lines if FORBIDDEN.search(line)]
        if said:
            wrong.append(f"{worker.name} logged {len(said)} such lines, first: {said[0][:2000]}")
    return wrong
