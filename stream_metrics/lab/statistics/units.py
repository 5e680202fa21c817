"""The values of a figure, grouped by resampling unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from stream_metrics.lab.statistics.exact_arrays import exact_sum, exact_sums

EXACT: Final = float(1 << 53)
"""Whole numbers whose sum is below this add up without rounding."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


LARGEST: Final = 1e75
"""The largest value: sums of cubes of more of them than fit into memory do not overflow."""


class OutOfRange(ValueError):
    """A value is not a number, or so large that statistics of it would overflow."""


@dataclass(frozen=True, slots=True)
class Units:
    """A figure Σ sums ÷ Σ counts over units, in the order of their keys.

    Attributes:
        keys: The ids of the units, sorted by code point. Units from columns have numbers instead,
            because their rows are already in order.
        sums, counts: Numerator and denominator of each unit; no count is 0.
        n: The number of values (of a mean) or of units (of a ratio of sums).
        sd: The sample standard deviation of the values, or of the units' own ratios; None for
            n < 2.
        binary: Whether every value is 0 or 1.
    """

    keys: Sequence[str]
    sums: Floats
    counts: Floats
    n: int
    sd: float | None
    binary: bool = False

    @classmethod
    def of_values(cls, rows: Iterable[tuple[str, float | None]]) -> Units:
        """The mean of all values, each with the id of its unit; None is ignored.

        Raises:
            OutOfRange: A value is NaN or above ``LARGEST``.

        >>> units = Units.of_values([("b", 1.0), ("a", 0.0), ("b", 0.5), ("c", None)])
        >>> units.keys, units.sums.tolist(), units.counts.tolist(), units.figure
        (('a', 'b'), [0.0, 1.5], [1.0, 2.0], 0.5)
        """
        by_unit: dict[str, list[float]] = {}
        for key, value in rows:
            if value is not None:
                by_unit.setdefault(key, []).append(value)
        keys = tuple(sorted(by_unit))
        values = [value for key in keys for value in by_unit[key]]
        _check_range(values)
        return cls(
            keys,
            np.array([fsum(by_unit[key]) for key in keys]),
            np.array([len(by_unit[key]) for key in keys], dtype=np.float64),
            len(values),
            standard_deviation(values),
            all(value in (0, 1) for value in values),
        )

    @classmethod
    def of_sums(cls, rows: Iterable[tuple[str, float, float]]) -> Units:
        """Σ numerators ÷ Σ denominators; units whose denominators sum to 0 are left out.

        Raises:
            OutOfRange: A numerator or a denominator is NaN or above ``LARGEST``.

        >>> Units.of_sums([("a", 1, 4), ("b", 0, 0), ("a", 1, 4), ("c", 3, 2)]).figure
        0.5
        """
        above: dict[str, list[float]] = {}
        below: dict[str, list[float]] = {}
        for key, numerator, denominator in rows:
            above.setdefault(key, []).append(numerator)
            below.setdefault(key, []).append(denominator)
        _check_range([term for terms in (*above.values(), *below.values()) for term in terms])
        keys = tuple(sorted(key for key in below if fsum(below[key])))
        sums = np.array([fsum(above[key]) for key in keys])
        counts = np.array([fsum(below[key]) for key in keys])
        return cls(keys, sums, counts, len(keys), standard_deviation((sums / counts).tolist()))

    @classmethod
    def of_columns(cls, unit: Integers, values: Floats) -> Units:
        """``of_values`` from columns; NaN is ignored.

        Args:
            unit: The number of each value's unit, in ascending order.
            values: The values.

        Raises:
            OutOfRange: A value is above ``LARGEST``.

        >>> units = Units.of_columns(np.array([0, 0, 1, 4]), np.array([1.0, 0.5, np.nan, 3.0]))
        >>> units.sums.tolist(), units.counts.tolist(), units.n
        ([1.5, 3.0], [2.0, 1.0], 3)
        """
        taken = ~np.isnan(values)
        unit, values = unit[taken], values[taken]
        _check_range(values)
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        counts = np.diff(starts, append=len(values)).astype(np.float64)
        sums = values
        if len(starts) < len(values):
            sums = sums_from(values, starts)
        binary = bool(((values == 0) | (values == 1)).all())
        return cls(
            NumberedKeys(len(starts)), sums, counts, len(values), standard_deviation(values), binary
        )

    @classmethod
    def of_count_columns(cls, unit: Integers, above: Integers, below: Integers) -> Units:
        """``of_sums`` from columns of whole numbers.

        Args:
            unit: The number of each row's unit, in ascending order.
            above, below: Numerators and denominators.

        >>> one = Units.of_count_columns(*(np.array(c) for c in ([0, 0, 1], [1, 2, 0], [4, 2, 0])))
        >>> one.sums.tolist(), one.counts.tolist()
        ([3.0], [6.0])
        """
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        sums = counts = np.zeros(0)
        if len(starts):
            sums = np.add.reduceat(above, starts).astype(np.float64)
            counts = np.add.reduceat(below, starts).astype(np.float64)
        sums, counts = sums[counts != 0], counts[counts != 0]
        return cls(
            NumberedKeys(len(sums)), sums, counts, len(sums), standard_deviation(sums / counts)
        )

    @property
    def size(self) -> int:
        """The number of units."""
        return len(self.keys)

    @property
    def figure(self) -> float | None:
        """Σ sums ÷ Σ counts; None without units."""
        return exact_sum(self.sums) / exact_sum(self.counts) if self.keys else None

    @property
    def means(self) -> Floats:
        """Each unit's own ratio."""
        return self.sums / self.counts

    @property
    def single(self) -> bool:
        """Whether each unit has a count of 1, so that the figure is the mean of the units."""
        return bool((self.counts == 1).all())

    def subset(self, keys: Iterable[str]) -> Units:
        """The figure over some of the units. ``n`` and ``sd`` then refer to units."""
        wanted = set(keys)
        kept = [at for at, key in enumerate(self.keys) if key in wanted]
        sums, counts = self.sums[kept], self.counts[kept]
        own = standard_deviation((sums / counts).tolist())
        return Units(tuple(self.keys[at] for at in kept), sums, counts, len(kept), own, self.binary)


def _check_range(values: Sequence[float] | Floats) -> None:
    """Raise ``OutOfRange`` for a value that is NaN or above ``LARGEST``."""
    within = np.abs(np.asarray(values, dtype=np.float64)) <= LARGEST
    if not within.all():
        value = values[int(np.argmin(within))]
        raise OutOfRange(f"a value is {value:g}; statistics take numbers up to {LARGEST:g}")


def sums_from(values: Floats, starts: Integers) -> Floats:
    """The correctly rounded sum of each run of values, independent of the order within it.

    Args:
        values: Consecutive runs.
        starts: The index at which each run begins.

    >>> sums_from(np.array([0.1, 0.2, 0.3, 1.0]), np.array([0, 3])).tolist()
    [0.6, 1.0]
    """
    if len(values) and (values == np.rint(values)).all() and np.abs(values).sum() < EXACT:
        whole: Floats = np.add.reduceat(values, starts) + 0.0
        return whole
    quick = exact_sums(values, starts)
    if quick is not None:
        return quick
    lengths = np.diff(starts, append=len(values))
    sums: Floats = values[starts] + 0.0
    sums[lengths == 2] += values[starts[lengths == 2] + 1]  # rounded once, like fsum
    longer = np.flatnonzero(lengths > 2)
    plain = values.tolist()
    ends = (starts + lengths)[longer].tolist()
    sums[longer] = [fsum(plain[a:b]) for a, b in zip(starts[longer].tolist(), ends, strict=True)]
    return sums


class NumberedKeys(Sequence[str]):
    """The keys of units that have no ids: the numbers from 0 as text."""

    def __init__(self, size: int) -> None:
        self._places = range(size)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [f"{place:015}" for place in self._places[at]]
        return f"{self._places[at]:015}"


def standard_deviation(values: Sequence[float] | Floats) -> float | None:
    """The sample standard deviation; None for fewer than two values.

    >>> standard_deviation([1.0, 2.0, 3.0])
    1.0
    """
    n = len(values)
    if n < 2:
        return None
    taken = np.asarray(values, dtype=np.float64)
    return sqrt(exact_sum((taken - exact_sum(taken) / n) ** 2) / (n - 1))
