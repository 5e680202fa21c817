"""What ends is started again, and what keeps ending is given up."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from deploy.local.process import ChildProcess, ServerFailed
from deploy.local.stack_folder import Folder, digest_key
from deploy.local.supervisor import Ends, Supervisor
from tests.helpers import wait_until


@pytest.mark.parametrize(
    ("at", "pauses"),
    [
        ([0], [1]),
        ([0, 1, 3, 7, 15], [1, 2, 4, 8, None]),
        ([0, 10, 20, 30, 59.9], [1, 2, 4, 8, None]),
        ([0, 10, 20, 30, 60], [1, 2, 4, 8, 8]),
        ([0, 60, 120, 180, 240, 300], [1, 1, 1, 1, 1, 1]),
        ([0, 1, 2, 3, 100, 101], [1, 2, 4, 8, 1, 2]),
    ],
)
def test_the_fifth_end_within_a_minute_is_the_last(
    at: Sequence[float], pauses: Sequence[float | None]
) -> None:
    """Each end within a minute doubles the pause before the next start; older ends are
    forgotten.
    """
    ends = Ends()
    assert [ends.pause(now) for now in at] == pauses


class Shell(ChildProcess):
    """A shell with these commands, which is ready at once."""

    name = "shell"

    def __init__(self, folder: Path, commands: str, final_codes: Sequence[int] = ()) -> None:
        super().__init__(folder)
        self._commands = commands
        self.final_codes = frozenset(final_codes)

    def command(self) -> list[str]:
        """See ``ChildProcess``."""
        return ["sh", "-c", self._commands]

    async def ready(self) -> bool:
        """See ``ChildProcess``."""
        return True


async def test_what_ends_is_started_again_with_a_word_about_why(tmp_path: Path) -> None:
    """The lines have the signal, the end of the log and the new process id, and the process is
    stopped with the others.
    """
    said: list[str] = []
    child = Shell(tmp_path, "echo so far; echo; exec sleep 600")
    async with Supervisor(said.append, 0.01) as supervisor:
        await supervisor.start("the shell", child)
        await wait_until(lambda: "so far" in child.log_tail(), 10, "it does not run")
        first = child.pid
        child.kill9()
        await wait_until(lambda: "the shell is ready again" in said, 10, lambda: str(said))
        assert child.running
        assert child.pid != first

    assert not child.running
    assert said == [
        "  started: the shell",
        f"the shell, process {first}, was ended by signal 9 (Killed). The end of its log:"
        "\n  so far",
        "the shell starts again in 0.01 s",
        f"the shell is started again: process {child.pid}",
        "the shell is ready again",
    ]


@pytest.mark.parametrize(
    ("final_codes", "starts", "why"),
    [
        ([], 5, "ended with exit code 2. It ended 5 times within 60 s."),
        ([2], 1, "ended with exit code 2: it cannot run like this."),
    ],
)
async def test_what_cannot_run_is_given_up(
    tmp_path: Path, final_codes: list[int], starts: int, why: str
) -> None:
    """An exit code that would come again ends it at once, any other one at the fifth time; the
    error has the end of the log.
    """
    wait = "until [ -e go ]; do sleep 0.01; done"
    child = Shell(tmp_path, f"{wait}; echo no such setting; exit 2", final_codes)
    async with Supervisor(lambda line: None, 0.01) as supervisor:
        await supervisor.start("the shell", child)
        (tmp_path / "go").touch()
        with pytest.raises(ServerFailed) as failed:
            await asyncio.wait_for(supervisor.failed, 10)

    assert why in str(failed.value)
    assert str(failed.value).endswith("The end of its log:" + "\n  no such setting" * starts)


@pytest.mark.parametrize(
    ("keep", "code", "logs", "stays"),
    [
        (False, 0, True, False),
        (True, 0, True, True),
        (False, 1, True, True),
        (False, 1, False, False),
    ],
)
def test_the_folder_stays_if_it_is_wanted_or_tells_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keep: bool,
    code: int,
    logs: bool,
    stays: bool,
) -> None:
    """A temporary folder is deleted, unless it is to be kept or has logs of a stack that failed;
    what stays is named.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = Folder(keep=keep)
    if logs:
        (folder.path / "redis").mkdir()
        (folder.path / "redis" / "redis.log").write_text("out of memory")

    told = folder.leave(code)

    assert folder.path.exists() == stays
    assert (told is not None and f"--folder {folder.path}" in told) == stays


def test_a_folder_is_of_one_stack_and_keeps_its_key(tmp_path: Path) -> None:
    """A second stack is refused while the first runs; the key of the state, which only the owner
    may read, is that of the first start.
    """
    named = Folder(tmp_path / "kept")
    with named.locked() as path:
        key = digest_key(path)
        second = Folder(path).locked()
        with pytest.raises(ServerFailed, match="another stack runs in"), second:
            pass
    with Folder(path).locked():
        assert digest_key(path) == key
    assert (path / "digest.key").stat().st_mode & 0o777 == 0o600
    assert named.leave(0) is not None
    assert path.exists()
