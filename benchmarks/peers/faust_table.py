"""Faust: one agent over both topics, and a table of turns.

The table's store is Faust's default, in memory; every change goes to its changelog topic.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import faust
import orjson
from mode.loop import use

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.reading import read
from benchmarks.peers.turns import Figures, Turn, add_up, new_turn, take

PARTITIONS = 4


def make_app(given: Task, meter: Meter, totals: dict[str, Figures]) -> faust.App:
    """The application; it stops itself as SIGTERM would when all records are read."""
    app = faust.App(
        given.name,
        broker=f"kafka://{given.bootstrap}",
        store="memory://",
        topic_partitions=PARTITIONS,
        datadir=given.folder,
        web_enabled=False,
    )
    turns = app.Table("turns", partitions=PARTITIONS)
    topics = app.topic(
        *given.topics,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    async def merge(stream: faust.StreamT[Any]) -> None:
        async for message in stream.events():
            meter.record()
            event = read(orjson.loads, message.key, message.value)
            if event is None:
                meter.invalid += 1
            else:
                name = f"{event['conversation_id']}/{event['turn']}"
                turn: Turn = turns.get(name) or new_turn()
                change = take(turn, event)
                turns[name] = turn
                add_up(totals, turn["agent"], change)
            if meter.done:
                meter.end()
                os.kill(os.getpid(), signal.SIGTERM)

    app.agent(topics)(merge)
    return app


def run(given: Task) -> None:
    """Read both topics to their end."""
    meter, totals = Meter(given.records), dict[str, Figures]()
    app = make_app(given, meter, totals)
    try:
        faust.Worker(app, loglevel="WARNING").execute_from_commandline()
    finally:
        meter.report(totals)


if __name__ == "__main__":
    use("uvloop")
    run(task())
