"""Run the engine over one piece of a replay: a shard of the spool, or a part of a large shard.

The results of a piece are files of its rows, buckets, searches and answered turns, each sorted, and
its outcome. The outcome is written atomically after the others, so a piece with an outcome is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from stream_metrics.core.engine.row import canonical, canonical_line
from stream_metrics.lab.replay.merge_pieces import PieceFiles
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.outcome import Outcome, ReplayOptions
from stream_metrics.lab.replay.score_texts import scored_lines
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.replay.spool import Piece, Spool, SpooledRecords, SpoolSource
from stream_metrics.lab.reports.files import bucket_line, write_lines, write_lines_to, write_text

PIECE_BYTES: Final = 256 << 20
"""The bytes of the records in one piece, which determine the memory of a process."""


class NotDone(Exception):
    """The piece has not been computed yet."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the pieces of a replay share; ``sources`` are those of its ``Spool``."""

    folder: Path
    options: ReplayOptions
    fingerprint: str
    sources: tuple[SpoolSource, ...] = ()


def pieces_of(spool: Spool, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """Divide a spool into pieces by the bytes of its records, those of the largest files first.

    >>> pieces_of(Spool([10, 0, 30], [10, 0, 30], []), piece_bytes=16)
    [Piece(shard=2, part=0, parts=2, size=30), Piece(shard=2, part=1, parts=2, size=30), \
Piece(shard=0, part=0, parts=1, size=10)]
    """
    found = [
        Piece(shard, part, parts, spool.sizes[shard])
        for shard, held in enumerate(spool.held)
        if held
        for parts in [-(-held // piece_bytes)]
        for part in range(parts)
    ]
    return sorted(found, key=lambda piece: (-spool.held[piece.shard], piece.shard, piece.part))


def compute(work: Job, piece: Piece) -> Piece:
    """Run the engine over a piece's records and write its result files."""
    engine = Replay.of(work.options)
    found = files_of(work.folder, piece)
    paths = found.scored
    with closing(SpooledRecords(work.folder, piece, work.sources)) as records:
        for position, (source, number, record) in records.each():
            engine.feed(record, source, number, position)
        write_lines(found.rows, lines_of(engine))
        figures = SearchFigures(work.options.metrics)
        lines = scored_lines(engine, records, work.options, figures)
        places = {kind: place for place, kind in enumerate(paths)}
        write_lines_to(((places[kind], line) for kind, line in lines), paths.values())
    figures.save(figures_path(work.folder, piece))
    outcome, history = engine.outcome_and_history()
    write_lines(found.buckets, map(bucket_line, history.lines()))
    content = {"fingerprint": work.fingerprint, "outcome": outcome.as_data()}
    write_text(_outcome_path(work.folder, piece), canonical(content) + "\n")
    return piece


def figures_path(folder: Path, piece: Piece) -> Path:
    """The path of the saved ``SearchFigures`` of a piece."""
    return folder / f"{piece.name}.figures"


def lines_of(engine: Replay) -> Iterator[str]:
    """The rows as canonical lines."""
    return map(canonical_line, engine.each_row())


def files_of(folder: Path, piece: Piece) -> PieceFiles:
    """The paths of a piece's result files that are merged line by line."""
    return PieceFiles.in_folder(folder, piece.name, piece.name)


def result_paths(folder: Path, piece: Piece) -> dict[str, Path]:
    """The paths of all result files of a piece by name; the outcome is the last."""
    files = files_of(folder, piece)
    return {
        "rows": files.rows,
        "queries": files.queries,
        "relevant": files.relevant,
        "turns": files.turns,
        "buckets": files.buckets,
        "figures": figures_path(folder, piece),
        "outcome": _outcome_path(folder, piece),
    }


def outcome_of(work: Job, piece: Piece) -> Outcome:
    """The outcome of a piece; raises ``NotDone`` if it is missing or from another replay."""
    path = _outcome_path(work.folder, piece)
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
        if content["fingerprint"] == work.fingerprint:
            return Outcome.of_data(content["outcome"])
    except (OSError, msgspec.DecodeError, KeyError, ValueError, TypeError) as error:
        raise NotDone(f"{path}: {error}") from error
    raise NotDone(f"{path}: from another replay")


def is_done(work: Job, piece: Piece) -> bool:
    """Whether the outcome of the piece, and so its other files, have been written."""
    try:
        outcome_of(work, piece)
    except NotDone:
        return False
    return True


def _outcome_path(folder: Path, piece: Piece) -> Path:
    return folder / f"{piece.name}.json"
