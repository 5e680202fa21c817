"""The rows of a report as Parquet, for data frames and databases.

The columns are those of the published row (``engine/published.py``): iterations are a list of
structs, objects with variable keys are maps. pyarrow is the extra ``parquet``.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel

from stream_metrics.core.engine.published import Row
from stream_metrics.lab.atomic_files import replacing
from stream_metrics.lab.reports.files import PARQUET, ROWS
from stream_metrics.lab.sources.parquet import load_pyarrow

GROUP_ROWS: Final = 5_000
LABELLED_BY: Final = "labelled_by"
_BY_MODEL: Final = b'"labelled_by":{'  # an id in a line has its quotes escaped


def write_row_parquet(directory: Path) -> None:
    """Write ``conversations.parquet`` from ``conversations.jsonl`` in the same directory.

    The column ``labelled_by`` is there if a model's label counts in some row. One row group is in
    memory at a time. Raises ``ParquetError`` without pyarrow.
    """
    arrow, parquet = load_pyarrow()
    schema = row_schema()
    with (directory / ROWS).open("rb") as lines:
        if not any(_BY_MODEL in line for line in lines):
            schema = schema.remove(schema.get_field_index(LABELLED_BY))
    with (
        (directory / ROWS).open("rb") as lines,
        replacing(directory / PARQUET) as path,
        parquet.ParquetWriter(path, schema, compression="zstd") as writer,
    ):
        while group := list(islice(lines, GROUP_ROWS)):
            rows = [_with_pairs(msgspec.json.decode(line)) for line in group]
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))


def row_schema() -> Any:
    """The Arrow schema of rows; raises ``ParquetError`` without pyarrow."""
    arrow, _ = load_pyarrow()
    return arrow.schema(_fields(arrow, Row))


def _fields(arrow: Any, model: type[BaseModel]) -> list[Any]:
    return [
        arrow.field(name, _type(arrow, field.annotation))
        for name, field in model.model_fields.items()
    ]


def _type(arrow: Any, kind: Any) -> Any:
    """The column type of an annotation of the published row."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        (kind,) = (one for one in arguments if one is not type(None))
        return _type(arrow, kind)
    if origin is list:
        return arrow.list_(_type(arrow, arguments[0]))
    if origin is dict:
        return arrow.map_(arrow.string(), _type(arrow, arguments[1]))
    if origin is Literal:
        return arrow.string()
    if hasattr(kind, "__metadata__"):
        return _type(arrow, arguments[0])
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return arrow.struct(_fields(arrow, kind))
    types = {str: arrow.string, bool: arrow.bool_, int: arrow.int64, float: arrow.float64}
    return types[kind]()


def _with_pairs(row: dict[str, Any]) -> dict[str, Any]:
    """Convert the row's maps to pairs, as pyarrow requires."""
    row["duplicates_of"] = list(row["duplicates_of"].items())
    row["routing"]["routes"] = list(row["routing"]["routes"].items())
    if LABELLED_BY in row:
        row[LABELLED_BY] = list(row[LABELLED_BY].items())
    return row
