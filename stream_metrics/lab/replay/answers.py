"""What turns answered, and the texts of their unique results, out of recorded events."""

from __future__ import annotations

from collections.abc import Iterator

from stream_metrics.core.engine.row import origin_of, shown_turns
from stream_metrics.core.engine.state import Conversation
from stream_metrics.core.metrics.decisions import routes_together
from stream_metrics.lab.metrics.generation import AnsweredTurn
from stream_metrics.lab.replay.recorded import Recorded, recorded_dimensions, references_of


def answered_turns(
    conversation: Conversation, recorded: Recorded, turn_scope: str = "last"
) -> Iterator[AnsweredTurn]:
    """The turns of a conversation that have a row, with their texts, in order.

    A turn whose end nobody has told has no answer. The dimensions are those of the turn, its
    release, and the routes that its searches took, together.

    Args:
        conversation: As the engine has it after all events.
        recorded: What was recorded of it.
        turn_scope: ``last`` for the highest turn, ``all`` for every turn.
    """
    for turn in shown_turns(conversation, turn_scope):
        agent, release = origin_of(turn)
        end = recorded.end_of(turn)
        routes = {search.route for search in turn.order if search.route is not None}
        facts = {"release": release, "route": routes_together(routes)}
        yield AnsweredTurn(
            conversation.conversation_id,
            turn.number,
            agent,
            recorded_dimensions(end) | {name: one for name, one in facts.items() if one},
            None if end is None else end.answer,
            references_of(end),
            None if end is None else end.question,
            recorded.texts_of(turn),
            recorded.words_version,
        )
