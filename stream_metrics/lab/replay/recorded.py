"""What was recorded of a turn and the engine does not keep: texts, reference answers, dimensions.

The engine keeps digests. It has decided which events stand; what they say is read again, when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stream_metrics.core import compiled, unicode
from stream_metrics.core.dedup.tables import Tables
from stream_metrics.core.engine.state import END, WHOLE_TURN, Search, Turn, WinningEvent
from stream_metrics.core.events.wire import Payload, Result, SearchIteration, TurnCompleted
from stream_metrics.core.events.wire import Search as SentSearch
from stream_metrics.core.metrics.decisions import FACTS
from stream_metrics.core.metrics.text import articles_of, tokens_among
from stream_metrics.core.metrics.words import FIRST_WORDS, WORDS_VERSION


def words_version(tables: Tables) -> int:
    """The version of the rules for words in replays under these tables."""
    return WORDS_VERSION if tables.canonical_texts else FIRST_WORDS


class Recorded:
    """What stands of one conversation.

    Args:
        value_of: The value of the record of a search, or of the end of a turn, that won.
        decode: Decodes such a value.
        words_version: The version of the rules for words.
    """

    def __init__(
        self,
        value_of: Callable[[Search | WinningEvent], bytes],
        decode: Callable[[Search | WinningEvent, bytes], Payload],
        words_version: int = WORDS_VERSION,
    ) -> None:
        self._value_of, self._decode = value_of, decode
        self.words_version = words_version
        self._values: dict[bytes, bytes] = {}
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

    def texts_of(self, turn: Turn) -> RecordedTexts:
        """The texts of the turn's unique results: of each document that of its first occurrence."""
        searches = turn.result_searches
        return RecordedTexts(self, [(searches[at], at) for at in turn.first_results])

    def value_of(self, won: Search | WinningEvent) -> bytes:
        """The value of the record of an event that won."""
        value = self._values.get(won.digest)
        if value is None:
            value = self._values[won.digest] = self._value_of(won)
        return value

    def _payload(self, won: Search | WinningEvent) -> Payload:
        payload = self._known.get(won.digest)
        if payload is None:
            value = self._values.get(won.digest) or self._value_of(won)
            payload = self._known[won.digest] = self._decode(won, value)
        return payload


class RecordedTexts:
    """Texts of results of a turn, which are read when tokens are looked up in them.

    Args:
        recorded: What was recorded of the turn's conversation.
        results: The searches that have the results, and the positions of these in the turn.
    """

    def __init__(self, recorded: Recorded, results: Sequence[tuple[Search, int]]) -> None:
        self._recorded, self._results = recorded, results

    def tokens_among(
        self, wanted: Iterable[str], language: str, version: int
    ) -> tuple[set[str], int]:
        """See ``text.tokens_among``."""
        articles = articles_of(language)
        sought = frozenset(wanted) - articles
        among = compiled.words_in_results(self._events(), sought, articles, version)
        return tokens_among(self.texts(), sought, language, version) if among is None else among

    def _events(self) -> list[tuple[bytes, list[tuple[int, int]]]]:
        """The events that have results; of each result its search's place, and its own."""
        events: dict[bytes, tuple[bytes, list[tuple[int, int]]]] = {}
        for search, position in self._results:
            event = events.get(search.digest)
            if event is None:
                event = events[search.digest] = self._recorded.value_of(search), []
            event[1].append((search.index, position - search.start))
        return list(events.values())

    def texts(self) -> list[str]:
        """The texts, without empty ones."""
        sent = (
            (self._recorded.search_of(search).results or [])[position - search.start]
            for search, position in self._results
        )
        version = self._recorded.words_version
        return [text for result in sent if (text := text_of(result, version))]


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


def text_of(result: Result, version: int = WORDS_VERSION) -> str:
    """Title, and content or else snippet; empty if there is none of them.

    ``version`` is that of the rules for words: which texts are blank.

    >>> text_of(Result("r", title="Nile", snippet="A river", content=" \\ufeff"))
    'Nile\\nA river'
    """
    is_blank = unicode.is_blank if version > FIRST_WORDS else str.isspace
    title, text = result.title, result.content
    if not text or is_blank(text):
        text = result.snippet
    if not text or is_blank(text):
        text = ""
    if not title or is_blank(title):
        return text
    return f"{title}\n{text}" if text else title
