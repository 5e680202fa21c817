"""The folder of one process: its lock, its digest key, and what makes it unusable."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_metrics.live.local.database import Database, FileDamaged, FileRefused, connect
from stream_metrics.live.local.folder import (
    FolderInUse,
    FolderRefused,
    database_of,
    digest_key_file,
    held,
    prepare_database,
    user_of,
)

HOLD = """
import sys
from pathlib import Path
from stream_metrics.live.local.folder import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_the_first(tmp_path: Path) -> None:
    """Also if the first was stopped; once it was killed the folder is free."""
    folder = tmp_path / "data"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        with pytest.raises(FolderInUse, match=f"in use by process {holder.pid}"), held(folder):
            pass
        holder.kill()
    with held(folder):
        pass


def test_nobody_else_may_read_what_is_stored(tmp_path: Path) -> None:
    """Folder, file, log of the file and key are their owner's, whatever the umask is."""
    before = os.umask(0)
    try:
        folder = tmp_path / "data"
        with held(folder):
            key = digest_key_file(folder)
            database = Database(prepare_database(folder))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
            database.close_now()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {key.name, "lock", "stream-metrics.db-wal"} < modes.keys()
    assert set(modes.values()) == {0o600}


def test_the_digest_key_is_made_once(tmp_path: Path) -> None:
    """It has as many bits as the guide to keys asks for, and what a kill has left is replaced."""
    (tmp_path / f"digest.key.{os.getpid()}").write_text("half")

    first = digest_key_file(tmp_path).read_text()

    assert len(bytes.fromhex(first)) == 32
    assert digest_key_file(tmp_path).read_text() == first
    assert [path.name for path in tmp_path.iterdir()] == ["digest.key"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The message names it and says what to do."""
    (tmp_path / "file").touch()

    with pytest.raises(FolderRefused, match=r"Not a directory. Choose a folder"):
        held(tmp_path / "file" / "data").__enter__()


@pytest.mark.parametrize(
    "use", [prepare_database, digest_key_file, lambda folder: held(folder).__enter__()]
)
def test_a_read_only_folder_is_refused(tmp_path: Path, use: Callable[[Path], object]) -> None:
    """Nobody may write to it but root, who is somebody else for the time of the test."""
    tmp_path.chmod(0o500)
    before = os.geteuid()
    os.seteuid(before or 65_534)
    try:
        with pytest.raises(FolderRefused, match=r"Permission denied. Choose a folder"):
            use(tmp_path)
    finally:
        os.seteuid(before)
        tmp_path.chmod(0o700)


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """It is refused before anything in it changes."""
    path = database_of(tmp_path)
    other = connect(path)
    other.execute("CREATE TABLE theirs (number)")
    other.close()
    before = path.read_bytes()

    with pytest.raises(FileRefused, match="a database of another program"):
        Database(path)

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("version", "release", "way"),
    [
        (2, "an earlier", "Choose another folder"),
        (4, "a later", "Use that release, or a later one"),
    ],
)
def test_a_file_of_another_format_is_refused(
    tmp_path: Path, version: int, release: str, way: str
) -> None:
    """This release could not know what it reads. The message says how to go on."""
    path = database_of(tmp_path)
    Database(path).close_now()
    other = connect(path)
    other.execute(f"PRAGMA user_version = {version}")
    other.close()

    written = rf"{release} release has written it \(format {version}.* {way}"
    with pytest.raises(FileRefused, match=written):
        Database(path)


@pytest.mark.parametrize("content", [b"no database" * 1_000, b"SQLite format 3\0" + bytes(9_000)])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    """The message says what to do with it, and it stays as it is."""
    path = database_of(tmp_path)
    path.write_bytes(content)

    with pytest.raises(FileDamaged, match=r"stream-metrics.db is damaged.* Move it away"):
        Database(path)

    assert path.read_bytes() == content


def test_a_command_that_looks_who_serves_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock for a moment, after which that is tried again."""
    folder = tmp_path / "data"
    with held(folder):
        assert user_of(folder) == f"process {os.getpid()}"
    assert user_of(folder) == ""
    looking = os.open(folder / "lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: os.close(looking))
    with held(folder):
        assert user_of(folder) == f"process {os.getpid()}"
