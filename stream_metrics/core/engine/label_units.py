"""What conversations of a random sample add to the windows, for estimates from their labels.

The unit is a conversation with one agent (or release), because its turns are alike. What all its
turns add stands at the time of the last one, and moves when another turn comes. A unit is in one
sample only: conversations that people and the model labelled say how far the model is off, and
these must not also count among those that the model alone labelled.
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


def unit_cells(conversation: Conversation, config: EngineConfig) -> dict[str, Cell]:
    """The cells of a conversation's units, by agent (or release); none for most conversations."""
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
            cells[name] = cell
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
            sums = {
                f"L|{escape(figure)}|{sample}|{name}": value
                for at, figure in enumerate(figures)
                for name, value in conversation_sums(
                    sample, _labelled(counted, sources, at)
                ).items()
            }
            return Cell(max(times), agent, sums)
    return None


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
