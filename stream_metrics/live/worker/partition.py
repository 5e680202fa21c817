"""Processes the records of one state partition: each batch is one atomic write.

The order of effects, for each batch (``docs/concepts/delivery.md`` says what happens if one fails):

1. load   the batch's conversations that are not in the cache
2. step   apply the events, in memory
3. dead   produce dead letters, and wait until they are acknowledged
4. output produce the changed rows to the output topic, if there is one, and wait likewise
5. write  state, window buckets and offsets, in one atomic call that checks owner and offsets
6. commit the offsets to Kafka, as a hint for lag tools (by the loop, at intervals)
7. export the figures in memory, which ``/metrics`` shows from now on
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from stream_metrics.core.alerts.arrivals import is_young
from stream_metrics.core.alerts.minutes import MARK_BYTES, MARKS, Arrivals, ArrivedMinutes
from stream_metrics.core.engine.cells import dimension_of
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.codec import encode_stub
from stream_metrics.core.engine.conversation_cells import conversation_cells
from stream_metrics.core.engine.plan import waiting_labels
from stream_metrics.core.engine.registers import FORGET, LABEL_TYPES, SEARCH_ITERATION
from stream_metrics.core.engine.state import Cell, DamagedState
from stream_metrics.core.engine.windows import BucketChanges, Names, Windows, expired_windows
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.ports import (
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    DeadLetters,
    Fenced,
    Moved,
    Output,
    OutputFenced,
    OutputMessage,
    PartitionState,
    Position,
    StateStore,
    StoredConversation,
)
from stream_metrics.live.runaways import RunawayTurn, iterations_of
from stream_metrics.live.worker.batches import (
    CALL_ARGUMENTS,
    CALL_BYTES,
    HARD_CAP_BYTES,
    BatchSizer,
    estimate,
)
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.conversations import (
    NO_BUGS,
    Conversations,
    Work,
    positions_after,
)
from stream_metrics.live.worker.names import SharedNames, note_unnamed
from stream_metrics.live.worker.options import PartitionOptions, record_digest
from stream_metrics.live.worker.ownership.switch import not_repeated, unsent
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import Telemetry, report_bugs, timed

EARLIEST_MS: Final = -(1 << 53)  # before the timestamp of any record
EXPIRY_PAGE_SIZE: Final = 200
EXPIRY_LOAD_SIZE: Final = 20  # conversations per read, so that a few large ones do not fill memory
TOO_MUCH_STATE: Final = f"the conversation's changes exceed {HARD_CAP_BYTES} bytes of state"
TOO_MANY: Final = 2.0  # shares of a call, so that the next batch is half as large
NO_NAMES: Final = Names(frozenset(), frozenset())

T = TypeVar("T")


class PartitionLost(Exception):
    """The state partition has another owner or other stored offsets than expected."""

    def __init__(self, partition: int, why: str) -> None:
        super().__init__(f"state partition {partition}: {why}")
        self.partition = partition
        self.why = why


@dataclass(frozen=True, slots=True)
class _Call:
    """An atomic write, its size in bytes, and the share of the largest call that it fills.

    ``apply`` updates the data in memory once the write has succeeded.
    """

    batch: BatchWrite
    size: int
    filled: float
    apply: Callable[[], None]


class _Expiring(NamedTuple):
    """An expiring conversation: what to write, what it adds to the windows, and its labels that
    still waited for a result."""

    key: ConversationKey
    writes: Sequence[ConversationWrite]
    cells: Sequence[tuple[int, Cell]] = ()
    orphans: int = 0


class StatePartition:
    """The state, windows and positions of a partition number that this worker owns."""

    def __init__(
        self,
        number: int,
        options: PartitionOptions,
        store: StateStore,
        dead_letters: DeadLetters,
        cache: ConversationCache,
        names: SharedNames,
        telemetry: Telemetry,
        token: bytes,
        output: Output | None = None,
    ) -> None:
        self.number = number
        self.token = token
        self.positions: dict[str, Position] = {}
        self.marks: set[str] = set()
        self.unsent = self._noted_unsent = 0  # batches of rows that a muted output has dropped
        self.windows = Windows(options.windows)
        self.minutes = ArrivedMinutes()  # from which evidence is gathered
        self._left = Windows(
            expired_windows(options.windows)
        )  # of expired conversations, for audits
        self._options = options
        self._schema = options.identity.schema_version  # written
        self._store = store
        self._dead_letters = dead_letters
        self.cache = cache
        self._names = names
        self._telemetry = telemetry
        self._output = output
        self.conversations = Conversations(
            number, options, store, cache, telemetry, sends_rows=output is not None
        )
        self._batches = 0
        self._created = 0  # new conversations since the last expiry
        self._sizer = BatchSizer()
        self.overdue = False  # whether there may be more to expire

    # -- ownership ------------------------------------------------------------------------------

    def adopt(self, state: PartitionState) -> None:
        """Replace the data in memory by what the store has."""
        self.cache.drop_partition(self.number)
        self._names.forget()
        self.positions = dict(state.positions)
        self.marks = set(state.marks)
        self.windows, self.minutes = Windows(self._options.windows), ArrivedMinutes()
        self._left = Windows(expired_windows(self._options.windows))
        for (window, bucket, agent), data in state.buckets.items():
            self.windows.load(window, bucket, agent, data)
            self.minutes.load(window, bucket, agent, data)
            self._left.load(window, bucket, agent, data)
        self._telemetry.agents_known(
            {*self._options.agents, *(a for window, _, a in state.buckets if window != MARKS)}
        )

    @property
    def record_time_ms(self) -> int:
        """The largest record timestamp of all topics; 0 before the first record."""
        return max((p.record_time_ms for p in self.positions.values()), default=0)

    # -- a batch --------------------------------------------------------------------------------

    async def process(self, records: Sequence[Record], retry: Retry) -> int:
        """Process records, each topic's in the order of its offsets; returns their number.

        Many records are written in several atomic steps. Raises ``PartitionLost`` if the store has
        another owner or other offsets.
        """
        start = 0
        self._created = 0
        while start < len(records):
            size = min(self._options.batch_records, self._sizer.records)
            chunk = records[start : start + size]
            filled = await self._process(chunk, retry)
            self._sizer.note(len(chunk), filled)
            if filled > 1 and len(chunk) > 1:
                continue
            start += len(chunk)
        return len(records)

    async def _process(
        self,
        records: Sequence[Record],
        retry: Retry,
        refuse: Callable[[Record], DeadLetter] | None = None,
    ) -> float:
        """Process records in one atomic write; returns the share of a call that it fills.

        If it would fill more than one call, or no call can be made because of a bug, nothing is
        written, and the caller tries fewer records. A single record may fill more, up to
        ``HARD_CAP_BYTES``; beyond that, or because of a bug, it becomes a dead letter. With
        ``refuse``, all records become dead letters.
        """
        clock = time.perf_counter
        started = clock()
        observations = Observations()
        letters: list[DeadLetter] = []
        works: dict[ConversationKey, Work] = {}
        if refuse is None:
            works = self.conversations.decode(records, letters)
        else:
            letters = [refuse(record) for record in records]
        decoded = clock()
        await self.conversations.open(works, observations, letters, retry, self.record_time_ms)
        loaded = clock()
        for work in works.values():
            await self.conversations.apply(work, observations, letters, retry)
        writes = [work.write for work in works.values() if work.write is not None]
        stepped = clock()
        positions = positions_after(self.positions, records, works, self._options)
        cells = [cell for work in works.values() for cell in work.cells]
        names = await self._ask(lambda: self._names.names(cells), retry)
        try:
            arrivals = [each for work in works.values() for each in work.arrivals]
            call = self._call(cells, names, writes, positions, observations, arrivals=arrivals)
        except (MemoryError, DamagedState):
            raise
        except Exception as error:
            if refuse is not None:
                raise
            self._drop(works)
            if len(records) > 1:
                return TOO_MANY
            bug = error
            return await self._process(records, retry, lambda r: DeadLetter.of_bug(r, bug))
        too_much = call.filled > 1 and (len(records) > 1 or call.size > HARD_CAP_BYTES)
        if too_much and refuse is None:
            self._drop(works)
            if len(records) > 1:
                return call.filled
            return await self._process(
                records, retry, lambda record: DeadLetter(record, "over_limit", TOO_MUCH_STATE)
            )
        if letters:
            report_bugs(letters, self._telemetry)
            rejected = sorted(
                (replace(letter, record=letter.record.produced) for letter in letters),
                key=lambda letter: (letter.record.topic, letter.record.offset),
            )
            await retry(lambda: self._dead_letters.send(rejected))
        sent = clock()
        messages = [work.message for work in works.values() if work.message is not None]
        if self._output is not None and messages:
            await self._publish(self._output, messages, retry)
        published = clock()
        await self._write(call.batch, retry)
        written = clock()
        call.apply()
        self._created += observations.opened["nowhere"]
        for work in works.values():
            if work.conversation is not None:
                work.conversation.schema = max(self._schema, work.conversation.schema)
                self.cache.put(self.number, work.key, work.conversation)
        telemetry = self._telemetry
        telemetry.observe(observations)
        telemetry.bad_records(Counter(letter.reason for letter in letters))
        self._tell_runaways(works, names)
        telemetry.batch(len(records))
        telemetry.stage("decode", decoded - started)
        telemetry.stage("load", loaded - decoded)
        telemetry.stage("step", stepped - loaded)
        telemetry.stage("dead_letters", sent - stepped)
        telemetry.stage("state", written - published)
        if self._output is not None:
            telemetry.stage("output", published - sent)
            telemetry.published(messages)
        return call.filled

    def _drop(self, works: Iterable[ConversationKey]) -> None:
        """Drop conversations from the cache, because they differ from the stored ones."""
        for key in works:
            self.cache.drop(self.number, key)

    def _call(
        self,
        cells: Sequence[tuple[int, Cell]],
        names: Names,
        writes: Sequence[ConversationWrite],
        positions: dict[str, Position],
        seen: Observations,
        *,
        expired: Sequence[tuple[int, Cell]] = (),
        marks: Sequence[str] = (),
        arrivals: Sequence[Arrivals] = (),
    ) -> _Call:
        """The call that writes a batch; it may exceed the size limits.

        ``cells`` are subtracted from the windows (-1) or added to them. ``expired`` are the
        contributions of expiring conversations, which stay in the windows. ``marks`` are added to
        those of the partition. ``arrivals`` count for alerts.
        """
        record_time_us = 1000 * max((p.record_time_ms for p in positions.values()), default=0)
        touched = self.windows.changes(cells, names, record_time_us)
        seen.late.update(self.windows.late(cells, record_time_us))
        note_unnamed(cells, names, seen)
        left: BucketChanges = {}
        if expired or not self._left.empty:
            left = self._left.changes(expired, names, record_time_us)
        self._batches += 1
        batch_id = hashlib.blake2b(
            self.token + self._batches.to_bytes(8, "big"), digest_size=16
        ).digest()
        mark = int.from_bytes(batch_id[:MARK_BYTES], "big")
        minutes = self.minutes.changes(arrivals, names, record_time_us, mark)
        batch = BatchWrite(
            partition=self.number,
            token=self.token,
            batch_id=batch_id,
            expected={topic: position.offset for topic, position in self.positions.items()},
            positions=positions,
            conversations=writes,
            buckets=touched | minutes | left,
            marks=marks,
        )
        size, arguments = estimate(batch)
        filled = max(size / CALL_BYTES, arguments / CALL_ARGUMENTS)

        def apply() -> None:
            self.windows.install(touched)
            self.minutes.install(minutes)
            self._left.install(left)
            self.positions = positions
            self._telemetry.state_written(size)
            self._telemetry.agents_known({agent for _, _, agent in touched})

        return _Call(batch, size, filled, apply)

    def _tell_runaways(self, works: Mapping[ConversationKey, Work], names: Names) -> None:
        """Tell which turns have many iterations and have just had another, by young records."""
        clock = self._options.now_ms
        if clock is None:
            return
        now_ms, least, engine = clock(), self._options.runaway_iterations, self._options.engine
        found = []
        for work in works.values():
            if work.conversation is None:
                continue
            turns = work.conversation.turns
            for event, record in work.events:
                if event.kind is FORGET:
                    self._telemetry.forgotten(work.conversation_id)
                if event.kind is not SEARCH_ITERATION:
                    continue
                turn = turns.get(event.turn)
                if turn is None or (len(turn.counted) < least and turn.left_out is None):
                    continue
                iterations = iterations_of(turn)
                if iterations >= least and is_young(record.timestamp_ms, now_ms):
                    agent = names.agent(dimension_of(event.agent, event.release, engine))
                    found.append(
                        RunawayTurn(agent, work.conversation_id, event.turn, iterations, now_ms)
                    )
        if found:
            self._telemetry.ran_away(found)

    async def _publish(
        self, output: Output, messages: Sequence[OutputMessage], retry: Retry
    ) -> None:
        """Produce ``messages``; raises ``PartitionLost`` if this worker is not the owner.

        While muted, only what ``not_repeated`` returns is produced.
        """
        owner_checked = True  # an output that has begun did so as the owner, or before the claim

        async def send() -> None:
            nonlocal owner_checked
            muted = output.muted
            if due := not_repeated(messages, self.marks) if muted else messages:
                if not output.begun:
                    owner_checked = False
                    await output.begin()
                if not owner_checked:
                    await self._check_owner()
                    owner_checked = True
                await output.send(due)
            self.unsent += muted

        while True:
            try:
                return await retry(send)
            except OutputFenced:
                await self.check(retry)

    async def _write(self, batch: BatchWrite, retry: Retry) -> None:
        """Write a batch, with a mark if rows that it belongs to were not sent."""
        now_unsent = self.unsent
        if now_unsent > self._noted_unsent:
            batch = replace(batch, marks=[*batch.marks, *unsent({*self.marks, *batch.marks})])
        result = await self._ask(lambda: self._store.write(batch), retry)
        if type(result) is Fenced:
            raise PartitionLost(self.number, "fenced")
        if type(result) is Moved:
            raise PartitionLost(self.number, "moved")
        self.marks.update(batch.marks)
        self._noted_unsent = now_unsent

    async def _ask(self, call: Callable[[], Awaitable[T]], retry: Retry) -> T:
        return await timed(call, retry, self._telemetry)

    def record_digest(self, record: Record) -> bytes:
        """A keyed digest of a record, to verify the log after a restart."""
        return record_digest(record, self._options)

    # -- periodic work ----------------------------------------------------------------------------

    async def check(self, retry: Retry) -> None:
        """Raise ``PartitionLost`` if the store has another owner or other offsets."""
        await self._ask(self._check_owner, retry)

    async def beat(self, retry: Retry, behind_ms: int | None) -> None:
        """Send a heartbeat; ``behind_ms`` is the partition's lag, None if it is not known."""
        worker = self._options.worker
        if worker:
            await timed(
                lambda: self._store.heartbeat(self.number, self.token, worker, behind_ms),
                retry,
                self._telemetry,
            )

    async def _check_owner(self) -> None:
        state = await self._store.describe(self.number)
        if state.token != self.token:
            raise PartitionLost(self.number, "fenced")
        if {t: p.offset for t, p in state.positions.items()} != {
            t: p.offset for t, p in self.positions.items()
        }:
            raise PartitionLost(self.number, "moved")

    async def advance(self, offsets: Mapping[str, int], retry: Retry) -> None:
        """Store offsets that were read without a record, such as transaction markers."""
        positions = {
            topic: replace(position, offset=max(position.offset, offsets.get(topic, 0)))
            for topic, position in self.positions.items()
        }
        if positions != self.positions:
            await self.move(positions, retry)

    async def put(
        self, writes: Sequence[ConversationWrite], marks: Sequence[str], retry: Retry
    ) -> None:
        """Write conversations and marks without reading records; raises ``PartitionLost``."""
        call = self._call((), NO_NAMES, writes, dict(self.positions), Observations(), marks=marks)
        await self._write(call.batch, retry)
        call.apply()

    async def publish(self, messages: Sequence[OutputMessage], retry: Retry) -> None:
        """Send messages, if there is an output topic; raises ``PartitionLost``."""
        if self._output is not None:
            await self._publish(self._output, messages, retry)

    async def move(self, positions: dict[str, Position], retry: Retry) -> None:
        """Write other positions, and nothing else; raises ``PartitionLost``."""
        call = self._call((), NO_NAMES, (), positions, Observations())
        await self._write(call.batch, retry)
        call.apply()

    # -- expiry ---------------------------------------------------------------------------------

    async def expire(self, horizon_ms: int, retry: Retry) -> int:
        """Delete conversations whose last record is older than ``horizon_ms`` - ttl.

        Returns their number: at most ``EXPIRY_PAGE_SIZE`` or four times the number of new
        conversations, so that a call is short and conversations and stubs do not accumulate.
        ``overdue`` tells whether there may be more.
        """
        before_ms = horizon_ms - self._options.ttl_ms
        most = max(EXPIRY_PAGE_SIZE, 4 * self._created)
        done, self._created, self.overdue = 0, 0, True
        while self.overdue and done < most:
            keys = await self._ask(
                lambda: self._store.by_age(self.number, EARLIEST_MS, before_ms, EXPIRY_PAGE_SIZE),
                retry,
            )
            expired = await self._expire(keys, horizon_ms, retry)
            self.overdue = expired < len(keys) or len(keys) == EXPIRY_PAGE_SIZE
            done += expired
        return done

    async def _expire(self, keys: Sequence[ConversationKey], horizon_ms: int, retry: Retry) -> int:
        """Delete as many of these conversations as one call may; returns their number.

        Their contributions stay in the windows and are also summed separately, for audits. Each
        conversation leaves a stub for another ttl, so that late events are recognised.
        """
        if not keys:
            return 0
        loaded: list[_Expiring] = []
        size = 0
        while len(loaded) < len(keys) and size < CALL_BYTES:
            part = keys[len(loaded) : len(loaded) + EXPIRY_LOAD_SIZE]
            for key, parts in zip(part, await self.conversations.load(part, retry), strict=True):
                loaded.append(self._expiring(key, parts, horizon_ms))
                size += sum(map(len, parts.hot.values()))
        observations = Observations()
        call = await self._expiry(loaded, retry, observations)
        while call.filled > 1 and len(loaded) > 1:
            del loaded[len(loaded) // 2 :]
            observations = Observations()
            call = await self._expiry(loaded, retry, observations)
        self._drop(one.key for one in loaded)
        observations.counts["labels_orphan"] += sum(one.orphans for one in loaded)
        await self._write(call.batch, retry)
        call.apply()
        self._telemetry.observe(observations)
        return len(loaded)

    def _expiring(
        self, key: ConversationKey, parts: StoredConversation, horizon_ms: int
    ) -> _Expiring:
        """What has to be written; if a bug prevents that, the conversation stays another ttl."""
        try:
            conversation = self.conversations.restore("", parts)
            cells = [(1, cell) for cell in conversation_cells(conversation, self._options.engine)]
            turns = conversation.turns.values()
            orphans = sum(waiting_labels(turn, kind) for turn in turns for kind in LABEL_TYPES)
        except NO_BUGS:
            raise
        except Exception as error:
            self._telemetry.bug(Bug.of(error))
            return _Expiring(key, [ConversationWrite(key, last_record_ms=horizon_ms)])
        writes = [ConversationWrite(key, delete=True)]
        if conversation.turns:
            stub = encode_stub(self._schema)
            writes.append(ConversationWrite(key, stub, last_record_ms=horizon_ms))
        return _Expiring(key, writes, cells, orphans)

    async def _expiry(self, loaded: Sequence[_Expiring], retry: Retry, seen: Observations) -> _Call:
        """The call that deletes the conversations."""
        cells = [cell for one in loaded for cell in one.cells]
        writes = [write for one in loaded for write in one.writes]
        names = await self._ask(lambda: self._names.names(cells), retry)
        return self._call((), names, writes, dict(self.positions), seen, expired=cells)
