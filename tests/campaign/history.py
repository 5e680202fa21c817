"""Records that were read and then deleted from the log, saved for the comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

PartitionId = tuple[str, int]  # topic, partition
FILE: Final = "history.json"


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets from ``first`` up to but not including ``before`` of a partition."""

    topic: str
    partition: int
    first: int
    before: int

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a record is in it."""
        same = topic == self.topic and partition == self.partition
        return same and self.first <= offset < self.before


class History:
    """Spans of the log that were read, each in one of the files ``part(number)`` of a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self.folder = folder
        self.parts: list[list[Span]] = []
        if self._file.exists():
            self.parts = msgspec.json.decode(self._file.read_bytes(), type=list[list[Span]])

    def begins(self) -> dict[PartitionId, int]:
        """The end of the saved records, by partition."""
        return {(s.topic, s.partition): s.before for spans in self.parts for s in spans}

    def part(self, number: int) -> Path:
        """The file with the records of these spans."""
        return self.folder / f"history-{number}.jsonl"

    def add(self, ends: Mapping[PartitionId, int]) -> int:
        """Note that these partitions are saved up to ``ends``; returns the new part's number."""
        begins = self.begins()
        self.parts.append(
            [Span(*place, begins.get(place, 0), before) for place, before in ends.items()]
        )
        self._write()
        return len(self.parts) - 1

    def pass_over(self, ends: Mapping[PartitionId, int]) -> None:
        """Note that the records before ``ends`` are never read."""
        self.part(self.add(ends)).touch()

    def drop(self, partitions: set[int]) -> None:
        """Drop the saved records of these partition numbers, whose state is rebuilt."""
        self.parts = [
            [span for span in spans if span.partition not in partitions] for spans in self.parts
        ]
        self._write()

    def _write(self) -> None:
        self._file.write_bytes(msgspec.json.encode(self.parts))
