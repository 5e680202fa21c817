"""Broken builds of one process over a file that lose a record, or count it twice."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

DATABASE: Final = "stream_metrics/live/local/database.py"
LETTERS: Final = "stream_metrics/live/local/letters.py"
LOG: Final = "stream_metrics/live/local/log.py"
SCORES: Final = "stream_metrics/live/local/scores.py"
STORE: Final = "stream_metrics/live/local/store.py"
TRACES: Final = "stream_metrics/live/local/traces.py"

SIMULATION: Final = (
    "tests/property/test_local.py::test_figures_are_those_of_one_pass_despite_faults"
)

TOLD: Final = "tests/property/test_local.py::test_traces_are_told_once_despite_faults"

LOCAL: Final = (
    Mutation(
        "a failed write is acknowledged",
        "a request is answered as stored although the disk was full",
        (
            Edit(
                LOG,
                "        records = await self._database.write(append)\n",
                """\
        [records] = await asyncio.gather(self._database.write(append), return_exceptions=True)
        records = records if isinstance(records, list) else [Record(b"", offset=1 << 40)]
""",
            ),
        ),
        f"{SIMULATION}[0]",
        "an offset was given twice",
    ),
    Mutation(
        "what others append is skipped",
        "the loop reads on behind what other processes have appended",
        (
            Edit(
                "stream_metrics/live/local/tail.py",
                "        if not follows or self._bytes + size > self._max_bytes:\n",
                "        if self._bytes + size > self._max_bytes:\n",
            ),
        ),
        "tests/unit/test_tail.py::test_what_is_taken_is_what_was_appended_at_its_offset",
        "assert",
    ),
    Mutation(
        "a receiver decodes for all",
        "state that is built with another key gets digests of the key before",
        (
            Edit(
                "stream_metrics/live/worker/ahead.py",
                " and record.decoded.options is options:\n",
                ":\n",
            ),
        ),
        "tests/unit/test_ahead.py::test_partitions_with_other_options_decode_for_themselves",
        "assert",
    ),
    Mutation(
        "a request is answered before it is stored",
        "a transaction is committed when the next one begins",
        (
            Edit(
                DATABASE,
                '    connection.execute("BEGIN IMMEDIATE")\n',
                """\
    if connection.in_transaction:
        connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
""",
            ),
            Edit(
                DATABASE,
                '        check()\n        connection.execute("COMMIT")\n',
                "        check()\n",
            ),
        ),
        f"{SIMULATION}[0]",
        "an offset was given twice",
    ),
    Mutation(
        "offsets before the state",
        "what was read is stored as read in a transaction before that of what it has changed",
        (
            Edit(
                STORE,
                """\
                return Moved(offsets)
            _apply(connection, held.place, batch)
            return Written()

        return await self._database.write(write)
""",
                """\
                return Moved(offsets)
            _set_positions(connection, held.place, batch.positions)
            return Written()

        def then(connection: sqlite3.Connection) -> None:
            held = self._held(connection, batch.partition)
            if held is not None and held.token == batch.token:
                _apply(connection, held.place, batch)

        result = await self._database.write(write)
        if isinstance(result, Written):
            await self._database.write(then)
        return result
""",
            ),
        ),
        f"{SIMULATION}[0]",
        "other windows than one pass gives",
    ),
    Mutation(
        "unread records are deleted",
        "retention deletes records that the state has not read",
        (
            Edit(
                LOG,
                "    return extent.first if offset is None else extent.nearest(offset)\n",
                "    return extent.end\n",
            ),
        ),
        f"{SIMULATION}[0]",
        "the state does not stand at the end of the log",
    ),
    Mutation(
        "letters again",
        "a dead letter is stored again when its batch is repeated",
        (Edit(LETTERS, "                _digest(letter),\n", "                token_bytes(16),\n"),
         Edit(LETTERS, "import hashlib\n", "import hashlib\nfrom secrets import token_bytes\n")),
        f"{SIMULATION}[3]",
        "two letters about one record",
    ),
    Mutation(
        "a job that raises leaves something",
        "what a job did before its error is committed with the others",
        (Edit(DATABASE, '        connection.execute("ROLLBACK TO job")\n', ""),),
        "tests/unit/test_local_database.py::test_a_job_that_raises_changes_nothing",
        "assert [b'0', b'1'",
    ),
    Mutation(
        "a trace is told again",
        "a process that starts writes the events of traces again that were told before",
        (
            Edit(
                TRACES,
                'execute("INSERT OR IGNORE INTO told VALUES (?, ?)", trace).rowcount\n',
                'execute("INSERT OR IGNORE INTO told VALUES (?, ?)", trace)\n',
            ),
        ),
        f"{TOLD}[0]",
        "not as in one pass",
    ),
    Mutation(
        "a score stays",
        "a score waits further once it is a label",
        (
            Edit(
                SCORES,
                '            connection.executemany("DELETE FROM scores WHERE id = ?", '
                "[(id_,) for id_ in ids])\n",
                "",
            ),
        ),
        f"{TOLD}[0]",
        "a label is there twice",
    ),
    Mutation(
        "spans that tell which traces have begun are deleted",
        "retention deletes all spans that were read, also those of traces that are not forgotten",
        (
            Edit(
                LOG,
                "    return extent.first if kept is None else min(end, kept[0])\n",
                "    return end\n",
            ),
        ),
        f"{TOLD}[0]",
        "not as in one pass",
    ),
)  # fmt: skip
