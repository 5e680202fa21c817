"""Runs measurements in child processes, which report their results as JSON."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.servers import Servers, worker_environment

DEADLINE_SECONDS = 3_600


async def ceiling(running: Servers, total: int) -> dict[str, Any]:
    """Measure fetching and decoding all records once."""
    return await child(["benchmarks.ceiling", running.kafka.bootstrap_servers, str(total)])


async def worker(running: Servers, total: int, group: str, *flags: str) -> dict[str, Any]:
    """Measure the live worker over all records once, with a new group and namespace."""
    environment = worker_environment(running, group)
    return await child(["benchmarks.worker", str(total), *flags], environment)


async def child(
    module: Sequence[str],
    environment: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
) -> dict[str, Any]:
    """Run a module in a child process; return the JSON object that it prints last."""
    return await asyncio.to_thread(_run, [str(python), "-m", *module], environment)


def _run(command: list[str], environment: Mapping[str, str] | None) -> dict[str, Any]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not printed:
        raise RuntimeError(f"{command[2]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(printed[-1])
    return found
