"""The windows as Prometheus gauges: sums at wall-clock time over the partitions of this worker.

A scrape has two steps. ``prepare`` runs on the event loop and only copies references to buckets;
``render`` (or ``collect``) runs in a thread and does the work. The sums are kept between scrapes,
and only buckets that changed, entered their window or left it are added or subtracted. Sums are
integers, so that no error accumulates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from stream_metrics.core.engine.cells import CODES, Series, escape, retrieval_codes, split_code
from stream_metrics.core.engine.codec import decode_sums
from stream_metrics.core.engine.config import OTHER, WINDOW_BUCKETS
from stream_metrics.core.engine.series import HELP, MAX_SERIES, META_SERIES, PREFIX, series_line
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.windows import Sums, Windows, add
from stream_metrics.core.metrics.ranking.names import RankedMetric

Key = tuple[str, str]  # window, series code
Bucket = tuple[int, str]  # number, agent
Metrics = tuple[RankedMetric, ...]


def _values(known: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(map(escape, known or ()))


_CORE: Final = tuple(code for code, series in CODES.items() if not series.group)
_CLOSED: Final = {
    head: tuple("|".join((head, *chosen)) for chosen in product(*map(_values, series.values)))
    for head, series in CODES.items()
    if series.group and None not in series.values
}  # all codes of the families whose label values are known in advance


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


class RunningSums:
    """Sums by window and agent over the buckets of several partitions."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, Sums]] = {}
        self._held: dict[Windows, dict[str, dict[Bucket, bytes]]] = {}

    def update(self, partitions: Mapping[Windows, Windows], now_us: int) -> None:
        """Update the sums to ``now_us``; ``partitions`` maps each partition to its snapshot."""
        for gone in self._held.keys() - partitions.keys():
            for name, before in self._held.pop(gone).items():
                self._change(name, before, {})
        for partition, copy in partitions.items():
            held = self._held.setdefault(partition, {})
            for window in copy.windows:
                last = now_us // window.bucket_us
                first = last - WINDOW_BUCKETS + 1
                buckets = copy.buckets[window.name]
                inside = {at: sums for at, sums in buckets.items() if first <= at[0] <= last}
                self._change(window.name, held.get(window.name, {}), inside)
                held[window.name] = inside

    def _change(
        self, window: str, before: Mapping[Bucket, bytes], after: Mapping[Bucket, bytes]
    ) -> None:
        for at, sums in after.items():
            old = before.get(at)
            if old is sums:
                continue
            if old is not None:
                self.add(window, at, decode_sums(old), -1)
            self.add(window, at, decode_sums(sums), 1)
        for at in before.keys() - after.keys():
            self.add(window, at, decode_sums(before[at]), -1)

    def add(self, window: str, at: Bucket, sums: Sums, sign: int) -> None:
        """Add what a bucket has, or subtract what it had."""
        add(self.sums.setdefault(window, {}).setdefault(at[1], {}), sums, sign)


class WindowCollector(Collector):
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
        self._running = RunningSums()
        self._parsed: dict[str, tuple[str, Series, tuple[str, ...]] | None] = {}
        self._lines: dict[str, dict[Key, tuple[str, str]]] = {}

    def prepare(self) -> None:
        """Take a snapshot for the next ``render``; call it on the event loop."""
        copies = {partition: partition.snapshot() for partition in self._partitions()}
        self._prepared = (copies, self._now_us())

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The families without series."""
        yield from (_family(head, series, self._dimension) for head, series in CODES.items())
        yield from _selection_families(Selection())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The families, for a registry; about eight times as slow as ``render``."""
        with self._lock:
            chosen = self._select()
            families = {
                head: _family(head, series, self._dimension) for head, series in CODES.items()
            }
            for agent, window, code, value in _flattened(chosen):
                parsed = self._parse(code)
                if parsed is not None:
                    families[parsed[0]].add_metric((agent, window, *parsed[2]), value)
        yield from families.values()
        yield from _selection_families(chosen)

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
        for about in _selection_families(chosen):
            parts.append(f"# HELP {about.name} {about.documentation}\n# TYPE {about.name} gauge\n")
            parts.extend(f"{about.name} {sample.value}\n" for sample in about.samples)
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
        known = {OTHER, *self._configured}
        for by_agent in self._running.sums.values():
            known.update(agent for agent, sums in by_agent.items() if sums)
        zeros = {(window, code): 0 for window in windows for code in _CORE}
        agents = {agent: zeros.copy() for agent in sorted(known)}
        if len(self._parsed) > self._limit:
            self._parsed.clear()
        for window, by_agent in self._running.sums.items():
            for agent, sums in by_agent.items():
                if sums:
                    series = agents[agent]
                    for code, value in sums.items():
                        if self._parse(code) is not None:
                            series[window, code] = value
        return agents

    def _ranked(self, agents: Mapping[str, Mapping[Key, int]], window: str) -> list[str]:
        """Configured agents first, then those with the most results."""
        return sorted(agents, key=lambda a: (a not in self._configured, -agents[a][window, "r"], a))

    def _parse(self, code: str) -> tuple[str, Series, tuple[str, ...]] | None:
        """A code's head, family and labels; None for a code of another release."""
        try:
            return self._parsed[code]
        except KeyError:
            parsed = None
            if code.partition("|")[0] in CODES:
                series, labels = split_code(code)
                if len(labels) == len(series.labels):
                    parsed = (code.partition("|")[0], series, labels)
            self._parsed[code] = parsed
            return parsed


def _flattened(chosen: Selection) -> Iterator[tuple[str, str, str, int]]:
    for agent, series in chosen.series.items():
        for (window, code), value in series.items():
            yield agent, window, code, value


def _family(head: str, series: Series, dimension: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(
        PREFIX + series.name, HELP[head], labels=(dimension, "window", *series.labels)
    )


def _selection_families(chosen: Selection) -> Iterator[GaugeMetricFamily]:
    yield GaugeMetricFamily(PREFIX + "series", "Window series in this scrape.", chosen.size)
    yield GaugeMetricFamily(
        PREFIX + "series_cut",
        "Window series left out because folding agents into other was not enough.",
        chosen.cut,
    )
    yield GaugeMetricFamily(
        "streammetrics_agents_folded",
        "Agents counted as other in this scrape to stay within the limit of window series.",
        chosen.folded,
    )
