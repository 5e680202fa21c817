"""Times as whole microseconds since 1970-01-01T00:00:00Z.

Ordering of events and windows use these integers. They are parsed from RFC 3339 text or from Unix
seconds as a JSON number.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

MICROS: Final = 1_000_000
DAY_US: Final = 86_400 * MICROS

_EPOCH: Final = datetime(1970, 1, 1)  # in UTC
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_DAYS_BEFORE_MONTH: Final = (0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_DAYS_IN_MONTH: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH_DAYS: Final = 719_528  # days from 0000-01-01 to 1970-01-01 in the proleptic calendar


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; the year 0000 exists in RFC 3339, hence not ``datetime``."""
    leaps = (year + 3) // 4 - (year + 99) // 100 + (year + 399) // 400
    after_february = 1 if month > 2 and _is_leap(year) else 0
    return 365 * year + leaps + _DAYS_BEFORE_MONTH[month] + after_february + day - 1 - _EPOCH_DAYS


def parse_rfc3339(text: str) -> int | None:
    """The instant of an RFC 3339 date-time in microseconds, or None if ``text`` is not one.

    The grammar is that of RFC 3339: ``T`` or ``t`` between date and time, then ``Z``, ``z`` or
    ``±hh:mm``. Leap seconds are rejected. Decimals after the sixth are truncated.

    >>> parse_rfc3339("1970-01-01T01:00:00.0000019+01:00")
    1
    >>> parse_rfc3339("2024-02-30T00:00:00Z") is None
    True
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59 or day < 1:
        return None
    if day > _DAYS_IN_MONTH[month] and not (month == 2 and day == 29 and _is_leap(year)):
        return None
    seconds = _days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
    sign = match.group(8)
    if sign is not None:
        off_hour, off_minute = int(match.group(9)), int(match.group(10))
        if off_hour > 23 or off_minute > 59:
            return None
        offset = off_hour * 3600 + off_minute * 60
        seconds -= offset if sign == "+" else -offset
    fraction = match.group(7)
    micros = int((fraction + "00000")[:6]) if fraction else 0
    return seconds * MICROS + micros


def rfc3339(instant_us: int) -> str:
    """The inverse of ``parse_rfc3339`` in UTC; raises ``OverflowError`` outside years 1 to 9999.

    >>> rfc3339(1_718_020_800_000_001)
    '2024-06-10T12:00:00.000001Z'
    """
    moment = _EPOCH + timedelta(microseconds=instant_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros_of_seconds(seconds: float) -> int:
    """Unix seconds to microseconds: the double's exact value times 10⁶, rounded half to even.

    >>> micros_of_seconds(1718010925.5)
    1718010925500000
    >>> micros_of_seconds(0.0000005), micros_of_seconds(0.0000015)
    (0, 2)
    """
    return round_scaled(float(seconds), MICROS)


def round_scaled(value: float, scale: int) -> int:
    """``value * scale`` rounded once to the nearest integer, halves to even.

    The product uses the exact value of the double, so that the result is equal on all machines.

    >>> round_scaled(0.375, 10**9)
    375000000
    >>> round_scaled(2.5, 1), round_scaled(3.5, 1), round_scaled(-2.5, 1)
    (2, 4, -2)
    """
    numerator, denominator = value.as_integer_ratio()
    quotient, rest = divmod(numerator * scale, denominator)
    twice = 2 * rest
    if twice > denominator or (twice == denominator and quotient & 1):
        quotient += 1
    return quotient
