"""The pass over texts: rows of searches and answers, after the engine has processed a piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from stream_metrics.lab.replay.reread import RereadableRecords, conversations_with_events
from stream_metrics.lab.replay.searches import recorded_searches

BATCH_SEARCHES: Final = 2_000
"""Searches that are scored in one batch; a conversation is never divided."""

_NONE: Final = canonical_line([])

LineKind = Literal["queries", "relevant", "turns"]
"""Rows of searches, the lines of ``relevant.jsonl`` for them, and rows of turns with an answer."""


def scored_lines(
    engine: Replay, records: RereadableRecords, options: ReplayOptions
) -> Iterator[tuple[LineKind, str]]:
    """The canonical lines of each kind, sorted, after ``engine`` was fed ``records``.

    Records are reread and models loaded only if texts or dimensions were recorded. Without
    ``options.scoring``, searches have no rows. With a predicate, all records are reread.
    """
    scoring = options.scoring
    wanted: set[str] | None = engine.answered | (engine.described if scoring else set())
    if scoring is not None and scoring.predicate is not None:
        scoring = scoring.with_predicate(load_predicate(scoring.predicate))
        wanted = None
    searches: list[RecordedSearch] = []
    turns: list[AnsweredTurn] = []
    for conversation, read in conversations_with_events(records, engine, wanted):
        if scoring is not None:
            searches += recorded_searches(
                conversation, read, options.turn_scope, whole=wanted is None
            )
        if read is not None and conversation.conversation_id in engine.answered:
            turns += answered_turns(conversation, read, options.turn_scope)
        if len(searches) >= BATCH_SEARCHES:
            yield from _of_searches(searches, scoring)
            searches = []
        if len(turns) >= BATCH_TURNS:
            yield from _of_turns(turns, options)
            turns = []
    yield from _of_searches(searches, scoring)
    yield from _of_turns(turns, options)


def _of_searches(
    searches: Sequence[RecordedSearch], scoring: Scoring | None
) -> Iterator[tuple[LineKind, str]]:
    if searches and scoring is not None:
        for row, without in score_searches(searches, scoring):
            yield "queries", canonical_line(row)
            yield "relevant", canonical_line(without) if without else _NONE


def _of_turns(
    turns: Sequence[AnsweredTurn], options: ReplayOptions
) -> Iterator[tuple[LineKind, str]]:
    if turns:
        for row in score_turns(turns, models_of(tuple(options.models))):
            yield "turns", canonical_line(row)
