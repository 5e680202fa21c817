"""Index a range of a plain file: the places of its records, by the files of a spool."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core import compiled
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import is_payload
from stream_metrics.lab.replay.spool import PLACE, SHARDS, IndexedLines, spool_key
from stream_metrics.lab.sources.files import (
    FileRange,
    InputError,
    is_blank,
    parse_line,
    range_blocks,
)

MAX_BYTES: Final = 32 << 20
"""The bytes of an index; only lines much shorter than events have more."""

_PLACES: Final = np.dtype(
    [("source", "<u4"), ("number", "<u8"), ("part", "<u4"), ("start", "<u8"), ("length", "<u4")]
)
"""An array of places, of which each is as ``PLACE`` packs it."""
assert _PLACES.itemsize == PLACE.size

_KEYS: Final = np.dtype([("shard", ">u4"), ("part", ">u4")])


class KeyedLines(NamedTuple):
    """The lines of a block that are not blank.

    Attributes:
        lines: How many the block has, blank ones too.
        starts, lengths: Their places in the block, without the ends of the lines.
        numbers: Their numbers in the block, from 1.
        keys: Their ``SpoolKey``.
        known: Whether the key has been found.
    """

    lines: int
    starts: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    numbers: NDArray[np.uint32]
    keys: NDArray[Any]
    known: NDArray[np.bool_]


def keyed_lines(block: bytes, limits: Limits) -> KeyedLines:
    """The lines of a block, with the keys that can be found quickly."""
    found = compiled.keyed_lines(block, limits.record_bytes)
    if found is None:
        return plain_lines(block)
    lines, starts, lengths, numbers, keys, known = found
    return KeyedLines(
        lines,
        np.frombuffer(starts, "<u4"),
        np.frombuffer(lengths, "<u4"),
        np.frombuffer(numbers, "<u4"),
        np.frombuffer(keys, _KEYS).copy(),
        np.frombuffer(known, np.bool_),
    )


def plain_lines(block: bytes) -> KeyedLines:
    """The lines of a block, without any key."""
    sent = block.split(b"\n")
    if not sent[-1]:
        sent.pop()
    found, start = [], 0
    for number, line in enumerate(sent, 1):
        if not is_blank(line):
            found.append((start, len(line.rstrip(b"\r")), number))
        start += len(line) + 1
    starts, lengths, numbers = np.array(found, "<u4").reshape(-1, 3).T
    keys, known = np.zeros(len(found), _KEYS), np.zeros(len(found), np.bool_)
    return KeyedLines(len(sent), starts, lengths, numbers, keys, known)


def index_lines(
    part: FileRange, source: int, limits: Limits, max_bytes: int = MAX_BYTES
) -> IndexedLines | None:
    """The places of a range's records; ``source`` is the number of the range in the spool.

    None if the input must be read from its first line: a line has traces (which are joined first)
    or cannot be read, or the index would be larger than ``max_bytes``.
    """
    blocks, shards = [np.zeros(0, _PLACES)], [np.zeros(0, np.uint32)]
    lines = size = 0
    try:
        for start, block in range_blocks(part):
            found = keyed_lines(block, limits)
            if size > max_bytes or not _find_keys(found, start, block, limits):
                return None
            places = np.empty(len(found.keys), _PLACES)
            places["source"], places["number"] = source, found.numbers.astype("<u8") + lines
            places["part"] = found.keys["part"]
            places["start"], places["length"] = found.starts.astype("<u8") + start, found.lengths
            blocks.append(places)
            shards.append(found.keys["shard"] % SHARDS)
            lines, size = lines + found.lines, size + places.nbytes
    except InputError:
        return None
    return _by_shard(lines, np.concatenate(blocks), np.concatenate(shards))


def _find_keys(found: KeyedLines, start: int, block: bytes, limits: Limits) -> bool:
    """Find the keys that are not known; False at a line with traces."""
    left = np.flatnonzero(~found.known)
    keys = []
    places = (found.starts[left].tolist(), found.lengths[left].tolist())
    for begin, length in zip(*places, strict=True):
        record = parse_line(block[begin : begin + length])
        if is_payload(record.value):
            return False
        keys.append(spool_key(record, start + begin, limits))
    found.keys[left] = np.array(keys, _KEYS)
    return True


def _by_shard(lines: int, places: NDArray[Any], shards: NDArray[np.integer[Any]]) -> IndexedLines:
    order = np.argsort(shards, kind="stable")
    counts = np.bincount(shards, minlength=SHARDS)
    ends = np.cumsum(counts)
    parts = [places[order[end - count : end]] for end, count in zip(ends, counts, strict=True)]
    return IndexedLines(
        lines,
        len(places),
        [part.tobytes() for part in parts],
        [int(part["length"].sum()) for part in parts],
    )
