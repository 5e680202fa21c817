"""Rankings in dictionaries, put in order and judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stream_metrics.lab.metrics.run_scores import plain_judged
from tests.helpers import examples
from tests.twins import Claim, Pair, Twin, kernel


def fits(grade: float) -> bool:
    """Whether a grade is not too near to 0."""
    return not grade or abs(grade) > 1e-280


IDS = st.sampled_from(["a", "b", "c", "d", "e", "ä", "z9", "𝕏", "", "\udc80", "aa"])
GRADES = st.integers(-2, 4) | st.floats(-1, 4).filter(fits) | st.booleans()
TIED = st.integers(0, 3)
SCORES = st.one_of(
    TIED,
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False),
    st.sampled_from([0.0, -0.0, 1e300, 2**53, 2**53 + 1, True]),
)


def listed(columns: Sequence[Any]) -> list[list[str]]:
    """The columns as lists of texts, in which NaN is equal to NaN."""
    return [[repr(float(value)) for value in column] for column in columns]


def run(rows: Sequence[tuple[Any, Any]], single: bool) -> Iterator[Pair]:
    """The columns of the rankings of some queries."""
    truths, found = [one for one, _ in rows], [other for _, other in rows]
    made = kernel.judged_rankings(truths, found, single)
    if made is None:
        yield None, None
    else:
        yield listed([*map(np.frombuffer, made)]), listed(plain_judged(truths, found, single))


def usual_rows() -> list[tuple[Any, Any]]:
    """Texts and numbers in any order."""
    draw = np.random.default_rng(4)
    return [
        (
            {f"d{n}": int(draw.integers(0, 3)) for n in range(7)},
            {f"d{n}": float(draw.integers(0, 9)) for n in draw.permutation(12)},
        )
        for _ in range(50)
    ]


JUDGED_RANKINGS = Twin("judged_rankings", run)
CLAIMS = [
    Claim(
        JUDGED_RANKINGS,
        "ties, zeros with signs, whole numbers and ids that are not ASCII give the same columns",
        st.tuples(
            st.lists(
                st.tuples(st.dictionaries(IDS, GRADES), st.dictionaries(IDS, SCORES)), max_size=4
            ),
            st.booleans(),
        ),
        max_examples=examples(500),
    ),
    Claim(
        JUDGED_RANKINGS,
        "texts and numbers in any order are handled",
        listed=[(usual_rows(), False), (usual_rows(), True)],
        handled=True,
    ),
    Claim(
        JUDGED_RANKINGS,
        "what only Python can judge, or refuse, is left to it",
        listed=[
            ([pair], False)
            for pair in (
                ({"a": 1}, {"a": float("nan"), "b": 1.0}),
                ({"a": float("nan")}, {"a": 1.0}),
                ({"a": float("inf")}, {"a": 1.0}),
                ({"a": 1e-300}, {"a": 1.0}),
                ({"a": 1, 1: 1}, {"a": 1.0}),
                ({"a": 1}, {"a": 1.0, 1: 0.5}),
                ({"a": 1}, {"a": 2**53 + 1, "b": 2**53}),
                ({"a": 2**1100}, {"a": 1.0}),
                ({"a": "1"}, {"a": 1.0}),
                ({"a": 1}, {"a": None}),
                ({"a": 1}, {"\udc80": 1.0, "a": 1.0}),
                ({"a": 1}, {1: 1.0, 2: 1.0}),
                (defaultdict(int, a=1), {"a": 1.0}),
                ({"a": 1}, [("a", 1.0)]),
            )
        ],
        handled=False,
    ),
]
