"""Open conversations in memory, bounded by what they hold."""

from __future__ import annotations

from collections import OrderedDict

from stream_metrics.core.engine.state import Conversation
from stream_metrics.live.ports import ConversationKey

CONVERSATION_WEIGHT = 5  # what an open conversation costs beside its results, in results


class ConversationCache:
    """The conversations used last, of all partitions; they weigh ``max_results`` results at most.

    What is in it equals what the store holds, so that anything may be dropped between batches.
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
        """The open conversation, which becomes the one used last."""
        entry = self._entries.get((partition, key))
        if entry is None:
            return None
        self._entries.move_to_end((partition, key))
        return entry[0]

    def put(self, partition: int, key: ConversationKey, conversation: Conversation) -> None:
        """Keep a conversation that the store has taken; may drop those used longest ago.

        One that weighs more than all of the cache may is not kept.
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
        """Forget one conversation; it can be loaded again."""
        entry = self._entries.pop((partition, key), None)
        if entry is not None:
            self.results -= entry[1]

    def drop_partition(self, partition: int) -> None:
        """Forget all conversations of a partition."""
        for place in [place for place in self._entries if place[0] == partition]:
            self.drop(*place)
