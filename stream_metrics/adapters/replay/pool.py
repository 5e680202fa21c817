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
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from stream_metrics.adapters.replay.pieces import Work, compute
from stream_metrics.adapters.replay.spool import Piece
from stream_metrics.worker.collecting import collect_seldom, collecting_once

_T = TypeVar("_T")


class WorkerDied(Exception):
    """A process of the replay ended before its piece was done."""


def compute_all(
    work: Work, pieces: Sequence[Piece], processes: int, done: Callable[[Piece], None]
) -> None:
    """Compute all pieces, and call ``done`` after each; raises ``WorkerDied``.

    One process is this one. What is begun when an error or an interrupt comes is finished first.
    """
    processes = min(processes, len(pieces))
    if processes <= 1:
        for piece in pieces:
            done(_computed(work, piece))
        return
    with _pool(processes) as pool:
        try:
            for future in as_completed([pool.submit(_computed, work, piece) for piece in pieces]):
                done(future.result())
        except BrokenProcessPool as error:
            raise WorkerDied(_DIED) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _computed(work: Work, piece: Piece) -> Piece:
    with collecting_once():
        return compute(work, piece)


class Begin(Protocol):
    """Begins a call; what it gives back waits for the result, and raises ``WorkerDied``."""

    def __call__(self, call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]: ...


@contextmanager
def apart(processes: int) -> Iterator[Begin]:
    """A process for what can be done beside this one; with one process all is done in this one."""
    if processes <= 1:
        yield lambda call, *arguments: partial(call, *arguments)
        return
    with _pool(1) as pool:

        def begin(call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]:
            future = pool.submit(call, *arguments)

            def result() -> _T:
                try:
                    return future.result()
                except BrokenProcessPool as error:
                    raise WorkerDied(_DIED) from error

            return result

        yield begin


def _pool(processes: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, mp_context=context, initializer=_begin)


_DIED: Final = (
    "a process of the replay was killed or crashed, perhaps for want of memory. What is done is "
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
