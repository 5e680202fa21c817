"""Deduplicators with a bug, which tests give to a state partition or a step.

A deduplicator is handed every record before it is decoded otherwise, every new search before its
results are counted, and the fingerprints of an event's searches to encode, or to decode when the
conversation is loaded. So a bug in one shows what becomes of a record on which decoding fails, on
which the step fails when it has already changed the conversation, whose conversation cannot be
encoded, or be loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stream_metrics.core import compiled
from stream_metrics.core.dedup.deduplicator import (
    Deduplicator,
    Deduplicators,
    Fingerprints,
    Index,
)
from stream_metrics.core.dedup.index import DedupCounts
from stream_metrics.core.dedup.tables import DedupRules


@dataclass
class Bug:
    """Raises ``error`` at each record that ``at_record`` is true of, and at each search that
    ``at_search``, or event that ``at_pack`` or ``at_unpack`` is true of, given the number of
    results.

    ``searches`` counts those that the step was given.
    """

    error: type[BaseException]
    at_record: Callable[[bytes], bool] = lambda _: False
    at_search: Callable[[int], bool] = lambda _: False
    at_pack: Callable[[int], bool] = lambda _: False
    at_unpack: Callable[[int], bool] = lambda _: False
    searches: int = field(default=0, init=False)


class BuggyIndex:
    """An index with a bug."""

    def __init__(self, healthy: Index, bug: Bug) -> None:
        self._healthy, self._bug = healthy, bug
        self.append_decided = healthy.append_decided

    def append(self, results: Any, counts: DedupCounts) -> tuple[list[int], list[str]]:
        """Raise if the bug is in these results; they have been assigned then."""
        assigned = self._healthy.append(results, counts)
        self._bug.searches += 1
        if self._bug.at_search(len(results.types)):
            raise self._bug.error
        return assigned


class BuggyDeduplicator:
    """A deduplicator with a bug."""

    def __init__(self, healthy: Deduplicator, bug: Bug) -> None:
        self._healthy, self._bug = healthy, bug
        self.fingerprints, self.document = healthy.fingerprints, healthy.document
        self.query = healthy.query

    def digested_iteration(
        self, value: bytes, key: bytes | None, bounds: compiled.Bounds
    ) -> tuple[Any, ...] | None:
        """Raise if the bug is in this record."""
        if self._bug.at_record(value):
            raise self._bug.error
        return self._healthy.digested_iteration(value, key, bounds)

    def pack(self, searches: Sequence[Fingerprints]) -> bytes:
        """Raise if the bug is in encoding these searches."""
        if self._bug.at_pack(sum(len(search.types) for search in searches)):
            raise self._bug.error
        return self._healthy.pack(searches)

    def unpack(self, data: bytes) -> Sequence[Fingerprints]:
        """Raise if the bug is in decoding these searches."""
        searches = self._healthy.unpack(data)
        if self._bug.at_unpack(sum(len(search.types) for search in searches)):
            raise self._bug.error
        return searches

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
