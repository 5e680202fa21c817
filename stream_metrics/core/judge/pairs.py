"""Collects the grades that people and models gave the same results."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from stream_metrics.core.engine.config import DEFAULT_AGENT
from stream_metrics.core.events.decode import BadRecord, Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import RelevanceLabels, SearchIteration
from stream_metrics.core.metrics.labels import by_model

Source = Literal["human", "model"]
Version = tuple[int, str, bytes]
_INLINE: Final[Version] = (-1, "", b"")
"""Gains that came with the results are older than every label event."""


class GradedTwice(NamedTuple):
    """A result that both have graded; ``time_us`` is the time of its search."""

    conversation_id: str
    turn: int
    result_id: str
    time_us: int
    agent: str
    release: str | None
    human: int
    model: int


class _Result(NamedTuple):
    version: Version
    time_us: int
    agent: str
    release: str | None


class PairCollector:
    """Reads events in any order; of a source's labels, the one with the highest version counts.

    ``model_labellers`` are case-insensitive patterns for names of models, for labels without a
    source. ``labellers`` has the models that signed labels.
    """

    def __init__(self, limits: Limits, model_labellers: tuple[str, ...] = ()) -> None:
        self._limits = limits
        self._patterns = model_labellers
        self._results: dict[tuple[str, int, str], _Result] = {}
        self._labels: dict[tuple[str, int, str, Source], tuple[Version, int | None]] = {}
        self.labellers: set[str] = set()

    def add(self, record: Record) -> None:
        """Process a record; one that is no valid event is ignored."""
        event = decode(record.value, timestamp_ms=record.timestamp_ms, limits=self._limits)
        if isinstance(event, BadRecord):
            return
        sent = event.payload
        if isinstance(sent, SearchIteration):
            self._search(event, sent)
        elif isinstance(sent, RelevanceLabels):
            is_model = by_model(sent.source, sent.labeller, self._patterns)
            source: Source = "model" if is_model else "human"
            if is_model and sent.labeller:
                self.labellers.add(sent.labeller)
            for label in sent.labels or ():
                self._label(event, label.result_id, source, event.version, label.gain)

    def _search(self, event: Event, sent: SearchIteration) -> None:
        agent = sent.agent or DEFAULT_AGENT
        for search in sent.searches or ():
            for result in search.results or ():
                key = (event.conversation_id, event.turn, result.result_id)
                if key not in self._results or self._results[key].version < event.version:
                    self._results[key] = _Result(
                        event.version, event.occurred_us, agent, sent.release
                    )
                if result.gain is not None:
                    self._label(event, result.result_id, "human", _INLINE, result.gain)

    def _label(
        self, event: Event, result_id: str, source: Source, version: Version, gain: int | None
    ) -> None:
        key = (event.conversation_id, event.turn, result_id, source)
        if key not in self._labels or self._labels[key][0] < version:
            self._labels[key] = (version, gain)

    def pairs(self) -> list[GradedTwice]:
        """The results that both have graded and that a search has returned."""
        found = []
        for (conversation, turn, result_id, source), (_, model) in self._labels.items():
            result = self._results.get((conversation, turn, result_id))
            _, human = self._labels.get((conversation, turn, result_id, "human"), (None, None))
            if source == "model" and result and model is not None and human is not None:
                found.append(
                    GradedTwice(
                        conversation,
                        turn,
                        result_id,
                        result.time_us,
                        result.agent,
                        result.release,
                        human,
                        model,
                    )
                )
        return sorted(found)
