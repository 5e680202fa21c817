"""Broken builds that ignore recorded data of searches, lose marks, or use unbounded memory."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

RELEVANCE: Final = "stream_metrics/core/metrics/ranking/relevance.py"
SCORED: Final = "stream_metrics/lab/replay/score_texts.py"
MERGE: Final = "stream_metrics/lab/replay/merge_pieces.py"
SPOOL: Final = "stream_metrics/lab/replay/spool.py"
FILES: Final = "stream_metrics/lab/sources/files.py"
UNCHANGED: Final = "stream_metrics/lab/sources/unchanged.py"
REPORT: Final = "stream_metrics/lab/evaluation/retrieval.py"

TESTS: Final = "tests/unit/test_replay_searches.py"
BOUNDS: Final = "tests/unit/test_replay_bounds.py"
RANGES: Final = "tests/property/test_replay_ranges.py"

SEARCHES: Final = (
    Mutation(
        "overlap with the first reference answer only",
        "a text that matches only a later reference answer is not relevant",
        (
            Edit(
                RELEVANCE,
                "            best = max(overlap_f1(text, answer) for answer in answers)\n",
                "            best = max(overlap_f1(text, answer) for answer in answers[:1])\n",
            ),
        ),
        f"{TESTS}::test_under_overlap_metrics_that_need_all_relevant_documents_are_null",
        '["mrr"]',
    ),
    Mutation(
        "every search has a relevant result",
        "searches without anything relevant are not counted as such",
        (
            Edit(
                REPORT,
                "(scored.with_relevant | ~scored.known[:, None])",
                "np.ones_like(scored.with_relevant)",
            ),
        ),
        f"{TESTS}::test_a_query_without_relevant_documents_is_counted",
        "queries_without_relevant",
    ),
    Mutation(
        "a predicate without texts",
        "a custom rule gets digests instead of the results of a labelled turn",
        (Edit(SCORED, "                whole=whole,\n", "                whole=False,\n"),),
        "tests/unit/test_predicate.py::test_a_rule_sees_what_was_recorded",
        "'NoneType' object has no attribute 'fields'",
    ),
    Mutation(
        "searches piece by piece",
        "searches of a replay's pieces are merged out of order",
        (
            Edit(
                MERGE,
                "    for _, _, line, without in heapq.merge(*streams, key=_query_key):\n"
                "        yield line, without\n",
                "    for stream in streams:\n        yield from (one[2:] for one in stream)\n",
            ),
        ),
        f"{TESTS}::test_every_way_of_replaying_gives_the_same_searches",
        "found[0] == found[1]",
    ),
    Mutation(
        "records stay in memory",
        "records written to the spool stay in memory",
        (
            Edit(
                SPOOL,
                "        self._files: list[IO[bytes]] = []\n",
                "        self._files: list[IO[bytes]] = []\n        self._held: list[bytes] = []\n",
            ),
            Edit(
                SPOOL,
                "        self._files[shard].write(data)\n",
                "        self._files[shard].write(data)\n        self._held.append(data)\n",
            ),
        ),
        f"{BOUNDS}::test_memory_does_not_grow_with_the_number_of_records",
        "after.spooling - before.spooling",
    ),
    Mutation(
        "a line belongs to two ranges",
        "a line that begins where a range of a file ends is read with both ranges",
        (
            Edit(
                FILES,
                "file.read(min(BLOCK_BYTES, end - start))",
                "file.read(min(BLOCK_BYTES, end - start + 1))",
            ),
        ),
        f"{RANGES}::test_each_line_is_in_one_range",
        "for line in lines_of(one)] == expected",
    ),
    Mutation(
        "an early end of a file is the end",
        "a range is indexed as far as a file goes that is cut off meanwhile",
        (
            Edit(
                UNCHANGED,
                "            raise\n        check_unchanged(file.fileno(), path, state)\n",
                "            raise\n",
            ),
        ),
        f"{RANGES}::test_a_file_that_is_cut_off_while_a_range_is_read_is_not_indexed",
        "DID NOT RAISE",
    ),
    Mutation(
        "rows of searches stay in memory",
        "a report keeps the rows of all searches instead of their scores",
        (
            Edit(
                REPORT,
                '        self._turns.append(row["turn"])\n',
                '        self._turns.append(row["turn"])\n'
                '        self.__dict__.setdefault("_rows", []).append(row)\n',
            ),
        ),
        f"{BOUNDS}::test_memory_per_search_is_as_documented",
        "found_bytes <= said_bytes",
    ),
)
