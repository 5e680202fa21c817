"""Broken builds that lose a record, or count it twice, after a failure."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

CLIENTS: Final = "stream_metrics/clients/kafka/aiokafka_private.py"
CLUSTER: Final = "stream_metrics/live/kafka/cluster.py"
MEMBER: Final = "stream_metrics/live/kafka/group_source.py"
MEMORY: Final = "stream_metrics/live/memory.py"
WRITE: Final = "stream_metrics/live/redis/scripts/write.lua"
HEALTH: Final = "stream_metrics/live/health.py"
ASSIGNED: Final = "stream_metrics/live/worker/ownership/assigned.py"
CLOCK: Final = "stream_metrics/live/worker/clock.py"
INPUTS: Final = "stream_metrics/live/worker/inputs.py"
LAG: Final = "stream_metrics/live/worker/lag.py"
LOOP: Final = "stream_metrics/live/worker/loop.py"
PARTITION: Final = "stream_metrics/live/worker/partition.py"
CONVERSATIONS: Final = "stream_metrics/live/worker/conversations.py"
TAKEOVER: Final = "stream_metrics/live/worker/ownership/takeover.py"

SIMULATION: Final = (
    "tests/property/test_delivery.py::test_figures_are_those_of_one_pass_despite_faults"
)
STORES: Final = "tests/contract/test_state_store.py::"

WINDOWS: Final = "other windows than one pass gives"
AHEAD: Final = "a commit ahead of the stored offset"
LETTERS: Final = """\
            await retry(lambda: self._dead_letters.send(rejected))
"""

DELIVERY: Final = (
    Mutation(
        "commit before write",
        "offsets are committed to Kafka before the state is written",
        (
            Edit(
                LOOP,
                """\
            await owned.process(records, self._retry)
""",
                """\
            last = records[-1]
            await self._source.commit(
                {p: Commit(last.offset + 1) for p in partition.logs if p.topic == last.topic}
            )
            await owned.process(records, self._retry)
""",
            ),
        ),
        SIMULATION,
        AHEAD,
    ),
    Mutation(
        "no fence",
        "a write is accepted from any worker",
        (
            Edit(
                MEMORY,
                "if held is None or held.token != batch.token:",
                "if held is None:",
            ),
        ),
        SIMULATION,
        "a write by somebody who is not the owner",
    ),
    Mutation(
        "no expected-offset check",
        "a write is accepted with any stored offsets, so a rollback leaves a hole",
        (
            Edit(
                MEMORY,
                """\
        if not batch.expected.items() <= offsets.items():
            return Moved(offsets)
""",
                "",
            ),
        ),
        SIMULATION,
        "a write on other offsets than it expects",
    ),
    Mutation(
        "no fence in Redis",
        "the script accepts writes from any worker",
        (Edit(WRITE, "if stored[1] ~= ARGV[1] then", "if not stored[1] then"),),
        STORES + "test_a_second_claim_fences_the_first[redis]",
        "assert Written() == Fenced()",
        service=True,
    ),
    Mutation(
        "no expected-offset check in Redis",
        "the script accepts writes with any stored offsets",
        (
            Edit(
                WRITE,
                "expected = expected and offset == ARGV[i + 1]",
                "expected = expected and offset",
            ),
        ),
        STORES + "test_unexpected_offsets_are_refused",
        "assert Written() == Moved(",
        service=True,
    ),
    Mutation(
        "half a batch in Redis",
        "the script checks key types only after it has started to write",
        (
            Edit(
                WRITE,
                "  if kind ~= 'none' and kind ~= (k == 2 and 'zset' or 'hash') then",
                "  if false then",
            ),
        ),
        "tests/contract/test_redis_store.py::test_a_key_of_another_type_writes_nothing",
        "assert await dump(raw, store) == before",
        service=True,
    ),
    Mutation(
        "a repeated write is not recognized",
        "the store ignores batch ids, so it refuses the repeat of a write whose answer was lost",
        (
            Edit(
                MEMORY,
                """\
        if held.batch_id == batch.batch_id and new.items() <= offsets.items():
            return Written()
""",
                "",
            ),
        ),
        SIMULATION,
        "the owner's write was refused",
    ),
    Mutation(
        "a retry counts twice",
        "each attempt of a write adds to the windows again",
        (
            Edit(
                PARTITION,
                "        left: BucketChanges = {}\n",
                """\
        self._again = lambda: self.windows.changes(cells, names, record_time_us)
        left: BucketChanges = {}
""",
            ),
            Edit(PARTITION, "            self.windows.install(touched)\n", ""),
            Edit(
                PARTITION,
                "        result = await self._ask(lambda: self._store.write(batch), retry)\n",
                """\
        async def attempt():
            touched = self._again()
            self.windows.install(touched)
            return await self._store.write(replace(batch, buckets={**batch.buckets, **touched}))

        result = await self._ask(attempt, retry)
""",
            ),
        ),
        SIMULATION,
        WINDOWS,
    ),
    Mutation(
        "offsets written before the state",
        "offsets are written in a separate step before the conversations",
        (
            Edit(
                PARTITION,
                """\
        await self._write(call.batch, retry)
        written = clock()
""",
                """\
        batch = call.batch
        offsets = {topic: position.offset for topic, position in positions.items()}
        first = replace(batch, conversations=(), buckets={}, batch_id=batch.batch_id[::-1])
        await self._write(first, retry)
        await self._write(replace(batch, expected=offsets), retry)
        written = clock()
""",
            ),
        ),
        SIMULATION,
        WINDOWS,
    ),
    Mutation(
        "dead letters after the write",
        "offsets are written before dead letters are acknowledged",
        (
            Edit(PARTITION, LETTERS, ""),
            Edit(
                PARTITION,
                "        written = clock()\n",
                f"        written = clock()\n        if letters:\n{LETTERS}",
            ),
        ),
        SIMULATION,
        "other dead letters than one pass gives",
    ),
    Mutation(
        "a record lost between two chunks",
        "a batch is split at a wrong offset, so a record is skipped",
        (
            Edit(
                PARTITION,
                """\
            start += len(chunk)
        return len(records)
""",
                """\
            start += len(chunk) + 1
        return len(records)
""",
            ),
        ),
        SIMULATION,
        WINDOWS,
    ),
    Mutation(
        "kept cache",
        "after a refused write, cached conversations are not reloaded",
        (Edit(PARTITION, "        self.cache.drop_partition(self.number)\n", ""),),
        SIMULATION,
        "a conversation has no header",
    ),
    Mutation(
        "no seek",
        "reading continues from Kafka's commit instead of the stored offsets",
        (
            Edit(
                LOOP,
                "self._source.read_from(partition.start_offsets(taken.extents))",
                """\
self._source.read_from(
            partition.start_offsets(taken.extents)
            | {p: c.offset for p, c in (await self._source.committed(partition.logs)).items()}
        )""",
            ),
        ),
        "tests/unit/test_loop.py::test_a_recreated_topic_halts_the_partition",
        "assert numbers(worker) == [1]",
    ),
    Mutation(
        "commit ahead of the store",
        "the periodic commit is one record ahead of the state",
        (
            Edit(
                LOOP,
                "commits[place] = Commit(position.offset)",
                "commits[place] = Commit(position.offset + 1)",
            ),
        ),
        SIMULATION,
        AHEAD,
    ),
    Mutation(
        "claim without membership",
        "a worker claims a partition that the group assigned to another",
        (
            Edit(
                TAKEOVER,
                """\
            if not await self._confirm(number, targets, NOTHING_WRITTEN if fresh else ""):
                return None
""",
                """\
            await self._confirm(number, targets, NOTHING_WRITTEN if fresh else "")
""",
            ),
        ),
        SIMULATION,
        "a claim without membership",
    ),
    Mutation(
        "some input topics are enough",
        "a partition starts although it is held for only some input topics",
        (
            Edit(
                LOOP,
                "if held[number] >= set(self._options.topics):",
                "if held[number]:",
            ),
        ),
        "tests/property/test_delivery.py::test_only_a_partition_assigned_for_some_topics_is_halted",
        "KeyError: 'partition-0'",
    ),
    Mutation(
        "read uncommitted",
        "records of aborted transactions are read",
        (Edit(CLUSTER, '"read_committed"', '"read_uncommitted"'),),
        "tests/services/test_transactions.py::test_aborted_records_count_nowhere",
        "assert 2 == 1",
        service=True,
    ),
    Mutation(
        "expiry by one topic",
        "conversations expire by the topic that has been read furthest",
        (Edit(ASSIGNED, "return min(known, default=None)", "return max(known, default=None)"),),
        SIMULATION,
        WINDOWS,
    ),
    Mutation(
        "expiry by the wall clock",
        "a topic with lag counts as read up to the present",
        (
            Edit(
                LAG,
                """\
        if reached:
            self._marks[: len(reached)] = reached[-1:]
""",
                """\
        if self._marks:
            return self._marks[-1].asked_ms
        if reached:
            self._marks[: len(reached)] = reached[-1:]
""",
            ),
        ),
        SIMULATION,
        WINDOWS,
    ),
    Mutation(
        "expiry by the newest timestamp",
        "with lag, the largest timestamp read counts as the time",
        (
            Edit(
                LAG,
                "smallest = min(stamp for _, stamp in self._minima)",
                "smallest = max(stamp for _, stamp in self._minima)",
            ),
        ),
        "tests/unit/test_clock.py::test_a_wrong_timestamp_in_a_backlog_does_not_advance_record_time",
        "assert before <= after <= before + 1",
    ),
    Mutation(
        "one clock",
        "only the worker's clock is used",
        (
            Edit(
                CLOCK,
                "return min(self._times_ms())",
                "return self._times_ms()[0]",
            ),
        ),
        "tests/unit/test_clock.py::test_time_is_never_ahead_if_one_clock_is_right",
        "assert clocks.clock.now_ms() <= clocks.true_ms",
    ),
    Mutation(
        "restored without its batch",
        "after a bug, a conversation is restored as stored, without the batch's events before",
        (
            Edit(
                CONVERSATIONS,
                "parts = _changed(stored, work.write)",
                "parts = stored",
            ),
        ),
        SIMULATION,
        "one pass gives",
    ),
    Mutation(
        "record time decreases",
        "record time is that of the last batch instead of the maximum",
        (
            Edit(
                CONVERSATIONS,
                "            max(before.record_time_ms, latest.get(topic, 0)),\n",
                "            latest.get(topic, 0),\n",
            ),
        ),
        "tests/property/test_audit.py::test_intact_state_has_no_difference",
        "one.differences",
    ),
    Mutation(
        "an old owner's rows",
        "a worker writes to the output topic without checking that it still owns the partition",
        (
            Edit(
                PARTITION,
                """\
                if not owner_checked:
                    await self._check_owner()
""",
                "                if not owner_checked:\n",
            ),
        ),
        "tests/property/test_output.py::test_readers_have_the_rows_of_one_pass_despite_faults",
        "assert rows_kept(world.topic",
    ),
    Mutation(
        "no seek back after an error",
        "after a client error, records taken from other partitions are not fetched again",
        (Edit(MEMBER, "            self._seek_back()\n", ""),),
        "tests/unit/test_inputs.py::test_an_error_of_one_partition_loses_nothing_of_another",
        "assert brokers.commits[FIRST].offset <= len(worker.copied)",
    ),
    Mutation(
        "added partitions from their end",
        "a group that started at the ends skips records of added input partitions",
        (
            Edit(
                INPUTS,
                "input_log.position = Position(extent.first)",
                "input_log.position = Position(extent.end)",
            ),
        ),
        "tests/unit/test_inputs.py::test_added_partitions_are_copied_from_their_first_record",
        "assert worker.copied == [(1, 0), (1, 1)]",
    ),
    Mutation(
        "a held partition makes the worker unready",
        "a roll-out waits for ever for a worker with a partition that somebody has to decide about",
        (Edit(HEALTH, ".keys() <= self._held", " == {}"),),
        "tests/unit/test_web.py::test_a_held_partition_leaves_the_worker_ready",
        "assert (503,",
    ),
    Mutation(
        "a stopped consumer cancels its caller",
        "a worker that is told to end while fetches fail ends with an error",
        (Edit(CLIENTS, "            fetches.clear()  # the library would await them\n", ""),),
        "tests/services/test_abandon.py::test_a_consumer_that_waits_before_it_fetches_again_stops",
        "CancelledError",
        service=True,
    ),
)
