"""Index a range of a plain file: the places of its records, by the files of a spool."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core import compiled
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.telemetry.otlp.payloads import is_payload
from stream_metrics.lab.replay.spool import PLACE, SHARDS, IndexedLines, spool_key
from stream_metrics.lab.sources.files import (
    FileRange,
    LineTooLong,
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
    """The lines of a block, with the keys that the kernel finds; it leaves others to Python."""
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
    or is too long, or the index would be larger than ``max_bytes``. Raises ``InputError``.
    """
    places_of, held = [bytearray() for _ in range(SHARDS)], np.zeros(SHARDS, np.int64)
    lines = records = 0
    try:
        for start, block in range_blocks(part):
            found = keyed_lines(block, limits)
            records += len(found.keys)
            if records * PLACE.size > max_bytes or not _find_keys(found, start, block, limits):
                return None
            shards = found.keys["shard"] % SHARDS
            order = np.argsort(shards, kind="stable")
            places = np.empty(len(order), _PLACES)
            places["source"] = source
            places["number"] = found.numbers[order].astype("<u8") + lines
            places["part"] = found.keys["part"][order]
            places["start"] = found.starts[order].astype("<u8") + start
            places["length"] = found.lengths[order]
            ends = np.cumsum(np.bincount(shards, minlength=SHARDS)).tolist()
            for shard, (begin, end) in enumerate(pairwise([0, *ends])):
                places_of[shard] += places[begin:end].tobytes()
            np.add.at(held, shards, found.lengths)
            lines += found.lines
    except LineTooLong:  # reading from the first line tells its number
        return None
    return IndexedLines(lines, records, [bytes(one) for one in places_of], held.tolist())


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
