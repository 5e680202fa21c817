"""Broken builds whose estimates from labels are wrong, or too certain."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

FORMULAS: Final = "stream_metrics/core/alerts/estimates.py"
RECORDS: Final = "stream_metrics/core/alerts/estimate_records.py"
SUMS: Final = "stream_metrics/core/metrics/label_sums.py"

UNITS: Final = "stream_metrics/core/engine/label_units.py"
STEP: Final = "stream_metrics/core/engine/step.py"

_UNITS: Final = "tests/property/test_label_units.py::"
SUMS_TEST: Final = _UNITS + "test_the_sums_of_conversations_are_those_of_the_reference"
LIVE_TEST: Final = _UNITS + "test_the_live_path_keeps_the_sums_of_conversations"
TEST: Final = "tests/unit/test_estimates.py"
RULES: Final = "tests/services/test_estimate_rules.py::test_prometheus_records_what_pages_compute"

ESTIMATES: Final = (
    Mutation(
        "a judge without an error",
        "the combined interval takes what the model says of its own sample as certain",
        (
            Edit(
                FORMULAS,
                "weight * weight * alone.variance + apart.variance",
                "0 * alone.variance + apart.variance",
            ),
        ),
        f"{TEST}::test_conversations_are_estimated_as_clusters_of_turns",
        "assert ",
    ),
    Mutation(
        "a judge that is believed",
        "the combined estimate is the model's, and people do not put it right",
        (
            Edit(
                FORMULAS,
                "both.y - weight * both.f,\n",
                "0 * both.y,\n",
            ),
        ),
        f"{TEST}::test_single_turns_are_estimated_as_by_other_programs",
        "assert ",
    ),
    Mutation(
        "the weight of a half-known judge",
        "the weight of the model ignores how few conversations it labelled",
        (
            Edit(
                FORMULAS,
                "over(enough * together * only.n * (n - 1), both.n * n * squares)",
                "over(enough * together * (n - 1), both.n * squares)",
            ),
        ),
        f"{TEST}::test_single_turns_are_estimated_as_by_other_programs",
        "assert ",
    ),
    Mutation(
        "what was not seen is not there",
        "where all labelled results are good, the interval says that all results are",
        (Edit(FORMULAS, "EDGE: Final = 0.05", "EDGE: Final = 1e-6"),),
        f"{TEST}::test_only_good_results_do_not_prove_that_all_are_good",
        "assert ",
    ),
    Mutation(
        "a backlog of a judge",
        "estimates from a model's labels are shown while many turns are yet to be labelled",
        (Edit(FORMULAS, "_DUE_SHARE: Final = 0.05", "_DUE_SHARE: Final = 0.5"),),
        "tests/unit/test_page_estimates.py::"
        "test_while_the_judge_is_behind_nothing_is_estimated_from_its_labels",
        "assert ",
    ),
    Mutation(
        "what was drawn and not labelled",
        "estimates are shown where the model has not labelled a part of its sample",
        (Edit(FORMULAS, "(unlabelled.n > _FEWEST_DUE)", "(unlabelled.n < 0)"),),
        f"{TEST}::"
        "test_a_sample_of_which_the_model_has_not_labelled_a_part_gives_no_estimate_from_its_labels",
        "assert ",
    ),
    Mutation(
        "unlabelled turns at their first",
        "what the model has not labelled of a conversation stays where its first turn was",
        (
            Edit(
                UNITS,
                "Cell(max(times), agent, _sums(UNLABELLED",
                "Cell(min(times), agent, _sums(UNLABELLED",
            ),
        ),
        SUMS_TEST,
        "== expected(stream)",
    ),
    Mutation(
        "turns that are asked about",
        "a judge counts only those turns as yet to be labelled that it has not begun with",
        (
            Edit(
                "stream_metrics/live/judge/judge.py",
                "return self.asked + sum(",
                "return sum(",
            ),
        ),
        "tests/unit/test_judge_serve.py::"
        "test_turns_without_an_outcome_are_counted_until_they_have_one",
        "turns are not due",
    ),
    Mutation(
        "what few bad results say of others",
        "an interval is as certain where few conversations have bad results as anywhere",
        (Edit(FORMULAS, "UNSEEN: Final = 3", "UNSEEN: Final = 0"),),
        "tests/unit/test_label_calibration.py::test_intervals_hold_where_most_results_are_good",
        "covered=",
    ),
    Mutation(
        "ten-thousandths as they are",
        "products of numerators of searches are scaled as if they were no products",
        (
            Edit(
                SUMS,
                'SEARCH_UNITS ** sum(letter in "yf" for letter in name)',
                "SEARCH_UNITS if name[0] in 'yf' else 1",
            ),
        ),
        f"{TEST}::test_figures_of_searches_are_in_their_own_units",
        "assert ",
    ),
    Mutation(
        "one worker's labels",
        "Prometheus takes the sums of one worker for those of all",
        (
            Edit(
                RECORDS, "sum without (instance, pod, sample", "max without (instance, pod, sample"
            ),
        ),
        RULES,
        "expr: ",
        service=True,
    ),
    Mutation(
        "sums of units add up",
        "what a conversation added before it changed is not taken back",
        (
            Edit(
                STEP,
                "unit_changes(before_units, units_of",
                "unit_changes({}, units_of",
            ),
        ),
        LIVE_TEST,
        "== expected(stream)",
    ),
    Mutation(
        "units at their first turn",
        "the sums of a conversation stay where its first turn was",
        (
            Edit(
                UNITS,
                "Cell(max(times), agent, _sums(sample",
                "Cell(min(times), agent, _sums(sample",
            ),
        ),
        SUMS_TEST,
        "== expected(stream)",
    ),
    Mutation(
        "conversations of people count for the model",
        "a conversation that both labelled is one that the model alone labelled",
        (
            Edit(
                SUMS,
                "SAMPLES: Final = (BOTH, PEOPLE, MODEL)",
                "SAMPLES: Final = (MODEL, PEOPLE, BOTH)",
            ),
        ),
        SUMS_TEST,
        "== expected(stream)",
    ),
    Mutation(
        "turns that wait for labels",
        "an iteration without documents stands for a turn that has no labels yet",
        (Edit(UNITS, "if documents and not any(", "if not documents and not any("),),
        SUMS_TEST,
        "== expected(stream)",
    ),
    Mutation(
        "what a source has said before",
        "labels that come later do not change what a source says of a turn",
        (Edit(STEP, "            turn.turn.judged = None\n", ""),),
        LIVE_TEST,
        "== expected(stream)",
    ),
)
