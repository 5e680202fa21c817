"""The SQLite file: a thread that writes, a thread that reads, and what their errors mean.

Jobs that are queued while the writer is busy share its next transaction, and so one commit. Each
job is applied as a whole or not at all, whatever becomes of the others.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from traceback import clear_frames
from typing import Any, ClassVar, Final, TypeVar

from stream_metrics.live.local.tables import create_tables, refusal
from stream_metrics.live.ports import DeadLettersUnavailable, StoreUnavailable
from stream_metrics.live.worker.source import SourceUnavailable

BUSY_SECONDS: Final = 5.0  # how long to wait for another process that writes
MAX_TOGETHER: Final = 64  # jobs in one transaction
ROWS_A_CALL: Final = (64, 8, 1)  # so that few statements are prepared, whatever the number of rows
PAGE_BYTES: Final = 8_192  # each one that a write touches is written as a whole
CACHE_KIB: Final = 16_384
READER_CACHE_KIB: Final = 8_192  # what it reads is kept by the loop, and by the operating system
CHECKPOINT_BYTES: Final = 8 << 20  # of the write-ahead log, from which on it is copied
WAL_BYTES: Final = 64 << 20  # to which the write-ahead log is cut once it was copied

LARGE_WAL_BYTES: Final = 4 * WAL_BYTES
"""A larger one is not copied, because somebody has been reading the file since it was small."""

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]
Connect = Callable[[Path], sqlite3.Connection]

_PASSING: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk refuses",
    sqlite3.SQLITE_READONLY: "the file cannot be written",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_BUSY: "another process is writing",
    sqlite3.SQLITE_LOCKED: "another process is writing",
    sqlite3.SQLITE_PROTOCOL: "another process is writing",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def insert_rows(
    connection: sqlite3.Connection, statement: str, rows: Sequence[Sequence[object]], then: str = ""
) -> None:
    """Run a statement that ends in ``VALUES`` for rows of equal length, ``then`` behind each.

    Many rows share a call, because each call gives the interpreter to another thread and has to
    wait for it. The last of several rows with one key counts, as if each had a call.
    """
    left = 0
    for size in ROWS_A_CALL:
        whole = len(rows) - (len(rows) - left) % size
        if left == whole:
            continue
        row = f"({', '.join('?' * len(rows[0]))})"
        many = f"{statement} {', '.join([row] * size)} {then}"
        for at in range(left, whole, size):
            connection.execute(many, [*chain.from_iterable(rows[at : at + size])])
        left = whole


class FileUnavailable(StoreUnavailable, SourceUnavailable, DeadLettersUnavailable):
    """The file cannot be read or written now; nothing was changed.

    It holds state, log and dead letters, so none of them is available.
    """

    reason: ClassVar[str] = "disk"


class FileDamaged(Exception):
    """The file is no database, a damaged one, or gone; the message says what to do."""


class FileRefused(Exception):
    """The file cannot be used at all; the message says what to do."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file, whose transactions are begun and ended by statements."""
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that only reads.

    SQLite needs a file beside this one, even for that, unless nothing is left to be copied from the
    write-ahead log and nobody writes: then the file is read as it is.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    writable = os.access(path.parent, os.W_OK)
    if not writable and not _has_log(path):
        address += "&immutable=1"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if writable or getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_CANTOPEN:
            raise
        raise FileRefused(
            f"{path}: who wrote it did not close it, and its folder cannot be written. Copy the "
            "folder, and give the copy"
        ) from error
    return connection


def wal_bytes(path: Path) -> int:
    """The size of the file's write-ahead log; raises ``OSError``."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def large_wal(path: Path) -> str:
    """A message if another program keeps the write-ahead log growing; empty if none does."""
    with suppress(OSError):
        if (size := wal_bytes(path)) > LARGE_WAL_BYTES:
            return (
                f"{path}-wal has {size:,} bytes and grows, because another program has been "
                "reading the file all the time: end it"
            )
    return ""


def _has_log(path: Path) -> bool:
    """Whether the file may have a write-ahead log with something in it."""
    try:
        return wal_bytes(path) > 0
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Queued:
    """A job, and who waits for its result."""

    job: Job[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def answer(self, result: object) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self.loop.call_soon_threadsafe(self._resolve, result)

    def _resolve(self, result: object) -> None:
        if self.future.done():
            return  # cancelled: nobody waits any more
        if isinstance(result, _Failed):
            self.future.set_exception(result.error)
        else:
            self.future.set_result(result)


Run = Callable[[sqlite3.Connection, Sequence[Job[Any]]], Sequence[object]]


class _Lane:
    """A thread with a connection of its own, which runs jobs in the order in which they came.

    ``run`` runs up to ``together`` of them at once.
    """

    def __init__(self, name: str, open_: Callable[[], sqlite3.Connection], run: Run, together: int):
        self._queue: SimpleQueue[_Queued | None] = SimpleQueue()
        self._open = open_
        self._run = run
        self._together = together
        self._opened = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._error is not None:
            raise self._error

    async def ask(self, job: Job[T]) -> T:
        """The result of ``job``; it is run even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Queued(job, loop, future))
        return await future

    def close(self) -> None:
        """Finish what is queued, and close the connection."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            connection = self._open()
        except BaseException as error:
            self._error = error
            return
        finally:
            self._opened.set()
        try:
            while (first := self._queue.get()) is not None:
                self._serve(connection, [first, *self._more()])
        finally:
            connection.close()

    def _more(self) -> list[_Queued]:
        found: list[_Queued] = []
        while len(found) < self._together - 1:
            try:
                queued = self._queue.get_nowait()
            except Empty:
                break
            if queued is None:
                self._queue.put(None)
                break
            found.append(queued)
        return found

    def _serve(self, connection: sqlite3.Connection, queued: Sequence[_Queued]) -> None:
        results = self._run(connection, [one.job for one in queued])
        for one, result in zip(queued, results, strict=True):
            one.answer(_ended(result))


def _ended(result: object) -> object:
    """A result without cursors: one that another thread frees resets a statement that this thread
    may just be running, which then fails."""
    if isinstance(result, sqlite3.Cursor):
        result.close()
        return None
    if isinstance(result, _Failed):
        clear_frames(result.error.__traceback__)
    return result


class Database:
    """The file at ``path``, which is created if it is missing.

    ``write`` and ``read`` raise ``FileUnavailable`` and ``FileDamaged``, and whatever the job
    raises. The constructor also raises ``FileRefused``.
    """

    def __init__(self, path: Path, *, connect: Connect = connect) -> None:
        self.path = path
        try:
            self._writer = _Lane("writer", lambda: _open(path, connect), self._write, MAX_TOGETHER)
        except sqlite3.Error as error:
            raise _translated(error, path) from error
        self._opened = _identity(path)
        self._reader = _Lane("reader", lambda: _open_reader(path, connect), _read, 1)

    async def write(self, job: Job[T]) -> T:
        """The result of ``job``, None in place of a cursor; its changes are on the disk by then."""
        return await self._ask(self._writer, job)

    async def read(self, job: Job[T]) -> T:
        """The result of ``job``, which sees what was committed at one moment."""
        return await self._ask(self._reader, job)

    async def close(self) -> None:
        """Finish what is queued, and close the file."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close the file, and wait for that."""
        self._reader.close()
        self._writer.close()

    def _write(self, connection: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> Sequence[object]:
        """Run jobs in one transaction; if that fails, each in one of its own.

        A small change may fit on a disk that is too full for a large one beside it.
        """
        try:
            return _together(connection, jobs, self._check_place)
        except BaseException as error:
            if len(jobs) == 1:
                return [_Failed(error)]
        return [self._write(connection, [job])[0] for job in jobs]

    def _check_place(self) -> None:
        """Raise ``FileDamaged`` if the file would end with this process, because it was deleted."""
        if _identity(self.path) != self._opened:
            raise FileDamaged(
                f"{self.path} was deleted or replaced while it was in use. Nothing more is stored; "
                "put it back, or start with an empty folder"
            )

    async def _ask(self, lane: _Lane, job: Job[T]) -> T:
        try:
            return await lane.ask(job)
        except sqlite3.Error as error:
            raise _translated(error, self.path) from error


class ReadOnlyDatabase(Database):
    """A file that exists, which other processes may write to; nothing is changed.

    It can also be in a folder that cannot be written. The constructor also raises ``FileRefused``.
    """

    def __init__(self, path: Path, *, connect: Connect = connect_to_read) -> None:
        self.path = path

        def open_() -> sqlite3.Connection:
            connection = _open_reader(path, connect)
            if why := refusal(connection):
                connection.close()
                raise FileRefused(f"{path}: {why}")
            return connection

        try:
            self._reader = _Lane("reader", open_, _read, 1)
        except sqlite3.Error as error:
            raise _translated(error, path) from error

    async def write(self, job: Job[T]) -> T:
        """Raise ``FileUnavailable``."""
        raise FileUnavailable(f"{self.path}: the file was opened for reading only")

    def close_now(self) -> None:
        """Close the file, and wait for that."""
        self._reader.close()


def _open(path: Path, connect: Connect) -> sqlite3.Connection:
    connection = connect(path)
    try:
        why = refusal(connection)
        if why is not None:
            raise FileRefused(f"{path}: {why}")
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        [mode] = connection.execute("PRAGMA journal_mode = wal").fetchone()
        if mode != "wal":
            raise FileRefused(
                f"{path} is on a file system on which SQLite keeps no write-ahead log, such as one "
                "of the network. Choose a folder on a disk of this machine"
            )
        connection.execute("PRAGMA synchronous = full")
        connection.execute("PRAGMA temp_store = memory")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        [page_bytes] = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // page_bytes}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        create_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_reader(path: Path, connect: Connect) -> sqlite3.Connection:
    connection = connect(path)
    connection.execute("PRAGMA query_only = on")
    connection.execute("PRAGMA temp_store = memory")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of its name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _together(
    connection: sqlite3.Connection, jobs: Sequence[Job[Any]], check: Callable[[], None]
) -> list[object]:
    """Run jobs in one transaction, which is committed if ``check`` does not raise."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if len(jobs) == 1:
            results = [jobs[0](connection)]
        else:
            results = [_apart(connection, job) for job in jobs]
        check()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return results


def _apart(connection: sqlite3.Connection, job: Job[Any]) -> object:
    """Run one of several jobs; if it raises, only its own changes are undone."""
    connection.execute("SAVEPOINT job")
    try:
        result = job(connection)
    except sqlite3.OperationalError:
        raise  # of the file, and so of all
    except Exception as error:
        result = _Failed(error)
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")
    return result


def _read(connection: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> Sequence[object]:
    [job] = jobs
    try:
        connection.execute("BEGIN")
        try:
            return [job(connection)]
        finally:
            connection.execute("ROLLBACK")
    except BaseException as error:
        return [_Failed(error)]


def _translated(error: sqlite3.Error, path: Path) -> Exception:
    """The error as callers of the ports know it; the error itself if it is a bug of ours."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return error
    if code & 0xFF in _DAMAGED:
        return FileDamaged(
            f"{path} is damaged, or no database: {error}. Move it away and restore a copy of it; "
            "without one, start with an empty folder and send the events again"
        )
    what = _PASSING.get(code & 0xFF)
    return error if what is None else FileUnavailable(f"{path}: {what} ({error})")
