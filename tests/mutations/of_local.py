"""Broken builds of one process over a file that lose a record, or count it twice."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

DATABASE: Final = "stream_metrics/live/local/database.py"
LETTERS: Final = "stream_metrics/live/local/letters.py"
LOG: Final = "stream_metrics/live/local/log.py"

SIMULATION: Final = (
    "tests/property/test_local.py::test_figures_are_those_of_one_pass_despite_faults"
)

LOCAL: Final = (
    Mutation(
        "a failed write is acknowledged",
        "a request is answered as stored although the disk was full",
        (
            Edit(
                LOG,
                "        first = await self._database.write(append)\n",
                """\
        [first] = await asyncio.gather(self._database.write(append), return_exceptions=True)
        first = first if isinstance(first, int) else 1 << 40
""",
            ),
        ),
        f"{SIMULATION}[0]",
        "an offset was given twice",
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
)  # fmt: skip
