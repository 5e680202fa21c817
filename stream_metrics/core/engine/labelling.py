"""What labels change: routes and gate decisions of a turn, its documents and their iterations.

Each source has labels of its own (``Labels``). What counts follows from both, by
``EngineConfig.labels``. Until the model's labels have to be known, a turn has those of people only.
"""

from __future__ import annotations

from typing import Final

from stream_metrics.core.engine.cells import iteration_cell
from stream_metrics.core.engine.changes import Observations
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import (
    GATE_LABEL,
    MODEL_GATE_LABEL,
    MODEL_RESULT_LABEL,
    MODEL_ROUTE_LABEL,
    RESULT_LABEL,
    ROUTE_LABEL,
    SEARCH,
    Cell,
    Iteration,
    Labels,
    Search,
    Turn,
    WinningEvent,
)
from stream_metrics.core.metrics.labels import HUMAN, MODEL, counted

# The index of the first labelled result in a document's label counts, after the counts by label.
FIRST: Final = 5


class Labelling:
    """Applies labels to the derived values of turns.

    ``before`` has the former cells of the iterations that have changed since it was cleared, None
    for new iterations.
    """

    def __init__(self, config: EngineConfig, observed: Observations) -> None:
        self.before: dict[int, Cell | None] = {}
        self._config = config
        self._observed = observed
        self._by_max = config.gain_of_document == "max"
        self._good_gain = config.good_gain
        self._counting = config.labels
        self._ranked = bool(config.retrieval)

    # -- events of labels -----------------------------------------------------------------------

    def _apply_labels(self, turn: Turn, labels: Labels, event: WinningEvent) -> None:
        """Apply an event of labels to those of its source."""
        results, routes, gates, _ = event.items
        if results:
            self._apply_result_labels(turn, labels, event)
        if routes:
            self._apply_route_labels(turn, routes)
        if gates:
            self._apply_gate_labels(turn, gates)

    def _apply_route_labels(self, turn: Turn, routes: dict[str, str | None]) -> None:
        for search_id in routes:
            holder = turn.winners[SEARCH].get(search_id)
            if holder is not None:
                search: Search = holder.items[0][search_id]
                self._touch(turn, turn.iterations[search.iteration])
                search.optimal = self._optimal(turn, search_id)
                if search.route is None:
                    self._observed.counts["routing_labels_unrouted"] += 1

    def _optimal(self, turn: Turn, search_id: str) -> str | None:
        """The label of a search's route that counts."""
        label = turn.winners[ROUTE_LABEL].get(search_id)
        human: str | None = None if label is None else label.items[1][search_id]
        if turn.winners[MODEL_ROUTE_LABEL] or self._counting == MODEL:
            label = turn.winners[MODEL_ROUTE_LABEL].get(search_id)
            model = None if label is None else label.items[1][search_id]
            return counted(human, model, self._counting)
        return human

    def _apply_gate_labels(self, turn: Turn, gates: dict[int, bool | None]) -> None:
        for number in gates:
            iteration = turn.iterations.get(number)
            if iteration is not None:
                self._touch(turn, iteration)
                iteration.needed = self._needed(turn, number)

    def _needed(self, turn: Turn, number: int) -> bool | None:
        """The label of an iteration's gate decision that counts."""
        label = turn.winners[GATE_LABEL].get(number)
        human: bool | None = None if label is None else label.items[2][number]
        if turn.winners[MODEL_GATE_LABEL] or self._counting == MODEL:
            label = turn.winners[MODEL_GATE_LABEL].get(number)
            model = None if label is None else label.items[2][number]
            return counted(human, model, self._counting)
        return human

    def _apply_result_labels(self, turn: Turn, labels: Labels, event: WinningEvent) -> None:
        handles, holders, held = turn.handles, turn.result_searches, labels.results
        waiting = since_us = times = 0
        for result_id, gain in event.items[0].items():
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
                before = labels_conflict(labels, document)
                self._relabel(turn, labels, position, gain)
                if not before and labels_conflict(labels, document):
                    self._observed.counts["label_conflicts"] += 1
        self._note_delay(event.occurred_us - since_us, times)
        if waiting:
            self._observed.counts["labels_waiting"] += waiting

    def _note_delay(self, delay_us: int, times: int) -> None:
        if times:
            delays = self._observed.label_delays_us
            delays[delay_us] = delays.get(delay_us, 0) + times

    # -- labels of new searches -----------------------------------------------------------------

    def _place_labels(self, turn: Turn, search: Search, iteration: Iteration) -> None:
        """Set the handles and labels of a search's results.

        Label events apply to the first result of their ``result_id`` in the turn. They replace its
        inline gain, which does not return when a label is withdrawn. Other results with this
        ``result_id`` keep their inline gain.
        """
        handles, labels, gains = turn.handles, turn.winners[RESULT_LABEL], search.gains
        first, begun, human = search.start, False, turn.human
        alone = turn.model is None
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
            if not alone or turn.first_results[document] != position:
                self._relabel(turn, human, position, label)
                continue
            if not begun:
                self._touch_judged(turn, iteration)
            begun = True
            # No other iteration has this document.
            human.results[position] = label
            human.gains[document] = label
            iteration.labelled += 1
            self._count_gain(iteration, label, 1)
        if begun:
            _drop_scores(turn)

    def _place_model_labels(self, turn: Turn, search: Search) -> None:
        """Set the model's labels of a search's results, whose handles are set."""
        model, labels = turn.model, turn.winners[MODEL_RESULT_LABEL]
        assert model is not None
        for position, result_id in enumerate(search.result_ids, search.start):
            event = labels.get(result_id)
            if event is not None and turn.handles[result_id] == position:
                self._relabel(turn, model, position, event.items[0][result_id])

    # -- labels ---------------------------------------------------------------------------------

    def _separate_labels(self, turn: Turn) -> None:
        """Keep labels by source from now on, if those of the model have to be known."""
        if turn.model is None and (turn.winners[MODEL_RESULT_LABEL] or self._counting == MODEL):
            turn.separate_labels()
            if self._counting == MODEL:
                turn.document_gains = [None] * len(turn.first_results)

    def _relabel(self, turn: Turn, labels: Labels, position: int, label: int | None) -> None:
        """Change the label of one result by a source, and what follows for its document."""
        old = labels.results[position]
        if label == old:
            return
        document = turn.documents[position]
        counts = labels.counts.get(document)
        if counts is None:
            if labels.gains[document] is None and turn.first_results[document] == position:
                labels.results[position] = label
                self._set_gain(turn, labels, document, label)
                return
            counts = self._begin_counts(turn, labels, document)
        labels.results[position] = label
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
            winner = _first_label(turn, labels, document, position)
        if winner != labels.gains[document]:
            self._set_gain(turn, labels, document, winner)

    def _begin_counts(self, turn: Turn, labels: Labels, document: int) -> list[int]:
        """Start the label counts of a document of which only the first result may have a label."""
        label = labels.gains[document]
        counts = labels.counts[document] = [0, 0, 0, 0, 0, -1]
        if label is not None:
            counts[label] = 1
            if not self._by_max:
                counts[FIRST] = turn.first_results[document]
        return counts

    def _set_gain(self, turn: Turn, labels: Labels, document: int, gain: int | None) -> None:
        """Set a document's gain by a source, and what counts then."""
        human, model = turn.human, turn.model
        if model is None:
            self._credit(turn, document, gain)  # also sets the gain of the source
            return
        by_model = self._by_model(human.gains[document], model.gains[document])
        labels.gains[document] = gain
        of_human, of_model = human.gains[document], model.gains[document]
        gain = counted(of_human, of_model, self._counting)
        if gain != turn.document_gains[document]:
            self._credit(turn, document, gain)
        more = self._by_model(of_human, of_model) - by_model
        if more:
            first = turn.result_searches[turn.first_results[document]]
            iteration = turn.iterations[first.iteration]
            self._touch(turn, iteration)
            iteration.by_model += more

    def _by_model(self, human: int | None, model: int | None) -> bool:
        """Whether the label that counts, of those of the two sources, is the model's."""
        if model is None or self._counting == HUMAN:
            return False
        return human is None or self._counting == MODEL

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


def labels_conflict(labels: Labels, document: int) -> bool:
    """Whether a source has given the results of a document different labels."""
    counts = labels.counts.get(document)
    return counts is not None and counts[:FIRST].count(0) < FIRST - 1


def _drop_scores(turn: Turn) -> None:
    """Drop the scores after a changed label, unless they are by ground truth."""
    if turn.scores and turn.relevant is None:
        turn.scores.clear()


def _first_label(turn: Turn, of_source: Labels, document: int, changed: int) -> int | None:
    """The label of the document's first labelled result, after that of ``changed`` has changed."""
    labels, counts = of_source.results, of_source.counts[document]
    if labels[changed] is not None:
        counts[FIRST] = min(counts[FIRST], changed)
    elif counts[FIRST] == changed:
        position = changed if any(counts[:FIRST]) else -1
        while position >= 0 and labels[position] is None:
            position = turn.documents.index(document, position + 1)
        counts[FIRST] = position
    return labels[counts[FIRST]] if counts[FIRST] >= 0 else None
