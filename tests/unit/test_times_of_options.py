"""Times as options: both notations, and errors that name them."""

from __future__ import annotations

import pytest

from stream_metrics.cli.common import UsageError, parse_time

NOON = 1_714_564_800_000_000


@pytest.mark.parametrize("text", ["2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", str(NOON)])
def test_a_time_is_rfc_3339_or_microseconds(text: str) -> None:
    """Both denote the same time."""
    assert parse_time("--now", text) == NOON


@pytest.mark.parametrize(
    "text", ["today", "2024-05-01", "-2h", "1714564800", "1714564800000", "9" * 30]
)
def test_another_time_is_refused_with_the_formats(text: str) -> None:
    """Seconds and milliseconds are refused, because as microseconds they would be in 1970."""
    with pytest.raises(UsageError) as raised:
        parse_time("--now", text)

    assert str(raised.value).startswith("--now ")
    assert text in str(raised.value)
    assert "RFC 3339, such as 2024-05-01T12:00:00Z" in str(raised.value)
    assert "microseconds since 1970" in str(raised.value)
