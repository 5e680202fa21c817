"""The public interface of deduplication.

``deduplicator`` returns one for a set of rules and a digest key: the compiled one if the kernel is
installed, else ``PlainDeduplicator``. Both return the same decisions, counts and bytes. Each
accepts only fingerprints that it made itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stream_metrics.core import compiled
from stream_metrics.core.dedup.digests import Digester
from stream_metrics.core.dedup.fingerprint import Fingerprint, Fingerprinter
from stream_metrics.core.dedup.index import DedupCounts, PlainIndex
from stream_metrics.core.dedup.pack import Packer, Unpacker
from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.events.wire import Result


class Fingerprints(Protocol):
    """The fingerprints of one search's results, by rank."""

    @property
    def types(self) -> list[str]:
        """The canonical entity type of each result."""

    @property
    def documents(self) -> list[bytes | None]:
        """The digest under which ``relevant`` names each result's document; None without an id."""

    @property
    def extra_values(self) -> int:
        """The number of values beyond those of usual results, for the cache's memory estimate."""

    @property
    def urls_unparsed(self) -> int:
        """The number of results whose URL cannot be parsed; 0 after ``unpack``."""


class Index(Protocol):
    """Assigns the results of one turn to documents, in canonical order."""

    def append(self, results: Any, counts: DedupCounts) -> tuple[list[int], list[str]]:
        """Assign one search's results; returns each result's document number and evidence.

        Documents are numbered from 0 in order of first occurrence. The evidence of a first
        occurrence is ``""``.
        """

    def append_decided(self, results: Any, documents: list[int]) -> None:
        """Add stored results whose documents are already decided."""


class Deduplicator(Protocol):
    """Makes, stores and compares fingerprints under one set of rules and one digest key."""

    def digested_iteration(
        self, value: bytes, key: bytes | None, bounds: compiled.Bounds
    ) -> tuple[Any, ...] | None:
        """The fields of a certainly valid search iteration with digested results, else None.

        ``events.decode`` decodes or rejects all other records.
        """

    def fingerprints(self, results: Sequence[Result]) -> Fingerprints:
        """The fingerprints of one search's results."""

    def document(self, doc_id: str) -> bytes:
        """The digest of a document id as ``relevant`` names it, compared exactly."""

    def query(self, text: str | None) -> bytes | None:
        """The digest of a search's query, of 8 bytes; None without one, or if it is blank."""

    def index(self) -> Index:
        """An empty index for a turn."""

    def pack(self, searches: Sequence[Any]) -> bytes:
        """The searches of one event in the stored format (``pack``)."""

    def unpack(self, data: bytes) -> Sequence[Fingerprints]:
        """The inverse of ``pack``."""


class PlainFingerprints:
    """The fingerprints of one search in Python."""

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

    def digested_iteration(self, value: bytes, key: bytes | None, bounds: object) -> None:
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

    def query(self, text: str | None) -> bytes | None:
        """See ``Deduplicator``."""
        return self._fingerprinter.query(text)

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
    """A cache of deduplicators by rules and key.

    A deduplicator caches recent results, which takes some megabytes. It is shared by all users of
    the same rules and key, so that a worker's memory does not grow with its partitions.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[DedupRules, bytes], Deduplicator] = {}

    def of(self, rules: DedupRules, key: bytes) -> Deduplicator:
        """The deduplicator for these rules and this key."""
        made = self._made.get((rules, key))
        if made is None:
            made = self._made[rules, key] = deduplicator(rules, key)
        return made


def deduplicator(rules: DedupRules, key: bytes) -> Deduplicator:
    """Create a deduplicator; an empty key means unkeyed digests, for offline replay."""
    made: Deduplicator | None = compiled.Deduplicator(rules, key)
    return PlainDeduplicator(rules, key) if made is None else made
