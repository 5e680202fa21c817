"""What the output topic is told about a conversation after a batch.

A message holds the rows that ``export`` writes of the conversation at that moment. It is due when
the conversation's stored state has changed, not when its row has: after a rewind the same events
come in other batches, and only then is the last message of each conversation the last row,
whatever was sent before the rewind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stream_metrics.core.engine.changes import Changes
from stream_metrics.core.engine.digested import DigestedEvent
from stream_metrics.core.engine.registers import FORGET
from stream_metrics.core.engine.row import Row, canonical, conversation_rows
from stream_metrics.core.engine.state import Conversation
from stream_metrics.live.ports import OutputMessage


def message_of(rows: Sequence[Row], turn_scope: str) -> OutputMessage:
    """The message that holds a conversation's rows, of which there is one at least."""
    value = canonical(rows if turn_scope == "all" else rows[0]).encode()
    return OutputMessage(rows[0]["conversation_id"], value)


def message_after(
    conversation: Conversation, changes: Changes, events: Iterable[DigestedEvent], turn_scope: str
) -> OutputMessage | None:
    """The message that ``events`` make due, or None.

    With ``turn_scope`` ``last`` the value is a row, with ``all`` a list of rows, one a turn. It is
    None for a conversation that was forgotten. One that has never had a row is not spoken of.
    """
    rows = None
    if changes.has_items:
        rows = conversation_rows(conversation, turn_scope)
    elif not _late_for_a_forgotten(conversation, events):
        return None
    if rows:
        return message_of(rows, turn_scope)
    if conversation.forgotten is None:
        return None  # labels wait for the first search
    return OutputMessage(conversation.conversation_id, None)


def _late_for_a_forgotten(conversation: Conversation, events: Iterable[DigestedEvent]) -> bool:
    """Whether an event has come for a conversation of which nothing is left.

    A ``forget`` comes on every partition, so that it does not tell where a conversation lives; any
    other event does. Before a rewind the conversation may have been known here, and have had a row.
    """
    return (
        conversation.forgotten is not None
        and not conversation.last_turn
        and any(event.kind is not FORGET for event in events)
    )
