"""What the rest of the program sees of deduplication.

``deduplicator`` gives one for a set of rules and a digest key: the compiled one if the kernel is
installed, else ``PlainDeduplicator``. Both give the same decisions, counts and bytes; each takes
only fingerprints that it made itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stream_metrics import compiled
from stream_metrics.dedup.digests import Digester
from stream_metrics.dedup.fingerprint import Fingerprint, Fingerprinter
from stream_metrics.dedup.index import DedupCounts, PlainIndex
from stream_metrics.dedup.pack import Packer, Unpacker
from stream_metrics.dedup.tables import DedupRules
from stream_metrics.events.wire import Result


class Fingerprints(Protocol):
    """The fingerprints of one search's results, by rank."""

    @property
    def types(self) -> list[str]:
        """The canonical entity type of each result."""

    @property
    def documents(self) -> list[bytes | None]:
        """Of each result, the digest under which ``relevant`` names its document."""

    @property
    def extra_values(self) -> int:
        """Values beyond what usual results have, for the cache's account of memory."""

    @property
    def urls_unparsed(self) -> int:
        """Results whose URL counts as absent because it is none; 0 after ``unpack``."""


class Index(Protocol):
    """The results of one turn so far; the next are placed in canonical order."""

    def append(self, results: Any, counts: DedupCounts) -> tuple[list[int], list[str]]:
        """Place one search's results: of each its document's number and the evidence.

        Documents are numbered from 0 in order of first occurrence, whose evidence is ``""``.
        """

    def append_decided(self, results: Any, documents: list[int]) -> None:
        """Place results whose documents were decided before they were stored."""


class Deduplicator(Protocol):
    """Makes, stores and compares fingerprints under one set of rules and one digest key."""

    def take(
        self, value: bytes, key: bytes | None, bounds: compiled.Bounds
    ) -> tuple[Any, ...] | None:
        """What a record says that is surely a valid search iteration, results digested, or None.

        Whatever it leaves, ``events.decode`` takes or refuses.
        """

    def fingerprints(self, results: Sequence[Result]) -> Fingerprints:
        """The fingerprints of one search's results."""

    def document(self, doc_id: str) -> bytes:
        """The digest of a document id as ``relevant`` names it, compared exactly."""

    def index(self) -> Index:
        """The index of a turn without results."""

    def pack(self, searches: Sequence[Any]) -> bytes:
        """The searches of one event as the state keeps them (``pack``)."""

    def unpack(self, data: bytes) -> Sequence[Fingerprints]:
        """The inverse of ``pack``."""


class PlainFingerprints:
    """A list of ``Fingerprint``."""

    __slots__ = ("each", "urls_unparsed")

    def __init__(self, each: list[Fingerprint], urls_unparsed: int = 0) -> None:
        self.each = each
        self.urls_unparsed = urls_unparsed

    @property
    def types(self) -> list[str]:
        """See ``Fingerprints``."""
        return [fingerprint.type for fingerprint in self.each]

    @property
    def documents(self) -> list[bytes | None]:
        """See ``Fingerprints``."""
        return [fingerprint.qrels_doc for fingerprint in self.each]

    @property
    def extra_values(self) -> int:
        """See ``Fingerprints``."""
        return sum(fingerprint.extra_values for fingerprint in self.each)


class PlainDeduplicator:
    """Deduplication in Python."""

    def __init__(self, rules: DedupRules, key: bytes) -> None:
        self._digester = Digester(key, rules.names())
        self._fingerprinter = Fingerprinter(rules, self._digester)

    def take(self, value: bytes, key: bytes | None, bounds: object) -> None:
        """Leaves every record to ``events.decode``."""

    def fingerprints(self, results: Sequence[Result]) -> PlainFingerprints:
        """See ``Deduplicator``."""
        made = [self._fingerprinter.of(result) for result in results]
        unparsed = sum(
            bool(result.url) and f.url is None for result, f in zip(results, made, strict=True)
        )
        return PlainFingerprints(made, unparsed)

    def document(self, doc_id: str) -> bytes:
        """See ``Deduplicator``."""
        return self._fingerprinter.document(doc_id)

    def index(self) -> PlainIndex:
        """See ``Deduplicator``."""
        return PlainIndex(self._fingerprinter)

    def pack(self, searches: Sequence[PlainFingerprints]) -> bytes:
        """See ``Deduplicator``."""
        packer = Packer(self._digester)
        for search in searches:
            packer.add_search(search.each)
        return packer.encode()

    def unpack(self, data: bytes) -> list[PlainFingerprints]:
        """See ``Deduplicator``."""
        return [PlainFingerprints(each) for each in Unpacker(self._digester, data).searches()]


class Deduplicators:
    """Deduplicators by rules and key, each made once.

    One remembers the results that came last, which takes some megabytes. Whoever works with the
    same rules and key shares that, so that a worker's memory does not grow with its partitions.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[DedupRules, bytes], Deduplicator] = {}

    def of(self, rules: DedupRules, key: bytes) -> Deduplicator:
        """The one for these rules and this key."""
        made = self._made.get((rules, key))
        if made is None:
            made = self._made[rules, key] = deduplicator(rules, key)
        return made


def deduplicator(rules: DedupRules, key: bytes) -> Deduplicator:
    """A deduplicator; an empty key digests without one, for offline replay."""
    made: Deduplicator | None = compiled.Deduplicator(rules, key)
    return PlainDeduplicator(rules, key) if made is None else made
