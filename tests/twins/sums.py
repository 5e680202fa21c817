"""Sums over the resamples of the bootstrap, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from stream_metrics.lab.choices import SEED
from stream_metrics.lab.statistics.sums import plain_sums, resampled_sums
from stream_metrics.lab.statistics.units import Floats
from tests.twins import Claim, Pair, Refusal, Twin, kernel

# Lengths that are summed in lanes, in blocks and in halves of blocks.
SIZES = [1, 2, 3, 7, 8, 9, 15, 16, 127, 128, 129, 136, 137, 255, 257, 1_000, 5_003]


def bits(columns: Sequence[Floats]) -> list[bytes]:
    """The columns such that zeros differ by their signs; what is no number has one form."""
    return [np.where(np.isnan(column), np.nan, column).tobytes() for column in columns]


def run(columns: Sequence[Floats], count: int, seed: int, stream: int) -> Iterator[Pair]:
    """The sums of each column in each resample."""
    with np.errstate(over="ignore", invalid="ignore"):
        plain = plain_sums(columns, count, seed=seed, stream=stream)
    yield bits(resampled_sums(columns, count, seed=seed, stream=stream)), bits(plain)


def columns_of(units: int) -> list[Floats]:
    """Values whose sums depend on the order of adding, and zeros with a sign."""
    draw = np.random.default_rng(units)
    return [draw.normal(size=units), draw.lognormal(0, 20, size=units), np.full(units, -0.0)]


RESAMPLED_SUMS = Twin("resampled_sums", run, may_decline=False)
CLAIMS = [
    Claim(
        RESAMPLED_SUMS,
        "columns of any size have sums of the same bits",
        listed=lambda: (
            (columns_of(units), 41, seed, stream)
            for units in SIZES
            for seed, stream in ((SEED, 0), (SEED, 1), (7, 2))
        ),
    ),
    Claim(
        RESAMPLED_SUMS,
        "any values under any seed do, however often they are drawn, also where sums overflow",
        st.tuples(
            st.lists(st.floats(allow_nan=False), min_size=1, max_size=200).map(
                lambda values: [np.array(values)]
            ),
            st.integers(1, 20),
            st.integers(0, 2**64),
            st.just(0),
        ),
    ),
    Claim(
        RESAMPLED_SUMS,
        "draws that are unfair are left out in both, where a stream is long enough to have some",
        # About one draw in 1,700 is rejected.
        listed=lambda: [([np.random.default_rng(1).random(2_500_001)], 3, SEED, 0)],
    ),
]
REFUSALS = [
    Refusal(
        "resampled_sums",
        lambda: kernel.resampled_sums([np.zeros(3), np.zeros(2)], 1, 1, 1),
        ValueError,
        "one length",
    ),
    Refusal(
        "resampled_sums",
        lambda: kernel.resampled_sums([np.zeros(0)], 1, 1, 1),
        ValueError,
        "one length",
    ),
]
