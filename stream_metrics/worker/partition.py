"""One state partition at work: a batch of records becomes one atomic step.

The order of effects, for each batch (``docs/concepts/delivery.md`` says what happens if one fails):

1. load   the conversations that the batch speaks of and that are not open
2. step   apply the events, in memory
3. dead   produce dead letters, and wait until they are acknowledged
4. output produce the changed rows to the output topic, if there is one, and wait likewise
5. write  state, window buckets and offsets, in one atomic call that checks owner and offsets
6. commit the offsets to Kafka, a hint for lag tools (by the service, now and then)
7. export the figures in memory are what ``/metrics`` shows from now on
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from stream_metrics.dedup.deduplicator import Deduplicator, Deduplicators
from stream_metrics.engine.cells import conversation_cells
from stream_metrics.engine.codec import (
    add_fingerprints,
    decode_conversation,
    encode_changes,
    encode_stub,
)
from stream_metrics.engine.config import MAX_ROUTES, EngineConfig
from stream_metrics.engine.state import Cell, Conversation
from stream_metrics.engine.step import (
    Changes,
    Observations,
    Step,
    needs_fingerprints,
    waiting_labels,
)
from stream_metrics.engine.taken import Intake, Taken
from stream_metrics.engine.windows import (
    Names,
    Touched,
    Window,
    Windows,
    left_windows,
    routes_of,
)
from stream_metrics.events.decode import BadRecord
from stream_metrics.events.wire import Forget
from stream_metrics.layout import Identity
from stream_metrics.ports import (
    MAX_TIMESTAMP_MS,
    BatchWrite,
    ConversationKey,
    ConversationWrite,
    DeadLetter,
    DeadLetters,
    Fenced,
    Moved,
    Output,
    OutputFenced,
    OutputMessage,
    PartitionState,
    Position,
    Record,
    StateStore,
    StoredConversation,
)
from stream_metrics.worker.batches import (
    CALL_ARGUMENTS,
    CALL_BYTES,
    HARD_CAP_BYTES,
    Room,
    estimate,
)
from stream_metrics.worker.cache import ConversationCache
from stream_metrics.worker.generations import admit
from stream_metrics.worker.identity import OtherIdentity
from stream_metrics.worker.output import message_after
from stream_metrics.worker.telemetry import Telemetry

BEGINNING: Final = -(1 << 53)  # before any time that a record may have
EXPIRE_AT_ONCE: Final = 200
EXPIRE_LOADED: Final = 20  # conversations read at once, so that large ones are read one by few
FAR_AHEAD_MS: Final = 7 * 86_400_000  # no conversation is kept for longer by a wild timestamp
TOO_MUCH_STATE: Final = BadRecord(
    "over_limit", f"the conversation's changes exceed {HARD_CAP_BYTES} bytes of state"
)

T = TypeVar("T")
Retry = Callable[[Callable[[], Awaitable[T]]], Awaitable[T]]


class Lost(Exception):
    """The state partition has another owner, or its stored offsets have gone back."""

    def __init__(self, partition: int, why: str) -> None:
        super().__init__(f"state partition {partition}: {why}")
        self.partition = partition
        self.why = why


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What all partitions of a worker share.

    ``now_ms`` is the wall clock of a live worker: a record from the future moves record time no
    further than that. ``latest_ms`` is the later of two clocks, where there are two: it bounds for
    how long a record from the future keeps its conversation. ``partitioner`` says where Kafka's
    default one puts a key. ``turn_scope`` is that of the rows on the output topic. ``worker`` is
    the name under which heartbeats are sent; without one there are none.
    """

    identity: Identity
    engine: EngineConfig
    key_id: str
    keys: dict[str, bytes]
    windows: tuple[Window, ...]
    agents: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    ttl_ms: int = 86_400_000
    batch_records: int = 500
    require_key: bool = True
    turn_scope: str = "last"
    partitioner: Callable[[bytes], int] | None = None
    now_ms: Callable[[], int] | None = None
    latest_ms: Callable[[], int] | None = None
    worker: str = ""
    dedups: Deduplicators = field(default_factory=Deduplicators)


def record_digest(record: Record, options: PartitionOptions) -> bytes:
    """A record's digest by the key in force (``StatePartition.record_digest``)."""
    state = hashlib.blake2b(digest_size=16, key=options.keys[options.key_id])
    for part in (record.key, record.value):
        state.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return state.digest()


class SharedNames:
    """The registries of agents (or releases) and routes, as far as this worker has seen them."""

    def __init__(self, store: StateStore, options: PartitionOptions) -> None:
        self._store = store
        self._dimension = f"{options.engine.dimension}s"
        self._configured = {self._dimension: options.agents, "routes": options.routes}
        self._limits = {self._dimension: options.engine.max_names, "routes": MAX_ROUTES}
        self._known = {kind: frozenset(names) for kind, names in self._configured.items()}

    async def names(self, cells: Sequence[tuple[int, Cell]]) -> Names:
        """The names in force once everyone in ``cells`` has asked for a place."""
        agents = {cell.agent for _, cell in cells}
        routes = routes_of(cell for _, cell in cells)
        return Names(
            await self._admit(self._dimension, agents), await self._admit("routes", routes)
        )

    async def _admit(self, kind: str, names: set[str]) -> frozenset[str]:
        known = self._known[kind]
        new = names - known
        if new and len(known) < self._limits[kind]:
            configured, limit = self._configured[kind], self._limits[kind]
            known = await admit(self._store, kind, sorted(new), configured, limit)
            self._known[kind] = known
        return known

    def forget(self) -> None:
        """Ask again; the store may have gone back."""
        self._known = {kind: frozenset(names) for kind, names in self._configured.items()}


@dataclass(slots=True)
class _Work:
    """A conversation in a batch."""

    key: ConversationKey
    conversation_id: str
    events: list[tuple[Taken, Record]] = field(default_factory=list)
    conversation: Conversation | None = None
    changes: Changes | None = None
    message: OutputMessage | None = None
    last_record_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Call:
    """One atomic call: what it writes, its bytes, how much of a call that may hold it fills.

    ``taken`` takes it over in memory, once it is written.
    """

    batch: BatchWrite
    size: int
    filled: float
    taken: Callable[[], None]


def conversation_key(conversation_id: str) -> ConversationKey:
    """The name of a conversation in the store: a digest, so that no key is built from input."""
    return hashlib.blake2b(
        conversation_id.encode(), digest_size=16, person=b"conversation"
    ).digest()


def _note_unnamed(cells: Iterable[tuple[int, Cell]], names: Names, seen: Observations) -> None:
    """Count what becomes ``other`` because all places for names are taken."""
    for sign, cell in cells:
        if sign > 0 and names.agent(cell.agent) != cell.agent:
            seen.counts["agents_beyond_limit"] += 1
        if sign > 0 and not cell.routes <= names.routes:
            seen.counts["routes_beyond_limit"] += 1


def _bug(record: Record, error: Exception) -> DeadLetter:
    return DeadLetter(record, "internal_error", f"a bug: {type(error).__name__}")


class StatePartition:
    """State, windows and positions of one partition number, while this worker owns it."""

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
        self.windows = Windows(options.windows)
        self._left = Windows(left_windows(options.windows))  # of expired conversations, for audits
        self._options = options
        self._schema = options.identity.schema_version  # by which it writes
        self._store = store
        self._dead_letters = dead_letters
        self._cache = cache
        self._names = names
        self._telemetry = telemetry
        self._output = output
        self._dedups: dict[str, Deduplicator] = {}
        self._step = Step(options.engine, self._dedup)
        self._batches = 0
        self._begun = 0  # conversations that the records taken last have begun
        self._room = Room()
        self.overdue = False  # whether more has expired than the last look has deleted

    # -- ownership ------------------------------------------------------------------------------

    def adopt(self, state: PartitionState) -> None:
        """Begin with what the store holds."""
        self._cache.drop_partition(self.number)
        self._names.forget()
        self.positions = dict(state.positions)
        self.marks = set(state.marks)
        self.windows = Windows(self._options.windows)
        self._left = Windows(left_windows(self._options.windows))
        for (window, bucket, agent), data in state.buckets.items():
            self.windows.load(window, bucket, agent, data)
            self._left.load(window, bucket, agent, data)

    @property
    def record_time_ms(self) -> int:
        """The largest record timestamp read, of all topics; 0 before the first."""
        return max((p.record_time_ms for p in self.positions.values()), default=0)

    # -- a batch --------------------------------------------------------------------------------

    async def process(self, records: Sequence[Record], retry: Retry[object]) -> int:
        """Take records in the order given (each topic's in its order); returns how many.

        Large inputs are taken in several atomic steps, cut between records. Raises ``Lost`` when
        the store says that another owner, or another past, holds the partition.
        """
        start = 0
        self._begun = 0
        while start < len(records):
            size = min(self._options.batch_records, self._room.records)
            chunk = records[start : start + size]
            filled = await self._process(chunk, retry)
            self._room.note(len(chunk), filled)
            if filled > 1 and len(chunk) > 1:
                continue
            start += len(chunk)
        return len(records)

    async def _process(
        self,
        records: Sequence[Record],
        retry: Retry[object],
        refused: BadRecord | None = None,
    ) -> float:
        """One atomic step; returns how much of a call its changes fill.

        Several records whose changes exceed one call are left undone: take fewer. One record fills
        more than a call up to ``HARD_CAP_BYTES``, and is set aside beyond. ``refused`` sets all
        records aside.
        """
        clock = time.perf_counter
        started = clock()
        observations = Observations()
        letters: list[DeadLetter] = []
        works: dict[ConversationKey, _Work] = {}
        if refused is None:
            works = self._decode(records, letters)
        else:
            letters = [DeadLetter(r, refused.reason, refused.message) for r in records]
        decoded = clock()
        await self._open(works, observations, retry)
        loaded = clock()
        for work in works.values():
            await self._apply(work, observations, letters, retry)
        writes = [self._write_of(work) for work in works.values()]
        stepped = clock()
        positions = self._positions_after(records, works)
        call = await self._call(works, writes, positions, retry, observations)
        too_much = call.filled > 1 and (len(records) > 1 or call.size > HARD_CAP_BYTES)
        if too_much and refused is None:
            for work in works.values():
                self._cache.drop(self.number, work.key)
            if len(records) > 1:
                return call.filled
            return await self._process(records, retry, TOO_MUCH_STATE)
        if letters:
            turned_away = sorted(
                (replace(letter, record=letter.record.as_sent) for letter in letters),
                key=lambda letter: (letter.record.topic, letter.record.offset),
            )
            await retry(lambda: self._dead_letters.send(turned_away))
        sent = clock()
        messages = [work.message for work in works.values() if work.message is not None]
        if self._output is not None and messages:
            await self._publish(self._output, messages, retry)
        published = clock()
        await self._write(call.batch, retry)
        written = clock()
        call.taken()
        self._begun += observations.opened["nowhere"]
        for work in works.values():
            if work.conversation is not None:
                work.conversation.schema = max(self._schema, work.conversation.schema)
                self._cache.put(self.number, work.key, work.conversation)
        telemetry = self._telemetry
        telemetry.observe(observations)
        telemetry.bad_records(Counter(letter.reason for letter in letters))
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

    def _decode(
        self, records: Sequence[Record], letters: list[DeadLetter]
    ) -> dict[ConversationKey, _Work]:
        works: dict[ConversationKey, _Work] = {}
        keys: dict[str, ConversationKey] = {}
        intake = self._intake(self._options.key_id, require_key=self._options.require_key)
        last_ms = self._last_ms()
        for record in records:
            try:
                event = intake.take(record.value, key=record.key, timestamp_ms=record.timestamp_ms)
            except MemoryError:
                raise  # it says nothing about the record
            except Exception as error:
                letters.append(_bug(record, error))
                continue
            if isinstance(event, BadRecord):
                letters.append(DeadLetter(record, event.reason, event.message))
                continue
            conversation_id = event.conversation_id
            key = keys.get(conversation_id)
            if key is None:
                key = keys[conversation_id] = conversation_key(conversation_id)
                works[key] = _Work(key, conversation_id)
            work = works[key]
            work.events.append((event, record))
            stamp = last_ms(record)
            if stamp > work.last_record_ms:
                work.last_record_ms = stamp
        return works

    def _note_new(self, work: _Work, conversation: Conversation, seen: Observations) -> None:
        """Count what is odd about a conversation that begins, or that begins afresh.

        A forget comes on every partition, so that it says nothing about where a key belongs.
        """
        options = self._options
        events = [event for event, _ in work.events if type(event.payload) is not Forget]
        if not events:
            return
        if options.partitioner is not None:
            expected = options.partitioner(work.conversation_id.encode())
            if expected != self.number:
                seen.counts["partitioner_mismatches"] += 1
        expired_us = 1000 * (self.record_time_ms - options.ttl_ms)
        late = [event for event in events if event.occurred_us < expired_us]
        seen.counts["expired"] += len(events if conversation.expired else late)

    async def _open(
        self, works: dict[ConversationKey, _Work], seen: Observations, retry: Retry[object]
    ) -> None:
        """Bring every conversation of the batch into memory, by one round trip at most each way."""
        missing: list[tuple[_Work, bool]] = []
        without: list[_Work] = []
        for work in works.values():
            fingerprints = any(needs_fingerprints(event) for event, _ in work.events)
            work.conversation = self._cache.get(self.number, work.key)
            if work.conversation is None:
                missing.append((work, fingerprints))
            elif fingerprints and not work.conversation.has_fingerprints:
                without.append(work)
        seen.opened["cache"] += len(works) - len(missing) - len(without)
        seen.opened["store"] += len(without)
        if missing:
            keys = [(work.key, fingerprints) for work, fingerprints in missing]
            stored = await self._ask(lambda: self._store.load(self.number, keys), retry)
            for (work, _), parts in zip(missing, stored, strict=True):
                work.conversation = self._restore(work.conversation_id, parts)
                where = "store" if work.conversation.schema else "nowhere"
                seen.opened[where] += 1
                if not work.conversation.schema:
                    self._note_new(work, work.conversation, seen)
        if without:
            names = [(work.key, True) for work in without]
            found = await self._ask(lambda: self._store.load(self.number, names, hot=False), retry)
            for work, parts in zip(without, found, strict=True):
                conversation = work.conversation
                assert conversation is not None
                dedup = self._dedup(conversation.key_id)
                add_fingerprints(conversation, parts.fingerprints or {}, dedup)
                self._step.restore(conversation)

    def _restore(self, conversation_id: str, parts: StoredConversation) -> Conversation:
        conversation = decode_conversation(conversation_id, parts.hot, self._options.key_id)
        if not parts.hot:
            return conversation
        if parts.fingerprints is not None:
            dedup = self._dedup(conversation.key_id)
            add_fingerprints(conversation, parts.fingerprints, dedup)
        self._step.restore(conversation)
        return conversation

    async def _apply(
        self,
        work: _Work,
        observations: Observations,
        letters: list[DeadLetter],
        retry: Retry[object],
    ) -> None:
        assert work.conversation is not None
        try:
            events = [self._with_its_key(work, *event) for event in work.events]
            self._take(work, events, observations)
        except MemoryError:
            raise
        except Exception as error:
            await self._isolate(work, error, observations, letters, retry)

    def _with_its_key(self, work: _Work, event: Taken, record: Record) -> Taken:
        """``event``, digested with the key that its conversation began with."""
        assert work.conversation is not None
        key_id = work.conversation.key_id
        if key_id == event.key_id:
            return event
        again = self._intake(key_id).take(record.value, timestamp_ms=record.timestamp_ms)
        assert isinstance(again, Taken)  # as it was the first time
        return again

    async def _isolate(
        self,
        work: _Work,
        error: Exception,
        observations: Observations,
        letters: list[DeadLetter],
        retry: Retry[object],
    ) -> None:
        """A bug: find the events that trigger it, set them aside, and go on without them."""
        self._cache.drop(self.number, work.key)
        parts = (await self._ask(lambda: self._store.load(self.number, [(work.key, True)]), retry))[
            0
        ]
        good: list[Taken] = []
        for sent, record in work.events:
            trial = self._restore(work.conversation_id, parts)
            try:
                event = self._with_its_key(work, sent, record)
                on_trial = _Work(work.key, work.conversation_id, conversation=trial)
                self._take(on_trial, [*good, event], Observations())
            except MemoryError:
                raise
            except Exception as found:
                error = found
                letters.append(_bug(record, error))
            else:
                good.append(event)
        work.conversation = self._restore(work.conversation_id, parts)
        self._take(work, good, observations)

    def _take(self, work: _Work, events: Sequence[Taken], observations: Observations) -> None:
        """Apply events to a conversation, and make the message that they are due."""
        assert work.conversation is not None
        work.changes = self._step.apply(work.conversation, events, observations)
        if self._output is not None:
            scope = self._options.turn_scope
            work.message = message_after(work.conversation, work.changes, events, scope)

    def _write_of(self, work: _Work) -> ConversationWrite:
        assert work.conversation is not None
        assert work.changes is not None
        dedup = self._dedup(work.conversation.key_id)
        hot, fingerprints = encode_changes(work.conversation, work.changes, dedup, self._schema)
        return ConversationWrite(work.key, hot, fingerprints, work.last_record_ms)

    async def _call(
        self,
        works: dict[ConversationKey, _Work],
        writes: list[ConversationWrite],
        positions: dict[str, Position],
        retry: Retry[object],
        seen: Observations,
        expired: Sequence[Cell] = (),
        marks: Sequence[str] = (),
    ) -> _Call:
        """The call that writes a batch, which may be larger than calls are to be.

        ``expired`` is what conversations that go now leave in the windows. ``marks`` are noted of
        the partition.
        """
        cells = [
            cell
            for work in works.values()
            if work.changes is not None
            for cell in work.changes.cells
        ]
        staying = [(1, cell) for cell in expired]
        names = await self._ask(lambda: self._names.names([*cells, *staying]), retry)
        record_time_us = 1000 * max((p.record_time_ms for p in positions.values()), default=0)
        touched = self.windows.changes(cells, names, record_time_us)
        seen.late.update(self.windows.late(cells, record_time_us))
        _note_unnamed(cells, names, seen)
        left: Touched = {}
        if staying or not self._left.empty:
            left = self._left.changes(staying, names, record_time_us)
        self._batches += 1
        batch = BatchWrite(
            partition=self.number,
            token=self.token,
            batch_id=hashlib.blake2b(
                self.token + self._batches.to_bytes(8, "big"), digest_size=16
            ).digest(),
            expected={topic: position.offset for topic, position in self.positions.items()},
            positions=positions,
            conversations=writes,
            buckets=touched | left,
            marks=marks,
        )
        size, arguments = estimate(batch)
        filled = max(size / CALL_BYTES, arguments / CALL_ARGUMENTS)

        def taken() -> None:
            self.windows.install(touched)
            self._left.install(left)
            self.positions = positions
            self._telemetry.state_written(size)

        return _Call(batch, size, filled, taken)

    async def _publish(
        self, output: Output, messages: Sequence[OutputMessage], retry: Retry[object]
    ) -> None:
        """Produce ``messages`` as the owner; raises ``Lost`` instead once somebody else is."""
        sure = True  # a way that was begun before was begun by an owner, or before its claim

        async def send() -> None:
            nonlocal sure
            if not output.begun:
                sure = False
                await output.begin()
            if not sure:
                await self._look()
                sure = True
            await output.send(messages)

        while True:
            try:
                return await retry(send)  # type: ignore[return-value]
            except OutputFenced:
                await self.check(retry)

    async def _write(self, batch: BatchWrite, retry: Retry[object]) -> None:
        result = await self._ask(lambda: self._store.write(batch), retry)
        if type(result) is Fenced:
            raise Lost(self.number, "fenced")
        if type(result) is Moved:
            raise Lost(self.number, "moved")

    async def _ask(self, call: Callable[[], Awaitable[T]], retry: Retry[object]) -> T:
        started = time.perf_counter()
        answer = await retry(call)
        self._telemetry.redis(time.perf_counter() - started)
        return answer  # type: ignore[return-value]

    def _positions_after(
        self, records: Sequence[Record], works: dict[ConversationKey, _Work]
    ) -> dict[str, Position]:
        positions = dict(self.positions)
        latest: dict[str, int] = {}
        events: dict[str, int] = {}
        for work in works.values():
            for event, record in work.events:
                topic = record.topic
                if event.occurred_us > events.get(topic, 0):
                    events[topic] = event.occurred_us
        last: dict[str, Record] = {}
        clock = self._options.now_ms
        bound = clock() if clock is not None else None
        for record in records:
            topic = record.topic
            last[topic] = record
            stamp = record.timestamp_ms or 0
            if bound is not None and stamp > bound:
                stamp = bound
            if stamp > latest.get(topic, 0):
                latest[topic] = stamp
        for topic, record in last.items():
            before = positions.get(topic, Position(0))
            positions[topic] = Position(
                record.offset + 1,
                record.timestamp_ms if record.timestamp_ms is not None else -1,
                self.record_digest(record),
                max(before.record_time_ms, latest.get(topic, 0)),
                max(before.event_time_us, events.get(topic, 0)),
            )
        return positions

    def _last_ms(self) -> Callable[[Record], int]:
        """When a record was written, as far as expiry goes by it.

        One without a timestamp counts as now, one from the far future as ``FAR_AHEAD_MS`` from now:
        clocks may be behind. Where there is no clock, what has no timestamp is from the beginning.
        """
        clock = self._options.latest_ms or self._options.now_ms
        now_ms = 0 if clock is None else clock()
        most_ms = MAX_TIMESTAMP_MS if clock is None else now_ms + FAR_AHEAD_MS

        def last_ms(record: Record) -> int:
            stamp = record.timestamp_ms
            if stamp is None or stamp < 0:
                return now_ms
            return stamp if stamp < most_ms else most_ms

        return last_ms

    def record_digest(self, record: Record) -> bytes:
        """A keyed digest of a record, to recognise it after a restart."""
        return record_digest(record, self._options)

    # -- now and then -----------------------------------------------------------------------------

    async def check(self, retry: Retry[object]) -> None:
        """Raise ``Lost`` if the store has another owner or other offsets; for idle partitions."""
        await self._ask(self._look, retry)

    async def beat(self, retry: Retry[object], behind_ms: int | None) -> None:
        """Send the heartbeat, which says how far the partition is behind; None: not known."""
        worker = self._options.worker
        if worker:
            await self._ask(
                lambda: self._store.heartbeat(self.number, self.token, worker, behind_ms), retry
            )

    async def _look(self) -> None:
        state = await self._store.describe(self.number)
        if state.token != self.token:
            raise Lost(self.number, "fenced")
        if {t: p.offset for t, p in state.positions.items()} != {
            t: p.offset for t, p in self.positions.items()
        }:
            raise Lost(self.number, "moved")

    async def advance(self, offsets: Mapping[str, int], retry: Retry[object]) -> None:
        """Note offsets that were passed without a record, such as transaction markers."""
        positions = {
            topic: replace(position, offset=max(position.offset, offsets.get(topic, 0)))
            for topic, position in self.positions.items()
        }
        if positions != self.positions:
            await self.move(positions, retry)

    async def put(
        self, writes: Sequence[ConversationWrite], marks: Sequence[str], retry: Retry[object]
    ) -> None:
        """Write conversations that no record has brought, and note marks. Raises ``Lost``."""
        call = await self._call(
            {}, list(writes), dict(self.positions), retry, Observations(), marks=marks
        )
        await self._write(call.batch, retry)
        call.taken()
        self.marks.update(marks)

    async def publish(self, messages: Sequence[OutputMessage], retry: Retry[object]) -> None:
        """Send messages as the owner, if there is an output topic. Raises ``Lost``."""
        if self._output is not None:
            await self._publish(self._output, messages, retry)

    async def move(self, positions: dict[str, Position], retry: Retry[object]) -> None:
        """Go on from other positions; all else stays. Raises ``Lost``."""
        call = await self._call({}, [], positions, retry, Observations())
        await self._write(call.batch, retry)
        call.taken()

    # -- expiry ---------------------------------------------------------------------------------

    async def expire(self, horizon_ms: int, retry: Retry[object]) -> int:
        """Delete conversations whose last record is older than ``horizon_ms`` - ttl; how many.

        ``EXPIRE_AT_ONCE``, or four times as many as the records taken last have begun: no look
        takes long, and neither conversations nor stubs pile up. ``overdue`` tells whether there
        are more.
        """
        before_ms = horizon_ms - self._options.ttl_ms
        most = max(EXPIRE_AT_ONCE, 4 * self._begun)
        done, self._begun, self.overdue = 0, 0, True
        while self.overdue and done < most:
            keys = await self._ask(
                lambda: self._store.by_age(self.number, BEGINNING, before_ms, EXPIRE_AT_ONCE),
                retry,
            )
            expired = await self._expire(keys, horizon_ms, retry)
            self.overdue = expired < len(keys) or len(keys) == EXPIRE_AT_ONCE
            done += expired
        return done

    async def _expire(
        self, keys: Sequence[ConversationKey], horizon_ms: int, retry: Retry[object]
    ) -> int:
        """Delete the first of these, as many as one step may; how many.

        What they added to the windows stays, and is noted beside them. Where a conversation was,
        a stub is left for another ttl, so that events that come too late are known for it.
        """
        if not keys:
            return 0
        loaded: list[tuple[ConversationKey, Conversation]] = []
        size = 0
        while len(loaded) < len(keys) and size < CALL_BYTES:
            part = keys[len(loaded) : len(loaded) + EXPIRE_LOADED]
            for key, parts in zip(part, await self._load(part, retry), strict=True):
                loaded.append((key, self._restore("", parts)))
                size += sum(map(len, parts.hot.values()))
        observations = Observations()
        call = await self._expiry(loaded, horizon_ms, retry, observations)
        while call.filled > 1 and len(loaded) > 1:
            del loaded[len(loaded) // 2 :]
            observations = Observations()
            call = await self._expiry(loaded, horizon_ms, retry, observations)
        for key, conversation in loaded:
            self._cache.drop(self.number, key)
            turns = conversation.turns.values()
            observations.counts["labels_orphan"] += sum(map(waiting_labels, turns))
        await self._write(call.batch, retry)
        call.taken()
        self._telemetry.observe(observations)
        return len(loaded)

    async def _expiry(
        self,
        loaded: Sequence[tuple[ConversationKey, Conversation]],
        horizon_ms: int,
        retry: Retry[object],
        seen: Observations,
    ) -> _Call:
        """The call that deletes these conversations."""
        cells: list[Cell] = []
        writes: list[ConversationWrite] = []
        for key, conversation in loaded:
            cells += conversation_cells(conversation, self._options.engine)
            writes.append(ConversationWrite(key, delete=True))
            if conversation.turns:
                writes.append(
                    ConversationWrite(key, encode_stub(self._schema), last_record_ms=horizon_ms)
                )
        return await self._call({}, writes, dict(self.positions), retry, seen, cells)

    async def _load(
        self, keys: Sequence[ConversationKey], retry: Retry[object]
    ) -> list[StoredConversation]:
        wanted = [(key, False) for key in keys]
        return await self._ask(lambda: self._store.load(self.number, wanted), retry)

    def _intake(self, key_id: str, *, require_key: bool = False) -> Intake:
        engine = self._options.engine
        return Intake(
            self._dedup(key_id), key_id, engine.rules.tables, engine.limits, require_key=require_key
        )

    def _dedup(self, key_id: str) -> Deduplicator:
        made = self._dedups.get(key_id)
        if made is None:
            key = self._options.keys.get(key_id)
            if key is None:
                raise OtherIdentity(
                    f"a conversation was digested with key {key_id!r}, which is not configured; "
                    "set `state.digest_key` to the original key of the namespace"
                )
            options = self._options
            made = self._dedups[key_id] = options.dedups.of(options.engine.rules, key)
        return made
