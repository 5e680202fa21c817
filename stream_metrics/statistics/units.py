"""The values of a figure, gathered by the unit that is resampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Units:
    """A figure Σ sums ÷ Σ counts over units, in the order of their keys.

    Attributes:
        keys: Of the units, by code point; whatever order the rows came in.
        sums, counts: Numerator and denominator of each unit; no count is 0.
        n: The values (of a mean), or the units (of a ratio of sums).
        sd: The spread of the values, or of the units' own ratios, with n − 1 below; None for
            n < 2.
        binary: Whether every value is 0 or 1.
    """

    keys: tuple[str, ...]
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

    @property
    def size(self) -> int:
        """How many units there are."""
        return len(self.keys)

    @property
    def figure(self) -> float | None:
        """Σ sums ÷ Σ counts; None without units."""
        return fsum(self.sums) / fsum(self.counts) if self.keys else None

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


def spread(values: Sequence[float]) -> float | None:
    """The standard deviation with n − 1 below; None for fewer than two values.

    >>> spread([1.0, 2.0, 3.0])
    1.0
    """
    n = len(values)
    if n < 2:
        return None
    mean = fsum(values) / n
    return sqrt(fsum((value - mean) ** 2 for value in values) / (n - 1))
