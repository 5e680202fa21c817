"""Broken builds that guess which tools search, or which of several results count."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

TELEMETRY: Final = "stream_metrics/core/telemetry"
TOOLS: Final = f"{TELEMETRY}/retrieval/tools.py"
COMPARED: Final = f"{TELEMETRY}/retrieval/compared.py"
CALLS: Final = f"{TELEMETRY}/retrieval/calls.py"
READING: Final = f"{TELEMETRY}/shapes/reading.py"
UNSEEN: Final = f"{TELEMETRY}/turns/unseen.py"

SEARCHES: Final = "tests/unit/test_tool_searches.py"
SHAPES: Final = "tests/unit/test_shapes.py"

TOOL_RESULTS: Final = (
    Mutation(
        "one sign of a search is enough",
        "messages, orders and rows of a database count as results of a search",
        (Edit(TOOLS, "len(signs) > 1 and not", "len(signs) > 0 and not"),),
        f"{SEARCHES}::test_documents_with_fewer_signs_are_refused_with_the_row_to_copy",
        "assert (one.turns, one.refused) ==",
    ),
    Mutation(
        "the first of two lists",
        "a result with two different lists is read as one of them",
        (
            Edit(
                READING,
                "if first is not None and not same_documents(first.documents, other.documents):",
                "if first is None:",
            ),
        ),
        f"{SHAPES}::test_two_different_lists_are_refused",
        "assert isinstance(found, Unread)",
    ),
    Mutation(
        "content blocks are documents",
        "a block that has all passages counts as one result",
        (Edit(READING, "    if value and all(map(is_block, value)):\n", "    if False:\n"),),
        f"{SHAPES}::test_content_blocks_are_containers",
        "assert identities(read(blocks), by) == found",
    ),
    Mutation(
        "a turn that nobody saw searching is a skip",
        "functions, calls over HTTP and queries of databases count as decisions not to search",
        (
            Edit(
                UNSEEN,
                "            elif (what := self._what(span, row)) is not None:\n",
                '            elif (what := self._what(span, row)) == "the tool":\n',
            ),
        ),
        "tests/unit/test_unseen_searches.py::"
        "test_a_turn_with_a_span_that_may_be_a_search_is_no_skip",
        "unseen_searches",
    ),
    Mutation(
        "messages are not compared",
        "results that differ between a tool's span and the next model call count",
        (
            Edit(
                COMPARED,
                "    if found is None or not result.searches:\n",
                "    if True:\n",
            ),
        ),
        f"{SEARCHES}::test_other_results_in_messages_than_in_the_span_are_refused",
        "assert (one.turns, one.refused) ==",
    ),
    Mutation(
        "an answer that was cut off had no calls",
        "searches of a loop over a model's API vanish with the answer that asked for them",
        (Edit(CALLS, "        if self._added:\n", "        if False:\n"),),
        f"{SEARCHES}::test_a_lost_answer_is_refused_where_calls_stand_in_answers",
        "assert (one.turns, one.refused) ==",
    ),
)
