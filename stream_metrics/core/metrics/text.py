"""Tokenize texts as SQuAD does for comparing answers.

Lower case, remove punctuation and articles, split at white space (Rajpurkar et al., EMNLP 2016).
Beyond English, Unicode punctuation is also removed, articles are those of the text's language, and
each Chinese, Japanese or Korean character is a token. Texts that Unicode calls equivalent, and
those that differ in invisible characters, have the same tokens.

``version`` selects these rules (``words.WORDS_VERSION``) or earlier ones.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from string import punctuation
from typing import Final, NamedTuple

from stream_metrics.core import compiled
from stream_metrics.core.metrics.words import ARTICLES, FIRST_WORDS, WORDS_VERSION
from stream_metrics.core.unicode import (
    casefold,
    combining,
    compatible,
    is_alone,
    is_assigned,
    is_canonical,
    nfc,
)

DEFAULT_LANGUAGE: Final = "en"

_SEPARATOR: Final = "\x1e"
"""Separates texts that are normalised together: white space that occurs in no word."""
_NONE: Final[frozenset[str]] = frozenset()

_CJK: Final = re.compile(
    "([\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U000323af])"
)


class _Forms(dict[int, str | None]):
    """The normalised form of each character by code point, computed on first use.

    It is None if the form depends on the characters around it.
    """

    def __init__(self, form: Callable[[str], str | None]) -> None:
        self._form = form

    def __missing__(self, code: int) -> str | None:
        self[code] = self._form(chr(code))
        return self[code]


def _apart(sign: str) -> str:
    """Nothing for punctuation; a CJK character between spaces."""
    if sign in punctuation or (unicodedata.category(sign).startswith("P") and is_assigned(sign)):
        return ""
    return _CJK.sub(r" \1 ", sign)


# -- version 1: texts as they were written ----------------------------------------------------

_SIGMA: Final = "\u03a3"
"""The only letter whose lower case depends on its context."""


def _first_form(sign: str) -> str | None:
    if sign == _SIGMA:
        return None
    return "".join(map(_apart, sign.lower() if is_assigned(sign) else sign))


# -- version 2: compatible and canonically equivalent texts are equal, whatever their case ----

_ACCENTS_ALONE: Final = re.compile(" [\u0300-\u036f]+")
"""The compatible form of accents that were written as characters of their own, such as \u00b4."""
_LIKE_PUNCTUATION: Final = frozenset(
    "\u02b9\u02ba\u02bb\u02bc\u02bd\u02be\u02bf"  # letters that look like apostrophes
    "\u0640"  # lengthens Arabic words
    "\u2044\u2212\u2215"  # a slash of fractions, a minus, a slash of divisions
)


def _folded(text: str) -> str:
    """The compatible form of a text without case and accents that stand alone.

    >>> _folded("Zu\u0308rich, \ufb01n\xadance \uff11\u2082 it\xb4s \u0130zmir Stra\xdfe")
    'z\xfcrich, finance 12 its izmir strasse'
    """
    plain = _ACCENTS_ALONE.sub("", compatible(text))
    return nfc(casefold(plain).replace("i\u0307", "i"))


def _sign(sign: str) -> str:
    return "" if sign in _LIKE_PUNCTUATION else _apart(sign)


def _form(sign: str) -> str | None:
    plain = compatible(sign)
    if plain == sign:
        depends = not is_alone(sign) or _ACCENTS_ALONE.fullmatch(f" {sign}") is not None
    else:
        depends = plain != "" and (
            not is_alone(plain[0]) or combining(plain[0]) > 0 or combining(plain[-1]) > 0
        )
    return None if depends else "".join(map(_sign, _folded(sign)))


class _Rules(NamedTuple):
    """The rules of one version.

    Attributes:
        forms: The forms of characters, for texts whose combining characters are in canonical order.
        prepared: Does to a text what depends on the characters around one.
        forms_prepared: The forms of the characters of a text after that.
    """

    forms: _Forms
    prepared: Callable[[str], str]
    forms_prepared: _Forms

    def are_independent(self, signs: Set[str], text: str) -> bool:
        """Whether the form of none of the characters ``signs`` of a text depends on others."""
        return None not in map(self.forms.__getitem__, map(ord, signs)) and (
            not any(map(unicodedata.combining, signs)) or is_canonical(text)
        )


_FIRST_FORMS: Final = _Forms(_first_form)
_RULES: Final = {
    FIRST_WORDS: _Rules(_FIRST_FORMS, str.lower, _FIRST_FORMS),
    WORDS_VERSION: _Rules(_Forms(_form), _folded, _Forms(_sign)),
}


# -- for the kernel ---------------------------------------------------------------------------


def page_of_forms(page: int, version: int, is_prepared: bool) -> tuple[list[str | None], bytes]:
    """The normalised forms of 256 characters, and their canonical combining classes.

    A form is None if it depends on the characters around it, as it does where classes other than 0
    descend: then ``prepared`` is to be asked.

    >>> forms, classes = page_of_forms(0, 2, False)
    >>> forms[ord("\xc9")], forms[ord("\xbb")], classes[ord("\xbb")]
    ('\xe9', '', 0)
    """
    rules = _RULES[version]
    forms = rules.forms_prepared if is_prepared else rules.forms
    codes = range(256 * page, 256 * (page + 1))
    return [forms[code] for code in codes], bytes(
        0 if is_prepared or version == FIRST_WORDS else combining(chr(code)) for code in codes
    )


def prepared(text: str, version: int) -> str:
    """A text in which the forms of characters do not depend on each other."""
    return _RULES[version].prepared(text)


# -- texts ------------------------------------------------------------------------------------

_ASCII: Final = bytes(range(128))
_ASCII_LOWER: Final = _ASCII.lower() + bytes(range(128, 256))
_ASCII_PUNCTUATION: Final = punctuation.encode()
_FEW: Final = 32
"""Up to this many distinct non-ASCII characters, replacing them one by one is faster."""


def _normalised(text: str, version: int) -> str:
    """Lower case without punctuation, with spaces around CJK characters."""
    left, beyond = _without_ascii_punctuation(text)
    if not beyond:
        return left
    rules = _RULES[version]
    forms = rules.forms
    if not rules.are_independent(beyond, text):
        left, beyond = _without_ascii_punctuation(rules.prepared(text))
        forms = rules.forms_prepared
    if len(beyond) > _FEW:
        return left.translate(forms)
    for sign in beyond:
        left = left.replace(sign, forms[ord(sign)] or "")
    return left


def _without_ascii_punctuation(text: str) -> tuple[str, Set[str]]:
    """A text with its ASCII letters in lower case, and its distinct characters beyond ASCII."""
    # Most characters are ASCII, and translating bytes is many times faster than characters.
    raw = text.encode("utf-8", "surrogatepass").translate(_ASCII_LOWER, _ASCII_PUNCTUATION)
    left = raw.decode("utf-8", "surrogatepass")
    if left.isascii():
        return left, _NONE
    return left, {*raw.translate(None, _ASCII).decode("utf-8", "surrogatepass")}


def base_language(language: str | None) -> str:
    """The language without region and script; English if ``language`` is None or empty.

    >>> base_language("de-AT"), base_language(None)
    ('de', 'en')
    """
    named = (language or DEFAULT_LANGUAGE).strip().lower()
    return named.replace("_", "-").partition("-")[0] or DEFAULT_LANGUAGE


def tokens(text: str, language: str | None = None, version: int = WORDS_VERSION) -> list[str]:
    """The normalised tokens of a text.

    Args:
        text: Any text.
        language: The language whose articles are removed, such as ``en`` or ``de-AT``; default
            English. Nothing is removed for a language without a list.
        version: The version of the rules.

    >>> tokens("The  Eiffel Tower's height?")
    ['eiffel', 'towers', 'height']
    >>> tokens("東京 tower", "ja")
    ['東', '京', 'tower']
    >>> tokens("Zu\u0308rich's \ufb01\xadnance") == tokens("Z\xfcrich\u2019s FINANCE")
    True
    """
    return tokens_of_each([text], language, version)[0]


def tokens_of_each(
    texts: Sequence[str], language: str | None = None, version: int = WORDS_VERSION
) -> list[list[str]]:
    """``tokens`` for each of several texts of one language, faster.

    >>> tokens_of_each(["The Nile", "a", "rivers' mouth"])
    [['nile'], [], ['rivers', 'mouth']]
    """
    articles = articles_of(language)
    return [
        [word for word in words if word not in articles] for words in _words_of_each(texts, version)
    ]


def tokens_among(
    texts: Sequence[str],
    wanted: Iterable[str],
    language: str | None = None,
    version: int = WORDS_VERSION,
) -> tuple[set[str], int]:
    """The wanted tokens that occur in some text, and the number of texts with at least one token.

    Args:
        texts: Texts of one language.
        wanted: Tokens of a text of that language.
        language, version: As for ``tokens``.

    >>> tokens_among(["The Nile", "a", "Nile, Po"], ["nile", "delta"])
    ({'nile'}, 2)
    """
    articles = articles_of(language)
    sought = frozenset(wanted) - articles
    found = compiled.words_among([*texts], sought, articles, version)
    return plain_tokens_among(texts, sought, articles, version) if found is None else found


def plain_tokens_among(
    texts: Sequence[str], wanted: frozenset[str], articles: frozenset[str], version: int
) -> tuple[set[str], int]:
    """``tokens_among`` in Python, given the articles of the texts' language."""
    found: set[str] = set()
    count = 0
    for words in _words_of_each(texts, version):
        found |= wanted.intersection(words)
        count += not articles.issuperset(words)
    return found, count


def articles_of(language: str | None) -> frozenset[str]:
    """The articles that are removed from texts of a language."""
    return ARTICLES.get(base_language(language), _NONE)


def _words_of_each(texts: Sequence[str], version: int) -> list[list[str]]:
    """The normalised words of each text, articles included."""
    if not texts:
        return []
    together = _normalised(_together(texts), version)
    return [words.split() for words in together.split(_SEPARATOR)]


def _together(texts: Sequence[str]) -> str:
    """The texts, joined by ``_SEPARATOR``."""
    together = _SEPARATOR.join(texts)
    if together.count(_SEPARATOR) >= len(texts):  # a text contains it
        together = _SEPARATOR.join(text.replace(_SEPARATOR, "\n") for text in texts)
    return together


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
