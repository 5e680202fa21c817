"""A round: clients send, faults strike, and in the end state equals a replay of the log."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from deploy.local.waiting import wait_until
from stream_metrics.core.events.decode import BadRecord, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from stream_metrics.live.local.blocks import records_from
from stream_metrics.live.local.database import connect_to_read
from stream_metrics.live.local.folder import database_of
from stream_metrics.live.local.tables import EVENTS, SPANS
from tests.campaign.command import run
from tests.campaign.invariants import FORBIDDEN, differing
from tests.campaign.load import traffic
from tests.campaign.report import Landing, Outcome
from tests.otlp import as_json
from tests.serve_campaign.faults import CONNECTIONS, FAULTS, NEED_A_DISK, World
from tests.serve_campaign.load import CLIENTS, Load, trace
from tests.serve_campaign.process import Disk, ServeProcess

MOST_RSS_BYTES: Final = 600 << 20  # with bodies that unpack to as much as is let in
MORE: Final = 0.5  # of what comes before the next fault may be sent while one strikes
RECOVERY_SECONDS: Final = 60.0
END_SECONDS: Final = 240.0
ROWS: Final = "conversations.jsonl"
COMMAND: Final = (sys.executable, "-m", "stream_metrics")


@dataclass(frozen=True, slots=True)
class Options:
    """The size of a round; ``only`` names the faults to choose from.

    Without a disk of its own (``mounted``), a full one is a limit of the files of the process.
    """

    seed: int
    faults: int = 5
    events: int = 20_000
    traces: int = 600
    seconds: float = 40.0  # that sending takes, without faults
    hold_seconds: float = 4.0  # of a fault at most
    settle_seconds: int = 30
    split: bool = True  # the spans of a trace over two requests, which a fault may come between
    connections: int = CONNECTIONS
    only: tuple[str, ...] = ()
    mounted: bool = True


def dealt(options: Options) -> list[str]:
    """The faults of a seed: each is dealt once before any is dealt again."""
    names = [n for n in options.only or FAULTS if options.mounted or n not in NEED_A_DISK]
    first = (options.seed - 1) * options.faults
    return [
        Random(f"deck/{at // len(names)}").sample(names, len(names))[at % len(names)]
        for at in range(first, first + options.faults)
    ]


async def run_round(options: Options, folder: Path) -> Outcome:
    """Play a round; problems are in the outcome."""
    names = dealt(options)
    outcome = Outcome(options.seed, [f"seed {options.seed}: {', '.join(names)}"], names)
    rng = Random(f"serve/{options.seed}")
    records = [record.value for record in traffic(options.seed, options.events, 1)]
    records = [value for value in records if value and b"\n" not in value]
    traces = [trace(number, rng) for number in range(options.traces)]
    settings = {
        "STREAM_METRICS_BRIDGE__SETTLE": f"{options.settle_seconds}s",
        "STREAM_METRICS_BRIDGE__TRACE_MAX": "5m",
    }
    process = ServeProcess(folder, settings)
    disk = Disk(process, mounted=options.mounted)
    disk.make()
    try:
        load = Load(process.receiver, records, traces, options.seconds, rng, split=options.split)
        world = World(process, disk, load, rng, options.connections, options.hold_seconds)
        started = time.monotonic()
        await process.start()
        outcome.calibration.start_seconds = time.monotonic() - started
        await play(world, outcome, names)
        await wait_until(process.has_read_all, END_SECONDS, process.log_tail)
        process.note_memory()
        if (code := await process.stop()) != 0:
            outcome.wrong.append(f"it ended with {code}")
        outcome.seconds["faults"] = time.monotonic() - started
        outcome.wrong += world.wrong + load.wrong
        await judge(world, outcome, options)
    except Exception as error:  # reported with the seed, like every other difference
        outcome.wrong.append(f"{error!r}: {process.log_tail()}")
    finally:
        process.kill9()
        outcome.most_rss_bytes = process.most_rss_bytes
        outcome.tails = process.log_tail()
        disk.end()
    return outcome


async def play(world: World, outcome: Outcome, names: list[str]) -> None:
    """Send all, and let each fault strike at its share of what is acknowledged."""
    load = world.load
    sending = asyncio.create_task(load.run())
    try:
        for number, name in enumerate(names, 1):
            share = number / (len(names) + 1)
            load.open(share + MORE / (len(names) + 1))
            await wait_until(partial(load.reached, share), END_SECONDS, f"{name} never struck")
            if sending.done():
                sending.result()
            landed, struck = load.share, time.monotonic()
            hold = world.rng.uniform(0.0, world.hold_seconds)
            await FAULTS[name](world, hold)
            ended = time.monotonic()
            why = f"nobody was answered after {name}"
            load.open(load.share + MORE / (len(names) + 1))
            await wait_until(partial(load.answered_since, ended), RECOVERY_SECONDS, why)
            seconds = time.monotonic() - ended
            outcome.landings.append(
                Landing(name, landed, hold, ended - struck, 0, seconds, RECOVERY_SECONDS, 0)
            )
        load.open(1.0)
        await sending
    finally:
        sending.cancel()


async def judge(world: World, outcome: Outcome, options: Options) -> None:
    """What must hold in the end."""
    process, wrong = world.process, outcome.wrong
    outcome.compared_events = stored(world, wrong)
    turns = await figures(world, wrong, torn(world, options, wrong))
    outcome.events = len(set(world.load.accepted)) + len(world.load.told)
    outcome.conversations = outcome.compared_conversations = turns
    if not 0 < process.most_rss_bytes <= MOST_RSS_BYTES:
        wrong.append(f"it held {process.most_rss_bytes >> 20} MiB")
    said = [line for line in process.log.read_text().splitlines() if FORBIDDEN.search(line)]
    if said:
        wrong.append(f"it logged {len(said)} such lines, first: {said[0][:2000]}")


def stored(world: World, wrong: list[str]) -> int:
    """Check that the log has what was acknowledged, and nothing else; the number of its records."""
    load = world.load
    with closing(connect_to_read(database_of(world.process.data))) as file:
        if (said := file.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            wrong.append(f"the file is damaged: {said}")
        values = [record.value or b"" for record in records_from(file, EVENTS, 0)]
        [letters] = file.execute("SELECT count(*) FROM letters").fetchone()
    there, accepted = set(values), set(load.accepted)
    if missing := sorted(accepted - there):
        wrong.append(f"{len(missing)} acknowledged events are not there: {missing[:3]}")
    told = [value for value in values if value not in accepted]
    if strange := [value for value in told if b'"trace-' not in value]:
        wrong.append(f"{len(strange)} events that nobody sent: {strange[:3]}")
    ids = Counter(json.loads(value)["event_id"] for value in told)
    if twice := [one for one, times in ids.items() if times > 1]:
        wrong.append(f"{len(twice)} events of traces were told twice: {twice[:3]}")
    if letters:
        wrong.append(f"{letters} dead letters")
    bad = [v for v in load.refused if not isinstance(decode(v, limits=Limits()), BadRecord)]
    if bad:
        wrong.append(f"{len(bad)} valid events were refused: {bad[:3]}")
    if not load.refused or not told:
        wrong.append("nothing was refused, or no trace was told: the round is vacuous")
    return len(values)


def torn(world: World, options: Options, wrong: list[str]) -> set[str]:
    """Check that the log has all spans that were acknowledged; the conversations of traces whose
    spans came further apart than a trace is waited for, as the process's clock tells.

    Their turns are what a replay of the log makes of them.
    """
    times = dict[tuple[str, str], int]()
    with closing(connect_to_read(database_of(world.process.data))) as file:
        records = list(records_from(file, SPANS, 0))
    for record in records:
        for span in spans_of(record.value or b""):
            times.setdefault((span.trace_id, span.span_id), record.timestamp_ms or 0)
    found = set[str]()
    for spans in world.load.told:
        ids = [(span.trace_id.hex(), span.span_id.hex()) for span in spans]
        if missing := [one for one in ids if one not in times]:
            wrong.append(f"acknowledged spans are not there: {missing}")
            continue
        came = [times[one] for one in ids]
        if max(came) - min(came) > 1_000 * options.settle_seconds:
            found.add(f"trace-{spans[0].trace - 1}")
    # Each client sends one trace at a time, and a set clock is set right again.
    if len(found) > 2 * CLIENTS * dealt(options).count("clock_back"):
        wrong.append(f"more traces came in pieces than set clocks can tear: {sorted(found)}")
    return found


async def figures(world: World, wrong: list[str], pieces: set[str]) -> int:
    """Check rows and windows against replays, of the log and of what was sent, but for traces that
    came in ``pieces``; the number of rows."""
    folder, data, now = world.process.folder, str(world.process.data), str(int(time.time() * 1e6))
    sent, spans = folder / "sent.jsonl", folder / "traces.jsonl"
    sent.write_bytes(b"".join(value + b"\n" for value in dict.fromkeys(world.load.accepted)))
    spans.write_bytes(b"".join(as_json(one) + b"\n" for one in world.load.told))

    async def made(name: str, *command: str) -> Path:
        out = folder / name
        written = (*COMMAND, *command, "--out", str(out), "--now", now)
        await run(written, world.process.settings)
        return out

    scope = ("--turn-scope", "all")
    live, replayed, of_sent, of_traces = await asyncio.gather(
        made("live", "export", "--data", data),
        made("replayed", "replay", data, *scope),
        made("of-sent", "replay", str(sent), *scope),
        made("of-traces", "replay", str(spans), *scope),
    )
    for name in (ROWS, "windows.json"):
        ours, theirs = (live / name).read_bytes(), (replayed / name).read_bytes()
        if ours != theirs:
            wrong += [f"{name} differs: {line}" for line in differing(name, ours, theirs)]
    ours, theirs = in_order(pieces, live), in_order(pieces, of_sent, of_traces)
    if ours != theirs:
        differences = differing(ROWS, ours, theirs)
        wrong += [f"rows differ from those of what was sent: {line}" for line in differences]
    return theirs.count(b"\n")


def in_order(without: set[str], *folders: Path) -> bytes:
    """The rows in all of them, sorted, but for those of some conversations."""
    lines = [
        line
        for one in folders
        for line in (one / ROWS).read_bytes().splitlines(keepends=True)
        if json.loads(line)["conversation_id"] not in without
    ]
    return b"".join(sorted(lines))


def summary(outcome: Outcome) -> str:
    """A round in a few lines."""
    seconds = sum(outcome.seconds.values())
    said = (
        f"{outcome.schedule[0]}: {outcome.events:,} events and traces of "
        f"{outcome.conversations:,} turns, {len(outcome.landings)} faults, {seconds:.0f} s, "
        f"at most {outcome.most_rss_bytes >> 20} MiB: {'FAILED' if outcome.failed else 'exact'}"
    )
    return "\n".join([said, *(f"- {text}" for text in outcome.problems)])
