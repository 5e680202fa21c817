"""Marks choose the tests of a run, and hold what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def pytest_says(*arguments: str, ignored: bool = False, **environment: str) -> str:
    """What a pytest of its own prints; it begins with these signals ignored, if ``ignored``."""

    def ignore() -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "CI"} | environment,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=ignore if ignored else None,
    )
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout + done.stderr
    return done.stdout


def test_a_test_without_the_mark_starts_no_server() -> None:
    """It fails and is told which mark it lacks."""
    with pytest.raises(RuntimeError, match=r"starts redis-server: mark it pytest\.mark\.service"):
        subprocess.run(["redis-server", "--port", "0"], check=False)


def test_child_processes_begin_with_default_signals() -> None:
    """A child process of a test takes an interrupt as one that a shell starts does."""
    ask = f"import signal; print([int(signal.getsignal(n)) for n in {list(map(int, SIGNALS))[1:]}])"
    interrupt = "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    done = subprocess.run(
        [sys.executable, "-c", f"{ask}; {interrupt}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == [str([int(signal.SIG_DFL)] * 3), "True", ""]


@pytest.mark.slow
def test_signals_that_the_parent_ignores_reach_child_processes() -> None:
    """Tests pass in the background and under nohup, too."""
    this = f"{__file__}::{test_child_processes_begin_with_default_signals.__name__}"
    assert "1 passed" in pytest_says(this, ignored=True)


@pytest.mark.slow
def test_pytest_alone_runs_what_needs_no_server() -> None:
    """And says how to run the rest."""
    said = pytest_says("--collect-only", "-o", "testpaths=tests/contract/test_output.py")
    assert "test_messages_lie_there_as_sent[memory]" in said
    assert "[kafka]" not in said
    assert "make test" in said


@pytest.mark.slow
def test_tests_of_the_kernel_are_left_out_without_it() -> None:
    """A line says that they are, and how to get it."""
    said = pytest_says("--collect-only", "tests/twins/test_sums.py", STREAM_METRICS_KERNEL="python")
    assert "0 selected" in said
    assert "left out: tests marked kernel" in said
    assert "make kernel" in said
