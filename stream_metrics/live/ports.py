"""The interfaces between the worker and its stores and topics.

Every protocol has an in-memory implementation (``memory``), which passes the same contract tests as
the real one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.layout import Generation, Layout

ConversationKey = bytes


@dataclass(slots=True)
class StoredConversation:
    """A conversation as bytes: two maps of small parts, hot and fingerprints.

    ``fingerprints`` is None if they were not requested. Equal content has equal bytes.
    ``last_record_ms`` is set when conversations are listed.
    """

    hot: dict[bytes, bytes]
    fingerprints: dict[bytes, bytes] | None = None
    last_record_ms: int = 0


@dataclass(slots=True)
class ConversationWrite:
    """Absolute new values of a conversation's parts; None deletes a part.

    ``last_record_ms`` is the largest record timestamp among its events, for expiry.
    """

    key: ConversationKey
    hot: dict[bytes, bytes | None] = field(default_factory=dict)
    fingerprints: dict[bytes, bytes | None] = field(default_factory=dict)
    last_record_ms: int = 0
    delete: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """How far a topic has been read: the next offset, and what the record before it was.

    ``last_digest`` and ``last_timestamp_ms`` verify that the topic was not recreated.
    ``record_time_ms`` is the largest record timestamp read, ``event_time_us`` the largest event
    time of a valid event.
    """

    offset: int
    last_timestamp_ms: int = -1
    last_digest: bytes = b""
    record_time_ms: int = 0
    event_time_us: int = 0


@dataclass(slots=True)
class BatchWrite:
    """Everything that one batch changes in a state partition, as absolute values.

    ``expected`` and ``positions`` are by topic. ``batch_id`` makes a repeated write harmless.
    ``marks`` are added to those of the partition.
    """

    partition: int
    token: bytes
    batch_id: bytes
    expected: Mapping[str, int]
    positions: Mapping[str, Position]
    conversations: Sequence[ConversationWrite] = ()
    buckets: Mapping[tuple[str, int, str], bytes | None] = field(default_factory=dict)
    marks: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The batch is written, by this call or an earlier one."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another worker owns the state partition; nothing was written."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The stored offsets are not the expected ones, as after lost writes; nothing was written."""

    offsets: Mapping[str, int]


WriteResult = Written | Fenced | Moved


@dataclass(frozen=True, slots=True)
class Wiping:
    """The wipe is not complete, and what is left is no longer state; call again."""

    deleted: int = field(default=0, compare=False)  # conversations, in this step


@dataclass(frozen=True, slots=True)
class Wiped:
    """Nothing of the state partition is left."""


WipeResult = Wiping | Wiped | Fenced


@dataclass(slots=True)
class PartitionState:
    """A state partition without its conversations.

    ``token`` is the owner's, None before the first claim. ``last_batch`` is the id of the last
    batch; while it is the same, at most the owner has changed. ``marks`` were added by batches.
    ``frozen_by`` is the number of the generation that has replaced this one, 0 if none has; the
    token is then no worker's. ``wiping`` means that the partition is being deleted and the rest is
    no longer state. ``conversations`` is their number, ``store_ms`` the store's clock. ``worker``
    and ``beat_ms`` are the name and the time, by the store's clock, of the owner's last heartbeat;
    empty and 0 before the first. ``behind_ms`` is the lag that the heartbeat reported, in
    milliseconds; None if it was not known.
    """

    token: bytes | None
    positions: dict[str, Position]
    buckets: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    last_batch: bytes = b""
    marks: frozenset[str] = frozenset()
    frozen_by: int = 0
    wiping: bool = False
    conversations: int = field(default=0, compare=False)
    store_ms: int = field(default=0, compare=False)
    worker: str = field(default="", compare=False)
    beat_ms: int = field(default=0, compare=False)
    behind_ms: int | None = field(default=None, compare=False)


class Unavailable(Exception):
    """An external system cannot answer now; the same call may succeed later.

    ``reason`` is its name on ``/readyz``.
    """

    reason: ClassVar[str]


class StoreUnavailable(Unavailable):
    """The store cannot be reached or cannot write."""

    reason = "redis"


class StoreRefused(Exception):
    """The store rejected the user (password, permissions); a retry will not help.

    The message names the command or setting, never the credential.
    """


class Superseded(Exception):
    """Another generation of state is in force, or none, and not the one that was to be worked on.

    ``by`` is the number of the one in force; 0 or ``number`` itself where it was deleted, or where
    the store has lost it and was changed since, and no other one has taken its place.

    >>> str(Superseded(2, 1)).partition(":")[0]
    'generation 2 of the state is not being built any more'
    """

    def __init__(self, number: int, by: int) -> None:
        if by > number:
            what = f"generation {number} of the state has been replaced by generation {by}"
        elif by and by < number:
            what = (
                f"generation {number} of the state is not being built any more: the build was "
                f"given up, and generation {by} is in force"
            )
        else:
            what = (
                f"generation {number} of the state is deleted, or is being deleted, or the store "
                "has lost it, and state was begun or built anew since"
            )
        super().__init__(
            f"{what}. Start with the settings that the state has now, if there is any "
            "(`stream-metrics check` names them)"
        )
        self.number = number
        self.by = by


class RepartitionUnavailable(Unavailable):
    """The internal topic is missing, full or denied; the message says what to do."""

    reason = "topic"


class InputTopicsUnavailable(Unavailable):
    """An input topic is missing, full or denied; the message says what to do."""

    reason = "topic"


class Upstream(Protocol):
    """Fills the topics that are read, if producers do not write to them directly."""

    async def read_up_to_ms(self) -> int:
        """Record time up to which those topics are complete; 0 if that is not known.

        Raises ``Unavailable``.
        """
        ...


class StateStore(Protocol):
    """Keeps the layout of a namespace, and the state partitions of one of its generations.

    Every method raises ``StoreUnavailable`` while it cannot answer, and ``StoreRefused`` if the
    user lacks permissions. To readers, a partition that was never claimed or is being wiped is
    empty.
    """

    # -- the namespace

    async def layout(self) -> Layout:
        """The layout; the one of version 0 if none is stored.

        Raises ``UnreadableLayout``.
        """
        ...

    async def change_layout(self, after: Layout) -> Layout | None:
        """Store ``after``, if the one before it (by its version) is what is stored.

        Returns it as it is stored, with ``places``; None if somebody else has changed it meanwhile.
        """
        ...

    def generation(self, generation: Generation) -> StateStore:
        """A store of the partitions of a generation in the layout; closing it does nothing."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...

    # -- the partitions of a generation

    async def partitions(self) -> list[int]:
        """The numbers of partitions that have been claimed, in ascending order."""
        ...

    async def describe(self, partition: int) -> PartitionState:
        """The partition without its buckets, even if it was never claimed.

        Raises ``DamagedState``.
        """
        ...

    async def frozen_by(self, partition: int) -> int:
        """``PartitionState.frozen_by``, even if ``describe`` raises ``DamagedState``."""
        ...

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """Become the owner; a new partition gets the positions ``start``.

        Returns the partition with its buckets. Raises ``Superseded`` if another generation has
        replaced this one. The rest of an incomplete wipe is deleted first.
        """
        ...

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """Record that ``worker`` is working on the partition; ignored unless it is the owner.

        ``behind_ms`` is its lag in milliseconds, None if not known. Heartbeats are informational:
        no other method depends on them, and a later claim invalidates them.
        """
        ...

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """Load conversations by key, with fingerprints if the flag is set; empty if unknown.

        Without ``hot`` only the fingerprints are read.
        """
        ...

    async def write(self, batch: BatchWrite) -> WriteResult:
        """Write a batch atomically."""
        ...

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """The buckets of one window, or of all, by window, number and agent."""
        ...

    async def by_age(
        self, partition: int, since_ms: int, before_ms: int, limit: int, *, newest: bool = False
    ) -> list[ConversationKey]:
        """Conversations whose last record is in this period, the oldest or the newest first."""
        ...

    def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """Iterate over a partition's conversations, each read atomically, without fingerprints.

        Conversations without hot parts are omitted. A conversation written meanwhile is listed, and
        may be listed again with its new content; one deleted meanwhile may be listed or not.
        """
        ...

    async def freeze(self, partition: int, by: int) -> None:
        """Prevent claims, writes and wipes by an owner: generation ``by`` has replaced this one.

        The content stays readable. Idempotent; works for a partition that was never claimed. ``by``
        0 removes the mark from a partition that has been wiped.
        """
        ...

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """Run one short step of deleting a state partition; repeat until it returns ``Wiped``.

        The first step removes owner and positions: from then on nobody may write, and the rest is
        not shown as state. It returns ``Fenced`` unless ``token`` is the owner's, or None. Anyone
        may run later steps; a claim runs those that remain. A frozen partition stays frozen, and
        with a ``token`` every step on it raises ``Superseded``.
        """
        ...


class Notes(Protocol):
    """Keeps small texts by name, beside the state of a namespace, for all its workers.

    All methods raise ``StoreUnavailable`` and ``StoreRefused``, as a ``StateStore`` does.
    """

    async def note(self, name: str) -> bytes:
        """The text of that name; empty if there is none."""
        ...

    async def keep_note(self, name: str, text: bytes) -> None:
        """Keep a text in place of the one of that name; an empty one is deleted."""
        ...

    async def drop_notes(self) -> None:
        """Delete the texts of all names."""
        ...


class DeadLetters(Protocol):
    """The dead-letter topics, for records that cannot be processed."""

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Send letters and wait for acknowledgement; raises ``DeadLettersUnavailable``."""
        ...


class DeadLettersUnavailable(Unavailable):
    """A dead-letter topic is missing, full or denied; the message says which and what to do."""

    reason = "dead_letters"


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """The latest value for a conversation on the output topic: rows as JSON, or a tombstone."""

    conversation_id: str
    value: bytes | None


class OutputUnavailable(Unavailable):
    """The output topic is missing, full or denied; the message says what to do."""

    reason = "output"


class OutputFenced(Exception):
    """Another writer for the state partition has fenced this one."""


class Output(Protocol):
    """The writer of one state partition's messages to the output topic.

    Messages of a conversation are stored in the order sent, with increasing versions, across
    writers: once ``begin`` has returned, no message of an earlier writer for the partition arrives.
    The caller must therefore check *afterwards* that it owns the partition. Both methods raise
    ``OutputUnavailable``.
    """

    @property
    def begun(self) -> bool:
        """Whether ``send`` may be called; false again after it has failed."""
        ...

    @property
    def muted(self) -> bool:
        """Whether rows are not to be sent now, because the generation is not live."""
        ...

    async def begin(self) -> None:
        """Fence every earlier writer for the partition."""
        ...

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """Send messages, at most one per conversation, and wait for acknowledgement.

        Raises ``OutputFenced`` if another writer has begun. After any error, some of the messages
        may be stored.
        """
        ...


class Outputs(Protocol):
    """The writers of all state partitions to the output topic."""

    def of(self, partition: int) -> Output:
        """The writer of one partition; the same object until it is closed."""
        ...

    async def keep(self, partitions: Collection[int]) -> None:
        """Close the writers of all other partitions."""
        ...


class Arrived(NamedTuple):
    """A record, and its place, which grows in the order of arrival."""

    place: int
    record: Record


class ConversationRecords(Protocol):
    """Recorded events by conversation, for those who read one. Each call is of bounded size.

    Calls raise ``Unavailable`` if the records cannot be read now.
    """

    async def of_conversation(self, conversation_id: str, after: int, most: int) -> list[Arrived]:
        """The next events of a conversation behind a place, in order of arrival; -1 is before all.

        At most ``most``, or fewer if they are large, but one at least; none at the end.
        """

    async def newest(self, before: int | None, most: int) -> list[Arrived]:
        """The latest events of all conversations before a place, the newest first.

        None is behind the last one. Their number is as for ``of_conversation``.
        """

    async def letters(self, conversation_id: str, most: int) -> list[DeadLetter]:
        """The latest dead letters with the key of a conversation, in order of arrival.

        Those of a source that keeps refused records among the others may be left out.
        """

    async def kept_since_ms(self) -> int | None:
        """The timestamp of the oldest event that is kept, if older ones were deleted, else None."""
