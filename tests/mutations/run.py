"""Make a broken build in a folder of its own, and run its check there."""

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
FAILED: Final = 1  # what pytest ends with if tests have failed, and nothing else was wrong

_SEED: Final = re.compile(r"^FAILED (\S+)", re.M)


class Unsound(Exception):
    """A check did not run as it should, or fails on the source as it is."""


def copy(folder: Path) -> None:
    """A build of the source as it is."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def apply(folder: Path, edits: Iterable[Edit]) -> None:
    """Break the build in ``folder``; raises ``Stale`` where an edit does not fit."""
    for edit in edits:
        path = folder / edit.path
        path.write_text(edited(path.read_text(encoding="utf-8"), edit), encoding="utf-8")


def check(folder: Path, name: str) -> tuple[int, str]:
    """Run a test against the build; pytest's exit code and what it wrote.

    It runs the code of the build and nothing compiled, with examples drawn by a fixed seed.
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
        raise Unsound(f"another stream_metrics than that in {folder} is imported")
    code, text = check(folder, name)
    if code != 0:
        raise Unsound(f"{name} fails on the source as it is:\n{text}")


def caught_by(folder: Path, mutation: Mutation) -> str | None:
    """Break the build in ``folder``; the test that failed as it should, or None if none did.

    Raises ``Unsound`` if the check did not run, or failed for something else.
    """
    apply(folder, mutation.edits)
    code, text = check(folder, mutation.check)
    if code == 0:
        return None
    failed = _SEED.search(text)
    if code != FAILED or failed is None or mutation.shows not in text:
        raise Unsound(
            f"{mutation.name}: {mutation.check} did not fail with {mutation.shows!r}, but so "
            f"(exit code {code}):\n{text}"
        )
    return failed[1]
