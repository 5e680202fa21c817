"""The names, help and text form of the series of windows, as Prometheus knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from stream_metrics.core.engine.cells import CODES, split_code

PREFIX: Final = "streammetrics_window_"
MAX_SERIES: Final = 20_000
"""How many series of windows a worker exports at most, with those about them."""
META_SERIES: Final = 2
"""How many there are about them, with the same prefix."""
HELP: Final = {head: f"{series.help}, over a sliding window." for head, series in CODES.items()}


def series_line(
    dimension: str,
    agent: str,
    window: str,
    code: str,
    more: Sequence[tuple[str, str]] = (),
) -> tuple[str, str]:
    """The head of a series' code, and its line up to the value; ``more`` are further labels.

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
