"""Which documents and document ids of a turn are one for qrels.

A result connects its document with its ``doc_id``. What is connected, directly or through others,
is one *unit*: two documents with an id in common, or two ids of a document that deduplication
joined. A unit has the best grade of its ids and counts once. An id of the qrels that no result has
is a unit of its own, because nothing says that it is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_NO_GRADES: Final[Mapping[bytes, int]] = {}

DocIds = Sequence[bytes | None]
"""The digests of ids by rank; None for results without an id."""


class Units:
    """The units of a turn's results. Searches are added in canonical order.

    ``graded`` has the best grade of each unit with an id in ``relevant``. A unit is named by its
    first document.
    """

    __slots__ = ("_documents", "_of_id", "_parents", "_relevant", "_unnamed", "graded")

    def __init__(self, relevant: Mapping[bytes, int] = _NO_GRADES) -> None:
        self.graded: dict[int, int] = {}
        self._relevant = relevant
        self._documents = 0
        self._of_id: dict[bytes, int] = {}  # the document that first had the id
        self._parents: dict[int, int] = {}  # of documents that ids join to an earlier one
        self._unnamed: set[int] = set()  # documents without an id

    @property
    def any_named(self) -> bool:
        """Whether any result has an id."""
        return bool(self._of_id)

    def is_named(self, unit: int) -> bool:
        """Whether a result of the unit has an id."""
        return unit not in self._unnamed

    def of(self, document: int) -> int:
        """The unit of a document."""
        parents = self._parents
        while document in parents:
            parent = parents[document]
            parents[document] = document = parents.get(parent, parent)
        return document

    def missing(self) -> dict[bytes, int]:
        """The ids of the qrels that no result has, with their grades."""
        return {doc: grade for doc, grade in self._relevant.items() if doc not in self._of_id}

    def changes_with(self, documents: Sequence[int], doc_ids: DocIds) -> bool:
        """Whether a further search changes the units or grades of earlier results, or joins ids.

        May also be True for a search that changes nothing, as for all before the first id.
        """
        known, ids = self._documents, self._of_id
        if documents and not ids:
            return True
        new: dict[int, bytes] = {}
        for document, doc in zip(documents, doc_ids, strict=True):
            if doc is None:
                continue
            if document >= known:
                if new.setdefault(document, doc) != doc:
                    return True
                continue
            first = ids.get(doc)
            if first is None:
                if doc in self._relevant or not self.is_named(self.of(document)):
                    return True
            elif self.of(first) != self.of(document):
                return True
        return False

    def add(self, documents: Sequence[int], doc_ids: DocIds) -> None:
        """Add the results of the next search."""
        of_id, relevant = self._of_id, self._relevant
        for document, doc in zip(documents, doc_ids, strict=True):
            if document == self._documents:
                self._documents += 1
                if doc is None:
                    self._unnamed.add(document)
            if doc is None:
                continue
            first = of_id.setdefault(doc, document)
            if first != document:
                self._join(self.of(first), self.of(document))
            elif doc in relevant or document in self._unnamed:
                self._name(self.of(document), relevant.get(doc))

    def _name(self, unit: int, grade: int | None) -> None:
        """Note that a result of the unit has an id, of this grade if the qrels name it."""
        self._unnamed.discard(unit)
        if grade is not None:
            self.graded[unit] = max(grade, self.graded.get(unit, grade))

    def _join(self, one: int, other: int) -> None:
        if one == other:
            return
        first, second = min(one, other), max(one, other)
        self._parents[second] = first
        self._name(first, self.graded.pop(second, None))  # they are joined by an id
