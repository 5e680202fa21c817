"""Processes of a replay that are killed, or whose results are no longer needed."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO

import pytest

from stream_metrics.lab.replay.pool import WorkerDied, process_pool
from stream_metrics.lab.replay.run import Execution, run
from tests.replays import AT_ONCE, RecordedProgress, files_of, replayed, task, traffic

WAITING = 100
SECONDS = 30.0


def kill_all() -> None:
    """Kill the processes of the pool, as the kernel does when memory is exhausted."""
    for child in multiprocessing.active_children():
        assert child.pid is not None
        with suppress(ProcessLookupError):  # the pool ends all of them when one dies
            os.kill(child.pid, signal.SIGKILL)
        child.join(SECONDS)


def held_up(lock: Path) -> None:
    """Wait until the test releases the lock."""
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def let_go(result: Callable[[], object], lock: IO[str]) -> None:
    """Release the lock once the call of ``result`` is cancelled, or after a deadline."""

    def wait() -> None:
        with suppress(CancelledError):
            result()

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(SECONDS)
    fcntl.flock(lock, fcntl.LOCK_UN)


@pytest.mark.slow
def test_the_death_of_a_process_is_reported_at_any_time() -> None:
    """The error is raised when a result is awaited, and when the next call starts."""
    with process_pool(2) as pool:
        assert pool.submit(len, "ab")() == 2
        kill_all()
        with pytest.raises(WorkerDied):
            pool.submit(len, "ab")()
        with pytest.raises(WorkerDied, match="run the same command again"):
            pool.submit(len, "ab")


def told_after(killing: RecordedProgress, folder: Path) -> RecordedProgress:
    """Run a replay with ``killing``, then the same again; returns the progress of the second.

    The second one creates all files.
    """
    out = folder / "out"
    replay = task(traffic(150), out, Execution(2, small_records=0))
    with pytest.raises(WorkerDied, match="run the same command again"):
        run(replay, killing)

    told = RecordedProgress()
    run(replay, told)
    assert files_of(out) == replayed(traffic(150), folder / "whole", AT_ONCE)
    return told


@pytest.mark.slow
def test_a_replay_continues_after_a_process_was_killed(tmp_path: Path) -> None:
    """The first replay ends with an error that says what to do; the same command completes it."""

    class Killing(RecordedProgress):
        def computed(self, pieces: int, of: int) -> None:
            if pieces == 1:
                kill_all()

    told = told_after(Killing(), tmp_path)

    assert "pieces were computed before" in told.notes[0]


@pytest.mark.slow
def test_a_merge_continues_after_a_process_was_killed(tmp_path: Path) -> None:
    """The shards are kept, and the same command creates the report."""

    class Killing(RecordedProgress):
        def merging(self) -> None:
            kill_all()

    told = told_after(Killing(), tmp_path)

    assert told.steps[0][0] == told.steps[0][1]


def failing(lock: IO[str], helper: ThreadPoolExecutor, done: Path) -> None:
    """Fail a merge while submitted calls still wait for a process."""
    with process_pool(2) as pool:
        for _ in range(2):
            pool.submit(held_up, Path(lock.name))
        results = [pool.submit(Path.touch, done / str(number)) for number in range(WAITING)]
        helper.submit(let_go, results[-1], lock)
        raise ValueError("the merge fails")


@pytest.mark.slow
def test_an_error_cancels_waiting_calls(tmp_path: Path) -> None:
    """When a merge fails, waiting calls are cancelled and all processes end."""
    done = tmp_path / "done"
    done.mkdir()
    with (tmp_path / "lock").open("w") as lock, ThreadPoolExecutor(1) as helper:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="the merge fails"):
            failing(lock, helper, done)

    assert len(list(done.iterdir())) < WAITING
    assert multiprocessing.active_children() == []
