"""Changes in time by the rows of their libraries, so that placing a turn need not copy its sums.

A busy agent has millions of changes of twenty-five sums each, and all of them are changes of the
same few thousand turns. Placed are the numbers of rows; what a row adds is looked up where it is
added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tests.drill.library import Condition, Habits, Numbers, Turns
from tests.drill.world import Libraries, Placed

_ROW = "row"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of an agent's sums, as parallel arrays.

    ``at_us``: when a change arrives; ``about_us``: the time that it is about; ``rows``: where in
    ``columns`` is what it adds. These are by code.
    """

    at_us: Numbers
    about_us: Numbers
    rows: Numbers
    columns: Mapping[str, Numbers]

    def of(self, codes: Iterable[str]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """The places of the changes of some sums together, and what each of them adds.

        Doubles hold it exactly, as it is far below 2**53.
        """
        known = [self.columns[code] for code in codes if code in self.columns]
        if not known:
            return np.zeros(0, np.intp), np.zeros(0)
        added = np.sum(known, axis=0)
        places = np.flatnonzero((added != 0)[self.rows])
        return places, added.astype(np.float64)[self.rows[places]]


def changes(placed: Placed) -> Changes:
    """The changes of turns that were placed with their sums."""
    columns = {code: placed.deltas[:, at] for at, code in enumerate(placed.codes)}
    return Changes(placed.at_us, placed.about_us, np.arange(len(placed.at_us)), columns)


class Rows(Libraries):
    """The libraries of a shelf, whose turns have the numbers of their rows in place of sums."""

    def __init__(self, shelf: Libraries) -> None:
        self._shelf = shelf
        self._numbered: dict[tuple[Habits, Condition], Turns] = {}
        self._libraries: list[Turns] = []
        self._size = 0

    def get(self, habits: Habits, condition: Condition) -> Turns:
        """The numbered library of these."""
        found = self._numbered.get((habits, condition))
        if found is None:
            library = self._shelf.get(habits, condition)
            rows = np.arange(self._size, self._size + len(library.at))[:, None]
            found = replace(library, codes=(_ROW,), deltas=rows)
            self._numbered[habits, condition] = found
            self._libraries.append(library)
            self._size += len(library.at)
        return found

    def changes(self, placed: Placed) -> Changes:
        """The changes of turns that were placed from these libraries."""
        codes = sorted({code for library in self._libraries for code in library.codes})
        columns = {
            code: np.concatenate([_column(library, code) for library in self._libraries])
            for code in codes
        }
        return Changes(placed.at_us, placed.about_us, placed.deltas[:, 0], columns)


def _column(library: Turns, code: str) -> Numbers:
    if code not in library.codes:
        return np.zeros(len(library.at), np.int64)
    return library.deltas[:, library.codes.index(code)]
