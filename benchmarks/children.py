"""Runs measurements in child processes, which report their results as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.ran import RAN, Engines
from benchmarks.servers import Servers, worker_environment

DEADLINE_SECONDS = 3_600


async def ceiling(running: Servers, total: int) -> dict[str, Any]:
    """Measure fetching and decoding all records once."""
    return await child(["benchmarks.ceiling", running.kafka.bootstrap_servers, str(total)])


async def worker(
    running: Servers,
    total: int,
    group: str,
    *flags: str,
    root: Path | None = None,
    chosen: Mapping[str, str] | None = None,
    ran: Engines = RAN,
) -> dict[str, Any]:
    """Measure the live worker over all records once, with a new group and namespace.

    With ``root``, it is that of a checkout that is set up; ``chosen`` are variables that choose an
    engine. The engine that it says is noted in ``ran``.
    """
    module = ["benchmarks.worker", str(total), *flags]
    environment = {**worker_environment(running, group), **(chosen or {})}
    if root is None:
        return await child(module, environment, ran=ran)
    python = root / ".venv" / "bin" / "python"
    return await child(module, environment | environment_of(root), python, root, ran=ran)


def environment_of(root: Path) -> dict[str, str]:
    """What lets a child process run the code of a checkout that is set up, as it is compiled."""
    folders = (root / ".venv" / "compiled", root, root / "client" / "src")
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(map(str, folders))}


async def child(
    module: Sequence[str],
    environment: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    root: Path = ROOT,
    *,
    ran: Engines = RAN,
) -> dict[str, Any]:
    """Run a module in a child process; return the JSON object that it prints last.

    If that says which ``engine`` ran, it is taken out and noted in ``ran``.
    """
    found = await asyncio.to_thread(_run, [str(python), "-m", *module], environment, root)
    if "engine" in found:
        ran.note(found.pop("engine"))
    return found


def _run(command: list[str], environment: Mapping[str, str] | None, root: Path) -> dict[str, Any]:
    done = subprocess.run(
        command,
        cwd=root,
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
