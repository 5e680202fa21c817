"""What turns answered, and the texts of their unique results, out of recorded events.

The engine keeps digests. Which events stand and which results are unique it has decided; the texts
come from the events themselves, read once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stream_metrics.engine.row import origin_of, shown_turns
from stream_metrics.engine.state import Carrier, Conversation, Turn, Version
from stream_metrics.events.decode import Event
from stream_metrics.events.wire import Result, SearchIteration, TurnCompleted
from stream_metrics.metrics.generation import AnsweredTurn


class MissingEvent(Exception):
    """An event that the conversation was made of is not among those that were read again."""


def answered_turns(
    conversation: Conversation, events: Iterable[Event], turn_scope: str = "last"
) -> Iterator[AnsweredTurn]:
    """The turns of a conversation that have a row, with their texts, in order.

    A turn without a standing ``turn_completed`` has no answer. Of each document there is the text
    of its first occurrence: its title, and its content or else its snippet.

    Args:
        conversation: As the engine has it after all of ``events``.
        events: The valid events of the conversation, replaced ones among them or not, in any
            order.
        turn_scope: ``last`` for the highest turn, ``all`` for every turn.

    Raises:
        MissingEvent: The events are not those that the conversation was made of.
    """
    by_version = {(event.turn, event.version): event for event in events}
    for turn in shown_turns(conversation, turn_scope):
        yield _Reading(conversation, turn, by_version).answered()


class _Reading:
    """Looks up what stands of one turn."""

    def __init__(
        self,
        conversation: Conversation,
        turn: Turn,
        events: dict[tuple[int, Version], Event],
    ) -> None:
        self._conversation, self._turn, self._events = conversation, turn, events

    def answered(self) -> AnsweredTurn:
        agent, _ = origin_of(self._turn)
        place = (self._conversation.conversation_id, self._turn.number, agent)
        texts = [text for result in self._unique() if (text := text_of(result))]
        if self._turn.completed is None:
            return AnsweredTurn(*place, texts=texts)
        end = self._payload(self._turn.completed.carrier)
        assert isinstance(end, TurnCompleted)
        return AnsweredTurn(
            *place,
            {name: value for name, value in (end.dimensions or {}).items() if value is not None},
            end.answer,
            [reference for reference in end.reference_answers or () if reference is not None],
            end.question,
            texts,
        )

    def _unique(self) -> Iterator[Result]:
        """The first occurrence of each document, in canonical order."""
        turn = self._turn
        for position in turn.firsts:
            search = turn.holders[position]
            sent = self._payload(search.carrier)
            assert isinstance(sent, SearchIteration)
            assert sent.searches is not None
            results = sent.searches[search.index].results
            assert results is not None
            yield results[position - search.first]

    def _payload(self, carrier: Carrier) -> Any:
        event = self._events.get((self._turn.number, carrier.version))
        if event is None:
            raise MissingEvent(
                f"conversation {self._conversation.conversation_id!r}, turn {self._turn.number}: "
                f"event {carrier.event_id!r} is not among the events; read all that the "
                "conversation was made of"
            )
        return event.payload


def text_of(result: Result) -> str:
    """Title, and content or else snippet; empty if there is none of them.

    >>> text_of(Result("r", title="Nile", snippet="A river", content=" "))
    'Nile\\nA river'
    """
    parts = (_first_text(result.title), _first_text(result.content, result.snippet))
    return "\n".join(part for part in parts if part)


def _first_text(*texts: str | None) -> str | None:
    return next((text for text in texts if text and not text.isspace()), None)
