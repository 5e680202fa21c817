"""``stream-metrics replay`` and ``report``: figures from recorded events."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from stream_metrics import __version__
from stream_metrics.cli.common import (
    ConfigOption,
    NowOption,
    OutOption,
    TurnScopeOption,
    UsageError,
    load_settings,
    make_directory,
    parse_time,
)
from stream_metrics.cli.gates import FailIfOption, fail_if_crossed, read_gates
from stream_metrics.cli.predicates import PredicateOption
from stream_metrics.cli.progress import show_progress
from stream_metrics.cli.replay_options import check_usable, conversation_link, replay_options
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import KAFKA, SinceOption, Sources, UntilOption
from stream_metrics.cli.trace_files import with_folders
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.events.limits import limit_of
from stream_metrics.core.metrics.labels import MODEL_OFF, by_model_text, labels_of_models
from stream_metrics.core.metrics.ranking.relevance import PredicateError
from stream_metrics.lab.evaluation.estimates import UnknownDimension
from stream_metrics.lab.evaluation.generation import BadSimilarity
from stream_metrics.lab.evaluation.observations import uses_labels
from stream_metrics.lab.evaluation.recorded_searches import UndefinedMetric
from stream_metrics.lab.evaluation.report_figures import (
    PARTS,
    REPLAY_FIGURES,
    beyond_limit_of,
    figures_of_report,
    without_ids_of,
    without_labels,
)
from stream_metrics.lab.evaluation.semantic import BadModel, check_model
from stream_metrics.lab.evaluation.shown_estimates import (
    COLUMNS,
    TITLE,
    Shown,
    corrects_sre,
    shown_estimates,
)
from stream_metrics.lab.replay import report_files
from stream_metrics.lab.replay.merge_pieces import BadRows
from stream_metrics.lab.replay.pool import WorkerDied
from stream_metrics.lab.replay.run import (
    Execution,
    OutputInUse,
    ReplaySource,
    ReplayTask,
    StrictError,
    run,
)
from stream_metrics.lab.replay.spool import SpoolDamaged
from stream_metrics.lab.reports.files import PARQUET, write_text
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.sources.parquet import ParquetError, load_pyarrow

StratifyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--stratify",
        help="Break the metrics down by [bold]agent[/bold], [bold]release[/bold], "
        "[bold]route[/bold] "
        "or a recorded dimension such as language. May be repeated.",
        show_default=False,
    ),
]


RowFormat = Literal["jsonl", "parquet"]
RowFormatOption = Annotated[
    RowFormat,
    typer.Option(
        "--format",
        help="[bold]parquet[/bold] writes conversations.parquet beside conversations.jsonl.",
    ),
]


MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A metric of searches, such as ndcg@10, or a suite: default, chatbot, answers, code. "
        "May be repeated. Default: `evaluation.metrics`.",
        show_default=False,
    ),
]
SbertOption = Annotated[
    Path | None,
    typer.Option(
        "--sbert",
        metavar="FOLDER",
        help="Also score answers with the sentence-transformers model in this folder.",
        show_default=False,
    ),
]
CrossEncoderOption = Annotated[
    Path | None,
    typer.Option(
        "--cross-encoder",
        metavar="FOLDER",
        help="Also score answers with the cross-encoder in this folder.",
        show_default=False,
    ),
]

IntoKafkaOption = Annotated[
    bool,
    typer.Option(
        "--into-kafka", help="Send the records to the input topics instead of computing a report."
    ),
]
SpeedOption = Annotated[
    str | None,
    typer.Option(
        help="With --into-kafka: [bold]1x[/bold] is the recorded pace, [bold]10x[/bold] ten times "
        "as fast, [bold]max[/bold] without pauses. Default: 1x, but max for a folder of "
        "[bold]serve[/bold].",
        show_default=False,
    ),
]
ShiftOption = Annotated[
    bool,
    typer.Option(
        "--shift",
        help="With --into-kafka: move all times so that the recording starts now and shows in "
        "live windows.",
    ),
]


def replay(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="JSONL files (plain, .gz, .zst), Parquet, OTLP traces (JSON or protobuf), globs, "
            "folders of OTLP traces, - for standard input, kafka:TOPIC, or the folder of `serve`."
        ),
    ],
    out: OutOption = Path("out"),
    since: SinceOption = "earliest",
    until: UntilOption = "end",
    now: NowOption = None,
    turn_scope: TurnScopeOption = None,
    strict: Annotated[
        bool,
        typer.Option(help="End with exit code 2 at the first bad record or misspelt field."),
    ] = False,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of worker processes. Default: one per core.", show_default=False
        ),
    ] = None,
    stratify: StratifyOption = None,
    rows_as: RowFormatOption = "jsonl",
    metric: MetricOption = None,
    predicate: PredicateOption = None,
    no_generation: Annotated[
        bool, typer.Option("--no-generation", help="Do not score answers.")
    ] = False,
    sbert: SbertOption = None,
    cross_encoder: CrossEncoderOption = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Start over instead of resuming an interrupted replay."),
    ] = False,
    into_kafka: IntoKafkaOption = False,
    speed: SpeedOption = None,
    shift: ShiftOption = False,
    fail_if: FailIfOption = None,
    config: ConfigOption = None,
) -> None:
    """Run recorded events through the engine and write a report.

    Writes conversations.jsonl, queries.jsonl, relevant.jsonl, turns.jsonl, windows.json,
    buckets.jsonl, report.json, report.html and parts.json to --out, byte-identical for the same
    input and settings, and run.json. Memory is bounded: a large input is spooled to --out. If a
    replay is interrupted, run the same command again to resume it. With --into-kafka, nothing is
    computed here: the records are sent to the input topics, for workers to read.
    """
    reads_topics = any(source.startswith(KAFKA) for source in sources)
    settings = load_settings(config, connects=into_kafka or reads_topics)
    models = _models(sbert_similarity=sbert, cross_encoder_similarity=cross_encoder)
    if models and no_generation:
        raise UsageError("--no-generation scores no answers: leave --sbert and --cross-encoder out")
    options, shown = replay_options(
        settings,
        metrics=metric or (),
        predicate=predicate,
        turn_scope=turn_scope,
        now_us=None if now is None else parse_time("--now", now),
        models=models,
        generation=not no_generation,
    )
    gates = read_gates(fail_if, _figures(options.metrics), PARTS)
    parquet = _parquet(rows_as)
    source = Sources(with_folders(sources), settings, since, until, None if into_kafka else out)
    if into_kafka:
        if gates:
            raise UsageError("--fail-if cannot be used with --into-kafka, which computes nothing")
        from stream_metrics.cli.replay_into_kafka import send_recording  # imports a Kafka client

        send_recording(source, settings, speed, shift=shift)
        return
    if shift or speed is not None:
        raise UsageError("--speed and --shift need --into-kafka: a replay into files never waits")
    chosen = turn_scope or "turn_scope" in settings.metrics.model_fields_set
    if not chosen and source.has_traces:
        options = replace(options, turn_scope="all")
    task = ReplayTask(
        ReplaySource(source.names, source.identity, source.located_records, source.ranges),
        options,
        out,
        shown,
        strict,
        tuple(dict.fromkeys(stratify or ())),
        Execution(processes or _cores(), restart=restart),
    )
    started = time.perf_counter()
    with (
        _directory(out),
        show_progress(lambda: source.offsets) as progress,
        _usage_errors(out),
    ):
        report, summaries = run(task, progress)
        for line in source.missed:
            progress.note(line)
        if parquet:
            _write_parquet(out)
        else:
            (out / PARQUET).unlink(missing_ok=True)  # of another run
    seconds = time.perf_counter() - started
    records = report["counts"]["events"]
    about = {
        "version": __version__,
        "python": platform.python_version(),
        "engine": ENGINE,
        "processes": task.scale.processes,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds) if seconds else None,
        **source.read,
        "input": source.identity,
    }
    write_text(out / "run.json", json.dumps(about, indent=2) + "\n")
    write_report_page(out, summaries, conversation_link(settings))
    _summary(report, out)
    check_usable(report, source.names)
    fail_if_crossed(gates, {"": figures_of_report(report)}, PARTS)


def replay_log(folder: Path, settings: Settings, out: Path) -> None:
    """Replay the log of ``stream-metrics serve`` to ``out``, without a page; raises
    ``UsageError``."""
    chosen = "turn_scope" in settings.metrics.model_fields_set
    options, shown = replay_options(settings, turn_scope=None if chosen else "all")
    source = Sources([str(folder)], settings, "earliest", "end", out)
    task = ReplayTask(
        ReplaySource(source.names, source.identity, source.located_records, source.ranges),
        options,
        out,
        shown,
        False,
        (),
        Execution(_cores()),
    )
    with show_progress(lambda: source.offsets) as progress, _usage_errors(out):
        written, _ = run(task, progress)
    check_usable(written, source.names)


def report(
    directories: Annotated[list[Path], typer.Argument(help="Output directories of replay.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory to write to. Default: the directory itself, if only one is given."
        ),
    ] = None,
    stratify: StratifyOption = None,
    rows_as: RowFormatOption = "jsonl",
    fail_if: FailIfOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the report again, from one directory or from replays of different inputs."""
    settings = load_settings(config, connects=False)
    with _usage_errors(directories[0]):
        metrics = report_files.read(directories[0])[0].metrics
    gates = read_gates(fail_if, _figures(metrics), PARTS)
    if out is None:
        if len(directories) > 1:
            raise UsageError("--out: name a directory for the report of several")
        out = directories[0]
    elif len(directories) > 1 and out.resolve() in {one.resolve() for one in directories}:
        raise UsageError(f"--out {out}: it is one of the directories to merge; name another")
    strata, parquet = tuple(dict.fromkeys(stratify or ())), _parquet(rows_as)
    with _directory(out), _usage_errors(out):
        content, summaries = report_files.merge(directories, out, strata)
        if parquet:
            _write_parquet(out)
        elif out not in directories:
            (out / PARQUET).unlink(missing_ok=True)  # of other directories
    write_report_page(out, summaries, conversation_link(settings))
    _summary(content, out)
    fail_if_crossed(gates, {"": figures_of_report(content)}, PARTS)


@contextmanager
def _directory(out: Path) -> Iterator[None]:
    """Create the output directory; after an error, remove it if it is new and empty."""
    there = out.exists()
    make_directory(out)
    try:
        yield
    except BaseException:
        if not there:
            with suppress(OSError):
                out.rmdir()
        raise


@contextmanager
def _usage_errors(out: Path) -> Iterator[None]:
    """Convert errors that the user can fix into ``UsageError``."""
    try:
        yield
    except (
        BadRows,
        OutputInUse,
        SpoolDamaged,
        StrictError,
        WorkerDied,
        report_files.IncompatibleReplays,
    ) as error:
        raise UsageError(str(error)) from error
    except UnknownDimension as error:
        raise UsageError(f"--stratify: {error}") from error
    except (BadModel, BadSimilarity, PredicateError, UndefinedMetric) as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{error.filename or out}: {error.strerror}") from error


def _cores() -> int:
    """The number of available processors."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _parquet(rows_as: RowFormat) -> bool:
    """Whether Parquet is requested; raises ``UsageError`` if pyarrow is not installed."""
    if rows_as == "parquet":
        try:
            load_pyarrow()
        except ParquetError as error:
            raise UsageError(str(error)) from error
    return rows_as == "parquet"


def _write_parquet(out: Path) -> None:
    """Write the rows as Parquet too."""
    from stream_metrics.lab.reports.row_parquet import write_row_parquet  # models of all columns

    write_row_parquet(out)


def _models(**folders: Path | None) -> tuple[tuple[str, str], ...]:
    """The given model folders, with the names of their metrics; raises ``UsageError``."""
    found = []
    for name, folder in folders.items():
        if folder is not None:
            try:
                check_model(folder)
            except (FileNotFoundError, ModuleNotFoundError) as error:
                raise UsageError(str(error)) from error
            found.append((name, str(folder.resolve())))
    return tuple(found)


def _figures(metrics: Sequence[str]) -> list[str]:
    """The names of all figures of the report."""
    return [*REPLAY_FIGURES, *metrics]


READ_COMBINED = ": read SRE, combined, below"


def _summary(report: dict[str, Any], out: Path) -> None:
    counts, figures = report["counts"], figures_of_report(report)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("records", f"{counts['events']:,}")
    table.add_row("rejected", f"{counts['invalid']:,}")
    table.add_row("conversations", f"{counts['conversations']:,}")
    table.add_row("results", f"{counts['results']:,}, of them {counts['duplicates']:,} duplicates")
    labelled = f"{counts['labelled']:,} labelled{by_model_text(counts)}"
    table.add_row("documents", f"{counts['unique']:,}, of them {labelled}")
    unknown = "- (no document has a label)" if without_labels(report) else "-"
    by_model = labels_of_models(counts)
    whose = f" ({by_model:,} of {counts['labelled']:,} labels are a model's)" if by_model else ""
    for name, title in (("srr", "SRR"), ("sre", "SRE"), ("avg_gain", "gain per result")):
        value = figures[name]["value"]
        said = whose if uses_labels(name) else ""
        said += READ_COMBINED if name == "sre" and corrects_sre(report) else ""
        table.add_row(title, unknown if value is None else f"{value:.4f}{said}")
    table.add_row("written to", str(out))
    console = Console(stderr=True, soft_wrap=True)
    console.print(table)
    if by_model:
        console.print(MODEL_OFF, style="yellow", highlight=False)
    if estimates := shown_estimates(report):
        console.print(_estimates(estimates))
    if (beyond := beyond_limit_of(report)).turns:
        console.print(beyond.text(), style="yellow", highlight=False)
    for text in without_ids_of(report).texts():
        console.print(text, style="yellow", highlight=False, markup=False)
    if (left_out := _left_out(report["bad_records"])) is not None:
        console.print(left_out, style="yellow", highlight=False)


def _estimates(estimates: Sequence[Shown]) -> Table:
    """The table of estimates in the summary."""
    table = Table(*COLUMNS, title=TITLE, title_justify="left", box=None, pad_edge=False)
    for figure, several in groupby(estimates, lambda one: one.figure):
        table.add_row(figure)
        for one in several:
            table.add_row(f"  {one.by}", one.value, one.interval, one.conversations)
    return table


def _left_out(bad: dict[str, Any]) -> str | None:
    """How many of the rejected records are beyond a limit, by its setting; None if none is."""
    limits = Counter(limit_of(one["reason"], one["message"]) for one in bad["first"])
    named = ", ".join(f"{number:,} by `{name}`" for name, number in limits.items() if name)
    least = "at least " if bad["count"] > len(bad["first"]) else ""
    return f"records left out because of limits: {least}{named}" if named else None
