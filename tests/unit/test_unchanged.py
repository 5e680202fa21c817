"""Inputs are read as they were when a command began: in every format, once, or not at all."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.manifest import MANIFEST
from stream_metrics.lab.replay.run import FOLDER, run
from stream_metrics.lab.sources.files import numbered_records
from stream_metrics.lab.sources.recording import recording
from stream_metrics.lab.sources.unchanged import FileState, InputChanged, InputError
from tests.helpers import ran
from tests.otlp import RETRIEVER, SpanSpec, as_protobuf, documents, framed
from tests.replays import SPOOLED, RecordedProgress, overwrite, task, traffic

Change = Callable[[Path], object]
LINES = [b'{"type":"forget","conversation_id":"c-%d"}' % number for number in range(40_000)]
PAYLOADS = [
    as_protobuf([SpanSpec(trace, 1, 0, start_ms=trace, end_ms=trace + 1,
                          attributes={**RETRIEVER, **documents("text " * 50, trace)})])
    for trace in range(1, 3_000)
]  # fmt: skip
NAMES = ("day.jsonl", "day.jsonl.gz", "day.jsonl.zst", "day.otlp", "day.parquet")


def write(path: Path, lines: list[bytes] = LINES) -> Path:
    """An input of more than two reads in the format of its name."""
    if lines is LINES:
        path.write_bytes(_written(path.suffix))
    else:
        _write(path, lines, PAYLOADS)
    return path


@cache
def _written(suffix: str, *, outgrown: bool = False) -> bytes:
    """The bytes of an input in a format, or of one that has outgrown it."""
    lines, payloads = LINES, PAYLOADS
    if outgrown:
        lines, payloads = [*reversed(LINES), *LINES], PAYLOADS[::-1] * 2
    with TemporaryDirectory() as folder:
        path = Path(folder, f"day{suffix}")
        _write(path, lines, payloads)
        return path.read_bytes()


def _write(path: Path, lines: list[bytes], payloads: list[bytes]) -> None:
    if path.suffix == ".otlp":
        path.write_bytes(framed(payloads))
    elif path.suffix == ".parquet":
        columns = {name: [0] * len(lines) for name in ("partition", "offset", "timestamp")}
        table = pa.table({**columns, "key": lines, "value": lines})
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=2_000)
    else:
        with recording(str(path)) as file:
            for line in lines:
                file.write(Record(line))


def outgrow(path: Path) -> None:
    """Other and more bytes in the same file, as ``cp`` writes them."""
    path.write_bytes(_written(path.suffix, outgrown=True))


CHANGES: dict[Change, str] = {
    lambda path: os.truncate(path, 0): "was cut off",
    lambda path: os.truncate(path, path.stat().st_size // 2): "was cut off",
    overwrite: "was changed",
    outgrow: "was changed",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_while_it_is_read_is_an_error(
    tmp_path: Path, name: str, change: Change
) -> None:
    """That it changed is said in place of any error that this caused."""
    records = numbered_records(str(write(tmp_path / name)))
    next(records)
    change(tmp_path / name)

    with pytest.raises(InputChanged, match=CHANGES[change]):
        list(records)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.5, 1])
def test_what_is_appended_while_a_file_is_read_does_not_count(
    tmp_path: Path, name: str, share: float
) -> None:
    """Neither whole lines, members, frames and messages nor a part of them."""
    path = write(tmp_path / name)
    as_it_was = list(numbered_records(str(path)))
    data = path.read_bytes()
    records = numbered_records(str(path))
    found = [next(records)]
    with path.open("ab") as file:
        file.write(data[: int(len(data) * share)])

    assert [*found, *records] == as_it_was


def test_a_last_line_that_is_completed_while_a_file_is_read_stays_as_it_was(tmp_path: Path) -> None:
    """It had no end."""
    path = tmp_path / "day.jsonl"
    path.write_bytes(b"\n".join(LINES)[:-5])
    records = numbered_records(str(path))
    found = [next(records)]
    with path.open("ab") as file:
        file.write(LINES[-1][-5:] + b"\n")

    assert [record.value for _, record in [*found, *records]] == [*LINES[:-1], LINES[-1][:-5]]


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_file_that_changes_while_it_is_standard_input_is_an_error(
    tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``< FILE`` is a file as well."""
    with write(tmp_path / "day.jsonl").open("rb") as file:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(file))
        records = numbered_records("-")
        next(records)
        change(tmp_path / "day.jsonl")

        with pytest.raises(InputChanged, match=f"^-: it {CHANGES[change]}"):
            list(records)


def sources_of(*paths: Path) -> Sources:
    """These files as the sources of a command."""
    return Sources([*map(str, paths)], Settings(), "earliest", "end")


@pytest.mark.parametrize("change", [*CHANGES, os.remove])
def test_a_file_that_changes_before_its_turn_is_an_error(tmp_path: Path, change: Change) -> None:
    """Otherwise a replay that continues would take its records for those that it has read."""
    paths = [write(tmp_path / f"{number}.jsonl") for number in range(2)]
    sources = sources_of(*paths)
    assert sources.identity is not None
    records = sources.located_records()
    next(records)
    change(paths[1])

    with pytest.raises(InputChanged, match=CHANGES.get(change, "was removed")):
        list(records)


@pytest.mark.parametrize("change", CHANGES)
def test_standard_input_that_changes_before_its_turn_is_an_error(
    tmp_path: Path, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``< FILE`` counts as it was when the command began, as other files do."""
    paths = [write(tmp_path / f"{number}.jsonl") for number in range(2)]
    with paths[1].open("rb") as file:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(file))
        sources = sources_of(paths[0], Path("-"))
        assert sources.identity is None
        records = sources.located_records()
        next(records)
        change(paths[1])

        with pytest.raises(InputChanged, match=CHANGES[change]):
            list(records)


def test_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell closes it for ``<&-``."""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match=r"^-: standard input is closed"):
        list(sources_of(Path("-")).records())


def test_an_error_of_the_user_of_a_record_is_explained_by_a_change(tmp_path: Path) -> None:
    """The payload was damaged because its file was overwritten."""
    records = numbered_records(str(write(tmp_path / "day.otlp")))
    next(records)
    overwrite(tmp_path / "day.otlp")

    with pytest.raises(InputChanged, match="was changed"):
        records.throw(InputError("payload 2: damaged"))


@pytest.mark.parametrize("lines", [LINES, []])
def test_what_is_appended_to_a_file_before_its_turn_does_not_count(
    tmp_path: Path, lines: list[bytes]
) -> None:
    """A command reads its files as they were when it began, also an empty one."""
    paths = [write(tmp_path / "0.jsonl"), write(tmp_path / "1.jsonl", lines)]
    sources = sources_of(*paths)
    with paths[1].open("ab") as file:
        file.write(LINES[0] + b"\n")

    assert sum(1 for _ in sources.located_records()) == len(LINES) + len(lines)


def test_a_pipe_is_read_from_its_first_record() -> None:
    """Looking for traces in it loses nothing."""
    reading, writing = os.pipe()
    writer = threading.Thread(
        target=Path(f"/dev/fd/{writing}").write_bytes, args=[b"\n".join(LINES)], daemon=True
    )
    writer.start()
    sources = sources_of(Path(f"/dev/fd/{reading}"))

    assert not sources.has_traces
    assert sources.identity is None
    os.close(writing)
    assert [record.value for record in sources.records()] == LINES
    os.close(reading)


def test_a_file_in_proc_is_read_although_it_tells_no_size() -> None:
    """Its state is unknown, so it is read like a pipe."""
    with open("/proc/self/mounts", "rb") as file:
        assert FileState.of(file.fileno()) is None
        assert len(list(numbered_records("/proc/self/mounts"))) == len(file.readlines())


def test_a_descriptor_of_a_file_is_read_by_all_processes(tmp_path: Path) -> None:
    """It is another file in each of them, so its path is taken."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join((record.value or b"") + b"\n" for record in traffic(200)))
    with path.open("rb") as file:
        assert sources_of(Path(f"/dev/fd/{file.fileno()}")).identity == sources_of(path).identity


@pytest.mark.parametrize("option", ["--run", "--qrels"])
def test_an_evaluation_refuses_a_pipe(tmp_path: Path, option: str) -> None:
    """It would be read twice, and its beginning would be missing."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("q 0 d 1\n" if option == "--run" else "q Q0 d 1 1.0 s\n")
    other = "--qrels" if option == "--run" else "--run"
    done = ran("evaluate", option, str(tmp_path / "pipe"), other, str(tmp_path / "file"))

    assert done.returncode == 2
    assert "cannot be read twice" in " ".join(done.stderr.split())


@pytest.mark.parametrize("left", ["{}", '{"fingerprint": "f", "records": 1, "schema_version": 1}'])
def test_a_replay_says_that_it_starts_over_after_that_of_another_version(
    tmp_path: Path, left: str
) -> None:
    """Its state is not passed over in silence."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / MANIFEST).write_text(left)
    progress = RecordedProgress()
    run(task(traffic(100), tmp_path, SPOOLED), progress)

    assert any("starting over" in note for note in progress.notes)


def test_an_unreadable_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Such as a folder."""
    with pytest.raises(InputError, match=str(tmp_path)):
        list(numbered_records(str(tmp_path)))
