"""State is kept for as long as estimates and late labels need it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.cells import ESTIMATES
from stream_metrics.core.engine.window import parse_window, windows_by_group

WEEK: dict[str, Any] = {"metrics": {"windows": ["1h", "24h", "7d"]}}


def test_a_week_of_estimates_needs_a_week_of_state() -> None:
    """A window of seven days is refused with a shorter ``state.ttl``, and has estimates."""
    with pytest.raises(ValidationError, match="as long as the longest window"):
        Settings(**WEEK)
    specs = Settings(**WEEK, state={"ttl": "7d"}).metrics.window_specs()

    assert [window.name for window in specs if "L" in window.heads] == ["24h", "7d"]
    assert ESTIMATES not in windows_by_group(specs)


def test_the_windows_of_estimates_can_be_chosen() -> None:
    """``series_windows`` names them like those of other groups."""
    chosen = {"windows": ["1h", "24h"], "series_windows": {"estimates": ["1h"]}}
    specs = Settings(metrics=chosen).metrics.window_specs()

    assert windows_by_group(specs)[ESTIMATES] == ["1h"]


def test_labels_that_come_late_need_state_for_as_long() -> None:
    """``labels.delay`` may not be longer than ``state.ttl``."""
    late: dict[str, Any] = {"labels": {"delay": "2d"}}
    with pytest.raises(ValidationError, match=r"as long as `labels\.delay`"):
        Settings(**late)

    assert Settings(**late, state={"ttl": "2d"}).labels.delay_ms == 172_800_000
    with pytest.raises(ValidationError, match="is not a duration"):
        Settings(labels={"delay": "soon"})


@pytest.mark.parametrize("name", ["1d", "60m", "0.5d", "49h0", "d"])
def test_a_window_has_few_names(name: str) -> None:
    """Days are written from two on; hours may be written as well."""
    with pytest.raises(ValueError, match=r"write it as|is not a duration"):
        parse_window(name)
    assert parse_window("2d").length_us == parse_window("48h").length_us
