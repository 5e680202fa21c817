"""Grades that a model has given, so that it is asked about the same texts once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence


class GradeCache:
    """The latest ``size`` grades by a keyed digest of the texts; no text is kept.

    >>> grades = GradeCache(b"key", 1)
    >>> grades.put(["query", "a document"], 3)
    >>> grades.get(["query", "a document"]), grades.get(["querya document"])
    (3, None)
    >>> grades.put(["query", "another"], 0)
    >>> grades.get(["query", "a document"]) is None  # the older one had to go
    True
    """

    def __init__(self, key: bytes, size: int) -> None:
        self._key = key
        self._size = size
        self._grades: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._grades)

    def get(self, texts: Sequence[str]) -> int | None:
        """The grade that was given for these texts; None if it is not known."""
        digest = self._digest(texts)
        grade = self._grades.get(digest)
        if grade is not None:
            self._grades.move_to_end(digest)
        return grade

    def put(self, texts: Sequence[str], grade: int) -> None:
        """Keep a grade."""
        digest = self._digest(texts)
        self._grades[digest] = grade
        self._grades.move_to_end(digest)
        while len(self._grades) > self._size:
            self._grades.popitem(last=False)

    def _digest(self, texts: Sequence[str]) -> bytes:
        digest = hashlib.blake2b(digest_size=16, key=self._key, person=b"judge cache")
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
        return digest.digest()
