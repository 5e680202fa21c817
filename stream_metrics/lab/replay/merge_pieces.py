"""Merge the sorted rows, buckets, searches and turns of many pieces."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from stream_metrics.core.engine.windows import Sums, add
from stream_metrics.lab.evaluation.generation import Generation
from stream_metrics.lab.history import History
from stream_metrics.lab.replay.report import ROW_FIGURES, Report, RowCounts
from stream_metrics.lab.replay.score_texts import LineKind
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.reports.files import (
    JSON_ERRORS,
    QUERIES,
    TURNS,
    bucket_line,
    write_lines,
    write_lines_to,
)

FAN_IN: Final = 256
MERGING: Final = ".merging"
"""The folder of intermediate files while many sources are merged."""
BUFFER_BYTES: Final = 64 << 10

Bucket = tuple[int, str, Sums]
"""A bucket's number, agent and sums."""

_ROW: Final = msgspec.json.Decoder(ROW_FIGURES)
_Row = tuple[str, int, int, RowCounts, str]


class _TurnKey(msgspec.Struct, gc=False, frozen=True):
    """The conversation and turn of a row."""

    conversation_id: str
    turn: int


_TURN_KEY: Final = msgspec.json.Decoder(_TurnKey)
_WITHOUT: Final = msgspec.json.Decoder(list[int])
_DECODE: Final = msgspec.json.Decoder().decode
_Turn = tuple[str, int, str]
_Query = tuple[str, int, str, str]


class BadRows(Exception):
    """Files of a replay that cannot be merged. The message says which and why."""


@dataclass(frozen=True, slots=True)
class PieceFiles:
    """The result files of a piece: rows, buckets, searches and answered turns, each sorted.

    ``relevant`` has one line for each line of ``queries``. ``name`` names the piece in errors.
    """

    rows: Path
    buckets: Path
    queries: Path
    relevant: Path
    turns: Path
    name: str

    @classmethod
    def in_folder(cls, folder: Path, stem: str, name: str) -> Self:
        """The files of a folder whose names begin with ``stem``."""
        rows, buckets, queries, relevant, turns = (
            folder / f"{stem}.{what}.jsonl"
            for what in ("rows", "buckets", "queries", "relevant", "turns")
        )
        return cls(rows, buckets, queries, relevant, turns, name)

    @property
    def scored(self) -> dict[LineKind, Path]:
        """The files that the pass over texts writes."""
        return {"queries": self.queries, "relevant": self.relevant, "turns": self.turns}


@contextmanager
def at_most_fan_in(
    sources: Sequence[PieceFiles], history: History, folder: Path
) -> Iterator[list[PieceFiles]]:
    """The sources, merged in groups until at most ``FAN_IN`` are left, to bound the open files.

    ``history`` describes the buckets. Leftovers of a killed merge in ``folder`` are deleted.
    """
    merging = folder / MERGING
    if merging.exists():
        shutil.rmtree(merging)
    left = list(sources)
    if len(left) <= FAN_IN:
        yield left
        return
    merging.mkdir()
    try:
        while len(left) > FAN_IN:
            some, left = left[:FAN_IN], left[FAN_IN:]
            whole = PieceFiles.in_folder(merging, str(len(left)), "the parts")
            write_lines(whole.rows, (line for _, line in merged_rows(some)))
            write_lines(whole.buckets, bucket_lines(merged_buckets(some), history))
            write_queries(whole.queries, whole.relevant, merged_query_lines(some))
            write_lines(whole.turns, merged_turns(some))
            left.append(whole)
        yield left
    finally:
        shutil.rmtree(merging)


def merged_rows(sources: Sequence[PieceFiles]) -> Iterator[tuple[RowCounts, str]]:
    """All rows sorted by conversation and turn, each with its line.

    Raises ``BadRows`` if a conversation is in two sources or a line is not a row.
    """
    last: tuple[str, int] | None = None
    streams = [_rows(source.rows, at) for at, source in enumerate(sources)]
    for conversation_id, _, source, figures, line in heapq.merge(*streams, key=_row_key):
        if last is not None and last[0] == conversation_id and last[1] != source:
            raise BadRows(
                f"conversation {conversation_id!r} has rows in {sources[last[1]].name} and in "
                f"{sources[source].name}; parts of one replay have no conversation in common"
            )
        last = (conversation_id, source)
        yield figures, line


def decoded_rows(lines: Iterable[str]) -> Iterator[tuple[RowCounts, str]]:
    """Sorted lines of rows, each preceded by the decoded counts that a report needs."""
    return ((_ROW.decode(line), line) for line in lines)


def add_to_report(rows: Iterable[tuple[RowCounts, str]], report: Report) -> Iterator[str]:
    """Add each row to ``report`` and yield its line."""
    for figures, line in rows:
        report.add(figures)
        yield line


def recorded_dimensions(
    rows: Path, of_turns: Mapping[tuple[str, int], Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    """The dimensions of the turn of each row; none if no search of the turn told them."""
    for number, line in _lines(rows):
        yield of_turns.get(_read_turn_key(rows, number, line), {})


def merged_query_lines(sources: Sequence[PieceFiles]) -> Iterator[tuple[str, str]]:
    """The lines of all searches and of ``relevant``, sorted; raises ``BadRows``."""
    streams = [_queries(source) for source in sources]
    for _, _, line, without in heapq.merge(*streams, key=_query_key):
        yield line, without


def scored_queries(
    lines: Iterable[tuple[str, str]], figures: SearchFigures
) -> Iterator[tuple[str, str]]:
    """Add each search to ``figures``, and yield its line and that of ``relevant``.

    Raises ``BadRows`` if a line is not a row.
    """
    for number, (line, without) in enumerate(lines, 1):
        try:
            figures.add(_DECODE(line), _WITHOUT.decode(without))
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, *JSON_ERRORS) as error:
            raise BadRows(f"{QUERIES}, line {number}: not a row of a replay: {error}") from error
        yield line, without


def write_queries(queries: Path, relevant: Path, lines: Iterable[tuple[str, str]]) -> int:
    """Write lines of searches and of ``relevant`` to their files; returns the number written."""
    both = (one for line, without in lines for one in ((0, line), (1, without)))
    return write_lines_to(both, (queries, relevant)) // 2


def merged_turns(sources: Sequence[PieceFiles]) -> Iterator[str]:
    """The lines of all answered turns sorted by conversation and turn; raises ``BadRows``."""
    streams = [_turns(source.turns) for source in sources]
    for _, _, line in heapq.merge(*streams, key=_turn_key):
        yield line


def scored_turns(lines: Iterable[str], generation: Generation) -> Iterator[str]:
    """Add each answered turn to ``generation`` and yield its line.

    Raises ``BadRows`` if a line is not a row.
    """
    for number, line in enumerate(lines, 1):
        try:
            generation.add(msgspec.json.decode(line))
        except (KeyError, TypeError, ValueError, AttributeError, *JSON_ERRORS) as error:
            raise BadRows(f"{TURNS}, line {number}: not a row of a replay: {error}") from error
        yield line


def merged_buckets(sources: Sequence[PieceFiles]) -> Iterator[Bucket]:
    """The summed buckets of all sources, sorted; raises ``BadRows``."""
    streams = [_buckets(source.buckets) for source in sources]
    for (number, agent), same in groupby(heapq.merge(*streams, key=_bucket_key), key=_bucket_key):
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
    """The lines of ``buckets.jsonl``; ``take`` is called with each bucket's time."""
    yield bucket_line(history.header())
    for number, agent, sums in buckets:
        if take is not None:
            take(number * history.width_us, agent, sums)
        ordered = dict(sorted(sums.items()))
        yield bucket_line({"bucket": number, history.dimension: agent, "sums": ordered})


def _row_key(row: _Row) -> tuple[str, int, int]:
    return row[:3]


def _rows(path: Path, at: int) -> Iterator[_Row]:
    last = ("", 0)
    for number, line in _lines(path):
        try:
            row = _ROW.decode(line)
        except JSON_ERRORS as error:
            raise BadRows(f"{path}, line {number}: not a row of a replay: {error}") from error
        place = (row.conversation_id, row.turn)
        if place <= last:
            raise BadRows(f"{path}, line {number}: rows are not sorted")
        last = place
        yield row.conversation_id, row.turn, at, row, line


def _query_key(query: _Query) -> tuple[str, int]:
    return query[:2]


def _queries(source: PieceFiles) -> Iterator[_Query]:
    last = ("", 0)
    relevant = _lines(source.relevant)
    for number, line in _lines(source.queries):
        place = _read_turn_key(source.queries, number, line)
        if place < last:
            raise BadRows(f"{source.queries}, line {number}: rows are not sorted")
        last = place
        _, without = next(relevant, (0, ""))
        if not without:
            raise BadRows(f"{source.relevant} ends before line {number}; replay its input again")
        yield *place, line, without


def _read_turn_key(path: Path, number: int, line: str) -> tuple[str, int]:
    try:
        place = _TURN_KEY.decode(line)
    except JSON_ERRORS as error:
        raise BadRows(f"{path}, line {number}: not a row of a replay: {error}") from error
    return place.conversation_id, place.turn


def _turn_key(turn: _Turn) -> tuple[str, int]:
    return turn[:2]


def _turns(path: Path) -> Iterator[_Turn]:
    last = ("", 0)
    for number, line in _lines(path):
        place = _read_turn_key(path, number, line)
        if place <= last:
            raise BadRows(f"{path}, line {number}: rows are not sorted")
        last = place
        yield *last, line


def _bucket_key(bucket: Bucket) -> tuple[int, str]:
    return bucket[:2]


def _buckets(path: Path) -> Iterator[Bucket]:
    decode = _decoder_of_buckets("agent")
    for number, line in _lines(path):
        try:
            if number == 1:
                header: Any = msgspec.json.decode(line)
                decode = _decoder_of_buckets(header["dimension"])
            else:
                found = decode(line)
                yield found.bucket, found.name, found.sums
        except (*JSON_ERRORS, KeyError, TypeError, ValueError) as error:
            raise BadRows(f"{path}, line {number}: not a line of a replay's buckets") from error


@lru_cache(maxsize=4)
def _decoder_of_buckets(dimension: str) -> Callable[[str], Any]:
    """A decoder of ``bucket``, ``name`` and ``sums``, where the name has the key ``dimension``."""
    kind = msgspec.defstruct(
        "Bucket",
        [("bucket", int), ("name", str), ("sums", dict[str, int])],
        rename={"name": dimension},
        gc=False,
    )
    return msgspec.json.Decoder(kind).decode


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb", buffering=BUFFER_BYTES) as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode()
            except UnicodeDecodeError as error:
                raise BadRows(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
