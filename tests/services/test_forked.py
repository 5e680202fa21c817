"""Processes that are forked from one that has imported the program."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked

pytestmark = pytest.mark.skipif(
    os.uname().sysname != "Linux", reason="elsewhere each process is started anew"
)


@contextmanager
def waiting(folder: Path, **environment: str) -> Iterator[forked.Forked]:
    """A command that waits for its input."""
    reading, writing = os.pipe()
    with (folder / "out").open("wb") as out:
        process = forked.start(
            ["validate", "-"],
            {**os.environ, **environment},
            folder,
            (reading, out.fileno(), out.fileno()),
            session=True,
        )
    os.close(reading)
    assert process is not None
    try:
        yield process
    finally:
        os.close(writing)
        process.kill()
        process.wait()


async def test_a_command_says_the_same_as_one_that_is_started_anew() -> None:
    """Exit code, output and errors are those of ``python -m stream_metrics``."""
    environment = {**os.environ, "STREAM_METRICS_CONFIG": ""}
    for arguments in (["--version"], ["validate", "-"], ["no-such-command"]):
        anew = {**environment, "PYTHONFAULTHANDLER": "1"}

        assert forked.start(arguments, anew, None, (0, 1, 2)) is None
        assert await forked.run(arguments, environment, "{}\n") == await forked.run(
            arguments, anew, "{}\n"
        )


def test_a_process_is_a_child_with_a_session_and_folder_of_its_own(tmp_path: Path) -> None:
    """Signals to its group reach nobody else."""
    with waiting(tmp_path) as process:
        parent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]

        assert int(parent) == os.getpid()
        assert os.getpgid(process.pid) == process.pid
        assert process.poll() is None


def test_a_killed_process_has_the_exit_code_of_the_signal(tmp_path: Path) -> None:
    """As with ``subprocess``, the code is negative."""
    with waiting(tmp_path) as process:
        os.killpg(process.pid, signal.SIGKILL)

        assert process.wait() == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
