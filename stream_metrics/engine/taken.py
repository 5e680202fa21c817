"""What the engine takes of an event: of a result its digests, and no text.

Texts are digested as soon as an event is decoded. Nothing behind this line holds one, and a batch
needs the memory of one event's texts, not of all.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stream_metrics.dedup.deduplicator import Deduplicator, Fingerprints
from stream_metrics.dedup.tables import NAMED_TYPES
from stream_metrics.engine.config import DEFAULT_AGENT, OTHER
from stream_metrics.engine.state import Version
from stream_metrics.events.decode import Event
from stream_metrics.events.wire import (
    Forget,
    RelevanceLabels,
    Search,
    SearchIteration,
    TurnCompleted,
)

TYPE_LABELS = tuple(kind.name for kind in NAMED_TYPES)
_TYPE_LABELS = {name: name for name in TYPE_LABELS}


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


class Taken(msgspec.Struct, gc=False, frozen=True):
    """A valid event as ``Step`` applies it. ``key_id`` names the key of its digests."""

    occurred_us: int
    event_id: str
    digest: bytes
    conversation_id: str
    turn: int
    key_id: str
    payload: TakenIteration | RelevanceLabels | TurnCompleted | Forget

    @property
    def version(self) -> Version:
        """What the events of one item are ordered by."""
        return (self.occurred_us, self.event_id, self.digest)


def take(event: Event, dedup: Deduplicator, key_id: str) -> Taken:
    """Digest the texts of ``event`` with ``dedup``, whose key is called ``key_id``."""
    sent = event.payload
    return Taken(
        event.occurred_us,
        event.event_id,
        event.digest,
        event.conversation_id,
        event.turn,
        key_id,
        _iteration(sent, dedup) if type(sent) is SearchIteration else sent,  # type: ignore[arg-type]
    )


def type_label(canonical: str) -> str:
    """The entity type as metrics name it: one of the named types, or ``other``."""
    return _TYPE_LABELS.get(canonical, OTHER)


def _iteration(sent: SearchIteration, dedup: Deduplicator) -> TakenIteration:
    searches: dict[str, TakenSearch] = {}
    for index, search in enumerate(sent.searches or ()):
        if search.search_id not in searches:
            searches[search.search_id] = _search(search, index, dedup)
    return TakenIteration(
        sent.iteration,
        sent.agent or DEFAULT_AGENT,
        sent.release,
        None if sent.gate is None else sent.gate.decision,
        list(searches.values()),
    )


def _search(sent: Search, index: int, dedup: Deduplicator) -> TakenSearch:
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
        [type_label(name) for name in fingerprints.types],
    )
