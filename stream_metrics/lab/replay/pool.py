"""A pool of processes that compute pieces of a replay and parts of its report.

``multiprocessing`` is imported when there are several: a small replay takes less time than that.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from stream_metrics.core.garbage_collection import collect_rarely, collector_paused
from stream_metrics.lab.evaluation.submit import deferred
from stream_metrics.lab.replay.pieces import Job, compute
from stream_metrics.lab.replay.spool import Piece

_T = TypeVar("_T")


class WorkerDied(Exception):
    """A process of the replay died before its call was done."""


class Pool:
    """Runs calls in ``processes`` other processes, or in this one if there is no executor."""

    def __init__(self, executor: Executor | None = None, processes: int = 0) -> None:
        self._executor, self._processes = executor, processes

    def compute_all(
        self, work: Job, pieces: Sequence[Piece], done: Callable[[Piece], None]
    ) -> None:
        """Compute all pieces, and call ``done`` after each; raises ``WorkerDied``."""
        pool = self._executor
        if pool is None:
            for piece in pieces:
                done(_compute(work, piece))
            return
        with _death_explained():
            for future in as_completed([pool.submit(_compute, work, piece) for piece in pieces]):
                done(future.result())

    def submit(self, call: Callable[..., _T], *arguments: Any) -> Callable[[], _T]:
        """Submit a call; returns a function that waits for its result.

        Either of them raises ``WorkerDied`` if a process died.
        """
        if self._executor is None:
            return deferred(call, *arguments)
        with _death_explained():
            future = self._executor.submit(call, *arguments)

        def result() -> _T:
            with _death_explained():
                return future.result()

        return result

    def results(self, calls: Iterable[Callable[[], _T]]) -> Iterator[_T]:
        """The results of calls in their order; one call for each process is submitted ahead.

        Raises ``WorkerDied``.
        """
        running: deque[Callable[[], _T]] = deque()
        for call in calls:
            running.append(self.submit(call))
            if len(running) > self._processes:
                yield running.popleft()()
        while running:
            yield running.popleft()()


@contextmanager
def _death_explained() -> Iterator[None]:
    """Turn the death of a process into ``WorkerDied``."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool as error:
        raise WorkerDied(_DIED) from error


@contextmanager
def process_pool(processes: int) -> Iterator[Pool]:
    """A pool of this many processes; with 1, this process does all the work.

    The processes start immediately, so that they have imported their modules when work arrives. On
    an error or interrupt they finish the calls already running and drop the others.
    """
    if processes <= 1:
        yield Pool()
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_initialise) as executor:
        for _ in range(processes):
            executor.submit(_ready)
        try:
            yield Pool(executor, processes)
        except BaseException:
            # This must wait: leaving the executor's block shuts down again without cancelling, and
            # would revoke the request before the executor's thread has seen it.
            executor.shutdown(cancel_futures=True)
            raise


def _ready() -> None:
    """A no-op that makes the executor start a process."""


def _compute(work: Job, piece: Piece) -> Piece:
    with collector_paused():
        return compute(work, piece)


_DIED: Final = (
    "a process of the replay was killed or crashed, perhaps for lack of memory. What is "
    "finished is kept: run the same command again, with fewer --processes if memory is short"
)


def _initialise() -> None:
    """Set up a process that ignores interrupts and exits with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
