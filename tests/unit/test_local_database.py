"""The SQLite file under the local store and log: shared commits, full disks, errors."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stream_metrics.live.local import database as module
from stream_metrics.live.local.database import (
    Database,
    FileDamaged,
    FileUnavailable,
    connect,
    insert_rows,
    large_wal,
)
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.tables import EVENTS, SPANS
from tests.full_disk import files_up_to

NOW_MS = 1_718_020_800_000


class Counting(sqlite3.Connection):
    """A connection that lists the statements that end transactions."""

    ended: list[str]

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Run a statement."""
        if statement in ("COMMIT", "ROLLBACK"):
            self.ended.append(statement)
        return super().execute(statement, *values)


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """A new file."""
    made = Database(tmp_path / "a.db")
    yield made
    await made.close()


def insert(value: bytes, message: str = "") -> Callable[[sqlite3.Connection], None]:
    """A job that appends a block, and then raises an error with the message, if there is one."""

    def job(connection: sqlite3.Connection) -> None:
        connection.execute(
            "INSERT INTO events (records, timestamp_ms, content) VALUES (1, 0, ?)", (value,)
        )
        if message:
            raise ValueError(message)

    return job


async def values(database: Database) -> list[bytes]:
    """The contents of all blocks, in order."""
    statement = 'SELECT content FROM events ORDER BY "offset"'
    return await database.read(lambda at: [value for (value,) in at.execute(statement)])


async def test_jobs_that_wait_share_a_commit(tmp_path: Path) -> None:
    """While the writer is busy, ten requests arrive; they need one commit together."""
    ended: list[str] = []

    def counted(path: Path) -> sqlite3.Connection:
        made = sqlite3.connect(path, isolation_level=None, factory=Counting)
        made.ended = ended
        return made

    database = Database(tmp_path / "a.db", connect=counted)
    ended.clear()
    begun, free = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait() -> None:
        begun.set()
        await free.wait()

    def busy(_: sqlite3.Connection) -> None:
        asyncio.run_coroutine_threadsafe(wait(), loop).result()

    first = asyncio.create_task(database.write(busy))
    await begun.wait()
    rest = [asyncio.create_task(database.write(insert(b"%d" % n))) for n in range(10)]
    await asyncio.sleep(0)  # all are queued
    free.set()
    await asyncio.gather(first, *rest)

    assert ended == ["COMMIT"] * 2
    assert await values(database) == [b"%d" % n for n in range(10)]
    await database.close()


def test_many_rows_share_a_call() -> None:
    """Whatever their number; the last one with a key counts."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (key PRIMARY KEY, value)")
    calls: list[str] = []
    connection.set_trace_callback(calls.append)

    insert_rows(connection, "INSERT OR REPLACE INTO t VALUES", [(n % 150, n) for n in range(151)])
    insert_rows(connection, "INSERT OR REPLACE INTO t VALUES", [])

    assert len(calls) < 12
    found = dict(connection.execute("SELECT key, value FROM t"))
    assert found == {**{n: n for n in range(150)}, 0: 150}


async def test_a_job_that_raises_changes_nothing(database: Database) -> None:
    """Others in the same transaction are stored."""
    jobs = [database.write(insert(b"%d" % n, "odd" if n % 2 else "")) for n in range(6)]

    results = await asyncio.gather(*jobs, return_exceptions=True)

    assert [isinstance(result, ValueError) for result in results] == [False, True] * 3
    assert await values(database) == [b"0", b"2", b"4"]


async def test_a_cancelled_caller_leaves_the_others_alone(database: Database) -> None:
    """Its job is done all the same, like a request whose answer was lost."""
    jobs = [asyncio.create_task(database.write(insert(b"%d" % n))) for n in range(3)]
    await asyncio.sleep(0)
    jobs[1].cancel()

    await asyncio.gather(*jobs, return_exceptions=True)
    await database.write(insert(b"3"))

    assert await values(database) == [b"0", b"1", b"2", b"3"]


async def test_a_reader_changes_nothing(database: Database) -> None:
    """A statement that writes is an error there."""
    with pytest.raises(FileUnavailable, match="cannot be written"):
        await database.read(insert(b"x"))


async def test_a_large_job_on_a_full_disk_does_not_take_small_ones_along(
    database: Database,
) -> None:
    """The transaction that they share fails, and each is tried on its own."""
    large = insert(bytes(4 << 20))
    with files_up_to(1 << 20):
        jobs = [database.write(job) for job in (insert(b"before"), large, insert(b"after"))]
        results = await asyncio.gather(*jobs, return_exceptions=True)

    assert [type(result) for result in results] == [type(None), FileUnavailable, type(None)]
    assert await values(database) == [b"before", b"after"]


@pytest.mark.parametrize("limit", [*range(0, 40_000, 1_500), 100_000])
async def test_nothing_is_half_written_where_the_disk_is_full(tmp_path: Path, limit: int) -> None:
    """Whatever write is cut, a request is stored as a whole or not, and the next one fits later."""
    path = tmp_path / "a.db"
    database = Database(path)
    log = Log(database)
    await log.append(EVENTS, [Entry(b"k", b"first")], NOW_MS)
    many = [Entry(b"k", b"%d" % n * 500) for n in range(40)]
    size = path.with_name("a.db-wal").stat().st_size

    with files_up_to(size + limit):
        [result] = await asyncio.gather(log.append(EVENTS, many, NOW_MS), return_exceptions=True)

    refused = isinstance(result, FileUnavailable)
    assert refused or result == 1
    stored = [] if refused else [entry.value for entry in many]
    assert [r.value for r in (await log.read({EVENTS: 0}))[EVENTS]] == [b"first", *stored]
    await log.append(EVENTS, [Entry(b"k", b"later")], NOW_MS)
    await database.close()
    again = Database(path)
    found = (await Log(again).read({EVENTS: 0}))[EVENTS]
    assert [(r.offset, r.value) for r in found] == list(enumerate([b"first", *stored, b"later"]))
    await again.close()


async def test_no_more_is_written_than_the_file_may_hold(tmp_path: Path) -> None:
    """SQLite's own limit of pages stands for a quota; what was stored before can still be read."""

    def limited(path: Path) -> sqlite3.Connection:
        made = connect(path)
        made.execute("PRAGMA max_page_count = 40")
        return made

    database = Database(tmp_path / "a.db", connect=limited)
    log = Log(database)
    made = random.Random(1)
    appends = [log.append(EVENTS, [Entry(b"k", made.randbytes(1_000))], NOW_MS) for _ in range(200)]
    results = await asyncio.gather(*appends, return_exceptions=True)

    stored = [result for result in results if isinstance(result, int)]
    refused = [str(result) for result in results if isinstance(result, FileUnavailable)]
    assert stored == list(range(len(stored)))
    assert len(refused) == 200 - len(stored) > 0
    assert "a.db: the disk is full" in refused[0]
    assert len((await log.read({EVENTS: 0}))[EVENTS]) == len(stored)
    await database.close()


@pytest.mark.parametrize("replaced", [False, True])
async def test_nothing_is_stored_in_a_file_that_was_deleted(tmp_path: Path, replaced: bool) -> None:
    """It would be gone with the process, although it was acknowledged."""
    path = tmp_path / "a.db"
    database = Database(path)
    await database.write(insert(b"1"))
    path.rename(tmp_path / "b.db")
    if replaced:
        path.touch()

    with pytest.raises(FileDamaged, match="was deleted or replaced while it was in use"):
        await database.write(insert(b"2"))

    (tmp_path / "b.db").rename(path)
    await database.write(insert(b"3"))
    assert await values(database) == [b"1", b"3"]
    await database.close()


@pytest.mark.parametrize("held", [False, True])
async def test_a_reader_that_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """It keeps all that is written from being copied to the file, so the other one grows."""
    monkeypatch.setattr(module, "LARGE_WAL_BYTES", 10 << 20)
    path = tmp_path / "a.db"
    database, other = Database(path), sqlite3.connect(path, isolation_level=None)
    try:
        if held:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM events").fetchone()
        for _ in range(12):
            await database.write(insert(bytes(1 << 20)))

        assert (f"{path}-wal has 1" in large_wal(path)) is held
    finally:
        other.close()
        await database.close()


async def test_one_statement_is_run_by_many_tasks(database: Database) -> None:
    """No task frees a cursor of it while the writer's thread runs it again."""
    statement = "INSERT OR REPLACE INTO commits VALUES (?, ?, ?, ?)"

    def run(rows: Sequence[tuple[object, ...]]) -> Callable[[sqlite3.Connection], object]:
        return lambda at: at.executemany(statement, rows)

    async def commit(reader: str) -> None:
        for offset in range(3_000):
            rows = [(reader, topic, offset, "x" * 200) for topic in (EVENTS, SPANS)]
            await database.write(run(rows))

    await asyncio.gather(*(commit(f"r-{number}") for number in range(8)))


async def test_an_error_holds_no_cursor(database: Database) -> None:
    """What the job had open is freed in the writer's thread, and the place of the error is kept."""

    def fails(connection: sqlite3.Connection) -> None:
        cursor = connection.execute("SELECT 1 UNION SELECT 2")
        cursor.fetchone()
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong") as caught:
        await database.write(fails)

    frame = caught.traceback[-1]
    assert (frame.name, dict(frame.locals)) == ("fails", {})
