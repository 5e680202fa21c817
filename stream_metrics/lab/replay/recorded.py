"""What was recorded of a turn and the engine does not keep: texts, reference answers, dimensions.

The engine keeps digests. Which events stand it has decided; what they say is looked up in the
events themselves, read once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stream_metrics.core.engine.state import (
    END,
    WHOLE_TURN,
    Conversation,
    Search,
    Turn,
    Version,
    WinningEvent,
)
from stream_metrics.core.events.decode import Event
from stream_metrics.core.events.turns import turn_text
from stream_metrics.core.events.wire import Result, SearchIteration, TurnCompleted
from stream_metrics.core.events.wire import Search as SentSearch
from stream_metrics.core.metrics.decisions import FACTS


class MissingEvent(Exception):
    """An event that the conversation was made of is not among those that were read again."""


class Recorded:
    """Looks up what stands of a conversation.

    Args:
        conversation: As the engine has it after all of ``events``.
        events: The valid events of the conversation, replaced ones among them or not, in any
            order.
    """

    def __init__(self, conversation: Conversation, events: Iterable[Event]) -> None:
        self._conversation = conversation
        self._events: dict[tuple[int, Version], Event] = {
            (event.turn, event.version): event for event in events
        }

    def end_of(self, turn: Turn) -> TurnCompleted | None:
        """The event that ended a turn; None if it has none. Raises ``MissingEvent``."""
        event = turn.winners[END].get(WHOLE_TURN)
        if event is None:
            return None
        end = self._payload(turn, event)
        assert isinstance(end, TurnCompleted)
        return end

    def search_of(self, turn: Turn, search: Search) -> SentSearch:
        """A search that won, as it was sent. Raises ``MissingEvent``."""
        sent = self._payload(turn, search)
        assert isinstance(sent, SearchIteration)
        assert sent.searches is not None
        return sent.searches[search.index]

    def results_of(self, turn: Turn, search: Search) -> list[Result]:
        """The results of a search that won, by rank. Raises ``MissingEvent``."""
        return self.search_of(turn, search).results or []

    def _payload(self, turn: Turn, won: Search | WinningEvent) -> Any:
        event = self._events.get((turn.number, won.version))
        if event is None:
            raise MissingEvent(
                f"conversation {self._conversation.conversation_id!r}, turn "
                f"{turn_text(turn.number)}: "
                f"event {won.event_id!r} is missing; read all events of the conversation"
            )
        return event.payload


def recorded_dimensions(end: TurnCompleted | None) -> dict[str, str]:
    """The dimensions that came with the end of a turn, but for those of ``FACTS``."""
    recorded = (end.dimensions if end is not None else None) or {}
    return {
        name: value for name, value in recorded.items() if value is not None and name not in FACTS
    }


def references_of(end: TurnCompleted | None) -> list[str]:
    """The reference answers that came with the end of a turn."""
    recorded = (end.reference_answers if end is not None else None) or ()
    return [reference for reference in recorded if reference is not None]


def text_of(result: Result) -> str:
    """Title, and content or else snippet; empty if there is none of them.

    >>> text_of(Result("r", title="Nile", snippet="A river", content=" "))
    'Nile\\nA river'
    """
    title, text = result.title, result.content
    if not text or text.isspace():
        text = result.snippet
    if not text or text.isspace():
        text = ""
    if not title or title.isspace():
        return text
    return f"{title}\n{text}" if text else title
