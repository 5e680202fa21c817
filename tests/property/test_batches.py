"""Pieces of Arrow batches, as Spark gives them to the engine, make the report of one replay."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.batches import PieceReceiver, computed_batches, keyed_batches
from stream_metrics.lab.replay.pieces import Job
from stream_metrics.lab.replay.pool import process_pool
from stream_metrics.lab.replay.report_files import ReplayScope
from stream_metrics.lab.replay.run import write_report_of_pieces
from stream_metrics.lab.sources.parquet import COLUMNS
from tests.helpers import examples
from tests.replays import AT_ONCE, files_of, replayed, task
from tests.strategies import KeyedRecord, arrivals, streams

BROKEN = [(b"c1", b"{", None), (b"c1", b'{"type": "unheard of"}', 7), (b"", b"\xff", None)]
ROWS_OF_A_BATCH = 3


@st.composite
def topics(draw: st.DrawFn) -> list[Record]:
    """The records of a stream in partitions of a topic, some of them broken."""
    stream: list[KeyedRecord] = draw(streams())
    arrived = [record for batch in draw(arrivals(stream)) for record in batch]
    for broken in draw(st.lists(st.sampled_from(BROKEN), max_size=3)):
        arrived.insert(draw(st.integers(0, len(arrived))), broken)
    return [
        Record(value, key, stamp, "events", 2 - offset % 3, offset)
        for offset, (key, value, stamp) in enumerate(arrived)
    ]


def batches_of(table: Any) -> list[Any]:
    """The rows in small batches."""
    batches: list[Any] = table.to_batches(max_chunksize=ROWS_OF_A_BATCH)
    return batches


def divided(records: list[Record], partitions: int) -> list[list[Any]]:
    """The keyed records in the partitions that have some, each sorted by conversation and place."""
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value")
    columns = {
        column: [getattr(record, name) for record in records]
        for column, name in zip(COLUMNS, names, strict=True)
    }
    kinds = ("string", "int32", "int64", "int64", "binary", "binary")
    schema = pyarrow.schema(
        [(name, getattr(pyarrow, kind)()) for name, kind in zip(COLUMNS, kinds, strict=True)]
    )
    table = pyarrow.table(columns, schema=schema)
    keyed = list(keyed_batches(batches_of(table), Limits()))
    found: list[list[dict[str, Any]]] = [[] for _ in range(partitions)]
    for row in (row for batch in keyed for row in batch.to_pylist()):
        found[hash(row["id"] or row["offset"]) % partitions].append(row)
    return [
        batches_of(
            pyarrow.Table.from_pylist(
                sorted(rows, key=lambda row: (row["id"] or "", row["number"], row["offset"])),
                schema=keyed[0].schema,
            )
        )
        for rows in found
        if rows
    ]


@pytest.mark.slow
@settings(max_examples=examples(25))
@example([], 1, 1)
@given(topics(), st.integers(1, 4), st.sampled_from([1, 2_000, 1 << 30]))
def test_partitions_and_pieces_do_not_change_the_files(
    records: list[Record], partitions: int, piece_bytes: int
) -> None:
    """In any number of partitions, and in pieces of any size, all files are the same."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = replayed(records, folder / "whole", AT_ONCE)
        out, work = task([], folder / "out", AT_ONCE), folder / "work"
        work.mkdir()
        received = PieceReceiver(work)
        for partition in divided(records, partitions):
            for batch in computed_batches(partition, out.options, piece_bytes):
                for row in batch.to_pylist():
                    received.take(row["file"], row["data"])
        scope = ReplayScope.of(out.source.names, out.config, out.options)
        with process_pool(1) as pool:
            job = Job(work, out.options, "")
            write_report_of_pieces(out.out, scope, job, received.pieces, (), pool)

        assert files_of(folder / "out") == whole
