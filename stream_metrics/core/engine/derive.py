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
from stream_metrics.core.engine.cells import turn_cell
from stream_metrics.core.engine.changes import Changes, Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.labelling import Labelling
from stream_metrics.core.engine.plan import TurnPlan
from stream_metrics.core.engine.ranked import (
    doc_ids_of,
    note_documents,
    units_of,
    until_all_relevant,
)
from stream_metrics.core.engine.registers import (
    MODEL_LABELS,
    RELEVANCE_LABELS,
    SEARCH_ITERATION,
    TURN_COMPLETED,
)
from stream_metrics.core.engine.state import (
    END,
    GATE,
    MODEL_RESULT_LABEL,
    RESULT_LABEL,
    WHOLE_TURN,
    Cell,
    DamagedState,
    Iteration,
    Search,
    Turn,
    WinningEvent,
)

_SEARCH_ITERATION: Final = SEARCH_ITERATION.code
_RELEVANCE_LABELS: Final = RELEVANCE_LABELS.code
_MODEL_LABELS: Final = MODEL_LABELS.code
_TURN_COMPLETED: Final = TURN_COMPLETED.code


class Derivation(Labelling):
    """Derives the turns of one conversation from their registers.

    ``before_turn`` is the cell of the turn before the last ``apply``.
    """

    def __init__(
        self, config: EngineConfig, dedup: Deduplicator, observed: Observations, changes: Changes
    ) -> None:
        super().__init__(config, observed)
        self.before_turn: Cell | None = None
        self._dedup = dedup
        self._changes = changes
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
        judging: list[WinningEvent] = []
        ended, had_results = plan.anew, bool(turn.result_searches)
        for event in plan.events:
            if event.kind == _SEARCH_ITERATION:
                searching.append(event)
            elif event.kind == _RELEVANCE_LABELS:
                labelling.append(event)
            elif event.kind == _TURN_COMPLETED:
                ended = True
            elif event.kind == _MODEL_LABELS:
                judging.append(event)
        if ended:
            self._apply_end(turn)
        new = _in_order([search for event in searching for search in event.searches])
        anew = plan.anew or bool(new and turn.order and new[0].precedes(turn.order[-1]))
        if anew:
            self._derive_anew(turn)
        else:
            self._separate_labels(turn)
            for event in searching:
                self._apply_gate(turn, event)
            for search in new:
                self._append(turn, search)
        for event in labelling:
            self._apply_labels(turn, turn.human, event)
        for event in judging:
            assert turn.model is not None or not event.items[0]
            self._apply_labels(turn, turn.model or turn.human, event)
        if new:
            self._observe_new(turn, new)
            self._observe_waited(turn, new, RESULT_LABEL, labelling, plan.replaced)
            if turn.winners[MODEL_RESULT_LABEL]:
                self._observe_waited(turn, new, MODEL_RESULT_LABEL, judging, plan.replaced)
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

    def _observe_new(self, turn: Turn, new: list[Search]) -> None:
        """Count contradictions in new searches."""
        counts, handles = self._observed.counts, turn.handles
        conflicts = len(handles) < len(turn.result_searches)
        for search in new:
            if conflicts:
                held = map(handles.__getitem__, search.result_ids)
                twice = sum(map(ne, held, count(search.start)))
                if twice:
                    counts["result_id_conflicts"] += twice
            if turn.iterations[search.iteration].explicit == "skip":
                counts["gate_conflicts"] += 1

    def _observe_waited(
        self,
        turn: Turn,
        new: list[Search],
        register: int,
        labelling: list[WinningEvent],
        replaced: set[str],
    ) -> None:
        """Count the labels of a source that arrived before new searches."""
        winners = turn.winners[register]
        if len(winners) <= sum([len(event.items[0]) for event in labelling]):
            return
        now, found = {event.digest for event in labelling}, 0
        for search in new:
            if search.search_id in replaced:
                continue
            for at, result_id in enumerate(search.result_ids, search.start):
                event = winners.get(result_id)
                if event is not None and event.digest not in now and turn.handles[result_id] == at:
                    self._note_delay(event.occurred_us - search.occurred_us, 1)
                    found += 1
        if found:
            self._observed.counts["labels_found"] += found

    # -- anew -----------------------------------------------------------------------------------

    def _derive_anew(self, turn: Turn) -> None:
        """Derive everything again from the registers; fingerprints must be loaded."""
        self._observed.counts["derived_anew"] += 1
        self._touch_all(turn)
        decided = [(search, search.documents, search.evidence) for search in turn.searches()]
        turn.clear()
        self._separate_labels(turn)
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
        self._separate_labels(turn)
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
            iteration.needed = self._needed(turn, number)
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
        firsts, labels = turn.first_results, turn.human
        known = len(firsts)
        for at, document in enumerate(search.documents):
            turn.result_searches.append(search)
            labels.results.append(None)
            if document == len(firsts):
                firsts.append(position + at)
                labels.gains.append(None)
            else:
                same = turn.result_searches[firsts[document]].iteration == number
                key = (search.types[at], search.evidence[at], same)
                iteration.duplicates[key] = iteration.duplicates.get(key, 0) + 1
        iteration.unique += len(firsts) - known
        if turn.model is not None:
            turn.model.results.extend([None] * len(search.documents))
            turn.model.gains.extend([None] * (len(firsts) - known))
            turn.document_gains.extend([None] * (len(firsts) - known))
        if search.baseline is not None:
            _note_ranked(turn.ranked_in, search, number)
        if self._ranked and search.fingerprints is not None:
            search.doc_ids = search.fingerprints.documents
        search.optimal = self._optimal(turn, search.search_id)
        self._place_labels(turn, search, iteration)
        if turn.model is not None:
            self._place_model_labels(turn, search)
        if turn.first_by_doc is not None:
            note_documents(turn.first_by_doc, search)
        if turn.units is not None:
            turn.units.add(search.documents, doc_ids_of(search))


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
