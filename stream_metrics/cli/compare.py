"""``stream-metrics compare``: compares the first run with each of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    load_settings,
    make_directory,
)
from stream_metrics.cli.compare_tables import as_markdown, print_comparison
from stream_metrics.cli.gates import FailIfOption, fail_if_crossed, read_gates
from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.row import canonical
from stream_metrics.lab.choices import Correction, Test
from stream_metrics.lab.evaluation.compare_runs import Method, compare_runs
from stream_metrics.lab.evaluation.conditions import ANY, COMBINED, Condition, Figures
from stream_metrics.lab.evaluation.estimates import Intervals, UnknownDimension
from stream_metrics.lab.evaluation.notes import Run, no_labels
from stream_metrics.lab.evaluation.observations import UnknownFigure, uses_labels
from stream_metrics.lab.reports.files import write_json, write_text
from stream_metrics.lab.reports.html.comparison import comparison_page
from stream_metrics.lab.reports.run_directory import read_observations, read_report
from stream_metrics.lab.settings import UnpairedChoice
from stream_metrics.live.local.folder import is_log

COMPARISON: Final = "compare.json"
PAGE: Final = "compare.html"
AUTO: Final = "auto"
PARTS: Final = (
    "value", "n", "ci_low", "ci_high", "difference", "difference_low", "difference_high", "effect",
    "p", "p_adjusted", "worse",
)  # fmt: skip
"""The parts of a figure that ``--fail-if`` can refer to."""
TESTED: Final = ("p", "p_adjusted", "worse")
"""The parts that need a significance test."""


def compare(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Output directories of replay or evaluate, or folders of `stream-metrics serve`. "
            "The others are compared with the first."
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric, such as srr or ndcg@10. May be repeated. Default: "
            "`comparison.metrics`; if that is empty, every metric that the first run shares with "
            "another.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Test | None,
        typer.Option(
            help="The test where runs share units. Default: `comparison.test`.",
            show_default=False,
        ),
    ] = None,
    unpaired_test: Annotated[
        UnpairedChoice | None,
        typer.Option(
            help=f"The test where runs share no units; {AUTO} is welch, but bootstrap for "
            "quotients of sums and units with several values. Default: "
            "`comparison.unpaired_test`.",
            show_default=False,
        ),
    ] = None,
    stratify: Annotated[
        list[str] | None,
        typer.Option(
            help="Also compare within each value of this dimension, such as agent or language. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            min=0.0001,
            max=0.5,
            help="Significance level. Default: `comparison.alpha`.",
            show_default=False,
        ),
    ] = None,
    correction: Annotated[
        Correction | None,
        typer.Option(
            help="Correction of the p-values for multiple tests. Default: `comparison.correction`.",
            show_default=False,
        ),
    ] = None,
    resamples: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="Number of resamples of a resampling test. Default: `comparison.resamples`.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Seed of the resamples. Default: `evaluation.seed`.", show_default=False
        ),
    ] = None,
    format_: Annotated[
        Literal["table", "md", "json"],
        typer.Option("--format", help="A table for people, Markdown, or JSON for programs."),
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(help=f"Directory to write {COMPARISON} and {PAGE} to.", show_default=False),
    ] = None,
    fail_if: FailIfOption = None,
    config: ConfigOption = None,
) -> None:
    """Compare runs: values, differences, confidence intervals and significance tests.

    Conversations or queries that both runs have are compared in pairs. p-values are adjusted for
    the number of metrics and runs, so name the few metrics that matter with --metric.
    """
    settings = load_settings(config, connects=False)
    gates = read_gates(fail_if, None, PARTS)
    method = _method(settings, test, unpaired_test, correction, alpha, resamples, seed)
    _check_tested(gates, method)
    metrics = metric or settings.comparison.metrics or None
    try:
        with _runs(directories, settings) as runs:
            _check_labelled(gates, runs, metrics)
            found = compare_runs(runs, method, metrics=metrics, dimensions=stratify or ())
    except UnknownFigure as error:
        where = "--metric" if metric or not metrics else "setting comparison.metrics"
        raise UsageError(f"{where}: {error}") from error
    except UnknownDimension as error:
        raise UsageError(f"--stratify: {error}") from error
    except (ValueError, ModuleNotFoundError) as error:
        raise UsageError(str(error)) from error
    if out is not None:
        make_directory(out)
        write_json(out, COMPARISON, found)
        write_text(out / PAGE, comparison_page(found))
    if format_ == "json":
        typer.echo(canonical(found))
    elif format_ == "md":
        typer.echo(as_markdown(found), nl=False)
    else:
        print_comparison(found)
    if out is not None:
        Console(stderr=True, soft_wrap=True).print(f"written to {out}", markup=False)
    fail_if_crossed(gates, figures_of_comparison(found), PARTS)


def _method(
    settings: Settings,
    test: Test | None,
    unpaired: UnpairedChoice | None,
    correction: Correction | None,
    alpha: float | None,
    resamples: int | None,
    seed: int | None,
) -> Method:
    """The method from the options, with the settings as defaults."""
    chosen = settings.comparison
    other = unpaired or chosen.unpaired_test
    intervals = Intervals.of(settings.evaluation.model_dump())
    seed = settings.evaluation.seed if seed is None else seed
    return Method(
        test or chosen.test,
        None if other == AUTO else other,
        chosen.alpha if alpha is None else alpha,
        resamples or chosen.resamples,
        seed,
        correction or chosen.correction,
        None if intervals is None else intervals._replace(seed=seed),
        chosen.significance_testing,
    )


def _check_tested(gates: Sequence[Condition], method: Method) -> None:
    """Raise ``UsageError`` for conditions on tests that are disabled."""
    for gate in gates:
        if not method.tested and gate.left.rpartition(".")[2] in TESTED:
            raise UsageError(
                f"--fail-if {gate.text!r}: nothing is tested, because "
                "comparison.significance_testing is false"
            )


def _check_labelled(
    gates: Sequence[Condition], runs: Sequence[Run], metrics: Sequence[str] | None
) -> None:
    """Raise ``UsageError`` for conditions on labels if a run has none.

    Conditions on ``any`` figure count as conditions on labels if another run has labels.
    """
    unlabelled = [
        run.name for run in runs if any(one.nothing_labelled for one in run.files.values())
    ]
    compared = metrics or {n for run in runs for one in run.files.values() for n in one.names}
    lost = any(map(uses_labels, compared))
    for gate in gates:
        of_any = gate.left.partition(".")[0] == ANY
        if unlabelled and (uses_labels(gate.left) or (of_any and lost)):
            raise UsageError(f"--fail-if {gate.text!r}: {no_labels(unlabelled)}")


@contextmanager
def _runs(directories: Sequence[Path], settings: Settings) -> Iterator[list[Run]]:
    """The runs; a log is replayed to a temporary folder first."""
    if len(directories) < 2:
        raise UsageError("give at least two directories; the others are compared with the first")
    short = [directory.resolve().name for directory in directories]
    names = short if len(set(short)) == len(short) else [str(one) for one in directories]
    if len(set(names)) < len(names):
        raise UsageError("a directory is given twice")
    with ExitStack() as stack:
        yield [
            Run(name, read_observations(run), read_report(run))
            for name, directory in zip(names, directories, strict=True)
            for run in [_run_directory(directory, settings, stack)]
        ]


def _run_directory(directory: Path, settings: Settings, stack: ExitStack) -> Path:
    if not is_log(directory):
        return directory
    from stream_metrics.cli.replay import replay_log

    out = Path(stack.enter_context(TemporaryDirectory(prefix="stream-metrics-")))
    replay_log(directory, settings, out)
    return out


def figures_of_comparison(found: dict[str, Any]) -> dict[str, Figures]:
    """The figures of each run but the first that a condition can refer to."""
    names = [run["name"] for run in found["runs"]]
    figures: dict[str, dict[str, dict[str, float | bool | None]]] = {run: {} for run in names[1:]}
    for part, suffix in (("family", ""), ("estimates", COMBINED)):
        for table in found.get(part, {"tables": {}})["tables"].values():
            for metric, block in table["metrics"].items():
                compared = {one["run"]: one for one in block["comparisons"]}
                for run, value in zip(names[1:], block["values"][1:], strict=True):
                    parts = _parts(value or {}, compared.get(run) or {})
                    figures[run][metric + suffix] = parts
    return {**figures}


def _parts(value: dict[str, Any], one: dict[str, Any]) -> dict[str, float | bool | None]:
    significant = one.get("significant")
    return {
        **{part: value.get(part) for part in ("value", "n", "ci_low", "ci_high")},
        "difference": one.get("difference"),
        "difference_low": one.get("ci_low"),
        "difference_high": one.get("ci_high"),
        **{part: one.get(part) for part in ("effect", "p", "p_adjusted")},
        "worse": None if significant is None else one.get("verdict") == "worse",
    }
