"""Pieces of one conversation as one state.

A conversation is in pieces where some of its events came to another state partition than the
others. Each piece is the set of its winning items. A winning item of all events wins among those of
its piece, too; so the items of one piece are applied to the other like events that come again, and
the result is the state of all events, whatever the order. As with events, order matters only for
what a limit turns away.
"""

from __future__ import annotations

from stream_metrics.engine.changes import Changes, Observations
from stream_metrics.engine.registers import BY_CODE, FORGET, Items, TakenSearch
from stream_metrics.engine.state import (
    Conversation,
    DamagedState,
    Search,
    Turn,
    Version,
    WinningEvent,
)
from stream_metrics.engine.step import Step
from stream_metrics.engine.taken import Taken


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
    changes = step.restate(into)
    changes.fingerprinted = {digest for digest, event in into.events.items() if event.searches}
    return changes


def _forget(step: Step, piece: Conversation, version: Version | None) -> None:
    """Let ``piece`` forget what the other one has forgotten."""
    if version is not None:
        name = piece.conversation_id
        event = Taken(*version, name, 1, piece.key_id, FORGET)
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


def _events(into: Conversation, piece: Conversation) -> list[Taken]:
    """The events of ``piece`` with the items that they still hold."""
    name, key_id = into.conversation_id, into.key_id
    events = [
        Taken(
            *event.version,
            name,
            event.turn,
            key_id,
            BY_CODE[event.kind],
            _taken_items(event),
            event.iteration,
            event.agent,
            event.release,
        )
        for event in piece.events.values()
    ]
    return sorted(events, key=lambda event: event.version)


def _taken_items(event: WinningEvent) -> tuple[Items, ...]:
    if not event.searches:
        return event.items
    searches = {search.search_id: _taken(search) for search in event.searches}
    return (searches, *event.items[1:])


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
