"""Searches for words in texts."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from stream_metrics.core.metrics.text import plain_tokens_among, tokens_among
from stream_metrics.core.metrics.words import ARTICLES
from tests.twins import Claim, Pair, Twin

SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All white space of Unicode."""
WORDS = st.sampled_from(["the", "a", "die", "nile", "nil", "é", "東", "\u200b"])
TEXTS = st.lists(
    st.lists(WORDS | st.text(st.sampled_from(SPACES), min_size=1), max_size=12).map("".join)
    | st.text(max_size=8),
    max_size=5,
)


def run(texts: list[str], wanted: frozenset[str], language: str) -> Iterator[Pair]:
    """The words found in texts of a language."""
    articles = ARTICLES.get(language, frozenset())
    plain = plain_tokens_among(texts, wanted - articles, articles)
    yield tokens_among(texts, wanted, language), plain


WORDS_AMONG = Twin("words_among", run, may_decline=False)
CLAIMS = [
    Claim(
        WORDS_AMONG,
        "the same words are found, whatever white space is between them",
        st.tuples(
            TEXTS, st.frozensets(WORDS | st.text(max_size=3)), st.sampled_from(["en", "de", "none"])
        ),
        [(["the nile" + sign + "delta" for sign in SPACES], frozenset({"nile", "delta"}), "en")],
    ),
    Claim(
        WORDS_AMONG,
        "half of a surrogate pair is found in a text, and looked for",
        listed=[
            (["the nile \ud800"], frozenset({"\ud800", "nile"}), "en"),
            (["the nile"], frozenset({"\ud800", "nile"}), "en"),
        ],
    ),
]
