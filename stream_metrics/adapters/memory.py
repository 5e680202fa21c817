"""Twins of the outside world in memory: for replays without Redis, the demo, and tests.

They make the same checks as the real ones. ``available = False`` makes every call fail until it
is set back; ``snapshot`` and ``restore`` play a store that lost its latest writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

from stream_metrics.ports import (
    LOST_HOLD,
    BatchWrite,
    ConversationKey,
    DeadLetter,
    DeadLettersUnavailable,
    Fenced,
    Identity,
    Moved,
    OnHold,
    OutputFenced,
    OutputMessage,
    OutputUnavailable,
    PartitionState,
    Position,
    StateStore,
    StoredConversation,
    StoreUnavailable,
    Wiped,
    WipeResult,
    Wiping,
    WriteResult,
    Written,
)
from stream_metrics.worker.batches import check_batch, check_claim, check_hold
from stream_metrics.worker.clock import wall_ms

Parts = dict[bytes, bytes]


@dataclass(slots=True)
class _Conversation:
    last_record_ms: int = 0
    hot: Parts = field(default_factory=dict)
    fingerprints: Parts = field(default_factory=dict)


@dataclass(slots=True)
class _Partition:
    identity: Identity
    token: bytes
    positions: dict[str, Position]
    batch_id: bytes = b""
    buckets: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    conversations: dict[ConversationKey, _Conversation] = field(default_factory=dict)
    wiping: bool = False  # what is left is no state any more
    frozen: bytes = b""  # the mark of who replaces it
    worker: str = ""  # the name that came with the heartbeat of ``beat_token``
    beat_ms: int = 0
    behind_ms: int | None = None
    beat_token: bytes = b""

    @property
    def offsets(self) -> dict[str, int]:
        return {topic: position.offset for topic, position in self.positions.items()}


@dataclass(slots=True)
class _Content:
    partitions: dict[int, _Partition] = field(default_factory=dict)
    drafts: dict[int, _Partition] = field(default_factory=dict)
    retired: list[_Partition] = field(default_factory=list)
    held: tuple[bytes, str] | None = None  # mark and command
    switched: bytes = b""  # by which mark, since the last release
    registries: dict[str, list[str]] = field(default_factory=dict)


class MemorySnapshot:
    """The content of a ``MemoryStore`` at a moment; only ``restore`` looks inside."""

    __slots__ = ("_content",)

    def __init__(self, content: _Content) -> None:
        self._content = deepcopy(content)

    def copy(self) -> _Content:
        """A copy, so that one snapshot can be restored many times."""
        return deepcopy(self._content)


@dataclass(slots=True)
class _Shared:
    """What the handles on one namespace have in common."""

    content: _Content = field(default_factory=_Content)
    available: bool = True


class MemoryStore:
    """A ``StateStore`` in dictionaries; what goes in or out is copied, never shared."""

    def __init__(self) -> None:
        self.wiped_at_once = 256  # conversations in one step of a wipe
        self.clock: Callable[[], int] = wall_ms
        self._shared = _Shared()

    @property
    def available(self) -> bool:
        """Whether calls are answered."""
        return self._shared.available

    @available.setter
    def available(self, available: bool) -> None:
        self._shared.available = available

    @property
    def _content(self) -> _Content:
        return self._shared.content

    def snapshot(self) -> MemorySnapshot:
        """The content as it is now."""
        return MemorySnapshot(self._content)

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Go back to ``snapshot``, as a fail-over to a lagging replica does."""
        self._shared.content = snapshot.copy()

    async def describe(self, partition: int) -> PartitionState:
        """See ``StateStore.describe``."""
        held = self._partition(partition)
        if held is None:
            return PartitionState(None, None, {})
        alive = held.beat_token == held.token
        return PartitionState(
            _copied(held.identity),
            held.token,
            dict(held.positions),
            last_batch=held.batch_id,
            frozen=bool(held.frozen),
            worker=held.worker if alive else "",
            beat_ms=held.beat_ms if alive else 0,
            behind_ms=held.behind_ms if alive else None,
        )

    async def claim(
        self, partition: int, token: bytes, identity: Identity, start: Mapping[str, Position]
    ) -> PartitionState:
        """See ``StateStore.claim``; ``ValueError`` for arguments that no store takes."""
        check_claim(partition, token, start)
        held = self._partition(partition)
        self._check_free(partition)
        if held is None:  # unknown, or what a wipe has left
            held = _Partition(_copied(identity), token, dict(start))
            self._partitions[partition] = held
        latest = replace(
            identity, schema_version=max(identity.schema_version, held.identity.schema_version)
        )
        if latest == replace(held.identity, schema_version=latest.schema_version):
            held.identity = replace(held.identity, schema_version=latest.schema_version)
        held.token = token
        state = await self.describe(partition)
        state.buckets = dict(held.buckets)
        return state

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """See ``StateStore.heartbeat``; by ``clock``."""
        held = self._partition(partition)
        if held is not None and held.token == token:
            held.worker, held.beat_ms, held.beat_token = worker, self.clock(), token
            held.behind_ms = behind_ms

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]]
    ) -> list[StoredConversation]:
        """See ``StateStore.load``."""
        found = self._conversations(partition)
        empty = _Conversation()
        loaded = []
        for key, with_fingerprints in keys:
            held = found.get(key, empty)
            fingerprints = dict(held.fingerprints) if with_fingerprints else None
            loaded.append(StoredConversation(dict(held.hot), fingerprints))
        return loaded

    async def load_fingerprints(
        self, partition: int, keys: Sequence[ConversationKey]
    ) -> list[dict[bytes, bytes]]:
        """See ``StateStore.load_fingerprints``."""
        found = self._conversations(partition)
        empty = _Conversation()
        return [dict(found.get(key, empty).fingerprints) for key in keys]

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

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """See ``StateStore.wipe``."""
        self._require()
        held = self._partitions.get(partition)
        if token is not None:
            self._check_free(partition)
        if held is None:
            return Wiped()
        if not held.wiping and token is not None and token != held.token:
            return Fenced()
        result = self._wipe_step(held)
        if result == Wiped():
            del self._partitions[partition]
        return result

    async def unfinished(self) -> list[int]:
        """See ``StateStore.unfinished``; in rising order."""
        self._require()
        return sorted(n for n, held in self._partitions.items() if held.wiping)

    async def dissolve(self) -> None:
        """See ``StateStore.dissolve``."""
        self._require()
        content = self._content
        if content.partitions or content.drafts or content.retired:
            raise ValueError("the namespace holds state partitions")
        content.registries.clear()
        content.held, content.switched = None, b""

    async def count(self, partition: int) -> int:
        """See ``StateStore.count``."""
        return len(self._conversations(partition))

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """See ``StateStore.buckets``."""
        held = self._partition(partition)
        found = held.buckets if held else {}
        return {key: sums for key, sums in found.items() if window in (None, key[0])}

    async def idle(self, partition: int, before_ms: int, limit: int) -> list[ConversationKey]:
        """See ``StateStore.idle``; of equal age in the order of the keys."""
        found = self._conversations(partition)
        old = [(c.last_record_ms, key) for key, c in found.items() if c.last_record_ms < before_ms]
        return [key for _, key in sorted(old)[: max(limit, 0)]]

    async def recent(self, partition: int, since_ms: int, limit: int) -> list[ConversationKey]:
        """See ``StateStore.recent``; of equal age against the order of the keys."""
        found = self._conversations(partition)
        new = [(c.last_record_ms, key) for key, c in found.items() if c.last_record_ms >= since_ms]
        return [key for _, key in sorted(new, reverse=True)[: max(limit, 0)]]

    async def admit(
        self, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
    ) -> frozenset[str]:
        """See ``StateStore.admit``."""
        self._require()
        registry = self._content.registries.setdefault(kind, [])
        chosen = dict.fromkeys(configured)
        for name in registry:
            if len(chosen) < limit:
                chosen.setdefault(name)
        for name in names:
            if len(chosen) < limit and name not in chosen:
                registry.append(name)
                chosen[name] = None
        return frozenset(chosen)

    async def partitions(self) -> list[int]:
        """See ``StateStore.partitions``; in rising order."""
        self._require()
        return sorted(n for n, held in self._partitions.items() if not held.wiping)

    async def time_ms(self, partition: int) -> int:
        """See ``StateStore.time_ms``: this machine's, unless ``clock`` was set to another."""
        self._require()
        return self.clock()

    async def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """See ``StateStore.conversations``; one without hot parts is not listed."""
        for key in list(self._conversations(partition)):
            held = self._conversations(partition).get(key)
            if held is not None and held.hot:
                yield key, StoredConversation(dict(held.hot), last_record_ms=held.last_record_ms)

    async def held_by(self) -> str | None:
        """See ``StateStore.held_by``."""
        self._require()
        if self._content.held is not None:
            return self._content.held[1]
        return LOST_HOLD if any(held.frozen for held in self._partitions.values()) else None

    async def switched(self) -> bool:
        """See ``StateStore.switched``."""
        self._require()
        return bool(self._content.switched)

    async def hold(self, mark: bytes, command: str) -> None:
        """See ``StateStore.hold``."""
        check_hold(mark, command)
        self._require()
        self._content.held = (mark, command)
        for partition in self._content.partitions.values():
            partition.frozen = mark
            if not partition.wiping:
                partition.token = mark

    def drafts(self, mark: bytes) -> StateStore:
        """See ``StateStore.drafts``."""
        return _Drafts(self, mark)

    async def switch(self, mark: bytes, retired: Sequence[int], drafted: Sequence[int]) -> None:
        """See ``StateStore.switch``."""
        self._require_hold(mark)
        content = self._content
        if content.switched == mark:
            return
        if content.drafts.keys() != set(drafted):
            raise ValueError(f"the drafts are {sorted(content.drafts)}, not {sorted(drafted)}")
        staying = content.partitions.keys() - set(retired)
        if taken := staying & content.drafts.keys():
            raise ValueError(f"partition {min(taken)} is in use and was not retired")
        for number in content.partitions.keys() - staying:
            content.retired.append(content.partitions.pop(number))
        content.partitions |= content.drafts
        content.drafts = {}
        content.switched = mark

    async def sweep(self, mark: bytes) -> bool:
        """See ``StateStore.sweep``."""
        self._require_hold(mark)
        content = self._content
        for number, draft in list(content.drafts.items()):
            if self._wipe_step(draft) != Wiped():
                return False
            del content.drafts[number]
        while content.retired:
            if self._wipe_step(content.retired[0]) != Wiped():
                return False
            del content.retired[0]
        return True

    async def release(self, mark: bytes) -> None:
        """See ``StateStore.release``."""
        self._require_hold(mark)
        for partition in self._content.partitions.values():
            partition.frozen = b""
        self._content.held, self._content.switched = None, b""

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def _partitions(self) -> dict[int, _Partition]:
        return self._content.partitions

    def _check_free(self, partition: int) -> None:
        if self._content.held is not None:
            raise OnHold(self._content.held[1])
        held = self._partitions.get(partition)
        if held is not None and held.frozen:
            raise OnHold(LOST_HOLD)

    def _require_hold(self, mark: bytes) -> None:
        self._require()
        if self._content.held is None or self._content.held[0] != mark:
            raise OnHold(self._content.held[1] if self._content.held else "")

    def _wipe_step(self, held: _Partition) -> WipeResult:
        if not held.wiping:
            held.wiping, held.frozen = True, b""
            return Wiping()
        page = list(held.conversations)[: self.wiped_at_once]
        for key in page:
            del held.conversations[key]
        return Wiping(len(page)) if held.conversations else Wiped()

    def _require(self) -> None:
        if not self.available:
            raise StoreUnavailable("the memory store was told to be unavailable")

    def _partition(self, partition: int) -> _Partition | None:
        self._require()
        held = self._partitions.get(partition)
        return None if held is None or held.wiping else held

    def _conversations(self, partition: int) -> dict[ConversationKey, _Conversation]:
        held = self._partition(partition)
        return held.conversations if held else {}


class _Drafts(MemoryStore):
    """The drafts of a ``MemoryStore``."""

    def __init__(self, store: MemoryStore, mark: bytes) -> None:
        super().__init__()
        self.wiped_at_once = store.wiped_at_once
        self._shared = store._shared
        self._mark = mark

    @property
    def _partitions(self) -> dict[int, _Partition]:
        return self._content.drafts

    def _check_free(self, partition: int) -> None:
        self._require_hold(self._mark)


class MemoryDeadLetters:
    """``DeadLetters`` in a list, ``letters``."""

    def __init__(self) -> None:
        self.available = True
        self.letters: list[DeadLetter] = []

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Keep all of them; ``DeadLettersUnavailable`` while told to be so."""
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
    """An output topic in a list, ``messages``; it outlives those who write to it."""

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
        self._ways: dict[int, MemoryOutput] = {}

    def of(self, partition: int) -> MemoryOutput:
        """See ``Outputs.of``."""
        return self._ways.setdefault(partition, MemoryOutput(self._topic, partition))

    async def keep(self, partitions: Collection[int]) -> None:
        """See ``Outputs.keep``."""
        for partition in self._ways.keys() - set(partitions):
            del self._ways[partition]


def _copied(identity: Identity) -> Identity:
    return replace(identity, partition_counts=dict(identity.partition_counts))


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
    held.batch_id = batch.batch_id


def _set(parts: Parts, changes: Mapping[bytes, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            parts.pop(name, None)
        else:
            parts[name] = value
