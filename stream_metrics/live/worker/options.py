"""Options of a worker's loop and of its state partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from stream_metrics.core.dedup.deduplicator import Deduplicators
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import Window
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Identity
from stream_metrics.live.ports import ConversationKey
from stream_metrics.live.runaways import MANY_ITERATIONS

Policy = Literal["halt", "rebuild", "continue"]
Start = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """The options that all partitions of a worker share.

    ``now_ms`` is the wall clock of a live worker; record time is limited to it. ``latest_ms`` is
    the later of two clocks, if there are two; it limits how long a record with a timestamp in the
    future keeps its conversation. ``partitioner`` maps a key to a partition like Kafka's default
    one. ``turn_scope`` applies to rows on the output topic. A turn runs away from
    ``runaway_iterations`` on. ``worker`` is the name in heartbeats; none are sent without it.
    """

    identity: Identity
    engine: EngineConfig
    key_id: str
    keys: dict[str, bytes]
    windows: tuple[Window, ...]
    agents: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    ttl_ms: int = 86_400_000
    batch_records: int = 500
    require_key: bool = True
    turn_scope: str = "last"
    runaway_iterations: int = MANY_ITERATIONS
    partitioner: Callable[[bytes], int] | None = None
    now_ms: Callable[[], int] | None = None
    latest_ms: Callable[[], int] | None = None
    worker: str = ""
    dedups: Deduplicators = field(default_factory=Deduplicators)


def record_digest(record: Record, options: PartitionOptions) -> bytes:
    """A digest of a record, keyed with the current digest key."""
    state = hashlib.blake2b(digest_size=16, key=options.keys[options.key_id])
    for part in (record.key, record.value):
        state.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return state.digest()


def conversation_key(conversation_id: str) -> ConversationKey:
    """The store's key of a conversation: a digest, so that no key contains input."""
    return hashlib.blake2b(
        conversation_id.encode(), digest_size=16, person=b"conversation"
    ).digest()


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """``topics`` are those that state is built from; each partition number is one state partition.

    ``in_order`` tells whether the records of a log are in the order of their timestamps.
    """

    topics: tuple[str, ...]
    on_offset_gap: Policy = "halt"
    start: Start = "earliest"
    commit_interval_seconds: float = 1.0
    in_order: bool = True
