"""Pieces of one conversation as one state.

A conversation is in pieces where some of its events came to another state partition than the
others. Each piece is the set of its winning items. A winning item of all events wins among those of
its piece, too; so the items of one piece are applied to the other like events that come again, and
the result is the state of all events, whatever the order. As with events, order matters only for
what a limit turns away.
"""

from __future__ import annotations

from stream_metrics.engine.config import DEFAULT_AGENT
from stream_metrics.engine.state import (
    COMPLETED,
    SEARCHES,
    Carrier,
    Completed,
    Conversation,
    DamagedState,
    Search,
    Turn,
    Version,
)
from stream_metrics.engine.step import Changes, Observations, Step
from stream_metrics.engine.taken import Taken, TakenIteration, TakenLabels, TakenSearch
from stream_metrics.events.wire import Forget, TurnCompleted


def merge(step: Step, into: Conversation, other: Conversation) -> Changes:
    """Take all of ``other`` into ``into``; every part is a change.

    Both are restored, with their fingerprints; ``other`` is of no use afterwards. Raises
    ``DamagedState`` if they were digested with different keys: nobody can compare their texts.
    """
    _forget(step, into, other.forgotten)
    _forget(step, other, into.forgotten)  # so that its marks of limits go with what is erased
    if into.turns and other.turns and into.key_id != other.key_id:
        raise DamagedState(
            "its parts are on several state partitions and were digested with different keys"
        )
    if not into.turns:
        into.key_id = other.key_id or into.key_id
    step.apply(into, _events(into, other), Observations())
    for _, turn in sorted(other.turns.items()):
        _merge_marks(into, turn, step.config.limits.turns_per_conversation)
        _merge_ground_truth(into, turn)
    changes = step.restate(into)
    changes.fingerprinted = {
        digest for digest, carrier in into.carriers.items() if carrier.searches
    }
    return changes


def _forget(step: Step, piece: Conversation, version: Version | None) -> None:
    """Let ``piece`` forget what the other one has forgotten."""
    if version is not None:
        name = piece.conversation_id
        event = Taken(*version, name, 1, piece.key_id, Forget(name, version[1]))
        step.apply(piece, [event], Observations())


def _merge_marks(into: Conversation, other: Turn, most: int) -> None:
    """Take over what limits have turned away from a turn, of which no event tells again.

    A turn that only refused is made if ``into`` has fewer than ``most`` that wait. Any other is
    there, or limits have turned it away now: then the latest turn answers for it.
    """
    if not other.over_limit and not other.refused:
        return
    mine = into.turns.get(other.number)
    if mine is None and other.empty and into.count_turns(existing=False) < most:
        mine = into.turns[other.number] = Turn(other.number)
    if mine is None:
        mine = into.latest_turn
    mine.over_limit = mine.over_limit or other.over_limit
    mine.refused += other.refused


def _merge_ground_truth(into: Conversation, other: Turn) -> None:
    mine = into.turns.get(other.number)
    if (
        mine is not None
        and mine.completed is not None
        and other.completed is not None
        and mine.completed.carrier.digest == other.completed.carrier.digest
    ):
        mine.completed = Completed(mine.completed.carrier, other.completed.relevant)


def _events(into: Conversation, piece: Conversation) -> list[Taken]:
    """Events that bring the items of ``piece``; ends of turns are without their ground truth.

    Of a search iteration none of whose items stands there is one without any.
    """
    name, key_id = into.conversation_id, into.key_id
    events = [
        Taken(*carrier.version, name, carrier.turn, key_id, _payload(name, piece, carrier))
        for carrier in piece.carriers.values()
    ]
    nothing = TakenIteration(0, DEFAULT_AGENT, None, None, [])
    for turn in piece.turns.values():
        if turn.ghost is not None:
            events.append(Taken(*turn.ghost, name, turn.number, key_id, nothing))
    return sorted(events, key=lambda event: event.version)


def _payload(
    name: str, piece: Conversation, carrier: Carrier
) -> TakenIteration | TakenLabels | TurnCompleted:
    if carrier.kind == SEARCHES:
        found = piece.turns[carrier.turn].searches
        searches = [_taken(found[search_id]) for search_id in carrier.searches]
        return TakenIteration(
            carrier.iteration, carrier.agent, carrier.release, carrier.gate, searches
        )
    if carrier.kind == COMPLETED:
        return TurnCompleted(name, carrier.event_id, carrier.turn)
    return TakenLabels(carrier.labels, carrier.routing_labels, carrier.gate_labels)


def _taken(search: Search) -> TakenSearch:
    assert search.fingerprints is not None  # whoever merges has loaded them
    return TakenSearch(
        search.search_id,
        search.ordinal,
        search.index,
        search.route,
        search.result_ids,
        search.gains,
        search.baseline,
        search.fingerprints,
        search.types,
    )
