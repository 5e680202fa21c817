"""The pass over texts: rows of searches and answers, after the engine has processed a piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal

from stream_metrics.core.engine.row import canonical_line
from stream_metrics.core.metrics.ranking.relevance import RecordedSearch
from stream_metrics.lab.evaluation.generation import BATCH_TURNS, score_turns
from stream_metrics.lab.evaluation.predicate import load_predicate
from stream_metrics.lab.evaluation.recorded_searches import Scoring, score_searches
from stream_metrics.lab.evaluation.semantic import models_of
from stream_metrics.lab.metrics.generation import AnsweredTurn
from stream_metrics.lab.replay.answers import answered_turns
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.outcome import ReplayOptions
from stream_metrics.lab.replay.recorded import words_version
from stream_metrics.lab.replay.reread import RereadableRecords, recorded_of
from stream_metrics.lab.replay.search_figures import SearchFigures
from stream_metrics.lab.replay.searches import recorded_searches

BATCH_SEARCHES: Final = 2_000
"""Searches that are scored in one batch; a conversation is never divided."""

_NONE: Final = canonical_line([])

LineKind = Literal["queries", "relevant", "turns"]
"""Rows of searches, the lines of ``relevant.jsonl`` for them, and rows of turns with an answer."""


def scored_lines(
    engine: Replay,
    records: RereadableRecords,
    options: ReplayOptions,
    figures: SearchFigures,
) -> Iterator[tuple[LineKind, str]]:
    """The canonical lines of each kind, sorted, after ``engine`` was fed ``records``.

    ``figures`` takes the rows of searches.

    Records are reread and models loaded only if texts or dimensions were recorded. Without
    ``options.scoring``, searches have no rows; without ``options.answers``, answers. With a
    predicate, all searches are reread that nothing else judges.
    """
    scoring = options.scoring
    if scoring is not None:
        version = words_version(options.config.rules.tables)
        scoring = replace(scoring, relevance=replace(scoring.relevance, words_version=version))
    answered = engine.answered if options.answers else set[str]()
    whole = scoring is not None and scoring.predicate is not None
    if scoring is not None and scoring.predicate is not None:
        scoring = scoring.with_predicate(load_predicate(scoring.predicate))
    searches: list[RecordedSearch] = []
    turns: list[AnsweredTurn] = []
    for conversation in engine.conversations():
        name = conversation.conversation_id
        recorded = None
        if whole or name in answered or (scoring is not None and name in engine.described):
            recorded = recorded_of(records, engine, conversation, whole=whole)
        if scoring is not None:
            searches += recorded_searches(
                conversation,
                recorded,
                options.turn_scope,
                whole=whole,
                joined=options.config.rules.tables.joined_grades,
            )
        if recorded is not None and name in answered:
            turns += answered_turns(conversation, recorded, options.turn_scope)
        if len(searches) >= BATCH_SEARCHES:
            yield from _of_searches(searches, scoring, figures)
            searches = []
        if len(turns) >= BATCH_TURNS:
            yield from _of_turns(turns, options)
            turns = []
    yield from _of_searches(searches, scoring, figures)
    yield from _of_turns(turns, options)


def _of_searches(
    searches: Sequence[RecordedSearch], scoring: Scoring | None, figures: SearchFigures
) -> Iterator[tuple[LineKind, str]]:
    if searches and scoring is not None:
        scored = score_searches(searches, scoring)
        rows = list(scored.rows())
        figures.add_scored(scored, rows)
        for row, without in zip(rows, scored.without_relevant(), strict=True):
            yield "queries", canonical_line(row)
            yield "relevant", canonical_line(without) if without else _NONE


def _of_turns(
    turns: Sequence[AnsweredTurn], options: ReplayOptions
) -> Iterator[tuple[LineKind, str]]:
    if turns:
        for row in score_turns(turns, models_of(tuple(options.models))):
            yield "turns", canonical_line(row)
