"""Pass 1: enter the items of events into the registers of their conversation.

Events are processed one by one in log order, and each outcome depends on the registers alone: which
items an event wins, which events it replaces, what a limit refuses, what a ``forget`` erases.
Results therefore do not depend on batch boundaries. The later passes update documents, iterations
and windows; they start from the events that won items (``TurnPlan``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stream_metrics.core.engine.changes import Changes, Observations, Outcome, Refused
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent
from stream_metrics.core.engine.registers import (
    BY_CODE,
    FORGET,
    LABEL_TYPES,
    DigestedSearch,
    EventType,
    Items,
    Register,
)
from stream_metrics.core.engine.state import (
    GATE,
    SCHEMA_WITH_SOURCES,
    SEARCH,
    Conversation,
    Search,
    Turn,
    Version,
    WinningEvent,
)

WaitingLabel = tuple[WinningEvent, Register, Any]
"""A label for something that its turn does not have (yet): its event, register and key."""


class TurnPlan:
    """What a batch has changed in the registers of one turn.

    ``events`` are those that won items; items that they have lost again are no longer among theirs.
    ``anew``: an already derived search was replaced, or items were erased, so that everything
    must be derived again. ``replaced`` holds the ids of searches that replaced another one.
    """

    __slots__ = ("anew", "events", "iterations", "replaced", "turn")

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.events: list[WinningEvent] = []
        self.anew = False
        self.replaced: set[str] = set()
        self.iterations: set[int] | None = None  # those with a search or gate, computed on demand


class Plan:
    """Enters the events of a batch into the registers of one conversation.

    ``turns`` are the plans of the turns that have changed, including those that a ``forget`` has
    removed from the conversation.
    """

    def __init__(
        self,
        conversation: Conversation,
        config: EngineConfig,
        observed: Observations,
        changes: Changes,
    ) -> None:
        self.turns: list[TurnPlan] = []
        self._by_number: dict[int, TurnPlan] = {}
        self._conversation = conversation
        self._limits = config.limits
        self._retrieval = bool(config.retrieval)
        self._loops = config.rules.tables.loops
        self._observed = observed
        self._changes = changes
        # Waiting labels of people and of the model, by turn, where counted.
        self._waiting: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._search_removed = False  # by the current event; labels of it may now wait

    def add(self, events: Iterable[DigestedEvent]) -> None:
        """Enter ``events``, which must be in log order."""
        for event in events:
            kind: EventType = event.kind
            if event.unknown:
                self._observed.unknown_fields.update(event.unknown)
            if event.is_empty:
                self._observed.counts["empty"] += 1
            outcome = self._forget(event.version) if kind is FORGET else self._enter(event, kind)
            self._observed.events[kind.name, outcome] += 1

    def _enter(self, event: DigestedEvent, kind: EventType) -> Outcome:
        """Enter the items of an event; return its outcome."""
        conversation, digest, number = self._conversation, event.digest, event.turn
        version = (event.occurred_us, event.event_id, digest)
        if conversation.forgotten is not None and version[:2] <= conversation.forgotten[:2]:
            return "forgotten"
        if digest in conversation.events:
            return "redelivered"
        turn = conversation.turns.get(number)
        if len(conversation.turns) > (turn is not None) and number < conversation.last_turn:
            self._observed.counts["stale"] += 1
        begins = turn is None or (kind.in_iteration and turn.newest is None)
        if begins and self._turn_limit_reached(existing=kind.in_iteration):
            counting = conversation.latest_turn
            for register in kind.registers:
                for key, value in event.items[register.event_index].items():
                    self._note_refused(
                        counting, number, register, key, version, "turns_per_conversation", value
                    )
            return "over_limit"
        new = turn is None
        if turn is None:
            turn = conversation.turns[number] = Turn(number)
        if begins and kind.in_iteration:
            self._inherit_over_limit(turn)
        won = WinningEvent(
            kind.code, number, version, (), event.iteration, event.agent, event.release
        )
        self._enter_items(self._plan_of(turn), won, kind, event.items)
        if won.empty and turn.newest is not won:
            if new and turn.empty and not turn.over_limit:
                self._remove_turn(turn)
            return "superseded"
        conversation.events[digest] = won
        self._changes.dropped.discard(digest)
        self._changes.written.add(digest)
        return "superseded" if won.empty else "applied"

    def _enter_items(
        self, plan: TurnPlan, event: WinningEvent, kind: EventType, sent: tuple[Items, ...]
    ) -> None:
        """Enter the items ``sent`` and give ``event`` those that it wins."""
        turn = plan.turn
        self._search_removed = False
        for waiting_by_turn in self._waiting:
            waiting_by_turn.pop(turn.number, None)
        event.items = tuple(
            [
                {}
                if not sent[register.event_index]
                else self._enter_within_limits(plan, event, register, sent[register.event_index])
                if kind.in_iteration
                else self._enter_register(plan, event, register, sent[register.event_index])
                for register in kind.registers
            ]
        )
        if kind.in_iteration:
            if event.items[0]:
                self._note_searches(event)
            self._note_newest(turn, event)
            if self._search_removed:
                for labels in LABEL_TYPES:
                    self._limit_waiting_labels([turn], labels)
        elif kind.labels:
            self._limit_waiting_labels([turn], kind, event)
            if event.items[3] or (kind.by_model and not event.empty):
                self._note_sources()
        if not event.empty:
            plan.events.append(event)

    def _enter_register(
        self, plan: TurnPlan, event: WinningEvent, register: Register, sent: Items
    ) -> Items:
        """Enter items into one register; return those that win."""
        winners, won = plan.turn.winners[register.turn_index], dict(sent)
        lost = revised = 0
        for key in sent:
            incumbent = winners.setdefault(key, event)
            if incumbent is event:
                continue
            if self._supersedes(incumbent, event):
                self._lose_item(plan, incumbent, register, key)
                winners[key] = event
                revised += 1
            else:
                del won[key]
                lost += 1
        if lost and register.superseded:
            self._observed.counts[register.superseded] += lost
        if revised and register.revised:
            self._observed.counts[register.revised] += revised
        return won

    def _enter_within_limits(
        self, plan: TurnPlan, event: WinningEvent, register: Register, sent: Items
    ) -> Items:
        """The same for searches and gate decisions, whose number in a turn is limited."""
        turn, searching = plan.turn, register.turn_index == SEARCH
        winners: dict[Any, WinningEvent] = turn.winners[register.turn_index]
        won: Items = {}
        for key, value in sent.items():
            incumbent = winners.get(key)
            if incumbent is not None and not self._supersedes(incumbent, event):
                continue
            limit = self._limit_of_search(turn, value, incumbent) if searching else ""
            if not limit and not self._iteration_fits(plan, event.iteration):
                limit = "iterations_per_turn"
            if limit:
                self._refuse(turn)
                self._note_refused(turn, turn.number, register, key, event.version, limit, value)
                continue
            if incumbent is not None:
                self._lose_item(plan, incumbent, register, key)
            winners[key] = event
            won[key] = self._add_search(turn, event, value) if searching else value
        return won

    def _supersedes(self, incumbent: WinningEvent, event: WinningEvent) -> bool:
        if incumbent.occurred_us == event.occurred_us and incumbent.event_id == event.event_id:
            self._observed.counts["version_conflicts"] += 1
        return _later(event, incumbent)

    # -- removing items -------------------------------------------------------------------------

    def _lose_item(self, plan: TurnPlan, event: WinningEvent, register: Register, key: Any) -> None:
        """Remove an item of ``event`` that another event has won."""
        value = event.items[register.event_index].pop(key)
        if register.turn_index == SEARCH:
            self._remove_search(plan, event, value)
            plan.replaced.add(key)
        self._rewrite_or_drop(plan.turn, event)

    def _add_search(self, turn: Turn, event: WinningEvent, sent: DigestedSearch) -> Search:
        """Add the search that ``event`` has won to the turn's totals; return it."""
        if sent.fingerprints.urls_unparsed:
            self._observed.counts["urls_unparsed"] += sent.fingerprints.urls_unparsed
        turn.results += len(sent.result_ids)
        turn.extra_values += sent.fingerprints.extra_values
        search = Search(
            event, sent.search_id, sent.ordinal, sent.position, sent.route, sent.result_ids,
            sent.gains, sent.baseline, sent.types, sent.fingerprints,
        )  # fmt: skip
        if self._loops:
            search.query = sent.query
        return search

    def _remove_search(self, plan: TurnPlan, event: WinningEvent, search: Search) -> None:
        """Subtract a search that was replaced or erased from the turn's totals."""
        turn = plan.turn
        turn.results -= len(search.result_ids)
        turn.extra_values -= _extra_values(search)
        plan.anew = plan.anew or search.start >= 0
        plan.iterations = None
        self._search_removed = True
        self._note_searches(event)

    def _rewrite_or_drop(self, turn: Turn, event: WinningEvent) -> None:
        """After ``event`` has lost an item: write it again, or drop it if it has none left."""
        if turn.newest is event or not event.empty:
            self._changes.written.add(event.digest)
        else:
            self._drop(event)

    def _drop(self, event: WinningEvent) -> None:
        """Delete ``event``, which has no items left."""
        changes, digest = self._changes, event.digest
        del self._conversation.events[digest]
        changes.written.discard(digest)
        changes.fingerprinted.discard(digest)
        changes.dropped.add(digest)
        if self._retrieval and BY_CODE[event.kind].in_iteration:
            changes.identified.add(digest)

    def _note_searches(self, event: WinningEvent) -> None:
        """Write the searches of ``event`` again, because they have changed."""
        self._changes.fingerprinted.add(event.digest)
        if self._retrieval:
            self._changes.identified.add(event.digest)

    def _note_newest(self, turn: Turn, event: WinningEvent) -> None:
        """Make ``event`` the turn's newest event, unless there is a newer one."""
        before = turn.newest
        if before is not None:
            if _later(before, event):
                return
            if before.empty:
                self._drop(before)
        turn.newest = event

    # -- turns ----------------------------------------------------------------------------------

    def _plan_of(self, turn: Turn) -> TurnPlan:
        plan = self._by_number.get(turn.number)
        if plan is None:
            plan = self._by_number[turn.number] = TurnPlan(turn)
            self.turns.append(plan)
        return plan

    def _remove_turn(self, turn: Turn) -> None:
        """Remove an empty turn. Its plan stays, so that it is subtracted from the windows."""
        del self._conversation.turns[turn.number]
        self._by_number.pop(turn.number, None)
        self._changes.turns.add(turn.number)

    def _turn_limit_reached(self, *, existing: bool) -> bool:
        """Whether the conversation has as many turns as allowed, among those that exist or not."""
        conversation = self._conversation
        if conversation.count_turns(existing=existing) < self._limits.turns_per_conversation:
            return False
        self._refuse(conversation.latest_turn)
        return True

    def _inherit_over_limit(self, turn: Turn) -> None:
        """Flag a new turn as over the limit if something was refused before any turn existed."""
        others = self._conversation.turns.values()
        if any(other.over_limit for other in others if not other.exists):
            self._flag(turn)
            self._changes.turns.add(turn.number)

    # -- limits ---------------------------------------------------------------------------------

    def _flag(self, turn: Turn) -> None:
        turn.over_limit = True
        if self._loops and turn.left_out is None:
            turn.left_out = (0, 0)

    def _refuse(self, turn: Turn) -> None:
        self._flag(turn)
        turn.refused += 1
        self._changes.turns.add(turn.number)
        self._observed.counts["over_limit"] += 1

    def _note_refused(
        self,
        counting: Turn,
        number: int,
        register: Register,
        key: Any,
        version: Version,
        limit: str,
        value: Any = None,
    ) -> None:
        """Note a refused item of turn ``number``, which the turn ``counting`` counts."""
        results = 0
        if register.turn_index == SEARCH:
            results = len(value.result_ids)
            if counting.left_out is not None:
                counting.left_out = (counting.left_out[0] + 1, counting.left_out[1] + results)
        self._observed.refused.append(
            Refused(number, register.turn_index, key, version, results, limit)
        )

    def _limit_of_search(
        self, turn: Turn, sent: DigestedSearch, incumbent: WinningEvent | None
    ) -> str:
        """The limit that keeps the search ``sent`` out of the turn, in which it would replace the
        incumbent's; empty if it fits."""
        limits = self._limits
        searches = len(turn.winners[SEARCH]) + 1
        results = turn.results + len(sent.result_ids)
        values = turn.extra_values + sent.fingerprints.extra_values
        if incumbent is not None:
            replaced: Search = incumbent.items[0][sent.search_id]
            searches -= 1
            results -= len(replaced.result_ids)
            values -= _extra_values(replaced)
        if results > limits.results_per_turn:
            return "results_per_turn"
        if searches > limits.searches_per_turn:
            return "searches_per_turn"
        return "values_per_turn" if values > limits.values_per_turn else ""

    def _iteration_fits(self, plan: TurnPlan, number: int) -> bool:
        """Whether an iteration of that number fits into the turn; if so, it counts from now on."""
        turn, limit = plan.turn, self._limits.iterations_per_turn
        searches, gates = turn.winners[SEARCH], turn.winners[GATE]
        if len(searches) + len(gates) < limit:
            return True
        if plan.iterations is None:
            plan.iterations = {event.iteration for event in searches.values()}
            plan.iterations.update(gates)
        if number not in plan.iterations and len(plan.iterations) >= limit:
            return False
        plan.iterations.add(number)
        return True

    def _note_sources(self) -> None:
        """Write in the header that the conversation has a schema with sources of labels."""
        if self._conversation.schema != SCHEMA_WITH_SOURCES:
            self._conversation.schema = SCHEMA_WITH_SOURCES
            self._changes.header = True

    def _limit_waiting_labels(
        self, turns: list[Turn], kind: EventType, labels: WinningEvent | None = None
    ) -> None:
        """Refuse waiting labels of ``turns`` that are over the conversation's limit.

        The limit holds for people and for the model; ``kind`` says whose labels are meant. With
        ``labels``, an event of new labels: only its own, from its last label on. Without it
        (searches were removed from ``turns``): those with the highest versions.
        """
        most, all_turns = self._limits.waiting_labels, self._conversation.turns.values()
        model, labelled = kind.by_model, 0
        for turn in all_turns:
            labelled += turn.labels(model=model)
        if labelled <= most:
            return  # below the limit even if all labels wait
        if labels is not None and _all_placed(self._plan_of(turns[0]), labels):
            return
        counted = self._waiting[model]
        for turn in all_turns:
            if turn.number not in counted:
                counted[turn.number] = waiting_labels(turn, kind)
        excess = sum([counted[turn.number] for turn in all_turns]) - most
        if excess <= 0:
            return
        found = [
            label
            for turn in turns
            for label in waiting(turn, kind)
            if labels is None or label[0] is labels
        ]
        _sort_by_event(found, kind)
        for event, register, key in found[-excess:]:
            turn = self._conversation.turns[event.turn]
            del turn.winners[register.turn_index][key], event.items[register.event_index][key]
            counted[turn.number] -= 1
            self._refuse(turn)
            self._note_refused(turn, turn.number, register, key, event.version, "waiting_labels")
            if event is not labels:
                self._rewrite_or_drop(turn, event)

    # -- forgetting -----------------------------------------------------------------------------

    def _forget(self, version: Version) -> Outcome:
        """Erase every item up to and including ``version``; return the event's outcome."""
        conversation = self._conversation
        if conversation.forgotten is not None and version <= conversation.forgotten:
            return "redelivered" if version == conversation.forgotten else "superseded"
        conversation.forgotten = version
        self._changes.header = True
        for waiting_by_turn in self._waiting:
            waiting_by_turn.clear()
        erased = [e for e in conversation.events.values() if e.version[:2] <= version[:2]]
        for event in erased:
            self._erase(event)
        for turn in list(conversation.turns.values()):
            if turn.empty:  # including turns whose items were all refused
                self._remove_turn(turn)
        left = conversation.turns.keys() & {event.turn for event in erased}
        for kind in LABEL_TYPES:
            self._limit_waiting_labels([conversation.turns[n] for n in sorted(left)], kind)
        return "applied"

    def _erase(self, event: WinningEvent) -> None:
        turn = self._conversation.turns[event.turn]
        plan = self._plan_of(turn)
        plan.anew = plan.anew or not event.empty
        plan.iterations = None
        for register in BY_CODE[event.kind].registers:
            held, winners = event.items[register.event_index], turn.winners[register.turn_index]
            for key in held:
                del winners[key]
            if register.turn_index == SEARCH:
                for search in held.values():
                    self._remove_search(plan, event, search)
            held.clear()
        if turn.newest is event:
            turn.newest = None
        self._drop(event)


def _later(one: WinningEvent, other: WinningEvent) -> bool:
    """Whether ``one`` has a higher version than ``other``."""
    if one.occurred_us != other.occurred_us:
        return one.occurred_us > other.occurred_us
    return one.version > other.version


def _all_placed(plan: TurnPlan, labels: WinningEvent) -> bool:
    """Whether the turn had everything that ``labels`` name before the batch, and still has it."""
    turn, (results, routes, gates, _) = plan.turn, labels.items
    return (
        not plan.anew
        and results.keys() <= turn.handles.keys()
        and routes.keys() <= turn.winners[SEARCH].keys()
        and gates.keys() <= turn.iterations.keys()
    )


def _extra_values(search: Search) -> int:
    assert search.fingerprints is not None  # loaded before any search may change
    return search.fingerprints.extra_values


def _sort_by_event(found: list[WaitingLabel], kind: EventType) -> None:
    """Sort labels by the versions of their events, and those of an event as they stand in it.

    The order of a register tells what was there before, which is not stored.
    """
    places: dict[tuple[bytes, int, Any], int] = {}
    for event in {label[0].digest: label[0] for label in found}.values():
        for register in kind.registers[:3]:
            for place, key in enumerate(event.items[register.event_index]):
                places[event.digest, register.turn_index, key] = place
    found.sort(
        key=lambda label: (
            label[0].version,
            label[1].turn_index,
            places[label[0].digest, label[1].turn_index, label[2]],
        )
    )


def waiting_labels(turn: Turn, kind: EventType) -> int:
    """The number of labels of a kind for something that the turn does not have."""
    return sum(1 for _ in waiting(turn, kind))


def waiting(turn: Turn, kind: EventType) -> Iterator[WaitingLabel]:
    """The labels of people or of the model for something that the turn does not have."""
    searches, gates = turn.winners[SEARCH], turn.winners[GATE]
    for register in kind.registers[:3]:
        winners = turn.winners[register.turn_index]
        if not winners:
            continue
        known: set[Any] = set()
        if register.event_index == 0:
            known = known.union(*[search.result_ids for search in turn.searches()])
        elif register.event_index == 1:
            known = set(searches)
        else:
            known = {event.iteration for event in searches.values()}.union(gates)
        for key, event in winners.items():
            if key not in known:
                yield event, register, key
