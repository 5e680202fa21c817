"""Make a broken build in a temporary folder, and run its check there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.mutations.mutation import Edit, Mutation, edited

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("deploy", "examples", "stream_metrics", "tests")
WITHIN_SECONDS: Final = 600
FAILED: Final = 1  # pytest's exit code when tests failed and nothing else went wrong

_SEED: Final = re.compile(r"^FAILED (\S+)", re.M)


class Unsound(Exception):
    """A check did not run properly, or fails on the unchanged source."""


def copy(folder: Path) -> None:
    """Copy the unchanged source."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def apply(folder: Path, edits: Iterable[Edit]) -> None:
    """Apply edits to the copy in ``folder``; raises ``Stale`` if one does not fit."""
    for edit in edits:
        path = folder / edit.path
        path.write_text(edited(path.read_text(encoding="utf-8"), edit), encoding="utf-8")


def check(folder: Path, name: str) -> tuple[int, str]:
    """Run a test against the build; returns pytest's exit code and output.

    It runs only Python code, with a fixed seed for drawn examples.
    """
    command = [sys.executable, "-m", "pytest", name, "-x", "-q", "--tb=short"]
    command += ["-p", "no:cacheprovider", "-p", "no:logging", "--hypothesis-seed=0"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "STREAM_METRICS_KERNEL": "python",
        "HYPOTHESIS_PROFILE": "find",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def need_sound(folder: Path, name: str) -> None:
    """Raise ``Unsound`` unless the check passes on the build in ``folder``."""
    where = [sys.executable, "-c", "import stream_metrics; print(stream_metrics.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    found = subprocess.run(where, cwd=folder, env=environment, capture_output=True, check=True)
    if not Path(found.stdout.decode().strip()).is_relative_to(folder):
        raise Unsound(f"stream_metrics is not imported from {folder}")
    code, text = check(folder, name)
    if code != 0:
        raise Unsound(f"{name} fails on the unchanged source:\n{text}")


def caught_by(folder: Path, mutation: Mutation) -> str | None:
    """Break the build in ``folder``; returns the test that failed as expected, or None.

    Raises ``Unsound`` if the check did not run, or failed for another reason.
    """
    apply(folder, mutation.edits)
    code, text = check(folder, mutation.check)
    if code == 0:
        return None
    failed = _SEED.search(text)
    if code != FAILED or failed is None or mutation.shows not in text:
        raise Unsound(
            f"{mutation.name}: {mutation.check} did not fail with {mutation.shows!r}, but with "
            f"exit code {code}:\n{text}"
        )
    return failed[1]
