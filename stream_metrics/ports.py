"""The seams between the pure core and the world: what a source, a store and a clock must do.

Every protocol has a shipped in-memory twin (``adapters.memory``) that passes the same contract
tests as the real thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Protocol

from msgspec import Struct, structs

ConversationKey = bytes

# Among the positions of a state partition, under the name of no topic: how far what it reads no
# more had been read. Its times are those of any other position; its offset counts what was written
# to the partition while it was a draft.
FORMER: Final = ""

# The command that is named where places are frozen and nobody holds the namespace, because the
# store lost that part of a hold: this one lets them go.
LOST_HOLD: Final = "reshard --abort"

MAX_TIMESTAMP_MS = 253_402_300_799_999  # the year 9999; producers may stamp records with anything


def bounded_timestamp(timestamp_ms: int) -> int:
    """A record's timestamp, within what can be stored and compared everywhere; -1 stays."""
    if -1 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        return timestamp_ms
    return -1 if timestamp_ms < 0 else MAX_TIMESTAMP_MS


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record stood, and under which key, before it was repartitioned."""

    topic: str
    partition: int
    offset: int
    key: bytes | None


class Record(Struct, frozen=True, gc=False):
    """One record of an input topic (or line of a file, where topic and place may be unknown).

    ``headers`` are there where a record is to be passed on. ``origin`` is told of a record that was
    repartitioned.
    """

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    topic: str = ""
    partition: int = 0
    offset: int = 0
    headers: Headers = ()
    origin: Origin | None = None

    @property
    def as_sent(self) -> Record:
        """The record under the key and at the place that its producer gave it."""
        origin = self.origin
        if origin is None:
            return self
        return structs.replace(
            self,
            key=origin.key,
            topic=origin.topic,
            partition=origin.partition,
            offset=origin.offset,
            origin=None,
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was turned away, and why; the message quotes nothing that it holds."""

    record: Record
    reason: str
    message: str


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


def of_topics(positions: Mapping[str, Position]) -> dict[str, Position]:
    """The positions from which something is read: all but ``FORMER``."""
    return {topic: position for topic, position in positions.items() if topic != FORMER}


@dataclass(slots=True)
class BatchWrite:
    """Everything that one batch changes in a state partition, as absolute values.

    ``expected`` and ``positions`` are by topic. ``batch_id`` makes a repeated write harmless.
    """

    partition: int
    token: bytes
    batch_id: bytes
    expected: Mapping[str, int]
    positions: Mapping[str, Position]
    conversations: Sequence[ConversationWrite] = ()
    buckets: Mapping[tuple[str, int, str], bytes | None] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Identity:
    """What a state partition was built for and with; another identity must not write to it.

    ``settings`` are those behind the fingerprint, as a JSON object by their names: for telling
    which of them differ. It is empty where nobody noted them. ``outgrown`` tells of topics that got
    more partitions: up to which offset of each partition records lie where an earlier count put
    their keys (0: none do), so that nobody may read them again. ``kept_since_ms`` is a record
    time: what had its last record before may have expired by an earlier, shorter ttl (0: nothing).
    """

    group: str
    schema_version: int
    fingerprint: str
    partition_counts: Mapping[str, int]
    settings: str = field(default="", compare=False)
    outgrown: Mapping[str, tuple[int, ...]] = field(default_factory=dict, compare=False)
    kept_since_ms: int = field(default=0, compare=False)

    def after(self, stored: Identity) -> Identity:
        """This one, with what ``stored`` notes of the state's past."""
        return replace(self, outgrown=stored.outgrown, kept_since_ms=stored.kept_since_ms)


@dataclass(slots=True)
class PartitionState:
    """A state partition without its conversations.

    ``last_batch`` is the id of the batch written last: while it stays, nothing has changed but
    perhaps the owner. While a command replaces the partition (``frozen``) the token is the mark of
    its hold, and no worker's. ``worker`` and ``beat_ms`` are the name and the time, by the store's
    clock, of the owner's last heartbeat: empty and 0 before its first. ``behind_ms`` came with it:
    how long ago the end of the topics was that the owner has read up to; None if that is not known.
    """

    identity: Identity | None
    token: bytes | None
    positions: dict[str, Position]
    buckets: dict[tuple[str, int, str], bytes] = field(default_factory=dict)
    last_batch: bytes = b""
    frozen: bool = field(default=False, compare=False)
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


class OnHold(Exception):
    """A command replaces state partitions of the namespace; nobody else may claim or draft any.

    ``command`` is empty where the hold that was asked for has ended.
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            f"state partitions are being replaced by `stream-metrics {command}`. Wait until it is "
            "done; if it broke off, run it again, or take back what it has prepared with "
            "`stream-metrics reshard --abort`"
            if command
            else "the hold on the state partitions has ended: another run has taken over"
        )
        self.command = command


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
    """Keeps state partitions. Every method raises ``StoreUnavailable`` while it cannot answer."""

    async def describe(self, partition: int) -> PartitionState:
        """Identity, owner and positions, without buckets."""
        ...

    async def claim(
        self, partition: int, token: bytes, identity: Identity, start: Mapping[str, Position]
    ) -> PartitionState:
        """Become the owner; a new partition begins at ``start``. Returns all but conversations.

        If ``identity`` differs by a later schema alone, that is stored: from then on parts may be
        written by it.
        Raises ``OnHold`` while a command replaces partitions.
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
        self, partition: int, keys: Sequence[tuple[ConversationKey, bool]]
    ) -> list[StoredConversation]:
        """Conversations by key, with fingerprints where the flag says so; unknown: empty."""
        ...

    async def load_fingerprints(
        self, partition: int, keys: Sequence[ConversationKey]
    ) -> list[dict[bytes, bytes]]:
        """Only the fingerprints."""
        ...

    async def write(self, batch: BatchWrite) -> WriteResult:
        """All of the batch or nothing of it."""
        ...

    async def wipe(self, partition: int, token: bytes | None = None) -> WipeResult:
        """One short step of deleting a state partition; repeat until it is ``Wiped``.

        The first step takes owner, identity and positions away: from then on nobody may write, and
        nothing that is left is shown as state. It is refused (``Fenced``) unless ``token`` is the
        owner's, or None. Later steps may be anybody's; a claim takes those that are left.
        With a ``token`` every step raises ``OnHold`` while a command replaces partitions.
        """
        ...

    async def unfinished(self) -> list[int]:
        """The partitions whose wipe has begun and is not done."""
        ...

    async def dissolve(self) -> None:
        """Delete what partitions share, such as registries, of a namespace that is given up.

        ``ValueError`` while any partition is left.
        """
        ...

    async def count(self, partition: int) -> int:
        """How many conversations the partition holds."""
        ...

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """The buckets of one window, or of all, by window, number and agent."""
        ...

    async def idle(self, partition: int, before_ms: int, limit: int) -> list[ConversationKey]:
        """Conversations whose last record is older than ``before_ms``, oldest first."""
        ...

    async def recent(self, partition: int, since_ms: int, limit: int) -> list[ConversationKey]:
        """Conversations whose last record is not older than ``since_ms``, newest first."""
        ...

    async def admit(
        self, kind: str, names: Sequence[str], configured: Sequence[str], limit: int
    ) -> frozenset[str]:
        """Who has series of its own: ``configured``, then whoever came first, ``limit`` in all."""
        ...

    async def partitions(self) -> list[int]:
        """The state partitions that the namespace holds."""
        ...

    async def time_ms(self, partition: int) -> int:
        """The clock of whoever keeps the partition, in milliseconds of Unix time."""
        ...

    def conversations(
        self, partition: int
    ) -> AsyncIterator[tuple[ConversationKey, StoredConversation]]:
        """All conversations of a partition, each as of one moment, without fingerprints.

        One without hot parts is left out. One that is written meanwhile is listed, and may be
        listed again as it is then; one that is deleted meanwhile may be listed or not.
        """
        ...

    async def held_by(self) -> str | None:
        """The command that holds the namespace, if one does; ``LOST_HOLD`` if none does, and some
        place is kept from workers all the same."""
        ...

    async def switched(self) -> bool:
        """Whether drafts have taken the places of others since the last ``release``, by any mark.

        Then what comes after a switch may be left to do.
        """
        ...

    async def hold(self, mark: bytes, command: str) -> None:
        """Keep everybody from claiming and writing until ``release``, also after a crash.

        Owners are refused from now on. An earlier hold is taken over: its ``mark`` is good for
        nothing any more.
        """
        ...

    def drafts(self, mark: bytes) -> StateStore:
        """The partitions that are to replace others, as a store of its own that nobody else sees.

        Its claims, and wipes with a token, raise ``OnHold`` unless ``mark`` holds the namespace.
        Closing it does nothing.
        """
        ...

    async def switch(self, mark: bytes, retired: Sequence[int], drafted: Sequence[int]) -> None:
        """The drafts of these numbers take the places of the ``retired``, in one step.

        Raises ``OnHold`` if ``mark`` does not hold the namespace, ``ValueError`` if there are other
        drafts, or for a draft whose place is taken. Repeated, it changes nothing.
        """
        ...

    async def sweep(self, mark: bytes) -> bool:
        """One short step of deleting drafts and retired partitions; True once none is left.

        Raises ``OnHold`` if ``mark`` does not hold the namespace.
        """
        ...

    async def release(self, mark: bytes) -> None:
        """End the hold, with nothing left to do.

        Raises ``OnHold`` if ``mark`` does not hold the namespace.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
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
