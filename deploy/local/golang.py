"""Runs Go, which fetches modules. Standard library only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ATTEMPTS = 3


def run_go(go: str, folder: Path, arguments: list[str], what: str) -> str:
    """Run this ``go`` in a folder and return its output, after three attempts at most.

    Raises ``RuntimeError``, which says what could not be built, with the end of the output.
    """
    # An older Go fetches the one that go.mod asks for; no C compiler is needed.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "auto"}
    said = ""
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [go, *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        said = done.stdout + done.stderr
    raise RuntimeError(f"Go could not build {what}:\n{said[-2000:]}")
