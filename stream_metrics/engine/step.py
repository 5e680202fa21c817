"""The step: a conversation's state and its next events give the changed state and what changed.

Pure: no clock, no input or output, no randomness. Whatever the order and the batching in which a
set of events passes through, state, rows and windows come out the same, because an item is decided
by version and everything else is derived from the items that stand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import ne
from typing import Final

from stream_metrics.dedup.deduplicator import Deduplicator
from stream_metrics.dedup.index import DedupCounts
from stream_metrics.engine.cells import iteration_cell, turn_cell
from stream_metrics.engine.config import EngineConfig
from stream_metrics.engine.state import (
    COMPLETED,
    LABELS,
    SEARCHES,
    STALE,
    Carrier,
    Cell,
    Completed,
    Conversation,
    DamagedState,
    Search,
    Turn,
    Version,
)
from stream_metrics.engine.taken import Taken, TakenIteration, TakenLabels, TakenSearch
from stream_metrics.engine.turn import (
    TurnKeeper,
    Watcher,
    iteration_of,
    labels_conflict,
)
from stream_metrics.events.wire import Forget, TurnCompleted


class Observations:
    """Operational counts of a batch; never part of the state.

    ``events``: by (type, outcome). ``label_delays_us``: labels by their event's time
    after that of what they name. ``late``: iterations and turns that changed when the window named
    had passed them. ``opened``: conversations, by where they were found. ``unknown_fields``:
    events that have a field that the contract does not name, by its path.
    """

    __slots__ = ("counts", "dedup", "events", "label_delays_us", "late", "opened", "unknown_fields")

    def __init__(self) -> None:
        self.events: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.counts: Counter[str] = Counter()
        self.dedup = DedupCounts()
        self.label_delays_us: dict[int, int] = {}
        self.late: Counter[str] = Counter()
        self.opened: Counter[str] = Counter()
        self.unknown_fields: Counter[str] = Counter()


class Changes:
    """What a batch changed in one conversation.

    ``written`` and ``dropped``: carriers by digest; ``fingerprinted``: those whose fingerprints
    are to be written; ``identified``: those whose document ids are, or are to go. ``turns``:
    numbers of turns whose header changed. ``cells``: what windows lose (-1) and gain (+1).
    """

    __slots__ = ("cells", "dropped", "fingerprinted", "header", "identified", "turns", "written")

    def __init__(self) -> None:
        self.written: set[bytes] = set()
        self.dropped: set[bytes] = set()
        self.fingerprinted: set[bytes] = set()
        self.identified: set[bytes] = set()
        self.turns: set[int] = set()
        self.header = False
        self.cells: list[tuple[int, Cell]] = []

    @property
    def of_items(self) -> bool:
        """Whether more than the version up to which the conversation is forgotten has changed."""
        return bool(self.written or self.dropped or self.fingerprinted or self.turns)


class _TurnWork:
    """What a batch has done to one turn so far."""

    __slots__ = (
        "before", "before_turn", "pending", "qrels", "ranked", "rebuild", "replaced", "retracted",
        "touched",
    )  # fmt: skip

    def __init__(self) -> None:
        self.before: dict[int, Cell] = {}
        self.before_turn: Cell | None = None
        self.touched: set[int] = set()
        self.pending: list[Search] = []
        self.rebuild = False
        self.replaced: set[str] = set()  # searches by id
        self.qrels = False
        self.ranked = False  # whether the scores of all searches may have changed
        self.retracted = False


LONGEST_ROUTE: Final = 65  # a label beyond it can match no route, which has 64 characters at most

EVENT_TYPES: Final[dict[type, str]] = {
    TakenIteration: "search_iteration",
    TakenLabels: "relevance_labels",
    TurnCompleted: "turn_completed",
    Forget: "forget",
}


def needs_fingerprints(event: Taken) -> bool:
    """Whether an event can only be applied with the conversation's fingerprints at hand."""
    return type(event.payload) is not TakenLabels


class Step:
    """Applies events to conversations under one configuration.

    ``dedup_of`` gives the deduplicator of a digest key by its id, because a conversation
    keeps the key that it began with.
    """

    def __init__(self, config: EngineConfig, dedup_of: Callable[[str], Deduplicator]) -> None:
        self.config = config
        self.dedup_of = dedup_of

    def apply(
        self, conversation: Conversation, events: Iterable[Taken], seen: Observations
    ) -> Changes:
        """Apply ``events`` in the order given; changes ``conversation`` in place.

        Their digests must be made with the conversation's key.
        """
        batch = _Batch(self, conversation, seen)
        for event in events:
            batch.add(event)
        return batch.finish()

    def restate(self, conversation: Conversation) -> Changes:
        """Work out anew what is stored and depends on the configuration; every part is a change.

        For a conversation that is restored with its fingerprints, which themselves stay as they
        are.
        """
        keeper = TurnKeeper(self.config, self.dedup_of(conversation.key_id), DedupCounts())
        for turn in conversation.turns.values():
            turn.qrels = keeper.qrels(turn)
        carriers, changes = conversation.carriers, Changes()
        changes.written.update(carriers)
        if self.config.retrieval:
            changes.identified.update(d for d, carrier in carriers.items() if carrier.searches)
        changes.turns.update(conversation.turns)
        changes.header = True
        return changes

    def restore(self, conversation: Conversation) -> None:
        """Derive what the stored items imply, after a load; raises ``DamagedState``."""
        keeper = TurnKeeper(self.config, self.dedup_of(conversation.key_id), DedupCounts())
        for turn in conversation.turns.values():
            turn.clear()
            turn.cell = STALE
            for search in sorted(turn.searches.values(), key=lambda s: s.place):
                _check_documents(search, len(turn.firsts))
                keeper.place(turn, search)
                if self.config.retrieval and search.doc_ids is None:
                    raise DamagedState("a search has no document ids")
            for number in turn.gates:
                iteration_of(turn, number)
            if conversation.has_fingerprints:
                keeper.index_again(turn)


def _check_documents(search: Search, known: int) -> None:
    """Raise unless documents are numbered by first occurrence; ``known`` came before."""
    if not any(search.evidence):
        if search.documents != list(range(known, known + len(search.documents))):
            raise DamagedState("a turn's documents are not in the order of its searches")
        return
    for document, evidence in zip(search.documents, search.evidence, strict=True):
        if document != known if evidence == "" else not 0 <= document < known:
            raise DamagedState("a turn's documents are not in the order of its searches")
        known += evidence == ""


class _Batch(Watcher):
    """One conversation's share of a batch."""

    def __init__(self, step: Step, conversation: Conversation, seen: Observations) -> None:
        self._conversation = conversation
        self._seen = seen
        self._config = step.config
        self._limits = step.config.limits
        self._dedup = step.dedup_of(conversation.key_id)
        self._keeper = TurnKeeper(step.config, self._dedup, seen.dedup, self)
        self._changes = Changes()
        self._work: dict[int, _TurnWork] = {}
        self._retrieval = bool(step.config.retrieval)
        # labels that came before what they name, by their event
        self._early: list[tuple[Turn, Carrier, Iterable[str | int]]] = []
        # those of results, where None is for all that the event has
        self._early_results: list[tuple[Turn, Carrier, list[str] | None]] = []
        self._rebuilt: set[int] = set()

    # -- events ---------------------------------------------------------------------------------

    def add(self, event: Taken) -> None:
        """Take one event's items; those that lose against what stands are without effect."""
        conversation, payload = self._conversation, event.payload
        kind = EVENT_TYPES[type(payload)]
        if event.unknown:
            self._seen.unknown_fields.update(event.unknown)
        if event.says_nothing:
            self._seen.counts["empty"] += 1
        if type(payload) is Forget:
            self._seen.events[kind, self._forget(event.version)] += 1
            return
        if conversation.forgotten is not None and event.version[:2] <= conversation.forgotten[:2]:
            self._seen.events[kind, "forgotten"] += 1
            return
        if event.digest in conversation.carriers:
            self._seen.events[kind, "redelivered"] += 1
            return
        turn = conversation.turns.get(event.turn)
        others = len(conversation.turns) > (turn is not None)
        if others and event.turn < conversation.last_turn:
            self._seen.counts["stale"] += 1
        if turn is None:
            turn = self._new_turn(event)
            if turn is None:
                self._seen.events[kind, "over_limit"] += 1
                return
        elif type(payload) is TakenIteration and not turn.exists and self._full(searching=True):
            self._seen.events[kind, "over_limit"] += 1
            return
        work = self._begin(turn)
        if type(payload) is TakenIteration:
            if not turn.exists:
                self._take_blame(turn)
            carrier = self._add_searches(turn, work, event, payload)
        elif type(payload) is TakenLabels:
            carrier = self._add_labels(turn, work, event, payload)
        else:
            carrier = self._complete(turn, work, event, payload)  # type: ignore[arg-type]
        if carrier.empty:
            self._seen.events[kind, "superseded"] += 1
            return
        conversation.carriers[carrier.digest] = carrier
        self._changes.dropped.discard(carrier.digest)
        self._changes.written.add(carrier.digest)
        self._seen.events[kind, "applied"] += 1

    def _new_turn(self, event: Taken) -> Turn | None:
        """Make room for a turn, unless the conversation already holds as many as it may."""
        if self._full(searching=type(event.payload) is TakenIteration):
            return None
        turn = self._conversation.turns[event.turn] = Turn(event.turn)
        self._keeper.clear(turn)
        return turn

    def _full(self, *, searching: bool) -> bool:
        """Whether there are as many turns as may be, of those that exist or of those that wait."""
        conversation = self._conversation
        if conversation.count_turns(existing=searching) < self._limits.turns_per_conversation:
            return False
        self._refuse(conversation.latest_turn)
        return True

    def _take_blame(self, turn: Turn) -> None:
        """Flag a turn that begins to exist if something was refused while it had no row."""
        others = self._conversation.turns.values()
        if any(other.over_limit for other in others if not other.exists):
            turn.over_limit = True
            self._changes.turns.add(turn.number)

    def _refuse(self, turn: Turn) -> None:
        turn.over_limit = True
        turn.refused += 1
        self._changes.turns.add(turn.number)
        self._seen.counts["over_limit"] += 1

    def _begin(self, turn: Turn) -> _TurnWork:
        """Note what the turn adds to the windows before this batch changes it."""
        work = self._work.get(turn.number)
        if work is None:
            work = self._work[turn.number] = _TurnWork()
            cell = turn.cell
            work.before_turn = turn_cell(turn, self._config) if cell is STALE else cell
        return work

    def _touch(self, turn: Turn, work: _TurnWork, number: int) -> None:
        """The iteration's integers are about to change."""
        if number in work.touched or work.retracted:
            return
        work.touched.add(number)
        iteration = turn.iterations.get(number)
        if iteration is not None and (iteration.searches or number in turn.gates):
            cell = iteration.cell
            if cell is STALE:
                cell = iteration_cell(turn, iteration, self._config)
            work.before[number] = cell

    def before_change(self, turn: Turn, number: int) -> None:
        """A document of the iteration is about to get another gain."""
        work = self._work[turn.number]
        self._touch(turn, work, number)
        if self._retrieval and turn.ground_truth is None:
            self._touch_ranked(turn, work)

    def _touch_ranked(self, turn: Turn, work: _TurnWork) -> None:
        """What is relevant in the turn is about to change: its searches may get other scores."""
        if not work.ranked:
            work.ranked = True
            for number in turn.iterations:
                self._touch(turn, work, number)

    def _touch_all(self, turn: Turn, work: _TurnWork) -> None:
        for number in turn.iterations:
            self._touch(turn, work, number)
        work.retracted = True

    def _beats(self, standing: Carrier | None, version: Version) -> bool:
        if standing is None:
            return True
        if standing.occurred_us == version[0] and standing.event_id == version[1]:
            self._seen.counts["version_conflicts"] += 1
        return version > standing.version

    def _release(self, carrier: Carrier) -> None:
        """An item of ``carrier`` was replaced: rewrite it, or drop it with its last item."""
        changes = self._changes
        if not carrier.empty:
            changes.written.add(carrier.digest)
            return
        if self._conversation.carriers.pop(carrier.digest, None) is not None:
            self._drop(carrier)
        if carrier.kind == SEARCHES:
            turn = self._conversation.turns[carrier.turn]
            self._keep_ghost(turn, carrier.version)

    def _drop(self, carrier: Carrier) -> None:
        """Nothing stands of ``carrier`` any more."""
        changes, digest = self._changes, carrier.digest
        changes.written.discard(digest)
        changes.fingerprinted.discard(digest)
        changes.dropped.add(digest)
        if self._retrieval and carrier.kind == SEARCHES:
            changes.identified.add(digest)

    def _note_searches(self, carrier: Carrier) -> None:
        """``carrier`` has other searches than before."""
        self._changes.fingerprinted.add(carrier.digest)
        if self._retrieval:
            self._changes.identified.add(carrier.digest)

    def _keep_ghost(self, turn: Turn, version: Version) -> None:
        if turn.ghost is None or version > turn.ghost:
            turn.ghost = version
            self._changes.turns.add(turn.number)

    # -- search iterations ----------------------------------------------------------------------

    def _add_searches(
        self, turn: Turn, work: _TurnWork, event: Taken, payload: TakenIteration
    ) -> Carrier:
        carrier = Carrier(SEARCHES, turn.number, event.version)
        carrier.iteration = payload.iteration
        carrier.agent = payload.agent
        carrier.release = payload.release
        if payload.gate is not None:
            self._add_gate(turn, work, carrier, payload.gate)
        for sent in payload.searches:
            self._add_search(turn, work, carrier, sent)
        if carrier.empty:
            self._keep_ghost(turn, event.version)
        return carrier

    def _add_gate(self, turn: Turn, work: _TurnWork, carrier: Carrier, decision: str) -> None:
        number = carrier.iteration
        standing = turn.gates.get(number)
        if not self._beats(standing, carrier.version):
            return
        if self._too_many_iterations(turn, number):
            self._refuse(turn)
            return
        self._touch(turn, work, number)
        carrier.gate = decision
        turn.gates[number] = carrier
        if iteration_of(turn, number).searches and decision == "skip":
            self._seen.counts["gate_conflicts"] += 1
        if standing is not None:
            standing.gate = None
            self._release(standing)

    def _too_many_iterations(self, turn: Turn, number: int) -> bool:
        """Whether one more iteration would be more than the turn may have."""
        limit = self._limits.iterations_per_turn
        if len(turn.gates) + len(turn.searches) < limit:
            return False
        work = self._work[turn.number]
        if work.rebuild:  # which iterations it has will be known when it is derived again
            numbers = {search.carrier.iteration for search in turn.searches.values()}
            numbers.update(turn.gates)
            return number not in numbers and len(numbers) >= limit
        known = turn.iterations
        if number in known:
            return False
        pending = {search.carrier.iteration for search in work.pending}
        return number not in pending and len(known) + len(pending - known.keys()) >= limit

    def _add_search(self, turn: Turn, work: _TurnWork, carrier: Carrier, sent: TakenSearch) -> None:
        standing = turn.searches.get(sent.search_id)
        if not self._beats(None if standing is None else standing.carrier, carrier.version):
            return
        if not self._room(turn, carrier, sent, standing):
            self._refuse(turn)
            return
        search = self._search(carrier, sent)
        if standing is not None:
            self._replace(turn, work, standing)
        _count(turn, search, 1)
        turn.searches[sent.search_id] = search
        carrier.searches.append(sent.search_id)
        self._note_searches(carrier)
        work.pending.append(search)

    def _room(
        self, turn: Turn, carrier: Carrier, sent: TakenSearch, standing: Search | None
    ) -> bool:
        """Whether the turn may hold the search, in the place of the one that stands."""
        limits = self._limits
        searches = len(turn.searches) + 1
        results = turn.results + len(sent.result_ids)
        values = turn.extra_values + sent.fingerprints.extra_values
        if standing is not None:
            searches -= 1
            results -= len(standing.result_ids)
            values -= _extra_values(standing)
        return (
            results <= limits.results_per_turn
            and searches <= limits.searches_per_turn
            and values <= limits.values_per_turn
            and not self._too_many_iterations(turn, carrier.iteration)
        )

    def _search(self, carrier: Carrier, sent: TakenSearch) -> Search:
        search = Search(carrier, sent.search_id, sent.ordinal, sent.position)
        search.route = sent.route
        search.result_ids, search.gains, search.baseline = (
            sent.result_ids,
            sent.gains,
            sent.baseline,
        )
        search.fingerprints, search.types = sent.fingerprints, sent.types
        if sent.fingerprints.urls_unparsed:
            self._seen.counts["urls_unparsed"] += sent.fingerprints.urls_unparsed
        return search

    def _replace(self, turn: Turn, work: _TurnWork, standing: Search) -> None:
        _count(turn, standing, -1)
        work.replaced.add(standing.search_id)
        standing.carrier.searches.remove(standing.search_id)
        self._note_searches(standing.carrier)
        self._release(standing.carrier)
        if standing in work.pending:
            work.pending.remove(standing)
        else:
            self._touch_all(turn, work)
            work.rebuild = True

    # -- labels ---------------------------------------------------------------------------------

    def _add_labels(
        self, turn: Turn, work: _TurnWork, event: Taken, payload: TakenLabels
    ) -> Carrier:
        carrier = Carrier(LABELS, turn.number, event.version)
        if payload.results:
            self._add_result_labels(turn, carrier, payload.results)
        for search_id, route in payload.routing.items():
            standing_route = turn.routing_labels.get(search_id)
            if not self._beats(standing_route and standing_route[0], carrier.version):
                continue
            search = turn.searches.get(search_id)
            if search is not None:
                self._touch(turn, work, search.carrier.iteration)
                if search.route is None:
                    self._seen.counts["routing_labels_unrouted"] += 1
            else:
                self._early.append((turn, carrier, [search_id]))
            optimal = route and route[:LONGEST_ROUTE]
            carrier.routing_labels[search_id] = optimal
            turn.routing_labels[search_id] = (carrier, optimal)
            if standing_route is not None:
                del standing_route[0].routing_labels[search_id]
                self._release(standing_route[0])
        for number, needed in payload.gate.items():
            standing_gate = turn.gate_labels.get(number)
            if not self._beats(standing_gate and standing_gate[0], carrier.version):
                continue
            if number not in turn.iterations:
                self._early.append((turn, carrier, [number]))
            self._touch(turn, work, number)
            carrier.gate_labels[number] = needed
            turn.gate_labels[number] = (carrier, needed)
            if standing_gate is not None:
                del standing_gate[0].gate_labels[number]
                self._release(standing_gate[0])
        return carrier

    def _add_result_labels(self, turn: Turn, carrier: Carrier, sent: dict[str, int | None]) -> None:
        mine, labels = dict(sent), turn.labels
        for result_id in sent:
            standing = labels.setdefault(result_id, carrier)
            if standing is not carrier:
                if not self._beats(standing, carrier.version):
                    self._seen.counts["labels_superseded"] += 1
                    del mine[result_id]
                    continue
                self._seen.counts["labels_revised"] += 1
                del standing.labels[result_id]
                self._release(standing)
                labels[result_id] = carrier
        carrier.labels = mine
        if not turn.handles or turn.handles.keys().isdisjoint(mine.keys()):
            if mine:
                self._early.append((turn, carrier, mine.keys()))
                self._early_results.append((turn, carrier, None))
            return
        early = self._relabel_found(turn, carrier)
        if early:
            self._early.append((turn, carrier, early))
            self._early_results.append((turn, carrier, early))

    def _relabel_found(self, turn: Turn, carrier: Carrier) -> list[str]:
        """Give the results that ``carrier`` labels what it says; returns the ids of no result."""
        handles, held = turn.handles, turn.result_labels
        delays = _Delays(self._seen)
        early: list[str] = []
        for result_id, gain in carrier.labels.items():
            position = handles.get(result_id)
            if position is None:
                early.append(result_id)
                continue
            delays.note(carrier, turn.holders[position].carrier)
            if held[position] != gain:
                self._relabel(turn, position, gain)
        delays.flush()
        return early

    def _relabel(self, turn: Turn, position: int, gain: int | None) -> None:
        document = turn.documents[position]
        before = labels_conflict(turn, document)
        self._keeper.relabel(turn, position, gain)
        if not before and labels_conflict(turn, document):
            self._seen.counts["label_conflicts"] += 1

    # -- the end of a turn, forgetting ----------------------------------------------------------

    def _complete(
        self, turn: Turn, work: _TurnWork, event: Taken, payload: TurnCompleted
    ) -> Carrier:
        carrier = Carrier(COMPLETED, turn.number, event.version)
        standing = turn.completed
        if not self._beats(None if standing is None else standing.carrier, event.version):
            return carrier
        relevant = payload.relevant
        digests: dict[bytes, int] | None = None
        if relevant is not None:
            pairs = [(doc, 2) for doc in relevant] if type(relevant) is list else relevant.items()  # type: ignore[union-attr]
            document = self._dedup.document
            digests = {document(doc): grade for doc, grade in pairs if grade is not None}
        if self._retrieval:
            self._touch_ranked(turn, work)
            turn.scores.clear()
        carrier.completed, turn.completed = True, Completed(carrier, digests)
        work.qrels = True
        if standing is not None:
            standing.carrier.completed = False
            self._release(standing.carrier)
        return carrier

    def _forget(self, version: Version) -> str:
        """Erase every item of a version at or below this one, and rebuild what is left.

        What comes later in the batch finds the turns as if a batch had ended here. Returns what
        became of the event.
        """
        conversation, changes = self._conversation, self._changes
        if conversation.forgotten is not None and version <= conversation.forgotten:
            return "redelivered" if version == conversation.forgotten else "superseded"
        conversation.forgotten = version
        changes.header = True
        limit = version[:2]
        for digest, carrier in list(conversation.carriers.items()):
            if carrier.version[:2] <= limit:
                self._erase(carrier)
                del conversation.carriers[digest]
                self._drop(carrier)
        for turn in conversation.turns.values():
            if turn.ghost is not None and turn.ghost[:2] <= limit:
                self._begin(turn)
                turn.ghost = None
                changes.turns.add(turn.number)
            if turn.empty:  # also one that has only ever refused
                self._begin(turn)
                turn.over_limit, turn.refused = False, 0
        self._derive()
        return "applied"

    def _erase(self, carrier: Carrier) -> None:
        turn = self._conversation.turns[carrier.turn]
        work = self._begin(turn)
        self._touch_all(turn, work)
        work.rebuild = True
        for search_id in carrier.searches:
            search = turn.searches.pop(search_id)
            _count(turn, search, -1)
            if search in work.pending:
                work.pending.remove(search)
        if carrier.gate is not None and turn.gates.get(carrier.iteration) is carrier:
            del turn.gates[carrier.iteration]
        for result_id in carrier.labels:
            del turn.labels[result_id]
        for search_id in carrier.routing_labels:
            del turn.routing_labels[search_id]
        for number in carrier.gate_labels:
            del turn.gate_labels[number]
        if carrier.completed:
            turn.completed = None
        carrier.clear()

    # -- the end of the batch -------------------------------------------------------------------

    def finish(self) -> Changes:
        """Derive what the items imply, and return what the batch changed."""
        self._derive()
        for turn, carrier, early in self._early_results:
            self._observe_early(turn, carrier, early)
        if self._early or self._rebuilt:
            self._bound_waiting()
        self._keeper.watcher = None  # it refers back to this: both are free at once without
        return self._changes

    def _derive(self) -> None:
        """Derive what the items imply of turns that have changed, and drop those without any."""
        turns = self._conversation.turns
        for number, work in self._work.items():
            turn = turns[number]
            self._finish_turn(turn, work)
            if turn.empty and not turn.over_limit:
                del turns[number]
                self._changes.turns.add(number)
            elif work.rebuild:
                self._rebuilt.add(number)
        self._work.clear()

    def _bound_waiting(self) -> None:
        """Refuse labels while too many wait in the conversation.

        First those of this batch, the last first; then those of rebuilt turns, where they may wait
        because what they name was replaced or forgotten, the highest version first.
        """
        turns = self._conversation.turns
        if sum(map(_all_labels, turns.values())) <= self._limits.waiting_labels:
            return  # even if all of them wait
        excess = sum(map(waiting_labels, turns.values())) - self._limits.waiting_labels
        if excess <= 0:
            return
        rebuilt = [turn for number, turn in turns.items() if number in self._rebuilt]
        left = [(turn, carrier, name) for turn in rebuilt for carrier, name in _waiting(turn)]
        left.sort(key=lambda label: label[1].version)
        left += [(turn, carrier, name) for turn, carrier, names in self._early for name in names]
        for turn, carrier, name in reversed(left):
            if excess <= 0:
                return
            if _withdraw_waiting(turn, carrier, name):
                excess -= 1
                self._refuse(turn)
                self._release(carrier)

    def _observe_early(self, turn: Turn, carrier: Carrier, early: list[str] | None) -> None:
        """Which labels that came before their results in this batch still wait for them."""
        handles, holders, labels = turn.handles, turn.holders, carrier.labels
        standing = list(labels) if early is None else [name for name in early if name in labels]
        delays, waiting = _Delays(self._seen), 0
        for result_id in standing:
            position = handles.get(result_id)
            if position is None:
                waiting += 1
            else:
                delays.note(carrier, holders[position].carrier)
        delays.flush()
        if waiting:
            self._seen.counts["labels_waiting"] += waiting

    def _observe_found(self, turn: Turn, placed: Iterable[Search]) -> None:
        """Count labels of earlier batches that have waited for the results just placed."""
        labels, handles, delays, found = turn.labels, turn.handles, _Delays(self._seen), 0
        early = [carrier for its, carrier, _ in self._early_results if its is turn]
        if len(labels) == sum([len(carrier.labels) for carrier in early]):
            return  # no label is of an earlier batch
        now = set(map(id, early))
        for search in placed:
            first = search.first
            for at, result_id in enumerate(search.result_ids):
                carrier = labels.get(result_id)
                if carrier is None or id(carrier) in now or handles[result_id] != first + at:
                    continue
                delays.note(carrier, search.carrier)
                found += 1
        delays.flush()
        if found:
            self._seen.counts["labels_found"] += found

    def _observe_conflicts(self, turn: Turn, search: Search) -> None:
        """Count results whose id names another result, which came before in the turn."""
        held = map(turn.handles.__getitem__, search.result_ids)
        conflicts = sum(map(ne, held, count(search.first)))
        if conflicts:
            self._seen.counts["result_id_conflicts"] += conflicts

    def _finish_turn(self, turn: Turn, work: _TurnWork) -> None:
        pending = _in_order(work.pending)
        if pending and turn.order and pending[0].precedes(turn.order[-1]):
            work.rebuild = True
        if work.rebuild:
            self._touch_all(turn, work)
            self._rebuild(turn)
        else:
            for search in pending:
                self._touch(turn, work, search.carrier.iteration)
                self._keeper.append(turn, search)
        if pending and turn.labels:
            self._observe_found(turn, [s for s in pending if s.search_id not in work.replaced])
        conflicts = len(turn.handles) < len(turn.holders)
        for search in pending:
            if conflicts:
                self._observe_conflicts(turn, search)
            gate = turn.gates.get(search.carrier.iteration)
            if gate is not None and gate.gate == "skip":
                self._seen.counts["gate_conflicts"] += 1
        if (pending or work.rebuild or work.qrels) and self._conversation.has_fingerprints:
            qrels = self._keeper.qrels(turn)
            if qrels != turn.qrels:
                turn.qrels = qrels
                self._changes.turns.add(turn.number)
        self._add_cells(turn, work)

    def _rebuild(self, turn: Turn) -> None:
        self._seen.counts["rebuilds"] += 1
        decided = {id(s): (s.documents, s.evidence) for s in turn.searches.values()}
        self._keeper.rebuild(turn)
        for search in turn.order:
            if decided[id(search)] != (search.documents, search.evidence):
                self._changes.written.add(search.carrier.digest)

    def _add_cells(self, turn: Turn, work: _TurnWork) -> None:
        before = work.before
        for number in turn.iterations.keys() if work.retracted else work.touched:
            iteration = turn.iterations.get(number)
            if iteration is not None and (iteration.searches or number in turn.gates):
                iteration.cell = iteration_cell(turn, iteration, self._config)
                self._exchange(before.pop(number, None), iteration.cell)
        for gone in before.values():
            self._exchange(gone, None)
        turn.cell = turn_cell(turn, self._config)
        self._exchange(work.before_turn, turn.cell)

    def _exchange(self, before: Cell | None, after: Cell | None) -> None:
        """Windows are to have ``after`` in place of ``before``: only what differs is passed on."""
        cells = self._changes.cells
        if (
            before is None
            or after is None
            or before.time_us != after.time_us
            or before.agent != after.agent
        ):
            if before is not None:
                cells.append((-1, before))
            if after is not None:
                cells.append((1, after))
        elif before.sums != after.sums:
            sums = _difference(before.sums, after.sums)
            cells.append((1, Cell(after.time_us, after.agent, sums, before.routes | after.routes)))


def _difference(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    """What is to be added to ``old`` to give ``new``."""
    found: dict[str, int] = {}
    for code, value in new.items():
        more = value - old.get(code, 0)
        if more:
            found[code] = more
    for code, value in old.items():
        if code not in new:
            found[code] = -value
    return found


class _Delays:
    """Notes how long after results their labels came; those of one event in a row are the same."""

    __slots__ = ("_known", "_since_us", "_times")

    def __init__(self, seen: Observations) -> None:
        self._known = seen.label_delays_us
        self._since_us = 0
        self._times = 0

    def note(self, labels: Carrier, results: Carrier) -> None:
        """One event has labelled a result of the other."""
        since_us = labels.occurred_us - results.occurred_us
        if since_us != self._since_us:
            self.flush()
            self._since_us = since_us
        self._times += 1

    def flush(self) -> None:
        """Hand over what was noted."""
        if self._times:
            self._known[self._since_us] = self._known.get(self._since_us, 0) + self._times
            self._times = 0


def _in_order(searches: list[Search]) -> list[Search]:
    """The searches in canonical order, in which most come."""
    for at in range(1, len(searches)):
        if searches[at].precedes(searches[at - 1]):
            return sorted(searches, key=lambda search: search.place)
    return searches


def _extra_values(search: Search) -> int:
    assert search.fingerprints is not None  # whoever touches a search has loaded them
    return search.fingerprints.extra_values


def _count(turn: Turn, search: Search, sign: int) -> None:
    """Add a search to what the turn holds, or take it away."""
    turn.results += sign * len(search.result_ids)
    turn.extra_values += sign * _extra_values(search)


def _all_labels(turn: Turn) -> int:
    return len(turn.labels) + len(turn.routing_labels) + len(turn.gate_labels)


def waiting_labels(turn: Turn) -> int:
    """Labels of a turn that name nothing it has."""
    return sum(1 for _ in _waiting(turn))


def _waiting(turn: Turn) -> Iterator[tuple[Carrier, str | int]]:
    """Those labels, each as the event that brought it and what it names."""
    for result_id, carrier in turn.labels.items():
        if result_id not in turn.handles:
            yield carrier, result_id
    for search_id, (carrier, _) in turn.routing_labels.items():
        if search_id not in turn.searches:
            yield carrier, search_id
    for number, (carrier, _) in turn.gate_labels.items():
        if number not in turn.iterations:
            yield carrier, number


def _withdraw_waiting(turn: Turn, carrier: Carrier, name: str | int) -> bool:
    """Take a label back that ``carrier`` brought and that still names nothing."""
    if isinstance(name, int):
        if name not in carrier.gate_labels or name in turn.iterations:
            return False
        del carrier.gate_labels[name], turn.gate_labels[name]
        return True
    if name in carrier.labels and name not in turn.handles:
        del carrier.labels[name], turn.labels[name]
        return True
    if name in carrier.routing_labels and name not in turn.searches:
        del carrier.routing_labels[name], turn.routing_labels[name]
        return True
    return False
