"""Tokens of texts, compared as answers are in SQuAD.

Lower case, punctuation out, articles out, split at white space (Rajpurkar et al., EMNLP 2016).
Beyond English: punctuation is what Unicode calls so as well, articles are those of the text's
language, and Chinese, Japanese and Korean characters are a token each.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from string import punctuation
from typing import Final

from stream_metrics.metrics.words import ARTICLES

DEFAULT_LANGUAGE: Final = "en"

_BETWEEN: Final = "\x1e"
"""Between texts that are normalised together: white space, and no part of what makes a word."""
_NO_ARTICLES: Final[frozenset[str]] = frozenset()

_CJK: Final = re.compile(
    "([\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U000323af])"
)


class _Kept(dict[int, int | None]):
    """By code point, itself, or None for punctuation; filled as signs are met."""

    def __missing__(self, code: int) -> int | None:
        sign = chr(code)
        out = sign in punctuation or unicodedata.category(sign).startswith("P")
        self[code] = None if out else code
        return self[code]


_KEPT: Final = _Kept()


def base_language(language: str | None) -> str:
    """The language without region and script; English if there is none.

    >>> base_language("de-AT"), base_language(None)
    ('de', 'en')
    """
    named = (language or DEFAULT_LANGUAGE).strip().lower()
    return named.replace("_", "-").partition("-")[0] or DEFAULT_LANGUAGE


def tokens(text: str, language: str | None = None) -> list[str]:
    """The normalised tokens of a text.

    Args:
        text: Any text.
        language: Whose articles are left out, as in ``en`` or ``de-AT``; default English. No
            articles are left out of a language without a list.

    >>> tokens("The  Eiffel Tower's height?")
    ['eiffel', 'towers', 'height']
    >>> tokens("東京 tower", "ja")
    ['東', '京', 'tower']
    """
    return tokens_of_each([text], language)[0]


def tokens_of_each(texts: Sequence[str], language: str | None = None) -> list[list[str]]:
    """What ``tokens`` gives for each of several texts of one language, sooner.

    >>> tokens_of_each(["The Nile", "a", "rivers' mouth"])
    [['nile'], [], ['rivers', 'mouth']]
    """
    articles = ARTICLES.get(base_language(language), _NO_ARTICLES)
    together = _BETWEEN.join(texts)
    if together.count(_BETWEEN) >= len(texts):  # white space inside of a text
        texts = [text.replace(_BETWEEN, " ") for text in texts]
        together = _BETWEEN.join(texts)
    kept = together.lower().translate(_KEPT)
    if not kept.isascii():
        kept = _CJK.sub(r" \1 ", kept)
    return (
        [
            [token for token in words.split() if token not in articles]
            for words in kept.split(_BETWEEN)
        ]
        if texts
        else []
    )


def overlap_f1(left: Sequence[str], right: Sequence[str]) -> float:
    """F1 of the tokens that two texts share, each as often as in both; in [0, 1].

    1 if both are empty, 0 if one is.

    >>> overlap_f1(["a", "b", "b"], ["b", "c"])
    0.4
    """
    if not left or not right:
        return float(not left and not right)
    shared = (Counter(left) & Counter(right)).total()
    return 2 * shared / (len(left) + len(right))
