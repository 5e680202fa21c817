"""Correctly rounded sums of arrays, equal to ``math.fsum``.

Each value is split into parts with so few bits that doubles add the parts without rounding, in any
order. The sums of the parts are then added and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp, fsum, ldexp
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FEW: Final = 64
"""Up to this many values, ``fsum`` itself is faster."""

BLOCK: Final = 1 << 14
"""Values that are split at a time; they fit the processor's cache."""

_BITS: Final = 53  # of a double
_MOST_PARTS: Final = 4
_LARGEST: Final = 900  # the exponents between which no part overflows or loses bits
_SMALLEST: Final = -900


def exact_sum(values: Floats) -> float:
    """The correctly rounded sum of all values, independent of their order.

    >>> exact_sum(np.array([0.1] * 100)), sum([0.1] * 100) == 10.0
    (10.0, False)
    """
    sums: list[float] = []
    for start in range(0, len(values), BLOCK):
        sums += _few_sums(values[start : start + BLOCK])
    return fsum(sums)


def _few_sums(values: Floats) -> list[float]:
    """A few doubles with the same exact sum."""
    if len(values) > FEW:
        sums: list[float] = []
        for part in _parts(values, len(values)):
            if part is None:
                return sums
            sums.append(float(part.sum()))
    found: list[float] = values.tolist()
    return found


def exact_sums(values: Floats, starts: Integers) -> Floats | None:
    """The correctly rounded sum of each run of values; None if that takes more than two parts.

    Args:
        values: Consecutive runs.
        starts: The index at which each run begins.

    >>> found = exact_sums(np.array([0.1, 0.2, 0.3, 1.0]), np.array([0, 3]))
    >>> None if found is None else found.tolist()
    [0.6, 1.0]
    """
    longest = int(np.diff(starts, append=len(values)).max(initial=0))
    total: Floats = np.zeros(len(starts))
    for number, part in enumerate(_parts(values, longest)):
        if part is None:
            return total
        if number == 2:  # a third part would be a second rounding
            return None
        total += np.add.reduceat(part, starts)
    return None


def _parts(values: Floats, together: int) -> Iterator[Floats | None]:
    """Parts that add up to the values, then None.

    Any ``together`` values of one part add up without rounding. If no None follows, the values
    need more than ``_MOST_PARTS`` parts or cannot be split this way.
    """
    largest = float(np.abs(values).max(initial=0.0))
    if not largest < ldexp(1.0, _LARGEST):  # also excludes NaN
        return
    exponent = frexp(largest)[1]
    bits = _BITS - together.bit_length() - 1
    rest = values.copy()
    for _ in range(_MOST_PARTS):
        exponent -= bits
        if exponent < _SMALLEST or bits < 1:
            return
        # A sum with this has no room for bits below the exponent: they are rounded off.
        cut = ldexp(1.5, exponent + _BITS - 1)
        part = rest + cut
        part -= cut
        rest -= part
        yield part
        if not rest.any():
            yield None
            return
