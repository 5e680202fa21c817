"""Folders of ``stream-metrics serve``, filled without a process of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from stream_metrics.cli import app
from stream_metrics.cli.folder import settings_of_folder
from stream_metrics.cli.serving import ServeProcess
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import digest_key_file, prepare_database
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Entry
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.ports import Superseded
from stream_metrics.live.worker.clock import wall_ms
from tests.helpers import wait_until

Written = Sequence[tuple[str, bytes]]


@asynccontextmanager
async def working(
    folder: Path, settings: Settings
) -> AsyncIterator[tuple[ServeProcess, asyncio.Task[None]]]:
    """One process that works on a folder, but listens nowhere."""
    digest_key_file(folder)
    database = Database(prepare_database(folder))
    process = ServeProcess(settings_of_folder(settings, folder), database)
    running = asyncio.create_task(process.run())
    try:
        yield process, running
    finally:
        process.stop()
        with suppress(Superseded):
            await running
        await database.close()


async def serve_until_read(folder: Path, settings: Settings, *more: Entry) -> None:
    """Let one process append these events, and read its log to the end."""
    async with working(folder, settings) as (process, running):
        if more:
            await process.records.append(EVENTS, more, wall_ms())

        async def done() -> bool:
            if running.done():
                running.result()
            return process.loop is not None and not await process.records.backlog(EVENTS)

        await wait_until(done, 30, "the log is not read")


def fill(folder: Path, events: Sequence[dict[str, Any]], settings: Settings | None = None) -> Path:
    """A folder with these events, in the log and in the state."""
    folder.mkdir(mode=0o700, exist_ok=True)
    entries = [Entry(e["conversation_id"].encode(), json.dumps(e).encode()) for e in events]
    asyncio.run(serve_until_read(folder, settings or Settings(), *entries))
    return folder


def add_spans(folder: Path, payloads: Sequence[bytes], timestamp_ms: int) -> None:
    """Append spans of a trace to the log."""

    async def add() -> None:
        database = Database(prepare_database(folder))
        from stream_metrics.live.local.log import Log

        await Log(database).append(SPANS, [Entry(b"trace", p) for p in payloads], timestamp_ms)
        await database.close()

    asyncio.run(add())


def add_letter(folder: Path, record: Record, reason: str = "over_limit") -> None:
    """Store a dead letter."""

    async def add() -> None:
        database = Database(prepare_database(folder))
        await LocalDeadLetters(database).send([DeadLetter(record, reason, "too much")])
        await database.close()

    asyncio.run(add())


def run(*arguments: str | Path) -> Result:
    """Run ``stream-metrics``."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def output(*arguments: str | Path) -> str:
    """Run ``stream-metrics``, which must succeed; its output."""
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return str(result.output)
