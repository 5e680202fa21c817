"""One report of many parts: rows and buckets in order, counts and sums added up."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from stream_metrics.adapters.reports import TURNS, bucket_line, write_lines
from stream_metrics.engine.history import History
from stream_metrics.engine.windows import Sums, add
from stream_metrics.evaluation.generation import Generation
from stream_metrics.worker.report import Figures, Report

FAN_IN: Final = 256
BUFFER_BYTES: Final = 64 << 10

Bucket = tuple[int, str, Sums]
"""Number, agent and sums."""

_ROW: Final = msgspec.json.Decoder(Figures)
_Row = tuple[str, int, int, Figures, bytes]


class _TurnPlace(msgspec.Struct, gc=False, frozen=True):
    """Where a row of an answered turn belongs."""

    conversation_id: str
    turn: int


_TURN: Final = msgspec.json.Decoder(_TurnPlace)
_Turn = tuple[str, int, bytes]


class BadRows(Exception):
    """Files of a replay that cannot be merged; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a part has found: rows, buckets and answered turns, each in order.

    ``name`` is what errors call it.
    """

    rows: Path
    buckets: Path
    turns: Path
    name: str

    @classmethod
    def beside(cls, folder: Path, stem: str, name: str) -> Self:
        """The three files of a folder whose names begin with ``stem``."""
        rows, buckets, turns = (
            folder / f"{stem}.{what}.jsonl" for what in ("rows", "buckets", "turns")
        )
        return cls(rows, buckets, turns, name)


@contextmanager
def few(sources: Sequence[Found], history: History, folder: Path) -> Iterator[list[Found]]:
    """The sources, or as few that hold the same as there may be open files.

    ``history`` tells of what kind the buckets are.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".merging-") as place:
        left = list(sources)
        while len(left) > FAN_IN:
            some, left = left[:FAN_IN], left[FAN_IN:]
            whole = Found.beside(Path(place), str(len(left)), "the parts")
            write_lines(whole.rows, merged_rows(some, None))
            write_lines(whole.buckets, bucket_lines(merged_buckets(some), history))
            write_lines(whole.turns, merged_turns(some))
            left.append(whole)
        yield left


def merged_rows(sources: Sequence[Found], report: Report | None) -> Iterator[str]:
    """The lines of all rows by conversation, then turn; ``report`` is given each row.

    Raises ``BadRows`` where a conversation is in two sources, or a line is no row.
    """
    last: tuple[str, int] | None = None
    streams = [_rows(source.rows, at) for at, source in enumerate(sources)]
    for conversation_id, _, source, figures, line in heapq.merge(*streams, key=_place_of_row):
        if last is not None and last[0] == conversation_id and last[1] != source:
            raise BadRows(
                f"conversation {conversation_id!r} has rows in {sources[last[1]].name} and in "
                f"{sources[source].name}; parts of one replay have no conversation in common"
            )
        last = (conversation_id, source)
        if report is not None:
            report.add(figures)
        yield line.decode()


def taken(lines: Iterable[str], report: Report) -> Iterator[str]:
    """Lines that are in order already; ``report`` is given each row."""
    for line in lines:
        report.add(_ROW.decode(line))
        yield line


def merged_turns(sources: Sequence[Found]) -> Iterator[str]:
    """The lines of all answered turns by conversation, then turn; raises ``BadRows``."""
    streams = [_turns(source.turns) for source in sources]
    for _, _, line in heapq.merge(*streams, key=_place_of_turn):
        yield line.decode()


def scored_turns(lines: Iterable[str], generation: Generation) -> Iterator[str]:
    """Lines of answered turns; ``generation`` is given each.

    Raises ``BadRows`` for a line that is no row.
    """
    for number, line in enumerate(lines, 1):
        try:
            generation.add(msgspec.json.decode(line))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRows(f"{TURNS}, line {number}: no row of a replay: {error}") from error
        yield line


def merged_buckets(sources: Sequence[Found]) -> Iterator[Bucket]:
    """The buckets of all sources in order, added up; raises ``BadRows``."""
    streams = [_buckets(source.buckets) for source in sources]
    for (number, agent), same in groupby(heapq.merge(*streams, key=_place), key=_place):
        total: Sums = {}
        for _, _, sums in same:
            add(total, sums, 1)
        if total:
            yield number, agent, total


def bucket_lines(
    buckets: Iterable[Bucket],
    history: History,
    take: Callable[[int, str, Sums], None] | None = None,
) -> Iterator[str]:
    """The lines of ``buckets.jsonl``; ``take`` is given each bucket."""
    yield bucket_line(history.header())
    for number, agent, sums in buckets:
        if take is not None:
            take(number, agent, sums)
        ordered = dict(sorted(sums.items()))
        yield bucket_line({"bucket": number, history.dimension: agent, "sums": ordered})


def _place_of_row(row: _Row) -> tuple[str, int, int]:
    return row[:3]


def _rows(path: Path, at: int) -> Iterator[_Row]:
    last = ("", 0)
    for number, line in _lines(path):
        try:
            row = _ROW.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRows(f"{path}, line {number}: no row of a replay: {error}") from error
        place = (row.conversation_id, row.turn)
        if place <= last:
            raise BadRows(f"{path}, line {number}: rows are not in their order")
        last = place
        yield row.conversation_id, row.turn, at, row, line


def _place_of_turn(turn: _Turn) -> tuple[str, int]:
    return turn[:2]


def _turns(path: Path) -> Iterator[_Turn]:
    last = ("", 0)
    for number, line in _lines(path):
        try:
            place = _TURN.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRows(f"{path}, line {number}: no row of a replay: {error}") from error
        if (place.conversation_id, place.turn) <= last:
            raise BadRows(f"{path}, line {number}: rows are not in their order")
        last = (place.conversation_id, place.turn)
        yield *last, line


def _place(bucket: Bucket) -> tuple[int, str]:
    return bucket[:2]


def _buckets(path: Path) -> Iterator[Bucket]:
    dimension = "agent"
    for number, line in _lines(path):
        try:
            content: Any = msgspec.json.decode(line)
            if number == 1:
                dimension = content["dimension"]
            else:
                yield content["bucket"], content[dimension], content["sums"]
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadRows(f"{path}, line {number}: no line of a replay's buckets") from error


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        yield from enumerate(file, 1)
