"""Replays on a cluster of two executors, each a process of its own, of which one is killed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stream_metrics.spark import read_lines, replay
from tests.spark.recordings import files_of, lines, recorded, replayed

EXECUTOR = b"CoarseGrainedExecutorBackend"
WITHIN_SECONDS = 60


@pytest.fixture(scope="module")
def master() -> str:
    """Two executors with a core and 1,024 MiB each."""
    return "local-cluster[2,1,1024]"


def processes() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def below(process: int) -> list[int]:
    """A process and all that it has started."""
    parents, found = processes(), [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def executors() -> list[int]:
    """The processes of the executors of these tests."""
    found = []
    for process in below(os.getpid()):
        with suppress(OSError):
            if EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
    return found


def test_a_lost_executor_does_not_change_the_files(spark: SparkSession, folder: Path) -> None:
    """What it had computed, and its part of the shuffle, are computed again."""
    (folder / "events.jsonl").write_bytes(lines(recorded()))
    whole = replayed("whole", "events.jsonl")
    result = replay(read_lines(spark, folder / "events.jsonl"), partitions=7)
    rows = result.rows.count()
    first, *others = executors()
    assert others

    os.kill(first, signal.SIGKILL)
    _wait(lambda: first not in executors())
    result.report("spark")

    assert files_of(folder / "spark") == whole
    assert rows == whole["conversations.jsonl"].count(b"\n")


def test_an_executor_that_is_lost_while_it_computes_does_not_change_the_files(
    spark: SparkSession, folder: Path
) -> None:
    """The other computes its conversations, and nothing of them counts twice."""
    (folder / "events.jsonl").write_bytes(lines(recorded(4_000)))
    whole = replayed("whole", "events.jsonl")
    _wait(lambda: len(executors()) == 2)  # the tests before may have lost one
    result = replay(read_lines(spark, folder / "events.jsonl"), partitions=7, piece_bytes=200_000)

    with ThreadPoolExecutor(1) as pool:
        report = pool.submit(result.report, "spark")
        _wait(lambda: _killed_in_a_piece(Path(spark.conf.get("spark.local.dir") or "")))
        report.result()

    assert files_of(folder / "spark") == whole


def _killed_in_a_piece(place: Path) -> bool:
    """Kill an executor in whose folder there is a piece that it computes; False if none has one."""
    for executor in executors():
        name = re.search(rb"executor-[-0-9a-f]+", Path(f"/proc/{executor}/environ").read_bytes())
        stopped = below(executor)
        _send(stopped, signal.SIGSTOP)
        if name is not None and any(place.glob(f"*/{name[0].decode()}/*/stream-metrics-*")):
            _send(stopped, signal.SIGKILL)
            return True
        _send(stopped, signal.SIGCONT)
    return False


def _send(found: list[int], number: signal.Signals) -> None:
    for process in found:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)
