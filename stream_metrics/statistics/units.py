"""The values of a figure, gathered by the unit that is resampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from stream_metrics.statistics.exact import exact_sum, exact_sums

EXACT: Final = float(1 << 53)
"""Below this, doubles of whole numbers add up without rounding."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Units:
    """A figure Σ sums ÷ Σ counts over units, in the order of their keys.

    Attributes:
        keys: Of the units, by code point; whatever order the rows came in. Units from columns
            have numbers, as their rows are in order already.
        sums, counts: Numerator and denominator of each unit; no count is 0.
        n: The values (of a mean), or the units (of a ratio of sums).
        sd: The spread of the values, or of the units' own ratios, with n − 1 below; None for
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
        """The mean of all values, each with the key of its unit; None takes no part.

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
        return cls(
            keys,
            np.array([fsum(by_unit[key]) for key in keys]),
            np.array([len(by_unit[key]) for key in keys], dtype=np.float64),
            len(values),
            spread(values),
            all(value in (0, 1) for value in values),
        )

    @classmethod
    def of_sums(cls, rows: Iterable[tuple[str, float, float]]) -> Units:
        """Σ numerators ÷ Σ denominators; units whose denominators sum to 0 take no part.

        >>> Units.of_sums([("a", 1, 4), ("b", 0, 0), ("a", 1, 4), ("c", 3, 2)]).figure
        0.5
        """
        above: dict[str, list[float]] = {}
        below: dict[str, list[float]] = {}
        for key, numerator, denominator in rows:
            above.setdefault(key, []).append(numerator)
            below.setdefault(key, []).append(denominator)
        keys = tuple(sorted(key for key in below if fsum(below[key])))
        sums = np.array([fsum(above[key]) for key in keys])
        counts = np.array([fsum(below[key]) for key in keys])
        return cls(keys, sums, counts, len(keys), spread((sums / counts).tolist()))

    @classmethod
    def of_columns(cls, unit: Integers, values: Floats) -> Units:
        """What ``of_values`` gives, from columns; NaN takes no part.

        Args:
            unit: The number of each value's unit, in ascending order.
            values: The values.

        >>> units = Units.of_columns(np.array([0, 0, 1, 4]), np.array([1.0, 0.5, np.nan, 3.0]))
        >>> units.sums.tolist(), units.counts.tolist(), units.n
        ([1.5, 3.0], [2.0, 1.0], 3)
        """
        taken = ~np.isnan(values)
        unit, values = unit[taken], values[taken]
        starts = np.flatnonzero(np.diff(unit, prepend=-1))
        counts = np.diff(starts, append=len(values)).astype(np.float64)
        sums = values
        if len(starts) < len(values):
            sums = sums_from(values, starts)
        binary = bool(((values == 0) | (values == 1)).all())
        return cls(Numbers(len(starts)), sums, counts, len(values), spread(values), binary)

    @classmethod
    def of_count_columns(cls, unit: Integers, above: Integers, below: Integers) -> Units:
        """What ``of_sums`` gives, from columns of whole numbers.

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
        return cls(Numbers(len(sums)), sums, counts, len(sums), spread(sums / counts))

    @property
    def size(self) -> int:
        """How many units there are."""
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
        """Whether each unit counts once, so that the figure is the mean of the units."""
        return bool((self.counts == 1).all())

    def only(self, keys: Iterable[str]) -> Units:
        """The same for some of the units. ``n`` and ``sd`` are those of the units then."""
        wanted = set(keys)
        kept = [at for at, key in enumerate(self.keys) if key in wanted]
        sums, counts = self.sums[kept], self.counts[kept]
        own = spread((sums / counts).tolist())
        return Units(tuple(self.keys[at] for at in kept), sums, counts, len(kept), own, self.binary)


def sums_from(values: Floats, starts: Integers) -> Floats:
    """The sum of each run of values, rounded once, whatever their order in it.

    Args:
        values: One run behind the other.
        starts: Where each run begins.

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
    sums[lengths == 2] += values[starts[lengths == 2] + 1]  # rounded once, as fsum does
    longer = np.flatnonzero(lengths > 2)
    plain = values.tolist()
    ends = (starts + lengths)[longer].tolist()
    sums[longer] = [fsum(plain[a:b]) for a, b in zip(starts[longer].tolist(), ends, strict=True)]
    return sums


class Numbers(Sequence[str]):
    """The keys of units that are known by their place alone: the numbers from 0, as text."""

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


def spread(values: Sequence[float] | Floats) -> float | None:
    """The standard deviation with n − 1 below; None for fewer than two values.

    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    n = len(values)
    if n < 2:
        return None
    taken = np.asarray(values, dtype=np.float64)
    return sqrt(exact_sum((taken - exact_sum(taken) / n) ** 2) / (n - 1))
