"""Connections to a SQLite file whose process dies, or whose disk is full, at a chosen moment.

What a death leaves on the disk is copied to another folder, where the next process begins.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, get_args

from tests.full_disk import files_up_to
from tests.simulation.faults import Died

Ending = Literal[
    "before commit", "torn commit", "half copied", "after commit", "short write", "quota"
]
ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)

PAGE_BYTES: Final = 8_192
NO_QUOTA: Final = 1 << 30
Image = dict[str, bytes]  # the content of the file and its log, by the suffix of their names


@dataclass
class Disk:
    """What happens at the ``at``-th transaction from now on; ``seen`` counts what did.

    ``image`` is what a death has left.
    """

    rng: Random
    ending: Ending | None = None
    at: int = 0
    image: Image | None = None
    quota: bool = False
    seen: Counter[str] = field(default_factory=Counter)

    def connect(self, path: Path) -> sqlite3.Connection:
        """A connection to the file."""
        made = sqlite3.connect(path, isolation_level=None, timeout=5, factory=FaultyConnection)
        made.begin(self, path)
        return made

    def due(self, *endings: Ending) -> bool:
        """Whether one of these endings comes now."""
        if self.ending not in endings or self.at:
            return False
        self.seen[self.ending] += 1
        return True

    @contextmanager
    def full(self, path: Path) -> Iterator[None]:
        """Let the next write to the file's log be cut short, or fail."""
        log = path.with_name(path.name + "-wal")
        size = log.stat().st_size if log.exists() else 0
        least = self.rng.choice((0, size))
        with files_up_to(self.rng.randint(least, size + 50_000)):
            yield

    def mend(self) -> None:
        """End all that has not happened, and make room."""
        self.ending, self.quota = None, False


class FaultyConnection(sqlite3.Connection):
    """A connection that looks at the disk before each transaction ends."""

    _disk: Disk
    _path: Path
    _limited = False

    def begin(self, disk: Disk, path: Path) -> None:
        """Look at this disk from now on."""
        self._disk, self._path = disk, path

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Run a statement, or die."""
        disk = self._disk
        if disk.image is not None:
            raise Died("later")
        if statement == "PRAGMA synchronous = full":
            statement = "PRAGMA synchronous = off"  # copies show what was written: no need to wait
        if statement == "BEGIN IMMEDIATE" and disk.ending is not None:
            disk.at = max(0, disk.at - 1)
            if disk.due("quota"):
                disk.ending, disk.quota = None, True
        if statement == "BEGIN IMMEDIATE" and disk.quota != self._limited:
            self._limit(disk.quota)
        if statement != "COMMIT" or not self.in_transaction:
            return super().execute(statement, *values)
        return self._commit()

    def _limit(self, limited: bool) -> None:
        self._limited = limited
        [pages] = super().execute("PRAGMA page_count").fetchone()
        most = pages if limited else NO_QUOTA
        super().execute(f"PRAGMA max_page_count = {most}")

    def _commit(self) -> sqlite3.Cursor:
        disk = self._disk
        if disk.due("before commit"):
            disk.image = read_image(self._path)
            raise Died("before commit")
        if disk.due("short write"):
            disk.ending = None
            with disk.full(self._path):
                return super().execute("COMMIT")
        before = read_image(self._path)
        done = super().execute("COMMIT")
        if disk.due("after commit"):
            disk.image = read_image(self._path)
        elif disk.due("torn commit"):
            disk.image = torn(before, read_image(self._path), disk.rng)
        elif disk.due("half copied"):
            super().execute("PRAGMA wal_checkpoint(passive)")
            disk.image = half_copied(before, read_image(self._path), disk.rng)
        if disk.image is not None:
            raise Died(disk.ending)
        return done


def read_image(path: Path) -> Image:
    """The file and its log as they are on the disk; the rest is memory of living processes."""
    found = {}
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            found[suffix] = path.with_name(path.name + suffix).read_bytes()
    return found


def write_image(image: Image, path: Path) -> None:
    """Write an image under another name."""
    for suffix, content in image.items():
        path.with_name(path.name + suffix).write_bytes(content)


def torn(before: Image, after: Image, rng: Random) -> Image:
    """The log as it may be if the machine stops while a commit is written."""
    old, new = before.get("-wal", b""), after["-wal"]
    first = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    cut = rng.randint(min(first, len(new)), len(new))
    return {"": before[""], "-wal": new[:cut] + old[cut:]}


def half_copied(before: Image, after: Image, rng: Random) -> Image:
    """Some pages as they may be if the machine stops while the log is copied into the file."""
    old, new = before[""], after[""]
    pages = range(0, max(len(old), len(new)), PAGE_BYTES)
    mixed = b"".join(
        rng.choice((old, new))[at : at + PAGE_BYTES] or new[at : at + PAGE_BYTES] for at in pages
    )
    return {"": mixed, "-wal": after["-wal"]}
