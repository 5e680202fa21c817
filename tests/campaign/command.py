"""Runs our commands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deploy.local.process import import_path

OBEDIENT: Final = (sys.executable, "-m", "tests.campaign.launcher")
REPOSITORY: Final = Path(__file__).resolve().parents[2]


class CommandFailed(AssertionError):
    """A command exited with an unexpected code; the message has its output."""


async def run(
    command: Sequence[str],
    settings: Mapping[str, str] | None = None,
    deadline_seconds: float = 300,
    code: int = 0,
) -> str:
    """Run a command; returns its standard output.

    Raises ``CommandFailed`` if it exits with another code.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **(settings or {}), "PYTHONPATH": import_path(REPOSITORY)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(deadline_seconds):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != code:
        said = f"{error.decode()}\n{out.decode()}"
        raise CommandFailed(f"{' '.join(command)} ended with {process.returncode}: {said}")
    return out.decode()
