"""The log of one process, read by what reads recordings."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.log_source import LogSource
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.kafka.mark import EARLIEST, END, Mark
from stream_metrics.live.local.database import Database, FileUnavailable, ReadOnlyDatabase
from stream_metrics.live.local.folder import database_of, prepare_database
from stream_metrics.live.local.log import READ_RECORDS, Entry, Log, Retention
from stream_metrics.live.local.tables import EVENTS, SPANS
from tests.folders import add_spans, fill, output, run
from tests.otlp import RETRIEVER, SpanSpec, as_json, documents
from tests.unit.test_worst import searched

NOW_S = int(time.time())
TRAFFIC = [searched(f"c-{n}", n, ["a", "b"], NOW_S) for n in (1, 2, 3)]
SCORED = SpanSpec(1, 2, attributes=RETRIEVER | documents("a", "b"))
HOUR_MS = 3_600_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ten events, an hour apart, the first two of which are deleted."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "data"
    made.mkdir()

    async def write() -> None:
        database = Database(prepare_database(made))
        log = Log(database)
        for hour in range(10):
            await log.append(EVENTS, [Entry(b"c", b"%d" % hour)], hour * HOUR_MS)
        await database.write(lambda at: at.execute('DELETE FROM events WHERE "offset" < 2'))
        await database.write(
            lambda at: at.execute("UPDATE logs SET first = 2 WHERE topic = 'events'")
        )
        await database.close()

    asyncio.run(write())
    return made


def offsets(folder: Path, since: Mark, until: Mark = END) -> tuple[list[int], list[str]]:
    """The offsets of what is read between two marks, and what is said to be missing."""
    source = LogSource(folder, [EVENTS], (since, until))
    found = [record.offset for record in source.records()]
    assert source.offsets == len(found)
    return found, source.missed


def test_a_log_is_read_from_its_first_record_to_its_end(folder: Path) -> None:
    """What retention has deleted before is told."""
    missed = ["events/0 begins at offset 2: 2 before it are gone"]

    assert offsets(folder, EARLIEST) == ([*range(2, 10)], missed)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (Mark("offset", 4), Mark("offset", 6), [4, 5]),
        (Mark("time", 5 * HOUR_MS - 1), Mark("time", 7 * HOUR_MS + 1), [5, 6, 7]),
        (Mark("time", 99 * HOUR_MS), END, []),
        (END, END, []),
        (Mark("offset", 9), Mark("offset", 3), []),
    ],
)
def test_marks_name_offsets_and_times(
    folder: Path, since: Mark, until: Mark, expected: list[int]
) -> None:
    """As of topics of Kafka."""
    assert offsets(folder, since, until) == (expected, [])


def test_records_around_what_is_wanted_close_traces(folder: Path) -> None:
    """They are read, but outside of the range of the source."""
    source = LogSource(folder, [EVENTS], (Mark("offset", 5), Mark("offset", 6)), 2 * HOUR_MS)

    found = [record.offset for record in source.records()]

    part = source.part(Record(b"", b"", 0, EVENTS, 0, 5))
    assert (found, part.first, part.end, part.is_cut) == ([3, 4, 5, 6, 7], 5, 6, False)


def test_records_that_are_deleted_while_they_are_read_are_not_left_out_in_silence(
    folder: Path,
) -> None:
    """The error says from which offset, and what to do."""

    async def change(*, delete: bool) -> None:
        database = Database(database_of(folder))
        if delete:
            await database.write(lambda at: at.execute("DELETE FROM events"))
        else:
            await Log(database).append(EVENTS, [Entry(b"c", b"1")] * READ_RECORDS, 10 * HOUR_MS)
        await database.close()

    asyncio.run(change(delete=False))
    records = LogSource(folder, [EVENTS], (EARLIEST, END)).records()
    next(records)
    asyncio.run(change(delete=True))
    with pytest.raises(UsageError, match=r"deleted before they could be read: from offset \d+"):
        list(records)


def test_a_file_that_is_opened_for_reading_is_not_written(folder: Path) -> None:
    """Not even by mistake."""

    async def write() -> None:
        database = ReadOnlyDatabase(database_of(folder))
        try:
            with pytest.raises(FileUnavailable, match="opened for reading only"):
                await database.write(lambda at: at.execute("DELETE FROM events"))
        finally:
            await database.close()

    asyncio.run(write())


def test_a_recording_of_a_folder_is_replayed_as_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows byte for byte; `compare` finds no difference between the two."""
    monkeypatch.chdir(tmp_path)
    folder = fill(tmp_path / "data", TRAFFIC)
    assert "3 records written to" in output("record", folder, "--out", "recorded.jsonl")
    output("replay", "recorded.jsonl", "--out", "recorded")
    output("replay", folder, "--out", "direct")

    row = "conversations.jsonl"
    assert Path("recorded", row).read_bytes() == Path("direct", row).read_bytes()
    found = json.loads(output("compare", "recorded", folder, "--metric", "srr", "--format", "json"))
    assert [run["name"] for run in found["runs"]] == ["recorded", "data"]


def test_a_topic_that_a_folder_does_not_have_is_refused(folder: Path) -> None:
    """The message names those that it has."""
    error = run("record", folder, "--topic", "searches", "--out", "-").exception

    assert isinstance(error, UsageError)
    assert "it has events and spans" in str(error)


def test_labels_and_explanations_are_of_the_spans_of_a_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores are joined with them; `record` writes them where they are named."""
    add_spans(folder, [as_json([SCORED])], 1_000 * NOW_S)
    monkeypatch.setenv("STREAM_METRICS_LABELS__GRADES", '{"relevant": 3}')
    score = {"span_id": SCORED.span_id.hex(), "label": "relevant", "position": 1}
    Path("scores.jsonl").write_text(json.dumps(score) + "\n")

    told = output("labels", "scores.jsonl", "--traces", folder)

    assert "1 of 1 scores are used" in told
    assert '"gain":3' in told
    assert "RETRIEVER" in output("explain", folder, "--format", "json")
    assert "1 records written" in output("record", folder, "--topic", "spans", "--out", "s.jsonl")


def test_scores_that_wait_for_their_traces_are_not_lost_in_a_move(folder: Path) -> None:
    """The command refuses before it sends anything, and says how to get labels of them."""

    async def wait() -> None:
        database = Database(database_of(folder))
        statement = "INSERT INTO scores (arrived_ms, trace, record) VALUES (1, 't', x'00')"
        await database.write(lambda at: at.execute(statement))
        await database.close()

    asyncio.run(wait())
    error = run("replay", folder, "--into-kafka").exception

    assert isinstance(error, UsageError)
    assert "1 scores wait until their traces are complete" in str(error)


def test_what_commands_note_about_letters_is_kept_as_long_as_the_letters(folder: Path) -> None:
    """And no longer."""

    async def trim() -> int:
        database = Database(database_of(folder))
        statement = (
            "INSERT INTO letter_marks (written_ms, topic, headers) VALUES (?, 'events', '[]')"
        )
        try:
            await database.write(lambda at: at.executemany(statement, [(1,), (HOUR_MS,)]))
            retention = Retention({EVENTS: HOUR_MS, SPANS: HOUR_MS}, 1 << 30)
            while await Log(database).trim(retention, HOUR_MS + 2):
                pass
            return await database.read(
                lambda at: int(at.execute("SELECT count(*) FROM letter_marks").fetchone()[0])
            )
        finally:
            await database.close()

    assert asyncio.run(trim()) == 1


def test_spans_to_move_are_of_whole_traces(folder: Path) -> None:
    """Those that are to be read again, and what was read of the same traces before."""

    async def write() -> None:
        database = Database(database_of(folder))
        log = Log(database)
        for trace in (b"told", b"cut", b"told", b"open", b"cut"):
            await log.append(SPANS, [Entry(trace, b"")], HOUR_MS)
        await log.commit("bridge", {SPANS: (3, "")})
        await database.close()

    asyncio.run(write())
    found = LogSource(folder, [EVENTS], (EARLIEST, END)).unread_spans()

    assert [(record.offset, record.key) for record in found] == [
        (1, b"cut"),
        (3, b"open"),
        (4, b"cut"),
    ]
