"""The conversations of a batch: decodes their events, loads them, and applies the events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

from stream_metrics.core.alerts.minutes import MINUTE_MS, Arrivals
from stream_metrics.core.dedup.deduplicator import Deduplicator
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.codec import (
    UnknownSchema,
    add_fingerprints,
    decode_conversation,
    encode_changes,
)
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.registers import FORGET
from stream_metrics.core.engine.state import Cell, Conversation, DamagedState
from stream_metrics.core.engine.step import Step
from stream_metrics.core.events.bugs import Bug
from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.record import MAX_TIMESTAMP_MS, DeadLetter, Record
from stream_metrics.live.ports import (
    ConversationKey,
    ConversationWrite,
    OutputMessage,
    Position,
    StateStore,
    StoredConversation,
)
from stream_metrics.live.worker.ahead import event_of
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.options import PartitionOptions, conversation_key, record_digest
from stream_metrics.live.worker.output import message_after
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import Telemetry, timed

T = TypeVar("T")

NO_BUGS: Final = (MemoryError, DamagedState, UnknownSchema, OtherIdentity)
"""Errors that end or halt the work on a partition, because no record is at fault."""
FAR_AHEAD_MS: Final = 7 * 86_400_000  # how much longer a wrong timestamp can keep a conversation


@dataclass(slots=True)
class Work:
    """A conversation in a batch.

    ``conversation`` is its state after those of ``events`` that have been applied; None before
    ``Conversations.open``, and where a bug keeps it from being known. ``write``, ``cells`` (to
    subtract from, -1, or add to the windows) and ``message`` are what they change; ``write`` is
    None if that is nothing. ``minutes`` are those in which events arrived, None for those that
    count nothing for alerts: without a time, or of an erased conversation, which says nothing about
    how its agent does. ``arrivals`` are the cells by minute.
    """

    key: ConversationKey
    conversation_id: str
    events: list[tuple[DigestedEvent, Record]] = field(default_factory=list)
    minutes: list[int | None] = field(default_factory=list)
    conversation: Conversation | None = None
    write: ConversationWrite | None = None
    cells: list[tuple[int, Cell]] = field(default_factory=list)
    arrivals: list[Arrivals] = field(default_factory=list)
    message: OutputMessage | None = None
    last_record_ms: int = 0

    def undo(self) -> None:
        """Forget the state, and what has been changed."""
        self.conversation = self.write = self.message = None
        self.cells, self.arrivals, self.last_record_ms = [], [], 0


class Conversations:
    """The conversations of one state partition.

    ``sends_rows`` tells whether there is an output topic, so that changed conversations get a
    message.
    """

    def __init__(
        self,
        number: int,
        options: PartitionOptions,
        store: StateStore,
        cache: ConversationCache,
        telemetry: Telemetry,
        *,
        sends_rows: bool,
    ) -> None:
        self._number = number
        self._options = options
        self._schema = options.identity.schema_version  # written
        self._store = store
        self._cache = cache
        self._telemetry = telemetry
        self._sends_rows = sends_rows
        self._dedups: dict[str, Deduplicator] = {}
        self.step = Step(options.engine, self.dedup)

    def decode(
        self, records: Sequence[Record], letters: list[DeadLetter]
    ) -> dict[ConversationKey, Work]:
        """The records' events by conversation; records without one are added to ``letters``."""
        works: dict[ConversationKey, Work] = {}
        keys: dict[str, ConversationKey] = {}
        decoder = self._decoder(self._options.key_id, require_key=self._options.require_key)
        for record, time_ms in zip(records, _times_ms(records, self._options), strict=True):
            try:
                event = event_of(record, self._options) or decoder.decode(
                    record.value, key=record.key, timestamp_ms=record.timestamp_ms
                )
            except MemoryError:
                raise  # not the record's fault
            except Exception as error:
                letters.append(DeadLetter.of_bug(record, error))
                continue
            if isinstance(event, BadRecord):
                letters.append(DeadLetter(record, event.reason, event.message))
                continue
            conversation_id = event.conversation_id
            key = keys.get(conversation_id)
            if key is None:
                key = keys[conversation_id] = conversation_key(conversation_id)
                works[key] = Work(key, conversation_id)
            work = works[key]
            work.events.append((event, record))
            counts = record.timestamp_ms is not None and event.kind is not FORGET
            work.minutes.append(time_ms // MINUTE_MS if counts else None)
            if time_ms > work.last_record_ms:
                work.last_record_ms = time_ms
        return works

    def _note_new(
        self, work: Work, conversation: Conversation, seen: Observations, record_time_ms: int
    ) -> None:
        """Count misplaced and late events of a conversation that the store does not have.

        Forget events are ignored: they are sent to every partition, whatever their key.
        """
        options = self._options
        events = [event for event, _ in work.events if event.kind is not FORGET]
        if not events:
            return
        if options.partitioner is not None:
            expected = options.partitioner(work.conversation_id.encode())
            if expected != self._number:
                seen.counts["partitioner_mismatches"] += 1
        expired_us = 1000 * (record_time_ms - options.ttl_ms)
        late = [event for event in events if event.occurred_us < expired_us]
        seen.counts["expired"] += len(events if conversation.expired else late)

    async def open(
        self,
        works: dict[ConversationKey, Work],
        seen: Observations,
        letters: list[DeadLetter],
        retry: Retry,
        record_time_ms: int,
    ) -> None:
        """Load every conversation of the batch that is not in memory, in at most two round trips.

        If a bug prevents that, its events become dead letters. ``record_time_ms`` is the largest
        record timestamp before the batch.
        """
        missing: list[tuple[Work, bool]] = []
        without: list[Work] = []
        for work in works.values():
            fingerprints = any(event.kind.needs_fingerprints for event, _ in work.events)
            work.conversation = self._cache.get(self._number, work.key)
            if work.conversation is None:
                missing.append((work, fingerprints))
            elif fingerprints and not work.conversation.has_fingerprints:
                without.append(work)
        seen.opened["cache"] += len(works) - len(missing) - len(without)
        seen.opened["store"] += len(without)
        if missing:
            keys = [(work.key, fingerprints) for work, fingerprints in missing]
            stored = await self._ask(lambda: self._store.load(self._number, keys), retry)
            for (work, _), parts in zip(missing, stored, strict=True):
                try:
                    work.conversation = self.restore(work.conversation_id, parts)
                except NO_BUGS:
                    raise
                except Exception as error:
                    self._reject(work, error, letters)
                    continue
                where = "store" if work.conversation.schema else "nowhere"
                seen.opened[where] += 1
                if not work.conversation.schema:
                    self._note_new(work, work.conversation, seen, record_time_ms)
        if without:
            names = [(work.key, True) for work in without]
            found = await self._ask(lambda: self._store.load(self._number, names, hot=False), retry)
            for work, parts in zip(without, found, strict=True):
                conversation = work.conversation
                assert conversation is not None
                try:
                    dedup = self.dedup(conversation.key_id)
                    add_fingerprints(conversation, parts.fingerprints or {}, dedup)
                    self.step.restore(conversation)
                except NO_BUGS:
                    raise
                except Exception as error:
                    self._reject(work, error, letters)

    def restore(self, conversation_id: str, parts: StoredConversation) -> Conversation:
        """A conversation from its stored parts, with all derived values."""
        conversation = decode_conversation(conversation_id, parts.hot, self._options.key_id)
        if not parts.hot:
            return conversation
        if parts.fingerprints is not None:
            dedup = self.dedup(conversation.key_id)
            add_fingerprints(conversation, parts.fingerprints, dedup)
        self.step.restore(conversation)
        return conversation

    async def apply(
        self,
        work: Work,
        observations: Observations,
        letters: list[DeadLetter],
        retry: Retry,
    ) -> None:
        """Apply the events; one that triggers a bug becomes a dead letter."""
        if work.conversation is None:
            return
        try:
            events = [self._with_its_key(work, *event) for event in work.events]
            first = work.minutes[0]
            if work.minutes.count(first) == len(events):
                self._take(work, events, first, observations)
            else:
                at_once = groupby(zip(work.minutes, events, strict=True), itemgetter(0))
                for minute, taken in at_once:
                    self._take(work, [event for _, event in taken], minute, observations)
        except MemoryError:
            raise
        except Exception as error:
            found = await self._take_one_by_one(work, observations, retry)
            if not found:  # the bug is in taking them together
                self._telemetry.bug(Bug.of(error))
            letters += found

    def _with_its_key(self, work: Work, event: DigestedEvent, record: Record) -> DigestedEvent:
        """The event, digested with the digest key of its conversation."""
        assert work.conversation is not None
        key_id = work.conversation.key_id
        if key_id == event.key_id:
            return event
        again = self._decoder(key_id).decode(record.value, timestamp_ms=record.timestamp_ms)
        assert isinstance(again, DigestedEvent)  # as when it was decoded first
        return again

    async def _take_one_by_one(
        self, work: Work, observations: Observations, retry: Retry
    ) -> list[DeadLetter]:
        """Apply those events that trigger no bug; the dead letters of the others.

        After a bug the conversation is restored: from the store, and what the events before have
        changed.
        """
        self._cache.drop(self._number, work.key)
        wanted = [(work.key, True)]
        [stored] = await self._ask(lambda: self._store.load(self._number, wanted), retry)
        work.undo()
        letters: list[DeadLetter] = []
        times_ms = _times_ms((record for _, record in work.events), self._options)
        taken = zip(work.events, work.minutes, times_ms, strict=True)
        for (event, record), minute, time_ms in taken:
            if work.conversation is None:
                await asyncio.sleep(0)  # heartbeats: many bugs in a large conversation take long
                try:
                    parts = _changed(stored, work.write)
                    work.conversation = self.restore(work.conversation_id, parts)
                except MemoryError:
                    raise
                except Exception as error:
                    if work.write is None and isinstance(error, NO_BUGS):
                        raise
                    letters = []
                    self._reject(work, error, letters)
                    break
            try:
                events = [self._with_its_key(work, event, record)]
                self._take(work, events, minute, observations)
            except MemoryError:
                raise
            except Exception as error:
                work.conversation = None
                letters.append(DeadLetter.of_bug(record, error))
            else:
                assert work.write is not None
                work.write.last_record_ms = max(work.write.last_record_ms, time_ms)
        return letters

    def _reject(self, work: Work, error: Exception, letters: list[DeadLetter]) -> None:
        """Make all events dead letters; the conversation in the store remains as it is."""
        self._cache.drop(self._number, work.key)
        work.undo()
        letters += (DeadLetter.of_bug(record, error) for _, record in work.events)

    def _take(
        self,
        work: Work,
        events: Sequence[DigestedEvent],
        minute: int | None,
        observations: Observations,
    ) -> None:
        """Apply events of a minute, and note all that has to be written and sent for it.

        If that raises, the conversation is in no defined state.
        """
        conversation, message = work.conversation, None
        assert conversation is not None
        changes = self.step.apply(conversation, events, observations)
        if self._sends_rows:
            message = message_after(conversation, changes, events, self._options.turn_scope)
        dedup = self.dedup(conversation.key_id)
        hot, fingerprints = encode_changes(conversation, changes, dedup, self._schema)
        if work.write is None:
            work.write = ConversationWrite(work.key, hot, fingerprints, work.last_record_ms)
        else:
            work.write.hot |= hot
            work.write.fingerprints |= fingerprints
        work.cells += changes.cells
        if minute is not None:
            work.arrivals.append((minute, changes.cells))
        work.message = message or work.message

    async def load(self, keys: Sequence[ConversationKey], retry: Retry) -> list[StoredConversation]:
        """Load conversations without their fingerprints."""
        wanted = [(key, False) for key in keys]
        return await self._ask(lambda: self._store.load(self._number, wanted), retry)

    async def _ask(self, call: Callable[[], Awaitable[T]], retry: Retry) -> T:
        return await timed(call, retry, self._telemetry)

    def _decoder(self, key_id: str, *, require_key: bool = False) -> RecordDecoder:
        engine = self._options.engine
        return RecordDecoder(
            self.dedup(key_id),
            key_id,
            engine.rules.tables,
            engine.limits,
            require_key=require_key,
            model_labellers=engine.model_labellers,
        )

    def dedup(self, key_id: str) -> Deduplicator:
        """The deduplicator that uses the digest key with this id; raises ``OtherIdentity``."""
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


def _changed(stored: StoredConversation, write: ConversationWrite | None) -> StoredConversation:
    """A stored conversation as it is after a write."""
    if write is None:
        return stored
    hot, fingerprints = stored.hot | write.hot, (stored.fingerprints or {}) | write.fingerprints
    return StoredConversation(
        {name: part for name, part in hot.items() if part is not None},
        {name: part for name, part in fingerprints.items() if part is not None},
    )


def _times_ms(records: Iterable[Record], options: PartitionOptions) -> list[int]:
    """The times of records, for expiry.

    A record without a timestamp counts as written now, or at time 0 without a clock. A timestamp
    in the future is limited to ``FAR_AHEAD_MS`` from now, because this machine's clock may be slow.
    """
    clock = options.latest_ms or options.now_ms
    now_ms = 0 if clock is None else clock()
    most_ms = MAX_TIMESTAMP_MS if clock is None else now_ms + FAR_AHEAD_MS
    stamps = [record.timestamp_ms for record in records]
    return [
        now_ms if stamp is None or stamp < 0 else stamp if stamp < most_ms else most_ms
        for stamp in stamps
    ]


def positions_after(
    known: Mapping[str, Position],
    records: Sequence[Record],
    works: Mapping[ConversationKey, Work],
    options: PartitionOptions,
) -> dict[str, Position]:
    """The positions of a partition after a batch."""
    positions = dict(known)
    latest: dict[str, int] = {}
    events: dict[str, int] = {}
    for work in works.values():
        for event, record in work.events:
            topic = record.topic
            if event.occurred_us > events.get(topic, 0):
                events[topic] = event.occurred_us
    last: dict[str, Record] = {}
    clock = options.now_ms
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
            record_digest(record, options),
            max(before.record_time_ms, latest.get(topic, 0)),
            max(before.event_time_us, events.get(topic, 0)),
        )
    return positions
