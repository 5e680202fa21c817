"""Rows as Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from msgspec import structs

from stream_metrics.core.events.record import Record
from stream_metrics.lab.reports.files import PARQUET
from stream_metrics.lab.reports.row_parquet import write_row_parquet
from tests.replays import AT_ONCE, replayed, traffic


def plain(value: Any) -> Any:
    """A row of Parquet in the form of JSON, with pairs as maps."""
    value["duplicates_of"] = dict(value["duplicates_of"])
    value["routing"]["routes"] = dict(value["routing"]["routes"])
    if (by_source := value.pop("labelled_by", None)) is None:
        return value
    return {
        name: one
        for key, field in value.items()
        for name, one in [(key, field)] + [("labelled_by", dict(by_source))] * (key == "unlabelled")
    }


def with_models(records: list[Record]) -> list[Record]:
    """The records, with every second event of labels given by a model."""
    head = b'{"type":"relevance_labels",'
    return [
        structs.replace(one, value=(one.value or b"").replace(head, head + b'"source":"model",'))
        if number % 2
        else one
        for number, one in enumerate(records)
    ]


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("turn_scope", ["last", "all"])
def test_parquet_holds_the_rows(turn_scope: str, by_model: bool, tmp_path: Path) -> None:
    """Parquet has every column of every row, with the names and in the order of the lines; that of
    sources only if a model's label counts."""
    records = with_models(traffic()) if by_model else traffic()
    lines = replayed(records, tmp_path, AT_ONCE, turn_scope=turn_scope)["conversations.jsonl"]

    write_row_parquet(tmp_path)

    table = pyarrow.parquet.read_table(tmp_path / PARQUET)
    found = [json.dumps(plain(row)) for row in table.to_pylist()]
    assert found == [json.dumps(json.loads(line)) for line in lines.splitlines()]
    assert ("labelled_by" in table.column_names) == by_model


def test_no_rows_make_a_file_without_rows(tmp_path: Path) -> None:
    """The file has the columns nevertheless."""
    replayed([], tmp_path, AT_ONCE)

    write_row_parquet(tmp_path)

    table = pyarrow.parquet.read_table(tmp_path / PARQUET)
    assert (table.num_rows, table.column_names[:2]) == (0, ["conversation_id", "turn"])
