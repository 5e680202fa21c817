"""Bad records in the worker: each becomes a dead letter and changes nothing else."""

from __future__ import annotations

from functools import cache

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.export import export_state
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_bad_input import OK, TABLE

BAD = [row for row in TABLE if row.expected != OK and row.expected != "missing_key"]


@cache
def good() -> list[tuple[bytes | None, bytes | None, int | None]]:
    """Keys, values and timestamps of valid records."""
    traffic = generate(TrafficProfile(seed=9, conversations=5, invalid=0.0))
    return [(record.key, record.value, record.timestamp_ms) for record in traffic]


async def state_after(
    sent: list[tuple[bytes | None, bytes | None, int | None]],
) -> tuple[list[str], dict[str, object], MemoryDeadLetters]:
    """Rows, windows and dead letters after the worker has read these records."""
    store, letters = MemoryStore(), MemoryDeadLetters()
    partition = await opened(store, letters, cache_results=10_000)
    records = [
        Record(value, key, timestamp_ms, TOPIC, 0, offset)
        for offset, (key, value, timestamp_ms) in enumerate(sent)
    ]
    await partition.process(records, once)
    export = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    now_us = 1000 * max(timestamp_ms or 0 for _, _, timestamp_ms in good())
    rows = [canonical(row) for row in export.rows]
    return rows, export.windows_document(now_us), letters


async def test_bad_records_change_nothing_else() -> None:
    """Each bad record of the table, sent between good ones, becomes a dead letter."""
    half = len(good()) // 2
    bad = [(b"c" if row.key is None else row.key, row.value, row.timestamp_ms) for row in BAD]

    rows, windows, letters = await state_after([*good()[:half], *bad, *good()[half:]])

    clean_rows, clean_windows, none = await state_after([*good()])
    assert len(BAD) >= 40
    assert [letter.reason for letter in letters.letters] == [row.expected for row in BAD]
    assert [(letter.record.key, letter.record.value) for letter in letters.letters] == [
        (key, value) for key, value, _ in bad
    ]
    assert rows == clean_rows
    assert windows == clean_windows
    assert not none.letters
