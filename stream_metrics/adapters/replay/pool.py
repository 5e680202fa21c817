"""Processes that compute pieces of a replay."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Final

from stream_metrics.adapters.replay.pieces import Work, compute
from stream_metrics.adapters.replay.spool import Piece

GC_THRESHOLDS: Final = (100_000, 20, 100)


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
            done(compute(work, piece))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin) as pool:
        try:
            for future in as_completed([pool.submit(compute, work, piece) for piece in pieces]):
                done(future.result())
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a process of the replay was killed or crashed, perhaps for want of memory. What "
                "is done is kept: run the same command again, with fewer --processes if memory is "
                "short"
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin() -> None:
    """Set up a process: it leaves interrupts to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(*GC_THRESHOLDS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
