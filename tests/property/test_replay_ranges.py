"""Plain files are indexed in ranges, which has no effect on what a replay writes."""

from __future__ import annotations

import codecs
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.index_lines import index_lines
from stream_metrics.lab.replay.run import Execution, ReplaySource, ReplayTask, run
from stream_metrics.lab.sources.files import (
    FileRange,
    InputError,
    file_ranges,
    numbered_records,
    range_lines,
    record_line,
)
from stream_metrics.lab.sources.place import LocatedRecord
from tests.helpers import examples
from tests.property.test_replay import inputs
from tests.replays import AT_ONCE, RecordedProgress, files_of, task, traffic

TRACES = b'{"resourceSpans": []}\n'
ENDS = [b"\n", b"\r\n", b"\n\n", b"\n \t\r\n"]


@st.composite
def recordings(draw: st.DrawFn) -> bytes:
    """A file of events and recorded records, among them blank lines and bad ones."""
    text = draw(st.sampled_from([b"", codecs.BOM_UTF8, b"\n"]))
    for key, value, timestamp_ms in draw(inputs()):
        record = Record(value, key, timestamp_ms, "searches", 1, 7)
        line = draw(st.sampled_from([value.replace(b"\n", b" "), record_line(record).rstrip()]))
        text += line + draw(st.sampled_from(ENDS))
    return text.rstrip(b"\n") if draw(st.booleans()) else text


def replay_of(
    paths: Sequence[str], out: Path, scale: Execution, files: Sequence[str]
) -> ReplayTask:
    """A replay of files, of which those in ``files`` may be read in ranges."""

    def located() -> Generator[LocatedRecord, None, None]:
        for path in paths:
            for number, record in numbered_records(path, places=True):
                yield path, number, record

    source = ReplaySource(["test"], ("test",), located, files)
    return replace(task([], out, scale), source=source)


def in_ranges(range_bytes: int, processes: int = 1) -> Execution:
    """An execution that indexes any plain file."""
    return Execution(processes, small_bytes=0, range_bytes=range_bytes)


@settings(max_examples=examples(60))
@given(st.lists(recordings(), min_size=1, max_size=2), st.integers(1, 3_000))
def test_a_replay_in_ranges_writes_what_one_in_memory_writes(
    contents: list[bytes], range_bytes: int
) -> None:
    """All files are the same bytes, with the same lines of bad records, for ranges of any size."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, f"{at}.jsonl")) for at in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            Path(path).write_bytes(content)
        outs = [Path(folder, "whole"), Path(folder, "ranges")]
        run(replay_of(paths, outs[0], AT_ONCE, ()), RecordedProgress())
        run(replay_of(paths, outs[1], in_ranges(range_bytes), paths), RecordedProgress())

        assert files_of(outs[1]) == files_of(outs[0])


@settings(max_examples=examples(200))
@given(st.binary(max_size=60), st.integers(1, 70))
def test_each_line_is_in_one_range(content: bytes, range_bytes: int) -> None:
    """The ranges of a file have its lines in order, each once, wherever it is divided."""
    lines, start = [], len(codecs.BOM_UTF8) if content.startswith(codecs.BOM_UTF8) else 0
    for line in content[start:].split(b"\n"):
        if start < len(content):
            lines.append((start, line.rstrip(b"\r\n")))
        start += len(line) + 1
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        parts = file_ranges([file.name], range_bytes)

        assert [line for part in parts for line in range_lines(part)] == lines


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
    lines = (record.value or b"" for record in traffic())
    path.write_bytes(b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_index_continues(recording: str, processes: int, tmp_path: Path) -> None:
    """A replay that stopped while its input was indexed continues after the last whole range."""
    whole, out, scale = tmp_path / "whole", tmp_path / "out", in_ranges(100_000, processes)
    run(replay_of([recording], whole, AT_ONCE, ()), RecordedProgress())
    with pytest.raises(Interrupted):
        run(replay_of([recording], out, scale, [recording]), InterruptedProgress(1))

    progress = RecordedProgress()
    run(replay_of([recording], out, replace(scale, range_bytes=7_000), [recording]), progress)

    assert progress.notes[0].startswith("continuing after ")
    assert files_of(out) == files_of(whole)


def test_a_file_with_traces_is_read_from_its_first_line(recording: str, tmp_path: Path) -> None:
    """Traces may be anywhere in a file, and all of them are needed before the first is used."""
    with open(recording, "ab") as file:
        file.write(TRACES)
    whole, out = tmp_path / "whole", tmp_path / "out"
    run(replay_of([recording], whole, AT_ONCE, ()), RecordedProgress())
    run(replay_of([recording], out, in_ranges(100_000), [recording]), RecordedProgress())

    last = file_ranges([recording], 100_000)[-1]
    assert index_lines(last, 0, Limits()) is None
    assert files_of(out) == files_of(whole)


def test_a_file_that_cannot_be_read_is_read_from_its_first_line(tmp_path: Path) -> None:
    """Reading it so reports the error and where it is."""
    missing = str(tmp_path / "missing.jsonl")

    with pytest.raises(InputError, match=r"missing\.jsonl"):
        list(range_lines(FileRange(missing, 0, 10)))
    assert index_lines(FileRange(missing, 0, 10), 0, Limits()) is None


def test_a_file_without_records_has_an_empty_report(tmp_path: Path) -> None:
    """A large file of blank lines is indexed, and nothing is in its report."""
    path = tmp_path / "blank.jsonl"
    path.write_bytes(b"\n" * 50)
    whole, out = tmp_path / "whole", tmp_path / "out"
    run(replay_of([str(path)], whole, AT_ONCE, ()), RecordedProgress())
    run(replay_of([str(path)], out, in_ranges(20), [str(path)]), RecordedProgress())

    assert files_of(out) == files_of(whole)
