"""Pieces of one conversation as one state.

A conversation is in pieces where some of its events came to another state partition than the
others. Each piece is the set of its winning items. A winning item of all events wins among those of
its piece, too; so the items of one piece are applied to the other like events that come again, and
the result is the state of all events, whatever the order. As with events, order matters only for
what a limit turns away.
"""

from __future__ import annotations

from collections.abc import Iterator

from stream_metrics.engine.state import (
    COMPLETED,
    SEARCHES,
    Carrier,
    Completed,
    Conversation,
    DamagedState,
    Search,
    Turn,
)
from stream_metrics.engine.step import Changes, Observations, Step
from stream_metrics.engine.taken import Taken, TakenIteration, TakenSearch
from stream_metrics.events.wire import (
    Forget,
    GateLabel,
    Label,
    RelevanceLabels,
    RoutingLabel,
    TurnCompleted,
)


def merge(step: Step, into: Conversation, other: Conversation) -> Changes:
    """Take all of ``other`` into ``into``; every part is a change.

    ``into`` is restored, with its fingerprints; those of ``other`` are loaded. Raises
    ``DamagedState`` if they were digested with different keys: nobody can compare their texts.
    """
    if into.turns and other.turns and into.key_id != other.key_id:
        raise DamagedState(
            "its pieces lie on several state partitions and were digested with different keys"
        )
    if not into.turns:
        into.key_id = other.key_id or into.key_id
    step.apply(into, _events(into, other), Observations())
    for turn in other.turns.values():
        _merge_turn(into, turn)
    changes = step.restate(into)
    changes.fingerprinted = {
        digest for digest, carrier in into.carriers.items() if carrier.searches
    }
    return changes


def _merge_turn(into: Conversation, other: Turn) -> None:
    """Take over what no event tells again: ground truth, marks of limits, a turn without items."""
    limit = into.forgotten[:2] if into.forgotten is not None else None
    ghost = other.ghost if limit is None or (other.ghost or ())[:2] > limit else None
    mine = into.turns.get(other.number)
    if mine is None:
        if ghost is None and not other.refused and not other.over_limit:
            return
        mine = into.turns[other.number] = Turn(other.number)
    mine.over_limit = mine.over_limit or other.over_limit
    mine.refused += other.refused
    if ghost is not None and (mine.ghost is None or ghost > mine.ghost):
        mine.ghost = ghost
    if (
        other.completed is not None
        and mine.completed is not None
        and mine.completed.carrier.digest == other.completed.carrier.digest
    ):
        mine.completed = Completed(mine.completed.carrier, other.completed.relevant)


def _events(into: Conversation, piece: Conversation) -> Iterator[Taken]:
    """Events that bring the items of ``piece``; ends of turns are without their ground truth."""
    name, key_id = into.conversation_id, into.key_id
    if piece.forgotten is not None:
        yield Taken(*piece.forgotten, name, 1, key_id, Forget(name, piece.forgotten[1]))
    for carrier in sorted(piece.carriers.values(), key=lambda carrier: carrier.version):
        payload = _payload(name, piece, carrier)
        yield Taken(*carrier.version, name, carrier.turn, key_id, payload)


def _payload(
    name: str, piece: Conversation, carrier: Carrier
) -> TakenIteration | RelevanceLabels | TurnCompleted:
    if carrier.kind == SEARCHES:
        found = piece.turns[carrier.turn].searches
        searches = [_taken(found[search_id]) for search_id in carrier.searches]
        return TakenIteration(
            carrier.iteration, carrier.agent, carrier.release, carrier.gate, searches
        )
    if carrier.kind == COMPLETED:
        return TurnCompleted(name, carrier.event_id, carrier.turn)
    return RelevanceLabels(
        name,
        carrier.event_id,
        carrier.turn,
        labels=[Label(*label) for label in carrier.labels.items()],
        routing=[RoutingLabel(*label) for label in carrier.routing_labels.items()],
        gate=[GateLabel(*label) for label in carrier.gate_labels.items()],
    )


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
