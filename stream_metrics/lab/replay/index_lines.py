"""Index a range of a plain file: the places of its records, by the files of a spool."""

from __future__ import annotations

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.otlp.payloads import is_payload, other_signal
from stream_metrics.lab.replay.spool import (
    SHARDS,
    IndexedLines,
    SpooledPlace,
    entry,
    spool_key,
)
from stream_metrics.lab.sources.files import (
    EVENT,
    FileRange,
    InputError,
    is_blank,
    parse_line,
    range_lines,
)


def index_lines(part: FileRange, source: int, limits: Limits) -> IndexedLines | None:
    """The places of a range's records; ``source`` is its index in the spool.

    None if the file must be read from its first line: it has telemetry, of which the traces are
    joined first, or a line that cannot be read.
    """
    entries, held = [bytearray() for _ in range(SHARDS)], [0] * SHARDS
    lines = records = 0
    try:
        for start, line in range_lines(part):
            lines += 1
            if is_blank(line):
                continue
            record = Record(line) if line.startswith(EVENT) else parse_line(line)
            if _is_telemetry(record.value):
                return None
            records += 1
            key = spool_key(record, lines, limits)
            shard = key.shard % SHARDS
            entries[shard] += entry(SpooledPlace(source, lines, key.part, start, len(line)))
            held[shard] += len(line)
    except InputError:
        return None
    return IndexedLines(lines, records, [bytes(one) for one in entries], held)


def _is_telemetry(value: bytes | None) -> bool:
    if value is None or value.startswith(EVENT):  # so begin most events
        return False
    return is_payload(value) or other_signal(value) is not None
