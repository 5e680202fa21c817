"""``stream-metrics evaluate``: ranked-retrieval metrics of a run over a test collection."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stream_metrics import __version__
from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    load_settings,
    make_directory,
)
from stream_metrics.cli.figures import print_retrieval
from stream_metrics.cli.gates import FailIfOption, fail_if_crossed, read_gates
from stream_metrics.cli.predicates import PredicateOption, load_named_predicate, predicate_settings
from stream_metrics.cli.settings import masked_settings
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.metrics.ranking.names import GradeLimit, MetricNameError, RankedMetric
from stream_metrics.lab.evaluation.collection import (
    Collection,
    Joined,
    JudgingOptions,
    Run,
    Similarities,
    join,
    similarity_formulas,
)
from stream_metrics.lab.evaluation.estimates import Block, Intervals, UnknownDimension
from stream_metrics.lab.evaluation.hpo import HumanPhenotypeOntology
from stream_metrics.lab.evaluation.report_figures import PARTS, SCHEMA_VERSION, figures_of_report
from stream_metrics.lab.evaluation.retrieval import retrieval_block
from stream_metrics.lab.evaluation.scoring import ScoredRankings, metrics_of, score_rankings
from stream_metrics.lab.replay.report_files import PARTS as OF_PARTS
from stream_metrics.lab.reports.files import (
    BUCKETS,
    PARQUET,
    QUERIES,
    RELEVANT,
    ROWS,
    TURNS,
    write_json,
    write_rows,
    write_text,
)
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.settings import EvaluationSettings
from stream_metrics.lab.sources.collection.sources import Truth, read_run, read_truth

PLAIN_EVERY: Final = 1_000_000
HIDDEN_SETTINGS: Final = ("batch_results", "hpo_folder", "token_overlap")
"""Settings that reports leave out, because they change no figure or are paths on this machine."""
NO_TRUTH: Final = Truth("trec", Collection())


class _Sources(NamedTuple):
    """The files to read, and options for reading them."""

    run: Path
    qrels: Path | None
    split: str | None
    subtopics: bool
    float32: bool
    nothing_in_common: bool


class _Read(NamedTuple):
    """The metrics, judgements and run that were read."""

    metrics: list[RankedMetric]
    truth: Truth
    run: Run


def evaluate(
    run: Annotated[
        Path,
        typer.Option(
            help="The retrieved documents: a TREC run, or JSONL with {case_id, retrieved} on each "
            "line; plain, gzip or zstd."
        ),
    ],
    qrels: Annotated[
        Path | None,
        typer.Option(
            help="The relevance judgements: TREC qrels, a BEIR folder or one of its qrels files, "
            "or a JSON file (or folder) of test cases. Required unless --predicate is given.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric, such as ndcg@10, or a suite: default, chatbot, answers, code, "
            "ontology. May be given several times. Default: `evaluation.metrics`.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for queries.jsonl, report.json, report.html and run.json.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="Score only the first N queries, ordered by id.", show_default=False
        ),
    ] = None,
    stratify: Annotated[
        list[str] | None,
        typer.Option(
            help="A dimension of the queries to break the metrics down by, such as language. May "
            "be repeated. Default: every dimension with 2 to 50 values.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        Literal["qrels", "intersection"],
        typer.Option(
            help="What to do with a query that is missing from the run: [bold]qrels[/bold] scores "
            "it 0, [bold]intersection[/bold] leaves it out."
        ),
    ] = "qrels",
    predicate: PredicateOption = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="The split of a BEIR folder, that is, which file in qrels/. Default: test.",
            show_default=False,
        ),
    ] = None,
    subtopic_qrels: Annotated[
        bool,
        typer.Option(
            "--subtopic-qrels",
            help="Read the second field of the qrels as a subtopic (for alpha_ndcg).",
        ),
    ] = False,
    ignore_identical_ids: Annotated[
        bool,
        typer.Option(
            "--ignore-identical-ids",
            help="Drop results whose id equals the query's id, as BEIR does.",
        ),
    ] = False,
    allow_no_common_documents: Annotated[
        bool,
        typer.Option(
            "--allow-no-common-documents",
            help="Accept a run in which no query has any of its judged documents. Otherwise that "
            "is an error, because the ids are probably of different kinds.",
        ),
    ] = False,
    trec_float32: Annotated[
        bool,
        typer.Option(
            "--trec-float32",
            help="Round scores to single precision, to get the same ties as trec_eval.",
        ),
    ] = False,
    format_: FormatOption = "table",
    fail_if: FailIfOption = None,
    config: ConfigOption = None,
) -> None:
    """Score a run against relevance judgements: NDCG, MRR, recall and more, with intervals.

    Prints the metrics. With --out, also writes queries.jsonl (one row per query), report.json,
    report.html and run.json. All but run.json are byte-identical for the same input and settings.
    """
    settings = load_settings(config, connects=False)
    chosen = settings.evaluation
    if metric:
        chosen = chosen.model_copy(update={"metrics": tuple(metric)})
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: this is a file; name a directory")
    with _usage_errors():
        names = [str(one) for one in metrics_of(chosen.metrics)]
    gates = read_gates(fail_if, names, PARTS)
    rule = load_named_predicate(predicate or chosen.predicate)
    if qrels is None and rule is None:
        raise UsageError("give relevance judgements with --qrels, or a rule with --predicate")
    if qrels is None and (split is not None or subtopic_qrels):
        raise UsageError("--split and --subtopic-qrels need --qrels")
    if rule is not None and similarity_formulas(metrics_of(chosen.metrics)):
        raise UsageError(
            f"--predicate {rule.name}: max_ont_sim needs the expected terms, which a predicate "
            "does not give; leave out one of them"
        )
    judging = JudgingOptions(
        rel=chosen.rel,
        graded=chosen.graded_relevance,
        queries=queries,
        ignore_identical_ids=ignore_identical_ids,
        limit=limit,
        fallback=None if rule is None else rule.relevance,
    )
    started = time.perf_counter()
    with _ProgressReporter() as reading:
        sources = _Sources(
            run, qrels, split, subtopic_qrels, trec_float32, allow_no_common_documents
        )
        read = _read(sources, chosen, reading)
        reading.say("scoring")
        joined = _joined(read, judging, chosen, reading)
        scored, block = _scored(read, joined, chosen, stratify)
    for line in reading.remarks:
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)
    options = {
        "queries": queries,
        "ignore_identical_ids": ignore_identical_ids,
        "trec_float32": trec_float32,
        "subtopic_qrels": subtopic_qrels,
        "split": split,
        "limit": limit,
        "stratify": stratify or None,
    }
    shown = {**masked_settings(settings)["evaluation"], "metrics": list(chosen.metrics)}
    for name in HIDDEN_SETTINGS:
        del shown[name]
    shown |= predicate_settings(rule)
    source = [one.name for one in (run, qrels) if one is not None]
    report = _report(block, source, {"evaluation": shown, "options": options})
    if out is not None:
        _write(out, scored, report, time.perf_counter() - started)
    if format_ == "json":
        typer.echo(canonical(report))
    else:
        print_retrieval(block, [str(one) for one in read.metrics], stratify)
    if out is not None:
        Console(stderr=True, soft_wrap=True).print(f"written to {out}", markup=False)
    fail_if_crossed(gates, {"": figures_of_report({"retrieval": block})}, PARTS)


REPLAY_FILES: Final = (
    ROWS, PARQUET, RELEVANT, TURNS, BUCKETS, "windows.json", OF_PARTS,
)  # fmt: skip
"""Files of a report that an evaluation does not have."""


class _ProgressReporter:
    """Shows the current step and the number of lines read on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=self._console, disable=not self._console.is_terminal, transient=True
        )
        self._lines = 0
        self.remarks: list[str] = []
        """What was passed over in the files, to be printed unless the command fails."""

    def __enter__(self) -> _ProgressReporter:
        self._progress.start()
        self._task = self._progress.add_task("reading")
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, what: str) -> None:
        """Show a step."""
        self._progress.update(self._task, description=what)

    def lines(self, more: int) -> None:
        """Count further lines that were read."""
        before, self._lines = self._lines, self._lines + more
        self.say(f"{self._lines:,} lines read")
        if before // PLAIN_EVERY < self._lines // PLAIN_EVERY and not self._console.is_terminal:
            self._console.print(f"{self._lines:,} lines read")


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Convert errors about metrics, options and files into ``UsageError``."""
    try:
        yield
    except MetricNameError as error:
        raise UsageError(f"--metric: {error}") from error
    except UnknownDimension as error:
        raise UsageError(f"--stratify: {error}") from error
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    except (ValueError, ModuleNotFoundError) as error:
        raise UsageError(str(error)) from error


def _read(sources: _Sources, chosen: EvaluationSettings, reading: _ProgressReporter) -> _Read:
    run, qrels, split, subtopics, float32, _ = sources
    with _usage_errors():
        metrics = metrics_of(chosen.metrics)
        truth = NO_TRUTH
        if qrels is not None:
            truth = read_truth(
                qrels,
                subtopics=subtopics,
                split=split,
                limit=GradeLimit.of(metrics),
                progress=reading.lines,
                say=reading.remarks.append,
            )
        found = read_run(run, float32=float32, progress=reading.lines, say=reading.remarks.append)
    if qrels is not None:
        _check_common(sources, truth.collection, found)
    return _Read(metrics, truth, found)


def _check_common(sources: _Sources, collection: Collection, run: Run) -> None:
    """Raise ``UsageError`` if the run has no query of the qrels, or none of their documents."""
    files = f"{sources.run} and {sources.qrels}"
    queries = [query for query in collection.queries if query in run]
    if not queries:
        raise UsageError(
            f"{files} have no query in common. Compare their ids, for example "
            f"{_example(run)} and {_example(collection.queries)}"
        )
    if sources.nothing_in_common:
        return
    apart = collection.documents_apart(run)
    if apart is not None:
        raise UsageError(
            f"{files} have no document in common in any query. Compare their ids, for example "
            f"{apart.retrieved!r} and {apart.judged!r} of query {apart.query}. If nothing relevant "
            "was retrieved, give --allow-no-common-documents"
        )


def _example(ids: Any) -> str:
    return next((repr(one) for one in ids), "none")


def _joined(
    read: _Read, judging: JudgingOptions, chosen: EvaluationSettings, reading: _ProgressReporter
) -> Joined:
    formulas = similarity_formulas(read.metrics)
    similarities = None
    with _usage_errors():
        if formulas:
            reading.say("loading the ontology, which takes about 20 seconds")
            ontology = HumanPhenotypeOntology(chosen.hpo_folder)
            similarities = Similarities(ontology, formulas)
        joined = join(read.truth.collection, read.run, judging, similarities)
    if not joined.rankings:
        raise UsageError("the predicate applies to no query of the run (total is None for each)")
    return joined


def _scored(
    read: _Read, joined: Joined, chosen: EvaluationSettings, stratify: list[str] | None
) -> tuple[ScoredRankings, Block]:
    with _usage_errors():
        scored = score_rankings(joined.rankings, read.metrics, cells=chosen.batch_results)
        block = retrieval_block(
            [scored],
            intervals=Intervals.of(chosen.model_dump()),
            dimensions=stratify,
            missing=joined.missing,
            dropped=joined.dropped,
        )
    return scored, block


def _report(block: Block, source: list[str], config: dict[str, Any]) -> dict[str, Any]:
    """The content of ``report.json``; blocks that need a replay of events are null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": source,
        "config": config,
        "counts": None,
        "aggregate": None,
        "strata": {},
        "gate": None,
        "routing": None,
        "reranking": None,
        "retrieval": block,
        "generation": None,
    }


def _write(out: Path, scored: ScoredRankings, report: dict[str, Any], seconds: float) -> None:
    make_directory(out)
    write_rows(out, scored.rows(), QUERIES)
    write_json(out, "report.json", report)
    for name in REPLAY_FILES:  # left by another run
        (out / name).unlink(missing_ok=True)
    run = {
        "version": __version__,
        "python": platform.python_version(),
        "seconds": round(seconds, 3),
        "queries_per_second": round(len(scored.places) / seconds) if seconds else None,
    }
    write_text(out / "run.json", json.dumps(run, indent=2) + "\n")
    write_report_page(out)
