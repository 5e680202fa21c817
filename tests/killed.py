"""Kills work on files at a chosen moment.

The work runs in a process that is forked from the test. A *moment* is a change in a folder (a file
is opened, moved or deleted, a folder is created or deleted), or a call by the work itself. A
process that is killed at a moment does nothing after it, and loses the buffers of its files.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Work = Callable[[Callable[[], None]], object]
"""What is to be done; it is given what it calls at moments of its own."""

CHANGES: Final = frozenset({"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"})
"""What Python tells its audit hooks of changes."""


class _Moments:
    """Counts the moments of this process, and kills it at one."""

    def __init__(self, folder: Path, last: int | None) -> None:
        self.count = 0
        self._folder, self._last = str(folder), last

    def pass_one(self) -> None:
        """One more; there is no more after the last."""
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
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
            moments = _Moments(folder, last)
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
