"""The step: a conversation's state and its next events give the changed state and what changed.

Pure: no clock, no input or output, no randomness. Whatever the order and the batching in which a
set of events passes through, state, rows and windows come out the same, because an item is decided
by version and all else follows from the items that won. Three passes, one after the other:

1. ``plan``    enters what the events say into the registers
2. ``derive``  brings documents, iterations and labels in line with them
3. ``cells``   works out what windows gain and lose
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stream_metrics.core.dedup.deduplicator import Deduplicator
from stream_metrics.core.engine.cells import cell_changes
from stream_metrics.core.engine.changes import Changes, Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.derive import Derivation
from stream_metrics.core.engine.digested import DigestedEvent
from stream_metrics.core.engine.plan import Plan
from stream_metrics.core.engine.state import Conversation


class Step:
    """Applies events to conversations under one configuration.

    ``dedup_of`` gives the deduplicator of a digest key by its id, because a conversation
    keeps the key that it began with.
    """

    def __init__(self, config: EngineConfig, dedup_of: Callable[[str], Deduplicator]) -> None:
        self.config = config
        self.dedup_of = dedup_of

    def apply(
        self, conversation: Conversation, events: Iterable[DigestedEvent], observed: Observations
    ) -> Changes:
        """Apply ``events`` in the order given; changes ``conversation`` in place.

        Their digests must be made with the conversation's key.
        """
        changes = Changes()
        plan = Plan(conversation, self.config, observed, changes)
        plan.add(events)
        derivation = self._derivation(conversation, observed, changes)
        for turn in plan.turns:
            derivation.apply(turn, has_fingerprints=conversation.has_fingerprints)
            before, before_turn = derivation.before, derivation.before_turn
            changes.cells += cell_changes(turn.turn, before, before_turn, self.config)
        return changes

    def restore(self, conversation: Conversation) -> None:
        """Derive what the stored items imply, after a load; raises ``DamagedState``."""
        derivation = self._derivation(conversation, Observations(), Changes())
        for turn in conversation.turns.values():
            derivation.restore(turn, has_fingerprints=conversation.has_fingerprints)

    def _derivation(
        self, conversation: Conversation, observed: Observations, changes: Changes
    ) -> Derivation:
        return Derivation(self.config, self.dedup_of(conversation.key_id), observed, changes)
