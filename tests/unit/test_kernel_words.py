"""The compiled search for words finds what its Python twin finds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.kernel import kernel
from stream_metrics.metrics.text import plain_tokens_among, tokens_among
from stream_metrics.metrics.words import ARTICLES

pytestmark = pytest.mark.kernel

SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space that there is."""

WORDS = st.sampled_from(["the", "a", "die", "nile", "nil", "é", "東", "\u200b"])
TEXTS = st.lists(
    st.lists(WORDS | st.text(st.sampled_from(SPACES), min_size=1), max_size=12).map("".join)
    | st.text(max_size=8),
    max_size=5,
)


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Without the kernel's own way nothing here can be said."""
    assert hasattr(kernel, "words_among"), "the kernel is not there, or older: make kernel"


@given(TEXTS, st.frozensets(WORDS | st.text(max_size=3)), st.sampled_from(["en", "de", "none"]))
@example(["the nile" + sign + "delta" for sign in SPACES], frozenset({"nile", "delta"}), "en")
def test_the_same_words_are_found(texts: list[str], wanted: frozenset[str], language: str) -> None:
    """Whatever white space is between them, and also where none is wanted."""
    articles = ARTICLES.get(language, frozenset())
    sought = wanted - articles

    assert tokens_among(texts, wanted, language) == plain_tokens_among(texts, sought, articles)


def test_what_is_no_unicode_is_left_to_the_twin() -> None:
    """Half of a surrogate pair, in a text or among the words."""
    assert tokens_among(["the nile \ud800"], ["\ud800", "nile"]) == ({"\ud800", "nile"}, 1)
    assert tokens_among(["the nile"], ["\ud800", "nile"]) == ({"nile"}, 1)
