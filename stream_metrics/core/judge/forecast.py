"""What a judge would ask and spend, from turns that were recorded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from stream_metrics.core.judge.budget import NOTHING, Cost, day_of
from stream_metrics.core.judge.cache import GradeCache
from stream_metrics.core.judge.options import AskOptions
from stream_metrics.core.judge.prompt import MESSAGE_TOKENS, prompt_of
from stream_metrics.core.judge.turns import Work

BYTES_PER_TOKEN: Final = 4
"""About what a token of English has; of other scripts, less."""
LIKELY_ANSWER: Final = 2  # tokens: a digit, and the end


@dataclass(slots=True)
class DayForecast:
    """A day of the sample. ``likely`` is what calls would use, ``most`` what is reserved for them.

    ``unjudged`` counts the turns that could not be judged, by reason.
    """

    conversations: set[str] = field(default_factory=set)
    turns: int = 0
    documents: int = 0
    calls: int = 0
    likely: Cost = NOTHING
    most: Cost = NOTHING
    unjudged: Counter[str] = field(default_factory=Counter)


class Forecast:
    """Adds up turns by the day (UTC) of their first search; ``grades`` is empty at first."""

    def __init__(self, options: AskOptions, grades: GradeCache) -> None:
        self._options = options
        self._grades = grades
        self._days: dict[int, DayForecast] = {}

    def add(self, work: Work) -> None:
        """Add a turn of the sample."""
        day = self._days.setdefault(day_of(work.time_us // 1000), DayForecast())
        day.conversations.add(work.conversation_id)
        if work.problem is not None:
            day.unjudged[work.problem] += 1
            return
        day.turns += 1
        day.documents += len(work.asks)
        options = self._options
        for ask in work.asks:
            prompt = prompt_of(ask.texts, options.text_characters)
            if self._grades.get(prompt) is not None:
                continue
            self._grades.put(prompt, 0)
            sent = prompt.most_tokens - 2 * MESSAGE_TOKENS
            likely = options.prices.cost(-(-sent // BYTES_PER_TOKEN), LIKELY_ANSWER)
            day.calls += 1
            day.likely = day.likely.plus(likely)
            day.most = day.most.plus(options.prices.cost(prompt.most_tokens, options.max_tokens))

    def days(self) -> list[tuple[int, DayForecast]]:
        """The days in order, each by its number since 1970-01-01."""
        return sorted(self._days.items())
