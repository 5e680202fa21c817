"""Window sums at one time, computed from the turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from .dedup import NAMED_TYPES
from .labelled import unit_entries
from .report import canonical
from .retrieval import scores
from .turns import Turn

_SECOND = 1_000_000
WINDOWS = {
    "1m": 60 * _SECOND,
    "5m": 300 * _SECOND,
    "30m": 1800 * _SECOND,
    "1h": 3600 * _SECOND,
    "6h": 21_600 * _SECOND,
    "24h": 86_400 * _SECOND,
}
_LONG = ("5m", "1h", "24h")
_ROWS: dict[str, tuple[str, ...]] = {
    "turn_metric_sum": _LONG,
    "turn_metric_count": _LONG,
    "iteration_results": ("1h", "24h"),
    "iteration_duplicate_results": ("1h", "24h"),
    "iteration_gain": ("1h", "24h"),
    "queried_searches": _LONG,
    "repeated_searches": _LONG,
    "empty_searches": _LONG,
    "iterations_without_new": _LONG,
    "trailing_without_new": _LONG,
    "duplicates": ("5m", "1h"),
    "gate_decisions": _LONG,
    "routed_searches": _LONG,
    "rerank_ndcg_sum": _LONG,
    "rerank_ndcg_count": _LONG,
    "retrieval_sum": _LONG,
    "retrieval_count": _LONG,
    "label_sums": ("24h",),
}
MAX_AGENTS = 50
MAX_ROUTES = 20

Labels = tuple[tuple[str, str], ...]
# time, name, agent, further labels, value
Entry = tuple[int, str, str, Labels, int]


def billionths(value: float) -> int:
    """A figure in billionths, as it is summed."""
    return round(Fraction(value) * 1_000_000_000)


def entries(turn: Turn) -> Iterable[Entry]:
    """All entries that a turn adds to the windows."""
    for iteration in turn.iterations():
        time, agent = turn.time_of(iteration), turn.agent_of(iteration)[0]
        for name, labels, value in _of_iteration(turn, iteration):
            yield time, name, agent, labels, value
    counted = turn.counted()
    if counted:
        time, agent = turn.time_of(counted[-1]), turn.agent_of(counted[-1])[0]
        for name, labels, value in _of_turn(turn):
            yield time, name, agent, labels, value


def _of_iteration(turn: Turn, iteration: int) -> Iterable[tuple[str, Labels, int]]:
    decision, needed = turn.decision_of(iteration), turn.needed(iteration)
    if decision is not None:
        yield "gate_decisions", (("decision", decision), ("needed", _tri(needed))), 1
    if iteration not in turn.counted():
        return
    counts = turn.iteration_counts(iteration)
    searches = turn.searches_of(iteration)
    yield "iterations", (), 1
    yield "searches", (), len(searches)
    yield "results", (), counts["results"]
    yield "unique_results", (), counts["unique"]
    yield "duplicate_results", (), counts["duplicates"]
    yield "good_results", (), counts["good_unique"]
    yield "labelled_results", (), counts["labelled"]
    yield "gain", (), counts["gain"]
    if turn.options.loops:
        yield "queried_searches", (), turn.queried(iteration)
        yield "repeated_searches", (), turn.repeated(iteration)
        yield "empty_searches", (), turn.empty(iteration)
        yield "iterations_without_new", (), int(counts["unique"] == 0)
    if counts["labelled"] * 10 >= counts["unique"] * 9:
        yield "settled_iterations", (), 1
        yield "settled_results", (), counts["results"]
        yield "settled_good_results", (), counts["good_unique"]
        yield "settled_gain", (), counts["gain"]
    number = turn.counted().index(iteration) + 1
    place = (("iteration", str(number) if number <= 8 else "9+"),)
    yield "iteration_results", place, counts["results"]
    yield "iteration_duplicate_results", place, counts["duplicates"]
    yield "iteration_gain", place, counts["gain"]
    for one in turn.found:
        if one.iteration == iteration and one.placement.verdict is not None:
            same = turn.found[one.placement.first].iteration == iteration
            yield (
                "duplicates",
                (
                    ("entity_type", one.kind if one.kind in NAMED_TYPES else "other"),
                    ("evidence", str(one.placement.verdict.evidence)),
                    ("span", "same_iteration" if same else "earlier_iteration"),
                ),
                1,
            )
    for won in searches:
        search_id, route = won.entry["search_id"], won.entry["route"]
        if route is not None:
            optimal = turn.optimal(search_id)
            correct = _tri(None if optimal is None else optimal == route)
            yield "routed_searches", (("route", route), ("correct", correct)), 1
        pair = turn.rerank_of(search_id)
        if pair is not None:
            yield "rerank_ndcg_count", (), 1
            yield "rerank_ndcg_sum", (("order", "shown"),), billionths(pair[0])
            yield "rerank_ndcg_sum", (("order", "baseline"),), billionths(pair[1])
        for metric, value in scores(turn, search_id, turn.options.retrieval).items():
            yield "retrieval_count", (("metric", metric),), 1
            yield "retrieval_sum", (("metric", metric),), billionths(value)


def _of_turn(turn: Turn) -> Iterable[tuple[str, Labels, int]]:
    yield "turns", (), 1
    if turn.options.loops:
        yield "trailing_without_new", (), turn.trailing()
    last = turn.iteration_rows()[-1]
    figures = {name: last[name] for name in ("srr", "sre", "rg", "drg", "rag", "drag")}
    all_good, basis = turn.all_good()
    if all_good is not None:
        figures[f"iterations_for_all_good_results_{basis}"] = all_good
    for metric, value in figures.items():
        yield "turn_metric_count", (("metric", metric),), 1
        yield "turn_metric_sum", (("metric", metric),), billionths(value)


def _tri(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def windows_text(turns: list[Turn], now: int) -> str:
    """The text of `windows.json` at one time."""
    everything = [entry for turn in turns for entry in entries(turn)] + [*unit_entries(turns)]
    agents = sorted({entry[2] for entry in everything})[:MAX_AGENTS]
    routes = sorted({dict(entry[3])["route"] for entry in everything if "route" in dict(entry[3])})
    sums: Counter[Labels] = Counter()
    for time, name, agent, labels, value in everything:
        capped = tuple(
            (key, text if key != "route" or text in routes[:MAX_ROUTES] else "other")
            for key, text in labels
        )
        for window in _ROWS.get(name, tuple(WINDOWS)):
            width = WINDOWS[window] // 60
            if now // width - 59 <= time // width <= now // width:
                head = (
                    ("name", name),
                    ("agent", agent if agent in agents else "other"),
                    ("window", window),
                )
                sums[(*head, *capped)] += value
    ordered = sorted(
        ((key, value) for key, value in sums.items() if value != 0),
        key=lambda item: tuple(text for _, text in item[0]),
    )
    document = {
        "schema_version": 1,
        "now": now,
        "sums": [{**dict(key), "value": value} for key, value in ordered],
    }
    return canonical(document) + "\n"
