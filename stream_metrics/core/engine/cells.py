"""Cells: the integer sums that a turn adds to the windows, each at a time and under an agent.

The ``sums`` of a cell map series codes to integers other than 0. Series codes are short because
they are stored; ``CODES`` defines them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

from stream_metrics.core.dedup.tables import type_names
from stream_metrics.core.dedup.verify import EVIDENCE
from stream_metrics.core.engine.config import OTHER, EngineConfig
from stream_metrics.core.engine.ranked import scores_of
from stream_metrics.core.engine.state import (
    NO_ROUTES,
    Cell,
    Iteration,
    Search,
    Turn,
)
from stream_metrics.core.events.times import round_scaled
from stream_metrics.core.metrics.decisions import NO_RELEASE, Rerank, rerank
from stream_metrics.core.metrics.label_sums import BOTH, SUMS
from stream_metrics.core.metrics.ranking.names import RankedMetric
from stream_metrics.core.metrics.registry import BASES, TURN_LABELS, WINDOWED
from stream_metrics.core.metrics.turn_totals import TurnTotals, settled

NANO: Final = 10**9


class Series(NamedTuple):
    """A family of series: its name, and its labels after ``agent`` and ``window``.

    ``values`` are the possible values of each label, None where input or settings determine them. A
    family without a ``group`` is in all windows. Of the default windows, one with a group is in
    ``windows``, unless the setting ``metrics.series_windows`` names others for its group.
    """

    name: str
    labels: tuple[str, ...] = ()
    group: str = ""
    windows: tuple[str, ...] | None = None
    help: str = ""
    values: tuple[tuple[str, ...] | None, ...] = ()


# Values of labels. Routes come from the input and ranked metrics from settings.
ITERATIONS: Final = ("1", "2", "3", "4", "5", "6", "7", "8", "9+")
DUPLICATE_TYPES: Final = (*type_names(), OTHER)
SPANS: Final = ("same_iteration", "earlier_iteration")
GATES: Final = ("search", "skip")
ANSWERS: Final = ("yes", "no", "unknown")
ORDERS: Final = ("shown", "baseline")

_MACRO: Final = ("5m", "1h", "24h")
_CURVE: Final = ("1h", "24h")
_ORIGIN: Final = ("5m", "1h")

LOOPS: Final = "loops"
"""The group of families that state under tables without ``loops`` does not count."""

ESTIMATES: Final = "estimates"
"""The group of the family from which estimates are made."""

# Series codes are ``CODE`` or ``CODE|label|label``. They are part of the stored format.
CODES: Final[dict[str, Series]] = {
    "r": Series("results", help="Results returned by searches"),
    "u": Series("unique_results", help="Results that were the first of their document in the turn"),
    "d": Series("duplicate_results", help="Results whose document the turn had already returned"),
    "g": Series("good_results", help="Unique documents labelled good"),
    "l": Series("labelled_results", help="Unique documents that have a label"),
    "i": Series("iterations", help="Iterations with a search"),
    "s": Series("searches", help="Searches"),
    "t": Series("turns", help="Turns with a search, each at its last iteration"),
    "G": Series("gain", help="Gain of good documents, each counted once"),
    "si": Series("settled_iterations", help="Iterations with labels for at least 90% of documents"),
    "sr": Series("settled_results", help="Results of settled iterations"),
    "sg": Series("settled_good_results", help="Good unique documents of settled iterations"),
    "sG": Series("settled_gain", help="Gain of settled iterations"),
    "ts": Series(
        "turn_metric_sum", ("metric",), "turns", _MACRO,
        "Sum of a metric over turns, at their last iteration, in billionths", (TURN_LABELS,),
    ),
    "tc": Series(
        "turn_metric_count", ("metric",), "turns", _MACRO, "Turns for which the metric is defined",
        (TURN_LABELS,),
    ),
    "ir": Series(
        "iteration_results", ("iteration",), "iterations", _CURVE,
        "Results by the iteration that returned them", (ITERATIONS,),
    ),
    "id": Series(
        "iteration_duplicate_results", ("iteration",), "iterations", _CURVE,
        "Duplicate results by the iteration that returned them", (ITERATIONS,),
    ),
    "iG": Series(
        "iteration_gain", ("iteration",), "iterations", _CURVE,
        "Gain by the iteration that first returned the document", (ITERATIONS,),
    ),
    "a": Series("queried_searches", (), LOOPS, _MACRO, "Searches with a query"),
    "aa": Series(
        "repeated_searches", (), LOOPS, _MACRO,
        "Searches whose query and route an earlier search of the turn had",
    ),
    "e": Series("empty_searches", (), LOOPS, _MACRO, "Searches without a result"),
    "n": Series(
        "iterations_without_new", (), LOOPS, _MACRO,
        "Iterations with a search that found no new document",
    ),
    "nt": Series(
        "trailing_without_new", (), LOOPS, _MACRO,
        "Iterations without a new document at the end of turns, at the last iteration",
    ),
    "D": Series(
        "duplicates", ("entity_type", "evidence", "span"), "duplicates", _ORIGIN,
        "Duplicate results by evidence and by where the document was first returned",
        (DUPLICATE_TYPES, EVIDENCE, SPANS),
    ),
    "q": Series(
        "gate_decisions", ("decision", "needed"), "gates", _MACRO,
        "Decisions to search or skip, by whether a search was needed", (GATES, ANSWERS),
    ),
    "R": Series(
        "routed_searches", ("route", "correct"), "routes", _MACRO,
        "Searches by route and by whether it was the best one", (None, ANSWERS),
    ),
    "ks": Series(
        "rerank_ndcg_sum", ("order",), "reranking", _MACRO,
        "Sum of NDCG over searches, after or before reranking, in billionths",
        (ORDERS,),
    ),
    "kc": Series(
        "rerank_ndcg_count", (), "reranking", _MACRO,
        "Searches whose orders before and after reranking could be compared",
    ),
    "rs": Series(
        "retrieval_sum", ("metric",), "retrieval", _MACRO,
        "Sum over searches of a metric in `metrics.retrieval`, in billionths", (None,),
    ),
    "rc": Series(
        "retrieval_count", ("metric",), "retrieval", _MACRO,
        "Searches for which the metric is defined", (None,),
    ),
    "L": Series(
        "label_sums", ("figure", "sample", "sum"), ESTIMATES, ("24h",),
        "Sums over conversations of random samples, for estimates; of NDCG in ten-thousandths. "
        "`unlabelled`: of what was drawn for the model and has no labels of it",
        (None, tuple(SUMS), SUMS[BOTH]),
    ),
}  # fmt: skip

GROUPS: Final = tuple(dict.fromkeys(series.group for series in CODES.values() if series.group))
"""The groups of families whose windows can be set."""
BY_SERIES: Final = {series.name: code for code, series in CODES.items()}
"""Series codes by family name."""

_CURVE_CODES: Final = tuple((f"ir|{n}", f"id|{n}", f"iG|{n}") for n in ("", *ITERATIONS))
_NEEDED: Final = {None: "unknown", True: "yes", False: "no"}
_GATE_CODES: Final = {
    (decision, needed): f"q|{decision}|{answer}"
    for decision in GATES
    for needed, answer in _NEEDED.items()
}
_DUPLICATE_CODES: Final = {
    (kind, evidence, same): f"D|{kind}|{evidence}|{SPANS[0] if same else SPANS[1]}"
    for kind in DUPLICATE_TYPES
    for evidence in EVIDENCE
    for same in (True, False)
}
# For each metric of turns: its function, and by basis the codes of its sum and its count.
_TURN_SUMS: Final = tuple(
    (
        metric.compute,
        {basis: (f"ts|{metric.label(basis)}", f"tc|{metric.label(basis)}") for basis in BASES},
    )
    for metric in WINDOWED
    if metric.compute is not None
)


def escape(label: str) -> str:
    """A label value in a series code, with ``|`` and ``%`` percent-encoded."""
    return label.replace("%", "%25").replace("|", "%7C")


def unescape(label: str) -> str:
    """The inverse of ``escape``."""
    return label.replace("%7C", "|").replace("%25", "%")


@lru_cache(maxsize=64)
def retrieval_codes(metrics: tuple[RankedMetric, ...]) -> tuple[tuple[str, str], ...]:
    """The codes of the sum and of the count of each ranked metric."""
    names = [escape(str(metric)) for metric in metrics]
    return tuple((f"rs|{name}", f"rc|{name}") for name in names)


@lru_cache(maxsize=8_192)
def split_code(code: str) -> tuple[Series, tuple[str, ...]]:
    """The family of a series code and the values of its labels.

    >>> split_code("D|File|url|same_iteration")[1]
    ('File', 'url', 'same_iteration')
    """
    head, *labels = code.split("|")
    return CODES[head], tuple(unescape(label) for label in labels)


def scaled(value: float) -> int:
    """``value`` times 10⁹ as an integer, rounded half to even on the double's exact value."""
    if value == 0.0:
        return 0
    if value == 1.0:
        return NANO
    guess = value * 1e9
    if 0.0 < guess < 1e11:
        nearest = int(guess + 0.5)
        if -0.499 < guess - nearest < 0.499:  # the error of the guess cannot reach a half
            return nearest
    return round_scaled(value, NANO)


def source(iteration: Iteration) -> tuple[int, str, str | None]:
    """An iteration's time in microseconds, and its agent and release."""
    if not iteration.searches:
        gate = iteration.gate
        assert gate is not None  # an iteration has a search or a gate decision
        return gate.occurred_us, gate.agent, gate.release
    latest = iteration.searches[0]
    time_us = latest.occurred_us
    for search in iteration.searches:
        if search.digest is not latest.digest:
            time_us = min(time_us, search.occurred_us)
            if search.version > latest.version:
                latest = search
    return time_us, latest.agent, latest.release


def iteration_cell(turn: Turn, iteration: Iteration, config: EngineConfig) -> Cell:
    """The cell of an iteration."""
    time_us, agent, release = source(iteration)
    sums: dict[str, int] = {_GATE_CODES[iteration.decision, iteration.needed]: 1}
    routes: list[str] = []
    if iteration.searches:
        _add_counts(sums, iteration, config)
        if config.rules.tables.loops:
            _add_loops(sums, iteration)
        if config.retrieval:
            _add_scores(sums, turn, iteration, config)
        for search in iteration.searches:
            if search.route is not None:
                routes.append(search.route)
                code = _route_code(search.route, search.optimal)
                sums[code] = sums.get(code, 0) + 1
            if search.baseline is None:
                continue
            compared = rerank(search.documents, search.baseline, turn.document_gains)
            if compared is not None:
                shown, baseline = compared
                sums["kc"] = sums.get("kc", 0) + 1
                if shown:
                    sums["ks|shown"] = sums.get("ks|shown", 0) + scaled(shown)
                if baseline:
                    sums["ks|baseline"] = sums.get("ks|baseline", 0) + scaled(baseline)
    known = frozenset(routes) if routes else NO_ROUTES
    return Cell(time_us, dimension_of(agent, release, config), sums, known)


def dimension_of(agent: str, release: str | None, config: EngineConfig) -> str:
    """The agent or release under which windows count an iteration."""
    return agent if config.dimension == "agent" else release or NO_RELEASE


@lru_cache(maxsize=1_024)
def _route_codes(route: str) -> tuple[str, str, str]:
    """The codes of searches by a route that was the best one, was not, or has no label."""
    name = escape(route)
    return f"R|{name}|yes", f"R|{name}|no", f"R|{name}|unknown"


def _route_code(route: str, optimal: str | None) -> str:
    yes, no, unknown = _route_codes(route)
    if optimal is None:
        return unknown
    return yes if optimal == route else no


def rerank_of(turn: Turn, search: Search) -> Rerank | None:
    """The reranking comparison of one search, None if it does not take part."""
    if search.baseline is None:
        return None
    compared = rerank(search.documents, search.baseline, turn.document_gains)
    return None if compared is None else Rerank(*compared)


def _add_counts(sums: dict[str, int], iteration: Iteration, config: EngineConfig) -> None:
    results, unique, gain = iteration.results, iteration.unique, iteration.gain
    duplicates = results - unique
    sums["i"] = 1
    sums["s"] = len(iteration.searches)
    curve = _CURVE_CODES[min(iteration.compact, 9)]
    if results:
        sums["r"] = sums[curve[0]] = results
        if unique:
            sums["u"] = unique
        if duplicates:
            sums["d"] = sums[curve[1]] = duplicates
            for origin, count in iteration.duplicates.items():
                sums[_DUPLICATE_CODES[origin]] = count
        if iteration.labelled:
            sums["l"] = iteration.labelled
        if iteration.good:
            sums["g"] = iteration.good
        if gain:
            sums["G"] = sums[curve[2]] = gain
    if settled(unique, iteration.labelled, config.settled_percent):
        sums["si"] = 1
        if results:
            sums["sr"] = results
        if iteration.good:
            sums["sg"] = iteration.good
        if gain:
            sums["sG"] = gain


def _add_loops(sums: dict[str, int], iteration: Iteration) -> None:
    if iteration.queried:
        sums["a"] = iteration.queried
    if iteration.repeated:
        sums["aa"] = iteration.repeated
    if iteration.empty:
        sums["e"] = iteration.empty
    if not iteration.unique:
        sums["n"] = 1


def _add_scores(
    sums: dict[str, int], turn: Turn, iteration: Iteration, config: EngineConfig
) -> None:
    codes = retrieval_codes(config.retrieval)
    for search in iteration.searches:
        scores = scores_of(turn, search, config)
        for (sum_code, count_code), value in zip(codes, scores, strict=False):  # maybe no scores
            if value is not None:
                sums[count_code] = sums.get(count_code, 0) + 1
                total = sums.get(sum_code, 0) + scaled(value)
                if total:
                    sums[sum_code] = total
                else:
                    sums.pop(sum_code, None)


def totals_of_turn(turn: Turn) -> TurnTotals:
    """The totals of a turn over all its counted iterations."""
    totals = empty_totals(turn)
    for iteration in turn.counted:
        add_iteration(totals, iteration)
    return totals


def empty_totals(turn: Turn) -> TurnTotals:
    """The totals of a turn before its first counted iteration."""
    return TurnTotals(
        ground_truth=turn.relevant is not None,
        qrels=turn.qrels,
        queries_known=not turn.queries_unknown,
    )


def add_iteration(totals: TurnTotals, iteration: Iteration) -> None:
    """Add the next counted iteration."""
    totals.add(
        iteration.results, iteration.unique, iteration.good, iteration.labelled, iteration.gain
    )
    totals.by_model += iteration.by_model
    totals.add_searches(
        len(iteration.searches), iteration.queried, iteration.repeated, iteration.empty
    )


def turn_cell(turn: Turn, config: EngineConfig) -> Cell | None:
    """The cell of a whole turn, at the time of its last counted iteration; None without one."""
    if not turn.counted:
        return None
    time_us, agent, release = source(turn.counted[-1])
    totals = totals_of_turn(turn)
    sums = {"t": 1}
    if totals.trailing and config.rules.tables.loops:
        sums["nt"] = totals.trailing
    for compute, codes in _TURN_SUMS:
        value: Any = compute(totals)
        if value is not None:
            sum_code, count_code = codes[totals.basis]
            number = scaled(value)
            if number:
                sums[sum_code] = number
            sums[count_code] = 1
    return Cell(time_us, dimension_of(agent, release, config), sums)


def cell_changes(
    turn: Turn, before: dict[int, Cell | None], before_turn: Cell | None, config: EngineConfig
) -> list[tuple[int, Cell]]:
    """Pass 3: the cells to subtract from (-1) and add to (+1) the windows for a changed turn.

    ``before`` has the former cells of the changed iterations, None for new iterations, and
    ``before_turn`` the former cell of the turn.
    """
    cells: list[tuple[int, Cell]] = []
    for number, old in before.items():
        iteration = turn.iterations.get(number)
        new = None
        if iteration is not None:
            new = iteration.cell = iteration_cell(turn, iteration, config)
        replace_cell(old, new, cells)
    turn.cell = turn_cell(turn, config)
    replace_cell(before_turn, turn.cell, cells)
    return cells


def replace_cell(old: Cell | None, new: Cell | None, cells: list[tuple[int, Cell]]) -> None:
    """Append what replaces ``old`` by ``new`` in the windows: where possible, the difference."""
    if old is None or new is None or old.time_us != new.time_us or old.agent != new.agent:
        if old is not None:
            cells.append((-1, old))
        if new is not None:
            cells.append((1, new))
    elif old.sums != new.sums:
        sums = _difference(old.sums, new.sums)
        cells.append((1, Cell(new.time_us, new.agent, sums, old.routes | new.routes)))


def _difference(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    """The sums that give ``new`` if added to ``old``."""
    found: dict[str, int] = {}
    for code, value in new.items():
        more = value - old.get(code, 0)
        if more:
            found[code] = more
    for code, value in old.items():
        if code not in new:
            found[code] = -value
    return found
