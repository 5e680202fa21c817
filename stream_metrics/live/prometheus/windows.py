"""The windows as Prometheus gauges: sums at wall-clock time over the partitions of this worker.

A scrape has two steps. ``prepare`` runs on the event loop and only copies references to buckets;
``render`` runs in a thread and does the work. The sums are kept between scrapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Final

from stream_metrics.core.engine.cells import CODES, escape, retrieval_codes, split_code
from stream_metrics.core.engine.config import OTHER
from stream_metrics.core.engine.series import HELP, MAX_SERIES, META_SERIES, PREFIX, series_line
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.window_sums import WindowSums
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.metrics.ranking.names import RankedMetric

Key = tuple[str, str]  # window, series code
Metrics = tuple[RankedMetric, ...]


def _values(known: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(map(escape, known or ()))


_CORE: Final = tuple(code for code, series in CODES.items() if not series.group)
_CLOSED: Final = {
    head: tuple("|".join((head, *chosen)) for chosen in product(*map(_values, series.values)))
    for head, series in CODES.items()
    if series.group and None not in series.values
}  # all codes of the families whose label values are known in advance

_SERIES_HELP: Final = "Window series in this scrape."
_CUT_HELP: Final = "Window series left out because folding agents into other was not enough."
_FOLDED_HELP: Final = (
    "Agents counted as other in this scrape to stay within the limit of window series."
)


@dataclass(frozen=True, slots=True)
class Selection:
    """The series of one scrape, by agent.

    ``folded`` is the number of agents that were added to ``other`` to stay within the limit,
    ``cut`` the number of series left out because ``other`` alone exceeds it.
    """

    series: dict[str, dict[Key, int]] = field(default_factory=dict)
    folded: int = 0
    cut: int = 0

    @property
    def size(self) -> int:
        """The number of series."""
        return sum(map(len, self.series.values()))


def select(agents: dict[str, dict[Key, int]], ranked: Sequence[str], limit: int) -> Selection:
    """Fold agents into ``other``, the last of ``ranked`` first, until ``limit`` series are left.

    This preserves sums over all agents, unless ``other`` alone exceeds ``limit``: then only its
    first ``limit`` series, in the order of families, are kept.
    """
    other = dict(agents.get(OTHER, {}))
    kept = {agent: agents[agent] for agent in ranked if agent != OTHER}
    size, folded = sum(map(len, kept.values())), 0
    for agent in reversed(tuple(kept)):
        if size + len(other) <= limit:
            break
        series = kept.pop(agent)
        size -= len(series)
        folded += 1
        for key, value in series.items():
            other[key] = other.get(key, 0) + value
    cut = max(0, len(other) - limit)
    if cut:
        heads = {head: at for at, head in enumerate(CODES)}
        order = sorted(other, key=lambda key: (heads[key[1].partition("|")[0]], key))
        other = {key: other[key] for key in order[:limit]}
    return Selection({**kept, OTHER: other} if other else kept, folded, cut)


def with_zeros(
    series: Mapping[Key, int], windows: tuple[Window, ...], retrieval: Metrics = ()
) -> dict[Key, int]:
    """An agent's series, with 0 for known label values that were not counted.

    All label values are known except routes, of which those that the agent has in any window are
    known. Of ranked metrics, those that are configured are included.
    """
    padded = {**_closed(windows, retrieval), **series}
    routes = {code.rpartition("|")[0] for _, code in series if code.startswith("R|")}
    _, answers = CODES["R"].values
    for route, window in product(sorted(routes), windows):
        if "R" in window.heads:
            for answer in answers or ():
                padded.setdefault((window.name, f"{route}|{answer}"), 0)
    return padded


@lru_cache(maxsize=8)
def _closed(windows: tuple[Window, ...], retrieval: Metrics) -> dict[Key, int]:
    ranked = {
        codes[0].partition("|")[0]: codes
        for codes in zip(*retrieval_codes(retrieval), strict=True)
    }  # fmt: skip
    return {
        (window.name, code): 0
        for head, codes in {**_CLOSED, **ranked}.items()
        for window in windows
        if head in window.heads
        for code in codes
    }


class WindowCollector:
    """The window gauges, at most ``max_series`` of them.

    ``partitions`` returns the windows of the partitions that this worker owns, ``now_us`` the wall
    clock. ``configured`` agents have series from the start and are folded last. ``dimension`` is
    the name of the label for agents (``release`` if they are releases). ``retrieval`` are the
    ranked metrics to export.
    """

    def __init__(
        self,
        partitions: Callable[[], Sequence[Windows]],
        now_us: Callable[[], int],
        max_series: int = MAX_SERIES,
        *,
        configured: Collection[str] = (),
        dimension: str = "agent",
        retrieval: Metrics = (),
    ) -> None:
        self._dimension = dimension
        self._retrieval = retrieval
        self._partitions = partitions
        self._now_us = now_us
        self._limit = max_series - META_SERIES
        self._configured = frozenset(configured)
        self._lock = threading.Lock()
        self._prepared: tuple[dict[Windows, Windows], int] = ({}, 0)
        self._running = WindowSums()
        self._known: dict[str, bool] = {}  # whether this release has the series, by code
        self._lines: dict[str, dict[Key, tuple[str, str]]] = {}

    def prepare(self) -> None:
        """Take a snapshot for the next ``render``; call it on the event loop."""
        copies = {partition: partition.snapshot() for partition in self._partitions()}
        self._prepared = (copies, self._now_us())

    def render(self) -> str:
        """The families as text that is valid in both the Prometheus format and OpenMetrics."""
        with self._lock:
            chosen = self._select()
            families: dict[str, list[str]] = {
                head: [
                    f"# HELP {PREFIX}{series.name} {HELP[head]}\n"
                    f"# TYPE {PREFIX}{series.name} gauge\n"
                ]
                for head, series in CODES.items()
            }
            self._lines = {agent: self._lines.get(agent, {}) for agent in chosen.series}
            for agent, series_of in chosen.series.items():
                lines = self._lines[agent]
                if len(lines) > 2 * self._limit:
                    lines.clear()
                for key, value in series_of.items():
                    line = lines.get(key)
                    if line is None:
                        line = lines[key] = series_line(self._dimension, agent, *key)
                    families[line[0]].append(f"{line[1]}{value}\n")
        parts = ["".join(lines) for lines in families.values()]
        parts += (
            f"# HELP {name} {about}\n# TYPE {name} gauge\n{name} {number}\n"
            for name, about, number in (
                (f"{PREFIX}series", _SERIES_HELP, chosen.size),
                (f"{PREFIX}series_cut", _CUT_HELP, chosen.cut),
                ("streammetrics_agents_folded", _FOLDED_HELP, chosen.folded),
            )
        )
        return "".join(parts)

    def _select(self) -> Selection:
        partitions, now_us = self._prepared
        self._running.update(partitions, now_us)
        windows = {window for copy in partitions.values() for window in copy.windows}
        if not windows:
            return Selection()
        specs = tuple(sorted(windows, key=lambda window: window.length_us))
        names = [window.name for window in specs]
        agents = self._series(names)
        padded = {
            agent: with_zeros(series, specs, self._retrieval) for agent, series in agents.items()
        }
        if sum(map(len, padded.values())) <= self._limit:
            agents = padded
        return select(agents, self._ranked(agents, names[-1]), self._limit)

    def _series(self, windows: Sequence[str]) -> dict[str, dict[Key, int]]:
        """The series of each known agent; the core series also if they are 0."""
        zeros = {(window, code): 0 for window in windows for code in _CORE}
        known = {OTHER, *self._configured, *self._running.agents()}
        agents = {agent: zeros.copy() for agent in sorted(known)}
        if len(self._known) > self._limit:
            self._known.clear()
        for window, agent, sums in self._running.entries():
            for code, value in sums.items():
                if self._is_known(code):
                    agents[agent][window, code] = value
        return agents

    def _ranked(self, agents: Mapping[str, Mapping[Key, int]], window: str) -> list[str]:
        """Configured agents first, then those with the most results."""
        return sorted(agents, key=lambda a: (a not in self._configured, -agents[a][window, "r"], a))

    def _is_known(self, code: str) -> bool:
        """Whether it is a code of this release."""
        known = self._known.get(code)
        if known is None:
            series = CODES.get(code.partition("|")[0])
            known = series is not None and len(split_code(code)[1]) == len(series.labels)
            self._known[code] = known
        return known
