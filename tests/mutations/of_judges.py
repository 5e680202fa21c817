"""Broken builds whose judges spend too much, or grade what they should not."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

BUDGET: Final = "stream_metrics/core/judge/budget.py"
TURNS: Final = "stream_metrics/core/judge/turns.py"
PROMPT: Final = "stream_metrics/core/judge/prompt.py"
ASKING: Final = "stream_metrics/live/judge/asking.py"

SPENT: Final = (
    "tests/property/test_judge.py::test_judges_that_write_one_log_never_spend_more_than_they_may"
)

SHEET: Final = "stream_metrics/core/judge/sheet.py"

JUDGES: Final = (
    Mutation(
        "all turns at once",
        "calls go to the turns that wait in the order in which they asked, a document each",
        (
            Edit(
                "stream_metrics/live/judge/slots.py",
                "(order, self._came, given)",
                "(0, self._came, given)",
            ),
        ),
        "tests/unit/test_judge_asking.py::test_turns_that_came_first_are_finished_first",
        "assert ",
    ),
    Mutation(
        "any turn was drawn",
        "grades of turns that somebody has added count as a random sample of people",
        (
            Edit(
                "stream_metrics/core/judge/people.py",
                "if any(one.row.drawn != mark for one in each):",
                "if not all(one.row.drawn for one in each):",
            ),
        ),
        "tests/unit/test_judge_commands.py"
        "::test_what_was_not_drawn_gives_no_label_of_a_random_sample",
        "assert ",
    ),
    Mutation(
        "a formula in a cell",
        "a text that begins like a formula is one in a spreadsheet",
        (Edit(SHEET, r"""_FORMULA.sub(r"\1'", """, r"""_FORMULA.sub(r"\1", """),),
        "tests/unit/test_judge_sheet.py::test_no_cell_begins_like_a_formula",
        "assert ",
    ),
    Mutation(
        "calls in flight cost nothing",
        "what is reserved and not settled leaves room for other calls",
        (
            Edit(
                BUDGET,
                "found.total if included else found.total.plus(wanted)",
                "found.used if included else found.used.plus(wanted)",
            ),
        ),
        SPENT,
        "assert ",
    ),
    Mutation(
        "turns without labels are not told",
        "nothing says of turns that wait for labels, or get none, that they are in the sample",
        (Edit("stream_metrics/live/judge/judge.py", "        await self._draw()\n", ""),),
        "tests/unit/test_judge_serve.py::test_a_spent_budget_ends_the_sample_aloud",
        "turns without labels are not told",
    ),
    Mutation(
        "a minute of thirty seconds",
        "calls of the last half minute only count in the limit of a minute",
        (Edit(BUDGET, "WINDOW_SECONDS: Final = 61", "WINDOW_SECONDS: Final = 31"),),
        "tests/property/test_judge.py::test_no_minute_has_more_calls_than_judges_may_make_together",
        "assert ",
    ),
    Mutation(
        "a write that came late",
        "an entry that was given up and stored later replaces the one that followed it",
        (
            Edit(
                BUDGET,
                "elif writer not in entries or entries[writer].revision <= entry.revision:",
                "else:",
            ),
        ),
        "tests/unit/test_judge_budget.py::test_a_revision_that_comes_late_is_ignored",
        "assert ",
    ),
    Mutation(
        "each result is a document",
        "a document of a turn is asked about as often as it was returned",
        (
            Edit(
                TURNS,
                "results.setdefault(document, []).append(position)",
                "results.setdefault(position, []).append(position)",
            ),
        ),
        "tests/unit/test_judge_turns.py"
        "::test_a_document_is_asked_about_once_a_turn_with_the_query_that_found_it_first",
        "assert ",
    ),
    Mutation(
        "what was erased is read",
        "a search that comes after the forget that erases it is sent to the model",
        (Edit(TURNS, "                turn.add(erased.event)\n", "                pass\n"),),
        "tests/unit/test_judge_turns.py"
        "::test_what_was_erased_is_not_asked_about_when_it_comes_later",
        "assert ",
    ),
    Mutation(
        "a grade that is guessed",
        "the first digit of an answer is taken for the grade",
        (
            Edit(
                PROMPT,
                '_GRADE.fullmatch((answer or "").strip(_AROUND))',
                '_GRADE.search((answer or "").strip(_AROUND))',
            ),
        ),
        "tests/unit/test_judge_asking.py::test_a_document_without_a_grade_is_given_up",
        "assert ",
    ),
    Mutation(
        "Retry-After holds one call",
        "the others go on asking an endpoint that has told to wait",
        (
            Edit(
                ASKING,
                "while (left := self._not_before - self._monotonic()) > 0:",
                "while (left := 0.0) > 0:",
            ),
        ),
        "tests/unit/test_judge_asking.py::test_retry_after_holds_all_calls",
        "assert ",
    ),
    Mutation(
        "a cut answer is free",
        "what a failed call may have used is given back",
        (
            Edit(
                ASKING,
                "await self._ledger.settle(hold, None if error.charged else NOTHING)",
                "await self._ledger.settle(hold, NOTHING)",
            ),
        ),
        "tests/unit/test_judge_asking.py::test_after_a_fault_it_asks_again",
        "assert ",
    ),
)
