"""Broken builds whose figures depend on the order of arrival, or are not taken back."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

STEP: Final = "stream_metrics/engine/step.py"
TURN: Final = "stream_metrics/engine/turn.py"
WINDOWS: Final = "stream_metrics/engine/windows.py"
DECODE: Final = "stream_metrics/events/decode.py"

ENGINE: Final = (
    "tests/property/test_engine.py::test_any_arrival_gives_the_rows_and_windows_of_the_reference"
)
RANKED: Final = (
    "tests/property/test_engine.py::test_any_arrival_gives_the_ranked_sums_of_the_reference"
)
RIVALS: Final = (
    "tests/property/test_engine.py::test_of_rival_labels_the_latest_counts_whatever_came_last"
)
LIVE: Final = "tests/property/test_partition.py::test_the_live_path_over_the_memory_store"
FORGETS: Final = "tests/property/test_forget.py::test_forgets_on_every_partition_in_any_order"
FORGOTTEN: Final = "tests/property/test_forget.py::test_when_all_is_forgotten_the_windows_are_empty"
ROWS: Final = "== expected.rows"

FIGURES: Final = (
    Mutation(
        "unsorted first occurrence",
        "the first occurrence of a document is the one that arrived first",
        (
            Edit(
                STEP,
                "        if pending and turn.order and pending[0].precedes(turn.order[-1]):\n"
                "            work.rebuild = True\n",
                "",
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
                STEP,
                "                if not self._beats(standing, carrier.version):\n"
                '                    self._seen.counts["labels_superseded"] += 1\n'
                "                    del mine[result_id]\n"
                "                    continue\n"
                '                self._seen.counts["labels_revised"] += 1\n',
                '                self._seen.counts["labels_revised"] += 1\n',
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
                STEP,
                "            if not self._beats(standing_gate and standing_gate[0], "
                "carrier.version):\n"
                "                continue\n",
                "",
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
                TURN,
                "            self._count_gain(iteration, credited, -1)\n",
                "            pass\n",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "a late label leaves scores",
        "a late label does not change the scores of the turn's searches",
        (
            Edit(
                TURN,
                "        turn.credited[document] = label\n        _forget_scores(turn)\n",
                "        turn.credited[document] = label\n",
            ),
        ),
        RANKED,
        "== expected.windows()",
    ),
    Mutation(
        "a label judges one iteration",
        "a label does not change the sums of the turn's other iterations",
        (
            Edit(
                STEP,
                "        if self._retrieval and turn.ground_truth is None:\n"
                "            self._touch_ranked(turn, work)\n",
                "",
            ),
        ),
        # a replay's windows are from the conversations: only the live ones are added up
        LIVE,
        "== expected.windows()",
    ),
    Mutation(
        "differences for sums",
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
        "windows keep what was forgotten",
        "a forgotten iteration stays in the windows",
        (
            Edit(
                STEP,
                "        for gone in before.values():\n            self._exchange(gone, None)\n",
                "",
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
                STEP,
                "        if conversation.forgotten is not None and event.version[:2] <= "
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
        ROWS,
    ),
)
