"""A process of ``stream-metrics serve``, and what it must have stored in the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.ownership.generations import state_in_force
from tests import oracle

COMMAND = [sys.executable, "-m", "stream_metrics", "serve", "--port", "0", "--otlp-port", "0"]


@dataclass
class Served:
    """A process, and the addresses that it has printed."""

    process: subprocess.Popen[str]
    page: str
    receiver: str

    def post(self, body: bytes) -> dict[str, Any]:
        """Post events; the answer. Raises ``OSError`` where nobody has told what became of them."""
        request = urllib.request.Request(f"{self.receiver}/v1/events", body, method="POST")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                document: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 400:
                raise
            document = json.load(error)
        return document

    def get(self, path: str) -> str:
        """A page."""
        with urllib.request.urlopen(f"{self.page}{path}", timeout=30) as answer:  # noqa: S310
            return str(answer.read().decode())

    def stop(self) -> int:
        """Let it finish; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """Kill it at once."""
        self.process.kill()
        self.process.wait(30)


@contextmanager
def serving(
    folder: Path, errors: IO[str] | int = subprocess.DEVNULL, port: int = 0
) -> Iterator[Served]:
    """A process over a folder, which listens; for events, on ``port``."""
    environment = {**os.environ, "STREAM_METRICS_SERVE__DATA": str(folder)}
    with subprocess.Popen(
        [*COMMAND[:-1], str(port)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline() for _ in range(3)]
            page, receiver, _ = (re.search(r"http://[\d.:]+", line) for line in said)
            assert page is not None, said
            assert receiver is not None, said
            yield Served(process, page[0], receiver[0])
        finally:
            if process.poll() is None:
                process.kill()


async def everything(log: Log) -> list[Record]:
    """All events of a log."""
    return (await log.read({EVENTS: 0}, 1 << 30, 1 << 40))[EVENTS]


async def check_file(path: Path) -> list[bytes | None]:
    """The values in the log of a file, whose state is what one pass over them gives."""
    database = Database(path)
    try:
        log, store = Log(database), await state_in_force(LocalStore(database))
        records = await everything(log)
        end = (await log.extents([EVENTS]))[EVENTS]
        assert end == Extent(0, len(records))
        assert (await store.describe(0)).positions[EVENTS].offset == end.end
        read = [oracle.Record(r.value or b"", r.key, r.timestamp_ms) for r in records]
        outcome = oracle.evaluate(read, keyed=True)
        export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
        assert [canonical(row) for row in export.rows] == sorted(outcome.rows)
        return [record.value for record in records]
    finally:
        await database.close()
