"""In-memory implementations of the ports, for replays without Redis, the demo, and tests.

They make the same checks as the real ones. With ``available = False`` every call fails;
``snapshot`` and ``restore`` simulate a store that has lost its latest writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.layout import NOTHING, Generation, Layout, decode, encode
from stream_metrics.live.ports import (
    Arrived,
    BatchWrite,
    ConversationKey,
    DeadLettersUnavailable,
    Fenced,
    Moved,
    OutputFenced,
    OutputMessage,
    OutputUnavailable,
    PartitionState,
    Position,
    StoredConversation,
    StoreUnavailable,
    Superseded,
    Wiped,
    WipeResult,
    Wiping,
    WriteResult,
    Written,
)
from stream_metrics.live.worker.batches import check_batch, check_claim, frozen_token
from stream_metrics.live.worker.clock import wall_ms
from stream_metrics.live.worker.ownership.generations import check_claimed

Parts = dict[bytes, bytes]


@dataclass(slots=True)
class _Conversation:
    last_record_ms: int = 0
    hot: Parts = field(default_factory=dict)
    fingerprints: Parts = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    token: bytes
    positions: dict[str, Position]
    batch_id: bytes = b""
    buckets: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    conversations: dict[ConversationKey, _Conversation] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    wiping: bool = False  # what is left is no state any more
    worker: str = ""  # the name that came with the heartbeat of ``beat_token``
    beat_ms: int = 0
    behind_ms: int | None = None
    beat_token: bytes = b""

    @property
    def offsets(self) -> dict[str, int]:
        return {topic: position.offset for topic, position in self.positions.items()}


_PartitionKey = tuple[str, int]  # the mark of a generation, and the number of a partition


@dataclass(slots=True)
class _Content:
    layout: bytes = b""
    partitions: dict[_PartitionKey, _Partition] = field(default_factory=dict)
    frozen: dict[_PartitionKey, int] = field(default_factory=dict)  # by which generation
    notes: dict[str, bytes] = field(default_factory=dict)


class MemorySnapshot:
    """An opaque copy of the content of a ``MemoryStore``."""

    __slots__ = ("_content",)

    def __init__(self, content: _Content) -> None:
        self._content = deepcopy(content)

    def copy(self) -> _Content:
        """A copy, so that one snapshot can be restored many times."""
        return deepcopy(self._content)


class MemoryStore:
    """A ``StateStore`` in dictionaries; arguments and results are copied.

    Without ``generation``, it holds the partitions of a generation that is not in the layout. Calls
    raise ``StoreUnavailable`` unless ``available``; ``clock`` returns milliseconds of Unix time.
    The stores of its generations use these attributes too.
    """

    def __init__(self) -> None:
        self.available = True
        self.clock: Callable[[], int] = wall_ms
        self.wiped_at_once = 256  # conversations in one step of a wipe
        self._content = _Content()
        self._space = self  # the store whose attributes apply
        self._generation: Generation | None = None

    def snapshot(self) -> MemorySnapshot:
        """A copy of the content."""
        return MemorySnapshot(self._content)

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore a snapshot, like a failover to a lagging replica."""
        kept = snapshot.copy()
        shared = self._content  # by the stores of all generations
        shared.layout, shared.partitions, shared.frozen = kept.layout, kept.partitions, kept.frozen
        shared.notes = kept.notes

    # -- the namespace

    async def layout(self) -> Layout:
        """See ``StateStore.layout``."""
        self._require()
        return decode(self._content.layout) if self._content.layout else NOTHING

    async def change_layout(self, after: Layout) -> Layout | None:
        """See ``StateStore.change_layout``; generations get no places here."""
        before = await self.layout()
        if after.version != before.version + 1:
            return None
        self._content.layout = encode(after)
        return await self.layout()

    async def note(self, name: str) -> bytes:
        """See ``Notes.note``."""
        self._require()
        return self._content.notes.get(name, b"")

    async def keep_note(self, name: str, text: bytes) -> None:
        """See ``Notes.keep_note``."""
        self._require()
        self._content.notes[name] = text

    async def drop_notes(self) -> None:
        """See ``Notes.drop_notes``."""
        self._require()
        self._content.notes.clear()

    def generation(self, generation: Generation) -> MemoryStore:
        """See ``StateStore.generation``."""
        store = MemoryStore()
        store._space, store._content, store._generation = self._space, self._content, generation
        return store

    async def close(self) -> None:
        """Do nothing."""

    # -- the partitions of a generation

    async def partitions(self) -> list[int]:
        """See ``StateStore.partitions``."""
        self._require()
        held = self._content.partitions.items()
        return sorted(n for (mark, n), one in held if mark == self._mark and not one.wiping)

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``; by ``clock``."""
        state = PartitionState(None, {}, store_ms=self._space.clock())
        state.frozen_by = await self.frozen_by(partition)
        held = self._content.partitions.get(self._place(partition))
        if held is None or held.wiping:
            state.wiping = held is not None
            return state
        state.token, state.positions = held.token, dict(held.positions)
        state.last_batch, state.marks = held.batch_id, frozenset(held.marks)
        state.conversations = len(held.conversations)
        if held.beat_token == held.token:
            state.worker, state.beat_ms = held.worker, held.beat_ms
            state.behind_ms = held.behind_ms
        return state

    async def frozen_by(self, partition: int) -> int:
        """See ``StateStore.frozen_by``."""
        self._require()
        return self._content.frozen.get(self._place(partition), 0)

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``; ``ValueError`` for arguments that no store takes."""
        check_claim(partition, token, start)
        self._require_not_frozen(partition)
        held = self._partition(partition)
        begun = held is None  # unknown, or what a wipe has left
        if held is None:
            held = self._content.partitions[self._place(partition)] = _Partition(token, dict(start))
        held.token = token
        if self._generation is not None and not held.batch_id:
            await check_claimed(self, self._generation, partition, token, begun=begun)
        state = await self.describe(partition)
        state.buckets = dict(held.buckets)
        return state

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """See ``StateStore.heartbeat``; by ``clock``."""
        held = self._partition(partition)
        if held is not None and held.token == token:
            held.worker, held.beat_ms, held.beat_token = worker, self._space.clock(), token
            held.behind_ms = behind_ms

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """See ``StateStore.load``."""
        found = self._conversations(partition)
        empty = _Conversation()
        loaded = []
        for key, with_fingerprints in keys:
            held = found.get(key, empty)
            fingerprints = dict(held.fingerprints) if with_fingerprints else None
            loaded.append(StoredConversation(dict(held.hot) if hot else {}, fingerprints))
        return loaded

    async def write(self, batch: BatchWrite) -> WriteResult:
        """See ``StateStore.write``; ``ValueError`` for a batch that no store takes."""
        check_batch(batch)
        held = self._partition(batch.partition)
        if held is None or held.token != batch.token:
            return Fenced()
        offsets = held.offsets
        new = {topic: position.offset for topic, position in batch.positions.items()}
        if held.batch_id == batch.batch_id and new.items() <= offsets.items():
            return Written()
        if not batch.expected.items() <= offsets.items():
            return Moved(offsets)
        _apply(held, batch)
        return Written()

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """See ``StateStore.buckets``."""
        held = self._partition(partition)
        found = held.buckets if held else {}
        return {key: sums for key, sums in found.items() if window in (None, key[0])}

    async def by_age(
        self, partition: int, since_ms: int, before_ms: int, limit: int, *, newest: bool = False
    ) -> list[ConversationKey]:
        """See ``StateStore.by_age``; of equal age by their keys."""
        found = [
            (conversation.last_record_ms, key)
            for key, conversation in self._conversations(partition).items()
            if since_ms <= conversation.last_record_ms < before_ms
        ]
        return [key for _, key in sorted(found, reverse=newest)[: max(limit, 0)]]

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``."""
        for key in list(self._conversations(partition)):
            held = self._conversations(partition).get(key)
            if held is not None and held.hot:
                yield key, StoredConversation(dict(held.hot), last_record_ms=held.last_record_ms)

    async def freeze(self, partition: int, by: int) -> None:
        """See ``StateStore.freeze``."""
        self._require()
        place = self._place(partition)
        if not by:
            if place not in self._content.partitions:
                self._content.frozen.pop(place, None)
            return
        self._content.frozen[place] = by
        if (held := self._partition(partition)) is not None:
            held.token = frozen_token(by)

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """See ``StateStore.wipe``."""
        self._require()
        if token is not None:
            self._require_not_frozen(partition)
        held = self._content.partitions.get(self._place(partition))
        if held is None:
            return Wiped()
        if not held.wiping:
            if token is not None and token != held.token:
                return Fenced()
            held.wiping = True
            return Wiping()
        page = list(held.conversations)[: self._space.wiped_at_once]
        for key in page:
            del held.conversations[key]
        if held.conversations:
            return Wiping(len(page))
        del self._content.partitions[self._place(partition)]
        return Wiped()

    @property
    def _mark(self) -> str:
        return "" if self._generation is None else self._generation.mark

    def _place(self, partition: int) -> _PartitionKey:
        return self._mark, partition

    def _require_not_frozen(self, partition: int) -> None:
        self._require()
        by = self._content.frozen.get(self._place(partition))
        if by is not None:
            raise Superseded(0 if self._generation is None else self._generation.number, by)

    def _require(self) -> None:
        if not self._space.available:
            raise StoreUnavailable("the memory store was told to be unavailable")

    def _partition(self, partition: int) -> _Partition | None:
        self._require()
        held = self._content.partitions.get(self._place(partition))
        return None if held is None or held.wiping else held

    def _conversations(self, partition: int) -> dict[ConversationKey, _Conversation]:
        held = self._partition(partition)
        return held.conversations if held else {}


class MemoryDeadLetters:
    """``DeadLetters`` that are appended to the list ``letters``."""

    def __init__(self) -> None:
        self.available = True
        self.letters: list[DeadLetter] = []

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Append letters; raises ``DeadLettersUnavailable`` while not ``available``."""
        if not self.available:
            raise DeadLettersUnavailable("the dead letters were told to be unavailable")
        self.letters.extend(letters)

    def snapshot(self) -> tuple[DeadLetter, ...]:
        """The letters so far."""
        return tuple(self.letters)

    def restore(self, snapshot: tuple[DeadLetter, ...]) -> None:
        """Go back to ``snapshot``."""
        self.letters[:] = snapshot


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """A message on a ``MemoryTopic``, with its version."""

    conversation_id: str
    version: int
    value: bytes | None


class MemoryTopic:
    """An output topic as the list ``messages``, which outlives its writers."""

    def __init__(self) -> None:
        self.available = True
        self.messages: list[MemoryMessage] = []
        self.writers: dict[int, MemoryOutput] = {}

    def largest(self) -> dict[str, MemoryMessage]:
        """By conversation, the message with the largest version, the first of equal ones."""
        kept: dict[str, MemoryMessage] = {}
        for message in self.messages:
            held = kept.get(message.conversation_id)
            if held is None or message.version > held.version:
                kept[message.conversation_id] = message
        return kept

    def compacted(self) -> dict[str, MemoryMessage]:
        """By conversation, the message that came last."""
        return {message.conversation_id: message for message in self.messages}


class MemoryOutput:
    """``Output`` to a ``MemoryTopic``."""

    muted = False

    def __init__(self, topic: MemoryTopic, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self.begun = False

    async def begin(self) -> None:
        """See ``Output.begin``."""
        self._require()
        self._topic.writers[self._partition] = self
        self.begun = True

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """See ``Output.send``; ``RuntimeError`` before ``begin``."""
        if not self.begun:
            raise RuntimeError("an output sends before it has begun")
        self.begun = False
        self._require()
        if self._topic.writers[self._partition] is not self:
            raise OutputFenced
        self.begun = True
        log = self._topic.messages
        version = len(log)
        log += [MemoryMessage(m.conversation_id, version, m.value) for m in messages]

    def _require(self) -> None:
        if not self._topic.available:
            raise OutputUnavailable("the output topic was told to be unavailable")


class MemoryOutputs:
    """``Outputs`` of one worker to a ``MemoryTopic``."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._outputs: dict[int, MemoryOutput] = {}

    def of(self, partition: int) -> MemoryOutput:
        """See ``Outputs.of``."""
        return self._outputs.setdefault(partition, MemoryOutput(self._topic, partition))

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``Outputs.keep``."""
        for partition in self._outputs.keys() - set(partitions):
            del self._outputs[partition]


class MemoryConversationRecords:
    """``ConversationRecords`` of what was added.

    Refused records are among the others, so there are no letters. A record without a key belongs to
    the conversation that it names.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._records: list[Record] = []
        self._places: dict[bytes, list[int]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add records in order of arrival."""
        for record in records:
            key = record.key
            if key is None:
                found = key_of(record.value, record.timestamp_ms, self._limits)
                key = None if isinstance(found, BadRecord) else found
            if key is not None:
                self._places.setdefault(key, []).append(len(self._records))
            self._records.append(self._kept(record))

    def _kept(self, record: Record) -> Record:
        """What to keep of a record."""
        return record

    def _arrived(self, place: int) -> Arrived:
        return Arrived(place, self._records[place])

    async def of_conversation(self, conversation_id: str, after: int, most: int) -> list[Arrived]:
        """See ``ConversationRecords.of_conversation``."""
        places = self._places.get(conversation_id.encode(errors="replace"), [])
        first = bisect_right(places, after)
        return [self._arrived(place) for place in places[first : first + most]]

    async def newest(self, before: int | None, most: int) -> list[Arrived]:
        """See ``ConversationRecords.newest``."""
        end = len(self._records) if before is None else max(0, before)
        return [self._arrived(place) for place in range(end - 1, max(-1, end - 1 - most), -1)]

    async def letters(self, conversation_id: str, most: int) -> list[DeadLetter]:
        """See ``ConversationRecords.letters``."""
        return []

    async def kept_since_ms(self) -> int | None:
        """See ``ConversationRecords.kept_since_ms``."""
        return None


def _apply(held: _Partition, batch: BatchWrite) -> None:
    for change in batch.conversations:
        if change.delete:
            held.conversations.pop(change.key, None)
            continue
        conversation = held.conversations.get(change.key)
        if conversation is None:
            conversation = _Conversation(change.last_record_ms)
            held.conversations[change.key] = conversation
        conversation.last_record_ms = max(conversation.last_record_ms, change.last_record_ms)
        _set(conversation.hot, change.hot)
        _set(conversation.fingerprints, change.fingerprints)
    for name, value in batch.buckets.items():
        if value is None:
            held.buckets.pop(name, None)
        else:
            held.buckets[name] = value
    held.positions.update(batch.positions)
    held.marks.update(batch.marks)
    held.batch_id = batch.batch_id


def _set(parts: Parts, changes: Mapping[bytes, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            parts.pop(name, None)
        else:
            parts[name] = value
