"""All rows of a state partition, once its generation has taken the place of another.

The owner sends them a page at a time, between batches: it alone writes for its conversations, so
that no row is overtaken by an older one. First come the conversations that had a row in the
generation before and have none now; they get null, but for those that have expired by now, whose
last rows stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import structlog

from stream_metrics.core.engine.codec import decode_conversation, stored_header
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import conversation_rows
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.ports import ConversationKey, OutputMessage, StateStore, StoredConversation
from stream_metrics.live.worker.output import message_of
from stream_metrics.live.worker.partition import StatePartition
from stream_metrics.live.worker.retry import Retry
from stream_metrics.live.worker.worst import ConversationReader

log = structlog.get_logger(__name__)

PAGE_SIZE = 250  # conversations in one step

PreviousPartitions = Sequence[tuple[StateStore, int]]


class AnnouncementScope(NamedTuple):
    """What there is to announce, and how.

    ``before`` are the partitions of the generation before that may have had conversations of this
    one, ``is_mine`` tells which of them it has. ``mark`` is noted when all is sent, ``page_size``
    conversations in one step.
    """

    store: StateStore
    engine: EngineConfig
    turn_scope: str
    ttl_ms: int
    mark: str
    before: PreviousPartitions = ()
    page_size: int = PAGE_SIZE
    is_mine: Callable[[str], bool] = lambda _: True


class Announcer:
    """Announces each partition of a worker that it has not announced yet.

    ``scope_of`` gives what there is to announce of a partition number; None while there is nothing.
    """

    def __init__(self, scope_of: Callable[[int], AnnouncementScope | None], retry: Retry) -> None:
        self._scope_of = scope_of
        self._retry = retry
        self._begun: dict[int, Announcement] = {}

    async def step(self, partition: StatePartition) -> None:
        """A page of a partition's rows, if there is any left; raises ``PartitionLost``."""
        scope = self._scope_of(partition.number)
        if scope is None or scope.mark in partition.marks:
            self._begun.pop(partition.number, None)
            return
        await self._retry(lambda: self._step(partition, scope))

    async def _step(self, partition: StatePartition, scope: AnnouncementScope) -> None:
        """The same; a listing that was cut off begins anew."""
        begun = self._begun.get(partition.number)
        if begun is None or not begun.is_of(partition, scope.mark):
            begun = self._begun[partition.number] = Announcement(partition, scope)
        try:
            await begun.step(self._retry)
        except BaseException:
            self._begun.pop(partition.number, None)
            raise


class _Entry(NamedTuple):
    """A conversation to speak of: ``name`` and its last record where it had a row before."""

    key: ConversationKey
    name: str = ""
    last_record_ms: int = 0


class Announcement:
    """Sends the rows of one partition, for its owner."""

    def __init__(self, partition: StatePartition, scope: AnnouncementScope) -> None:
        self._partition = partition
        self._scope = scope
        self._reader = ConversationReader(scope.engine)
        self._entries = self._listed()

    def is_of(self, partition: StatePartition, mark: str) -> bool:
        """Whether it is this one's, for the same switch."""
        return self._partition is partition and self._scope.mark == mark

    async def step(self, retry: Retry) -> None:
        """Send the next page, and note it when that was the last; raises ``PartitionLost``."""
        page: list[_Entry] = []
        async for entry in self._entries:
            page.append(entry)
            if len(page) >= self._scope.page_size:
                break
        number, keys = self._partition.number, [(entry.key, False) for entry in page]
        found = await retry(lambda: self._scope.store.load(number, keys))
        assert isinstance(found, list)
        due = (self._message(entry, parts) for entry, parts in zip(page, found, strict=True))
        messages = [message for message in due if message is not None]
        if messages:
            await self._partition.publish(messages, retry)
        if len(page) < self._scope.page_size:
            await self._partition.put([], [self._scope.mark], retry)

    async def _listed(self) -> AsyncIterator[_Entry]:
        """Those that had a row before, then those that are here."""
        for store, number in self._scope.before:
            try:
                async for key, parts in store.conversations(number):
                    name = _name_with_row(parts)
                    if name and self._scope.is_mine(name):
                        yield _Entry(key, name, parts.last_record_ms)
            except DamagedState as damage:
                log.error(
                    "conversations of the generation before cannot be listed; those that have no "
                    "row any more keep their last one on the output topic",
                    partition=number,
                    reason=str(damage),
                )
        async for key, _ in self._scope.store.conversations(self._partition.number):
            yield _Entry(key)

    def _message(self, entry: _Entry, parts: StoredConversation) -> OutputMessage | None:
        """What the topic is to be told of it now."""
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
    """The id of a conversation that had a row; empty if it had none, or cannot be read."""
    try:
        found = decode_conversation("", parts.hot, "")
    except DamagedState:
        return ""
    return found.conversation_id if found.last_turn else ""
