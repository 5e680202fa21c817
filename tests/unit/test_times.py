"""Instants: RFC 3339 against the standard library's calendar, numbers against fractions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stream_metrics.core.events.times import micros_of_seconds, parse_rfc3339, round_scaled

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FOUR_CENTURIES_US = 146_097 * 86_400 * 10**6
OFFSETS = st.integers(-(23 * 60 + 59), 23 * 60 + 59)


def written(naive: datetime, offset: int, digits: str, letters: str) -> str:
    """``naive`` as RFC 3339 text with ``offset`` minutes and the decimals ``digits``."""
    sign, (hours, minutes) = "-" if offset < 0 else "+", divmod(abs(offset), 60)
    zone = letters[1] if offset == 0 else f"{sign}{hours:02}:{minutes:02}"
    date = f"{naive.year:04}-{naive.month:02}-{naive.day:02}"
    time = f"{naive.hour:02}:{naive.minute:02}:{naive.second:02}"
    return f"{date}{letters[0]}{time}{'.' + digits if digits else ''}{zone}"


@given(
    st.datetimes(),
    OFFSETS,
    st.text("0123456789", max_size=12),
    st.sampled_from(["TZ", "tz", "Tz", "tZ"]),
)
def test_any_instant_is_read_like_the_standard_library(
    naive: datetime, offset: int, digits: str, letters: str
) -> None:
    """Any instant of the years 1 to 9999 is read as the standard library computes it."""
    micros = int(digits[:6].ljust(6, "0"))
    zone = timezone(timedelta(minutes=offset))
    # The offset is taken off by hand: near the years 1 and 10000 an aware datetime cannot hold it.
    since = naive.replace(microsecond=micros, tzinfo=UTC) - EPOCH - zone.utcoffset(None)
    assert parse_rfc3339(written(naive, offset, digits, letters)) == since // MICROSECOND


def reference(text: str) -> int | None:
    """``text`` read with a split and the constructor of ``datetime``, which checks the ranges."""
    parts = [int(part) for part in re.split(r"[^0-9]+", text.rstrip("Zz"))]
    year, month, day, hour, minute, second = parts[:6]
    behind = text[19:]
    digits = re.split(r"[Zz+-]", behind)[0][1:]
    offset = timedelta()
    if text[-1] not in "Zz":
        hours, minutes = parts[-2:]
        if hours > 23 or minutes > 59:
            return None
        offset = timedelta(hours=hours, minutes=minutes) * (-1 if text[-6] == "-" else 1)
    try:
        naive = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    micros = int(digits[:6].ljust(6, "0"))
    return (naive - EPOCH - offset) // MICROSECOND + micros


SHAPE = re.compile(
    r"(?!0000)[0-9]{4}-[01][0-9]-[0-3][0-9][Tt][0-2][0-9]:[0-6][0-9]:[0-6][0-9]"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-2][0-9]:[0-6][0-9])"
)


@given(st.from_regex(SHAPE, fullmatch=True))
@example("1900-02-29T00:00:00Z")
@example("2000-02-29T00:00:00Z")
@example("2024-12-31T23:59:60Z")
@example("2024-12-31T23:59:59-23:59")
def test_text_of_the_right_shape_is_an_instant_if_its_numbers_are_in_range(text: str) -> None:
    """Text of the right shape is an instant if and only if each number is in its range."""
    assert parse_rfc3339(text) == reference(text)


@given(
    st.datetimes(max_value=datetime(9999, 12, 31)).map(lambda naive: written(naive, 90, "5", "TZ")),
    st.integers(0, 30),
    st.sampled_from(["", " ", "0", "\n", "\u0660", "\uff11", "T", ":", "-", "\x00", "Z"]),
)
def test_one_wrong_character_follows_the_grammar(text: str, place: int, wrong: str) -> None:
    """An added, removed or foreign character is refused unless the grammar permits the result."""
    assume(place < len(text))
    for changed in (text[:place] + wrong + text[place:], text[:place] + wrong + text[place + 1 :]):
        if SHAPE.fullmatch(changed) is not None:
            assert parse_rfc3339(changed) == reference(changed)
        elif not changed.startswith("0000"):  # see test_the_year_zero_exists
            assert parse_rfc3339(changed) is None


@given(st.text())
def test_arbitrary_text_never_raises(text: str) -> None:
    """The result for any text is None or an integer."""
    assert parse_rfc3339(text) is None or re.match(r"[0-9]{4}-", text)


@given(st.datetimes(datetime(400, 1, 1), datetime(400, 12, 31)), OFFSETS)
def test_the_year_zero_exists(naive: datetime, offset: int) -> None:
    """The year 0000 exists, is a leap year, and lies four centuries before the year 400."""
    later = written(naive, offset, "", "TZ")
    instant = parse_rfc3339(later)
    assert instant is not None
    assert parse_rfc3339("0000" + later[4:]) == instant - FOUR_CENTURIES_US


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.0000019Z", 1),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00." + "9" * 5_000 + "Z", 999_999),
        ("1969-12-31T00:01:00-23:59", 0),
        ("2000-02-29T00:00:00Z", 951_782_400_000_000),
        ("9999-12-31T23:59:59.999999-23:59", 253_402_387_139_999_999),
    ],
)
def test_known_instants_are_exact(text: str, expected: int) -> None:
    """They are computed by hand, some with decimals that are truncated and not rounded."""
    assert parse_rfc3339(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "Z", "2024-06-10", "2024-06-10T09:15:25", "2024-06-10 09:15:25Z", "2024-06-10T09:15Z",
        "2024-6-10T09:15:25Z", "24-06-10T09:15:25Z", "+2024-06-10T09:15:25Z", "2024-161T09:15:25Z",
        "2024-W24-1T09:15:25Z", "20240610T091525Z", "2024-06-10T09:15:25.Z",
        "2024-06-10T09:15:25,5Z",
        "2024-06-10T09:15:25+02", "2024-06-10T09:15:25+0200", "2024-06-10T09:15:25+2:00",
        "2024-06-10T09:15:25\u221202:00", "2024-06-10T09:15:25+24:00", "2024-06-10T09:15:25+00:60",
        "2024-06-10T24:00:00Z", "2024-06-10T23:60:00Z", "2024-06-10T23:59:60Z",
        "2024-06-10T09:15:25 Z", " 2024-06-10T09:15:25Z", "2024-06-10T09:15:25Z\n",
        "2024-06-10T09:15:25ZZ", "2024-06-10T09:15:25Z+00:00", "2024-06-10T09:15:25UTC",
        "2024-00-10T09:15:25Z", "2024-13-10T09:15:25Z", "2024-06-00T09:15:25Z",
        "2024-06-31T09:15:25Z", "2023-02-29T09:15:25Z", "2100-02-29T09:15:25Z",
        "-001-06-10T09:15:25Z", "12024-06-10T09:15:25Z", "\u0662\u0660\u0662\u0664-06-10T09:15:25Z",
    ],
)  # fmt: skip
def test_forms_outside_rfc_3339_are_refused(text: str) -> None:
    """These include forms of ISO 8601 that RFC 3339 does not have."""
    assert parse_rfc3339(text) is None


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(0, 5e9)
    | st.integers(0, 2**40).map(lambda n: n / 128)
    | st.integers(-(10**15), 10**15)
)
def test_numbers_are_exact(seconds: float) -> None:
    """A number becomes the nearest microsecond of its exact value, halves to even."""
    assert micros_of_seconds(seconds) == round(Fraction(float(seconds)) * 10**6)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 10**12))
def test_scaling_is_exact(value: float, scale: int) -> None:
    """The same holds for every scale."""
    assert round_scaled(value, scale) == round(Fraction(value) * scale)
