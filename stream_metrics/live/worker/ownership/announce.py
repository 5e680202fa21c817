"""Sends all rows of a state partition after its generation has replaced another one.

The owner sends them a page at a time, between batches. It is the only writer for its conversations,
so no older row can follow a newer one. First come the conversations that had a row in the previous
generation and have none now: null is sent for each, except for those that have expired since, whose
last rows are kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import structlog

from stream_metrics.core.engine.codec import decode_conversation, stored_header
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import conversation_rows
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.ports import ConversationKey, OutputMessage, StateStore, StoredConversation
from stream_metrics.live.readers.worst import ConversationReader
from stream_metrics.live.worker.conversations import NO_BUGS
from stream_metrics.live.worker.output import message_of
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.telemetry import BugCounts

log = structlog.get_logger(__name__)

PAGE_SIZE = 250  # conversations per step

PreviousPartitions = Sequence[tuple[StateStore, int]]


class AnnouncementScope(NamedTuple):
    """What a partition has to announce.

    ``previous`` are the partitions of the previous generation that may hold conversations of this
    one, and ``is_mine`` tells which conversations do belong to it. ``mark`` is written once all
    rows are sent. One step sends the rows of ``page_size`` conversations.
    """

    store: StateStore
    engine: EngineConfig
    turn_scope: str
    ttl_ms: int
    mark: str
    previous: PreviousPartitions = ()
    page_size: int = PAGE_SIZE
    is_mine: Callable[[str], bool] = lambda _: True


class Announcer:
    """Announces the partitions of a worker that are not announced yet.

    ``scope_of`` returns what a partition has to announce, None while that is nothing. ``counts``
    is told of conversations that a bug keeps from being announced.
    """

    def __init__(
        self,
        scope_of: Callable[[StatePartition], AnnouncementScope | None],
        retry: Retry,
        counts: BugCounts,
    ) -> None:
        self._scope_of = scope_of
        self._retry = retry
        self._counts = counts
        self._running: dict[int, Announcement] = {}

    async def step(self, partition: StatePartition) -> None:
        """Send a page of a partition's rows, if any is left; raises ``PartitionLost``."""
        scope = self._scope_of(partition)
        if scope is None or scope.mark in partition.marks:
            self._running.pop(partition.number, None)
            return
        await self._retry(lambda: self._step(partition, scope))

    async def _step(self, partition: StatePartition, scope: AnnouncementScope) -> None:
        """Send a page; an interrupted announcement starts over."""
        running = self._running.get(partition.number)
        if running is None or not running.belongs_to(partition, scope.mark):
            running = self._running[partition.number] = Announcement(partition, scope, self._counts)
        try:
            await running.step(self._retry)
        except BaseException:
            self._running.pop(partition.number, None)
            raise


class _Entry(NamedTuple):
    """A conversation to announce; ``name`` and its last record if it had a row before."""

    key: ConversationKey
    name: str = ""
    last_record_ms: int = 0


class Announcement:
    """Sends the rows of one partition, for its owner."""

    def __init__(
        self, partition: StatePartition, scope: AnnouncementScope, counts: BugCounts
    ) -> None:
        self._partition = partition
        self._scope = scope
        self._counts = counts
        self._reader = ConversationReader(scope.engine)
        self._entries = self._list()
        self._unsent = partition.unsent

    def belongs_to(self, partition: StatePartition, mark: str) -> bool:
        """Whether it announces this partition for the same switch, and the owner was never muted
        since it began."""
        same = self._partition is partition and self._scope.mark == mark
        return same and self._unsent == partition.unsent

    async def step(self, retry: Retry) -> None:
        """Send the next page; after the last one, write the mark. Raises ``PartitionLost``."""
        page: list[_Entry] = []
        async for entry in self._entries:
            page.append(entry)
            if len(page) >= self._scope.page_size:
                break
        number, keys = self._partition.number, [(entry.key, False) for entry in page]
        found = await retry(lambda: self._scope.store.load(number, keys))
        assert isinstance(found, list)
        candidates = (self._message(entry, parts) for entry, parts in zip(page, found, strict=True))
        messages = [message for message in candidates if message is not None]
        if messages:
            await self._partition.publish(messages, retry)
        if len(page) < self._scope.page_size:
            await self._partition.put([], [self._scope.mark], retry)

    async def _list(self) -> AsyncIterator[_Entry]:
        """Conversations that had a row before, then those of this generation."""
        for store, number in self._scope.previous:
            try:
                async for key, parts in store.conversations(number):
                    name = _name_with_row(parts)
                    if name and self._scope.is_mine(name):
                        yield _Entry(key, name, parts.last_record_ms)
            except DamagedState as damage:
                log.error(
                    "conversations of the previous generation cannot be listed; those that have no "
                    "row any more keep their last one on the output topic",
                    partition=number,
                    reason=str(damage),
                )
        async for key, _ in self._scope.store.conversations(self._partition.number):
            yield _Entry(key)

    def _message(self, entry: _Entry, parts: StoredConversation) -> OutputMessage | None:
        """The message due for a conversation; None if there is none, or a bug prevents it.

        Its last message stays on the topic then, until an event changes it.
        """
        try:
            return self._due(entry, parts)
        except NO_BUGS:
            raise
        except Exception as error:
            self._counts.bug(Bug.of(error))
            return None

    def _due(self, entry: _Entry, parts: StoredConversation) -> OutputMessage | None:
        rows = []
        if parts.hot and not (header := stored_header(parts.hot)).is_stub:
            if header.conversation_id:
                conversation = self._reader.conversation(parts.hot)
                rows = conversation_rows(conversation, self._scope.turn_scope)
        elif parts.hot:
            return None  # it has expired
        if not entry.name:
            return message_of(rows, self._scope.turn_scope) if rows else None
        expired = entry.last_record_ms + self._scope.ttl_ms < self._partition.record_time_ms
        return None if rows or (expired and not parts.hot) else OutputMessage(entry.name, None)


def _name_with_row(parts: StoredConversation) -> str:
    """The id of a conversation that had a row; empty if it had none or cannot be decoded."""
    try:
        found = decode_conversation("", parts.hot, "")
    except DamagedState:
        return ""
    return found.conversation_id if found.last_turn else ""
