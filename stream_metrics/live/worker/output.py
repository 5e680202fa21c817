"""Makes the messages on the output topic: a conversation's rows after a batch.

A message has the rows that ``export`` would write at that moment. It is sent after every batch with
an event of the conversation, even if nothing has changed: an owner that is being replaced may send
an older row behind a newer one. Its successor reads the events of that row again, and the message
that it then sends is the last one.
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
    """The message with a conversation's rows, at least one."""
    value = canonical(rows if turn_scope == "all" else rows[0]).encode()
    return OutputMessage(rows[0]["conversation_id"], value)


def message_after(
    conversation: Conversation, changes: Changes, events: Iterable[DigestedEvent], turn_scope: str
) -> OutputMessage | None:
    """The message to send after ``events``, or None.

    With ``turn_scope`` ``last`` the value is a row, with ``all`` a list of rows, one a turn. It is
    None for a conversation that was forgotten. One that has never had a row is not spoken of.
    """
    if rows := conversation_rows(conversation, turn_scope):
        return message_of(rows, turn_scope)
    if conversation.forgotten is None:
        return None  # labels wait for the first search
    # A ``forget`` is sent to every partition, so others show that the conversation belongs here.
    if changes.has_items or any(event.kind is not FORGET for event in events):
        return OutputMessage(conversation.conversation_id, None)
    return None
