"""Function calls per event do not increase, with the kernel and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.counts import RECORDED, hold

ROOT = Path(__file__).resolve().parents[2]
BY_KIND = {"call": "Python calls", "c_call": "C calls"}


@cache
def counted(kernel: str, hash_seed: int = 0) -> dict[str, float]:
    """Calls per event in a new process, which no other test has warmed up."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STREAM_METRICS_KERNEL": kernel,
        "PYTHONHASHSEED": str(hash_seed),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.calls"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        pytest.param("", "with the kernel", marks=pytest.mark.kernel),
        pytest.param("python", "in Python", marks=pytest.mark.long),
    ],
)
def test_function_calls_per_event_stay_within_the_recorded_counts(kernel: str, how: str) -> None:
    """Both forms are counted."""
    hold({f"{BY_KIND[kind]}, {how}": value for kind, value in counted(kernel).items()})


@pytest.mark.slow
@pytest.mark.kernel
def test_counts_are_the_same_in_every_run() -> None:
    """With the kernel, the order of sets changes nothing."""
    assert counted("") == counted("", hash_seed=1)


def test_an_increased_count_fails() -> None:
    """The failure says by how much, and what to do; other counts pass."""
    recorded = {"commands": 2.0, "bytes": 100.0}

    hold({"commands": 2.05, "bytes": 90.0}, recorded)
    with pytest.raises(AssertionError, match=r"(?s)bytes: 104.00.*4.0% above.*100.00.*counts.py"):
        hold({"commands": 2.0, "bytes": 104.0}, recorded)


def test_a_much_lower_count_fails() -> None:
    """The failure has the line that records it."""
    recorded = {"commands": 2.0, "bytes": 2_000.0}

    with pytest.raises(AssertionError, match=r'(?s)1,234.50.*38.3% below.* {4}"bytes": 1_234.5,$'):
        hold({"commands": 2.0, "bytes": 1_234.5}, recorded)


def test_counts_of_zero_fail() -> None:
    """A broken counter, or unprocessed records, are no improvement."""
    for name in RECORDED:
        with pytest.raises(AssertionError, match=f"{name}: 0.00, which is 100.0% below"):
            hold({name: 0.0})


def test_every_recorded_count_is_above_zero() -> None:
    """A recorded zero would let every count pass."""
    assert all(value > 0 for value in RECORDED.values())
