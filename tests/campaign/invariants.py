"""What must hold at the end of a round, whatever struck."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Final

from tests.campaign.log import Log
from tests.campaign.world import CommandFailed, World

MOST_RSS_BYTES: Final = 400 * 1024 * 1024
FORBIDDEN: Final = re.compile(r"Traceback|[Uu]nhandled|never retrieved|never awaited")
SHOWN: Final = 5


async def figures(world: World, log: Log) -> list[str]:
    """Rows and window sums are the replay's, byte for byte."""
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
    found, invalid = await world.dead_letters() | world.lost_letters, set(log.invalid)
    wrong = []
    if missing := sorted(invalid - found):
        wrong.append(f"{len(missing)} invalid records have no dead letter: {missing[:SHOWN]}")
    if strange := sorted(found - invalid):
        wrong.append(f"{len(strange)} dead letters of valid records: {strange[:SHOWN]}")
    if not invalid:
        wrong.append("the log has no invalid record: dead letters were not tested")
    return wrong


async def audit(world: World) -> list[str]:
    """The windows are what the stored conversations add up to."""
    try:
        await world.command("audit", "--json")
    except CommandFailed as failed:
        return [str(failed)[:2_000]]
    return []


def size(world: World, log: Log) -> list[str]:
    """The round was as large as it was meant to be."""
    options = world.plan.options
    if world.load.sent >= options.events and log.conversations >= options.conversations:
        return []
    return [
        f"only {world.load.sent} records, {log.conversations} conversations: the round is vacuous"
    ]


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
