"""The seams between the pure core and the world: what a source, a store and a clock must do.

Every protocol has a shipped in-memory twin (``memory``) that passes the same contract
tests as the real thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from stream_metrics.core.events.record import DeadLetter
from stream_metrics.live.layout import Generation, Layout

ConversationKey = bytes


@dataclass(slots=True)
class StoredConversation:
    """A conversation as bytes: two maps of small parts, hot and fingerprints.

    ``fingerprints`` is None where they were not asked for. Equal content, equal bytes.
    ``last_record_ms`` is told where conversations are listed.
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

    ``last_digest`` and ``last_timestamp_ms`` tell whether the topic is still the same one.
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
    ``marks`` are noted of the partition, beside those that are there.
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
    """The store took the batch (or had taken it before)."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another owner holds the state partition; nothing was written."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The stored offsets are not the expected ones (the store went back); nothing was written."""

    offsets: Mapping[str, int]


WriteResult = Written | Fenced | Moved


@dataclass(frozen=True, slots=True)
class Wiping:
    """The wipe has begun and is not done: what is left is no state any more; call again."""

    deleted: int = field(default=0, compare=False)  # conversations, in this step


@dataclass(frozen=True, slots=True)
class Wiped:
    """Nothing of the state partition is left."""


WipeResult = Wiping | Wiped | Fenced


@dataclass(slots=True)
class PartitionState:
    """A state partition without its conversations.

    ``token`` is the owner's, None where nothing has begun. ``last_batch`` is the id of the batch
    written last: while it stays, nothing has changed but perhaps the owner. ``marks`` are what
    batches have noted of it. ``frozen_by`` is the number of the generation that has taken the place
    of this one, 0 while none has; the token is then nobody's. ``wiping``: it is being deleted, and
    what is left is no state. ``conversations`` is how many it holds, ``store_ms`` the store's
    clock. ``worker`` and ``beat_ms`` are the name and the time, by the store's clock, of the
    owner's last heartbeat: empty and 0 before its first. ``behind_ms`` came with it: how long ago
    the end of the topics was that the owner has read up to; None if that is not known.
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
    """Something outside does not take a call now; the same call may succeed later.

    ``reason`` is the word for it on ``/readyz``.
    """

    reason: ClassVar[str]


class StoreUnavailable(Unavailable):
    """The store cannot be reached or cannot write."""

    reason = "redis"


class StoreRefused(Exception):
    """The store turned the user away (password, permissions); trying again will not help, a new
    setting will.

    The message says which command or credential, never the credential itself.
    """


class Superseded(Exception):
    """Another generation of state is in force, or none, and not the one that was to be worked on.

    ``by`` is the number of the one in force; 0 or ``number`` itself where it was deleted, and no
    other one has taken its place.

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
            what = f"generation {number} of the state is deleted, or is being deleted"
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
    """What fills the topics that are read, where producers do not fill them themselves."""

    async def read_up_to_ms(self) -> int:
        """Record time up to which everything lies in those topics; 0 if that is not known.

        Raises ``Unavailable``.
        """
        ...


class StateStore(Protocol):
    """Keeps the layout of a namespace, and the state partitions of one of its generations.

    Every method raises ``StoreUnavailable`` while it cannot answer, and ``StoreRefused`` where the
    user may not ask. What was never claimed, and what is being wiped, is empty to all that read.
    """

    # -- the namespace

    async def layout(self) -> Layout:
        """Which generations there are; that of version 0 if nothing was stored yet.

        Raises ``UnreadableLayout``.
        """
        ...

    async def change_layout(self, after: Layout) -> Layout | None:
        """Store ``after``, if the one before it (by its version) is what is stored.

        Returns it as it is stored, with ``places``; None if somebody else has changed it meanwhile.
        """
        ...

    def generation(self, generation: Generation) -> StateStore:
        """The partitions of a generation as ``layout`` has it; closing it does nothing."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...

    # -- the partitions of a generation

    async def partitions(self) -> list[int]:
        """Those that have begun, in rising order."""
        ...

    async def describe(self, partition: int) -> PartitionState:
        """Owner and positions, without buckets; also of a partition that has not begun.

        Raises ``DamagedState``.
        """
        ...

    async def frozen_by(self, partition: int) -> int:
        """``PartitionState.frozen_by``, also where ``describe`` raises ``DamagedState``."""
        ...

    async def claim(
        self, partition: int, token: bytes, start: Mapping[str, Position]
    ) -> PartitionState:
        """Become the owner; a new partition begins at ``start``. Returns all but conversations.

        Raises ``Superseded`` once another generation has taken the place of this one. What is left
        of a wipe is deleted first.
        """
        ...

    async def heartbeat(
        self, partition: int, token: bytes, worker: str, behind_ms: int | None = None
    ) -> None:
        """Note that ``worker`` works on the partition now; nothing unless ``token`` is the owner's.

        ``behind_ms`` is how far it is behind the end of the topics, None where it does not know.
        For people: no other method takes notice of it, and a later claim makes it void.
        """
        ...

    async def load(
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]], *, hot: bool = True
    ) -> list[StoredConversation]:
        """Conversations by key, with fingerprints where the flag says so; unknown: empty.

        Without ``hot`` only the fingerprints are read.
        """
        ...

    async def write(self, batch: BatchWrite) -> WriteResult:
        """All of the batch or nothing of it."""
        ...

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """The buckets of one window, or of all, by window, number and agent."""
        ...

    async def by_age(
        self, partition: int, since_ms: int, before_ms: int, limit: int, *, newest: bool = False
    ) -> list[ConversationKey]:
        """Conversations whose last record lies in this time, the oldest first, or the newest."""
        ...

    def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """All conversations of a partition, each as of one moment, without fingerprints.

        One without hot parts is left out. One that is written meanwhile is listed, and may be
        listed again as it is then; one that is deleted meanwhile may be listed or not.
        """
        ...

    async def freeze(self, partition: int, by: int) -> None:
        """From now on nobody may claim it, write to it, or wipe it as its owner: generation ``by``
        has taken the place of this one.

        What it holds stays and can be read. It may be done again, and before anything has begun.
        With ``by`` 0 the mark is taken away, of a partition of which nothing else is left.
        """
        ...

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """One short step of deleting a state partition; repeat until it is ``Wiped``.

        The first step takes owner and positions away: from then on nobody may write, and nothing
        that is left is shown as state. It is refused (``Fenced``) unless ``token`` is the owner's,
        or None. Later steps may be anybody's; a claim takes those that are left. That it is frozen
        stays: with a ``token`` every step raises ``Superseded`` then.
        """
        ...


class DeadLetters(Protocol):
    """Where records go that cannot be used."""

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """Returns when all are stored for good; raises ``DeadLettersUnavailable`` otherwise."""
        ...


class DeadLettersUnavailable(Unavailable):
    """A dead-letter topic is missing, full or denied; the message says which and what to do."""

    reason = "dead_letters"


@dataclass(frozen=True, slots=True)
class OutputMessage:
    """What the output topic is to hold of a conversation: its rows as JSON, or None for nothing."""

    conversation_id: str
    value: bytes | None


class OutputUnavailable(Unavailable):
    """The output topic is missing, full or denied; the message says what to do."""

    reason = "output"


class OutputFenced(Exception):
    """Another writer has begun for the state partition; nothing of this one arrives any more."""


class Output(Protocol):
    """One state partition's way to the output topic.

    Messages of one conversation come to lie in the order in which they were sent, with versions
    that grow, whoever sends them: once ``begin`` has returned, nothing of an earlier writer for
    the partition arrives any more. So whoever begins must make sure *afterwards* that it owns the
    partition. Both methods raise ``OutputUnavailable``.
    """

    @property
    def begun(self) -> bool:
        """Whether ``send`` may be called; no longer so after it has failed."""
        ...

    async def begin(self) -> None:
        """Shut out every earlier writer for the partition."""
        ...

    async def send(self, messages: Sequence[OutputMessage]) -> None:
        """Returns when all are stored for good; of each conversation there is one at most.

        Raises ``OutputFenced`` if somebody else has begun. After any error some of the messages
        may be stored.
        """
        ...


class Outputs(Protocol):
    """The ways of all state partitions to the output topic."""

    def of(self, partition: int) -> Output:
        """The way of one partition; the same object until it is closed."""
        ...

    async def keep(self, partitions: Collection[int]) -> None:
        """Close the ways of all other partitions."""
        ...
