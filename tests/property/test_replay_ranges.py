"""Plain files are indexed in ranges, which has no effect on what a replay writes."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.index_lines import index_lines
from stream_metrics.lab.replay.run import (
    FOLDER,
    Execution,
    ReplaySource,
    ReplayTask,
    StrictError,
    run,
)
from stream_metrics.lab.sources.files import (
    LONGEST_LINE_BYTES,
    FileRange,
    numbered_records,
    range_blocks,
    record_line,
)
from stream_metrics.lab.sources.place import LocatedRecord
from stream_metrics.lab.sources.unchanged import InputChanged, InputError
from tests.helpers import examples, rest_long
from tests.property.test_replay import inputs
from tests.replays import (
    AT_ONCE,
    RecordedProgress,
    files_of,
    overwrite,
    ranges_of,
    task,
    traffic,
)

TRACES = b'{"resourceSpans": []}\n'
LOGS = b'{"resourceLogs": []}\n'
PARTS = [b"\n", b"\r\n", b"a", b" ", b"\xff\x00"]
ENDS = [b"\n", b"\r\n", b"\n\n", b"\n \t\r\n"]


@st.composite
def recordings(draw: st.DrawFn) -> bytes:
    """A file of events and recorded records, among them blank lines and bad ones."""
    text = draw(st.sampled_from([b"", codecs.BOM_UTF8, b"\n"]))
    for key, value, timestamp_ms in draw(inputs()):
        record = Record(value, key, timestamp_ms, "searches", 1, 7)
        recorded = record_line(record).rstrip()
        odd = recorded.replace(b'"timestamp":', b'"timestamp":0.5,"was":')
        line = draw(st.sampled_from([value.replace(b"\n", b" "), recorded, odd]))
        text += line + draw(st.sampled_from(ENDS))
    return text.rstrip(b"\n") if draw(st.booleans()) else text


def replay_of(paths: Sequence[str], out: Path, scale: Execution, **others: Any) -> ReplayTask:
    """A replay of files, which ``scale`` may read in ranges."""

    def located() -> Generator[LocatedRecord, None, None]:
        for path in paths:
            for number, record in numbered_records(path, places=True):
                yield path, number, record

    source = ReplaySource(["test"], ("test",), located, partial(ranges_of, paths))
    return replace(task([], out, scale, **others), source=source)


def in_ranges(range_bytes: int, processes: int = 1) -> Execution:
    """An execution that indexes any plain file."""
    return Execution(processes, small_bytes=0, range_bytes=range_bytes)


@settings(max_examples=examples(25))
@given(st.lists(recordings(), min_size=1, max_size=2), st.booleans(), st.integers(1, 3_000))
def test_a_replay_in_ranges_writes_what_one_in_memory_writes(
    contents: list[bytes], twice: bool, range_bytes: int
) -> None:
    """All files are the same bytes, with the same lines of bad records, for ranges of any size."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, f"{at}.jsonl")) for at in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            Path(path).write_bytes(content)
        paths += paths[-1:] if twice else []
        outs = [Path(folder, "whole"), Path(folder, "ranges")]
        run(replay_of(paths, outs[0], AT_ONCE), RecordedProgress())
        run(replay_of(paths, outs[1], in_ranges(range_bytes)), RecordedProgress())

        assert files_of(outs[1]) == files_of(outs[0])


def lines_from(start: int, text: bytes) -> list[tuple[int, bytes]]:
    """The lines of a text that begins at ``start``, with their own starts."""
    found = []
    for line in io.BytesIO(text):
        found.append((start, line))
        start += len(line)
    return found


def lines_of(part: FileRange) -> list[tuple[int, bytes]]:
    """The lines of a range with their starts."""
    return [line for start, block in range_blocks(part) for line in lines_from(start, block)]


@settings(max_examples=examples(200))
@given(st.booleans(), st.lists(st.sampled_from(PARTS), max_size=20), st.integers(1, 30))
def test_each_line_is_in_one_range(marked: bool, parts: list[bytes], range_bytes: int) -> None:
    """The ranges of a file have its lines in order, each once, wherever it is divided."""
    mark = codecs.BOM_UTF8 if marked else b""
    content = mark + b"a" + b"".join(parts)  # "a": it begins like no packed file
    expected = lines_from(len(mark), content[len(mark) :])
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        ranges = ranges_of([file.name], range_bytes)

        assert [line for one in ranges for line in lines_of(one)] == expected


class Interrupted(Exception):
    """What stops a replay in the middle of its input."""


class InterruptedProgress(RecordedProgress):
    """Stops a replay after so many ranges."""

    def __init__(self, ranges: int) -> None:
        super().__init__()
        self._left = ranges

    def read(self, records: int) -> None:
        """Count a range."""
        self._left -= 1
        if self._left < 0:
            raise Interrupted


@pytest.fixture
def recording(tmp_path: Path) -> str:
    """A file of some hundred events."""
    path = tmp_path / "events.jsonl"
    lines = (record.value or b"" for record in traffic(200))
    path.write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_index_continues(recording: str, processes: int, tmp_path: Path) -> None:
    """A replay that stopped while its input was indexed continues after the last whole range."""
    whole, out, scale = tmp_path / "whole", tmp_path / "out", in_ranges(100_000, processes)
    run(replay_of([recording], whole, AT_ONCE), RecordedProgress())
    with pytest.raises(Interrupted):
        run(replay_of([recording], out, scale), InterruptedProgress(1))

    progress = RecordedProgress()
    run(replay_of([recording], out, replace(scale, range_bytes=7_000)), progress)

    assert progress.notes[0].startswith("continuing after ")
    assert files_of(out) == files_of(whole)


@pytest.mark.parametrize("processes", rest_long([1, 2]))
def test_a_file_with_traces_is_read_from_its_first_line(
    recording: str, processes: int, tmp_path: Path
) -> None:
    """Traces may be anywhere in a file, and all of them are needed before the first is used."""
    with open(recording, "ab") as file:
        file.write(TRACES)
    whole, out, told = tmp_path / "whole", tmp_path / "out", RecordedProgress()
    run(replay_of([recording], whole, AT_ONCE), RecordedProgress())
    run(replay_of([recording], out, in_ranges(100_000, processes)), told)

    assert "from the first line" in told.notes[0]
    assert files_of(out) == files_of(whole)


def test_logs_among_events_are_bad_records(recording: str, tmp_path: Path) -> None:
    """Only traces are joined, so a file with other telemetry is read in ranges."""
    with open(recording, "ab") as file:
        file.write(LOGS)
    whole, out, told = tmp_path / "whole", tmp_path / "out", RecordedProgress()
    run(replay_of([recording], whole, AT_ONCE), RecordedProgress())
    run(replay_of([recording], out, in_ranges(100_000)), told)

    assert told.notes == []
    assert files_of(out) == files_of(whole)


@pytest.mark.parametrize("change", [os.remove, partial(os.truncate, length=0)])
def test_a_file_that_changes_before_a_replay_continues_is_an_error(
    change: Callable[[str], None], recording: str, tmp_path: Path
) -> None:
    """What is missing of an input is not passed over."""
    out, scale = tmp_path / "out", in_ranges(100_000)
    with pytest.raises(Interrupted):
        run(replay_of([recording], out, scale), InterruptedProgress(1))
    change(recording)

    with pytest.raises(InputError):
        run(replay_of([recording], out, scale), RecordedProgress())


def test_a_replaced_file_is_not_indexed(recording: str, tmp_path: Path) -> None:
    """Ranges of two files are not put together."""
    (part,) = ranges_of([recording], 1 << 30)
    os.replace(shutil.copy(recording, tmp_path / "copy.jsonl"), recording)

    with pytest.raises(InputChanged, match="was replaced"):
        index_lines(part, 0, Limits())


@pytest.mark.parametrize("at", [0, -1])
def test_a_file_that_was_cut_off_is_not_indexed(at: int, recording: str) -> None:
    """Its first ranges are not, either: they would make a report of a part of it."""
    parts = ranges_of([recording], 10_000)
    os.truncate(recording, parts[-1].start + 1)

    with pytest.raises(InputChanged, match="was cut off"):
        index_lines(parts[at], 0, Limits())


def test_a_file_that_is_cut_off_while_a_range_is_read_is_not_indexed(recording: str) -> None:
    """An early end of the file is not taken for the end of the range."""
    (part,) = ranges_of([recording], 1 << 30)
    blocks = range_blocks(part)
    start, block = next(blocks)
    os.truncate(recording, start + len(block))

    with pytest.raises(InputChanged, match="was cut off"):
        list(blocks)


def test_a_file_that_is_gone_is_not_indexed(recording: str) -> None:
    """It is no reason to read another file at its path from the first line."""
    (part,) = ranges_of([recording], 1 << 30)
    os.remove(recording)

    with pytest.raises(InputChanged, match="was removed"):
        index_lines(part, 0, Limits())


class Changing(RecordedProgress):
    """Changes the input once, when pieces are computed."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__()
        self._change = change

    def computed(self, pieces: int, of: int) -> None:
        """Change the input before the first piece."""
        if not pieces:
            self._change()


def replace_by_a_copy(path: str) -> None:
    """Put another file with the same bytes at a path."""
    os.replace(shutil.copy(path, f"{path}.copy"), path)


def outgrow(path: str) -> None:
    """Write other and more lines into the same file, as ``cp`` does."""
    lines = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(b"".join([*reversed(lines), *lines]))


def append(path: str) -> None:
    """Append a line."""
    with open(path, "ab") as file:
        file.write(b"{}\n")


IN_ORDER = replace(AT_ONCE, small_records=1)
"""An execution that reads the records one after another, and spools them."""
CHANGES = {
    replace_by_a_copy: "was replaced",
    partial(os.truncate, length=1_000): "was cut off",
    overwrite: "was changed",
    outgrow: "was changed",
}


@pytest.mark.parametrize("scale", [in_ranges(100_000), IN_ORDER])
@pytest.mark.parametrize(("change", "message"), [*CHANGES.items(), (os.remove, "was removed")])
def test_a_file_that_changes_after_it_was_indexed_is_an_error(
    change: Callable[[str], None], message: str, scale: Execution, recording: str, tmp_path: Path
) -> None:
    """Nothing is read at the places of another file, and the next replay starts over."""
    changing = Changing(partial(change, recording))
    with pytest.raises(InputChanged, match=message):
        run(replay_of([recording], tmp_path / "out", scale), changing)

    assert not (tmp_path / "out" / FOLDER).exists()


@pytest.mark.parametrize("scale", [in_ranges(100_000), IN_ORDER])
def test_lines_that_are_appended_after_it_was_indexed_do_not_count(
    scale: Execution, recording: str, tmp_path: Path
) -> None:
    """The report is that of the file as it was."""
    run(replay_of([recording], tmp_path / "as-it-was", scale), RecordedProgress())
    growing = Changing(partial(append, recording))
    run(replay_of([recording], tmp_path / "growing", scale), growing)

    assert files_of(tmp_path / "growing") == files_of(tmp_path / "as-it-was")


def test_lines_that_are_appended_while_a_file_is_read_do_not_count(recording: str) -> None:
    """Those that it had when it was opened are read."""
    records = numbered_records(recording)
    read = [next(records)]
    append(recording)

    read += records
    assert len(read) == Path(recording).read_bytes().count(b"\n") - 1


@pytest.mark.parametrize(("change", "message"), list(CHANGES.items())[1:])
def test_a_file_that_changes_while_it_is_read_in_order_is_an_error(
    change: Callable[[str], None], message: str, recording: str
) -> None:
    """A part of it would make another report."""
    records = numbered_records(recording)
    next(records)
    change(recording)

    with pytest.raises(InputChanged, match=message):
        list(records)


def test_a_file_that_is_replaced_while_it_is_read_in_order_is_an_error(
    recording: str, tmp_path: Path
) -> None:
    """The lines of the file that was opened are not looked for in the other one."""
    task = replay_of([recording], tmp_path / "out", IN_ORDER)

    def located() -> Generator[LocatedRecord, None, None]:
        """The records; the file is replaced once the first has been read."""
        for number, record in numbered_records(recording, places=True):
            if number == 1:
                replace_by_a_copy(recording)
            yield recording, number, record

    with pytest.raises(InputChanged, match="was replaced"):
        run(replace(task, source=replace(task.source, open=located)), RecordedProgress())


def test_a_line_that_is_too_long_is_not_read_in_ranges(tmp_path: Path) -> None:
    """A range that begins in it says so, after the bytes that a line may have."""
    path = tmp_path / "long.jsonl"
    path.touch()
    os.truncate(path, 4 * LONGEST_LINE_BYTES)

    for part in ranges_of([str(path)], LONGEST_LINE_BYTES):
        with pytest.raises(InputError, match="longer than 64 MiB"):
            list(range_blocks(part))


def test_an_index_is_bounded(recording: str) -> None:
    """Of very short lines it would be larger than the file."""
    (part,) = ranges_of([recording], 1 << 30)
    found = index_lines(part, 0, Limits())

    assert found is not None
    size = sum(map(len, found.places))
    assert index_lines(part, 0, Limits(), max_bytes=size) == found
    assert index_lines(part, 0, Limits(), max_bytes=size // 2) is None


def test_a_strict_replay_stops_at_the_first_bad_record(recording: str, tmp_path: Path) -> None:
    """It reads one record after another, however large the file is."""
    with open(recording, "ab") as file:
        file.write(b"{broken\n")

    strict = replay_of([recording], tmp_path / "out", in_ranges(100), strict=True)
    with pytest.raises(StrictError):
        run(strict, RecordedProgress())


def test_a_file_without_records_has_an_empty_report(tmp_path: Path) -> None:
    """A large file of blank lines is indexed, and nothing is in its report."""
    path = tmp_path / "blank.jsonl"
    path.write_bytes(b"\n" * 50)
    whole, out = tmp_path / "whole", tmp_path / "out"
    run(replay_of([str(path)], whole, AT_ONCE), RecordedProgress())
    run(replay_of([str(path)], out, in_ranges(20)), RecordedProgress())

    assert files_of(out) == files_of(whole)


def test_an_empty_file_has_no_ranges(tmp_path: Path, recording: str) -> None:
    """It does not keep others from being read in ranges."""
    empty = tmp_path / "empty.jsonl"
    empty.touch()

    paths = [part.path for part in ranges_of([str(empty), recording, str(empty)], 1 << 30)]
    assert paths == [recording]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("events.jsonl.zst", b'{"type": "forget"}\n'),
        ("events", gzip.compress(b'{"type": "forget"}\n', mtime=0)),
        ("events.parquet", b"PAR1"),
        ("traces", bytes([0, 0, 0, 6, 10, 4, 18, 2, 18, 0])),
        ("traces", b'{\n  "resourceSpans": []\n}\n'),
        ("logs", b'{"resourceLogs": []}\n'),
    ],
)
def test_files_of_other_kinds_are_not_read_in_ranges(
    name: str, content: bytes, tmp_path: Path, recording: str
) -> None:
    """Packed files, and those with a payload instead of lines, are read from their beginning."""
    path = tmp_path / name
    path.write_bytes(content)

    assert ranges_of([recording, str(path)], 1_000) == []


@pytest.mark.parametrize("path", ["-", "/proc/version", "/dev/null", "missing.jsonl"])
def test_what_has_no_size_is_not_read_in_ranges(path: str) -> None:
    """Standard input, devices, files of a system that tells no sizes, and missing ones."""
    assert ranges_of([path], 1_000) == []


def test_a_pipe_is_not_opened_to_look_at_it(tmp_path: Path) -> None:
    """That would wait for a writer, and leave it without a reader."""
    os.mkfifo(tmp_path / "pipe")

    assert ranges_of([str(tmp_path / "pipe")], 1_000) == []
