"""What the engine takes of an event: of a result its digests, and no text.

The texts of results are digested as soon as an event is decoded, so that a batch holds them decoded
one event at a time. (Its records are held to its end; so is ``turn_completed`` as it was sent.) The
kernel goes from the record's bytes to the digests at once, if the event is a search iteration or
labels and surely valid; ``decode`` and ``take`` do the same for all events, and alone know how to
refuse one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from stream_metrics.compiled import kernel
from stream_metrics.dedup.deduplicator import Deduplicator, Fingerprints
from stream_metrics.dedup.tables import Tables
from stream_metrics.engine.config import DEFAULT_AGENT, OTHER
from stream_metrics.engine.state import Version
from stream_metrics.events.decode import (
    EARLIEST_US,
    SCHEMA_VERSION,
    BadRecord,
    Event,
    decode,
    latest_us,
)
from stream_metrics.events.limits import Limits
from stream_metrics.events.wire import (
    Forget,
    RelevanceLabels,
    Search,
    SearchIteration,
    TurnCompleted,
)


class TakenSearch(NamedTuple):
    """A search, ``position`` among those of its event; its results as parallel lists, by rank."""

    search_id: str
    ordinal: int
    position: int
    route: str | None
    result_ids: list[str]
    gains: list[int | None] | None
    baseline: list[int | None] | None
    fingerprints: Fingerprints
    types: list[str]


class TakenIteration(NamedTuple):
    """A search iteration; of searches with one id the first."""

    iteration: int
    agent: str
    release: str | None
    gate: str | None
    searches: list[TakenSearch]


class TakenLabels(NamedTuple):
    """Labels by what they name: results, searches and iterations; of several the first."""

    results: dict[str, int | None]
    routing: dict[str, str | None]
    gate: dict[int, bool | None]


class Taken(msgspec.Struct, gc=False, frozen=True):
    """A valid event as ``Step`` applies it.

    ``key_id`` names the key of its digests; ``unknown`` is that of ``Event``.
    """

    occurred_us: int
    event_id: str
    digest: bytes
    conversation_id: str
    turn: int
    key_id: str
    payload: TakenIteration | TakenLabels | TurnCompleted | Forget
    unknown: tuple[str, ...] = ()

    @property
    def version(self) -> Version:
        """What the events of one item are ordered by."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def says_nothing(self) -> bool:
        """Whether it has neither searches nor a gate decision, or no label at all."""
        payload = self.payload
        if type(payload) is TakenIteration:
            return not payload.searches and payload.gate is None
        return type(payload) is TakenLabels and not any(payload)


def take(event: Event, dedup: Deduplicator, key_id: str, tables: Tables) -> Taken:
    """Digest the texts of ``event`` with ``dedup``, whose key is called ``key_id``.

    ``tables`` are those of its rules.
    """
    sent = event.payload
    payload: TakenIteration | TakenLabels | TurnCompleted | Forget
    if isinstance(sent, SearchIteration):
        payload = _iteration(sent, dedup, tables)
    elif isinstance(sent, RelevanceLabels):
        payload = _labels(sent)
    else:
        payload = sent
    return Taken(
        event.occurred_us,
        event.event_id,
        event.digest,
        event.conversation_id,
        event.turn,
        key_id,
        payload,
        event.unknown,
    )


class Intake:
    """Takes records with ``dedup``, whose key is called ``key_id`` and whose rules have ``tables``.

    ``require_key``: without a key of their own, records are not accepted.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        key_id: str,
        tables: Tables,
        limits: Limits,
        *,
        require_key: bool = False,
    ) -> None:
        self._dedup, self._key_id, self._tables = dedup, key_id, tables
        self._limits, self._require_key = limits, require_key
        self._certain: Callable[..., tuple[Any, ...] | None] | None = None
        self._certain_labels: Callable[..., tuple[Any, ...] | None] | None = None
        self._bounds: object = None
        if kernel is not None and isinstance(dedup, kernel.Deduplicator):
            self._certain = dedup.take
            self._certain_labels = kernel.taken_labels
            self._bounds = kernel.Bounds(limits, SCHEMA_VERSION, dict(tables.labels), OTHER)

    def take(
        self, value: bytes | None, *, key: bytes | None = None, timestamp_ms: int | None = None
    ) -> Taken | BadRecord:
        """What ``take`` makes of the record's event, or why there is none."""
        if value is not None:
            taken = self.take_fast(value, key, timestamp_ms)
            if taken is not None:
                return taken
        event = decode(
            value,
            key=key,
            timestamp_ms=timestamp_ms,
            limits=self._limits,
            require_key=self._require_key,
        )
        if isinstance(event, BadRecord):
            return event
        return take(event, self._dedup, self._key_id, self._tables)

    def take_fast(self, value: bytes, key: bytes | None, timestamp_ms: int | None) -> Taken | None:
        """What ``take`` makes of searches or labels, or None if that is not certain."""
        if self._certain is None or (key is None and self._require_key):
            return None
        found = self._certain(value, key, self._bounds)
        if found is None:
            return self._take_labels(value, key, timestamp_ms)
        (
            occurred_us, event_id, digest, conversation_id, turn,
            iteration, agent, release, gate, searches, unknown,
        ) = found  # fmt: skip
        if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
            return None
        return Taken(
            occurred_us,
            event_id,
            digest,
            conversation_id,
            turn,
            self._key_id,
            TakenIteration(
                iteration,
                agent or DEFAULT_AGENT,
                release,
                gate,
                [TakenSearch._make(search) for search in searches],
            ),
            unknown,
        )

    def _take_labels(
        self, value: bytes, key: bytes | None, timestamp_ms: int | None
    ) -> Taken | None:
        assert self._certain_labels is not None  # there with self._certain
        found = self._certain_labels(value, key, self._bounds)
        if found is None:
            return None
        occurred_us, event_id, digest, conversation_id, turn, results, routing, gate, unknown = (
            found
        )
        if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
            return None
        labels = TakenLabels(results, routing, gate)
        return Taken(
            occurred_us, event_id, digest, conversation_id, turn, self._key_id, labels, unknown
        )


def _iteration(sent: SearchIteration, dedup: Deduplicator, tables: Tables) -> TakenIteration:
    searches: dict[str, TakenSearch] = {}
    for index, search in enumerate(sent.searches or ()):
        if search.search_id not in searches:
            searches[search.search_id] = _search(search, index, dedup, tables)
    return TakenIteration(
        sent.iteration,
        sent.agent or DEFAULT_AGENT,
        sent.release,
        None if sent.gate is None else sent.gate.decision,
        list(searches.values()),
    )


def _labels(sent: RelevanceLabels) -> TakenLabels:
    taken = TakenLabels({}, {}, {})
    for label in sent.labels or ():
        taken.results.setdefault(label.result_id, label.gain)
    for routing in sent.routing or ():
        taken.routing.setdefault(routing.search_id, routing.optimal)
    for gate in sent.gate or ():
        taken.gate.setdefault(gate.iteration, gate.search_needed)
    return taken


def _search(sent: Search, index: int, dedup: Deduplicator, tables: Tables) -> TakenSearch:
    results = sent.results or []
    gains = [result.gain for result in results]
    baseline = [result.baseline_rank for result in results]
    fingerprints = dedup.fingerprints(results)
    return TakenSearch(
        sent.search_id,
        sent.ordinal or 0,
        index,
        None if sent.routing is None else sent.routing.selected,
        [result.result_id for result in results],
        gains if gains.count(None) < len(gains) else None,
        baseline if baseline.count(None) < len(baseline) else None,
        fingerprints,
        [tables.labels.get(name, OTHER) for name in fingerprints.types],
    )
