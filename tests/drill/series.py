"""Simulated sums as OpenMetrics with timestamps, under the names of a real worker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from stream_metrics.core.engine.cells import CODES, split_code
from stream_metrics.core.engine.series import PREFIX
from tests.drill.library import LEFT_OUT, Numbers
from tests.drill.world import MINUTE, SECOND, START_US

WINDOWS: Final = Path(__file__).with_name("windows")
WINDOW_RECORDING: Final = (  # in this order: each asks for what the ones before it record
    WINDOWS / "recording.rules.yml",
    WINDOWS / "usual.rules.yml",
)
# The former rules did not know these; fixed thresholds for them are tried over the same windows.
OF_LOOPS: Final[Mapping[str, set[str]]] = {
    family: {"5m", "30m"} for family in ("repeated_searches", "queried_searches", "empty_searches")
}
TARGET: Final = {"job": "stream-metrics", "instance": "worker-1:9464"}
_ASKED: Final = re.compile(rf"{PREFIX}(\w+)\{{([^}}]*)\}}")
_WINDOW: Final = re.compile(r'\bwindow="(\w+)"')


class Series(NamedTuple):
    """One series: its name, its labels, and its value at each minute."""

    name: str
    labels: Mapping[str, str]
    values: Numbers | NDArray[np.floating[Any]]


def asked_for(rules: Iterable[str]) -> dict[str, set[str]]:
    """Which window families, and which of their windows, the rules ask for.

    >>> asked_for(['sum(streammetrics_window_results{window="5m"}) > 0'])
    {'results': {'5m'}}
    """
    found: dict[str, set[str]] = {}
    for text in rules:
        for family, labels in _ASKED.findall(text):
            windows = _WINDOW.findall(labels)
            assert windows, f"a rule asks for all windows of {family} at once"
            found.setdefault(family, set()).update(windows)
    return found


def window_codes(asked: Mapping[str, set[str]]) -> dict[str, tuple[str, ...]]:
    """By window, the codes of the series that somebody asks for."""
    windows = sorted({window for of in asked.values() for window in of})
    return {window: tuple(_codes(asked, window)) for window in windows}


def window_series(agent: str, sums: Mapping[str, Mapping[str, Numbers]]) -> Iterator[Series]:
    """The agent's series of sums by window and code."""
    for window, by_code in sums.items():
        for code, values in by_code.items():
            series, chosen = split_code(code)
            labels = dict(zip(series.labels, chosen, strict=True))
            yield Series(
                PREFIX + series.name,
                {**TARGET, "agent": agent, "window": window, **labels},
                values,
            )


def _codes(asked: Mapping[str, set[str]], window: str) -> Iterator[str]:
    for head, series in CODES.items():
        if head in LEFT_OUT or window not in asked.get(series.name, ()):
            continue
        for values in product(*(known or ("any",) for known in series.values)):
            yield "|".join((head, *values))


def write(path: Path, series: Sequence[Series], minutes: range, left_out: frozenset[int]) -> None:
    """The samples of ``minutes``, but for those ``left_out`` (a scrape that failed)."""
    kept = [minute for minute in minutes if minute not in left_out]
    stamps = [f" {(START_US + minute * MINUTE) // SECOND}\n" for minute in kept]
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    with path.open("w", encoding="utf-8") as file:
        for name, members in by_name.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            file.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
            for one in members:
                _samples(file, one, kept, stamps)
        file.write("# EOF\n")


def _samples(file: TextIO, one: Series, kept: list[int], stamps: list[str]) -> None:
    labels = ",".join(f'{label}="{value}"' for label, value in one.labels.items())
    head = f"{one.name}{{{labels}}} "
    values = one.values[kept].tolist()
    file.write(
        "".join([f"{head}{value}{stamp}" for value, stamp in zip(values, stamps, strict=True)])
    )
