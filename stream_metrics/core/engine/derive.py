"""Pass 2: update the values that are derived from the registers of a turn.

A search that is the last in canonical order is appended; a label changes the counts of one document
and its iteration. After a search that arrives out of order the turn is derived anew from its
fingerprints, with the same steps.
"""

from __future__ import annotations

from itertools import count
from operator import ne
from typing import Final

from stream_metrics.core.dedup.deduplicator import Deduplicator
from stream_metrics.core.engine.cells import iteration_cell, turn_cell
from stream_metrics.core.engine.changes import Changes, Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.plan import TurnPlan
from stream_metrics.core.engine.ranked import (
    doc_ids_of,
    note_documents,
    units_of,
    until_all_relevant,
)
from stream_metrics.core.engine.registers import RELEVANCE_LABELS, SEARCH_ITERATION, TURN_COMPLETED
from stream_metrics.core.engine.state import (
    END,
    GATE,
    GATE_LABEL,
    RESULT_LABEL,
    ROUTE_LABEL,
    SEARCH,
    WHOLE_TURN,
    Cell,
    DamagedState,
    Iteration,
    Search,
    Turn,
    WinningEvent,
)

# The index of the first labelled result in a document's label counts, after the counts by label.
FIRST: Final = 5

_SEARCH_ITERATION: Final = SEARCH_ITERATION.code
_RELEVANCE_LABELS: Final = RELEVANCE_LABELS.code
_TURN_COMPLETED: Final = TURN_COMPLETED.code


class Derivation:
    """Derives the turns of one conversation from their registers.

    ``before`` has the former cells of the iterations that the last ``apply`` changed, None for new
    iterations; ``before_turn`` is the former cell of the turn.
    """

    def __init__(
        self, config: EngineConfig, dedup: Deduplicator, observed: Observations, changes: Changes
    ) -> None:
        self.before: dict[int, Cell | None] = {}
        self.before_turn: Cell | None = None
        self._config = config
        self._dedup = dedup
        self._observed = observed
        self._changes = changes
        self._by_max = config.gain_of_document == "max"
        self._good_gain = config.good_gain
        self._ranked = bool(config.retrieval)
        self._joined = config.rules.tables.joined_grades

    # -- a batch --------------------------------------------------------------------------------

    def apply(self, plan: TurnPlan, *, has_fingerprints: bool) -> None:
        """Update the turn of ``plan`` after changes in its registers."""
        turn = plan.turn
        self.before = {}
        self.before_turn = turn_cell(turn, self._config) if turn.cell is None else turn.cell
        if turn.index is None and has_fingerprints:
            turn.index = self._dedup.index()
        searching: list[WinningEvent] = []
        labelling: list[WinningEvent] = []
        ended, had_results = plan.anew, bool(turn.result_searches)
        for event in plan.events:
            if event.kind == _SEARCH_ITERATION:
                searching.append(event)
            elif event.kind == _RELEVANCE_LABELS:
                labelling.append(event)
            elif event.kind == _TURN_COMPLETED:
                ended = True
        if ended:
            self._apply_end(turn)
        new = _in_order([search for event in searching for search in event.searches])
        anew = plan.anew or bool(new and turn.order and new[0].precedes(turn.order[-1]))
        if anew:
            self._derive_anew(turn)
        else:
            for event in searching:
                self._apply_gate(turn, event)
            for search in new:
                self._append(turn, search)
        for event in labelling:
            _, routes, gates = event.items
            if event.items[0]:
                self._apply_labels(turn, event)
            if routes:
                self._apply_route_labels(turn, routes)
            if gates:
                self._apply_gate_labels(turn, gates)
        if new:
            self._observe_new(turn, new, labelling, plan.replaced)
        if has_fingerprints and (new or anew or ended):
            qrels = until_all_relevant(turn, self._good_gain, joined=self._joined)
            if qrels != turn.qrels:
                turn.qrels = qrels
                self._changes.turns.add(turn.number)
            if self._joined and turn.relevant and not (had_results and (plan.anew or not ended)):
                without = bool(turn.result_searches) and not units_of(turn).any_named
                self._observed.counts["ground_truths_without_ids"] += without

    def _apply_end(self, turn: Turn) -> None:
        event = turn.winners[END].get(WHOLE_TURN)
        if self._ranked:
            self._touch_all(turn)
            turn.scores.clear()
        turn.relevant = None if event is None else event.items[0][WHOLE_TURN]
        turn.units = None

    def _apply_gate(self, turn: Turn, event: WinningEvent) -> None:
        for number, decision in event.items[1].items():
            iteration = self._iteration(turn, number)
            self._touch(turn, iteration)
            iteration.gate, iteration.explicit = event, decision
            if iteration.searches and decision == "skip":
                self._observed.counts["gate_conflicts"] += 1

    def _apply_route_labels(self, turn: Turn, routes: dict[str, str | None]) -> None:
        for search_id, optimal in routes.items():
            holder = turn.winners[SEARCH].get(search_id)
            if holder is not None:
                search: Search = holder.items[0][search_id]
                self._touch(turn, turn.iterations[search.iteration])
                search.optimal = optimal
                if search.route is None:
                    self._observed.counts["routing_labels_unrouted"] += 1

    def _apply_gate_labels(self, turn: Turn, gates: dict[int, bool | None]) -> None:
        for number, needed in gates.items():
            iteration = turn.iterations.get(number)
            if iteration is not None:
                self._touch(turn, iteration)
                iteration.needed = needed

    def _apply_labels(self, turn: Turn, event: WinningEvent) -> None:
        """Apply the result labels of an event."""
        labels: dict[str, int | None] = event.items[0]
        handles, holders, held = turn.handles, turn.result_searches, turn.result_labels
        waiting = since_us = times = 0
        for result_id, gain in labels.items():
            position = handles.get(result_id)
            if position is None:
                waiting += 1
                continue
            found_us = holders[position].occurred_us
            if found_us != since_us:
                self._note_delay(event.occurred_us - since_us, times)
                since_us, times = found_us, 0
            times += 1
            if held[position] != gain:
                document = turn.documents[position]
                before = labels_conflict(turn, document)
                self._relabel(turn, position, gain)
                if not before and labels_conflict(turn, document):
                    self._observed.counts["label_conflicts"] += 1
        self._note_delay(event.occurred_us - since_us, times)
        if waiting:
            self._observed.counts["labels_waiting"] += waiting

    def _note_delay(self, delay_us: int, times: int) -> None:
        if times:
            delays = self._observed.label_delays_us
            delays[delay_us] = delays.get(delay_us, 0) + times

    def _observe_new(
        self, turn: Turn, new: list[Search], labelling: list[WinningEvent], replaced: set[str]
    ) -> None:
        """Count labels that arrived before new searches, and contradictions in these searches."""
        counts, handles, found = self._observed.counts, turn.handles, 0
        winners = turn.winners[RESULT_LABEL]
        conflicts = len(handles) < len(turn.result_searches)
        waited = len(winners) > sum([len(event.items[0]) for event in labelling])
        now = {event.digest for event in labelling}
        for search in new:
            if conflicts:
                held = map(handles.__getitem__, search.result_ids)
                twice = sum(map(ne, held, count(search.start)))
                if twice:
                    counts["result_id_conflicts"] += twice
            if turn.iterations[search.iteration].explicit == "skip":
                counts["gate_conflicts"] += 1
            if not waited or search.search_id in replaced:
                continue
            for at, result_id in enumerate(search.result_ids, search.start):
                event = winners.get(result_id)
                if event is not None and event.digest not in now and handles[result_id] == at:
                    self._note_delay(event.occurred_us - search.occurred_us, 1)
                    found += 1
        if found:
            counts["labels_found"] += found

    # -- anew -----------------------------------------------------------------------------------

    def _derive_anew(self, turn: Turn) -> None:
        """Derive everything again from the registers; fingerprints must be loaded."""
        self._observed.counts["derived_anew"] += 1
        self._touch_all(turn)
        decided = [(search, search.documents, search.evidence) for search in turn.searches()]
        turn.clear()
        turn.index = self._dedup.index()
        for search in sorted(turn.searches(), key=lambda search: search.sort_key):
            self._append(turn, search)
        for number in turn.winners[GATE]:
            self._iteration(turn, number)
        for search, documents, evidence in decided:
            if documents != search.documents or evidence != search.evidence:
                self._changes.written.add(search.digest)

    def restore(self, turn: Turn, *, has_fingerprints: bool) -> None:
        """Derive a turn from its stored items and deduplication decisions.

        Raises:
            DamagedState: They contradict each other.
        """
        turn.clear()
        turn.cell = None
        for search in sorted(turn.searches(), key=lambda search: search.sort_key):
            _check_documents(search, len(turn.first_results))
            self._place(turn, search)
            if self._ranked and search.doc_ids is None:
                raise DamagedState("a search has no document ids")
        for number in turn.winners[GATE]:
            self._iteration(turn, number)
        self.before = {}
        event = turn.winners[END].get(WHOLE_TURN)
        turn.relevant = None if event is None else event.items[0][WHOLE_TURN]
        if has_fingerprints:
            turn.index = self._dedup.index()
            for search in turn.order:
                assert search.fingerprints is not None
                turn.index.append_decided(search.fingerprints, search.documents)

    # -- searches -------------------------------------------------------------------------------

    def _append(self, turn: Turn, search: Search) -> None:
        """Add a search that is the last of the turn in canonical order."""
        assert turn.index is not None
        assert search.fingerprints is not None
        search.documents, search.evidence = turn.index.append(
            search.fingerprints, self._observed.dedup
        )
        if self._joined and self._ranked and turn.relevant is not None:
            self._rescore_if_joined(turn, search)
        self._place(turn, search)

    def _rescore_if_joined(self, turn: Turn, search: Search) -> None:
        """Drop all scores if a new search changes what ground truth says of earlier results."""
        assert search.fingerprints is not None
        if units_of(turn).changes_with(search.documents, search.fingerprints.documents):
            self._touch_all(turn)
            turn.scores.clear()

    def _iteration(self, turn: Turn, number: int) -> Iteration:
        """The iteration of that number; a new one gets its gate and label from the registers."""
        iteration = turn.iterations.get(number)
        if iteration is None:
            iteration = turn.iterations[number] = Iteration(number)
            self.before.setdefault(number, None)
            gate = turn.winners[GATE].get(number)
            if gate is not None:
                iteration.gate, iteration.explicit = gate, gate.items[1][number]
            label = turn.winners[GATE_LABEL].get(number)
            if label is not None:
                iteration.needed = label.items[2][number]
        return iteration

    def _place(self, turn: Turn, search: Search) -> None:
        """Count a search with known documents in the turn and in its iteration."""
        number = search.iteration
        iteration = self._iteration(turn, number)
        self._touch(turn, iteration)
        if not iteration.searches:
            turn.counted.append(iteration)
            iteration.compact = len(turn.counted)
        iteration.searches.append(search)
        _note_query(turn, iteration, search)
        turn.order.append(search)
        position = search.start = len(turn.result_searches)
        iteration.results += len(search.result_ids)
        turn.documents.extend(search.documents)
        firsts = turn.first_results
        known = len(firsts)
        for at, document in enumerate(search.documents):
            turn.result_searches.append(search)
            turn.result_labels.append(None)
            if document == len(firsts):
                firsts.append(position + at)
                turn.document_gains.append(None)
            else:
                same = turn.result_searches[firsts[document]].iteration == number
                key = (search.types[at], search.evidence[at], same)
                iteration.duplicates[key] = iteration.duplicates.get(key, 0) + 1
        iteration.unique += len(firsts) - known
        if search.baseline is not None:
            _note_ranked(turn.ranked_in, search, number)
        if self._ranked and search.fingerprints is not None:
            search.doc_ids = search.fingerprints.documents
        label = turn.winners[ROUTE_LABEL].get(search.search_id)
        search.optimal = None if label is None else label.items[1][search.search_id]
        self._place_labels(turn, search, iteration)
        if turn.first_by_doc is not None:
            note_documents(turn.first_by_doc, search)
        if turn.units is not None:
            turn.units.add(search.documents, doc_ids_of(search))

    def _place_labels(self, turn: Turn, search: Search, iteration: Iteration) -> None:
        """Set the handles and labels of a search's results.

        Label events apply to the first result of their ``result_id`` in the turn. They replace its
        inline gain, which does not return when a label is withdrawn. Other results with this
        ``result_id`` keep their inline gain.
        """
        handles, labels, gains = turn.handles, turn.winners[RESULT_LABEL], search.gains
        first, begun = search.start, False
        for at, result_id in enumerate(search.result_ids):
            position = first + at
            label = None if gains is None else gains[at]
            if handles.setdefault(result_id, position) == position:
                event = labels.get(result_id)
                if event is not None:
                    label = event.items[0][result_id]
            if label is None:
                continue
            document = turn.documents[position]
            if turn.first_results[document] != position:
                self._relabel(turn, position, label)
                continue
            if not begun:
                self._touch_judged(turn, iteration)
            begun = True
            # No other iteration has this document.
            turn.result_labels[position] = label
            turn.document_gains[document] = label
            iteration.labelled += 1
            self._count_gain(iteration, label, 1)
        if begun:
            _drop_scores(turn)

    # -- labels ---------------------------------------------------------------------------------

    def _relabel(self, turn: Turn, position: int, label: int | None) -> None:
        """Change the label of one result, and the counts of its document's iteration."""
        old = turn.result_labels[position]
        if label == old:
            return
        document = turn.documents[position]
        counts = turn.label_counts.get(document)
        if counts is None:
            if turn.document_gains[document] is None and turn.first_results[document] == position:
                turn.result_labels[position] = label
                self._credit(turn, document, label)
                return
            counts = self._begin_counts(turn, document)
        turn.result_labels[position] = label
        if old is not None:
            counts[old] -= 1
        if label is not None:
            counts[label] += 1
        if self._by_max:
            gain = 4
            while gain >= 0 and not counts[gain]:
                gain -= 1
            winner = gain if gain >= 0 else None
        elif old is None and 0 <= counts[FIRST] < position:
            return  # an earlier result has a label
        elif counts[FIRST] < 0:  # the only label
            counts[FIRST], winner = position, label
        else:
            winner = _first_label(turn, document, counts, position)
        if winner != turn.document_gains[document]:
            self._credit(turn, document, winner)

    def _begin_counts(self, turn: Turn, document: int) -> list[int]:
        """Start the label counts of a document of which only the first result may have a label."""
        label = turn.document_gains[document]
        counts = turn.label_counts[document] = [0, 0, 0, 0, 0, -1]
        if label is not None:
            counts[label] = 1
            if not self._by_max:
                counts[FIRST] = turn.first_results[document]
        return counts

    def _count_gain(self, iteration: Iteration, label: int, sign: int) -> None:
        """Add the gain of a document to its iteration (``sign`` 1) or subtract it (-1)."""
        if label >= self._good_gain:
            iteration.good += sign
            iteration.gain += sign * label

    def _credit(self, turn: Turn, document: int, label: int | None) -> None:
        """Set a document's label, and update the iteration of its first occurrence."""
        iteration = turn.iterations[turn.result_searches[turn.first_results[document]].iteration]
        self._touch_judged(turn, iteration)
        for number in turn.ranked_in.get(document, ()):
            self._touch(turn, turn.iterations[number])
        credited = turn.document_gains[document]
        if credited is None:
            iteration.labelled += 1
        else:
            self._count_gain(iteration, credited, -1)
        if label is None:
            iteration.labelled -= 1
        else:
            self._count_gain(iteration, label, 1)
        turn.document_gains[document] = label
        _drop_scores(turn)

    # -- cells before the change ----------------------------------------------------------------

    def _touch(self, turn: Turn, iteration: Iteration) -> None:
        """Keep the cell of an iteration that is about to change."""
        number = iteration.number
        if number not in self.before:
            cell = iteration.cell
            self.before[number] = (
                iteration_cell(turn, iteration, self._config) if cell is None else cell
            )

    def _touch_judged(self, turn: Turn, iteration: Iteration) -> None:
        """Keep the cells that a changed judgement affects: with ranked metrics, maybe all."""
        self._touch(turn, iteration)
        if self._ranked and turn.relevant is None:
            self._touch_all(turn)

    def _touch_all(self, turn: Turn) -> None:
        if len(self.before) < len(turn.iterations):
            for iteration in turn.iterations.values():
                self._touch(turn, iteration)


def _note_query(turn: Turn, iteration: Iteration, search: Search) -> None:
    """Count a search that repeats an earlier one, or finds nothing."""
    if not search.result_ids:
        iteration.empty += 1
    query = search.query
    if query:
        iteration.queried += 1
        asked = (query, search.route)
        if asked in turn.asked:
            iteration.repeated += 1
        else:
            turn.asked.add(asked)
    elif query is not None:
        turn.queries_unknown = True


def labels_conflict(turn: Turn, document: int) -> bool:
    """Whether the results of a document have different labels."""
    counts = turn.label_counts.get(document)
    return counts is not None and counts[:FIRST].count(0) < FIRST - 1


def _in_order(searches: list[Search]) -> list[Search]:
    """The searches in canonical order; they usually arrive in it."""
    for at in range(1, len(searches)):
        if searches[at].precedes(searches[at - 1]):
            return sorted(searches, key=lambda search: search.sort_key)
    return searches


def _check_documents(search: Search, known: int) -> None:
    """Raise unless documents are numbered by first occurrence, after ``known`` earlier ones."""
    if not any(search.evidence):
        if search.documents != list(range(known, known + len(search.documents))):
            raise DamagedState("a turn's documents are not in the order of its searches")
        return
    for document, evidence in zip(search.documents, search.evidence, strict=True):
        if document != known if evidence == "" else not 0 <= document < known:
            raise DamagedState("a turn's documents are not in the order of its searches")
        known += evidence == ""


def _drop_scores(turn: Turn) -> None:
    """Drop the scores after a changed label, unless they are by ground truth."""
    if turn.scores and turn.relevant is None:
        turn.scores.clear()


def _note_ranked(ranked_in: dict[int, tuple[int, ...]], search: Search, number: int) -> None:
    assert search.baseline is not None
    only: tuple[int, ...] = (number,)  # shared by most documents, to save memory
    for at, document in enumerate(search.documents):
        if search.baseline[at] is not None:
            known = ranked_in.get(document)
            if known is None:
                ranked_in[document] = only
            elif number not in known:
                ranked_in[document] = (*known, number)


def _first_label(turn: Turn, document: int, counts: list[int], changed: int) -> int | None:
    """The label of the document's first labelled result, after that of ``changed`` has changed."""
    labels = turn.result_labels
    if labels[changed] is not None:
        counts[FIRST] = min(counts[FIRST], changed)
    elif counts[FIRST] == changed:
        position = changed if any(counts[:FIRST]) else -1
        while position >= 0 and labels[position] is None:
            position = turn.documents.index(document, position + 1)
        counts[FIRST] = position
    return labels[counts[FIRST]] if counts[FIRST] >= 0 else None
