"""Exports the live state: the same rows and window sums as a replay of the topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.engine.codec import decode_conversation, stored_header
from stream_metrics.core.engine.config import WINDOW_BUCKETS, EngineConfig
from stream_metrics.core.engine.row import Row, conversation_rows
from stream_metrics.core.engine.step import Step
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.window_sums import WindowSums
from stream_metrics.core.engine.windows import Windows, oldest_bucket
from stream_metrics.live.ports import PartitionState, StateStore


class NowTooEarly(Exception):
    """The window sums at that time need buckets that have expired."""


class Replaced(Exception):
    """A state partition was replaced, wiped or rewound while it was read."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            f"state partition {partition} was replaced while it was being read (by a build or a "
            "purge, or because Redis lost writes), so the output would mix two states. Run the "
            "command again"
        )


@dataclass(slots=True)
class Export:
    """Rows, the windows of every partition, and how far the input has been read.

    ``rows`` is empty if they are read separately by ``rows_of``. ``states`` are the state
    partitions as they were before they were read.
    """

    rows: list[Row] = field(default_factory=list)
    windows: list[Windows] = field(default_factory=list)
    dimension: str = "agent"
    last_event_us: int = 0
    record_time_ms: int = 0
    states: Mapping[int, PartitionState] = field(default_factory=dict)

    def default_now_us(self) -> int:
        """The largest event time, or the earliest later time whose buckets have not expired.

        Buckets expire by record time, which is ahead of event time.
        """
        record_time_us = self.record_time_ms * 1000
        specs = {window for windows in self.windows for window in windows.windows}
        return max(
            [
                self.last_event_us,
                *(
                    (oldest_bucket(window, record_time_us) + WINDOW_BUCKETS - 1) * window.bucket_us
                    for window in specs
                ),
            ]
        )

    def windows_document(self, now_us: int | None) -> dict[str, Any]:
        """The content of ``windows.json``. Raises ``NowTooEarly``."""
        now = self.default_now_us() if now_us is None else now_us
        for windows in self.windows:
            for window in windows.windows:
                if window.numbers(now).start < oldest_bucket(window, self.record_time_ms * 1000):
                    raise NowTooEarly(
                        f"--now {now}: window {window.name} at that time needs buckets that have "
                        f"expired; the input has been read up to {self.record_time_ms * 1000} "
                        "(microseconds). Choose a later time, or replay the topics"
                    )
        return WindowSums.of_partitions(self.windows, now).document(self.dimension)


async def export_windows(
    store: StateStore, windows: tuple[Window, ...], dimension: str = "agent"
) -> Export:
    """Export the windows of a namespace, without rows.

    Raises ``Replaced``.
    """
    found = Export(dimension=dimension, states=await _states(store))
    for partition, before in found.states.items():
        held = Windows(windows)
        for (window, bucket, agent), data in (await store.buckets(partition)).items():
            held.load(window, bucket, agent, data)
        found.windows.append(held)
        state = await _check_same(store, partition, before)
        for position in state.positions.values():
            found.record_time_ms = max(found.record_time_ms, position.record_time_ms)
            found.last_event_us = max(found.last_event_us, position.event_time_us)
    return found


async def rows_of(
    store: StateStore,
    config: EngineConfig,
    turn_scope: str,
    states: Mapping[int, PartitionState] | None = None,
) -> AsyncIterator[tuple[int, list[Row]]]:
    """Iterate over conversations: their partition and rows, each read atomically.

    Workers are not disturbed, and memory holds one page. A conversation that is written meanwhile
    may be returned again; its later rows replace the earlier ones. Raises ``Replaced``, at the
    latest at the end, if a partition is no longer the one in ``states`` (by default, the one at the
    start).
    """
    dedup = deduplicator(config.rules, b"")
    step = Step(config, lambda _: dedup)
    started = await _states(store) if states is None else states
    for partition, before in started.items():
        async for _, stored in store.conversations(partition):
            conversation_id = stored_header(stored.hot).conversation_id
            conversation = decode_conversation(conversation_id, stored.hot, "")
            step.restore(conversation)
            yield partition, conversation_rows(conversation, turn_scope)
        await _check_same(store, partition, before)
    for partition, before in started.items():
        await _check_same(store, partition, before)


async def _states(store: StateStore) -> dict[int, PartitionState]:
    return {number: await store.describe(number) for number in await store.partitions()}


async def _check_same(store: StateStore, partition: int, before: PartitionState) -> PartitionState:
    """The current partition; raises ``Replaced`` unless it continues ``before``.

    A replaced partition is frozen, wiped, or has earlier offsets.
    """
    now = await store.describe(partition)
    if now.token is None or now.frozen_by != before.frozen_by:
        raise Replaced(partition)
    for topic, position in before.positions.items():
        if topic not in now.positions or now.positions[topic].offset < position.offset:
            raise Replaced(partition)
    return now


async def export_state(
    store: StateStore, config: EngineConfig, windows: tuple[Window, ...], turn_scope: str
) -> Export:
    """Export windows and rows of a namespace into memory. Raises ``Replaced``."""
    found = await export_windows(store, windows, config.dimension)
    latest: dict[tuple[str, int], list[Row]] = {}
    async for partition, rows in rows_of(store, config, turn_scope, found.states):
        if rows:
            latest[rows[0]["conversation_id"], partition] = rows
    found.rows = [row for rows in latest.values() for row in rows]
    found.rows.sort(key=lambda row: (row["conversation_id"], row["turn"]))
    return found
