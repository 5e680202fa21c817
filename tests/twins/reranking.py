"""The NDCG of a search as shown and before reranking."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from stream_metrics.core.metrics.decisions import plain_rerank
from tests.twins import Claim, Pair, Refusal, Twin, kernel

Ranks = list[int | None]


def run(documents: list[int], baseline: Ranks, credited: Ranks) -> Iterator[Pair]:
    """The comparison of one search, if it has one."""
    yield (
        (kernel.reranked(documents, baseline, credited),),
        (plain_rerank(documents, baseline, credited),),
    )


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[int], Ranks, Ranks]:
    """Documents of results, some of them one; ranks before, some equal; gains, most of them."""
    known = draw(st.integers(1, 60))
    documents = draw(st.lists(st.integers(0, known - 1), max_size=200))
    size = len(documents)
    ranks = st.none() | st.integers(1, 2**31 - 1) | st.integers(1, 9)
    baseline = draw(st.lists(ranks, min_size=size, max_size=size))
    credited = draw(st.lists(st.none() | st.integers(0, 4), min_size=known, max_size=known))
    return documents, baseline, credited


CLAIMS = [
    Claim(
        Twin("reranked", run, may_decline=False),
        "both orders have the same NDCG, to the bit, and the same searches take part",
        searches(),
        [
            ([], [], []),
            ([0], [1], [4]),
            ([0, 0], [1, 2], [4]),
            ([0, 1], [1, 2], [None, None]),
            ([0, 1], [1, 2], [0, None]),
            (list(range(2000)), list(range(2000, 0, -1)), [(n * 7) % 5 for n in range(2000)]),
        ],
    )
]
REFUSALS = [
    Refusal("reranked", lambda: kernel.reranked([0], [1], []), IndexError),
    Refusal("reranked", lambda: kernel.reranked([0], [], [1]), ValueError),
    Refusal("reranked", lambda: kernel.reranked([-1], [1], [1]), OverflowError),
]
