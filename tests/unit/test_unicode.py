"""Texts have the same forms whichever version of Unicode the interpreter has."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core import unicode

SOME = st.text(st.sampled_from("aAßİſKﬁé\u0301\u0323\u0345\u093c\u1100\u1161\u11a8\u00ad\u200b９"))


def test_it_has_the_characters_of_its_version() -> None:
    """Later versions assign more, and take none away."""
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    later = [c for c in every if unicodedata.category(c) == "Cn" and unicode.is_assigned(c)]
    assert later == []
    assert sum(not unicode.is_assigned(character) for character in every) == 829_834


@given(SOME)
def test_canonically_equivalent_texts_have_one_form(text: str) -> None:
    assert unicode.nfc(unicodedata.normalize("NFD", text)) == unicode.nfc(text)


@given(st.text(st.sampled_from("aﾊé\u0301\u0323\u0345\u0f71\u0f73\u0f81\uff9e\u0344"), max_size=60))
def test_long_runs_of_marks_are_put_in_order_like_short_ones(text: str) -> None:
    long = text * (400 // max(1, len(text)))
    assert unicode.nfc(long) == unicodedata.normalize("NFC", long)
    visible = long.replace("\u034f", "")
    assert unicode.compatible(long) == unicodedata.normalize("NFKC", visible)


def test_hostile_runs_of_marks_take_no_minutes() -> None:
    """In disorder, hundreds of thousands of them would be sorted by insertion, for hours."""
    for marks in ("\u0301\u0323", "\u0f73\u0f72", "\u0301\uff9e"):
        one, other = marks
        unicode.compatible("a" + one * 200_000 + other * 200_000)
        unicode.nfc("a" + marks * 200_000)


@given(SOME)
def test_a_compatible_form_is_its_own(text: str) -> None:
    once = unicode.compatible(text)
    assert unicode.compatible(once) == once


@pytest.mark.parametrize("later", ["\U00010efd", "\U0001e4ec", "\u0897"])
def test_a_character_that_came_later_combines_with_nothing(later: str) -> None:
    """These are combining marks of Unicode 15 and 16, before which no other may be put."""
    assert unicode.nfc(f"a{later}\u0323\u0301e\u0301") == f"a{later}\u0323\u0301\u00e9"


@pytest.mark.parametrize("later", ["\U00010d50", "\ua7cb", "\u1c89"])
def test_a_letter_that_came_later_has_no_lower_case(later: str) -> None:
    """These have one in Unicode 16."""
    assert unicode.casefold(f"É{later}") == f"é{later}"
