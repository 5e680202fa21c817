"""Write report directories, and merge several into one.

Apart from rows, windows and report, a replay writes ``parts.json``. It contains what is needed for
an exact merge with other inputs but is not in the other files: the sums of reranking comparisons,
the counts of records, and the number of lines in each file, which reveals lost lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from stream_metrics.core.dedup.tables import published
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import window_specs
from stream_metrics.lab.evaluation.estimates import UnknownDimension
from stream_metrics.lab.evaluation.generation import Generation
from stream_metrics.lab.evaluation.recorded_searches import Scoring
from stream_metrics.lab.evaluation.submit import Submit, deferred
from stream_metrics.lab.evaluation.summaries import Conversations, Queries, RowSummaries
from stream_metrics.lab.replay.merge_pieces import (
    BadRows,
    Bucket,
    PieceFiles,
    add_to_report,
    at_most_fan_in,
    bucket_lines,
    merged_buckets,
    merged_query_lines,
    merged_rows,
    merged_turns,
    recorded_dimensions,
    scored_queries,
    scored_turns,
    write_queries,
)
from stream_metrics.lab.replay.outcome import Outcome, ReplayOptions, merge_outcomes
from stream_metrics.lab.replay.recorded import words_version
from stream_metrics.lab.replay.report import STRATA, Report, RowCounts
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.reports.files import (
    BUCKETS,
    JSON_ERRORS,
    QUERIES,
    RELEVANT,
    ROWS,
    TURNS,
    write_json,
    write_lines,
)
from stream_metrics.lab.reports.run_directory import add_rows

PARTS: Final = "parts.json"
SCHEMA_VERSION: Final = 3
COUNTED_BYTES: Final = 1 << 20


class IncompatibleReplays(Exception):
    """Directories that cannot be merged. The message says which and why."""


@dataclass(frozen=True, slots=True)
class ReplayScope:
    """The source and settings of a report directory."""

    source: tuple[str, ...]
    config: dict[str, Any]
    turn_scope: str
    now_us: int | None
    windows: tuple[str, ...]

    @classmethod
    def of(cls, source: Sequence[str], config: dict[str, Any], options: ReplayOptions) -> Self:
        """The scope of one replay."""
        return cls(
            tuple(source),
            config,
            options.turn_scope,
            options.now_us,
            tuple(window.name for window in options.windows),
        )

    @property
    def options(self) -> ReplayOptions:
        """The options that merging depends on."""
        metrics = self.config["metrics"]
        return ReplayOptions(
            EngineConfig(dimension=metrics["dimension"]),
            self.turn_scope,
            tuple(metrics["agents"]),
            tuple(metrics["routes"]),
            window_specs(self.windows, metrics.get("series_windows")),
            self.now_us,
        )

    @property
    def words_version(self) -> int:
        """The version of the rules for words."""
        number = self.config["dedup"]["tables"]
        return words_version(published()[number or 1])  # None: written when there were no others

    @property
    def scoring(self) -> Scoring:
        """How searches are scored."""
        return Scoring.of(self.config["evaluation"], self.config["metrics"]["good_gain"])

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics of searches."""
        return [str(metric) for metric in self.scoring.metrics]


class WrittenBlock(NamedTuple):
    """A block of the report whose rows are written to files of their own.

    ``dimensions`` are those of its rows; ``rows`` is their number.
    """

    content: dict[str, Any] | None
    dimensions: set[str]
    rows: int


class PendingBlock(NamedTuple):
    """The block of searches; ``content`` waits for results from other processes.

    ``of_turns`` has the dimensions of each conversation and turn. ``shown`` is the summary of the
    rows for the report page.
    """

    content: Callable[[], dict[str, Any]]
    dimensions: set[str]
    of_turns: Callable[[], dict[tuple[str, int], Mapping[str, str]]]
    rows: int
    shown: Queries


class FinishedReport(NamedTuple):
    """The content of a report, and the summaries of its rows for the report page."""

    content: dict[str, Any]
    summaries: RowSummaries


@dataclass(frozen=True, slots=True)
class ReportInput:
    """The input of a report: the outcome, sorted rows, and functions that write the other files.

    ``rows`` are decoded counts with their lines. ``buckets`` returns the number of lines written.
    """

    outcome: Outcome
    rows: Iterable[tuple[RowCounts, str]]
    buckets: Callable[[], int]
    retrieval: Callable[[], PendingBlock]
    generation: Callable[[], WrittenBlock]


def write_buckets(out: Path, part: ReplayScope, outcome: Outcome, buckets: Iterable[Bucket]) -> int:
    """Write sorted buckets and their window sums; returns the number of bucket lines."""
    options = part.options
    sums = outcome.window_sums(options)
    lines = bucket_lines(buckets, options.history(outcome.last_event_us), sums.take)
    written = write_lines(out / BUCKETS, lines)
    write_json(out, "windows.json", sums.document(options.config.dimension))
    return written


def submit_searches(
    part: ReplayScope,
    write: Callable[[], int],
    figures: SearchFigures,
    stratify: Sequence[str] = (),
    submit: Submit = deferred,
) -> PendingBlock:
    """The block of searches.

    ``write`` writes ``queries.jsonl`` and ``relevant.jsonl``, and returns the number of their rows;
    ``figures`` has taken them by then. ``submit`` takes calls that may be computed in another
    process.

    Raises ``BadRows`` if a line is not a row.
    """
    rows = write()
    found = figures.retrieval
    split = _available(stratify, found.dimensions)
    content = found.submit_block(intervals=part.scoring.intervals, dimensions=split, submit=submit)
    return PendingBlock(content, found.dimensions, found.dimensions_of_turns, rows, figures.shown)


def write_turns(
    out: Path, part: ReplayScope, lines: Iterable[str], stratify: Sequence[str] = ()
) -> WrittenBlock:
    """Write ``turns.jsonl`` from sorted lines; returns its block; raises ``BadRows``."""
    found = Generation()
    rows = write_lines(out / TURNS, scored_turns(lines, found))
    split = _available(stratify, found.dimensions)
    content = found.block(
        intervals=part.scoring.intervals, dimensions=split, words_version=part.words_version
    )
    return WrittenBlock(content, found.dimensions, rows)


def _available(stratify: Sequence[str], dimensions: Collection[str]) -> list[str] | None:
    """The requested dimensions that rows of this kind have; None if none was requested."""
    return [name for name in stratify if name in dimensions] if stratify else None


def write_report(
    out: Path,
    part: ReplayScope,
    whole: ReportInput,
    stratify: Sequence[str] = (),
    submit: Submit = deferred,
) -> FinishedReport:
    """Write the files of a report; ``submit`` takes a call that may run in another process.

    Raises:
        UnknownDimension: No row of any kind has a dimension of ``stratify``.
        BadRows: A line is not a row.
    """
    outcome = whole.outcome
    report = Report(stratify or None, part.scoring.intervals)
    write_lines(out / ROWS, add_to_report(whole.rows, report))
    conversations = submit(add_rows, out / ROWS, Conversations(), "conversations")
    retrieval, generation, buckets = whole.retrieval(), whole.generation(), whole.buckets()
    _check_dimensions(stratify, {*STRATA} | retrieval.dimensions | generation.dimensions)
    if {*report.recorded} & (retrieval.dimensions | {*stratify}):
        report.add_recorded(recorded_dimensions(out / ROWS, retrieval.of_turns()))
    content = report.document(outcome, part.source, part.config, generation=generation.content) | {
        "retrieval": retrieval.content()
    }
    write_json(out, "report.json", content)
    lines = {
        ROWS: report.rows,
        BUCKETS: buckets,
        QUERIES: retrieval.rows,
        RELEVANT: retrieval.rows,
        TURNS: generation.rows,
    }
    write_json(
        out,
        PARTS,
        {
            "schema_version": SCHEMA_VERSION,
            "source": list(part.source),
            "config": part.config,
            "turn_scope": part.turn_scope,
            "now": part.now_us,
            "windows": list(part.windows),
            "lines": lines,
            "outcome": outcome.as_data(),
        },
    )
    return FinishedReport(content, RowSummaries(conversations(), retrieval.shown))


def _check_dimensions(asked: Sequence[str], known: Collection[str]) -> None:
    for name in asked:
        if name not in known:
            there = ", ".join(sorted(known))
            raise UnknownDimension(f"no row has the dimension {name!r}; there are: {there}")


def write_merged_report(
    out: Path,
    part: ReplayScope,
    outcome: Outcome,
    sources: Sequence[PieceFiles],
    stratify: Sequence[str],
    *,
    folder: Path,
    figures: SearchFigures | None = None,
    submit: Submit = deferred,
) -> FinishedReport:
    """Write the files of a report that merges many sources; ``folder`` takes intermediate files.

    ``figures`` are those of all searches; None: they are taken from the lines. ``submit`` takes
    calls that may run in another process.

    Raises ``pool.WorkerDied``, ``BadRows`` and ``UnknownDimension``.
    """
    with at_most_fan_in(sources, part.options.history(0), folder) as left:
        write: Callable[[], int]
        if figures is None:
            figures = SearchFigures(part.metrics)
            lines = scored_queries(merged_query_lines(left), figures)
            write = partial(write_queries, out / QUERIES, out / RELEVANT, lines)
        else:
            write = submit(_merged_queries, out, left)
        whole = ReportInput(
            outcome,
            merged_rows(left),
            submit(_merged_buckets, out, part, outcome, left),
            partial(submit_searches, part, write, figures, stratify, submit),
            submit(_merged_generation, out, part, left, stratify),
        )
        return write_report(out, part, whole, stratify, submit)


def merged_windows(
    folder: Path, part: ReplayScope, outcome: Outcome, sources: Sequence[PieceFiles]
) -> dict[str, Any]:
    """The content of ``windows.json`` of many sources; ``folder`` takes intermediate files."""
    sums, history = outcome.window_sums(part.options), part.options.history(0)
    with at_most_fan_in(sources, history, folder) as left:
        for number, agent, bucket in merged_buckets(left):
            sums.take(number * history.width_us, agent, bucket)
    return sums.document(history.dimension)


def _merged_buckets(
    out: Path, part: ReplayScope, outcome: Outcome, sources: Sequence[PieceFiles]
) -> int:
    return write_buckets(out, part, outcome, merged_buckets(sources))


def _merged_queries(out: Path, sources: Sequence[PieceFiles]) -> int:
    return write_queries(out / QUERIES, out / RELEVANT, merged_query_lines(sources))


def _merged_generation(
    out: Path, part: ReplayScope, sources: Sequence[PieceFiles], stratify: Sequence[str]
) -> WrittenBlock:
    return write_turns(out, part, merged_turns(sources), stratify)


def read(directory: Path) -> tuple[ReplayScope, Outcome]:
    """What a replay has written to ``directory``; raises ``IncompatibleReplays``."""
    part, outcome, _ = _read(directory)
    return part, outcome


def _read(directory: Path) -> tuple[ReplayScope, Outcome, dict[str, int]]:
    """``read``, and the number of lines in each file."""
    path = directory / PARTS
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
        if content["schema_version"] != SCHEMA_VERSION:
            raise IncompatibleReplays(
                f"{path}: written by another version of stream-metrics; replay its input again"
            )
        part = ReplayScope(
            tuple(content["source"]),
            content["config"],
            content["turn_scope"],
            content["now"],
            tuple(content["windows"]),
        )
        outcome = Outcome.of_data(content["outcome"])
        lines = {name: int(content["lines"][name]) for name in COUNTED}
        if not part.options.windows:
            raise ValueError("it names no windows")
        if content["config"]["dedup"]["tables"] not in (None, *published()):
            raise ValueError("its dedup.tables are of a newer release")
        if not part.scoring.metrics:
            raise ValueError("it names no ranked metrics")
    except FileNotFoundError:
        raise IncompatibleReplays(
            f"{directory}: it has no {PARTS}; name directories that replay wrote"
        ) from None
    except (OSError, *JSON_ERRORS, KeyError, ValueError, TypeError) as error:
        raise IncompatibleReplays(f"{path}: not written by a replay: {error}") from error
    return part, outcome, lines


def _check_lines(directory: Path, lines: Mapping[str, int]) -> None:
    """Raise ``BadRows`` if a file does not have the expected number of lines.

    The files are read for this before anything is written.
    """
    for name, expected in lines.items():
        path, found = directory / name, 0
        with path.open("rb", buffering=0) as file:
            while data := file.read(COUNTED_BYTES):
                found += data.count(b"\n")
        if found != expected:
            raise BadRows(
                f"{path} has {found:,} complete lines, but {expected:,} were written: copy "
                f"{directory} again, or replay its input again"
            )


def merge(directories: Sequence[Path], out: Path, stratify: Sequence[str] = ()) -> FinishedReport:
    """Merge the replays in ``directories`` into one report.

    Raises ``IncompatibleReplays`` if they cannot be merged, ``BadRows`` if their rows contradict
    each other.
    """
    found = [_read(directory) for directory in directories]
    whole = _combined_scope(directories, [part for part, _, _ in found])
    sources = [
        PieceFiles(
            directory / ROWS,
            directory / BUCKETS,
            directory / QUERIES,
            directory / RELEVANT,
            directory / TURNS,
            str(directory),
        )
        for directory in directories
    ]
    outcome = merge_outcomes((one for _, one, _ in found), whole.options)
    try:
        for directory, (_, _, lines) in zip(directories, found, strict=True):
            _check_lines(directory, lines)
        return write_merged_report(out, whole, outcome, sources, stratify, folder=out)
    except FileNotFoundError as error:
        raise BadRows(f"{error.filename}: no such file; replay its input again") from error


def _combined_scope(directories: Sequence[Path], parts: Sequence[ReplayScope]) -> ReplayScope:
    """The scope of the merged parts; raises ``IncompatibleReplays``."""
    first, known = parts[0], set()
    for directory in directories:
        if directory.resolve() in known:
            raise IncompatibleReplays(f"{directory} is named twice; name each directory once")
        known.add(directory.resolve())
    for directory, part in zip(directories[1:], parts[1:], strict=True):
        for name in ("config", "turn_scope", "now_us", "windows"):
            if getattr(part, name) != getattr(first, name):
                raise IncompatibleReplays(
                    f"{directory} and {directories[0]} were replayed with different "
                    f"{_NAMES[name]}; replay one of them again"
                )
    return replace(first, source=tuple(name for part in parts for name in part.source))


COUNTED: Final = (ROWS, BUCKETS, QUERIES, RELEVANT, TURNS)
"""The files whose number of lines is in ``parts.json``."""

_NAMES: Final = {
    "config": "settings",
    "turn_scope": "--turn-scope",
    "now_us": "--now",
    "windows": "windows",
}
