"""Broken builds that score answers by the wrong texts."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

RECORDED: Final = "stream_metrics/lab/replay/recorded.py"
METRICS: Final = "stream_metrics/lab/metrics/generation.py"
MERGE: Final = "stream_metrics/lab/replay/merge_pieces.py"

TEXTS: Final = "tests/unit/test_answers.py::test_texts_are_those_of_the_oracle"
SCORES: Final = "tests/unit/test_generation.py::test_scores_are_those_of_the_oracle"
REPLAYS: Final = (
    "tests/unit/test_replay_answers.py::test_every_way_of_replaying_gives_the_same_answers"
)

ANSWERS: Final = (
    Mutation(
        "texts of duplicates count",
        "duplicate results also support an answer",
        (
            Edit(
                RECORDED,
                "for at in turn.first_results])",
                "for at in range(len(turn.documents))])",
            ),
        ),
        TEXTS,
        "assert found == {",
    ),
    Mutation(
        "the first reference answer counts",
        "an answer is compared with the first reference answer instead of the best",
        (
            Edit(
                METRICS,
                "    return max(score(answer, reference) for reference in words.references)\n",
                "    return max(score(answer, reference) for reference in words.references[:1])\n",
            ),
        ),
        SCORES,
        "in expected.items()",
    ),
    Mutation(
        "answered turns piece by piece",
        "answered turns of a replay's pieces are merged out of order",
        (
            Edit(
                MERGE,
                "    for _, _, line in heapq.merge(*streams, key=_turn_key):\n        yield line\n",
                "    for stream in streams:\n        yield from (line for *_, line in stream)\n",
            ),
        ),
        REPLAYS,
        "found[0] == found[1]",
    ),
)
