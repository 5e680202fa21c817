"""What people and the model say of a turn, each alone, whichever of them counts in its figures.

Estimates compare the sources where both have labelled a turn. Everything is a whole number, so that
sums over turns are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.ranked import scores_by
from stream_metrics.core.engine.state import SAMPLE, Iteration, Labels, Turn
from stream_metrics.core.events.times import round_scaled
from stream_metrics.core.metrics.ranking.names import RankedMetric

TEN_THOUSAND: Final = 10_000


class SourceSums(NamedTuple):
    """What one source says of the documents that an iteration was the first to return.

    ``gain`` is that of the good ones. ``ndcg`` has for each of ``ndcg_metrics`` the sum over the
    iteration's searches, each in ten-thousandths. It is empty if the source has not labelled the
    turn and the turn has no ground truth, by which it would be otherwise. ``scored`` is the number
    of searches that have one: those whose results cannot be compared with a ground truth have none.
    """

    labelled: int
    good: int
    gain: int
    ndcg: tuple[int, ...]
    scored: int


class IterationSums(NamedTuple):
    """A counted iteration, and what people and the model say of it."""

    iteration: Iteration
    human: SourceSums
    model: SourceSums


def samples(turn: Turn) -> frozenset[str]:
    """The sources (``metrics.labels.SOURCES``) in whose random sample the turn is."""
    return frozenset(turn.winners[SAMPLE])


def ndcg_metrics(config: EngineConfig) -> tuple[RankedMetric, ...]:
    """The configured ranked metrics that are NDCG, in their order."""
    return tuple(metric for metric in config.retrieval if metric.name == "ndcg")


def label_sums(turn: Turn, config: EngineConfig) -> list[IterationSums]:
    """The counted iterations of a turn in order, with what each source says of them.

    Requires document ids, like ``ranked.scores_of``, if NDCG is configured.
    """
    human = _sums(turn, turn.human.gains, config)
    unlabelled = Labels(0, len(turn.first_results))
    model = _sums(turn, (turn.model or unlabelled).gains, config)
    return [IterationSums(*sums) for sums in zip(turn.counted, human, model, strict=True)]


def _sums(turn: Turn, gains: Sequence[int | None], config: EngineConfig) -> list[SourceSums]:
    """Those of one source, whose gains of the turn's documents are given."""
    counts = {iteration.number: [0, 0, 0] for iteration in turn.counted}
    for first, gain in zip(turn.first_results, gains, strict=True):
        if gain is not None:
            count = counts[turn.result_searches[first].iteration]
            count[0] += 1
            if gain >= config.good_gain:
                count[1] += 1
                count[2] += gain
    ndcg = _ndcg(turn, gains, config)
    found = []
    for at, iteration in enumerate(turn.counted):
        labelled, good, total = counts[iteration.number]
        scored = [of_search for of_search in ndcg[at] if of_search]
        sums = tuple(map(sum, zip(*scored, strict=True)))
        found.append(SourceSums(labelled, good, total, sums, len(scored)))
    return found


def _ndcg(turn: Turn, gains: Sequence[int | None], config: EngineConfig) -> list[list[list[int]]]:
    """NDCG of each search of each counted iteration, in ten-thousandths."""
    metrics = ndcg_metrics(config)
    scores = scores_by(turn, turn.order, gains, metrics, config) if metrics else []
    by_search = {search.search_id: its for search, its in zip(turn.order, scores, strict=False)}
    return [
        [
            [round_scaled(value or 0.0, TEN_THOUSAND) for value in by_search.get(one.search_id, ())]
            for one in iteration.searches
        ]
        for iteration in turn.counted
    ]
