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

    __slots__ = ("_named", "_of_id", "_parents", "_relevant", "graded")

    def __init__(self, relevant: Mapping[bytes, int] = _NO_GRADES) -> None:
        self.graded: dict[int, int] = {}
        self._relevant = relevant
        self._parents: list[int] = []  # by document
        self._named: list[bool] = []  # by document; that of a unit's first one counts
        self._of_id: dict[bytes, int] = {}  # the document that first had the id

    @property
    def any_named(self) -> bool:
        """Whether any result has an id."""
        return bool(self._of_id)

    def is_named(self, unit: int) -> bool:
        """Whether a result of the unit has an id."""
        return self._named[unit]

    def of(self, document: int) -> int:
        """The unit of a document."""
        parents = self._parents
        while parents[document] != document:
            parents[document] = document = parents[parents[document]]
        return document

    def missing(self) -> dict[bytes, int]:
        """The ids of the qrels that no result has, with their grades."""
        return {doc: grade for doc, grade in self._relevant.items() if doc not in self._of_id}

    def changes_with(self, documents: Sequence[int], doc_ids: DocIds) -> bool:
        """Whether a further search changes the units or grades of earlier results, or joins ids.

        May also be True for a search that changes nothing, as for all before the first id.
        """
        known, ids = len(self._parents), self._of_id
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
                if doc in self._relevant or not self._named[self.of(document)]:
                    return True
            elif self.of(first) != self.of(document):
                return True
        return False

    def add(self, documents: Sequence[int], doc_ids: DocIds) -> None:
        """Add the results of the next search."""
        for document, doc in zip(documents, doc_ids, strict=True):
            if document == len(self._parents):
                self._parents.append(document)
                self._named.append(False)
            if doc is None:
                continue
            unit = self.of(document)
            if doc in self._of_id:
                self._join(unit, self.of(self._of_id[doc]))
                continue
            self._of_id[doc] = unit
            self._named[unit] = True
            grade = self._relevant.get(doc)
            if grade is not None:
                self.graded[unit] = max(grade, self.graded.get(unit, grade))

    def _join(self, one: int, other: int) -> None:
        if one == other:
            return
        first, second = min(one, other), max(one, other)
        self._parents[second] = first
        self._named[first] = True  # they are joined by an id
        grade = self.graded.pop(second, None)
        if grade is not None:
            self.graded[first] = max(grade, self.graded.get(first, grade))
