"""Processes that compute pieces of a replay, and what can be done beside its merging."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from stream_metrics.adapters.replay.pieces import Work, compute
from stream_metrics.adapters.replay.spool import Piece
from stream_metrics.evaluation.beside import deferred
from stream_metrics.worker.collecting import collect_seldom, collecting_once

_T = TypeVar("_T")


class WorkerDied(Exception):
    """A process of the replay ended before its piece was done."""


class Pool:
    """Processes that work for this one; without an executor this one does all itself."""

    def __init__(self, executor: ProcessPoolExecutor | None = None) -> None:
        self._executor = executor

    def compute_all(
        self, work: Work, pieces: Sequence[Piece], done: Callable[[Piece], None]
    ) -> None:
        """Compute all pieces, and call ``done`` after each; raises ``WorkerDied``."""
        pool = self._executor
        if pool is None:
            for piece in pieces:
                done(_computed(work, piece))
            return
        with _told_of():
            for future in as_completed([pool.submit(_computed, work, piece) for piece in pieces]):
                done(future.result())

    def begin(self, call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]:
        """Begin what can be done beside this process.

        Either this or its result raises ``WorkerDied``, as soon as that is known.
        """
        if self._executor is None:
            return deferred(call, *arguments)
        with _told_of():
            future = self._executor.submit(call, *arguments)

        def result() -> _T:
            with _told_of():
                return future.result()

        return result


@contextmanager
def _told_of() -> Iterator[None]:
    """Say of a process that died what that means for the replay."""
    try:
        yield
    except BrokenProcessPool as error:
        raise WorkerDied(_DIED) from error


@contextmanager
def several(processes: int) -> Iterator[Pool]:
    """A pool of so many; one process is this one.

    They start at once, so that they have imported what they need when there is work for them. Of
    what they were given when an error or an interrupt comes, they finish what they have begun.
    """
    if processes <= 1:
        yield Pool()
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin) as executor:
        for _ in range(processes):
            executor.submit(_ready)
        try:
            yield Pool(executor)
        except BaseException:
            # It waits: leaving the executor's block shuts down once more, without cancelling, and
            # would undo the request before the executor's thread has seen it.
            executor.shutdown(cancel_futures=True)
            raise


def _ready() -> None:
    """What a process does to be there."""


def _computed(work: Work, piece: Piece) -> Piece:
    with collecting_once():
        return compute(work, piece)


_DIED: Final = (
    "a process of the replay was killed or crashed, perhaps for lack of memory. What is done is "
    "kept: run the same command again, with fewer --processes if memory is short"
)


def _begin() -> None:
    """Set up a process: it leaves interrupts to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
