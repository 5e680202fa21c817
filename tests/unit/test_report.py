"""The figures of a report: the same as plain ones, from columns and sums that merge."""

from __future__ import annotations

import json
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.adapters.replay.run import run
from stream_metrics.metrics.exact import exact_sum, rounded
from stream_metrics.statistics.intervals import estimate
from stream_metrics.statistics.units import Units
from stream_metrics.worker.report import MACRO
from tests.replays import AT_ONCE, Told, task, traffic

FINITE = st.floats(
    allow_nan=False, allow_infinity=False, width=64, min_value=-1e300, max_value=1e300
)
ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.one_of(st.none(), st.floats(0, 4))), max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@given(st.lists(FINITE, max_size=20), st.integers(0, 20))
def test_exact_sums_merge_to_what_fsum_gives(values: list[float], cut: int) -> None:
    """Wherever the values are cut in two, the sum of the sums is the correctly rounded sum."""
    assert rounded(exact_sum(values[:cut]) + exact_sum(values[cut:])) == fsum(values)


@given(ROWS)
def test_a_mean_from_columns_is_that_from_rows(rows: list[tuple[int, float | None]]) -> None:
    """Numbered units in columns give every figure that named units in rows give."""
    unit = np.array([one for one, _ in rows], dtype=np.int64)
    values = np.array([np.nan if value is None else value for _, value in rows])

    found = Units.of_columns(unit, values)

    assert estimate(found) == estimate(Units.of_values((str(one), value) for one, value in rows))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_a_ratio_from_columns_is_that_from_rows(rows: list[tuple[int, int, int]]) -> None:
    """The same for quotients of sums."""
    rows.sort()
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T

    found = Units.of_count_columns(columns[0], columns[1], columns[2])

    expected = Units.of_sums((str(one), above, below) for one, above, below in rows)
    assert estimate(found) == estimate(expected)


@pytest.mark.parametrize("turn_scope", ["last", "all"])
def test_the_figures_of_a_report_are_those_of_its_rows(turn_scope: str, tmp_path: Path) -> None:
    """Macro and micro figures, whole and by agent, are estimates of the rows by conversation."""
    report = run(
        task(traffic(), tmp_path, AT_ONCE, turn_scope=turn_scope, stratify=("agent",)), Told()
    )
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


def figures(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Macro and micro figures straight from rows."""
    names = [row["conversation_id"] for row in rows]
    macro = {
        name: Units.of_values(zip(names, (row[name] for row in rows), strict=True))
        for name in MACRO
    }
    quotients = {
        "srr": ("duplicates", "results"),
        "sre": ("good_unique", "results"),
        "avg_gain": ("gain", "results"),
        "rg": ("gain", "n"),
        "labelled": ("labelled", "unique"),
    }
    micro = {
        name: Units.of_sums(
            (row["conversation_id"], row[above] or 0, row[below] or 0) for row in rows
        )
        for name, (above, below) in quotients.items()
    }
    return (
        {name: shown(units, "mean") for name, units in macro.items()},
        {name: shown(units, "value") for name, units in micro.items()},
    )


def shown(units: Units, figure: str) -> dict[str, Any]:
    """An estimate as a report has it."""
    found = estimate(units)
    return {
        figure: found.mean,
        "n": found.n,
        "sd": found.sd,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
    }
