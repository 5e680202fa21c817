"""Figures and time series from window sums, as plain data.

A figure is ``{"value", "part", "whole"}``: ``value`` is ``part`` divided by ``whole``, or None if
``whole`` is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from stream_metrics.core.alerts.thresholds import BASELINE, RECENT
from stream_metrics.core.engine.cells import BY_SERIES, CODES, split_code
from stream_metrics.core.engine.cells import LOOPS as LOOPS_GROUP
from stream_metrics.core.engine.window import Window
from stream_metrics.core.engine.window_sums import sliding_sums
from stream_metrics.core.engine.windows import Sums, add
from stream_metrics.core.metrics.decisions import ratio
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.core.metrics.registry import BY_NAME, LABELLED_SHARE, Metric, metrics_at

SMOOTHED: Final = 5  # buckets per point of a series: a twelfth of the window
ROUTES_SHOWN: Final = 6

Figure = dict[str, Any]
Series = list[float | None]


def figure(part: int, whole: int) -> Figure:
    """A ratio with its numerator and denominator."""
    return {"value": ratio(part, whole), "part": part, "whole": whole}


def day_before(sums: Mapping[str, Sums], window: str = RECENT) -> Sums:
    """The sums of the last day without those of ``window``, which is the end of it.

    ``sums`` has the sums of each configured window. Empty if one of the two is not configured.

    >>> day_before({"24h": {"r": 50, "d": 9}, "1h": {"r": 20, "d": 9}})
    {'r': 30}
    """
    if BASELINE not in sums or window not in sums:
        return {}
    day = dict(sums[BASELINE])
    add(day, sums[window], -1)
    return day


def results_per_search(sums: Mapping[str, int]) -> Figure:
    """Results per search, including searches without results."""
    return figure(sums.get("r", 0), sums.get("s", 0))


def _over_windows(metric: Metric) -> Callable[[Mapping[str, int]], Figure]:
    """A function that computes a metric from the two window series that the registry names."""
    assert metric.series is not None
    above, below = (BY_SERIES[name] for name in metric.series)
    return lambda sums: figure(sums.get(above, 0), sums.get(below, 0))


srr: Final = _over_windows(BY_NAME["srr"])
sre: Final = _over_windows(BY_NAME["sre"])
gain: Final = _over_windows(BY_NAME["rg"])
coverage: Final = _over_windows(LABELLED_SHARE)
LOOPS: Final = {metric.name: _over_windows(metric) for metric in metrics_at("count")}
AT_THE_END: Final = "trailing_without_new"
OF_DECISIONS: Final = frozenset({"q", "R"})
OF_LOOPS: Final = frozenset(code for code, series in CODES.items() if series.group == LOOPS_GROUP)


def none_if_unlabelled(
    of: Callable[[Mapping[str, int]], Figure],
) -> Callable[[Mapping[str, int]], Figure]:
    """Wraps SRE or gain: no value if documents were found and none has a label.

    Iterations without new documents are settled without labels. Their sums alone say nothing about
    an agent whose results are never labelled.

    >>> unlabelled = {"r": 20, "u": 10, "si": 1, "sr": 10}
    >>> sre(unlabelled)["value"], none_if_unlabelled(sre)(unlabelled)["value"]
    (0.0, None)
    """

    def shown(sums: Mapping[str, int]) -> Figure:
        unknown = nothing_labelled(sums.get("u", 0), sums.get("l", 0))
        return figure(0, 0) if unknown else of(sums)

    return shown


def gate(sums: Mapping[str, int]) -> dict[str, Any]:
    """Decisions, the four cells of the labelled ones, and their ratios.

    ``saved`` is the share of the searches that were not needed which the gate skipped.
    """
    counts = _by_labels(sums, "q")
    cells = {
        "correct_skip": counts.get(("skip", "no"), 0),
        "missed": counts.get(("skip", "yes"), 0),
        "correct_search": counts.get(("search", "yes"), 0),
        "wasted": counts.get(("search", "no"), 0),
    }
    labelled = sum(cells.values())
    skips = sum(n for (decision, _), n in counts.items() if decision == "skip")
    return {
        **cells,
        "skips": figure(skips, sum(counts.values())),
        "efficiency": figure(cells["correct_skip"], labelled),
        "accuracy": figure(cells["correct_skip"] + cells["correct_search"], labelled),
        "missed_share": figure(cells["missed"], labelled),
        "saved": figure(cells["correct_skip"], cells["correct_skip"] + cells["wasted"]),
    }


def routing(sums: Mapping[str, int]) -> dict[str, Any]:
    """Searches by route, the most used first, and the share that took the best route."""
    routes: dict[str, dict[str, int]] = {}
    for (route, correct), n in _by_labels(sums, "R").items():
        row = routes.setdefault(route, {"yes": 0, "no": 0, "unknown": 0})
        row[correct] = row.get(correct, 0) + n
    searches = sum(sum(row.values()) for row in routes.values())
    rows: list[dict[str, Any]] = [
        {
            "route": route,
            "share": figure(sum(row.values()), searches),
            "accuracy": figure(row["yes"], row["yes"] + row["no"]),
        }
        for route, row in routes.items()
    ]
    rows.sort(key=lambda row: (-row["share"]["part"], row["route"]))
    right = sum(row["yes"] for row in routes.values())
    wrong = sum(row["no"] for row in routes.values())
    return {"accuracy": figure(right, right + wrong), "routes": rows}


def reranking(sums: Mapping[str, int]) -> Figure:
    """NDCG of the order shown over that of the original order; above 1, reranking helps."""
    return figure(sums.get("ks|shown", 0), sums.get("ks|baseline", 0))


def _by_labels(sums: Mapping[str, int], head: str) -> dict[tuple[str, ...], int]:
    """The sums of one family by the values of its labels."""
    width = len(CODES[head].labels)
    counts = {}
    for code, value in sums.items():
        if code.startswith(f"{head}|"):
            labels = split_code(code)[1]
            if len(labels) == width:
                counts[labels] = value
    return counts


def loops(sums: Mapping[str, int]) -> dict[str, Figure]:
    """The figures of loops, by name."""
    return {name: of(sums) for name, of in LOOPS.items()}


def window_with(heads: frozenset[str], windows: Sequence[Window], chosen: Window) -> Window | None:
    """The window whose figures of some families are shown: the shortest one with them that is at
    least as long as ``chosen``, else the longest one with them; None if no window has them.
    """
    able = sorted((w for w in windows if heads <= w.heads), key=lambda w: w.length_us)
    return next((w for w in able if w.length_us >= chosen.length_us), able[-1] if able else None)


def times(window: Window, now_us: int) -> list[float]:
    """When each of the 60 buckets begins, in Unix seconds."""
    return [number * window.bucket_us / 1e6 for number in window.numbers(now_us)]


def without(series: Any, unread: Sequence[bool]) -> Any:
    """The series with None for each bucket of which nothing has been read.

    >>> without({"srr": [0.5, 0.0], "routes": [{"route": "a", "share": [1.0, 1.0]}]}, [False, True])
    {'srr': [0.5, None], 'routes': [{'route': 'a', 'share': [1.0, None]}]}
    """
    if isinstance(series, dict):
        return {name: without(part, unread) for name, part in series.items()}
    if not isinstance(series, list):
        return series
    if all(isinstance(part, dict) for part in series):
        return [without(part, unread) for part in series]
    return [None if nothing else value for value, nothing in zip(series, unread, strict=True)]


def smoothed(buckets: Sequence[Sums]) -> list[Sums]:
    """The sums of each bucket and the ``SMOOTHED`` - 1 before it."""
    spans = (range(at - SMOOTHED + 1, at + 1) for at in range(len(buckets)))
    return [dict(sums) for sums in sliding_sums(dict(enumerate(buckets)), spans)]


def values(sliding: Iterable[Sums], of: Callable[[Sums], Figure]) -> Series:
    """A figure at each bucket."""
    return [of(sums)["value"] for sums in sliding]


def core_series(buckets: Sequence[Sums]) -> dict[str, Any]:
    """The series that every window has."""
    sliding = smoothed(buckets)
    return {
        "unique": [sums.get("u", 0) for sums in buckets],
        "duplicates": [sums.get("d", 0) for sums in buckets],
        "srr": values(sliding, srr),
        "sre": values(sliding, none_if_unlabelled(sre)),
        "gain": values(sliding, none_if_unlabelled(gain)),
        "coverage": values(sliding, coverage),
    }


def decision_series(buckets: Sequence[Sums]) -> dict[str, Any]:
    """The series of gate and routes; all but the most used routes are summed into one."""
    sliding = smoothed(buckets)
    total: Sums = {}
    for sums in buckets:
        add(total, sums, 1)
    names = [row["route"] for row in routing(total)["routes"]]
    shown = names[:ROUTES_SHOWN]
    by_route = [_searches(sums) for sums in sliding]
    shares: dict[str, Series] = {
        name: [ratio(counts.get(name, 0), sum(counts.values())) for counts in by_route]
        for name in shown
    }
    rest: Series = [
        ratio(sum(n for name, n in counts.items() if name not in shares), sum(counts.values()))
        for counts in by_route
    ]
    return {
        "skip_share": values(sliding, lambda sums: gate(sums)["skips"]),
        "gate_efficiency": values(sliding, lambda sums: gate(sums)["efficiency"]),
        "routing_accuracy": values(sliding, lambda sums: routing(sums)["accuracy"]),
        "routes": [{"route": name, "share": share} for name, share in shares.items()],
        "routes_rest": rest if len(names) > len(shown) else None,
    }


def loop_series(buckets: Sequence[Sums]) -> dict[str, Any]:
    """The series of the figures of loops.

    Iterations at the end of a turn all count at the turn's end, so that in a short time there may
    be more of them than iterations: they have no series.
    """
    sliding = smoothed(buckets)
    return {name: values(sliding, of) for name, of in LOOPS.items() if name != AT_THE_END}


def _searches(sums: Mapping[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (route, _), n in _by_labels(sums, "R").items():
        counts[route] = counts.get(route, 0) + n
    return counts
