"""Rows as Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from stream_metrics.lab.reports.files import PARQUET
from stream_metrics.lab.reports.row_parquet import write_row_parquet
from tests.replays import AT_ONCE, replayed, traffic


def plain(value: Any) -> Any:
    """A row of Parquet in the form of JSON, with pairs as maps."""
    value["duplicates_of"] = dict(value["duplicates_of"])
    value["routing"]["routes"] = dict(value["routing"]["routes"])
    return value


@pytest.mark.parametrize("turn_scope", ["last", "all"])
def test_parquet_holds_the_rows(turn_scope: str, tmp_path: Path) -> None:
    """Parquet has every column of every row, with the names and in the order of the lines."""
    lines = replayed(traffic(), tmp_path, AT_ONCE, turn_scope=turn_scope)["conversations.jsonl"]

    write_row_parquet(tmp_path)

    table = pyarrow.parquet.read_table(tmp_path / PARQUET)
    found = [json.dumps(plain(row)) for row in table.to_pylist()]
    assert found == [json.dumps(json.loads(line)) for line in lines.splitlines()]


def test_no_rows_make_a_file_without_rows(tmp_path: Path) -> None:
    """The file has the columns nevertheless."""
    replayed([], tmp_path, AT_ONCE)

    write_row_parquet(tmp_path)

    table = pyarrow.parquet.read_table(tmp_path / PARQUET)
    assert (table.num_rows, table.column_names[:2]) == (0, ["conversation_id", "turn"])
