"""One report of many parts: rows and buckets in order, counts and sums added up."""

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

from stream_metrics.adapters.replay.scored import Kind
from stream_metrics.adapters.reports import (
    NO_JSON,
    QUERIES,
    TURNS,
    bucket_line,
    write_lines,
    write_several,
)
from stream_metrics.engine.history import History
from stream_metrics.engine.windows import Sums, add
from stream_metrics.evaluation.gathered import Queries
from stream_metrics.evaluation.generation import Generation
from stream_metrics.evaluation.report import Retrieval
from stream_metrics.worker.report import READ, Figures, Report

FAN_IN: Final = 256
MERGING: Final = ".merging"
"""Where parts lie that many sources were made, while the report is written."""
BUFFER_BYTES: Final = 64 << 10

Bucket = tuple[int, str, Sums]
"""Number, agent and sums."""

_ROW: Final = msgspec.json.Decoder(READ)
_Row = tuple[str, int, int, Figures, str]


class _Place(msgspec.Struct, gc=False, frozen=True):
    """Where a row of a search or of an answered turn belongs."""

    conversation_id: str
    turn: int


class _Described(_Place, gc=False, frozen=True):
    """The same with what was recorded of the turn."""

    dimensions: dict[str, str]


_DESCRIBED: Final = msgspec.json.Decoder(_Described)
_PLACE: Final = msgspec.json.Decoder(_Place)
_WITHOUT: Final = msgspec.json.Decoder(list[int])
_DECODE: Final = msgspec.json.Decoder().decode
_Turn = tuple[str, int, str]
_Query = tuple[str, int, Any, str, str]
Searched = tuple[Any, str, str]
"""The row of a search, its line, and that of ``relevant``."""


class BadRows(Exception):
    """Files of a replay that cannot be merged; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a part has found: rows, buckets, searches and answered turns, each in order.

    ``relevant`` has a line for each of ``queries``; ``name`` is what errors call the part.
    """

    rows: Path
    buckets: Path
    queries: Path
    relevant: Path
    turns: Path
    name: str

    @classmethod
    def beside(cls, folder: Path, stem: str, name: str) -> Self:
        """The files of a folder whose names begin with ``stem``."""
        rows, buckets, queries, relevant, turns = (
            folder / f"{stem}.{what}.jsonl"
            for what in ("rows", "buckets", "queries", "relevant", "turns")
        )
        return cls(rows, buckets, queries, relevant, turns, name)

    @property
    def scored(self) -> dict[Kind, Path]:
        """The files that the pass over texts makes."""
        return {"queries": self.queries, "relevant": self.relevant, "turns": self.turns}


@contextmanager
def few(sources: Sequence[Found], history: History, folder: Path) -> Iterator[list[Found]]:
    """The sources, or as few that hold the same as there may be open files.

    ``history`` tells of what kind the buckets are. What a killed merge has left in ``folder`` is
    deleted.
    """
    place = folder / MERGING
    if place.exists():
        shutil.rmtree(place)
    left = list(sources)
    if len(left) <= FAN_IN:
        yield left
        return
    place.mkdir()
    try:
        while len(left) > FAN_IN:
            some, left = left[:FAN_IN], left[FAN_IN:]
            whole = Found.beside(place, str(len(left)), "the parts")
            write_lines(whole.rows, (line for _, line in merged_rows(some)))
            write_lines(whole.buckets, bucket_lines(merged_buckets(some), history))
            lines = ((line, without) for _, line, without in merged_queries(some))
            write_queries(whole.queries, whole.relevant, lines)
            write_lines(whole.turns, merged_turns(some))
            left.append(whole)
        yield left
    finally:
        shutil.rmtree(place)


def merged_rows(sources: Sequence[Found]) -> Iterator[tuple[Figures, str]]:
    """All rows by conversation, then turn, each with its line.

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
        yield figures, line


def with_figures(lines: Iterable[str]) -> Iterator[tuple[Figures, str]]:
    """Lines of rows that are in order already, each behind what a report needs of it."""
    return ((_ROW.decode(line), line) for line in lines)


def reported(rows: Iterable[tuple[Figures, str]], report: Report) -> Iterator[str]:
    """The lines; ``report`` is given each row."""
    for figures, line in rows:
        report.add(figures)
        yield line


def told(rows: Path, queries: Path) -> Iterator[Mapping[str, str]]:
    """What the searches of each row's turn say of it; both files have the same order."""
    searches = _described(queries)
    found = next(searches, None)
    for number, line in _lines(rows):
        own = _place_in(rows, number, line)
        while found is not None and found[0] < own:
            found = next(searches, None)
        yield found[1] if found is not None and found[0] == own else {}


def merged_queries(sources: Sequence[Found]) -> Iterator[Searched]:
    """All searches by conversation, then turn; raises ``BadRows``."""
    streams = [_queries(source) for source in sources]
    for _, _, row, line, without in heapq.merge(*streams, key=_place_of_query):
        yield row, line, without


def with_rows(lines: Iterable[tuple[str, str]]) -> Iterator[Searched]:
    """Lines of searches that are in order already, with those of ``relevant``."""
    return ((_DECODE(line), line, without) for line, without in lines)


def scored_queries(
    searches: Iterable[Searched], retrieval: Retrieval, shown: Queries
) -> Iterator[tuple[str, str]]:
    """Lines of searches with those of ``relevant``; ``retrieval`` and ``shown`` are given each.

    Raises ``BadRows`` for what is no row.
    """
    for number, (row, line, without) in enumerate(searches, 1):
        try:
            retrieval.add(row, _WITHOUT.decode(without))
            shown.add(row)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, *NO_JSON) as error:
            raise BadRows(f"{QUERIES}, line {number}: no row of a replay: {error}") from error
        yield line, without


def write_queries(queries: Path, relevant: Path, lines: Iterable[tuple[str, str]]) -> int:
    """Write lines of searches, and those of ``relevant`` to the other file; how many of each."""
    both = (one for line, without in lines for one in ((0, line), (1, without)))
    return write_several(both, (queries, relevant)) // 2


def merged_turns(sources: Sequence[Found]) -> Iterator[str]:
    """The lines of all answered turns by conversation, then turn; raises ``BadRows``."""
    streams = [_turns(source.turns) for source in sources]
    for _, _, line in heapq.merge(*streams, key=_place_of_turn):
        yield line


def scored_turns(lines: Iterable[str], generation: Generation) -> Iterator[str]:
    """Lines of answered turns; ``generation`` is given each.

    Raises ``BadRows`` for a line that is no row.
    """
    for number, line in enumerate(lines, 1):
        try:
            generation.add(msgspec.json.decode(line))
        except (KeyError, TypeError, ValueError, AttributeError, *NO_JSON) as error:
            raise BadRows(f"{TURNS}, line {number}: no row of a replay: {error}") from error
        yield line


def merged_buckets(sources: Sequence[Found]) -> Iterator[Bucket]:
    """The buckets of all sources in order, added up; raises ``BadRows``."""
    streams = [_buckets(source.buckets) for source in sources]
    for (number, agent), same in groupby(
        heapq.merge(*streams, key=_place_of_bucket), key=_place_of_bucket
    ):
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
        except NO_JSON as error:
            raise BadRows(f"{path}, line {number}: no row of a replay: {error}") from error
        place = (row.conversation_id, row.turn)
        if place <= last:
            raise BadRows(f"{path}, line {number}: rows are not in their order")
        last = place
        yield row.conversation_id, row.turn, at, row, line


def _place_of_query(query: _Query) -> tuple[str, int]:
    return query[:2]


def _queries(source: Found) -> Iterator[_Query]:
    last = ("", 0)
    beside = _lines(source.relevant)
    for number, line in _lines(source.queries):
        row, place = _row_in(source.queries, number, line)
        if place < last:
            raise BadRows(f"{source.queries}, line {number}: rows are not in their order")
        last = place
        _, without = next(beside, (0, ""))
        if not without:
            raise BadRows(f"{source.relevant} ends before line {number}; replay its input again")
        yield *place, row, line, without


def _described(path: Path) -> Iterator[tuple[tuple[str, int], Mapping[str, str]]]:
    for _, line in _lines(path):
        found = _DESCRIBED.decode(line)
        yield (found.conversation_id, found.turn), found.dimensions


def _row_in(path: Path, number: int, line: str) -> tuple[Any, tuple[str, int]]:
    """The row of a search or of an answered turn, and where it belongs."""
    try:
        row = _DECODE(line)
        name, turn = row["conversation_id"], row["turn"]
        if type(name) is str and type(turn) is int:
            return row, (name, turn)
    except (KeyError, TypeError, *NO_JSON) as error:
        raise BadRows(f"{path}, line {number}: no row of a replay: {error}") from error
    raise BadRows(f"{path}, line {number}: no row of a replay: it names no turn")


def _place_in(path: Path, number: int, line: str) -> tuple[str, int]:
    try:
        place = _PLACE.decode(line)
    except NO_JSON as error:
        raise BadRows(f"{path}, line {number}: no row of a replay: {error}") from error
    return place.conversation_id, place.turn


def _place_of_turn(turn: _Turn) -> tuple[str, int]:
    return turn[:2]


def _turns(path: Path) -> Iterator[_Turn]:
    last = ("", 0)
    for number, line in _lines(path):
        place = _place_in(path, number, line)
        if place <= last:
            raise BadRows(f"{path}, line {number}: rows are not in their order")
        last = place
        yield *last, line


def _place_of_bucket(bucket: Bucket) -> tuple[int, str]:
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
        except (*NO_JSON, KeyError, TypeError, ValueError) as error:
            raise BadRows(f"{path}, line {number}: not a line of a replay's buckets") from error


@lru_cache(maxsize=4)
def _decoder_of_buckets(dimension: str) -> Callable[[str], Any]:
    """What reads ``bucket``, ``name`` and ``sums`` of a line, whose name is under ``dimension``."""
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
                raise BadRows(f"{path}, line {number}: no UTF-8 ({error.reason})") from error
