"""Sums of doubles without rounding, so that they may be cut anywhere and put together again.

A sum is a whole number of 2⁻¹⁰⁷⁴, the smallest step of a double. Rounded once in the end, it is
what
``math.fsum`` gives for all terms at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_BITS: Final = 1074
_ONE: Final = 1 << _BITS


def exact_sum(values: Iterable[float]) -> int:
    """The sum of finite doubles in steps of 2⁻¹⁰⁷⁴.

    >>> rounded(exact_sum([0.1] * 3) + exact_sum([0.1] * 7))
    1.0
    """
    total = 0
    for value in values:
        numerator, denominator = value.as_integer_ratio()
        total += numerator << (_BITS + 1 - denominator.bit_length())
    return total


def rounded(total: int) -> float:
    """The double that is nearest to an exact sum."""
    return total / _ONE
