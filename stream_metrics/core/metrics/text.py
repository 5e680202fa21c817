"""Tokenize texts as SQuAD does for comparing answers.

Lower case, remove punctuation and articles, split at white space (Rajpurkar et al., EMNLP 2016).
Beyond English, Unicode punctuation is also removed, articles are those of the text's language, and
each Chinese, Japanese or Korean character is a token.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from string import punctuation
from typing import Final

from stream_metrics.core import compiled
from stream_metrics.core.metrics.words import ARTICLES

DEFAULT_LANGUAGE: Final = "en"

_SEPARATOR: Final = "\x1e"
"""Separates texts that are normalised together: white space that occurs in no word."""
_NO_ARTICLES: Final[frozenset[str]] = frozenset()

_CJK: Final = re.compile(
    "([\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U000323af])"
)


class _Replacements(dict[int, str]):
    """The normalised form of each character by code point, computed on first use."""

    def __missing__(self, code: int) -> str:
        self[code] = _replacement(chr(code))
        return self[code]


def _replacement(sign: str) -> str:
    out = sign in punctuation or unicodedata.category(sign).startswith("P")
    return "" if out else _CJK.sub(r" \1 ", sign.lower())


_REPLACEMENTS: Final = _Replacements()


def replacements(page: int) -> list[str | None]:
    """The normalised forms of 256 characters for the kernel; None for those that are their own.

    >>> replacements(0)[ord("É")], replacements(0)[ord("é")], replacements(0)[ord("»")]
    ('é', None, '')
    """
    signs = map(chr, range(256 * page, 256 * (page + 1)))
    return [None if normal == sign else normal for sign in signs for normal in [_replacement(sign)]]


_ASCII: Final = bytes(range(128))
_ASCII_LOWER: Final = _ASCII.lower() + bytes(range(128, 256))
_ASCII_PUNCTUATION: Final = punctuation.encode()
_SIGMA: Final = "\u03a3"
"""The only letter whose lower case depends on its context."""
_FEW: Final = 32
"""Up to this many distinct non-ASCII characters, replacing them one by one is faster."""


def _normalised(text: str) -> str:
    """Lower case without punctuation, with spaces around CJK characters."""
    if _SIGMA in text:
        text = text.lower()
    # Most characters are ASCII, and translating bytes is many times faster than characters.
    raw = text.encode("utf-8", "surrogatepass").translate(_ASCII_LOWER, _ASCII_PUNCTUATION)
    left = raw.decode("utf-8", "surrogatepass")
    if left.isascii():
        return left
    beyond = set(raw.translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    if len(beyond) > _FEW:
        return left.translate(_REPLACEMENTS)
    for sign in beyond:
        left = left.replace(sign, _REPLACEMENTS[ord(sign)])
    return left


def base_language(language: str | None) -> str:
    """The language without region and script; English if ``language`` is None or empty.

    >>> base_language("de-AT"), base_language(None)
    ('de', 'en')
    """
    named = (language or DEFAULT_LANGUAGE).strip().lower()
    return named.replace("_", "-").partition("-")[0] or DEFAULT_LANGUAGE


def tokens(text: str, language: str | None = None) -> list[str]:
    """The normalised tokens of a text.

    Args:
        text: Any text.
        language: The language whose articles are removed, such as ``en`` or ``de-AT``; default
            English. Nothing is removed for a language without a list.

    >>> tokens("The  Eiffel Tower's height?")
    ['eiffel', 'towers', 'height']
    >>> tokens("東京 tower", "ja")
    ['東', '京', 'tower']
    """
    return tokens_of_each([text], language)[0]


def tokens_of_each(texts: Sequence[str], language: str | None = None) -> list[list[str]]:
    """``tokens`` for each of several texts of one language, faster.

    >>> tokens_of_each(["The Nile", "a", "rivers' mouth"])
    [['nile'], [], ['rivers', 'mouth']]
    """
    articles = articles_of(language)
    return [[word for word in words if word not in articles] for words in _words_of_each(texts)]


def tokens_among(
    texts: Sequence[str], wanted: Iterable[str], language: str | None = None
) -> tuple[set[str], int]:
    """The wanted tokens that occur in some text, and the number of texts with at least one token.

    Args:
        texts: Texts of one language.
        wanted: Tokens of a text of that language.
        language: As for ``tokens``.

    >>> tokens_among(["The Nile", "a", "Nile, Po"], ["nile", "delta"])
    ({'nile'}, 2)
    """
    articles = articles_of(language)
    sought = frozenset(wanted) - articles
    found = compiled.words_among([*texts], sought, articles)
    return plain_tokens_among(texts, sought, articles) if found is None else found


def plain_tokens_among(
    texts: Sequence[str], wanted: frozenset[str], articles: frozenset[str]
) -> tuple[set[str], int]:
    """``tokens_among`` in Python, given the articles of the texts' language."""
    found: set[str] = set()
    count = 0
    for words in _words_of_each(texts):
        found |= wanted.intersection(words)
        count += not articles.issuperset(words)
    return found, count


def articles_of(language: str | None) -> frozenset[str]:
    """The articles that are removed from texts of a language."""
    return ARTICLES.get(base_language(language), _NO_ARTICLES)


def _words_of_each(texts: Sequence[str]) -> list[list[str]]:
    """The normalised words of each text, articles included."""
    if not texts:
        return []
    return [words.split() for words in _together(texts).split(_SEPARATOR)]


def _together(texts: Sequence[str]) -> str:
    """The normalised texts, joined by ``_SEPARATOR``."""
    together = _SEPARATOR.join(texts)
    if together.count(_SEPARATOR) >= len(texts):  # a text contains it
        together = _SEPARATOR.join(text.replace(_SEPARATOR, " ") for text in texts)
    return _normalised(together)


def overlap_f1(left: Sequence[str], right: Sequence[str]) -> float:
    """F1 of the tokens that two texts share, counting repeats; in [0, 1].

    It is 1 if both are empty, 0 if one is.

    >>> overlap_f1(["a", "b", "b"], ["b", "c"])
    0.4
    """
    if not left or not right:
        return float(not left and not right)
    left_over = Counter(left)
    shared = 0
    for token in right:
        if left_over.get(token):
            left_over[token] -= 1
            shared += 1
    return 2 * shared / (len(left) + len(right))
