"""How often intervals contain the true value, for many samples of a world."""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple

import numpy as np

from stream_metrics.core.alerts.estimates import Estimates, Interval, estimates
from stream_metrics.core.metrics.label_sums import BOTH, MODEL, SUMS
from tests.label_calibration.world import FIGURES, Pool, World, pool

JUDGED: Final = 1_000
"""Conversations that the model alone labelled, in every sample."""
PROMISED_FROM: Final = 60
FEW_FROM: Final = 600
PROMISED: Final = (93.0, 97.0)
"""The per cent of intervals that contain the true value, from ``PROMISED_FROM`` on."""
SOURCES: Final = ("human", "combined")


class Rate(NamedTuple):
    """How often the intervals of one source contain the true value.

    Attributes:
        source: ``human`` or ``combined``.
        covered: The share of the samples, in per cent.
        above: The share in which the whole interval is above the true value, in per cent.
        width: The median width.
        samples: The number of samples.
    """

    world: World
    figure: str
    n: int
    source: str
    covered: float
    above: float
    width: float
    samples: int

    @property
    def error(self) -> float:
        """The standard error of ``covered``, if it is what is promised."""
        return 100 * float(np.sqrt(0.95 * 0.05 / self.samples))

    @property
    def promised(self) -> bool:
        """Whether this many conversations are enough for the promise.

        Where nearly all conversations have an NDCG near 1, and a few one near 0, samples often miss
        the few.
        """
        few = self.figure.startswith("ndcg") and self.world.good > 0.9 and self.world.alike > 0.2
        return self.n >= (FEW_FROM if few else PROMISED_FROM)

    @property
    def kept(self) -> bool:
        """Whether the promise is kept, as far as the number of samples can tell."""
        low, high = PROMISED
        return low - 2 * self.error <= self.covered <= high + 2 * self.error


def generator_of(*what: object) -> np.random.Generator:
    """The generator of random numbers of a study."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(repr(what).encode())))


def drawn(
    found: Pool, figure: str, n: int, samples: int, generator: np.random.Generator
) -> list[Estimates]:
    """The estimates of samples in which people labelled ``n`` conversations."""
    products = found.products(figure)
    sums: dict[str, dict[str, np.ndarray]] = {}
    for sample, size in ((BOTH, n), (MODEL, JUDGED)):
        chosen = generator.integers(0, products["n"].size, (samples, size))
        sums[sample] = {name: products[name][chosen].sum(1) for name in SUMS[sample]}
    return [
        estimates(
            figure,
            {
                sample: {name: int(values[at]) for name, values in of_sample.items()}
                for sample, of_sample in sums.items()
            },
        )
        for at in range(samples)
    ]


def coverage(
    world: World, sizes: tuple[int, ...], samples: int, figures: tuple[str, ...] = FIGURES
) -> list[Rate]:
    """The rates of figures in a world."""
    found = pool(world, generator_of("world", world))
    return [
        rate
        for figure in figures
        for n in sizes
        for rate in _rates(world, found, figure, n, samples)
    ]


def _rates(world: World, found: Pool, figure: str, n: int, samples: int) -> list[Rate]:
    made = drawn(found, figure, n, samples, generator_of(world, figure, n))
    true = found.true(figure)
    return [
        _rate(world, figure, n, source, [getattr(one, source) for one in made], true)
        for source in SOURCES
    ]


def _rate(
    world: World, figure: str, n: int, source: str, intervals: list[Interval], true: float
) -> Rate:
    low = np.array([one.low for one in intervals])
    high = np.array([one.high for one in intervals])
    covered = 100 * float(np.mean((low <= true) & (true <= high)))
    above = 100 * float(np.mean(low > true))
    return Rate(
        world, figure, n, source, covered, above, float(np.median(high - low)), len(intervals)
    )
