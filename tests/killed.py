"""Kills work on files at a chosen moment, or shows what each kill would leave.

A *moment* is a change in a folder (a file is opened, moved or deleted, a folder is created or
deleted), or a call by the work itself. A process that is killed at a moment does nothing after it,
and loses the buffers of its files.

``killed_at`` kills a process that is forked from the test. ``states_at_moments`` does the work once
and undisturbed: what is on disk at a moment is what a kill would leave. This takes a fraction of
the time, since it does the work once instead of once a moment, and most moments leave the same.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

Work = Callable[[Callable[[], None]], object]
"""What is to be done; it is given what it calls at moments of its own."""

CHANGES: Final = frozenset({"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"})
"""What Python tells its audit hooks of changes."""

State = dict[str, bytes | None]
"""The files in a folder by their paths there; None for a folder."""

AT_EVERY_MOMENT: Final = pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="of each kind"), pytest.param(True, id="all", marks=pytest.mark.long)],
)

_watched: _Moments | None = None


class _Moments:
    """Counts the moments of this process; ``reached`` is told the number of each, from 0."""

    def __init__(self, folder: Path, reached: Callable[[int], None]) -> None:
        self.count = 0
        self._folder, self._reached = str(folder), reached

    def pass_one(self) -> None:
        """One more."""
        self._reached(self.count)
        self.count += 1

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What Python calls before it does something."""
        if event in CHANGES:
            path = str(arguments[0])
            # Whoever deletes a folder opens it, and then names what is in it without its path.
            inside = not path.startswith("/") and event != "open"
            if inside or path.startswith(self._folder):
                self.pass_one()


def moments_of(work: Work, folder: Path) -> int:
    """Do the work in a process that is left alone; how many moments it has."""
    status, count = _forked(work, folder, None)
    assert status == 0, "the work failed: its error is above"
    return count


def killed_at(moment: int, work: Work, folder: Path) -> bool:
    """Do the work in a process that is killed at a moment, from 0; False if it was over before."""
    status, _ = _forked(work, folder, moment)
    assert status in (0, -signal.SIGKILL), "the work failed: its error is above"
    return status != 0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def states_at_moments(work: Work, folder: Path, *, every: bool) -> list[State]:
    """Do the work in this process; the states in which its folder is at its moments, in order.

    Without ``every``, only the first after each kind of change: whichever of the numbered files is
    created, changed or deleted, it is one kind.
    """
    found: dict[frozenset[tuple[str, bytes | None]], State] = {}

    def reached(_: int) -> None:
        global _watched
        moments, _watched = _watched, None  # reading the state is no moment
        now = state(folder)
        found.setdefault(frozenset(now.items()), now)
        _watched = moments

    global _watched
    _hook_once()
    _watched = moments = _Moments(folder, reached)
    try:
        work(moments.pass_one)
    finally:
        _watched = None
    states = list(found.values())
    kinds: dict[object, State] = {}
    for at, (before, after) in enumerate(pairwise([{}, *states])):
        kinds.setdefault(at if every else _change(before, after), after)
    return list(kinds.values())


def _change(before: State, after: State) -> frozenset[tuple[str, str]]:
    """What happened between the states, whatever the numbers in names."""
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    return frozenset(
        (what, re.sub(r"\d+", "", name))
        for what, names in (("gone", gone), ("new", new), ("changed", changed))
        for name in names
    )


def restore(before: State, folder: Path) -> None:
    """Make the folder what it was."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    put(before, folder)


def put(what: State, folder: Path) -> None:
    """Write what was in another folder."""
    for name, content in what.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def state(folder: Path) -> State:
    """What is in a folder now."""
    paths = sorted(folder.rglob("*"))  # a folder before what is in it
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in paths
    }


@cache
def _hook_once() -> None:
    """A hook stays until the process ends."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if _watched is not None:
            _watched.audit(event, arguments)

    sys.addaudithook(audit)


def _forked(work: Work, folder: Path, last: int | None) -> tuple[int, int]:
    """How the process ended, and how many moments it had if it came to its end."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Later Pythons warn of threads, such as those of numpy; none of them holds a lock here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            moments = _Moments(folder, lambda moment: _die() if moment == last else None)
            sys.addaudithook(moments.audit)
            work(moments.pass_one)
            os.write(writing, str(moments.count).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(told or 0)
