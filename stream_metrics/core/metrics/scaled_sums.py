"""Exact sums of doubles, which can be computed in parts and merged.

A sum is an integer multiple of 2⁻¹⁰⁷⁴, the smallest positive double. Rounded once at the end, it
equals ``math.fsum`` of all terms.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_BITS: Final = 1074
_ONE: Final = 1 << _BITS


def scaled_sum(values: Iterable[float]) -> int:
    """The exact sum of finite doubles as a multiple of 2⁻¹⁰⁷⁴.

    >>> unscaled(scaled_sum([0.1] * 3) + scaled_sum([0.1] * 7))
    1.0
    """
    total = 0
    for value in values:
        numerator, denominator = value.as_integer_ratio()
        total += numerator << (_BITS + 1 - denominator.bit_length())
    return total


def unscaled(total: int) -> float:
    """The double nearest to a sum from ``scaled_sum``."""
    return total / _ONE
