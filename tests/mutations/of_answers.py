"""Broken builds that score answers by the wrong texts."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

PASS: Final = "stream_metrics/lab/replay/answers.py"
METRICS: Final = "stream_metrics/lab/metrics/generation.py"
MERGE: Final = "stream_metrics/lab/replay/merge_pieces.py"

TEXTS: Final = "tests/unit/test_answers.py::test_texts_are_those_of_the_oracle"
SCORES: Final = "tests/unit/test_generation.py::test_scores_are_those_of_the_oracle"
MEMBERS: Final = "tests/unit/test_replay_answers.py::test_members_merge_to_the_bytes_of_one"

ANSWERS: Final = (
    Mutation(
        "texts of duplicates count",
        "duplicate results also support an answer",
        (
            Edit(
                PASS,
                "    for position in turn.first_results:\n",
                "    for position in range(len(turn.documents)):\n",
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
        "answered turns member by member",
        "rows of a replay group's members are merged out of order",
        (
            Edit(
                MERGE,
                "    for _, _, line in heapq.merge(*streams, key=_turn_key):\n        yield line\n",
                "    for stream in streams:\n        yield from (line for *_, line in stream)\n",
            ),
        ),
        MEMBERS,
        "whole[name]",
    ),
)
