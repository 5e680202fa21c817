"""Quix Streams: one StreamingDataFrame of both topics, a turn in the state of its conversation.

State is in RocksDB with a changelog topic, at least once, all settings at their defaults.
"""

from __future__ import annotations

from typing import Any

import orjson
from quixstreams import Application, State

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.reading import read
from benchmarks.peers.turns import Figures, add_up, new_turn, take

Change = tuple[str, Figures]


def run(given: Task) -> None:
    """Read both topics to their end."""
    meter, totals = Meter(given.records), dict[str, Figures]()

    def merge(
        value: bytes, key: bytes, timestamp_ms: int, headers: Any, state: State
    ) -> Change | None:
        meter.record()
        event = read(orjson.loads, key, value)
        if event is None:
            meter.invalid += 1
            return None
        name = f"turn-{event['turn']}"
        turn = state.get(name) or new_turn()
        change = take(turn, event)
        state.set(name, turn)
        return turn["agent"], change

    def add(change: Change | None) -> None:
        if change is not None:
            add_up(totals, *change)

    app = Application(
        broker_address=given.bootstrap,
        consumer_group=given.name,
        auto_offset_reset="earliest",
        state_dir=given.folder,
        loglevel="WARNING",
    )
    events, labels = (
        app.topic(name, key_deserializer="bytes", value_deserializer="bytes")
        for name in given.topics
    )
    frame = app.dataframe(events).concat(app.dataframe(labels))
    frame.apply(merge, stateful=True, metadata=True).update(add)
    app.run(count=given.records, collect=False)
    meter.end()
    meter.report(totals)


if __name__ == "__main__":
    run(task())
