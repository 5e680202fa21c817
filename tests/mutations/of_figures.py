"""Broken builds whose figures depend on the order of arrival, or are not corrected later."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

PLAN: Final = "stream_metrics/core/engine/plan.py"
DERIVE: Final = "stream_metrics/core/engine/derive.py"
LABELLING: Final = "stream_metrics/core/engine/labelling.py"
RANKED_SEARCHES: Final = "stream_metrics/core/engine/ranked.py"
UNITS: Final = "stream_metrics/core/engine/joined.py"
STATE: Final = "stream_metrics/core/engine/state.py"
CELLS: Final = "stream_metrics/core/engine/cells.py"
WINDOWS: Final = "stream_metrics/core/engine/windows.py"
DECODE: Final = "stream_metrics/core/events/decode.py"

ENGINE: Final = (
    "tests/property/test_engine.py::test_any_arrival_gives_the_rows_and_windows_of_the_reference"
)
RANKED: Final = (
    "tests/property/test_engine.py::test_any_arrival_gives_the_ranked_sums_of_the_reference"
)
RIVALS: Final = "tests/property/test_engine.py::test_the_latest_of_rival_labels_counts_in_any_order"
LIVE: Final = "tests/property/test_partition.py::test_the_live_path_over_the_memory_store"
FORGETS: Final = "tests/property/test_forget.py::test_forgets_on_every_partition_in_any_order"
FORGOTTEN: Final = "tests/property/test_forget.py::test_forgetting_everything_empties_the_windows"
ROWS: Final = "== expected.rows"

JOINED: Final = "tests/unit/test_joined.py"

FIGURES: Final = (
    Mutation(
        "the grade of the first id",
        "a document has the grade of the id that it had first, not the best one",
        (
            Edit(
                UNITS,
                "            self.graded[unit] = max(grade, self.graded.get(unit, grade))\n",
                "            self.graded.setdefault(unit, grade)\n",
            ),
        ),
        f"{JOINED}::test_a_document_counts_once_with_the_best_grade_of_its_ids",
        "assert None == 1",
    ),
    Mutation(
        "grades of joined ids by arrival",
        "a search that joins ids leaves the scores of earlier searches as they are",
        (
            Edit(
                DERIVE,
                "        if units_of(turn).changes_with("
                "search.documents, search.fingerprints.documents):\n",
                "        if not units_of(turn):\n",
            ),
        ),
        f"{JOINED}::test_windows_follow_in_any_order",
        "At index 0 diff",
    ),
    Mutation(
        "zeros for results without ids",
        "a search scores 0 if none of its results can be compared with the ground truth",
        (Edit(RANKED_SEARCHES, "without_ids=without and bool(relevant)", "without_ids=False"),),
        f"{JOINED}::test_a_turn_without_ids_has_no_ranked_figures",
        "== [{}, {}]",
    ),
    Mutation(
        "unsorted first occurrence",
        "the first occurrence of a document is the one that arrived first",
        (
            Edit(
                DERIVE,
                " or bool(new and turn.order and new[0].precedes(turn.order[-1]))",
                "",
            ),
        ),
        ENGINE,
        ROWS,
    ),
    Mutation(
        "repeated searches whatever the route",
        "a search repeats one with its query that took another route",
        (Edit(DERIVE, "asked = (query, search.route)", "asked = (query, None)"),),
        ENGINE,
        ROWS,
    ),
    Mutation(
        "repeated searches by arrival",
        "queries of searches that have left the turn, or come later in it, were asked before",
        (
            Edit(
                STATE,
                "        self.asked: set[tuple[bytes, str | None]] = set()\n",
                '        self.asked = getattr(self, "asked", set())\n',
            ),
        ),
        ENGINE,
        ROWS,
    ),
    Mutation(
        "label precedence by arrival",
        "the label of a result that arrived last counts",
        (
            Edit(
                PLAN,
                "            if self._supersedes(incumbent, event):\n",
                "            if register.event_index == 0 or self._supersedes(incumbent, event):\n",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "gate labels by arrival",
        "the gate label of an iteration that arrived last counts",
        (
            Edit(
                PLAN,
                "            if self._supersedes(incumbent, event):\n",
                "            if register.event_index == 2 or self._supersedes(incumbent, event):\n",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "a revised label counts twice",
        "the gain of the previous label is not removed",
        (
            Edit(
                LABELLING,
                "            self._count_gain(iteration, credited, -1)\n",
                "            pass\n",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "a late label does not change scores",
        "a late label does not change the scores of the turn's searches",
        (
            Edit(
                LABELLING,
                "        turn.document_gains[document] = label\n        _drop_scores(turn)\n",
                "        turn.document_gains[document] = label\n",
            ),
        ),
        RANKED,
        "== expected.windows()",
    ),
    Mutation(
        "a label counts for one iteration",
        "a label does not change the sums of the turn's other iterations",
        (
            Edit(
                LABELLING,
                "        if self._ranked and turn.relevant is None:\n"
                "            self._touch_all(turn)\n",
                "",
            ),
        ),
        # A replay computes windows from the conversations; only live windows are added up.
        LIVE,
        "== expected.windows()",
    ),
    Mutation(
        "differences instead of sums",
        "a bucket is set to what a batch adds to it",
        (
            Edit(
                WINDOWS,
                "into = {} if stored is None else decode_sums(stored)",
                "into = {}",
            ),
        ),
        LIVE,
        "== expected.windows()",
    ),
    Mutation(
        "windows keep forgotten iterations",
        "a forgotten iteration stays in the windows",
        (
            Edit(
                CELLS,
                "        replace_cell(old, new, cells)\n    turn.cell",
                "        if new is not None:\n"
                "            replace_cell(old, new, cells)\n    turn.cell",
            ),
        ),
        FORGOTTEN,
        "== [{}] * 3",
    ),
    Mutation(
        "no tombstone",
        "repeated events of a forgotten conversation are accepted",
        (
            Edit(
                PLAN,
                "        if conversation.forgotten is not None and version[:2] <= "
                "conversation.forgotten[:2]:\n",
                "        if False:\n",
            ),
        ),
        FORGETS,
        ROWS,
    ),
    Mutation(
        "other keys are accepted",
        "a record counts although its key belongs to another conversation",
        (
            Edit(
                DECODE,
                "    if key != conversation_id.encode() and (key is not None or require_key):\n"
                "        return None\n",
                "",
            ),
            Edit(
                DECODE,
                "        if key != payload.conversation_id.encode():\n",
                "        if False:\n",
            ),
        ),
        LIVE,
        "in expected.invalid]",
    ),
)
