"""What conversations of a random sample add to the windows, for estimates from their labels.

The unit is a conversation with one agent (or release), because its turns are alike. What all its
turns add stands at the time of the last one, and moves when another turn comes. A unit is in one
sample only: conversations that people and the model labelled say how far the model is off, and
these must not also count among those that the model alone labelled.

What was drawn for the model and is not labelled by it has a cell of its own, at the time of the
last such turn.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stream_metrics.core.engine.cells import dimension_of, escape, source
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.label_sums import (
    IterationSums,
    SourceSums,
    label_sums,
    ndcg_metrics,
    samples,
)
from stream_metrics.core.engine.state import SAMPLE, SCHEMA_WITH_SOURCES, Cell, Conversation
from stream_metrics.core.metrics.label_sums import (
    BOTH,
    GAIN,
    MODEL,
    PEOPLE,
    SAMPLES,
    SRE,
    UNLABELLED,
    Labelled,
    conversation_sums,
)
from stream_metrics.core.metrics.labels import HUMAN
from stream_metrics.core.metrics.labels import MODEL as BY_MODEL
from stream_metrics.core.metrics.turn_totals import settled

SOURCES_OF: Final = {
    BOTH: frozenset({HUMAN, BY_MODEL}),
    PEOPLE: frozenset({HUMAN}),
    MODEL: frozenset({BY_MODEL}),
}
"""The sources that must have drawn and labelled a turn of a sample."""


class _Sampled(NamedTuple):
    """A turn of a random sample: when it was, by whom it was drawn, and what it was labelled."""

    time_us: int
    drawn: frozenset[str]
    iterations: list[IterationSums]


def unit_cells(conversation: Conversation, config: EngineConfig) -> dict[tuple[str, bool], Cell]:
    """The cells of a conversation's units; none for most conversations.

    They are by agent (or release), and by whether they are of what the model has not labelled.
    """
    units: dict[str, list[_Sampled]] = {}
    for turn in conversation.turns.values():
        if turn.winners[SAMPLE] and turn.counted:
            time_us, agent, release = source(turn.counted[-1])
            if turn.judged is None:
                turn.judged = label_sums(turn, config)
            found = _Sampled(time_us, samples(turn), turn.judged)
            units.setdefault(dimension_of(agent, release, config), []).append(found)
    figures = (SRE, GAIN, *map(str, ndcg_metrics(config)))
    cells = {}
    for name, turns in units.items():
        cell = _cell(name, turns, figures, config)
        if cell is not None:
            cells[name, False] = cell
        unlabelled = _unlabelled(name, turns, figures, config)
        if unlabelled is not None:
            cells[name, True] = unlabelled
    return cells


def _cell(
    agent: str, turns: list[_Sampled], figures: tuple[str, ...], config: EngineConfig
) -> Cell | None:
    """The cell of a unit: that of the first sample of which it has a settled iteration."""
    for sample in SAMPLES:
        sources = SOURCES_OF[sample]
        counted: list[IterationSums] = []
        times: list[int] = []
        for turn in turns:
            found = _counted(turn, sources, config)
            if found:
                counted += found
                times.append(turn.time_us)
        if counted:
            labelled = [_labelled(counted, sources, at) for at in range(len(figures))]
            return Cell(max(times), agent, _sums(sample, figures, labelled))
    return None


def _unlabelled(
    agent: str, turns: list[_Sampled], figures: tuple[str, ...], config: EngineConfig
) -> Cell | None:
    """The cell of the iterations that were drawn for the model and that it has not settled."""
    times: list[int] = []
    results = iterations = searches = 0
    for turn in turns:
        if BY_MODEL in turn.drawn:
            counted = _counted(turn, SOURCES_OF[MODEL], config)
            if len(counted) < len(turn.iterations):
                times.append(turn.time_us)
                iterations += len(turn.iterations) - len(counted)
                for sign, several in ((1, turn.iterations), (-1, counted)):
                    for sums in several:
                        results += sign * sums.iteration.results
                        searches += sign * len(sums.iteration.searches)
    if not times:
        return None
    bases = (results, iterations, *[searches] * (len(figures) - 2))
    return Cell(max(times), agent, _sums(UNLABELLED, figures, [Labelled(base) for base in bases]))


def _sums(sample: str, figures: tuple[str, ...], labelled: list[Labelled]) -> dict[str, int]:
    """The sums of a unit by series code, of what was labelled for each figure."""
    return {
        f"L|{escape(figure)}|{sample}|{name}": value
        for figure, found in zip(figures, labelled, strict=True)
        for name, value in conversation_sums(sample, found).items()
    }


def _counted(turn: _Sampled, sources: frozenset[str], config: EngineConfig) -> list[IterationSums]:
    """The iterations of a turn that count in a sample: those that all its sources have settled.

    A source must have labelled a document of the turn, if there is one. Otherwise iterations
    without documents, which are settled from the start, would stand for turns that wait for labels.
    """
    if not sources <= turn.drawn:
        return []
    documents = sum(sums.iteration.unique for sums in turn.iterations)
    found = turn.iterations
    for name in sources:
        if documents and not any(_by(name, sums).labelled for sums in turn.iterations):
            return []
        found = [
            sums
            for sums in found
            if settled(sums.iteration.unique, _by(name, sums).labelled, config.settled_percent)
        ]
    return found


def _by(source_name: str, sums: IterationSums) -> SourceSums:
    return sums.human if source_name == HUMAN else sums.model


def _labelled(iterations: list[IterationSums], sources: frozenset[str], at: int) -> Labelled:
    """The parts of a figure, ``at`` in SRE, gain, and the NDCG metrics."""
    if at == 0:
        return Labelled(
            sum(sums.iteration.results for sums in iterations),
            sum(sums.human.good for sums in iterations),
            sum(sums.model.good for sums in iterations),
        )
    if at == 1:
        return Labelled(
            len(iterations),
            sum(sums.human.gain for sums in iterations),
            sum(sums.model.gain for sums in iterations),
        )
    scored = [sums for sums in iterations if all(_by(name, sums).ndcg for name in sources)]
    by_people = HUMAN in sources  # both sources have scores of the same searches
    return Labelled(
        sum((sums.human if by_people else sums.model).scored for sums in scored),
        sum(sums.human.ndcg[at - 2] for sums in scored) if by_people else 0,
        sum(sums.model.ndcg[at - 2] for sums in scored) if BY_MODEL in sources else 0,
    )


def sampled(conversation: Conversation) -> bool:
    """Whether a turn of it is in a random sample: all others have no units."""
    if conversation.schema != SCHEMA_WITH_SOURCES:
        return False
    return any(turn.winners[SAMPLE] for turn in conversation.turns.values())
