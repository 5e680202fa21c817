"""Index a range of a plain file: the places of its records, by the files of a spool."""

from __future__ import annotations

from typing import Final

from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import is_payload
from stream_metrics.lab.replay.spool import (
    SHARDS,
    IndexedLines,
    SpooledPlace,
    entry,
    spool_key,
)
from stream_metrics.lab.sources.files import (
    FileRange,
    InputError,
    is_blank,
    parse_line,
    range_lines,
)

MAX_BYTES: Final = 32 << 20
"""The bytes of an index; only lines much shorter than events have more."""


def index_lines(
    part: FileRange, source: int, limits: Limits, max_bytes: int = MAX_BYTES
) -> IndexedLines | None:
    """The places of a range's records; ``source`` is the number of the range in the spool.

    None if the input must be read from its first line: a line has traces (which are joined first)
    or cannot be read, or the index would be larger than ``max_bytes``.
    """
    entries, held = [bytearray() for _ in range(SHARDS)], [0] * SHARDS
    lines = records = size = 0
    try:
        for start, line in range_lines(part):
            lines += 1
            if is_blank(line):
                continue
            record = parse_line(line)
            if size > max_bytes or is_payload(record.value):
                return None
            records += 1
            key = spool_key(record, start, limits)
            shard = key.shard % SHARDS
            data = entry(SpooledPlace(source, lines, key.part, start, len(line)))
            entries[shard] += data
            held[shard] += len(line)
            size += len(data)
    except InputError:
        return None
    return IndexedLines(lines, records, entries, held)
