"""Metrics of answers, computed word by word from their definitions.

Articles and stopwords are data, and given. Nothing else is shared with the code under test.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from fractions import Fraction

ASCII_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
LIKE_PUNCTUATION = "ʹʺʻʼʽʾʿـ⁄−∕"
BY_CHARACTER = (
    "CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA",
    "COMBINING KATAKANA-HIRAGANA", "HANGUL",
)  # fmt: skip

# Of the definition of Default_Ignorable_Code_Point: what is not told by categories.
IGNORED = (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9))
SELECTORS = (0x180B, 0x180C, 0x180D, 0x180F, *range(0xFE00, 0xFE10))
VISIBLE_FORMATS = (
    *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, *range(0xFFF9, 0xFFFC), 0x110BD,
    0x110CD, *range(0x13430, 0x13440),
)  # fmt: skip


def invisible(sign: str) -> bool:
    """Whether nothing is to be shown for a character."""
    code = ord(sign)
    if code in IGNORED or code in SELECTORS or 0xE0000 <= code <= 0xE0FFF:
        return True
    return unicodedata.category(sign) == "Cf" and code not in VISIBLE_FORMATS


def folded(text: str) -> str:
    """The text without differences of compatible characters, of case, and in what is invisible."""
    seen = "".join(sign for sign in text if not invisible(sign))
    left = ""
    accents = False  # after a space that has accents
    for sign in unicodedata.normalize("NFKC", seen):
        if invisible(sign):
            continue
        accent = "\u0300" <= sign <= "\u036f"
        if accent and left.endswith(" ") and not accents:
            left = left[:-1]
            accents = True
        elif not (accent and accents):
            accents = False
            left += sign
    small = "".join(sign.casefold() for sign in left)
    return unicodedata.normalize("NFC", "i".join(small.split("i\u0307")))


def words(text: str, articles: Collection[str], version: int = 2) -> list[str]:
    """The words that count, found character by character."""
    found: list[str] = []
    word = ""
    for sign in (text.lower() if version == 1 else folded(text)) + " ":
        if sign in ASCII_PUNCTUATION or unicodedata.category(sign)[0] == "P":
            continue
        if sign in LIKE_PUNCTUATION and version > 1:
            continue
        alone = unicodedata.name(sign, "").startswith(BY_CHARACTER)
        if sign.isspace() or alone:
            found += [word] if word else []
            found += [sign] if alone else []
            word = ""
        else:
            word += sign
    return [one for one in found if one not in articles]


def f1(left: Sequence[str], right: Sequence[str]) -> Fraction:
    """The harmonic mean of the shares of words that each text has in common with the other."""
    if not left and not right:
        return Fraction(1)
    rest, shared = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    return _harmonic(shared, len(left), len(right))


def subsequence_f1(left: Sequence[str], right: Sequence[str]) -> Fraction:
    """The same for the words of the longest common subsequence."""
    if not left and not right:
        return Fraction(1)
    return _harmonic(_longest(left, right), len(left), len(right))


def _harmonic(shared: int, left: int, right: int) -> Fraction:
    if not shared:
        return Fraction(0)
    precision, recall = Fraction(shared, left), Fraction(shared, right)
    return 2 * precision * recall / (precision + recall)


def _longest(left: Sequence[str], right: Sequence[str]) -> int:
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
            )
    return table[-1][-1]


def scores(
    answer: str,
    references: Sequence[str],
    question: str | None,
    texts: Sequence[str],
    articles: Collection[str],
    stopwords: Collection[str],
) -> dict[str, Fraction | None]:
    """All scores of a turn with an answer; None where undefined."""
    names = (
        "exact_match", "token_f1", "rouge_l", "answer_relevance", "support_coverage",
        "support_density", "hallucination_rate",
    )  # fmt: skip
    found: dict[str, Fraction | None] = dict.fromkeys(names)
    said = words(answer, articles)
    goals = [words(reference, articles) for reference in references]
    if goals:
        found["exact_match"] = Fraction(any(said == goal for goal in goals))
        found["token_f1"] = max(f1(said, goal) for goal in goals)
        found["rouge_l"] = max(subsequence_f1(said, goal) for goal in goals)
    if question is not None:
        found["answer_relevance"] = f1(said, words(question, articles)) if said else Fraction(0)
    read = [word for text in texts for word in words(text, articles)]
    if not read:
        return found
    if not said:
        return found | {"support_coverage": Fraction(0), "support_density": Fraction(0)}
    content = {word for word in said if word not in stopwords}
    if content:
        there = [word for word in content if word in read]
        found["support_coverage"] = Fraction(len(there), len(content))
    density = Fraction(sum(word in read for word in said), len(said))
    return found | {"support_density": density, "hallucination_rate": 1 - density}
