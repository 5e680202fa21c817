"""``--fail-if``: the conditions, and the exit codes of commands that have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.lab.evaluation.conditions import (
    ConditionError,
    Figures,
    parse_condition,
    resolve,
    violations,
)
from stream_metrics.lab.evaluation.report_figures import REPLAY_FIGURES, figures_of_report
from stream_metrics.lab.replay.outcome import Outcome
from stream_metrics.lab.replay.report import Report
from tests.helpers import refused
from tests.unit.test_compare import folder, invoke

__all__ = ["folder"]

PARTS = ("value", "ci_low", "difference", "worse")
NAMES = ["srr", "srr.macro", "ndcg@10", "rbp(p=0.5)", "iterations_for_all_good_results.qrels"]


@pytest.mark.parametrize(("text", "figure"), [
    ("srr>0.4", ("srr", "value")),
    ("srr.macro >= .4", ("srr.macro", "value")),
    ("srr.macro.ci_low<0", ("srr.macro", "ci_low")),
    (" ndcg_at_10 <= 1e-3 ", ("ndcg@10", "value")),
    ("rbp(p=0.5)<0.2", ("rbp(p=0.5)", "value")),
    ("rbp(p=0.5).difference<-0.02", ("rbp(p=0.5)", "difference")),
    ("iterations_for_all_good_results.qrels>9", ("iterations_for_all_good_results.qrels", "value")),
    ("ndcg@10.worse", ("ndcg@10", "worse")),
    ("any.worse", ("any", "worse")),
])  # fmt: skip
def test_a_condition_has_a_metric_an_optional_part_and_a_bound(
    text: str, figure: tuple[str, str]
) -> None:
    """Names may contain points and brackets."""
    assert resolve(parse_condition(text), NAMES, PARTS) == figure


@pytest.mark.parametrize(("text", "message"), [
    ("srr", "is not a condition: write a figure"),
    ("srr=0.4", "is not a condition"),
    ("srr>", "is not a condition"),
    ("srr>0.4>0.5", "is not a condition"),
    ("srr>much", "'much' is not a number"),
    ("srr>nan", "'nan' is not a number"),
    ("srr>0.1_5", "'0.1_5' is not a number"),
    ("srr>inf", "'inf' is not a number"),
    ("srs>0.4", "did you mean srr"),
    ("srr.ci_lo>0.4", "one of ci_low, difference, worse"),
    ("srr.worse>0.4", "is true or false"),
])  # fmt: skip
def test_an_invalid_condition_is_refused(text: str, message: str) -> None:
    """The error shows the syntax or suggests a name."""
    with pytest.raises(ConditionError, match=message):
        resolve(parse_condition(text), NAMES, PARTS)


@pytest.mark.parametrize(("sign", "holds"), [
    (">", (False, False, True)), (">=", (False, True, True)),
    ("<", (True, False, False)), ("<=", (True, True, False)),
])  # fmt: skip
def test_each_of_the_four_comparisons_is_exact_at_its_bound(
    sign: str, holds: tuple[bool, ...]
) -> None:
    """Values below, at and above the bound are compared."""
    found = [
        bool(violations([parse_condition(f"srr{sign}0.5")], {"": {"srr": {"value": value}}}))
        for value in (0.4, 0.5, 0.6)
    ]

    assert tuple(found) == holds


def test_an_undefined_metric_fails() -> None:
    """A check that could not be made has not passed."""
    said = violations([parse_condition("srr>0.4")], {"": {"srr": {"value": None}}})

    assert said == ["'srr>0.4': srr is not defined"]


@pytest.mark.parametrize(("text", "why"), [
    ("sre<0.5", "sre is not defined, because no document has a label"),
    ("sre.macro.ci_low<0.5", "sre.macro.ci_low is not defined, because no document has a label"),
    ("srr>0.5", "srr is not defined"),
])  # fmt: skip
def test_the_failure_of_an_undefined_label_metric_says_that_labels_are_missing(
    text: str, why: str
) -> None:
    """The line about the failed check names the cause."""
    nothing: dict[str, float | bool | None] = {"value": None, "ci_low": None}
    figures = dict.fromkeys(("sre", "sre.macro", "srr"), nothing)
    found: Figures = {**figures, "counts.unique": {"value": 7}, "counts.labelled": {"value": 0}}

    assert violations([parse_condition(text)], {"": found}, PARTS) == [f"{text!r}: {why}"]


@pytest.mark.parametrize("unique", [0, 7])
def test_the_failure_mentions_labels_only_if_they_would_help(unique: int) -> None:
    """A replay without searches has no SRE either, and one with labels has another cause."""
    found: Figures = {
        "sre": {"value": None},
        "counts.unique": {"value": unique},
        "counts.labelled": {"value": unique},
    }

    assert violations([parse_condition("sre<0.5")], {"": found}) == [
        "'sre<0.5': sre is not defined"
    ]


def test_any_considers_the_tests_that_were_made() -> None:
    """``any.worse`` names each metric that is worse, and none that could not be tested."""
    found: Figures = {"srr": {"worse": True}, "mrr": {"worse": False}, "judged@10": {"worse": None}}

    said = violations([parse_condition("any.worse")], {"B": found}, PARTS)

    assert said == ["'any.worse': srr is significantly worse in B"]


def test_any_fails_if_nothing_could_be_tested() -> None:
    """Four queries are too few for a test, and a check that could not be made has not passed."""
    found: Figures = {"srr": {"worse": None}, "mrr": {}}

    said = violations([parse_condition("any.worse")], {"B": found}, PARTS)

    assert said == ["'any.worse': nothing could be tested in B"]


def test_every_metric_of_a_replay_can_be_in_a_condition() -> None:
    """The names checked before a replay are those of its report."""
    report = Report().document(Outcome(), [], {})

    assert set(figures_of_report(report)) == set(REPLAY_FIGURES)


# -- commands ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_replay_fails_above_the_bound_and_passes_below(folder: Path) -> None:
    """The exit code is 1 with a line per condition that holds; files are still written."""
    invoke("generate", "--out", "t.jsonl", "--conversations", "5")

    done = CliRunner().invoke(
        app, ["replay", "t.jsonl", "--out", "r", "--fail-if", "srr>0.01", "--fail-if", "srr>0.99",
              "--fail-if", "counts.results>1"]
    )  # fmt: skip

    assert done.exit_code == 1
    assert done.stderr.count("failed: ") == 2
    assert "failed: 'srr>0.01': srr is 0." in done.stderr
    assert (folder / "r" / "report.json").exists()
    invoke("replay", "t.jsonl", "--out", "r", "--fail-if", "srr>0.99")


def test_evaluate_fails_by_a_bound_of_an_interval(folder: Path) -> None:
    """Conditions may use parts of a metric, such as the lower bound."""
    common = ("evaluate", "--run", "A.run", "--qrels", "qrels", "--metric", "ndcg@5")

    invoke(*common, "--fail-if", "ndcg@5.ci_low<0.99", code=1)
    invoke(*common, "--fail-if", "ndcg@5.ci_low<0.01")


def test_compare_fails_by_differences(folder: Path) -> None:
    """A run that is slightly better passes a condition on losses."""
    common = ("compare", "A", "B", "--resamples", "100")

    invoke(*common, "--fail-if", "ndcg@5.difference<1", code=1)
    invoke(*common, "--fail-if", "ndcg@5.difference<-0.9", "--fail-if", "any.worse")


def test_ci_fails_if_the_run_is_worse_and_passes_if_it_is_better(folder: Path) -> None:
    """Both differences are significant, but only one is a reason to fail."""
    lines = [
        f"q{q} Q0 d{d} 1 {1 if (folder / 'qrels').read_text().count(f'q{q} 0 d{d} 0') else 2} m"
        for q in range(40)
        for d in range(8)
    ]
    (folder / "best.run").write_text("\n".join(lines))
    invoke("evaluate", "--run", "best.run", "--qrels", "qrels", "--metric", "ndcg@5",
           "--out", "best")  # fmt: skip
    common = ("--resamples", "200", "--fail-if", "any.worse")

    invoke("compare", "A", "best", *common)
    invoke("compare", "best", "A", *common, code=1)


@pytest.mark.parametrize("arguments", [
    ("replay", "none.jsonl", "--fail-if", "srrr>0.4"),
    ("evaluate", "--run", "none", "--qrels", "none", "--fail-if", "ndgc@10<1"),
])  # fmt: skip
def test_an_unknown_metric_is_refused_before_anything_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """A typing error shows at once, not after hours."""
    assert "did you mean" in refused(capsys, *arguments)
