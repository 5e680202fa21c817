"""Results of long computations, kept in files so that a drill that was interrupted resumes."""

from __future__ import annotations

import gzip
import hashlib
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / "out" / "drill"
T = TypeVar("T")


def kept(path: Path, make: Callable[[], T]) -> T:
    """What the file holds; if there is none, what ``make`` returns, which is kept there.

    The format is that of ``pickle``, which must not be read if somebody else has written it.
    """
    if path.exists():
        with gzip.open(path) as file:
            found: T = pickle.load(file)  # noqa: S301 - nobody else writes there
            return found
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with gzip.open(unfinished, "wb", compresslevel=1) as file:
        pickle.dump(made, file, pickle.HIGHEST_PROTOCOL)
    unfinished.rename(path)
    return made


def digest(paths: Iterable[Path], *more: object) -> str:
    """A short hash of the content of files, directories of Python modules, and other things."""
    found = hashlib.sha256(repr(more).encode())
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            found.update(f"{file.relative_to(ROOT)}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:12]
