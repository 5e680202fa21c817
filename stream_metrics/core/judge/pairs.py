"""Collects the grades that people and models gave the same results."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stream_metrics.core.engine.config import DEFAULT_AGENT
from stream_metrics.core.events.decode import BadRecord, Event, decode
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import Forget, RelevanceLabels, SearchIteration
from stream_metrics.core.metrics.labels import by_model

Source = Literal["human", "model"]
Version = tuple[int, str, bytes]
_INLINE, _LABEL = 0, 1
"""Gains that came with the results are older than every label event, whatever its version."""


class GradedTwice(NamedTuple):
    """A result that both have graded; ``time_us`` is the time of its search.

    ``drawn``: its turn is in the random sample of people.
    """

    conversation_id: str
    turn: int
    result_id: str
    time_us: int
    agent: str
    release: str | None
    human: int
    model: int
    drawn: bool


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
        self._labels: dict[
            tuple[str, int, str, Source], tuple[tuple[int, Version], int | None]
        ] = {}
        self._drawn: dict[tuple[str, int], Version] = {}  # by the latest event that says so
        self._forgotten: dict[str, tuple[int, str]] = {}
        self.labellers: set[str] = set()

    def add(self, record: Record) -> None:
        """Process a record; one that is no valid event is ignored."""
        event = decode(record.value, timestamp_ms=record.timestamp_ms, limits=self._limits)
        if isinstance(event, BadRecord):
            return
        sent = event.payload
        if isinstance(sent, SearchIteration):
            self._search(event, sent)
        elif isinstance(sent, Forget):
            name, until = event.conversation_id, event.version[:2]
            self._forgotten[name] = max(until, self._forgotten.get(name, until))
        elif isinstance(sent, RelevanceLabels):
            is_model = by_model(sent.source, sent.labeller, self._patterns)
            source: Source = "model" if is_model else "human"
            if is_model and sent.labeller:
                self.labellers.add(sent.labeller)
            elif not is_model and sent.sample == "random":
                turn = (event.conversation_id, event.turn)
                self._drawn[turn] = max(event.version, self._drawn.get(turn, event.version))
            for label in sent.labels or ():
                self._label(event, label.result_id, source, _LABEL, label.gain)

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
        self, event: Event, result_id: str, source: Source, rank: int, gain: int | None
    ) -> None:
        key, version = (event.conversation_id, event.turn, result_id, source), (rank, event.version)
        if key not in self._labels or self._labels[key][0] < version:
            self._labels[key] = (version, gain)

    def pairs(self) -> list[GradedTwice]:
        """The results that both have graded and that a search has returned; none that is erased."""
        found = []
        for conversation, turn, result_id, source in self._labels:
            if source == "human":
                continue
            result = self._results.get((conversation, turn, result_id))
            if result is not None and self._is_erased(conversation, result.version):
                result = None
            human = self._gain(conversation, turn, result_id, "human")
            model = self._gain(conversation, turn, result_id, "model")
            if result is not None and model is not None and human is not None:
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
                        self._is_drawn(conversation, turn),
                    )
                )
        return sorted(found)

    def _is_drawn(self, conversation: str, turn: int) -> bool:
        version = self._drawn.get((conversation, turn))
        return version is not None and not self._is_erased(conversation, version)

    def _gain(self, conversation: str, turn: int, result_id: str, source: Source) -> int | None:
        """The gain of a source, unless it gave none or it was erased."""
        found = self._labels.get((conversation, turn, result_id, source))
        if found is None or self._is_erased(conversation, found[0][1]):
            return None
        return found[1]

    def _is_erased(self, conversation: str, version: Version) -> bool:
        until = self._forgotten.get(conversation)
        return until is not None and version[:2] <= until
