"""The interface to a consumer group: the topics that a worker reads, as a group member.

The loop of a worker (``worker.loop``) and the parts that read by commits (``worker.inputs``) are
written against ``Source``; ``kafka.group_source`` implements it over aiokafka.
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
    """A committed offset, and its metadata."""

    offset: int
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """The partitions assigned to this member, until the next rebalance.

    Compared by identity: a rebalance that assigns the same partitions makes another assignment,
    because another member may have had them meanwhile. So does a log that lacks the next offset,
    because all partitions must then be checked again.
    """

    places: frozenset[PartitionId]


class Fetched(NamedTuple):
    """The result of ``Source.poll``.

    ``records`` has each log's records in the order of offsets. ``unreadable`` has the logs whose
    next record cannot be read, and why.
    """

    records: Mapping[PartitionId, Sequence[Record]] = {}
    unreadable: Mapping[PartitionId, str] = {}


class SourceUnavailable(Unavailable):
    """The brokers do not answer."""

    reason = "kafka"


class RightsMissing(Unavailable):
    """The brokers deny a request; the message says which rights to grant."""

    reason = "rights"


class TopicsUnavailable(Unavailable):
    """An input topic has been deleted; the message says which."""

    reason = "topics"


class Source(Protocol):
    """One member of a consumer group.

    Methods that send requests raise ``Unavailable`` while the brokers do not answer or deny them;
    the same call may succeed later. A partition is not read before it is passed to ``read_from``.
    """

    @property
    def assignment(self) -> Assignment | None:
        """The current assignment; None while a rebalance is under way."""
        ...

    @property
    def rebalancing(self) -> bool:
        """Whether a rebalance is under way, for no longer than its timeout."""
        ...

    @property
    def acknowledged(self) -> Mapping[PartitionId, Commit]:
        """The last acknowledged commit of each partition since ``read_from``."""
        ...

    async def join(self) -> None:
        """Join the group; waits until the brokers are available.

        Raises ``Stopped``, and the adapter's errors if the member must not join.
        """
        ...

    async def leave(self) -> None:
        """Leave the group, if it was joined."""
        ...

    async def partition_counts(self) -> dict[str, int]:
        """The partition count of each topic; raises the adapter's error if they are unsuitable."""
        ...

    async def poll(self) -> Fetched:
        """The next records; empty after a short wait or a temporary error.

        Raises ``Stopped``, and the adapter's error if another process has replaced this member.
        """
        ...

    def read_from(self, offsets: Mapping[PartitionId, int]) -> bool:
        """Seek and start reading; returns False, and does nothing, unless all are assigned."""
        ...

    def stop_reading(self, places: Collection[PartitionId]) -> None:
        """Stop reading these partitions until the next ``read_from``."""
        ...

    async def passed(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """The offsets up to which ``poll`` has returned all records, including skipped offsets.

        Empty if the partitions are no longer assigned.
        """
        ...

    async def extents(self, places: Collection[PartitionId]) -> dict[PartitionId, Extent]:
        """The current first and end offset of each log."""
        ...

    async def ends(self, places: Collection[PartitionId]) -> dict[PartitionId, int]:
        """The current end of each log; without partitions, checks that a broker answers."""
        ...

    async def committed(self, places: Collection[PartitionId]) -> dict[PartitionId, Commit]:
        """The group's committed offsets; partitions without a commit are omitted."""
        ...

    async def confirm(self, commits: Mapping[PartitionId, Commit]) -> bool:
        """Commit synchronously; True if the group recognises this member as the owner.

        If not, ``assignment`` changes: to another one, or to None during a rebalance.
        """
        ...

    async def commit(self, commits: Mapping[PartitionId, Commit]) -> None:
        """Commit as a hint: a failure is logged, and a later commit covers it."""
        ...
