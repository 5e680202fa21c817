"""Pathway: a Python function reads each record, and a custom accumulator merges those of a turn.

State is in memory, pickled after each batch (its default).
"""

from __future__ import annotations

import orjson
import pathway as pw
from pathway import this

from benchmarks.peers.meter import Meter, Task, task
from benchmarks.peers.pathway_run import both_topics, run_to_end
from benchmarks.peers.reading import Event, read
from benchmarks.peers.turns import FIGURES, Turn, new_turn, take


class TurnState(pw.BaseCustomAccumulator):  # type: ignore[misc]
    """A turn, or an event that is to be merged into one."""

    def __init__(self, turn: Turn, event: Event | None = None) -> None:
        self.turn = turn
        self.event = event

    @classmethod
    def neutral(cls) -> TurnState:
        """An empty turn."""
        return cls(new_turn())

    @classmethod
    def from_row(cls, row: list[pw.PyObjectWrapper]) -> TurnState:
        """A row's event."""
        return cls(new_turn(), row[0].value)

    def update(self, other: TurnState) -> None:
        """Merge an event."""
        assert other.event is not None
        take(self.turn, other.event)

    def compute_result(self) -> tuple[str, int, int, int, int, int]:
        """The agent and the figures."""
        results, duplicates, labelled, good, gain = self.turn["figures"]
        return self.turn["agent"], results, duplicates, labelled, good, gain


def run(given: Task) -> None:
    """Read both topics to their end."""
    meter = Meter(given.records)

    @pw.udf  # type: ignore[untyped-decorator]
    def parse(key: bytes, value: bytes) -> tuple[str, pw.PyObjectWrapper] | None:
        meter.taken += 1
        event = read(orjson.loads, key, value)
        if event is None:
            meter.invalid += 1
            return None
        return f"{event['conversation_id']}/{event['turn']}", pw.PyObjectWrapper(event)

    records = both_topics(given, format="raw", autogenerate_key=True)
    parsed = records.select(event=parse(this.key, this.data)).filter(this.event.is_not_none())
    events = parsed.select(turn=this.event[0], event=this.event[1])
    merge = pw.reducers.udf_reducer(TurnState)
    turns = events.groupby(this.turn).reduce(found=merge(this.event))
    found = turns.select(
        agent=this.found[0], **{name: this.found[at] for at, name in enumerate(FIGURES, 1)}
    )
    by_agent = found.groupby(this.agent).reduce(
        this.agent, **{name: pw.reducers.sum(this[name]) for name in FIGURES}
    )
    run_to_end(by_agent, meter)


if __name__ == "__main__":
    run(task())
