"""The folder of one process: who uses it, its digest key, and the SQLite file."""

from __future__ import annotations

import fcntl
import os
import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

DATABASE: Final = "stream-metrics.db"
LOCK: Final = "lock"
BUILD_LOCK: Final = "build.lock"
KEY: Final = "digest.key"

LOOKED_AT_SECONDS: Final = (0.01, 0.05, 0.0)
"""Pauses after which a lock is tried again: commands hold it for a moment to see who does."""

_PRIVATE: Final = 0o600  # the log has the texts that agents found


class FolderRefused(Exception):
    """The folder cannot be used; the message says why, and what to do."""


class FolderInUse(FolderRefused):
    """Another process uses the folder."""


def database_of(folder: Path) -> Path:
    """The file of a folder."""
    return folder / DATABASE


def is_log(folder: Path) -> bool:
    """Whether a folder has the file of one process, and so a log."""
    try:
        return database_of(folder).is_file()
    except (OSError, ValueError):  # it cannot be looked at, or is no path
        return False


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Create the folder if it is missing, and keep other processes from using it.

    The lock ends with the process, however that ends. Raises ``FolderInUse``, which names the
    other process, and ``FolderRefused``.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(folder, error) from error
    with _locked(folder, LOCK, "Stop that one, or choose another folder with --data"):
        yield


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """Keep other processes from building state in the folder; raises as ``held`` does."""
    with _locked(folder, BUILD_LOCK, "That one is building state; wait for it, or stop it"):
        yield


@contextmanager
def _locked(folder: Path, name: str, advice: str) -> Iterator[None]:
    try:
        lock = os.open(folder / name, os.O_RDWR | os.O_CREAT, _PRIVATE)
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        _lock(lock, folder, advice)
        with suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path, advice: str) -> None:
    for pause in LOOKED_AT_SECONDS:
        with suppress(BlockingIOError):
            return _try_lock(lock, folder)
        time.sleep(pause)
    raise FolderInUse(f"{folder} is in use by {_named(lock)}. {advice}")


def _try_lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _refused(folder, error) from error


def user_of(folder: Path) -> str:
    """Who uses the folder, such as ``process 12``; empty if nobody does."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return ""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _named(lock)
    else:
        return ""
    finally:
        os.close(lock)


def _named(lock: int) -> str:
    pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
    return f"process {pid}" if pid.isdecimal() else "another process"


def told_for(folder: Path, message: str) -> str:
    """The message, with the folder for Redis, and with commands as they are typed for it."""
    message = message.replace(" in Redis", f" in {folder}").replace("a backup", "a copy of it")
    for words in ("build", "purge", "check", "dlq list"):
        command = f"`stream-metrics {words}"
        message = message.replace(command, f"{command} --data {shlex.quote(str(folder))}")
    return message


def prepare_database(folder: Path) -> Path:
    """The path of the folder's file, which nobody but its owner may read, created if missing."""
    path = database_of(folder)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE))
        _sync(folder)
    except OSError as error:
        raise _refused(folder, error) from error
    return path


def digest_key_file(folder: Path) -> Path:
    """The file with the folder's digest key, made at the first start; never half a key."""
    path, made = folder / KEY, folder / f"{KEY}.{os.getpid()}"
    try:
        if path.exists():
            return path
        made.unlink(missing_ok=True)
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        made.rename(path)
        _sync(folder)
    except OSError as error:
        raise _refused(folder, error) from error
    return path


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _refused(folder: Path, error: OSError) -> FolderRefused:
    return FolderRefused(
        f"{folder} cannot be used: {error.strerror}. Choose a folder that can be written, with "
        "--data, or make room"
    )
