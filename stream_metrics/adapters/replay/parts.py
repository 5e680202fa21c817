"""A report's directory as a part of a larger one: what has to be the same, and what is added up.

Beside rows, windows and report a replay writes ``parts.json``. It holds what the other files do not
tell exactly enough to merge them with those of other members: the sums of the reranking
comparisons, the counts of records, and how many lines each file has, so that one that lost some is
noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from stream_metrics.adapters.replay.merge import (
    BadRows,
    Bucket,
    Found,
    Searched,
    bucket_lines,
    few,
    merged_buckets,
    merged_queries,
    merged_rows,
    merged_turns,
    reported,
    scored_queries,
    scored_turns,
    told,
    write_queries,
)
from stream_metrics.adapters.reports import (
    BUCKETS,
    NO_JSON,
    QUERIES,
    RELEVANT,
    ROWS,
    TURNS,
    write_json,
    write_lines,
)
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.windows import parse_window
from stream_metrics.evaluation.beside import Submit, deferred
from stream_metrics.evaluation.estimates import UnknownDimension
from stream_metrics.evaluation.gathered import Queries
from stream_metrics.evaluation.generation import Generation
from stream_metrics.evaluation.recorded import Scoring
from stream_metrics.evaluation.report import Retrieval
from stream_metrics.worker.outcome import Options, Outcome, merged
from stream_metrics.worker.report import STRATA, Figures, Report

PARTS: Final = "parts.json"
SCHEMA_VERSION: Final = 2
COUNTED_BYTES: Final = 1 << 20


class BadPart(Exception):
    """Directories that are no parts of one replay; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a directory is a part of.

    ``members`` are the shares that are in it, each as (i, n); empty if all of the source is.
    """

    source: tuple[str, ...]
    config: dict[str, Any]
    turn_scope: str
    now_us: int | None
    windows: tuple[str, ...]
    members: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        source: Sequence[str],
        config: dict[str, Any],
        options: Options,
        member: tuple[int, int] | None,
    ) -> Self:
        """The part that a replay is."""
        return cls(
            tuple(source),
            config,
            options.turn_scope,
            options.now_us,
            tuple(window.name for window in options.windows),
            () if member in (None, (1, 1)) else (member,),
        )

    @property
    def options(self) -> Options:
        """What merging depends on."""
        metrics = self.config["metrics"]
        return Options(
            EngineConfig(dimension=metrics["dimension"]),
            self.turn_scope,
            tuple(metrics["agents"]),
            tuple(metrics["routes"]),
            tuple(parse_window(name) for name in self.windows),
            self.now_us,
        )

    @property
    def scoring(self) -> Scoring:
        """How searches are scored."""
        return Scoring.of(self.config["evaluation"], self.config["metrics"]["good_gain"])


class Block(NamedTuple):
    """A block of the report that has files of its own, and what its rows can be split by.

    ``rows`` is how many there are.
    """

    content: dict[str, Any] | None
    dimensions: set[str]
    rows: int


class Begun(NamedTuple):
    """The same of searches; ``content`` waits for what is computed beside the rest.

    ``shown`` is what the page shows of the rows.
    """

    content: Callable[[], dict[str, Any]]
    dimensions: set[str]
    rows: int
    shown: Queries


class Finished(NamedTuple):
    """The content of a report, and what its page shows of the rows of searches."""

    content: dict[str, Any]
    searches: Queries


@dataclass(frozen=True, slots=True)
class Whole:
    """All that a report is made of: the outcome, rows in order, and what has files of its own.

    ``rows`` are lines behind what a report needs of them. The others have written their files when
    they return; ``buckets`` says how many lines that are.
    """

    outcome: Outcome
    rows: Iterable[tuple[Figures, str]]
    buckets: Callable[[], int]
    retrieval: Callable[[], Begun]
    generation: Callable[[], Block]


def buckets_of(out: Path, part: Part, outcome: Outcome, buckets: Iterable[Bucket]) -> int:
    """Write buckets in order, and the window sums that they make; how many lines of buckets."""
    options = part.options
    windows = outcome.window_sums(options)
    lines = bucket_lines(buckets, options.history(outcome.last_event_us), windows.take)
    written = write_lines(out / BUCKETS, lines)
    write_json(out, "windows.json", windows.document())
    return written


def retrieval_of(
    out: Path,
    part: Part,
    searches: Iterable[Searched],
    stratify: Sequence[str] = (),
    begin: Submit = deferred,
) -> Begun:
    """Write lines of searches and those of ``relevant.jsonl``, each in order; their block.

    ``begin`` takes what can be computed beside the rest.

    Raises ``BadRows`` for what is no row.
    """
    metrics = [str(metric) for metric in part.scoring.metrics]
    found, shown = Retrieval(metrics), Queries.of(metrics)
    rows = write_queries(out / QUERIES, out / RELEVANT, scored_queries(searches, found, shown))
    split = _known(stratify, found.dimensions)
    content = found.submit_block(intervals=part.scoring.intervals, dimensions=split, submit=begin)
    return Begun(content, found.dimensions, rows, shown)


def generation_of(
    out: Path, part: Part, lines: Iterable[str], stratify: Sequence[str] = ()
) -> Block:
    """Write lines of answered turns, in order; their block; raises ``BadRows``."""
    found = Generation()
    rows = write_lines(out / TURNS, scored_turns(lines, found))
    split = _known(stratify, found.dimensions)
    content = found.block(intervals=part.scoring.intervals, dimensions=split)
    return Block(content, found.dimensions, rows)


def _known(stratify: Sequence[str], dimensions: Collection[str]) -> list[str] | None:
    """Those that rows of this kind have; None if none were asked for."""
    return [name for name in stratify if name in dimensions] if stratify else None


def finish(out: Path, part: Part, whole: Whole, stratify: Sequence[str] = ()) -> Finished:
    """Write the files of a report.

    Raises:
        UnknownDimension: No row of any kind has a dimension of ``stratify``.
        BadRows: A line is no row.
    """
    outcome = whole.outcome
    report = Report(stratify or None, part.scoring.intervals)
    write_lines(out / ROWS, reported(whole.rows, report))
    retrieval, generation, buckets = whole.retrieval(), whole.generation(), whole.buckets()
    _check_dimensions(stratify, {*STRATA} | retrieval.dimensions | generation.dimensions)
    if {*report.recorded} & (retrieval.dimensions | {*stratify}):
        report.tell(told(out / ROWS, out / QUERIES))
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
            "members": [list(member) for member in part.members],
            "lines": lines,
            "outcome": outcome.as_data(),
        },
    )
    return Finished(content, retrieval.shown)


def _check_dimensions(asked: Sequence[str], known: Collection[str]) -> None:
    for name in asked:
        if name not in known:
            there = ", ".join(sorted(known))
            raise UnknownDimension(f"no row has the dimension {name!r}; there are: {there}")


def finish_merged(
    out: Path,
    part: Part,
    outcome: Outcome,
    sources: Sequence[Found],
    stratify: Sequence[str],
    *,
    folder: Path,
    begin: Submit = deferred,
) -> Finished:
    """Write the files of a report of many sources, by way of ``folder``.

    ``begin`` takes what can be done beside the rest.

    Raises ``pool.WorkerDied``, ``BadRows`` and ``UnknownDimension``.
    """
    with few(sources, part.options.history(0), folder) as left:
        whole = Whole(
            outcome,
            merged_rows(left),
            begin(_merged_buckets, out, part, outcome, left),
            partial(retrieval_of, out, part, merged_queries(left), stratify, begin),
            begin(_merged_generation, out, part, left, stratify),
        )
        return finish(out, part, whole, stratify)


def _merged_buckets(out: Path, part: Part, outcome: Outcome, sources: Sequence[Found]) -> int:
    return buckets_of(out, part, outcome, merged_buckets(sources))


def _merged_generation(
    out: Path, part: Part, sources: Sequence[Found], stratify: Sequence[str]
) -> Block:
    return generation_of(out, part, merged_turns(sources), stratify)


def read(directory: Path) -> tuple[Part, Outcome]:
    """What a replay has written to ``directory``; raises ``BadPart``."""
    part, outcome, _ = _read(directory)
    return part, outcome


def _read(directory: Path) -> tuple[Part, Outcome, dict[str, int]]:
    """The same, and how many lines each file has."""
    path = directory / PARTS
    try:
        content: Any = msgspec.json.decode(path.read_bytes())
        if content["schema_version"] != SCHEMA_VERSION:
            raise BadPart(
                f"{path}: written by another version of stream-metrics; replay its input again"
            )
        part = Part(
            tuple(content["source"]),
            content["config"],
            content["turn_scope"],
            content["now"],
            tuple(content["windows"]),
            tuple((index, of) for index, of in content["members"]),
        )
        outcome = Outcome.of_data(content["outcome"])
        lines = {name: int(content["lines"][name]) for name in COUNTED}
        if not part.options.windows:
            raise ValueError("it names no windows")
        if not part.scoring.metrics:
            raise ValueError("it names no ranked metrics")
    except FileNotFoundError:
        raise BadPart(f"{directory}: no {PARTS} here; name directories that replay wrote") from None
    except (OSError, *NO_JSON, KeyError, ValueError, TypeError) as error:
        raise BadPart(f"{path}: not written by a replay: {error}") from error
    return part, outcome, lines


def _check_lines(directory: Path, lines: Mapping[str, int]) -> None:
    """Raise ``BadRows`` if a file has other than so many lines: rows are gone, or too many.

    This comes before anything is written, for which the files are read once more.
    """
    for name, expected in lines.items():
        path, found = directory / name, 0
        with path.open("rb", buffering=0) as file:
            while data := file.read(COUNTED_BYTES):
                found += data.count(b"\n")
        if found != expected:
            raise BadRows(
                f"{path} has {found:,} lines, and {expected:,} were written (the last one counts "
                f"if it is whole): copy {directory} again, or replay its input again"
            )


def merge(directories: Sequence[Path], out: Path, stratify: Sequence[str] = ()) -> Finished:
    """Make one report of the parts in ``directories``.

    Raises ``BadPart`` where they are not parts of one whole, ``BadRows`` where their rows do not
    fit together.
    """
    found = [_read(directory) for directory in directories]
    whole = _whole(directories, [part for part, _, _ in found])
    sources = [
        Found(
            directory / ROWS,
            directory / BUCKETS,
            directory / QUERIES,
            directory / RELEVANT,
            directory / TURNS,
            str(directory),
        )
        for directory in directories
    ]
    outcomes = [one for _, one, _ in found]
    if len({part.source for part, _, _ in found}) > 1:
        outcomes = [_with_source(part, one) for part, one, _ in found]
    outcome = merged(outcomes, whole.options)
    try:
        for directory, (_, _, lines) in zip(directories, found, strict=True):
            _check_lines(directory, lines)
        return finish_merged(out, whole, outcome, sources, stratify, folder=out)
    except FileNotFoundError as error:
        raise BadRows(f"{error.filename}: no such file; replay its input again") from error


def missing_members(directory: Path) -> list[str]:
    """The shares of the source that are not in a directory, as i/n; raises ``BadPart``."""
    members = read(directory)[0].members
    if not members:
        return []
    of = members[0][1]
    return [f"{index}/{of}" for index in range(1, of + 1) if (index, of) not in members]


def _with_source(part: Part, outcome: Outcome) -> Outcome:
    """The outcome with bad records that say which input their numbers are of."""
    name = ", ".join(part.source)
    bad = (replace(one, source=one.source or name) for one in outcome.rejected)
    return replace(outcome, rejected=tuple(bad))


def _whole(directories: Sequence[Path], parts: Sequence[Part]) -> Part:
    """What the parts make together; raises ``BadPart``."""
    first = parts[0]
    for directory, part in zip(directories[1:], parts[1:], strict=True):
        for name in ("config", "turn_scope", "now_us", "windows"):
            if getattr(part, name) != getattr(first, name):
                raise BadPart(
                    f"{directory} and {directories[0]} were replayed with different "
                    f"{_NAMES[name]}; replay one of them again"
                )
    sources = dict.fromkeys(part.source for part in parts)
    members = [member for part in parts for member in part.members]
    if len(sources) == 1:
        return replace(first, members=_together(first.source, parts, members))
    return replace(first, source=tuple(name for source in sources for name in source), members=())


def _together(
    source: Sequence[str], parts: Sequence[Part], members: list[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """The members that parts of one source make; none if they are the whole of it."""
    if len(parts) == 1:
        return parts[0].members
    shown = ", ".join(source)
    counts = {of for _, of in members}
    if not all(part.members for part in parts) or len(counts) > 1 or len({*members}) < len(members):
        given = ", ".join(
            " and ".join(f"{index}/{of}" for index, of in part.members) or "all" for part in parts
        )
        raise BadPart(
            f"the directories hold overlapping shares of {shown} ({given}); give each member of "
            "one replay group once"
        )
    (of,) = counts
    return () if len(members) == of else tuple(sorted(members))


COUNTED: Final = (ROWS, BUCKETS, QUERIES, RELEVANT, TURNS)
"""The files of which parts.json has the number of lines."""

_NAMES: Final = {
    "config": "settings",
    "turn_scope": "--turn-scope",
    "now_us": "--now",
    "windows": "windows",
}
