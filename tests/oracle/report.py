"""Rows of `conversations.jsonl` and the counts of `report.json`."""

from __future__ import annotations

import json
from math import fsum
from typing import Any

from .turns import Turn, ratio

_TOTALS = ("results", "unique", "good_unique", "duplicates", "labelled")
AT_LAST = ("cg", "rg", "dcg", "drg", "rag", "drag", "sre", "srr")


def canonical(value: object) -> str:
    """Canonical JSON, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def share(numerator: int, denominator: int) -> float | None:
    """A ratio; null if the denominator is 0."""
    return numerator / denominator if denominator else None


def row(turn: Turn) -> dict[str, Any]:
    """The row of a turn."""
    iterations = turn.iteration_rows()
    n = len(iterations)
    last_iteration = turn.iterations()[-1:]
    agent, release = turn.agent_of(last_iteration[0]) if last_iteration else ("default", None)
    totals = {name: sum(one[name] for one in iterations) for name in _TOTALS}
    unlabelled = totals["unique"] - totals["labelled"]
    final: dict[str, Any] = dict.fromkeys(("gain", *AT_LAST, "sre_upper"))
    if n:
        final["gain"] = sum(one["gain"] for one in iterations)
        final.update({name: iterations[-1][name] for name in AT_LAST})
        final["sre_upper"] = ratio(totals["good_unique"] + unlabelled, totals["results"])
    all_good, basis = turn.all_good()
    duplicates_of = {
        one.raw["result_id"]: turn.found[one.placement.first].raw["result_id"]
        for index, one in enumerate(turn.found)
        if not turn.is_unique(index) and one.holds_handle
    }
    return {
        "conversation_id": turn.conversation,
        "turn": turn.number,
        "agent": agent,
        "release": release,
        "over_limit": False,
        "beyond_limit": {"searches": 0, "results": 0},
        "iterations": iterations,
        "n": n,
        **totals,
        "unlabelled": unlabelled,
        **_labelled_by(turn),
        **_loops(turn),
        **final,
        "iterations_for_all_good_results": all_good,
        "all_good_basis": basis,
        "duplicates_of": dict(sorted(duplicates_of.items())),
        "gate": _gate(turn),
        "routing": _routing(turn),
        "reranking": _reranking(turn),
    }


def _labelled_by(turn: Turn) -> dict[str, dict[str, int]]:
    found = turn.labelled_by()
    return {"labelled_by": found} if "model" in found else {}


def _loops(turn: Turn) -> dict[str, int | None]:
    counted, known = turn.counted(), turn.options.loops or not turn.searches
    return {
        "searches": len(turn.searches),
        "queried_searches": sum(map(turn.queried, counted)) if known else None,
        "repeated_searches": sum(map(turn.repeated, counted)) if known else None,
        "empty_searches": sum(map(turn.empty, counted)),
        "iterations_without_new": sum(turn.without_new()),
        "trailing_without_new": turn.trailing(),
    }


def _gate(turn: Turn) -> dict[str, Any]:
    cells = [(turn.decision_of(iteration), turn.needed(iteration)) for iteration in _all(turn)]
    correct_skip = cells.count(("skip", False))
    missed = cells.count(("skip", True))
    correct_search = cells.count(("search", True))
    wasted = cells.count(("search", False))
    labelled = correct_skip + missed + correct_search + wasted
    return {
        "search": sum(decision == "search" for decision, _ in cells),
        "skip": sum(decision == "skip" for decision, _ in cells),
        "labelled": labelled,
        "correct_skip": correct_skip,
        "missed": missed,
        "correct_search": correct_search,
        "wasted": wasted,
        "efficiency": share(correct_skip, labelled),
        "accuracy": share(correct_skip + correct_search, labelled),
        "skip_precision": share(correct_skip, correct_skip + missed),
        "skip_recall": share(correct_skip, correct_skip + wasted),
    }


def _all(turn: Turn) -> list[int]:
    return [n for n in turn.iterations() if turn.decision_of(n) is not None]


def _routing(turn: Turn) -> dict[str, Any]:
    routed = {
        search_id: won.entry["route"]
        for search_id, won in turn.searches.items()
        if won.entry["route"] is not None
    }
    routes = list(routed.values())
    labelled = [search_id for search_id in routed if turn.optimal(search_id) is not None]
    correct = sum(routed[search_id] == turn.optimal(search_id) for search_id in labelled)
    return {
        "routed": len(routed),
        "routes": {route: routes.count(route) for route in sorted(set(routes))},
        "labelled": len(labelled),
        "correct": correct,
        "accuracy": share(correct, len(labelled)),
    }


def _reranking(turn: Turn) -> dict[str, Any]:
    pairs = [pair for pair in map(turn.rerank_of, turn.searches) if pair is not None]
    defined = [(shown - base) / base for shown, base in pairs if base != 0]
    shown_mean = _mean([shown for shown, _ in pairs])
    base_mean = _mean([base for _, base in pairs])
    improvement = None
    if shown_mean is not None and base_mean:
        improvement = (shown_mean - base_mean) / base_mean
    return {
        "searches": len(pairs),
        "undefined": len(pairs) - len(defined),
        "ndcg_shown": shown_mean,
        "ndcg_baseline": base_mean,
        "improvement": improvement,
        "mean_improvement": _mean(defined),
    }


def _mean(values: list[float]) -> float | None:
    return fsum(values) / len(values) if values else None
