"""Deduplicators with a bug, which tests give to a state partition or a step.

A deduplicator is handed every record before it is decoded otherwise, and every new search before
its results are counted. So a bug in one shows what becomes of a record on which decoding fails, or
on which the step fails when it has already changed the conversation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stream_metrics.core import compiled
from stream_metrics.core.dedup.deduplicator import Deduplicator, Deduplicators, Index
from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.dedup.tables import DedupRules


@dataclass
class Bug:
    """Raises ``error`` at each record that ``at_record`` is true of, or at each search that
    ``at_search`` is true of, given its number of results."""

    error: type[BaseException]
    at_record: Callable[[bytes], bool] = lambda _: False
    at_search: Callable[[int], bool] = lambda _: False


class BuggyIndex:
    """An index with a bug."""

    def __init__(self, healthy: Index, bug: Bug) -> None:
        self._healthy, self._bug = healthy, bug
        self.append_decided = healthy.append_decided

    def append(self, results: Any, counts: DedupCounts) -> tuple[list[int], list[str]]:
        """Raise if the bug is in these results; they have been assigned then."""
        assigned = self._healthy.append(results, counts)
        if self._bug.at_search(len(results.types)):
            raise self._bug.error
        return assigned


class BuggyDeduplicator:
    """A deduplicator with a bug."""

    def __init__(self, healthy: Deduplicator, bug: Bug) -> None:
        self._healthy, self._bug = healthy, bug
        self.fingerprints, self.document = healthy.fingerprints, healthy.document
        self.pack, self.unpack = healthy.pack, healthy.unpack

    def digested_iteration(
        self, value: bytes, key: bytes | None, bounds: compiled.Bounds
    ) -> tuple[Any, ...] | None:
        """Raise if the bug is in this record."""
        if self._bug.at_record(value):
            raise self._bug.error
        return self._healthy.digested_iteration(value, key, bounds)

    def index(self) -> BuggyIndex:
        """An index with the bug."""
        return BuggyIndex(self._healthy.index(), self._bug)


class BuggyDeduplicators(Deduplicators):
    """Deduplicators of which the one with this digest key has a bug."""

    def __init__(self, key: bytes, bug: Bug) -> None:
        super().__init__()
        self._key, self._bug = key, bug

    def of(self, rules: DedupRules, key: bytes) -> Deduplicator:
        """The deduplicator for these rules and this key."""
        healthy = super().of(rules, key)
        return BuggyDeduplicator(healthy, self._bug) if key == self._key else healthy
