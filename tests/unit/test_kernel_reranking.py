"""The compiled reranking comparison is its Python twin's, to the bit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.kernel import kernel
from stream_metrics.metrics.decisions import Rerank, rerank

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Without the kernel's own way nothing here can be said."""
    assert hasattr(kernel, "reranked"), "the kernel is not there, or older: make kernel"


def twin(
    documents: list[int], baseline: list[int | None], credited: list[int | None]
) -> Rerank | None:
    """What the engine compares without the kernel."""
    part = [(d, r) for d, r in zip(documents, baseline, strict=True) if r is not None]
    return rerank([d for d, _ in part], [credited[d] for d, _ in part], [r for _, r in part])


@st.composite
def searches(draw: st.DrawFn) -> tuple[list[int], list[int | None], list[int | None]]:
    """Documents of results, some of them one; ranks before, some equal; gains, most of them."""
    known = draw(st.integers(1, 60))
    documents = draw(st.lists(st.integers(0, known - 1), max_size=200))
    size = len(documents)
    ranks = st.none() | st.integers(1, 2**31 - 1) | st.integers(1, 9)
    baseline = draw(st.lists(ranks, min_size=size, max_size=size))
    credited = draw(st.lists(st.none() | st.integers(0, 4), min_size=known, max_size=known))
    return documents, baseline, credited


@given(searches())
@example(([], [], []))
@example(([0], [1], [4]))
@example(([0, 0], [1, 2], [4]))
@example(([0, 1], [1, 2], [None, None]))
@example(([0, 1], [1, 2], [0, None]))
@example((list(range(2000)), list(range(2000, 0, -1)), [(n * 7) % 5 for n in range(2000)]))
def test_a_search(search: tuple[list[int], list[int | None], list[int | None]]) -> None:
    """Both orders have the same NDCG, and there is a comparison for the same searches."""
    assert kernel is not None
    assert kernel.reranked(*search) == twin(*search)


@pytest.mark.parametrize(
    ("search", "error"),
    [(([0], [1], []), IndexError), (([0], [], [1]), ValueError), (([-1], [1], [1]), OverflowError)],
    ids=str,
)
def test_what_is_no_search_is_an_exception(
    search: tuple[list[int], list[int | None], list[int | None]], error: type[Exception]
) -> None:
    """Wrong arguments are refused, not misread."""
    assert kernel is not None
    with pytest.raises(error):
        kernel.reranked(*search)
