"""A seeded test collection and a run over it, as dictionaries of dictionaries.

As they are after a TREC file was read: each query's results in the order of their ranks, each id a
string of its own. Needs numpy only, so that peers can make the same in their own environment.
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
"""Share of the judged documents that the run has."""
TIED: Final = 10
"""One query in so many has results of equal score."""
STEP: Final = 1 / 65_536
"""Scores are multiples of it, exact in single precision too."""
GRADES: Final = (0, 0, 0, 1, 1, 2, 3)


class Collection(NamedTuple):
    """What is relevant, and what was retrieved, by query and document."""

    qrels: dict[str, dict[str, int]]
    run: dict[str, dict[str, float]]


def collection(queries: int) -> Collection:
    """So many queries with 100 results and 1 to 39 judged documents each."""
    draw = np.random.default_rng(SEED)
    qrels, run = {}, {}
    for number in range(queries):
        ids = [f"{one:07}" for one in draw.choice(DOCUMENTS, DEPTH + MOST_JUDGED, replace=False)]
        judged = int(draw.integers(1, MOST_JUDGED + 1))
        # What was judged and found stands near the top more often than further down.
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
