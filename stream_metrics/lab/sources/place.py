"""Where a record is: in a partition of a topic or, where no topic is known, on a line of a file.

A place is the same in whatever order the records of an input are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stream_metrics.core.events.record import Record

LocatedRecord = tuple[str, int, Record]
"""The name of a source, the number of a record in it (line, row, payload or count), the record."""

Place = tuple[str, int] | tuple[str, int, int]
"""File and line, or topic, partition and offset."""


def place_of(source: str, number: int, record: Record) -> Place:
    """The place of a located record.

    >>> place_of("day/events.jsonl", 7, Record(b"{"))
    ('events.jsonl', 7)
    >>> place_of("recording.parquet", 7, Record(b"{", topic="searches", partition=3, offset=40))
    ('searches', 3, 40)
    """
    if record.topic:
        return record.topic, record.partition, record.offset
    return Path(source).name, number


def place_fields(place: Place) -> dict[str, str | int]:
    """A place as reports have it.

    >>> place_fields(("events.jsonl", 7)), place_fields(("searches", 3, 40))
    ({'source': 'events.jsonl', 'line': 7}, {'source': 'searches', 'partition': 3, 'offset': 40})
    """
    if len(place) == 2:
        return {"source": place[0], "line": place[1]}
    return {"source": place[0], "partition": place[1], "offset": place[2]}


def place_text(fields: Mapping[str, Any]) -> str:
    """A place for people, from its fields.

    >>> place_text(place_fields(("events.jsonl", 7))), place_text(place_fields(("searches", 3, 40)))
    ('events.jsonl:7', 'searches/3 offset 40')
    """
    if fields.get("line") is None:
        return f"{fields['source']}/{fields['partition']} offset {fields['offset']}"
    return f"{fields['source']}:{fields['line']}"
