"""The topics that a worker reads, as one member of a consumer group sees them.

The loop of a worker (``worker.loop``) and the parts that read by commits (``worker.inputs``) are
written against ``Source``; ``kafka.member`` implements it over aiokafka.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stream_metrics.core.events.record import Extent, Record
from stream_metrics.live.ports import Unavailable


class PartitionId(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Commit(NamedTuple):
    """An offset that a group has committed, and the note beside it."""

    offset: int
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """What the group has given to this member, until it hands out partitions again.

    Compared by identity: if a rebalance gives the same places again, that is another assignment,
    since somebody else may have had them meanwhile. So it is if a log does not have what is to be
    read next: then all of them must be looked at again.
    """

    places: frozenset[PartitionId]


class Fetched(NamedTuple):
    """What one call of ``Source.poll`` found.

    ``records`` are those of each log in its order. ``unreadable`` are logs whose next record
    cannot be read, and why.
    """

    records: Mapping[PartitionId, Sequence[Record]] = {}
    unreadable: Mapping[PartitionId, str] = {}


class SourceUnavailable(Unavailable):
    """The brokers do not answer."""

    reason = "kafka"


class RightsMissing(Unavailable):
    """The brokers deny something; the message says which rights to grant."""

    reason = "rights"


class TopicsUnavailable(Unavailable):
    """An input topic is not there any more; the message says which."""

    reason = "topics"


class Source(Protocol):
    """One member of a consumer group.

    Methods that ask the brokers raise ``Unavailable`` while these do not answer or deny it; the
    same call may succeed later. Nothing is read of a place before ``read_from`` names it.
    """

    @property
    def assignment(self) -> Assignment | None:
        """What is this member's; None while the group has yet to say."""
        ...

    @property
    def rebalancing(self) -> bool:
        """Whether the group has yet to say so, for no longer than it may take."""
        ...

    @property
    def acknowledged(self) -> Mapping[PartitionId, Commit]:
        """The last acknowledged commit of each place since ``read_from`` named it."""
        ...

    async def join(self) -> None:
        """Join the group, however long the brokers are away.

        Raises ``Stopped``, and the adapter's errors where joining would be wrong.
        """
        ...

    async def leave(self) -> None:
        """Leave the group, if it was joined."""
        ...

    async def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has; raises the adapter's error where they are unfit."""
        ...

    async def poll(self) -> Fetched:
        """The next records; none after a short while, or after an error, which is waited for here.

        Raises ``Stopped``, and the adapter's error if another process has this member's place.
        """
        ...

    def read_from(self, offsets: Mapping[PartitionId, int]) -> bool:
        """Read on from there; False, and nothing is read, if one is not in ``assignment``."""
        ...

    def stop_reading(self, places: Collection[PartitionId]) -> None:
        """Read nothing there until ``read_from`` names it again."""
        ...

    async def passed(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """Up to where reading has come, holes included; nothing if it is this member's no longer.

        All records before were returned by ``poll``.
        """
        ...

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """What each log has now."""
        ...

    async def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """Where each log ends now. Without places it asks whether anybody answers."""
        ...

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """What the group has committed; places without a commit are left out."""
        ...

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """Commit, and wait for the answer; True if the group holds this member for the owner.

        If not, ``assignment`` is another one, or None until the group has said what is this
        member's.
        """
        ...

    async def commit(self, commits: Mapping[PartitionId, Commit]) -> None:
        """Commit as a hint: a failure is logged, and made up for by a later commit."""
        ...
