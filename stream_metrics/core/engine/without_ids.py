"""What a ground truth cannot judge, because results have no document id: counts and sentences."""

from __future__ import annotations

from operator import add
from typing import NamedTuple

from stream_metrics.core.engine.beyond_limit import counted
from stream_metrics.core.engine.ranked import units_of
from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.engine.state import Conversation


class WithoutIds(NamedTuple):
    """Counts over turns whose ground truth names documents.

    Attributes:
        turns, searches: The searches without figures, since no result has an id, and their turns.
        results: The results without an id in the other searches.
        compared, matched: The turns with an id, and those of them that found a named document.
    """

    turns: int = 0
    searches: int = 0
    results: int = 0
    compared: int = 0
    matched: int = 0

    def plus(self, other: WithoutIds) -> WithoutIds:
        """The sum of both."""
        return WithoutIds(*map(add, self, other))

    def texts(self) -> list[str]:
        """Sentences for where figures are shown; empty if all can be compared.

        >>> WithoutIds(turns=1, searches=2, results=1, compared=4, matched=1).texts()
        ['2 searches of 1 turn have no figures by `relevant`, because no result has a `doc_id`: \
send the ids that `relevant` names as `doc_id`', '1 result without a `doc_id` counts as not judged']
        >>> WithoutIds(compared=2).texts()
        ['no search of the 2 turns with `relevant` found a document that it names: `doc_id` has to \
be the same id, written the same way']
        """
        found = []
        if self.searches:
            have = "has" if self.searches == 1 else "have"
            searches = counted(self.searches, "search", "searches")
            found.append(
                f"{searches} of {counted(self.turns, 'turn')} {have} no figures by `relevant`, "
                "because no result has a `doc_id`: send the ids that `relevant` names as `doc_id`"
            )
        if self.results:
            count = "counts" if self.results == 1 else "count"
            results = counted(self.results, "result")
            found.append(f"{results} without a `doc_id` {count} as not judged")
        if self.compared and not self.matched:
            turns = f"{counted(self.compared, 'turn')} with `relevant`"
            found.append(
                f"no search of the {turns} found a document that it names: `doc_id` has to be the "
                "same id, written the same way"
            )
        return found


def without_ids(conversation: Conversation, turn_scope: str) -> WithoutIds:
    """The counts over the rows of a conversation, whose ids are loaded and joined."""
    total = WithoutIds()
    for turn in shown_turns(conversation, turn_scope):
        if not turn.relevant or not turn.result_searches:
            continue
        units = units_of(turn)
        searches = results = 0
        for search in turn.order:
            named = [units.is_named(units.of(document)) for document in search.documents]
            if not any(named) and (named or not units.any_named):
                searches += 1
            else:
                results += named.count(False)
        compared, matched = units.any_named, bool(units.graded)
        total = total.plus(WithoutIds(bool(searches), searches, results, compared, matched))
    return total
