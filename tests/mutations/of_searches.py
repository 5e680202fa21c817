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

TREC: Final = "stream_metrics/lab/sources/collection/trec.py"
BEIR: Final = "stream_metrics/lab/sources/collection/beir.py"
SCORING: Final = "stream_metrics/core/metrics/ranking/scoring.py"
CHECKS: Final = "stream_metrics/core/metrics/ranking/checks.py"

TESTS: Final = "tests/unit/test_replay_searches.py"
LINES: Final = "tests/unit/test_divided_lines.py"
CHECKED: Final = "tests/unit/test_checked_input.py"
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
    Mutation(
        "ids end at any white space",
        "an id in a TREC file ends at a no-break space",
        (Edit(TREC, "elif text.isascii() and text.isprintable():", "elif True:"),),
        f"{LINES}::test_white_space_beyond_ascii_is_part_of_ids",
        "Failing test case: test_white_space_beyond_ascii_is_part_of_ids",
    ),
    Mutation(
        "ids end at blanks between tabs",
        "tabs divide a line of a TREC file like any blank",
        (Edit(TREC, 'tabs = text.count("\\t") == len(names) - 1', "tabs = False"),),
        f"{LINES}::test_tabs_divide_fields_with_blanks",
        "InputError",
    ),
    Mutation(
        "a shifted rank and score",
        "the second half of an id is read as the rank, and the rank as the score",
        (Edit(TREC, "            _check_name(path, line, fields, first)\n", "            pass\n"),),
        f"{LINES}::test_an_id_with_a_blank_is_never_cut",
        "DID NOT RAISE",
    ),
    Mutation(
        "quotes of BEIR as signs",
        "the quotes around an id in qrels of BEIR are part of it",
        (Edit(BEIR, "strict=True)", "quoting=csv.QUOTE_NONE)"),),
        f"{LINES}::test_what_csv_writes_is_read",
        "== qrels",
    ),
    Mutation(
        "overflow as an undefined score",
        "a grade that is too large for its gain makes a score null, which leaves the mean",
        (
            Edit(SCORING, "largest > limit(metric)", "False"),
            Edit(SCORING, 'over="raise", divide="raise", invalid="raise"', 'all="ignore"'),
            Edit(SCORING, "        _check_undefined(values, metrics)\n", "        pass\n"),
        ),
        f"{CHECKED}::test_a_grade_too_large_for_a_gain_is_refused",
        "DID NOT RAISE",
    ),
    Mutation(
        "texts as scores",
        "scores that are texts are ordered as texts",
        (Edit(CHECKS, "if set(map(type, scores.values())) <= NUMBERS:", "if True:"),),
        f"{CHECKED}::test_a_score_is_a_number",
        "TypeError: '>' not supported",
    ),
    Mutation(
        "ids of two types",
        '1 and "1" count as ids of different documents',
        (Edit(CHECKS, "    if len(first) > 1:\n", "    if False:\n"),),
        f"{CHECKED}::test_ids_of_different_types_are_refused",
        "DID NOT RAISE",
    ),
    Mutation(
        "nothing in common scores zero",
        "a run that has no judged document of any query scores 0 without a word",
        (
            Edit(
                "stream_metrics/cli/evaluate.py",
                "    if apart is not None:\n",
                "    if False:\n",
            ),
        ),
        "tests/unit/test_evaluate.py::test_an_error_is_one_line_and_code_2[no document in common]",
        "written to out",
    ),
)
