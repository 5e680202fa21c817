"""Runs ``stream-metrics worker`` as a process, and reads its metrics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import aiohttp

from benchmarks.linux import usage
from benchmarks.ran import RAN, engine_of
from benchmarks.servers import DIGEST_KEY
from deploy.local.process import ChildProcess, free_port
from deploy.local.stack import Command

SCRAPE = aiohttp.ClientTimeout(total=10)


def cpu_seconds(processes: Iterable[ChildProcess]) -> float:
    """CPU seconds that all processes have used so far."""
    return sum(usage(process.pid).cpu_seconds for process in processes)


class ShippedWorker(Command):
    """``stream-metrics worker``, or another command with its pages, on a port of its own.

    It is ready when ``/readyz`` says so.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], command: str = "worker") -> None:
        """``settings`` by the names of the environment, without their common prefix."""
        port = free_port()
        self._noted = 0  # the process whose engine is noted
        self.address = f"http://127.0.0.1:{port}"
        ours = {
            "STATE__DIGEST_KEY": DIGEST_KEY,
            "LOG__LEVEL": "WARNING",
            "WEB__PORT": str(port),
            **settings,
        }
        super().__init__(
            folder,
            [sys.executable, "-m", "stream_metrics", command],
            {f"STREAM_METRICS_{name}": value for name, value in ours.items()},
            f"{self.address}/readyz",
        )

    async def scrape(self, session: aiohttp.ClientSession) -> str:
        """The text of ``/metrics``."""
        async with session.get(f"{self.address}/metrics") as answer:
            answer.raise_for_status()
            text = await answer.text()
        if self._noted != self.pid:
            self._noted = self.pid
            RAN.note(engine_of(text))
        return text


def total(text: str, name: str) -> float:
    """The sum of a metric's samples in the text of a scrape.

    >>> total('streammetrics_a_total{x="1"} 2\\nstreammetrics_a_total{x="2"} 3\\n', "a_total")
    5.0
    """
    found = 0.0
    for line in text.splitlines():
        if line.partition("{")[0].partition(" ")[0] == f"streammetrics_{name}":
            found += float(line.rpartition(" ")[2])
    return found


def records_done(text: str) -> int:
    """The number of records that the worker has processed, including dead letters."""
    return int(total(text, "batch_records_sum"))
