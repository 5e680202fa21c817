"""What was recorded of a turn and the engine does not keep: texts, reference answers, dimensions.

The engine keeps digests. It has decided which events stand; what they say is read again, when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_metrics.core.engine.state import END, WHOLE_TURN, Search, Turn, WinningEvent
from stream_metrics.core.events.wire import Payload, Result, SearchIteration, TurnCompleted
from stream_metrics.core.events.wire import Search as SentSearch
from stream_metrics.core.metrics.decisions import FACTS


class Recorded:
    """What stands of one conversation.

    Args:
        read: Reads the event of a search, or of the end of a turn, that won. It is called once for
            each event.
    """

    def __init__(self, read: Callable[[Search | WinningEvent], Payload]) -> None:
        self._read = read
        self._known: dict[bytes, Payload] = {}

    def end_of(self, turn: Turn) -> TurnCompleted | None:
        """The event that ended a turn; None if it has none."""
        won = turn.winners[END].get(WHOLE_TURN)
        if won is None:
            return None
        end = self._payload(won)
        assert isinstance(end, TurnCompleted)
        return end

    def search_of(self, search: Search) -> SentSearch:
        """A search that won, as it was sent."""
        sent = self._payload(search)
        assert isinstance(sent, SearchIteration)
        assert sent.searches is not None
        return sent.searches[search.index]

    def results_of(self, search: Search) -> list[Result]:
        """The results of a search that won, by rank."""
        return self.search_of(search).results or []

    def _payload(self, won: Search | WinningEvent) -> Payload:
        found = self._known.get(won.digest)
        if found is None:
            found = self._known[won.digest] = self._read(won)
        return found


def recorded_dimensions(end: TurnCompleted | None) -> dict[str, str]:
    """The dimensions that came with the end of a turn, but for those of ``FACTS``."""
    recorded = (end.dimensions if end is not None else None) or {}
    return {
        name: value for name, value in recorded.items() if value is not None and name not in FACTS
    }


def references_of(end: TurnCompleted | None) -> list[str]:
    """The reference answers that came with the end of a turn."""
    recorded = (end.reference_answers if end is not None else None) or ()
    return [reference for reference in recorded if reference is not None]


def text_of(result: Result) -> str:
    """Title, and content or else snippet; empty if there is none of them.

    >>> text_of(Result("r", title="Nile", snippet="A river", content=" "))
    'Nile\\nA river'
    """
    title, text = result.title, result.content
    if not text or text.isspace():
        text = result.snippet
    if not text or text.isspace():
        text = ""
    if not title or title.isspace():
        return text
    return f"{title}\n{text}" if text else title
