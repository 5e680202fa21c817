"""Replays on a cluster of two executors, each a process of its own, of which one is killed."""

from __future__ import annotations

import os
import signal
import time
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


def executors() -> list[int]:
    """The processes of the executors of these tests."""
    ours = {os.getpid()}
    found = []
    for path in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if parent in ours:
            ours.add(int(path.name))
            if EXECUTOR in command:
                found.append(int(path.name))
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
    _wait_until_gone(first)
    result.report("spark")

    assert files_of(folder / "spark") == whole
    assert rows == whole["conversations.jsonl"].count(b"\n")


def _wait_until_gone(process: int) -> None:
    until = time.monotonic() + WITHIN_SECONDS
    while process in executors():
        assert time.monotonic() < until
        time.sleep(0.05)
