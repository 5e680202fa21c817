"""Broken builds that lose or tear what they move: reshard, migrate, rebuild; copies; batches."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

CATCH_UP: Final = "stream_metrics/worker/catch_up.py"
MIGRATE: Final = "stream_metrics/worker/migrate.py"
MOVE: Final = "stream_metrics/worker/move.py"
REBUILD: Final = "stream_metrics/worker/rebuild.py"
REPARTITION: Final = "stream_metrics/worker/repartition.py"
RESHARD: Final = "stream_metrics/worker/reshard.py"
UNPACKING: Final = "stream_metrics/adapters/kafka/internals.py"

RESHARDS: Final = "tests/property/test_reshard.py::test_a_reshard_in_the_middle_of_a_stream"
MIGRATES: Final = "tests/unit/test_schemas.py::test_a_migration_leaves_nothing_of_other_schemas"
REPARTITIONS: Final = (
    "tests/property/test_repartition.py::test_figures_and_dead_letters_are_those_of_the_input"
)
OUTGROWN: Final = "tests/unit/test_rebuild.py::test_records_of_an_earlier_count_are_not_read_again"

MOVES: Final = (
    Mutation(
        "reshard by the old count",
        "a conversation moves to the partition of the old count instead of the new one",
        (
            Edit(
                RESHARD,
                "return _number(partitioner, number_of, conversation_id)",
                "return _number(partitioner, stored.count, conversation_id)",
            ),
        ),
        RESHARDS,
        "== (expected.rows, expected.windows())",
    ),
    Mutation(
        "unread records passed by",
        "`reshard --catch-up` marks unread records as read without processing them",
        (
            Edit(
                CATCH_UP,
                "            await partition.process(records, _once, former=True)\n",
                "            pass\n",
            ),
        ),
        RESHARDS,
        "== (expected.rows, expected.windows())",
    ),
    Mutation(
        "migrate as it was",
        "`migrate` to another schema copies conversations unchanged",
        (
            Edit(
                MIGRATE,
                "lambda _, home: home, convert)",
                "lambda _, home: home)",
            ),
        ),
        MIGRATES,
        'assert found["conversations"] == made["conversations"]',
    ),
    Mutation(
        "rebuild from the end",
        "a rebuild reads from the end of the logs instead of their beginning",
        (
            Edit(
                REBUILD,
                "Position(extents[topic, number].first)",
                "Position(extents[topic, number].end)",
            ),
        ),
        "tests/unit/test_rebuild.py::test_other_settings_read_the_topics_again",
        "== await anew()",
    ),
    Mutation(
        "rebuild behind a reshard",
        "a rebuild reads records that an earlier partition count placed elsewhere",
        (Edit(REBUILD, "            _refuse_outgrown(stored, extents, anew)\n", ""),),
        OUTGROWN,
        "DID NOT RAISE",
    ),
    Mutation(
        "rebuild of a cut log",
        "a topic that lost records in one log is mistaken for a new topic",
        (Edit(REBUILD, "return another - known", "return another"),),
        "tests/unit/test_rebuild.py::test_a_log_that_has_lost_records_does_not_make_another_topic",
        "DID NOT RAISE",
    ),
    Mutation(
        "new partitions unseen",
        "`reshard` leaves all records on new partitions to the workers",
        (
            Edit(
                RESHARD,
                "new_astray = astray.found.keys() - {*stored.places}",
                "new_astray = set[Place]()",
            ),
        ),
        RESHARDS,
        "== (expected.rows, expected.windows())",
    ),
    Mutation(
        "drafts without a look",
        "drafts replace the old partitions although the store has lost writes to those",
        (
            Edit(
                MOVE,
                "        if state.positions != positions:\n            raise WentBack(number)\n",
                "",
            ),
        ),
        "tests/unit/test_move.py::test_a_store_that_goes_back_while_drafts_are_built",
        "assert await group.shown() == expected",
    ),
    Mutation(
        "workers before rows",
        "workers may start before rows changed by a migration are on the output topic",
        (Edit(MOVE, "        if not await store.switched():\n", "        if True:\n"),),
        "tests/unit/test_publish.py::test_rows_that_were_not_sent_keep_the_workers_out",
        'held_by() == "migrate"',
    ),
    Mutation(
        "rows of what a merge forgets",
        "a conversation that was forgotten on another partition keeps its row on the output topic",
        (Edit(RESHARD, "mark, self._outputs, notes.gone, way)", "mark, self._outputs, (), way)"),),
        "tests/unit/test_pieces.py::test_a_piece_that_is_forgotten_takes_its_row_along",
        "value is None",
    ),
    Mutation(
        "commit before copies",
        "input records count as copied before they are on the internal topic",
        (
            Edit(
                REPARTITION,
                "        copies, letters = self._route(records)\n",
                "        copies, letters = self._route(records)\n"
                "        await self._inputs.taken()\n",
            ),
        ),
        REPARTITIONS,
        "== [canonical(row) for row in replay.rows()]",
    ),
    Mutation(
        "batches of any size",
        "a record batch is read whatever its decompressed size",
        (
            Edit(
                UNPACKING,
                "        found = decode(data, self.limit_bytes)\n",
                "        found = decode(data, 1 << 30)\n",
            ),
        ),
        "tests/unit/test_unpacking.py::test_a_bomb_is_refused",
        "DID NOT RAISE",
    ),
    Mutation(
        "rounds of any size",
        "one fetch round decompresses everything fetched",
        (
            Edit(
                UNPACKING,
                "if self._taken >= ROUND * self.limit_bytes:",
                "if False:",
            ),
        ),
        "tests/unit/test_unpacking.py::test_a_round_takes_so_much_and_no_more",
        "== ROUND + 1",
    ),
)
