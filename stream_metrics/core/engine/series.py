"""Names, help and exposition format of the window series in Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_metrics.core.engine.cells import CODES, split_code

PREFIX: Final = "streammetrics_window_"
MAX_SERIES: Final = 20_000
"""The most window series that a worker exports, including those about its limits."""
META_SERIES: Final = 2
"""The number of series with this prefix that are about the windows themselves."""
HELP: Final = {head: f"{series.help}, over a sliding window." for head, series in CODES.items()}


def series_line(
    dimension: str,
    agent: str,
    window: str,
    code: str,
    more: Sequence[tuple[str, str]] = (),
) -> tuple[str, str]:
    """The family code of a series and its exposition line up to the value.

    ``more`` are further labels.

    >>> series_line("agent", "a", "5m", "tc|srr")[1]
    'streammetrics_window_turn_metric_count{agent="a",window="5m",metric="srr"} '
    """
    head = code.partition("|")[0]
    series, labels = split_code(code)
    names = (dimension, "window", *series.labels)
    pairs = (*zip(names, (agent, window, *labels), strict=True), *more)
    text = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs)
    return head, f"{PREFIX}{series.name}{{{text}}} "


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
