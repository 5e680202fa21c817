"""``stream-metrics compare``: two or more runs, the first against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from rich.console import Console

from stream_metrics.adapters.html.comparison import comparison_page
from stream_metrics.adapters.reports import write_json, write_text
from stream_metrics.adapters.run_directory import read_observations, read_report
from stream_metrics.cli.common import UsageError, make_directory
from stream_metrics.cli.compare_tables import as_markdown, print_comparison
from stream_metrics.cli.gates import FailIfOption, fail_if_crossed, read_gates
from stream_metrics.engine.row import canonical
from stream_metrics.evaluation.estimates import UnknownDimension
from stream_metrics.evaluation.gates import Figures
from stream_metrics.evaluation.observed import UnknownFigure
from stream_metrics.evaluation.versus import Method, Run, versus
from stream_metrics.statistics.comparison import TEST_RESAMPLES, TESTS, Test
from stream_metrics.statistics.resampling import SEED
from stream_metrics.statistics.several import ALPHA
from stream_metrics.statistics.unpaired import UNPAIRED_TESTS, UnpairedTest

FORMATS: Final = ("table", "md", "json")
COMPARISON: Final = "compare.json"
PAGE: Final = "compare.html"
AUTO: Final = "auto"
PARTS: Final = (
    "value", "n", "ci_low", "ci_high", "difference", "difference_low", "difference_high", "effect",
    "p", "p_adjusted", "worse",
)  # fmt: skip
"""What ``--fail-if`` may ask a figure for."""


def compare(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Directories of replay or evaluate; the others against the first."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A figure, such as srr or ndcg@10. May be given several times. Default: all that "
            "are in the first and in another.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        str, typer.Option(help=f"Where units are shared: {', '.join(TESTS)}.")
    ] = "bootstrap",
    unpaired_test: Annotated[
        str,
        typer.Option(
            help=f"Where none are: {', '.join(UNPAIRED_TESTS)}; {AUTO}: welch, but bootstrap for "
            "quotients of sums and units with several values."
        ),
    ] = AUTO,
    stratify: Annotated[
        list[str] | None,
        typer.Option(
            help="A dimension to compare by as well, such as agent or language. May be given "
            "several times.",
            show_default=False,
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(min=0.0001, max=0.5, help="The level of significance.")
    ] = ALPHA,
    resamples: Annotated[
        int, typer.Option(min=100, help="Draws of a test that resamples.")
    ] = TEST_RESAMPLES,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = SEED,
    format_: Annotated[
        str, typer.Option("--format", help="table, md or json.", show_default=True)
    ] = "table",
    out: Annotated[
        Path | None,
        typer.Option(help=f"Directory for {COMPARISON} and {PAGE}.", show_default=False),
    ] = None,
    fail_if: FailIfOption = None,
) -> None:
    """Compare runs: values, differences, intervals and tests of them.

    Units that both have, conversations or queries, are compared in pairs. p-values are adjusted
    (Holm) over all figures and runs; name the few figures that matter with --metric.
    """
    gates = read_gates(fail_if, None, PARTS)
    if format_ not in FORMATS:
        raise UsageError(f"--format {format_!r}: use {', '.join(FORMATS)}")
    method = _method(test, unpaired_test, alpha, resamples, seed)
    runs = _runs(directories)
    try:
        found = versus(runs, method, metrics=metric or None, dimensions=stratify or ())
    except UnknownFigure as error:
        raise UsageError(f"--metric: {error}") from error
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


def _method(test: str, unpaired: str, alpha: float, resamples: int, seed: int) -> Method:
    paired = next((one for one in get_args(Test) if one == test), None)
    other = next((one for one in get_args(UnpairedTest) if one == unpaired), None)
    if paired is None:
        raise UsageError(f"--test {test!r}: use {', '.join(TESTS)}")
    if other is None and unpaired != AUTO:
        raise UsageError(f"--unpaired-test {unpaired!r}: use {', '.join((AUTO, *UNPAIRED_TESTS))}")
    return Method(paired, other, alpha, resamples, seed)


def _runs(directories: Sequence[Path]) -> list[Run]:
    if len(directories) < 2:
        raise UsageError("give two directories or more: the others are compared with the first")
    short = [directory.resolve().name for directory in directories]
    names = short if len(set(short)) == len(short) else [str(one) for one in directories]
    if len(set(names)) < len(names):
        raise UsageError("a directory is given twice")
    return [
        Run(name, read_observations(directory), read_report(directory))
        for name, directory in zip(names, directories, strict=True)
    ]


def figures_of_comparison(found: dict[str, Any]) -> dict[str, Figures]:
    """Of each run but the first, the figures that a condition may be about."""
    names = [run["name"] for run in found["runs"]]
    figures: dict[str, dict[str, dict[str, float | bool | None]]] = {run: {} for run in names[1:]}
    for table in found["family"]["tables"].values():
        for metric, block in table["metrics"].items():
            compared = {one["run"]: one for one in block["comparisons"]}
            for run, value in zip(names[1:], block["values"][1:], strict=True):
                figures[run][metric] = _parts(value or {}, compared.get(run) or {})
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
