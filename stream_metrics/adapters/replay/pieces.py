"""The engine over one piece of a replay: a shard of the spool, or a part of a large one.

A piece lies on disk as its rows, its buckets, its searches and its answered turns, each in order,
and its outcome. The last comes in one step when the others are there, so that a piece whose outcome
is there is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics.adapters.replay.merge import Found
from stream_metrics.adapters.replay.scored import scored_lines
from stream_metrics.adapters.replay.spool import Piece
from stream_metrics.adapters.replay.texts import OnDisk
from stream_metrics.adapters.reports import bucket_line, write_lines, write_several, write_text
from stream_metrics.engine.row import canonical, canonical_line
from stream_metrics.worker.outcome import Options, Outcome
from stream_metrics.worker.replay import Replay

PIECE_BYTES: Final = 256 << 20
"""How much of the spool makes a piece: what a process holds in memory depends on it."""


class NotDone(Exception):
    """A piece that is still to be computed."""


@dataclass(frozen=True, slots=True)
class Work:
    """What every piece of a replay needs to know."""

    folder: Path
    options: Options
    fingerprint: str


def pieces_of(sizes: Iterable[int], piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of a spool: by the sizes of its files alone, the largest first.

    >>> pieces_of([10, 0, 30], piece_bytes=16)
    [Piece(shard=2, part=0, parts=2, size=30), Piece(shard=2, part=1, parts=2, size=30), \
Piece(shard=0, part=0, parts=1, size=10)]
    """
    found = [
        Piece(shard, part, parts, size)
        for shard, size in enumerate(sizes)
        if size
        for parts in [-(-size // piece_bytes)]
        for part in range(parts)
    ]
    return sorted(found, key=lambda piece: (-piece.size, piece.shard, piece.part))


def compute(work: Work, piece: Piece) -> Piece:
    """Run the engine over the piece's records, and write rows and outcome."""
    engine = Replay.of(work.options)
    found = found_in(work.folder, piece)
    paths = found.scored
    with OnDisk(work.folder, piece) as records:
        for place, number, record in records.each():
            engine.feed(record, number, place)
        write_lines(found.rows, lines_of(engine))
        lines = scored_lines(engine, records, work.options)
        places = {kind: place for place, kind in enumerate(paths)}
        write_several(((places[kind], line) for kind, line in lines), paths.values())
    outcome, history = engine.outcome_and_history()
    write_lines(found.buckets, map(bucket_line, history.lines()))
    content = {"fingerprint": work.fingerprint, "outcome": outcome.as_data()}
    write_text(_outcome_path(work.folder, piece), canonical(content) + "\n")
    return piece


def lines_of(engine: Replay) -> Iterator[str]:
    """The rows as canonical lines."""
    return map(canonical_line, engine.each_row())


def found_in(folder: Path, piece: Piece) -> Found:
    """Where the files of a piece are."""
    return Found.beside(folder, piece.name, piece.name)


def outcome_of(work: Work, piece: Piece) -> Outcome:
    """The outcome of a piece; raises ``NotDone`` if there is none, or one of another replay."""
    path = _outcome_path(work.folder, piece)
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
        if content["fingerprint"] == work.fingerprint:
            return Outcome.of_data(content["outcome"])
    except (OSError, msgspec.DecodeError, KeyError, ValueError, TypeError) as error:
        raise NotDone(f"{path}: {error}") from error
    raise NotDone(f"{path}: of another replay")


def is_done(work: Work, piece: Piece) -> bool:
    """Whether the outcome of the piece is there, and so are its other files."""
    try:
        outcome_of(work, piece)
    except NotDone:
        return False
    return True


def _outcome_path(folder: Path, piece: Piece) -> Path:
    return folder / f"{piece.name}.json"
