"""What turns beyond a limit leave out of the figures: counted beside the state, and as a sentence.

Stored state counts the searches and results that were refused, each time that they came. Who
applies all events, as a replay does, knows every item that is missing (``Observations.refused``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add
from typing import Any, NamedTuple

from stream_metrics.core.engine.changes import Refused
from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.engine.state import END, GATE, SAMPLE, SEARCH, Conversation


class BeyondLimit(NamedTuple):
    """The number of turns beyond a limit, and of what is missing in their figures.

    All but ``turns`` are 0 if that is not known. ``results`` are those of the ``searches``,
    ``decisions`` those of gates that were sent, ``labels`` those of results, routes and decisions.
    """

    turns: int = 0
    searches: int = 0
    results: int = 0
    decisions: int = 0
    labels: int = 0

    def plus(self, other: BeyondLimit) -> BeyondLimit:
        """The sum of both."""
        return BeyondLimit(*map(add, self, other))

    @classmethod
    def of_turns(cls, left_out: Iterable[tuple[int, int] | None]) -> BeyondLimit:
        """What turns beyond a limit leave out by themselves: searches and results of each.

        None of a turn that does not count it: then it is not known of all.

        >>> BeyondLimit.of_turns([(22, 110), (1, 5)]).text()
        '2 turns beyond a limit: 115 results of 23 searches are not in these figures'
        >>> BeyondLimit.of_turns([(22, 110), None])
        BeyondLimit(turns=2, searches=0, results=0, decisions=0, labels=0)
        """
        found = tuple(left_out)
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return cls(len(found))
        return cls(len(found), sum(n for n, _ in known), sum(n for _, n in known))

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> BeyondLimit:
        """The same by the rows of turns; those within all limits do not count."""
        cut = (row.get("beyond_limit") for row in rows if row.get("over_limit") is True)
        return cls.of_turns(one and (one["searches"], one["results"]) for one in cut)

    def at_least(self, turns: int) -> BeyondLimit:
        """The same of at least so many turns, as whose number alone is known elsewhere."""
        return self._replace(turns=max(self.turns, turns))

    def text(self, whose: str = "") -> str:
        """A sentence for where figures are shown; ``whose`` says more about the turns.

        >>> BeyondLimit(1, searches=22, results=110).text()
        '1 turn beyond a limit: 110 results of 22 searches are not in these figures'
        >>> BeyondLimit(2, labels=1).text()
        '2 turns beyond a limit: 1 label is not in these figures'
        >>> BeyondLimit(3).text(" (support 2, sales 1)")
        '3 turns beyond a limit (support 2, sales 1): what goes beyond it is not in these figures'
        """
        missing = []
        if self.searches:
            searches = counted(self.searches, "search", "searches")
            missing.append(f"{counted(self.results, 'result')} of {searches}")
        if self.decisions:
            missing.append(counted(self.decisions, "gate decision"))
        if self.labels:
            missing.append(counted(self.labels, "label"))
        what = " and ".join(filter(None, (", ".join(missing[:-1]), *missing[-1:])))
        are = "are" if len(missing) > 1 or (missing and not what.startswith("1 ")) else "is"
        turns = counted(self.turns, "turn")
        what = what or "what goes beyond it"
        return f"{turns} beyond a limit{whose}: {what} {are} not in these figures"


def counted(number: int, one: str, many: str = "") -> str:
    """A number with what it counts.

    >>> counted(1, "result"), counted(2, "search", "searches")
    ('1 result', '2 searches')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def beyond_limit(
    conversation: Conversation, turn_scope: str, refused: Iterable[Refused]
) -> BeyondLimit:
    """What is missing in the rows of a conversation.

    Args:
        conversation: The conversation.
        turn_scope: Which turns have a row.
        refused: The newest version of each item that was ever refused. It is missing unless its
            turn has that version or a newer one, or the conversation has forgotten it. A search or
            gate decision of a turn that was refused as a whole is missing in the last row.
    """
    shown = shown_turns(conversation, turn_scope)
    turns = {turn.number for turn in shown if turn.over_limit}
    numbers, last = {turn.number for turn in shown}, conversation.last_turn
    searches = results = decisions = labels = 0
    for item in refused:
        if not _is_missing(conversation, item):
            continue
        if item.turn in numbers:
            turns.add(item.turn)
        elif item.register in (SEARCH, GATE) and (turn_scope == "all" or item.turn > last):
            turns.add(last or item.turn)
        else:
            continue
        if item.register == SEARCH:
            searches += 1
            results += item.results
        elif item.register == GATE:
            decisions += 1
        elif item.register not in (END, SAMPLE):
            labels += 1
    return BeyondLimit(len(turns), searches, results, decisions, labels)


def _is_missing(conversation: Conversation, item: Refused) -> bool:
    if conversation.forgotten is not None and item.version[:2] <= conversation.forgotten[:2]:
        return False
    turn = conversation.turns.get(item.turn)
    winner = None if turn is None else turn.winners[item.register].get(item.key)
    return winner is None or winner.version < item.version
