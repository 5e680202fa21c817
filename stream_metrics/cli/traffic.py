"""``stream-metrics generate``: seeded, realistic traffic, to a file or into Kafka."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console

from stream_metrics.cli.common import ConfigOption, UsageError, load_settings
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.settings import Settings
from stream_metrics.lab.sources.kafka.feed import open_feed
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, endless
from stream_metrics.lab.traffic import generate as make
from stream_metrics.lab.traffic.day import record_lines

SAY_EVERY_SECONDS = 10.0


def generate(
    seed: Annotated[
        int, typer.Option(help="Seed. The same seed and options give the same bytes.")
    ] = 1,
    conversations: Annotated[
        int, typer.Option(min=1, help="Number of conversations (with --forever: per hour).")
    ] = 200,
    hours: Annotated[
        float, typer.Option(min=0.01, help="Hours of event time to spread them over.")
    ] = 1.0,
    out: Annotated[
        Path | None, typer.Option("--out", help="JSONL file to write; - writes to standard output.")
    ] = None,
    to_kafka: Annotated[
        bool, typer.Option("--to-kafka", help="Produce to `kafka.topics`.")
    ] = False,
    forever: Annotated[
        bool, typer.Option("--forever", help="Keep producing in real time until Ctrl-C.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Generate realistic traffic of support agents: searches, and labels a little later.

    About 2% of the records are out of order, 1% are duplicated and 0.5% are invalid. With
    --to-kafka the traffic ends now. In a file it starts on a fixed day, so that the same seed
    always gives the same file.
    """
    if to_kafka == (out is not None):
        raise UsageError("give a destination: --out FILE or --to-kafka")
    if forever and not to_kafka:
        raise UsageError("--forever needs --to-kafka")
    start = int(time.time()) if forever else int(time.time() - hours * 3600)
    if out is not None:
        start = TrafficProfile().start
    profile = TrafficProfile(
        seed=seed, conversations=conversations, start=start, duration_seconds=hours * 3600
    )
    if out is not None:
        _to_file(record_lines(make(profile)), out)
        return
    settings = load_settings(config)
    records = endless(profile) if forever else make(profile)
    try:
        run_kafka(settings, _to_kafka(records, settings, paced=forever))
    except KeyboardInterrupt:
        return


def _to_file(lines: Iterable[bytes], out: Path) -> None:
    try:
        if str(out) == "-":
            written = _write(lines, sys.stdout.buffer)
        else:
            with out.open("wb") as file:
                written = _write(lines, file)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from error
    where = "standard output" if str(out) == "-" else out
    typer.echo(f"{written:,} records written to {where}", err=True)


def _write(lines: Iterable[bytes], file: BinaryIO) -> int:
    """Write the lines; returns their number."""
    written = 0
    for line in lines:
        file.write(line)
        written += 1
    return written


async def _to_kafka(records: Iterable[TrafficRecord], settings: Settings, *, paced: bool) -> None:
    kafka = settings.kafka
    topics = {"events": kafka.topics[0], "labels": kafka.topics[-1]}
    console = Console(stderr=True)
    said = time.monotonic()
    async with open_feed(kafka) as feed:
        for record in records:
            ahead = record.timestamp_ms / 1000 - time.time()
            if paced and ahead > 0:
                await asyncio.sleep(ahead)
            await feed.send(topics[record.stream], record.value, record.key, record.timestamp_ms)
            if time.monotonic() - said > SAY_EVERY_SECONDS:
                said = time.monotonic()
                console.print(f"{feed.sent:,} records produced")
    console.print(f"{feed.sent:,} records produced to {', '.join(kafka.topics)}")
