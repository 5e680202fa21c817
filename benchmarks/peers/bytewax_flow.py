"""Bytewax: a dataflow from one Kafka source of both topics, with a stateful map by turn.

State is in memory, and with recovery on: snapshots of it go to SQLite every 30 seconds.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.reading import Event, read
from benchmarks.peers.turns import Figures, Turn, add_up, new_turn, take

SNAPSHOT_EVERY = timedelta(seconds=30)

Change = tuple[str, tuple[str, Figures]]


class Totals(DynamicSink[Change], StatelessSinkPartition[Change]):  # type: ignore[misc]
    """Adds up what has changed."""

    def __init__(self) -> None:
        self.of_agents: dict[str, Figures] = {}

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Totals:
        """The one partition of the one worker."""
        return self

    def write_batch(self, items: list[Change]) -> None:
        """Add changes."""
        for _, (agent, change) in items:
            add_up(self.of_agents, agent, change)


def flow_of(given: Task, meter: Meter, totals: Totals) -> Dataflow:
    """The dataflow over both topics, to their end."""

    def parse(message: KafkaSourceMessage[bytes, bytes]) -> Event | None:
        meter.record()
        event = read(orjson.loads, message.key, message.value)
        if event is None:
            meter.invalid += 1
        return event

    def merge(turn: Turn | None, event: Event) -> tuple[Turn, tuple[str, Figures]]:
        turn = turn or new_turn()
        change = take(turn, event)
        return turn, (turn["agent"], change)

    flow = Dataflow("srr")
    source = KafkaSource([given.bootstrap], list(given.topics), tail=False)
    events = op.filter_map("read", op.input("topics", flow, source), parse)
    keyed = op.key_on("turn", events, lambda event: f"{event['conversation_id']}/{event['turn']}")
    op.output("totals", op.stateful_map("merge", keyed, merge), totals)
    return flow


def run(given: Task) -> None:
    """Read both topics to their end."""
    meter, totals = Meter(given.records), Totals()
    init_db_dir(Path(given.folder), 1)
    cli_main(
        flow_of(given, meter, totals),
        epoch_interval=SNAPSHOT_EVERY,
        recovery_config=RecoveryConfig(Path(given.folder)),
    )
    meter.end()
    meter.report(totals.of_agents)


if __name__ == "__main__":
    run(task())
