"""A cache per user for downloads and builds, outside of the repository. Standard library only."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached(name: str) -> Path:
    """The path of a cache entry, which may not exist."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "stream-metrics" / name


def made(path: Path, make: Callable[[Path], None]) -> Path:
    """Return a path, after creating it with ``make`` if it does not exist.

    ``make`` writes to a temporary path, which is renamed when complete. Several processes may call
    this at the same time.
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
