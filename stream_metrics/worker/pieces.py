"""Conversations that lie in pieces on several state partitions, and as one in the new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stream_metrics.engine.codec import add_fingerprints, decode_conversation, encode_changes
from stream_metrics.engine.merge import merge
from stream_metrics.engine.state import Conversation
from stream_metrics.engine.step import Step
from stream_metrics.ports import StoredConversation
from stream_metrics.worker.options import PartitionOptions

Merge = Callable[[str, StoredConversation, StoredConversation], StoredConversation]


@dataclass(frozen=True, slots=True)
class Pieces:
    """How two pieces of a conversation become one, and which may be pieces of others.

    ``merge`` is told the id, and two pieces with fingerprints. ``apart`` is told an id and a state
    partition: of each id one conversation at most is not apart. None: no conversation is.
    """

    merge: Merge
    apart: Callable[[str, int], bool] | None = None


@dataclass(slots=True)
class Merged:
    """What merges have done to rows.

    ``rows``: the ids of conversations that were merged and have one or had one, so that the last
    one sent may be that of a piece, even of one that adds nothing. ``gone``: those of them that
    have none as a whole, since the other piece was forgotten.
    """

    rows: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def note(self, name: str, had: bool, has: bool) -> None:
        """Another merge: whether a piece had a row, and the whole has one."""
        if had or has:
            self.rows.add(name)
        if has:
            self.gone.discard(name)
        elif had:
            self.gone.add(name)


def merging(options: PartitionOptions, schema: int, notes: Merged | None = None) -> Merge:
    """How two pieces are stored as one, by a schema; ``notes`` are kept of what changes by it."""
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
        had = bool(into.last_turn or other.last_turn)
        changes = merge(step, into, other)
        into.schema = 0  # every part is written anew
        hot, fingerprints = encode_changes(into, changes, step.dedup_of(into.key_id), schema)
        whole = StoredConversation(
            {part: data for part, data in hot.items() if data is not None},
            {part: data for part, data in fingerprints.items() if data is not None},
            max(first.last_record_ms, second.last_record_ms),
        )
        if notes is not None:
            notes.note(name, had, bool(into.last_turn))
        return whole

    return merged
