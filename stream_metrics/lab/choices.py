"""The kinds of intervals, tests and corrections, and what is used unless another is chosen.

They are apart from the statistics, so that settings can name them without loading those.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Method = Literal["percentile", "bca", "t", "wilson"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 1_000
SEED: Final = 20_240_501

Test = Literal["bootstrap", "plain_bootstrap", "permutation", "t", "wilcoxon"]
TESTS: Final[tuple[Test, ...]] = get_args(Test)
TEST_RESAMPLES: Final = 10_000

Correction = Literal["holm", "bonferroni", "none"]
CORRECTIONS: Final[tuple[Correction, ...]] = get_args(Correction)
ALPHA: Final = 0.05
