"""A cache of open conversations, bounded by their results."""

from __future__ import annotations

from collections import OrderedDict

from stream_metrics.core.engine.state import Conversation
from stream_metrics.live.ports import ConversationKey

CONVERSATION_WEIGHT = 5  # overhead of an open conversation, in results


class ConversationCache:
    """A least-recently-used cache for all partitions, with a total weight of ``max_results``.

    Every entry equals what the store holds, so it may be dropped between batches.
    """

    def __init__(self, max_results: int) -> None:
        self.max_results = max_results
        self.results = 0
        self._entries: OrderedDict[tuple[int, ConversationKey], tuple[Conversation, int]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, partition: int, key: ConversationKey) -> Conversation | None:
        """A cached conversation, which becomes the most recently used; None if it is not cached."""
        entry = self._entries.get((partition, key))
        if entry is None:
            return None
        self._entries.move_to_end((partition, key))
        return entry[0]

    def put(self, partition: int, key: ConversationKey, conversation: Conversation) -> None:
        """Cache a conversation that was written; drops the least recently used ones to fit.

        A conversation that exceeds ``max_results`` by itself is not cached.
        """
        self.drop(partition, key)
        weight = conversation.weight + CONVERSATION_WEIGHT
        if weight > self.max_results:
            return
        self._entries[partition, key] = (conversation, weight)
        self.results += weight
        while self.results > self.max_results and self._entries:
            _, (_, weight) = self._entries.popitem(last=False)
            self.results -= weight

    def drop(self, partition: int, key: ConversationKey) -> None:
        """Remove a conversation, if it is cached."""
        entry = self._entries.pop((partition, key), None)
        if entry is not None:
            self.results -= entry[1]

    def drop_partition(self, partition: int) -> None:
        """Remove all conversations of a partition."""
        for place in [place for place in self._entries if place[0] == partition]:
            self.drop(*place)
