"""Recordings: they are read as written, and errors are one line."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.events.record import MAX_TIMESTAMP_MS, Record
from stream_metrics.lab.sources.files import expand, parse_line, read_records
from stream_metrics.lab.sources.packing import open_packed, packing_of_name
from stream_metrics.lab.sources.parquet import GROUP_ROWS, READ_ROWS
from stream_metrics.lab.sources.recording import recording
from stream_metrics.lab.sources.unchanged import InputError
from tests.helpers import ran

NAMES = ("day.jsonl", "day.jsonl.gz", "day.jsonl.zst", "day.parquet")
RECORDS = [
    Record(b'{"type":"forget"}', b"c-1", 1_718_020_800_000, "searches", 3, 17),
    Record(None, None, None, "searches", 0, 0),
    Record(b"\xff\x00", b"\xfe", -1, "labels", 1, 2**40),
    Record(b"", b"", 0, "labels", 1, 2**40 + 1),
]


def write(path: Path, records: list[Record] = RECORDS) -> Path:
    """A recording at ``path``."""
    with recording(str(path)) as file:
        for record in records:
            file.write(record)
    return path


def read(path: Path | str) -> list[Record]:
    """All records of a recording."""
    return list(read_records([str(path)]))


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    """Any partition, time, key and value is preserved in every format."""
    assert read(write(tmp_path / name)) == RECORDS


@pytest.mark.parametrize("name", NAMES)
def test_the_same_records_give_the_same_file(tmp_path: Path, name: str) -> None:
    """A recording contains nothing about when or where it was written."""
    (tmp_path / "again").mkdir()

    assert write(tmp_path / name).read_bytes() == write(tmp_path / "again" / name).read_bytes()


@given(
    st.lists(
        st.builds(
            Record,
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=10),
            st.none() | st.integers(-1, MAX_TIMESTAMP_MS),
            st.text(st.characters(codec="ascii"), min_size=1, max_size=10),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**63 - 1),
        )
    )
)
def test_parquet_holds_every_record(tmp_path_factory: pytest.TempPathFactory, records: Any) -> None:
    """Bytes, nulls and the largest numbers come back as they were."""
    path = tmp_path_factory.mktemp("records") / "some.parquet"

    assert read(write(path, records)) == records


def test_parquet_is_written_in_row_groups(tmp_path: Path) -> None:
    """A long recording is never held as a whole."""
    records = [Record(b"{}", b"c", n, "t", 0, n) for n in range(GROUP_ROWS + READ_ROWS + 1)]
    path = write(tmp_path / "long.parquet", records)

    assert pq.ParquetFile(path).num_row_groups == 2
    assert read(path) == records


def test_a_recording_is_written_atomically(tmp_path: Path) -> None:
    """After an error the earlier file is unchanged, and no temporary file is left."""
    path = write(tmp_path / "day.jsonl")

    with pytest.raises(AttributeError), recording(str(path)) as file:
        file.write(None)  # type: ignore[arg-type]

    assert read(path) == RECORDS
    assert list(tmp_path.iterdir()) == [path]


def test_globs_give_their_files_in_the_order_of_names(tmp_path: Path) -> None:
    """Several files, compressed or not, are one input."""
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet"]
    for number, name in reversed(list(enumerate(names))):
        write(tmp_path / name, [Record(b"{}", b"c", 0, "t", 0, number)])
    (tmp_path / "folder").mkdir()

    found = list(read_records([str(tmp_path / "*")]))

    assert [record.offset for record in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_compression_of_standard_input_is_detected(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no name, so its first bytes decide."""
    data = write(tmp_path / name).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    assert read("-") == RECORDS


@pytest.mark.parametrize("name", NAMES[1:3])
def test_concatenated_compressed_files_are_read_as_one(tmp_path: Path, name: str) -> None:
    """They are several gzip or zstd files joined by ``cat``."""
    path = write(tmp_path / name)
    path.write_bytes(2 * path.read_bytes())

    assert read(path) == 2 * RECORDS


def table(**columns: Any) -> Any:
    """A recording of one record as Arrow, with changes; None leaves a column out."""
    usual = {
        "topic": pa.array(["t"]),
        "partition": pa.array([1], pa.int32()),
        "offset": pa.array([2], pa.int64()),
        "timestamp": pa.array([3], pa.timestamp("ms", tz="UTC")),
        "key": pa.array([b"c"]),
        "value": pa.array([b"{}"]),
    }
    return pa.table({n: c for n, c in {**usual, **columns}.items() if c is not None})


@pytest.mark.parametrize(
    "changes",
    [
        {"key": pa.array(["c"]), "value": pa.array(["{}"]).dictionary_encode()},
        {"key": pa.array([b"c"], pa.large_binary()), "value": pa.array(["{}"], pa.large_string())},
        {"timestamp": pa.array([3])},
        {"timestamp": pa.array([3_999], pa.timestamp("us", tz="Europe/Paris"))},
        {"partition": pa.array([1], pa.int64()), "offset": pa.array([2], pa.uint32())},
        {"headers": pa.array([["h"]])},
    ],
)
def test_columns_of_other_writers_are_accepted(tmp_path: Path, changes: Any) -> None:
    """They have text for bytes, milliseconds for times, other widths, or extra columns."""
    pq.write_table(table(**changes), tmp_path / "other.parquet")

    assert read(tmp_path / "other.parquet") == [Record(b"{}", b"c", 3, "t", 1, 2)]


def test_the_topic_is_optional(tmp_path: Path) -> None:
    """Copies of one topic often omit it."""
    pq.write_table(table(topic=None), tmp_path / "one.parquet")

    assert read(tmp_path / "one.parquet") == [Record(b"{}", b"c", 3, "", 1, 2)]


def cut(path: Path, share: float) -> Path:
    """The first part of a file."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def many(path: Path) -> Path:
    """A longer recording."""
    return write(path, [Record(b'{"n": %d}' % n, b"c", n, "t", 0, n) for n in range(5_000)])


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated.jsonl.gz": (lambda p: cut(many(p), 0.7), "the gzip data ends in the middle"),
    "truncated.jsonl.zst": (lambda p: cut(many(p), 0.7), "the zstd data ends in the middle"),
    "truncated.parquet": (lambda p: cut(many(p), 0.7), "incomplete, or not a Parquet file"),
    "empty.gz": (lambda p: cut(many(p), 0), "the gzip data ends in the middle"),
    "empty.zst": (lambda p: cut(many(p), 0), "the zstd data ends in the middle"),
    "empty.parquet": (lambda p: cut(many(p), 0), "incomplete, or not a Parquet file"),
    "text.gz": (lambda p: p.write_bytes(b"{}\n"), "damaged, or not a gzip file"),
    "text.zst": (lambda p: p.write_bytes(b"{}\n{}\n{}\n"), "damaged, or not a zstd file"),
    "text.parquet": (lambda p: p.write_bytes(b"{}\n"), "incomplete, or not a Parquet file"),
    "missing.parquet": (
        lambda p: pq.write_table(table(value=None, body=pa.array([b"{}"])), p),
        "value is missing. There are: topic, partition, offset, timestamp, key, body. Rename",
    ),
    "types.parquet": (
        lambda p: pq.write_table(table(offset=pa.array(["2"]), key=pa.array([1])), p),
        "offset is string, not whole numbers; key is int64, not bytes or text",
    ),
    "line.jsonl": (
        lambda p: p.write_bytes(b"x" * (65 << 20)),
        "line 1 is longer than 64 MiB",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """One message has the file, the problem and the remedy."""
    make, why = BROKEN[name]
    make(tmp_path / name)

    with pytest.raises(InputError) as found:
        read(tmp_path / name)

    message = str(found.value)
    assert message.startswith(str(tmp_path / name))
    assert why in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["truncated.jsonl.gz", "truncated.jsonl.zst", "missing.parquet"])
def test_a_replay_of_an_unreadable_file_writes_no_report(tmp_path: Path, name: str) -> None:
    """It exits with 2 and one line on standard error."""
    BROKEN[name][0](tmp_path / name)

    done = ran("replay", name, "--out", "out", folder=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_is_refused_as_a_source(tmp_path: Path) -> None:
    """The user has to say which of its files are meant."""
    with pytest.raises(InputError, match="a folder; give a file, a glob in quotes, or -"):
        expand([str(tmp_path)])


def test_an_inaccessible_source_is_named(tmp_path: Path) -> None:
    """The file system's error is one line, as for a folder without permission."""
    with pytest.raises(InputError, match=f"{'x' * 300}: File name too long"):
        expand([str(tmp_path / ("x" * 300))])


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_byte_order_mark_is_ignored(tmp_path: Path, name: str) -> None:
    """The file gives the same records as without it; a mark alone is no record."""
    mark, event = b"\xef\xbb\xbf", b'{"type":"forget"}'
    for stem, data in {"marked": event + b"\n" + event, "alone": b"\n"}.items():
        with (
            (tmp_path / f"{stem}-{name}").open("wb") as file,
            open_packed(file, packing_of_name(name)) as into,
        ):
            into.write(mark + data)

    assert read(tmp_path / f"marked-{name}") == [Record(event), Record(event)]
    assert read(tmp_path / f"alone-{name}") == []


def test_parquet_is_refused_on_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end has to be read first."""
    data = write(tmp_path / "day.parquet").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))

    with pytest.raises(InputError, match="give it as a file"):
        read("-")


def test_parquet_without_pyarrow_is_an_error_that_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other formats need nothing."""
    path = write(tmp_path / "day.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(InputError, match=r"run: pip install '\.\[parquet\]'"):
        read(path)


def test_a_line_that_is_not_a_record_counts_as_an_event() -> None:
    """The decoder decides about its content."""
    assert parse_line(b'{"offset": 1, "value": 2}').value == b'{"offset": 1, "value": 2}'


@pytest.mark.parametrize(
    "place",
    [
        '"topic": "t", "partition": 3, "offset": "x"',
        '"topic": "t", "partition": 3, "offset": 1.5',
        '"topic": "t", "partition": 3, "offset": -1',
        '"topic": "t", "partition": 3, "offset": 99999999999999999999',
        '"topic": "t", "partition": "3", "offset": 1',
        '"topic": 5, "partition": 3, "offset": 1',
    ],
)
def test_a_place_that_no_record_can_have_is_left_out(place: str) -> None:
    """The record is then named by its file and line."""
    record = parse_line(f'{{{place}, "value": "{{broken"}}'.encode())

    assert (record.value, record.topic, record.partition, record.offset) == (b"{broken", "", 0, 0)
