"""Events as the engine reads them: digests in place of the texts of results.

Texts are digested as soon as their event is decoded, so that a batch holds the decoded texts of one
event at a time. (It keeps its records, and ``turn_completed`` events with their texts.) The kernel
decodes and digests search iterations and labels in one call if they are certainly valid. ``decode``
and ``digest_event`` handle all other events, and are the only code that rejects one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stream_metrics.core import compiled
from stream_metrics.core.dedup.deduplicator import Deduplicator
from stream_metrics.core.dedup.tables import Tables
from stream_metrics.core.engine.config import DEFAULT_AGENT, OTHER
from stream_metrics.core.engine.registers import (
    MODEL_LABELS,
    OF_PAYLOAD,
    RELEVANCE_LABELS,
    SEARCH_ITERATION,
    DigestedSearch,
    EventType,
    Items,
    shorten_routes,
)
from stream_metrics.core.engine.state import Version
from stream_metrics.core.events.decode import (
    EARLIEST_US,
    SCHEMA_VERSION,
    BadRecord,
    Event,
    decode,
    latest_us,
)
from stream_metrics.core.events.foreign import with_form
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.wire import RelevanceLabels, SearchIteration, TurnCompleted
from stream_metrics.core.metrics.labels import HUMAN, MODEL, by_model


class DigestedEvent(msgspec.Struct, gc=False, frozen=True):
    """A valid event as ``Step`` applies it.

    ``items`` has the items for each register of its type. ``iteration``, ``agent`` and ``release``
    are set for search iterations only. ``key_id`` names the key of its digests; ``unknown`` is that
    of ``Event``. ``end`` is the payload of a ``turn_completed`` event, with its texts.
    """

    occurred_us: int
    event_id: str
    digest: bytes
    conversation_id: str
    turn: int
    key_id: str
    kind: EventType
    items: tuple[Items, ...] = ()
    iteration: int = 0
    agent: str = DEFAULT_AGENT
    release: str | None = None
    unknown: tuple[str, ...] = ()
    end: TurnCompleted | None = None

    @property
    def version(self) -> Version:
        """The order of events that carry the same item."""
        return (self.occurred_us, self.event_id, self.digest)

    @property
    def is_empty(self) -> bool:
        """Whether it carries no items although its type has some."""
        return bool(self.items) and not any(self.items)


def digest_event(
    event: Event,
    dedup: Deduplicator,
    key_id: str,
    tables: Tables,
    model_labellers: Sequence[str] = (),
) -> DigestedEvent:
    """Digest the texts of ``event`` with ``dedup``, whose key is called ``key_id``.

    ``tables`` are those of its rules, ``model_labellers`` patterns for labellers that are models.
    """
    sent = event.payload
    kind = OF_PAYLOAD[type(sent)]
    if isinstance(sent, RelevanceLabels) and by_model(sent.source, sent.labeller, model_labellers):
        kind = MODEL_LABELS
    iteration, agent, release = 0, DEFAULT_AGENT, None
    if isinstance(sent, SearchIteration):
        iteration, agent, release = sent.iteration, sent.agent or DEFAULT_AGENT, sent.release
    return DigestedEvent(
        event.occurred_us,
        event.event_id,
        event.digest,
        event.conversation_id,
        event.turn,
        key_id,
        kind,
        tuple([register.read(sent, dedup, tables) for register in kind.registers]),
        iteration,
        agent,
        release,
        event.unknown,
        sent if isinstance(sent, TurnCompleted) else None,
    )


class RecordDecoder:
    """Decodes records, with digests by ``dedup``, whose key is ``key_id`` and tables ``tables``.

    ``require_key``: reject records without a Kafka key. ``model_labellers``: patterns for the
    labellers of labels that are a model's, where an event does not say it.
    """

    def __init__(
        self,
        dedup: Deduplicator,
        key_id: str,
        tables: Tables,
        limits: Limits,
        *,
        require_key: bool = False,
        model_labellers: Sequence[str] = (),
    ) -> None:
        self._dedup, self._key_id, self._tables = dedup, key_id, tables
        self._limits, self._require_key = limits, require_key
        self._model_labellers = model_labellers
        self._bounds = compiled.Bounds(limits, SCHEMA_VERSION, dict(tables.labels), OTHER)

    def decode(
        self, value: bytes | None, *, key: bytes | None = None, timestamp_ms: int | None = None
    ) -> DigestedEvent | BadRecord:
        """The record's event, or why it is rejected."""
        if value is not None:
            fast = self.decode_fast(value, key, timestamp_ms)
            if fast is not None:
                return fast
        event = decode(
            value,
            key=key,
            timestamp_ms=timestamp_ms,
            limits=self._limits,
            require_key=self._require_key,
        )
        if isinstance(event, BadRecord):
            return with_form(event, value)
        return digest_event(event, self._dedup, self._key_id, self._tables, self._model_labellers)

    def decode_fast(
        self, value: bytes, key: bytes | None, timestamp_ms: int | None
    ) -> DigestedEvent | None:
        """The event of a certainly valid record of searches or labels, else None."""
        if key is None and self._require_key:
            return None
        found = self._dedup.digested_iteration(value, key, self._bounds)
        if found is None:
            return self._decode_labels_fast(value, key, timestamp_ms)
        (
            occurred_us, event_id, digest, conversation_id, turn,
            iteration, agent, release, gate, searches, unknown,
        ) = found  # fmt: skip
        if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
            return None
        digested = {search[0]: DigestedSearch._make(search) for search in searches}
        return DigestedEvent(
            occurred_us,
            event_id,
            digest,
            conversation_id,
            turn,
            self._key_id,
            SEARCH_ITERATION,
            (digested, {} if gate is None else {iteration: gate}),
            iteration,
            agent or DEFAULT_AGENT,
            release,
            unknown,
        )

    def _decode_labels_fast(
        self, value: bytes, key: bytes | None, timestamp_ms: int | None
    ) -> DigestedEvent | None:
        found = compiled.digested_labels(value, key, self._bounds)
        if found is None:
            return None
        (
            occurred_us, event_id, digest, conversation_id, turn, results, routes, gates,
            labeller, model, random, unknown,
        ) = found  # fmt: skip
        if model is None:
            patterns = self._model_labellers
            model = bool(patterns) and by_model(None, labeller, patterns)
        sample = {MODEL if model else HUMAN: True} if random else {}
        if not EARLIEST_US <= occurred_us <= latest_us(timestamp_ms):
            return None
        return DigestedEvent(
            occurred_us,
            event_id,
            digest,
            conversation_id,
            turn,
            self._key_id,
            MODEL_LABELS if model else RELEVANCE_LABELS,
            (results, shorten_routes(routes) if routes else routes, gates, sample),
            0,
            DEFAULT_AGENT,
            None,
            unknown,
        )
