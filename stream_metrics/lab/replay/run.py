"""A replay from its input to the files of its report.

1. A small input is read completely and computed in memory. For a larger one:
2. the records, or their places in a plain file, are distributed to a spool, and the progress is
   saved regularly;
3. the engine runs over the pieces of the spool, and each result is written atomically;
4. the pieces are merged into the report, and the spool is deleted.

A killed replay resumes after the last finished step if its input and settings are the same.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

from stream_metrics.core.garbage_collection import collector_paused
from stream_metrics.lab.replay.index_lines import index_lines
from stream_metrics.lab.replay.manifest import MANIFEST, Manifest, fingerprint, load, save
from stream_metrics.lab.replay.merge_pieces import decoded_rows, write_queries
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.outcome import ReplayOptions, merge_outcomes
from stream_metrics.lab.replay.pieces import (
    PIECE_BYTES,
    Job,
    figures_path,
    files_of,
    is_done,
    lines_of,
    outcome_of,
    pieces_of,
)
from stream_metrics.lab.replay.pool import Pool, process_pool
from stream_metrics.lab.replay.report_files import (
    FinishedReport,
    ReplayScope,
    ReportInput,
    submit_searches,
    write_buckets,
    write_merged_report,
    write_report,
    write_turns,
)
from stream_metrics.lab.replay.reread import InMemoryRecords
from stream_metrics.lab.replay.score_texts import LineKind, scored_lines
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.replay.spool import Piece, SpoolKey, SpoolWriter, spool_key
from stream_metrics.lab.reports.files import QUERIES, RELEVANT
from stream_metrics.lab.sources.files import FileRange
from stream_metrics.lab.sources.place import LocatedRecord, place_fields, place_of, place_text
from stream_metrics.lab.sources.problems import find_problems
from stream_metrics.lab.sources.unchanged import InputChanged

FOLDER: Final = ".replay"
LOCK: Final = "lock"
READ_EVERY: Final = 1_000
MOST_SAVES: Final = 1_000
"""How often the manifest, which names all ranges, is written while they are indexed."""


class StrictError(Exception):
    """A bad record or a misspelt field in a strict replay, which stops at the first one."""


class OutputInUse(Exception):
    """Another replay writes to the same directory."""


class Progress(Protocol):
    """Receives the progress of a replay."""

    def note(self, text: str) -> None:
        """Report a message."""

    def read(self, records: int) -> None:
        """Report the number of records read so far."""

    def computed(self, pieces: int, of: int) -> None:
        """Report how many of all pieces are done."""

    def merging(self) -> None:
        """Report that merging begins."""


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """The records of a replay and their identity.

    Attributes:
        names: The names of the input in the report.
        identity: Distinguishes this input from others. None if nothing does, as for standard input;
            such a replay cannot resume.
        open: Opens the records from the first one. The generator is closed at the end.
        ranges: Divides the input into ranges of so many bytes, which can be read in any order;
            returns none if that is impossible.
    """

    names: Sequence[str]
    identity: Sequence[Any] | None
    open: Callable[[], Generator[LocatedRecord, None, None]]
    ranges: Callable[[int], list[FileRange]] = lambda _: []


@dataclass(frozen=True, slots=True)
class Execution:
    """How a replay is executed, which does not affect its results.

    Attributes:
        processes: The number of processes.
        small_records, small_bytes: The largest input that is computed without a spool.
        piece_bytes: The bytes of the records in one piece.
        note_bytes: The bytes of records between two writes of the manifest.
        range_bytes: The bytes of plain files that one call indexes.
        restart: Start over, ignoring an unfinished replay.
    """

    processes: int = 1
    small_records: int = 20_000
    small_bytes: int = 64 << 20
    piece_bytes: int = PIECE_BYTES
    note_bytes: int = 64 << 20
    range_bytes: int = 64 << 20
    restart: bool = False


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """What a replay computes, and where it writes the report.

    Attributes:
        strict: Stop at the first bad record or misspelt field.
        stratify: The dimensions of ``strata``.
        config: The settings, as the report shows them.
    """

    source: ReplaySource
    options: ReplayOptions
    out: Path
    config: dict[str, Any]
    strict: bool = False
    stratify: tuple[str, ...] = ()
    scale: Execution = field(default_factory=Execution)


_KeyedRecord = tuple[SpoolKey, LocatedRecord]


def run(task: ReplayTask, progress: Progress) -> FinishedReport:
    """Replay the input and write the files of the report.

    Raises ``StrictError``, ``OutputInUse``, ``pool.WorkerDied``, ``spool.SpoolDamaged``,
    ``InputChanged``, and what the source raises.
    """
    folder = task.out / FOLDER
    with locked(folder):
        try:
            return _run(task, folder, progress)
        except (StrictError, InputChanged):  # such a replay cannot resume
            clear(folder)
            raise


def _run(task: ReplayTask, folder: Path, progress: Progress) -> FinishedReport:
    known = os.urandom(16).hex() if task.source.identity is None else task.source.identity
    told = fingerprint(known, task.config, task.options, strict=task.strict)
    work = Job(folder, task.options, told)
    manifest = _unfinished(task, work, progress)
    if manifest is None:
        clear(folder)
        manifest = Manifest(work.fingerprint, 0, ranges=_ranges(task))
    elif not manifest.whole:
        progress.note(f"continuing after {manifest.records:,} records that were read before")
    if manifest.ranges:
        try:
            with process_pool(task.scale.processes) as pool:
                _index(task, work, manifest, progress, pool)
                return _run_from_spool(task, work, manifest, progress, pool)
        except _NotInRanges:
            progress.note(
                "the input has traces, or lines that are very long or very short; reading it again "
                "from the first line"
            )
            clear(folder)
            manifest = Manifest(work.fingerprint, 0)
    return _run_in_order(task, work, manifest, progress)


def _run_in_order(
    task: ReplayTask, work: Job, manifest: Manifest, progress: Progress
) -> FinishedReport:
    """Read the records one after another, but for those that are in the spool, and replay them."""
    with closing(_keyed_records(task, manifest.records, progress)) as records:
        if not manifest.records:
            first = list(_in_memory(records, task.scale))
            more = next(records, None)
            if more is None:
                with collector_paused():
                    return _run_in_memory(task, first)
            records = _chained(first, more, records)
        with process_pool(task.scale.processes) as pool:
            if not manifest.whole:
                _spool(task, work, manifest, records)
            return _run_from_spool(task, work, manifest, progress, pool)


def _unfinished(task: ReplayTask, work: Job, progress: Progress) -> Manifest | None:
    """The manifest of a replay that can resume; None if there is none."""
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


class _NotInRanges(Exception):
    """The input must be read from its first line (``index_lines``)."""


def _ranges(task: ReplayTask) -> list[FileRange]:
    """The ranges in which the input is indexed; none if it is small or not of plain files.

    A strict replay reads its records one after another, since it stops at the first bad one.
    """
    parts = [] if task.strict else task.source.ranges(task.scale.range_bytes)
    return parts if sum(part.end - part.start for part in parts) > task.scale.small_bytes else []


def _index(task: ReplayTask, work: Job, manifest: Manifest, progress: Progress, pool: Pool) -> None:
    """Index the ranges that are left in the pool, saving the progress in the manifest.

    Raises ``_NotInRanges``.
    """
    limits = task.options.config.limits
    done = 0 if manifest.spool is None else len(manifest.spool.sources)
    left = manifest.ranges[done:]
    every = 1 + len(left) // MOST_SAVES
    with closing(SpoolWriter(work.folder, manifest.spool)) as writer:
        calls = (partial(index_lines, part, at, limits) for at, part in enumerate(left, done))
        for part, found in zip(left, pool.results(calls), strict=True):
            if found is None:
                raise _NotInRanges
            writer.add_range(part, found)
            manifest.records += found.records
            done += 1
            manifest.whole = done == len(manifest.ranges)
            if manifest.whole or done % every == 0:
                manifest.spool = writer.flush()
                save(work.folder, manifest)
            progress.read(manifest.records)


def _keyed_records(
    task: ReplayTask, after: int, progress: Progress
) -> Generator[_KeyedRecord, None, None]:
    """The records with their keys, without the first ``after`` of the input."""
    limits = task.options.config.limits
    check = _strict(task.options) if task.strict else None
    with closing(task.source.open()) as records:
        for read, located in enumerate(islice(records, after, None), after + 1):
            if check is not None:
                check(located)
            if read % READ_EVERY == 0:
                progress.read(read)
            _, number, record = located
            yield spool_key(record, number, limits), located


def _strict(options: ReplayOptions) -> Callable[[LocatedRecord], None]:
    """A check that raises ``StrictError`` for a record with an error."""
    limits = options.config.limits

    def check(located: LocatedRecord) -> None:
        record = located[2]
        found = find_problems(
            record.value, key=record.key, timestamp_ms=record.timestamp_ms, limits=limits
        )
        for one in found:
            if one.level == "error":
                reason = f"{one.about}: " if one.kind == "bad_record" else ""
                place = place_text(place_fields(place_of(*located)))
                raise StrictError(f"{place}: {reason}{one.message} (--strict stops here)")

    return check


def _in_memory(records: Iterator[_KeyedRecord], scale: Execution) -> Iterator[_KeyedRecord]:
    """The first records, up to the limits of an input that is computed in memory."""
    held = 0
    for dealt in islice(records, scale.small_records):
        yield dealt
        held += len(dealt[1][2].value or b"")
        if held > scale.small_bytes:
            return


def _chained(
    first: list[_KeyedRecord], more: _KeyedRecord, rest: Iterator[_KeyedRecord]
) -> Generator[_KeyedRecord, None, None]:
    """Chain the records; those of ``first`` are released as they are consumed."""
    first.reverse()
    while first:
        yield first.pop()
    yield more
    yield from rest


def _spool(
    task: ReplayTask, work: Job, manifest: Manifest, records: Iterable[_KeyedRecord]
) -> None:
    """Write records to the spool, saving the progress in the manifest."""
    with closing(SpoolWriter(work.folder, manifest.spool)) as writer:
        written = 0
        for key, located in records:
            written += writer.add(key, located)
            manifest.records += 1
            if written >= task.scale.note_bytes:
                manifest.spool = writer.flush()
                save(work.folder, manifest)
                written = 0
        manifest.spool, manifest.whole = writer.flush(), True
    save(work.folder, manifest)


def _run_in_memory(task: ReplayTask, records: list[_KeyedRecord]) -> FinishedReport:
    out, part = task.out, _scope_of(task)
    engine = Replay.of(task.options)
    held = InMemoryRecords([located for _, located in records])
    for position, (source, number, record) in held.each():
        engine.feed(record, source, number, position)
    found, history = engine.outcome_and_history()
    lines: dict[LineKind, list[str]] = {"queries": [], "relevant": [], "turns": []}
    figures = SearchFigures(part.metrics)
    for kind, line in scored_lines(engine, held, task.options, figures):
        lines[kind].append(line)
    queries = zip(lines["queries"], lines["relevant"], strict=True)
    write = partial(write_queries, out / QUERIES, out / RELEVANT, queries)
    outcome = merge_outcomes([found], task.options)
    whole = ReportInput(
        outcome,
        decoded_rows(lines_of(engine)),
        partial(write_buckets, out, part, outcome, history.buckets()),
        partial(submit_searches, part, write, figures, task.stratify),
        partial(write_turns, out, part, lines["turns"], task.stratify),
    )
    return write_report(out, part, whole, task.stratify)


def _run_from_spool(
    task: ReplayTask, work: Job, manifest: Manifest, progress: Progress, pool: Pool
) -> FinishedReport:
    assert manifest.spool is not None
    work = replace(work, sources=tuple(manifest.spool.sources))
    pieces = pieces_of(manifest.spool, task.scale.piece_bytes)
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
    found = write_report_of_pieces(task.out, _scope_of(task), work, pieces, task.stratify, pool)
    clear(work.folder)
    return found


def write_report_of_pieces(
    out: Path,
    part: ReplayScope,
    work: Job,
    pieces: Sequence[Piece],
    stratify: Sequence[str],
    pool: Pool,
) -> FinishedReport:
    """Merge the pieces of a replay, which are all done; raises as ``write_merged_report``."""
    scored = pieces if work.options.scoring is not None else []
    return write_merged_report(
        out,
        part,
        merge_outcomes((outcome_of(work, piece) for piece in pieces), work.options),
        [files_of(work.folder, piece) for piece in pieces],
        stratify,
        folder=work.folder,
        figures=SearchFigures.load(
            part.metrics, (figures_path(work.folder, piece) for piece in scored)
        ),
        submit=pool.submit,
    )


def _scope_of(task: ReplayTask) -> ReplayScope:
    return ReplayScope.of(task.source.names, task.config, task.options)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a directory; raises ``OutputInUse`` if another replay has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputInUse(
                f"{folder.parent}: another replay is writing to this directory"
            ) from None
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                shutil.rmtree(folder)


def clear(folder: Path) -> None:
    """Delete what an earlier replay left: the manifest first, because it refers to the rest."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()
