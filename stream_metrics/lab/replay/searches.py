"""The searches of a conversation as rankings, with all that was recorded to judge them by."""

from __future__ import annotations

from collections.abc import Iterator

from stream_metrics.core.engine.ranked import queries_of
from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.engine.state import Conversation, Search
from stream_metrics.core.metrics.ranking.relevance import Query, RecordedSearch
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
    """
    for turn in shown_turns(conversation, turn_scope):
        end = None if recorded is None else recorded.end_of(turn)
        told = recorded_dimensions(end)
        references = references_of(end)
        language, question = told.get("language"), None if end is None else end.question
        for search, bare in zip(turn.order, queries_of(turn, turn.order), strict=True):
            dimensions = told | _facts(search)
            query = Query(
                bare.results,
                bare.relevant,
                bare.labels,
                references,
                language,
                search.search_id,
                conversation.conversation_id,
                turn.number,
                None,
                question,
                dimensions,
            )
            unjudged = query.relevant is None and not query.labels and bool(references)
            if recorded is not None and (unjudged or (whole and query.relevant is None)):
                query = _with_texts(search, query, recorded)
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
            found._replace(text=text_of(result), doc_id=result.doc_id, recorded=result)
            for found, result in zip(query.results, sent.results or [], strict=True)
        ],
    )
