"""Pathway: both topics as one table, and a run to their end.

Its connector ends with the records that are there at the start (``mode="static"``), and hands them
on every 1.5 s (its default).
"""

from __future__ import annotations

from typing import Any

import pathway as pw

from benchmarks.peers.meter import Meter, Task
from benchmarks.peers.turns import FIGURES, Figures


def both_topics(given: Task, **form: Any) -> pw.Table:
    """The records of both topics; ``form`` says how their values are read."""
    settings = {
        "bootstrap.servers": given.bootstrap,
        "group.id": given.name,
        "auto.offset.reset": "earliest",
    }
    events, labels = (
        pw.io.kafka.read(settings, topic, mode="static", **form) for topic in given.topics
    )
    return events.concat_reindex(labels)


def run_to_end(by_agent: pw.Table, meter: Meter, **settings: Any) -> None:
    """Compute a table of the figures of each agent, and report them.

    The connector has read records before a function sees the first, so that the clocks begin with
    a row that is there when the engine starts.
    """
    totals: dict[str, Figures] = {}

    def begin(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        meter.begin()

    def change(key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            totals[row["agent"]] = [row[name] for name in FIGURES]

    start = pw.debug.table_from_rows(pw.schema_from_types(started=bool), [(True,)])
    pw.io.subscribe(start, begin)
    pw.io.subscribe(by_agent, change)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, **settings)
    meter.end()
    meter.report(totals)
