"""The engine's step: applies a conversation's next events to its state.

The step is pure: it uses no clock, I/O or randomness. State, rows and windows do not depend on the
order or the batches in which a set of events arrives, because versions decide which items win and
everything else is derived from the winning items. Each batch goes through three passes:

1. ``plan``    enters the items of the events into the registers
2. ``derive``  updates documents, iterations and labels from the registers
3. ``cells``   computes the changes to the windows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stream_metrics.core.dedup.deduplicator import Deduplicator
from stream_metrics.core.engine.cells import cell_changes
from stream_metrics.core.engine.changes import Changes, Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.conversation_cells import unit_changes, units_of
from stream_metrics.core.engine.derive import Derivation
from stream_metrics.core.engine.digested import DigestedEvent
from stream_metrics.core.engine.plan import Plan
from stream_metrics.core.engine.state import SCHEMA_WITH_SOURCES, Conversation


class Step:
    """Applies events to conversations under one configuration.

    ``dedup_of`` returns the deduplicator for the id of a digest key, because a conversation keeps
    the key with which it was first stored.
    """

    def __init__(self, config: EngineConfig, dedup_of: Callable[[str], Deduplicator]) -> None:
        self.config = config
        self.dedup_of = dedup_of

    def apply(
        self, conversation: Conversation, events: Iterable[DigestedEvent], observed: Observations
    ) -> Changes:
        """Apply ``events`` in order; modifies ``conversation`` in place.

        Their digests must have been made with the conversation's key.
        """
        changes = Changes()
        before_units = units_of(conversation, self.config)
        plan = Plan(conversation, self.config, observed, changes)
        plan.add(events)
        derivation = self._derivation(conversation, observed, changes)
        for turn in plan.turns:
            turn.turn.judged = None
            derivation.apply(turn, has_fingerprints=conversation.has_fingerprints)
            before, before_turn = derivation.before, derivation.before_turn
            changes.cells += cell_changes(turn.turn, before, before_turn, self.config)
        if conversation.schema == SCHEMA_WITH_SOURCES:
            changes.cells += unit_changes(before_units, units_of(conversation, self.config))
        return changes

    def restore(self, conversation: Conversation) -> None:
        """Derive everything that is not stored, after a load; raises ``DamagedState``."""
        derivation = self._derivation(conversation, Observations(), Changes())
        for turn in conversation.turns.values():
            derivation.restore(turn, has_fingerprints=conversation.has_fingerprints)

    def _derivation(
        self, conversation: Conversation, observed: Observations, changes: Changes
    ) -> Derivation:
        return Derivation(self.config, self.dedup_of(conversation.key_id), observed, changes)
