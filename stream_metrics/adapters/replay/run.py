"""A replay from its input to the files of its report.

1. A small input is read whole, and computed here and now. Of a larger one
2. the records are dealt out to a spool, with a note every so often of how far that has come,
3. the engine runs over its pieces, each put in place in one step,
4. the pieces are merged into the report, and the spool is deleted.

A replay that was killed goes on from the last of these that is whole, if input and settings are the
same.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

from stream_metrics.adapters.replay.manifest import MANIFEST, Manifest, fingerprint, load, save
from stream_metrics.adapters.replay.merge import with_figures, with_rows
from stream_metrics.adapters.replay.parts import (
    Finished,
    Part,
    Whole,
    buckets_of,
    finish,
    finish_merged,
    generation_of,
    retrieval_of,
)
from stream_metrics.adapters.replay.pieces import (
    PIECE_BYTES,
    Work,
    found_in,
    is_done,
    lines_of,
    outcome_of,
    pieces_of,
)
from stream_metrics.adapters.replay.pool import Pool, several
from stream_metrics.adapters.replay.scored import Kind, scored_lines
from stream_metrics.adapters.replay.spool import Piece, Place, SpoolWriter, place_of
from stream_metrics.adapters.replay.texts import Held
from stream_metrics.events.judge import judge
from stream_metrics.events.record import Record
from stream_metrics.worker.collecting import collecting_once
from stream_metrics.worker.outcome import Options, merged
from stream_metrics.worker.replay import Replay

FOLDER: Final = ".replay"
LOCK: Final = "lock"
READ_EVERY: Final = 1_000


class StrictlyBad(Exception):
    """A bad record or a misspelt field, in a replay that is to end at the first one."""


class InUse(Exception):
    """Another replay writes to the same directory."""


class Progress(Protocol):
    """Who is told how far a replay has come."""

    def note(self, text: str) -> None:
        """Something that is worth a line."""

    def read(self, records: int) -> None:
        """So many records have been read."""

    def computed(self, pieces: int, of: int) -> None:
        """So many pieces are done."""

    def merging(self) -> None:
        """The pieces are put together."""


@dataclass(frozen=True, slots=True)
class Source:
    """The records of a replay, and what they are known by.

    Attributes:
        names: As the report tells them.
        identity: What tells this input from another; None if nothing does, as of standard input.
            Such a replay cannot go on where an earlier one was killed.
        open: The records, from the first; closed in the end.
    """

    names: Sequence[str]
    identity: Sequence[Any] | None
    open: Callable[[], Generator[Record, None, None]]


@dataclass(frozen=True, slots=True)
class Scale:
    """How a replay is done; nothing of it changes what comes out.

    Attributes:
        processes: How many compute at once.
        small_records, small_bytes: What is computed at once, without a spool.
        piece_bytes: How much of the spool makes a piece.
        note_bytes: After how much a note of the progress is written.
        restart: Begin anew, whatever is there.
    """

    processes: int = 1
    small_records: int = 20_000
    small_bytes: int = 64 << 20
    piece_bytes: int = PIECE_BYTES
    note_bytes: int = 64 << 20
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be computed, and where to.

    Attributes:
        member: (i, n): only the i-th of n shares of the conversations, from 1.
        strict: End at the first bad record or misspelt field.
        stratify: By what ``strata`` tells the figures apart.
        config: The settings, as the report shows them.
    """

    source: Source
    options: Options
    out: Path
    config: dict[str, Any]
    member: tuple[int, int] | None = None
    strict: bool = False
    stratify: tuple[str, ...] = ()
    scale: Scale = field(default_factory=Scale)


_Dealt = tuple[Place, int, Record]


def run(task: Task, progress: Progress) -> Finished:
    """Replay, and write the files of the report.

    Raises ``StrictlyBad``, ``InUse``, ``pool.WorkerDied``, ``spool.SpoolDamaged``, and what the
    source raises.
    """
    folder = task.out / FOLDER
    with _alone(folder):
        try:
            return _run(task, folder, progress)
        except StrictlyBad:  # nobody goes on from there
            _clear(folder)
            raise


def _run(task: Task, folder: Path, progress: Progress) -> Finished:
    known = os.urandom(16).hex() if task.source.identity is None else task.source.identity
    told = fingerprint(known, task.config, task.options, task.member, strict=task.strict)
    work = Work(folder, task.options, told)
    manifest = _unfinished(task, work, progress)
    if manifest is None:
        _clear(folder)
        with closing(_dealt(task, 0, progress)) as records:
            first = list(_small(records, task.scale))
            more = next(records, None)
            if more is None:
                with collecting_once():
                    return _at_once(task, first)
            with several(task.scale.processes) as pool:
                manifest = Manifest(work.fingerprint, 0, [])
                _spool(task, work, manifest, _all_of(first, more, records))
                return _from_spool(task, work, manifest, progress, pool)
    with several(task.scale.processes) as pool:
        if not manifest.whole:
            progress.note(f"continuing after {manifest.records:,} records that were read before")
            with closing(_dealt(task, manifest.records, progress)) as records:
                _spool(task, work, manifest, records)
        return _from_spool(task, work, manifest, progress, pool)


def _unfinished(task: Task, work: Work, progress: Progress) -> Manifest | None:
    """The manifest of the replay that is to go on, if there is one."""
    manifest = load(work.folder)
    if manifest is None or task.scale.restart:
        return None
    if manifest.fingerprint != work.fingerprint:
        progress.note(
            "the directory has an unfinished replay of other input, with other settings or by "
            "another version; starting over"
        )
        return None
    return manifest


def _dealt(task: Task, after: int, progress: Progress) -> Generator[_Dealt, None, None]:
    """The records of this member with their places, but for the first ``after`` of the input."""
    limits = task.options.config.limits
    index, members = task.member or (1, 1)
    check = _strict(task.options) if task.strict else None
    with closing(task.source.open()) as records:
        for number, record in enumerate(records):
            if number < after:
                continue
            if check is not None:
                check(number, record)
            if (number + 1) % READ_EVERY == 0:
                progress.read(number + 1)
            place = place_of(record, number, limits)
            if place.member % members == index - 1:
                yield place, number, record


def _strict(options: Options) -> Callable[[int, Record], None]:
    """What raises ``StrictlyBad`` for a record with an error."""
    limits = options.config.limits

    def check(number: int, record: Record) -> None:
        found = judge(record.value, key=record.key, timestamp_ms=record.timestamp_ms, limits=limits)
        for one in found:
            if one.level == "error":
                reason = f"{one.about}: " if one.kind == "bad_record" else ""
                raise StrictlyBad(
                    f"record {number + 1}: {reason}{one.message} (--strict stops here)"
                )

    return check


def _small(records: Iterator[_Dealt], scale: Scale) -> Iterator[_Dealt]:
    """As much as is computed at once."""
    held = 0
    for dealt in islice(records, scale.small_records):
        yield dealt
        held += len(dealt[2].value or b"")
        if held > scale.small_bytes:
            return


def _all_of(first: list[_Dealt], more: _Dealt, rest: Iterator[_Dealt]) -> Iterator[_Dealt]:
    """One after the other; the first ones are let go."""
    first.reverse()
    while first:
        yield first.pop()
    yield more
    yield from rest


def _spool(task: Task, work: Work, manifest: Manifest, records: Iterable[_Dealt]) -> None:
    """Write records to the spool, and note how far that has come."""
    with SpoolWriter(work.folder, manifest.sizes or None) as writer:
        written = 0
        for place, number, record in records:
            written += writer.add(place, number, record)
            if written >= task.scale.note_bytes:
                manifest.records, manifest.sizes = number + 1, writer.flush()
                save(work.folder, manifest)
                written = 0
        manifest.sizes, manifest.whole = writer.flush(), True
    save(work.folder, manifest)


def _at_once(task: Task, records: list[_Dealt]) -> Finished:
    engine = Replay.of(task.options)
    held = Held([(number, record) for _, number, record in records])
    for place, number, record in held.each():
        engine.feed(record, number, place)
    found, history = engine.outcome_and_history()
    lines: dict[Kind, list[str]] = {"queries": [], "relevant": [], "turns": []}
    for kind, line in scored_lines(engine, held, task.options):
        lines[kind].append(line)
    out, part = task.out, _part(task)
    queries = zip(lines["queries"], lines["relevant"], strict=True)
    outcome = merged([found], task.options)
    whole = Whole(
        outcome,
        with_figures(lines_of(engine)),
        partial(buckets_of, out, part, outcome, history.buckets()),
        partial(retrieval_of, out, part, with_rows(queries), task.stratify),
        partial(generation_of, out, part, lines["turns"], task.stratify),
    )
    return finish(out, part, whole, task.stratify)


def _from_spool(
    task: Task, work: Work, manifest: Manifest, progress: Progress, pool: Pool
) -> Finished:
    pieces = pieces_of(manifest.sizes, task.scale.piece_bytes)
    left = [piece for piece in pieces if not is_done(work, piece)]
    ready = len(pieces) - len(left)
    if ready:
        progress.note(f"{ready} of {len(pieces)} pieces were computed before")
    progress.computed(ready, len(pieces))

    def done(_: Piece) -> None:
        nonlocal ready
        ready += 1
        progress.computed(ready, len(pieces))

    pool.compute_all(work, left, done)
    progress.merging()
    sources = [found_in(work.folder, piece) for piece in pieces]
    outcome = merged((outcome_of(work, piece) for piece in pieces), task.options)
    found = finish_merged(
        task.out,
        _part(task),
        outcome,
        sources,
        task.stratify,
        folder=work.folder,
        begin=pool.begin,
    )
    _clear(work.folder)
    return found


def _part(task: Task) -> Part:
    return Part.of(task.source.names, task.config, task.options, task.member)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other replays out of the directory; raises ``InUse``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(f"{folder.parent}: another replay is writing here") from None
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                shutil.rmtree(folder)


def _clear(folder: Path) -> None:
    """Delete what an earlier replay left; the manifest first, as it speaks of the rest."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
