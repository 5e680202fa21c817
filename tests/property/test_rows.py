"""Rows match their published schema for any events."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from stream_metrics.core.contract import row_schema
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.published import Row
from stream_metrics.core.engine.row import canonical, canonical_line
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.live.memory import MemoryStore, MemoryTopic
from stream_metrics.live.readers.export import export_state
from tests.property.test_output import Worker, World, any_events, logs_of

# Readers ignore unknown fields; here only published fields are allowed.
CLOSED = {
    **row_schema(),
    "$defs": {
        name: {**definition, "additionalProperties": False}
        for name, definition in row_schema()["$defs"].items()
    },
}
SCHEMA = Draft202012Validator(CLOSED)


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1.0, 1.0).map(lambda value: value**9)
    | st.text()
    | st.from_regex(r"[0-9.e-]{1,6}", fullmatch=True)
)


@given(
    st.dictionaries(st.text(), _VALUES | st.lists(_VALUES) | st.dictionaries(st.text(), _VALUES))
    | st.lists(_VALUES)
)
def test_the_fast_encoder_writes_canonical_lines(row: object) -> None:
    """For any content of a row, the fast encoder and Python's give the same line."""
    assert canonical_line(row) == canonical(row) + "\n"


@pytest.mark.slow
@given(
    records=any_events(),
    sizes=st.lists(st.integers(1, 5), max_size=6),
    turn_scope=st.sampled_from(["last", "all"]),
)
def test_rows_match_their_schema(
    records: list[tuple[bytes, bytes]], sizes: list[int], turn_scope: str
) -> None:
    """For any events, each row of an export and each value on the output topic is valid by the JSON
    Schema, has no other fields, and has them in the published order."""
    world = World(logs_of(records, 1), MemoryStore(), MemoryTopic(), turn_scope)
    asyncio.run(Worker(world, 100_000).finish(sizes))

    export = asyncio.run(export_state(world.store, EngineConfig(), DEFAULT_WINDOWS, turn_scope))
    sent = [message.value for message in world.topic.messages]
    values = [None if value is None else json.loads(value) for value in sent]
    for value in [*(json.loads(canonical(row)) for row in export.rows), *values]:
        assert [error.message for error in SCHEMA.iter_errors(value)] == []
    rows = [
        row for value in values for row in ([value] if isinstance(value, dict) else value or [])
    ]
    for row in [*export.rows, *rows]:
        absent = {"labelled_by"} - row.keys()
        assert list(row) == [name for name in Row.model_fields if name not in absent]
