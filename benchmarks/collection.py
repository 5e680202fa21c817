"""A seeded test collection and a run over it, as dictionaries of dictionaries.

They look like a TREC file after parsing: the results of each query in the order of ranks, each id a
separate string. Needs only numpy, so that peers can create the same in their own environment.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SEED: Final = 8
DOCUMENTS: Final = 8_800_000
DEPTH: Final = 100
MOST_JUDGED: Final = 39
FOUND: Final = 0.4
"""The share of judged documents that the run retrieves."""
TIED: Final = 10
"""One query in this many has results with equal scores."""
STEP: Final = 1 / 65_536
"""Scores are multiples of it, so that they are exact in single precision."""
GRADES: Final = (0, 0, 0, 1, 1, 2, 3)


class Collection(NamedTuple):
    """Relevance grades and retrieval scores by query and document."""

    qrels: dict[str, dict[str, int]]
    run: dict[str, dict[str, float]]


def collection(queries: int) -> Collection:
    """A collection of queries with 100 results and 1 to 39 judged documents each."""
    draw = np.random.default_rng(SEED)
    qrels, run = {}, {}
    for number in range(queries):
        ids = [f"{one:07}" for one in draw.choice(DOCUMENTS, DEPTH + MOST_JUDGED, replace=False)]
        judged = int(draw.integers(1, MOST_JUDGED + 1))
        # Retrieved judged documents are more often at high ranks.
        places = np.minimum(draw.geometric(0.05, size=judged), DEPTH) - 1
        found = draw.random(judged) < FOUND
        documents = [
            ids[place] if hit else ids[DEPTH + at]
            for at, (place, hit) in enumerate(zip(places, found, strict=True))
        ]
        scores = _scores(draw, tied=number % TIED == 0)
        query = f"q{number:06}"
        qrels[query] = dict(zip(documents, draw.choice(GRADES, size=judged).tolist(), strict=True))
        run[query] = dict(zip(ids[:DEPTH], scores.tolist(), strict=True))
    return Collection(qrels, run)


def _scores(draw: np.random.Generator, *, tied: bool) -> NDArray[np.float64]:
    """From the best down; without ties each is a step or more below the one above."""
    step = 0.25 if tied else STEP
    steps = np.sort(np.round(draw.gamma(4.0, 3.0, size=DEPTH) / step))[::-1]
    if not tied:
        steps = steps + np.arange(DEPTH)[::-1]
    return np.asarray(steps * step, dtype=np.float64)
