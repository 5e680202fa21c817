"""Broken builds that compare runs by the wrong units, or draw wrong conclusions."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

COMPARE_RUNS: Final = "stream_metrics/lab/evaluation/compare_runs.py"
CONDITIONS: Final = "stream_metrics/lab/evaluation/conditions.py"
PAIRED: Final = "stream_metrics/lab/statistics/comparison.py"
UNITS: Final = "stream_metrics/lab/statistics/units.py"
SEVERAL: Final = "stream_metrics/lab/statistics/strata_and_corrections.py"
COMPARE: Final = "stream_metrics/cli/compare.py"
GATES: Final = "stream_metrics/cli/gates.py"

_COMPARED: Final = "tests/unit/test_compare.py"
_CONDITIONS: Final = "tests/unit/test_gates.py"
_STATISTICS: Final = "tests/unit/test_statistics.py"

COMPARISONS: Final = (
    Mutation(
        "pairs by position",
        "values are paired by position instead of by query or conversation",
        (
            Edit(
                UNITS,
                "        keys = tuple(sorted(by_unit))\n",
                "        keys = tuple(by_unit)\n",
            ),
            Edit(
                PAIRED,
                "    if a.keys != b.keys:\n",
                "    if len(a.keys) != len(b.keys):\n",
            ),
        ),
        f"{_COMPARED}::test_the_order_of_rows_changes_nothing",
        "assert {",
    ),
    Mutation(
        "pairs compared as independent",
        "units that both runs share are compared as independent",
        (
            Edit(
                COMPARE_RUNS,
                "better, method, paired=bool(both))\n",
                "better, method, paired=False)\n",
            ),
        ),
        f"{_COMPARED}::test_shared_units_are_compared_in_pairs",
        'found["paired"] is True',
    ),
    Mutation(
        "differences with the wrong sign",
        "differences have the wrong sign",
        (
            Edit(
                COMPARE_RUNS,
                "        return compare(units, first, method.paired",
                "        return compare(first, units, method.paired",
            ),
        ),
        f"{_COMPARED}::test_shared_units_are_compared_in_pairs",
        'found["difference"] == expected.difference',
    ),
    Mutation(
        "p-values without adjustment",
        "p-values are not adjusted for multiple tests",
        (
            Edit(
                COMPARE_RUNS,
                'adjusted([comparison["p"] for comparison in tested], method.correction)',
                '[comparison["p"] for comparison in tested]',
            ),
        ),
        f"{_COMPARED}::test_p_values_are_adjusted_over_all_runs_and_metrics",
        "p_adjusted",
    ),
    Mutation(
        "tests that failed are left out of the correction",
        "tests that could not be run are not counted in the correction",
        (
            Edit(
                SEVERAL,
                "        largest = max(largest, min(1.0, p * (len(p_values) - place)))\n",
                "        largest = max(largest, min(1.0, p * (len(order) - place)))\n",
            ),
        ),
        f"{_STATISTICS}::test_tests_that_were_not_made_count_in_the_family",
        "assert",
    ),
    Mutation(
        "adjusted p-values decrease",
        "adjusted p-values are not monotonic",
        (
            Edit(
                SEVERAL,
                "        largest = max(largest, min(1.0, p * (len(p_values) - place)))\n",
                "        largest = min(1.0, p * (len(p_values) - place))\n",
            ),
        ),
        f"{_STATISTICS}::test_holm_is_the_largest_step_so_far",
        "assert",
    ),
    Mutation(
        "higher is always better",
        "a run with more redundancy counts as better",
        (
            Edit(
                COMPARE_RUNS,
                'if (comparison["difference"] > 0) == (better == "higher") else "worse"\n',
                'if comparison["difference"] > 0 else "worse"\n',
            ),
        ),
        f"{_COMPARED}::test_significance_has_a_direction",
        "(True, 'worse')",
    ),
    Mutation(
        "any change is worse",
        "`any.worse` fails a build that improves retrieval",
        (
            Edit(
                COMPARE,
                'None if significant is None else one.get("verdict") == "worse",\n',
                "significant,\n",
            ),
        ),
        f"{_CONDITIONS}::test_ci_fails_if_the_run_is_worse_and_passes_if_it_is_better",
        "assert 1 == 0",
    ),
    Mutation(
        "undefined passes",
        "a condition on an undefined figure passes",
        (
            Edit(
                CONDITIONS,
                'return None if skip_undefined else f"{about} is not defined{why}"\n',
                "return None\n",
            ),
        ),
        f"{_CONDITIONS}::test_an_undefined_metric_fails",
        "assert [] ==",
    ),
    Mutation(
        "failed with exit code 0",
        "a failed condition exits with 0",
        (Edit(GATES, "        raise typer.Exit(1)\n", "        raise typer.Exit(0)\n"),),
        f"{_CONDITIONS}::test_compare_fails_by_differences",
        "assert 0 == 1",
    ),
)
