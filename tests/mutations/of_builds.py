"""Broken builds of `build`: a switch that fences nobody, and workers that are not muted."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

ANNOUNCE: Final = "stream_metrics/live/worker/ownership/announce.py"
BUILD: Final = "stream_metrics/live/worker/ownership/build.py"
LAYOUT: Final = "stream_metrics/live/layout.py"
PARTITION: Final = "stream_metrics/live/worker/partition.py"
PUBLICATION: Final = "stream_metrics/live/worker/publication.py"
SWITCH: Final = "stream_metrics/live/worker/ownership/switch.py"
TOMBSTONES: Final = "stream_metrics/live/worker/ownership/tombstones.py"
WIPE: Final = "stream_metrics/live/memory.py"

OLD_WORKER: Final = (
    "tests/unit/test_switch.py::test_an_old_worker_paused_during_the_switch_does_no_harm"
)
MUTED: Final = (
    "tests/unit/test_publication.py::test_a_muted_worker_sends_no_rows_and_exports_no_windows"
)
LETTERS: Final = (
    "tests/unit/test_publication.py::test_letters_of_records_that_were_read_are_not_written_again"
)
ANNOUNCED: Final = "tests/unit/test_publication.py::test_all_rows_are_announced_once"
NULLS: Final = "tests/unit/test_publication.py::test_conversations_without_a_row_any_more_get_null"
FORGOTTEN: Final = "tests/unit/test_publication.py::test_forgotten_conversations_stay_forgotten"
FROZEN: Final = "tests/contract/test_generations.py::test_a_wiped_partition_stays_frozen"
LOST: Final = "tests/unit/test_lost_layout.py::test_a_lost_switch_is_fenced_again"
EMPTIED: Final = "tests/unit/test_lost_layout.py::test_nothing_is_put_back_into_a_purged_namespace"
DECIDED: Final = "tests/unit/test_layout.py::test_restoring_undoes_no_later_change"

BUILDS: Final = (
    Mutation(
        "switch without a fence",
        "transactional ids of the old generation are not initialised",
        (Edit(SWITCH, "            await fence.fence_producers(old)\n", ""),),
        OLD_WORKER,
        "assert b'old' not in",
    ),
    Mutation(
        "unmuted before the old generation is frozen",
        "the layout says that the new generation is live before the old one is fenced",
        (
            Edit(
                SWITCH,
                "        for old in retired:\n            await freeze(store",
                "        await change(store, lambda now: now.unmuted(current.number))\n"
                "        for old in retired:\n            await freeze(store",
            ),
        ),
        "tests/unit/test_switch.py::test_old_workers_send_nothing_once_new_owners_have",
        "assert b'old' not in",
    ),
    Mutation(
        "producer does not read the layout",
        "a producer that begins late checks only its partition",
        (Edit(PUBLICATION, "        await check_in_use(self._store, self._generation)\n", ""),),
        OLD_WORKER,
        "assert b'old' not in",
    ),
    Mutation(
        "a muted worker sends rows",
        "rows of a generation that is being built reach the output topic",
        (
            Edit(
                PARTITION,
                "due := not_repeated(messages, self.marks) if muted else messages:",
                "due := messages:",
            ),
        ),
        MUTED,
        "MemoryMessa",
    ),
    Mutation(
        "forgotten for good",
        "a muted owner of an announced partition drops the nulls for forgotten conversations",
        (
            Edit(
                PARTITION,
                "due := not_repeated(messages, self.marks) if muted else messages:",
                "due := [] if muted else messages:",
            ),
        ),
        "tests/unit/test_publication.py::"
        "test_a_muted_worker_of_an_announced_partition_erases_what_is_forgotten",
        "== [('c1', None), ('c0', None)]",
    ),
    Mutation(
        "a build that was given up goes live",
        "the switch does not ask whether the live generation has frozen a partition of the build",
        (Edit(SWITCH, "await frozen_by(store, building) if building else []", "[]"),),
        "tests/unit/test_switch.py::"
        "test_a_build_that_was_given_up_cannot_replace_the_live_generation",
        "DID NOT RAISE",
    ),
    Mutation(
        "a deletion that nothing ends",
        "whoever deletes the old generation does not look whether it has become live again",
        (Edit(SWITCH, "        await before_each()\n", ""),),
        "tests/unit/test_switch.py::"
        "test_a_switch_that_begins_again_while_the_old_state_is_deleted_ends_the_deletion",
        "AssertionError",
    ),
    Mutation(
        "dead letters of unread records dropped",
        "a muted worker writes no dead letters at all",
        (
            Edit(
                PUBLICATION,
                "        return record.offset < self._read[place]",
                "        return True",
            ),
        ),
        LETTERS,
        "assert [] == [5]",
    ),
    Mutation(
        "announced after the first page",
        "the mark that all rows were sent is set too early",
        (Edit(ANNOUNCE, "        if len(page) < self._scope.page_size:", "        if page:"),),
        ANNOUNCED,
        "assert",
    ),
    Mutation(
        "removed rows stay",
        "conversations that no longer have a row get no null",
        (
            Edit(
                ANNOUNCE,
                "        for store, number in self._scope.previous:",
                "        for store, number in ():",
            ),
        ),
        NULLS,
        "assert set() ==",
    ),
    Mutation(
        "tombstones of resumed conversations lost",
        "only conversations that are nothing but a tombstone stay forgotten",
        (
            Edit(
                TOMBSTONES,
                "            if forgotten is None:",
                "            if forgotten is None or stored_header(parts.hot).conversation_id:",
            ),
        ),
        FORGOTTEN,
        "assert",
    ),
    Mutation(
        "a purge that unfreezes",
        "a purged partition is no longer frozen",
        (
            Edit(
                WIPE,
                "        del self._content.partitions[self._place(partition)]\n",
                "        del self._content.partitions[self._place(partition)]\n"
                "        self._content.frozen.pop(self._place(partition), None)\n",
            ),
        ),
        FROZEN,
        "DID NOT RAISE",
    ),
    Mutation(
        "layout restored over a later decision",
        "a lost layout is restored although the build was given up meanwhile",
        (Edit(LAYOUT, "        if current is None:\n            return stored\n", ""),),
        DECIDED,
        "AttributeError",
    ),
    Mutation(
        "a lost switch restored without a fence",
        "a generation is live again although a worker of the one before may have started",
        (Edit(LAYOUT, 'current, state="fencing", since_ms', "current, since_ms"),),
        LOST,
        "assert",
    ),
    Mutation(
        "layout restored into a purged namespace",
        "a worker that wakes late brings back what a purge has deleted",
        (Edit(LAYOUT, "stored.is_emptied or begun_anew", "begun_anew"),),
        EMPTIED,
        "assert",
    ),
)
