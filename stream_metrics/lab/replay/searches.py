"""The searches of a conversation as rankings, with all that was recorded to judge them by."""

from __future__ import annotations

from collections.abc import Iterator

from stream_metrics.core.engine.ranked import queries_of, units_by
from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.engine.state import Conversation, Search, Turn
from stream_metrics.core.events.wire import Result
from stream_metrics.core.metrics.ranking.relevance import (
    JoinedIds,
    Query,
    RecordedSearch,
    Retrieved,
)
from stream_metrics.lab.replay.recorded import (
    Recorded,
    recorded_dimensions,
    references_of,
    text_of,
)


def recorded_searches(
    conversation: Conversation,
    recorded: Recorded | None,
    turn_scope: str = "last",
    *,
    whole: bool = False,
    joined: bool = False,
) -> Iterator[RecordedSearch]:
    """The searches of the turns that have a row, in canonical order.

    Texts, and document ids as they were sent, are there only for turns with reference answers and
    neither ground truth nor labels, which nothing else judges. The dimensions are those of the
    turn, and the release and route of the search.

    Args:
        conversation: As the engine has it after all events, with its fingerprints.
        recorded: What was recorded of it. None: no end of a turn came with reference answers or
            dimensions.
        turn_scope: ``last`` for the highest turn, ``all`` for every turn.
        whole: They are there for all turns without ground truth, for a predicate.
        joined: Documents are judged by every id of their results (``Tables.joined_grades``).
    """
    for turn in shown_turns(conversation, turn_scope):
        end = None if recorded is None else recorded.end_of(turn)
        told = recorded_dimensions(end)
        references = references_of(end)
        language, question = told.get("language"), None if end is None else end.question
        judged_together = None
        if joined and whole and recorded is not None and turn.relevant is None:
            judged_together = _JudgedTogether(turn, recorded)
        queries = queries_of(turn, turn.order, joined=joined)
        for search, bare in zip(turn.order, queries, strict=True):
            dimensions = told | _facts(search)
            query = bare._replace(
                references=references,
                language=language,
                query_id=search.search_id,
                conversation_id=conversation.conversation_id,
                turn=turn.number,
                question=question,
                dimensions=dimensions,
            )
            unjudged = query.relevant is None and not query.labels and bool(references)
            if recorded is not None and (unjudged or (whole and query.relevant is None)):
                query = _with_texts(search, query, recorded)
            if judged_together is not None:
                query = query._replace(joined=judged_together.of(search))
            yield RecordedSearch(
                conversation.conversation_id,
                turn.number,
                search.search_id,
                search.agent,
                dimensions,
                query,
            )


def _facts(search: Search) -> dict[str, str]:
    facts = {}
    if search.release is not None:
        facts["release"] = search.release
    if search.route is not None:
        facts["route"] = search.route
    return facts


def _with_texts(search: Search, query: Query, recorded: Recorded) -> Query:
    sent = recorded.search_of(search)
    return query._replace(
        text=sent.query,
        results=[
            _with_text(found, result, recorded)
            for found, result in zip(query.results, sent.results or [], strict=True)
        ],
    )


def _with_text(found: Retrieved, sent: Result, recorded: Recorded) -> Retrieved:
    text = text_of(sent, recorded.words_version)
    return found._replace(text=text, doc_id=sent.doc_id, recorded=sent)


class _JudgedTogether:
    """The results of a turn that a rule judges together.

    Args:
        turn: A turn without ground truth.
        recorded: What was recorded of its conversation.
    """

    def __init__(self, turn: Turn, recorded: Recorded) -> None:
        self._recorded = recorded
        self._firsts = turn.first_results
        self._units = units_by(turn, {})
        by_id: dict[int, dict[str, tuple[int, Result]]] = {}
        without: set[int] = set()
        for search in turn.order:
            sent = recorded.search_of(search).results or []
            for document, result in zip(search.documents, sent, strict=True):
                unit = self._units.of(document)
                if result.doc_id is None:
                    without.add(unit)
                else:
                    by_id.setdefault(unit, {}).setdefault(result.doc_id, (document, result))
        self._named = {
            unit: list(found.values())
            for unit, found in by_id.items()
            if len(found) > 1 or unit in without
        }

    def of(self, search: Search) -> JoinedIds:
        """The results that are judged together with those of a search."""
        named = {
            unit: [
                _with_text(
                    Retrieved(document, before=self._firsts[document] < search.start),
                    sent,
                    self._recorded,
                )
                for document, sent in found
            ]
            for unit, found in self._named.items()
        }
        return JoinedIds([self._units.of(document) for document in search.documents], named)
