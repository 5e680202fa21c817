"""Conversations that lie in pieces on several state partitions, and as one in the new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stream_metrics.engine.codec import add_fingerprints, decode_conversation, encode_changes
from stream_metrics.engine.merge import merge
from stream_metrics.engine.state import Conversation
from stream_metrics.engine.step import Step
from stream_metrics.ports import StoredConversation
from stream_metrics.worker.partition import PartitionOptions

Merge = Callable[[str, StoredConversation, StoredConversation], StoredConversation]


@dataclass(frozen=True, slots=True)
class Pieces:
    """How two pieces of a conversation become one, and which may be pieces of others.

    ``merge`` is told the id, and two pieces with fingerprints. ``apart`` is told an id and a state
    partition: of each id one conversation at most is not apart. None: no conversation is.
    """

    merge: Merge
    apart: Callable[[str, int], bool] | None = None


def merging(options: PartitionOptions, schema: int) -> Merge:
    """How two pieces are stored as one, by a schema."""
    dedups, rules = options.dedups, options.engine.rules
    step = Step(options.engine, lambda key_id: dedups.of(rules, options.keys[key_id]))

    def decoded(name: str, parts: StoredConversation) -> Conversation:
        conversation = decode_conversation(name, parts.hot, options.key_id)
        dedup = step.dedup_of(conversation.key_id)
        add_fingerprints(conversation, parts.fingerprints or {}, dedup)
        step.restore(conversation)
        return conversation

    def merged(
        name: str, first: StoredConversation, second: StoredConversation
    ) -> StoredConversation:
        into, other = decoded(name, first), decoded(name, second)
        changes = merge(step, into, other)
        into.schema = 0  # every part is written anew
        hot, fingerprints = encode_changes(into, changes, step.dedup_of(into.key_id), schema)
        return StoredConversation(
            {part: data for part, data in hot.items() if data is not None},
            {part: data for part, data in fingerprints.items() if data is not None},
            max(first.last_record_ms, second.last_record_ms),
        )

    return merged
