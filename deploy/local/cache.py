"""What is fetched or built once per user, outside of the repository. Standard library only."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached(name: str) -> Path:
    """The path of what has this name, whether it is there or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "stream-metrics" / name


def made(path: Path, make: Callable[[Path], None]) -> Path:
    """The same path, after ``make`` has made it if it was not there.

    ``make`` gets another path to write to: what is made appears whole or not at all. Several
    processes may call this at once.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                unfinished = Path(folder) / "unfinished"
                make(unfinished)
                unfinished.rename(path)
    return path
