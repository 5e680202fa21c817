"""Commands on the folder of one process, in place of Kafka and Redis."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.places import place_of
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.record import Record
from stream_metrics.live.local.database import LARGE_WAL_BYTES, Database, ReadOnlyDatabase
from stream_metrics.live.local.folder import building, database_of, held
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.ports import Superseded
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from tests.folders import add_letter, fill, output, run, serve_until_read, working
from tests.serving import everything
from tests.unit.test_worst import labelled, searched

NOW_S = int(time.time())
TRAFFIC = (
    searched("c-1", 1, ["a", "b"], NOW_S, agent="first"),
    searched("c-1", 2, ["a", "c"], NOW_S, agent="first"),
    searched("c-2", 1, ["a", "d"], NOW_S, agent="second"),
    searched("c-2", 2, ["a", "d"], NOW_S, agent="second", turn=2),
    labelled("c-1", {"1.0.a": 3, "2.1.c": 2}) | {"occurred_at": NOW_S},
)
LETTER = Record(b'{"conversation_id": "c-9"}', b"c-9", 1_718_020_800_000, EVENTS, 0, 1)
HERE = {"PYTHONPATH": os.pathsep.join(sys.path)}  # of processes that begin in another folder
LATER = json.dumps(searched("c-3", 1, ["a"], NOW_S)).encode()
READING: tuple[tuple[str, ...], ...] = (
    ("top",),
    ("check",),
    ("audit",),
    ("export", "--out", "exported"),
    ("dlq", "list"),
    ("dlq", "show", "events/0/1"),
    ("build", "--dry-run"),
)
WRITING: tuple[tuple[str, ...], ...] = (
    ("dlq", "resubmit", "--all", "--yes"),
    ("forget", "c-1", "--yes"),
    ("purge", "--yes"),
    ("build", "--yes"),
    ("build", "--give-up"),
)
SOURCES: tuple[tuple[str, ...], ...] = (
    ("replay", "{}", "--out", "replayed"),
    ("validate", "{}"),
    ("record", "{}", "--out", "recorded.jsonl"),
    ("explain", "{}"),
)


def test_a_command_for_servers_points_to_a_folder_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who only has one process would else read that no Redis answers."""
    monkeypatch.chdir(tmp_path)
    place_of(None, None)
    assert capsys.readouterr().err == ""
    Path("stream-metrics-data").mkdir()

    place_of(None, None)

    assert "--data stream-metrics-data" in capsys.readouterr().err


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that one process has served."""
    folder = fill(tmp_path_factory.mktemp("served") / "data", TRAFFIC)
    add_letter(folder, LETTER)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that a test may change, and a folder for its files."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(filled, tmp_path / "data"))


def rows(folder: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of the state."""
    output("export", "--data", folder, "--out", "rows", *options)
    return [json.loads(line) for line in Path("rows/conversations.jsonl").read_text().splitlines()]


def values(folder: Path) -> list[Record]:
    """The events of the log."""

    async def read() -> list[Record]:
        database = ReadOnlyDatabase(database_of(folder))
        try:
            return await everything(Log(database))
        finally:
            await database.close()

    return asyncio.run(read())


def serve(folder: Path, settings: Settings | None = None) -> None:
    """Let one process read what was appended."""
    asyncio.run(serve_until_read(folder, settings or Settings()))


# -- what they say


def test_every_command_works_while_one_process_serves_the_folder_and_while_none_does(
    folder: Path,
) -> None:
    """Commands that only read say the same both times, but for who uses the folder."""
    alone = [output(*words, "--data", folder) for words in READING]
    database = Database(database_of(folder))
    try:
        with held(folder):
            beside = [output(*words, "--data", folder) for words in READING]
    finally:
        database.close_now()

    assert "nobody serves it now" in alone[1]
    assert f"in use by process {os.getpid()}" in beside[1]
    assert alone[2:] == beside[2:]
    assert alone[0] == beside[0]


def test_an_export_is_what_a_replay_of_the_folder_gives(folder: Path) -> None:
    """Rows and windows, byte for byte."""
    now = ("--now", f"{int(time.time()) + 120}000000")  # the folder may have been filled just now
    output("export", "--data", folder, "--out", "exported", *now)
    output("replay", folder, "--out", "replayed", *now)

    for name in ("conversations.jsonl", "windows.json"):
        assert Path("exported", name).read_bytes() == Path("replayed", name).read_bytes(), name


def test_top_names_the_worst_conversation_of_a_folder(folder: Path) -> None:
    """The one that repeats a result."""
    found = json.loads(
        output("top", "--data", folder, "--format", "json", "--min-results", "1", "--by", "srr")
    )

    assert [row["conversation_id"] for row in found["highest_srr"]] == ["c-1"]


def test_a_folder_without_events_has_no_figures_of_another_time(tmp_path: Path) -> None:
    """Before the first event, the window ends now."""
    folder = fill(tmp_path / "data", ())

    found = json.loads(output("top", "--data", folder, "--format", "json"))

    assert (found["conversations"], found["to_us"] > 1_000_000 * NOW_S) == (0, True)


def test_damaged_state_is_named_with_the_command_to_type(folder: Path) -> None:
    """As that of Redis, but of the folder."""
    edited(folder, "UPDATE hot SET part = x'00'")

    told = str(run("top", "--data", folder).exception)

    assert f"the state in {folder} is damaged" in told
    assert f"`stream-metrics build --data {folder} --again`" in told


def test_check_finds_all_that_serve_needs(folder: Path) -> None:
    """In JSON, a finding a line, none of which is an error."""
    lines = output("check", "--data", folder, "--format", "json").splitlines()

    found = {finding["what"]: finding for finding in map(json.loads, lines)}
    assert found["log events"]["message"] == "5 records, from offset 0"
    assert found["receiver"]["message"] == "127.0.0.1, port 4318"
    assert found["backlog"]["message"] == "0 events are not read yet"
    assert found["state"]["message"].startswith("generation 1, in force, 1 partitions")
    assert "error" not in {finding["state"] for finding in found.values()}


def test_check_tells_of_a_reader_that_does_not_end(folder: Path) -> None:
    """By the file that grows beside the other one."""
    path = database_of(folder)
    path.with_name(f"{path.name}-wal").touch()
    os.truncate(f"{path}-wal", LARGE_WAL_BYTES + 1)

    told = output("check", "--data", folder, "--format", "json")
    assert "another program has been reading the file" in told


def test_a_command_on_a_folder_loads_no_client_of_servers(folder: Path) -> None:
    """Neither of Kafka nor of Redis."""
    program = (
        "import sys; from stream_metrics.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert not {'aiokafka', 'redis', 'faust'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", program, "top", "--data", str(folder)]
    subprocess.run(command, env=os.environ | HERE, check=True)


def test_the_options_of_servers_are_refused_on_a_folder(folder: Path) -> None:
    """Instead of being left aside."""
    for words in (("purge", "--namespace", "x"), ("check", "--topics")):
        error = run(*words, "--data", folder).exception
        assert isinstance(error, UsageError)
        assert "with --data" in str(error)


# -- forget


def test_a_forgotten_conversation_is_gone_once_its_event_is_read(folder: Path) -> None:
    """The event is in the log, and the command says what it says with servers."""
    told = output("forget", "c-1", "nobody", "--data", folder, "--yes")
    serve(folder)

    assert "c-1: in the state, on 1 partition (0)" in told
    assert "nobody: not in the state" in told
    assert "a forget of each is written to 1 partitions of events" in told
    assert "stays in the log: events and dead letters for 7d (serve.retention), spans" in told
    assert {row["conversation_id"] for row in rows(folder)} == {"c-2"}
    assert [record.key for record in values(folder)[-2:]] == [b"c-1", b"nobody"]


def test_a_dead_letter_of_a_forgotten_conversation_is_never_sent_again(folder: Path) -> None:
    """It is listed as forgotten."""
    told = output("forget", "c-9", "--data", folder, "--yes")

    assert "dead letters of them from events, never to be re-submitted: 1" in told
    [listed] = output("dlq", "list", "--data", folder, "--format", "json").splitlines()
    assert json.loads(listed)["forgotten"] is True
    again = output("dlq", "resubmit", "--all", "--yes", "--data", folder)
    assert "skipped, of forgotten conversations: 1" in again


# -- dead letters


def test_a_dead_letter_is_listed_and_shown(folder: Path) -> None:
    """With the place of its record, the reason, its key and its value."""
    [listed] = output("dlq", "list", "--data", folder, "--format", "json").splitlines()
    shown = json.loads(
        output("dlq", "show", "events", "0", "1", "--data", folder, "--format", "json")
    )

    found = json.loads(listed)
    assert (found["topic"], found["partition"], found["offset"]) == ("events", 0, 1)
    assert (found["error.class"], found["error.message"]) == ("over_limit", "too much")
    assert (shown["key"], shown["value"]) == ("c-9", '{"conversation_id": "c-9"}')
    assert shown["timestamp"] == "2024-06-10T12:00:00.000Z"


def test_a_dead_letter_is_sent_again_once_with_its_key_value_and_time(folder: Path) -> None:
    """A second time it is skipped, unless that is asked for."""
    for told in ("1 re-submitted", "skipped, re-submitted before"):
        assert told in output("dlq", "resubmit", "--all", "--yes", "--data", folder)

    last = values(folder)[-1]
    assert len(values(folder)) == len(TRAFFIC) + 1
    assert (last.key, last.value, last.timestamp_ms) == (
        LETTER.key,
        LETTER.value,
        LETTER.timestamp_ms,
    )
    assert "1 re-submitted" in output(
        "dlq", "resubmit", "--all", "--again", "--yes", "--data", folder
    )


# -- purge


def test_the_state_of_a_folder_in_use_is_not_deleted(folder: Path) -> None:
    """The process that uses it is named."""
    with held(folder):
        result = run("purge", "--data", folder, "--yes")

    assert isinstance(result.exception, UsageError)
    assert f"is in use by process {os.getpid()}" in str(result.exception)
    assert len(rows(folder)) == 3


def test_a_deleted_state_is_built_again_from_the_log(folder: Path) -> None:
    """With the same rows; what the reader of the log had committed is deleted as well."""
    before = rows(folder)
    told = output("purge", "--data", folder, "--yes")
    assert "The log is kept" in told
    assert "has no state yet" in str(run("top", "--data", folder).exception)

    serve(folder)

    assert rows(folder) == before


def test_a_deletion_is_confirmed_by_the_name_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name deletes nothing."""
    monkeypatch.setattr("typer.prompt", lambda *_, **__: "other")
    assert run("purge", "--data", folder).exit_code == 1
    assert len(rows(folder)) == 3

    monkeypatch.setattr("typer.prompt", lambda *_, **__: "data")
    assert run("purge", "--data", folder).exit_code == 0
    assert "has no state yet" in str(run("top", "--data", folder).exception)


# -- build


@pytest.fixture
def stricter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other settings of the state, and no pauses between two looks at a build."""
    monkeypatch.setattr("stream_metrics.cli.build.POLL_SECONDS", 0.05)
    monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")


@pytest.mark.usefixtures("stricter")
def test_changed_settings_are_refused_with_the_command_to_type(folder: Path) -> None:
    """By commands and by the process itself."""
    command = f"`stream-metrics build --data {folder}`"
    assert command in str(run("top", "--data", folder).exception)
    assert command in output_of_check(folder)
    served = subprocess.run(
        [sys.executable, "-m", "stream_metrics", "serve", "--port", "0", "--otlp-port", "0"],
        env={**os.environ, **HERE, "STREAM_METRICS_SERVE__DATA": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert served.returncode == 2
    assert command in served.stderr


def output_of_check(folder: Path) -> str:
    """What ``check`` finds, on one line."""
    result = run("check", "--data", folder, "--format", "json")
    assert result.exit_code == 2
    return result.output


def test_a_build_makes_the_state_of_the_new_settings(folder: Path, stricter: None) -> None:
    """It reads the log itself, switches and deletes the state before; nobody serves meanwhile."""
    told = output("build", "--data", folder, "--yes")

    assert "metrics.good_gain was 2, is 3" in told
    assert "generation 2 is in force" in told
    output("replay", folder, "--out", "replayed")
    replayed = Path("replayed/conversations.jsonl").read_text().splitlines()
    assert rows(folder) == [json.loads(line) for line in replayed]
    assert "generation 2, in force" in output("check", "--data", folder, "--format", "json")
    assert "was built with these settings" in output("build", "--data", folder, "--yes")


def test_a_process_goes_on_during_a_build_and_ends_when_it_takes_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has received meanwhile is in the new state; its message says what to start."""

    monkeypatch.setattr("stream_metrics.cli.process.LAYOUT_CHECK_SECONDS", 0.05)

    async def both() -> None:
        async with working(folder, Settings()) as (process, running):
            monkeypatch.setattr("stream_metrics.cli.build.POLL_SECONDS", 0.05)
            monkeypatch.setenv("STREAM_METRICS_METRICS__GOOD_GAIN", "3")
            await asyncio.to_thread(output, "build", "--data", folder, "--yes")
            await process.records.append(EVENTS, [Entry(b"c-3", LATER)], 1_000 * NOW_S)
            with pytest.raises(Superseded, match="has been replaced by generation 2"):
                await running

    asyncio.run(both())
    serve(folder)
    assert {row["conversation_id"] for row in rows(folder)} == {"c-1", "c-2", "c-3"}


@pytest.mark.usefixtures("stricter")
def test_two_builds_at_once_are_refused(folder: Path) -> None:
    """The second names the first; once that has ended, a build goes on."""
    with building(folder):
        result = run("build", "--data", folder, "--yes")
    assert isinstance(result.exception, UsageError)
    assert f"in use by process {os.getpid()}" in str(result.exception)

    assert "generation 2 is in force" in output("build", "--data", folder, "--yes")


@pytest.mark.usefixtures("stricter")
def test_a_state_that_is_being_built_is_not_served(folder: Path) -> None:
    """Figures of half of the log would be shown; the message says how to finish the build."""
    with building(folder):
        run("build", "--data", folder, "--yes")

    with pytest.raises(OtherIdentity, match="still being built"):
        serve(folder)
    assert "nothing is being built" in output("build", "--data", folder, "--give-up")


# -- other folders


def missing(folder: Path) -> str:
    """No folder; what is said of it."""
    shutil.rmtree(folder)
    return "there is no such folder"


def empty(folder: Path) -> str:
    """A folder without a file."""
    shutil.rmtree(folder)
    folder.mkdir()
    return "there is no stream-metrics.db in it"


def later(folder: Path) -> str:
    """A folder of a later release."""
    edited(folder, "PRAGMA user_version = 99")
    return "a later release has written it"


def foreign(folder: Path) -> str:
    """A database of another program."""
    edited(folder, "PRAGMA application_id = 1")
    return "a database of another program"


def damaged(folder: Path) -> str:
    """A file that is no database."""
    database_of(folder).write_bytes(b"no database at all" * 1_000)
    return "is damaged, or no database"


def edited(folder: Path, statement: str) -> None:
    """Change the file."""
    connection = sqlite3.connect(database_of(folder), isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("kind", [missing, empty, later, foreign, damaged])
def test_a_folder_that_is_none_is_refused_and_left_as_it_is(
    folder: Path, kind: Callable[[Path], str]
) -> None:
    """By every command that looks at state, in a line that says why."""
    why = kind(folder)
    before = files(folder)
    for words in (*READING, *WRITING):
        result = run(*words, "--data", folder)
        told = f"{result.exception} {result.output}"
        assert result.exit_code, words
        assert why in " ".join(told.split()), (words, told)
        assert not isinstance(result.exception, sqlite3.Error), words
    assert files(folder) == before


@pytest.mark.parametrize("kind", [later, foreign, damaged])
def test_a_log_that_cannot_be_read_is_refused(folder: Path, kind: Callable[[Path], str]) -> None:
    """By every command that reads recordings."""
    why = kind(folder)
    for words in SOURCES:
        result = run(*(word.format(folder) for word in words))
        assert isinstance(result.exception, UsageError), words
        assert why in str(result.exception), words


def files(folder: Path) -> dict[str, bytes]:
    """What is in a folder, but for the files that SQLite needs beside a database."""
    if not folder.is_dir():
        return {}
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {name: data for name, data in found.items() if not name.endswith(("-shm", "-wal"))}


# -- folders that cannot be written


@contextmanager
def only_read(folder: Path) -> Iterator[None]:
    """Let this process only read a folder, which is in one of its own."""
    before = os.getresuid()
    places = (*folder.iterdir(), folder, folder.parent)
    for path in places:
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    if before[1] == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(*before)
        for path in reversed(places):
            os.chmod(path, 0o700)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that other users may look into."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_a_folder_that_cannot_be_written_can_be_read(filled: Path, outside: Path) -> None:
    """By commands that only read; others say why they cannot."""
    folder = Path(shutil.copytree(filled, outside / "data"))
    with only_read(folder):
        for reading in ("top", "check", "audit"):
            output(reading, "--data", folder)
        assert "over_limit" in output("dlq", "list", "--data", folder)
        assert "5 records" in output("validate", folder)
        for changing in WRITING[:3]:
            told = str(run(*changing, "--data", folder).exception)
            assert "the file cannot be written" in told, changing


def test_a_log_that_was_not_closed_is_read_whole(filled: Path, outside: Path) -> None:
    """With what is only in the write-ahead log; a copy that cannot be written is refused, as that
    would be missing."""
    folder = outside / "data"
    shutil.copytree(unclosed(filled, outside), folder)
    with only_read(folder):
        result = run("validate", folder)
        assert "Copy the folder, and give the copy" in str(result.exception)
    assert "6 records" in output("validate", folder)


def unclosed(filled: Path, outside: Path) -> Path:
    """A copy of a folder as a process leaves it that is killed after it has stored an event."""
    served, left = Path(shutil.copytree(filled, outside / "served")), outside / "left"
    left.mkdir()

    async def write() -> None:
        database = Database(database_of(served))
        try:
            await Log(database).append(EVENTS, [Entry(b"c-3", LATER)], 1_000 * NOW_S)
            for name in ("stream-metrics.db", "stream-metrics.db-wal"):
                shutil.copy(served / name, left)
        finally:
            await database.close()

    asyncio.run(write())
    return left
