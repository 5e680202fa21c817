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
UNPACKING: Final = "stream_metrics/adapters/kafka/unpacking.py"

RESHARDS: Final = "tests/property/test_reshard.py::test_a_reshard_in_the_middle_of_a_stream"
MIGRATES: Final = "tests/unit/test_schemas.py::test_a_migration_leaves_nothing_of_other_schemas"
REPARTITIONS: Final = (
    "tests/property/test_repartition.py::test_figures_and_dead_letters_are_those_of_the_input"
)
OUTGROWN: Final = "tests/unit/test_rebuild.py::test_records_of_an_earlier_count_are_not_read_again"

MOVES: Final = (
    Mutation(
        "reshard by the old count",
        "a conversation goes to where its key's records came before, not to where they will come",
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
        "`reshard --catch-up` counts the records that are unread as read, and takes none of them",
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
        "`migrate` to another schema takes conversations over as they are stored",
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
        "after a rebuild reading goes on where the logs end, not where they begin",
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
        "records are read again that lie where an earlier partition count put them",
        (Edit(REBUILD, "            _refuse_outgrown(stored, extents, anew)\n", ""),),
        OUTGROWN,
        "DID NOT RAISE",
    ),
    Mutation(
        "rebuild of a cut log",
        "a topic of which one log has lost records is taken for one that was made anew",
        (Edit(REBUILD, "return another - known", "return another"),),
        "tests/unit/test_rebuild.py::test_a_log_that_has_lost_records_does_not_make_another_topic",
        "DID NOT RAISE",
    ),
    Mutation(
        "new partitions unseen",
        "`reshard` leaves records on new partitions to workers, whichever count put them there",
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
        "drafts take the places of the old partitions though the store has lost writes to them",
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
        "workers may start though rows that a migration has changed are not on the output topic",
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
                "        copies, letters = route(records, self._limits)\n",
                "        copies, letters = route(records, self._limits)\n"
                "        await self._inputs.taken()\n",
            ),
        ),
        REPARTITIONS,
        "== [canonical(row) for row in replay.rows()]",
    ),
    Mutation(
        "batches of any size",
        "a record batch is read however large it is once it is decompressed",
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
        "one round of fetching decompresses whatever was fetched",
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
