"""Comparable forms of texts, times and numbers, computed without caches."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

Form = tuple[str, object]

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def fold(text: str, canonical: bool) -> str:
    """Fold the case; if `canonical`, of what is left when accents are put in order."""
    if not canonical:
        return text.casefold()
    folded = "".join(sign.casefold() for sign in unicodedata.normalize("NFC", text))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", folded))


def normalise(text: str, canonical: bool) -> str:
    """Fold the case and collapse white space."""
    return " ".join(fold(text, canonical).split())


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 in the proleptic Gregorian calendar, year 0 included."""
    before = year * 365 + (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400
    before -= 1970 * 365 + (1970 + 3) // 4 - (1970 + 99) // 100 + (1970 + 399) // 400
    for index in range(month - 1):
        before += _MONTH_DAYS[index] + (1 if index == 1 and _is_leap(year) else 0)
    return before + day - 1


def rfc3339(text: str) -> int | None:
    """Read a strict RFC 3339 time as UTC microseconds; None if it is not one."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[n]) for n in range(1, 7))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return None
    last = 29 if month == 2 and _is_leap(year) else _MONTH_DAYS[month - 1]
    if not 1 <= day <= last:
        return None
    offset = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 60 + minutes) * (-1 if match[8] == "-" else 1)
    seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset * 60
    return seconds * 1_000_000 + int(((match[7] or "") + "000000")[:6])


def text_form(text: str | None, canonical: bool) -> Form | None:
    """The form of a result's own title, snippet or content, which is always a text."""
    if text is None:
        return None
    folded = normalise(text, canonical)
    return ("text", folded) if folded else None


def field_form(value: object, canonical: bool) -> Form | None:
    """The form of an entry of `fields`; None if it counts as absent."""
    if value is None:
        return None
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float):
        return ("number", Fraction(value))
    if isinstance(value, str):
        folded = normalise(value, canonical)
        if not folded:
            return None
        instant = rfc3339(folded)
        return ("text", folded) if instant is None else ("instant", instant)
    assert isinstance(value, list)
    forms = [form for one in value if (form := field_form(one, canonical)) is not None]
    if not forms:
        return None
    if len(forms) == 1:
        return forms[0]
    return ("list", tuple(sorted(forms, key=repr)))
