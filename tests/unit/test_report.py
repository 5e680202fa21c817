"""The figures of a report equal those of a direct computation."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.metrics.scaled_sums import scaled_sum, unscaled
from stream_metrics.lab.evaluation.report_figures import figures_of_report
from stream_metrics.lab.replay.report import MACRO
from stream_metrics.lab.replay.report_files import merge
from stream_metrics.lab.replay.run import Execution, run
from stream_metrics.lab.reports.run_directory import read_observations
from stream_metrics.lab.statistics.intervals import estimate
from stream_metrics.lab.statistics.units import Units
from tests.oracle.strata import quotients
from tests.replays import AT_ONCE, RecordedProgress, task, traffic

FINITE = st.floats(
    allow_nan=False, allow_infinity=False, width=64, min_value=-1e300, max_value=1e300
)
ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.none(), st.floats(0, 4))), max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@given(st.lists(FINITE, max_size=20), st.integers(0, 20))
def test_exact_sums_merge_to_the_result_of_fsum(values: list[float], cut: int) -> None:
    """Wherever the values are split, the sum of the two sums is the correctly rounded sum."""
    assert unscaled(scaled_sum(values[:cut]) + scaled_sum(values[cut:])) == fsum(values)


@given(ROWS)
def test_a_mean_from_columns_equals_that_from_rows(rows: list[tuple[int, float | None]]) -> None:
    """Numbered units in columns give the same estimate as named units in rows."""
    unit = np.array([one for one, _ in rows], dtype=np.int64)
    values = np.array([np.nan if value is None else value for _, value in rows])

    found = Units.of_columns(unit, values)

    assert estimate(found) == estimate(Units.of_values((str(one), value) for one, value in rows))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_a_ratio_from_columns_equals_that_from_rows(rows: list[tuple[int, int, int]]) -> None:
    """This holds for ratios of sums as for means."""
    rows.sort()
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T

    found = Units.of_count_columns(columns[0], columns[1], columns[2])

    expected = Units.of_sums((str(one), above, below) for one, above, below in rows)
    assert estimate(found) == estimate(expected)


@pytest.mark.parametrize("turn_scope", ["last", "all"])
def test_the_figures_of_a_report_are_those_of_its_rows(turn_scope: str, tmp_path: Path) -> None:
    """Macro and micro figures, overall and by agent, are estimates over conversations."""
    report = run(
        task(traffic(), tmp_path, AT_ONCE, turn_scope=turn_scope, stratify=("agent",)),
        RecordedProgress(),
    ).content
    lines = (tmp_path / "conversations.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]

    aggregate = report["aggregate"]
    assert figures(rows) == (aggregate["macro"], aggregate["micro_intervals"])
    strata = report["strata"]["agent"]["strata"]
    assert set(strata) == {row["agent"] for row in rows}
    assert len(strata) > 1
    for agent, found in strata.items():
        own = [row for row in rows if row["agent"] == agent]
        assert figures(own) == (found["macro"], found["micro"])
        assert found["conversations"] == len({row["conversation_id"] for row in own})


DECISIONS = (
    "gate_efficiency", "gate_accuracy", "skip_precision", "skip_recall", "routing_accuracy"
)  # fmt: skip
"""The ratios of the blocks ``gate`` and ``routing``."""


def test_ratios_of_gate_and_routing_have_their_intervals(tmp_path: Path) -> None:
    """Their values are those of the blocks; a figure by name has value and interval."""
    report = run(task(traffic(), tmp_path, AT_ONCE), RecordedProgress()).content

    found = report["aggregate"]["micro_intervals"]
    named = figures_of_report(report)
    assert set(DECISIONS) <= set(found)
    for name in DECISIONS:
        block = report["routing" if name.startswith("routing") else "gate"]
        value = block[name.removeprefix("gate_").removeprefix("routing_")]
        assert value == found[name]["value"]
        assert found[name]["ci_low"] <= value <= found[name]["ci_high"]
        assert named[name] == found[name]


def test_comparisons_compute_the_same_intervals(tmp_path: Path) -> None:
    """``compare`` computes from the rows the intervals that the report has of decisions."""
    report = run(task(traffic(), tmp_path, AT_ONCE), RecordedProgress()).content

    rows = read_observations(tmp_path)["conversations"]
    for name in DECISIONS:
        assert shown(rows.figure(name), "value") == report["aggregate"]["micro_intervals"][name]


@pytest.mark.parametrize("turn_scope", ["last", "all"])
def test_iterations_for_all_good_results_have_their_intervals(
    turn_scope: str, tmp_path: Path
) -> None:
    """Mean, deviation and bounds of each basis are those that ``compare`` computes."""
    report = run(
        task(traffic(), tmp_path, AT_ONCE, turn_scope=turn_scope), RecordedProgress()
    ).content

    rows = read_observations(tmp_path)["conversations"]
    for basis, found in report["aggregate"]["iterations_for_all_good_results"].items():
        expected = estimate(rows.figure(f"iterations_for_all_good_results.{basis}"))
        assert (found["mean"], found["n"], found["sd"]) == expected[:2] + expected[3:4]
        assert (found["ci_low"], found["ci_high"]) == (expected.ci_low, expected.ci_high)
        assert found["n"] > 1


CHOSEN = {"confidence_intervals": True, "interval": "bca", "confidence": 0.8, "resamples": 300,
          "seed": 5}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale",
    [AT_ONCE, Execution(small_records=0, piece_bytes=20_000)],
    ids=["in memory", "in parts"],
)
def test_the_intervals_of_a_report_follow_its_settings(scale: Execution, tmp_path: Path) -> None:
    """Method, confidence, resamples and seed apply to macro, micro, strata and answers."""
    report = run(
        task(traffic(150), tmp_path, scale, stratify=("agent",), evaluation=CHOSEN),
        RecordedProgress(),
    ).content
    rows = [json.loads(one) for one in (tmp_path / "conversations.jsonl").read_text().splitlines()]
    options = {"method": "bca", "confidence": 0.8, "resample_count": 300, "seed": 5}

    aggregate = report["aggregate"]
    assert figures(rows, **options) == (aggregate["macro"], aggregate["micro_intervals"])
    agent = rows[0]["agent"]
    own = [row for row in rows if row["agent"] == agent]
    stratum = report["strata"]["agent"]["strata"][agent]
    assert figures(own, **options) == (stratum["macro"], stratum["micro"])
    answers = report["generation"]["metrics"]["token_f1"]
    turns = [json.loads(one) for one in (tmp_path / "turns.jsonl").read_text().splitlines()]
    scores = Units.of_values(
        (turn["conversation_id"], turn["scores"]["token_f1"]) for turn in turns
    )
    assert shown(scores, "mean", **options).items() <= answers.items()


@pytest.mark.slow
def test_a_report_may_have_no_intervals(tmp_path: Path) -> None:
    """Means and deviations are the same, and every bound is null."""
    off = {**CHOSEN, "confidence_intervals": False}
    with_them = run(task(traffic(), tmp_path / "one", AT_ONCE), RecordedProgress()).content[
        "aggregate"
    ]

    found = run(
        task(traffic(), tmp_path / "two", AT_ONCE, evaluation=off), RecordedProgress()
    ).content["aggregate"]

    for block in ("macro", "micro_intervals"):
        for name, one in found[block].items():
            assert (one["ci_low"], one["ci_high"]) == (None, None)
            kept = {key: value for key, value in one.items() if not key.startswith("ci_")}
            assert kept.items() <= with_them[block][name].items()


def test_a_regenerated_report_keeps_its_intervals(tmp_path: Path) -> None:
    """``report`` reads the settings of intervals from the directory."""
    run(task(traffic(), tmp_path, AT_ONCE, evaluation=CHOSEN), RecordedProgress())
    before = (tmp_path / "report.json").read_bytes()

    merge([tmp_path], tmp_path)

    assert (tmp_path / "report.json").read_bytes() == before


def figures(rows: list[dict[str, Any]], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Macro and micro figures computed directly from rows."""
    names = [row["conversation_id"] for row in rows]
    macro = {
        name: Units.of_values(zip(names, (row[name] for row in rows), strict=True))
        for name in MACRO
    }
    sums = [quotients(row) for row in rows]
    micro = {
        name: Units.of_sums((unit, *one[name]) for unit, one in zip(names, sums, strict=True))
        for name in sums[0]
    }
    return (
        {name: shown(units, "mean", **options) for name, units in macro.items()},
        {name: shown(units, "value", **options) for name, units in micro.items()},
    )


def shown(units: Units, figure: str, **options: Any) -> dict[str, Any]:
    """An estimate with the fields of a report."""
    found = estimate(units, **options)
    return {
        figure: found.mean,
        "n": found.n,
        "sd": found.sd,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
    }
