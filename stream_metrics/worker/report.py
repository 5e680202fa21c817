"""The report of a replay: counts, micro and macro figures, and the blocks of 3.2, from the rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Any, Final

from stream_metrics.engine.row import Row
from stream_metrics.metrics.decisions import GateCounts, Rerank, ratio, reranking_row, routing_row
from stream_metrics.metrics.gain import ITERATIONS_CAP
from stream_metrics.statistics.intervals import estimate
from stream_metrics.statistics.units import Units

MACRO: Final = ("cg", "rg", "dcg", "drg", "rag", "drag", "sre", "srr")


def build_report(
    rows: Sequence[Row],
    counts: dict[str, int],
    reranks: Sequence[Rerank],
    source: list[str],
    config: dict[str, Any],
) -> dict[str, Any]:
    """The content of ``report.json``."""
    return {
        "schema_version": 1,
        "source": source,
        "config": config,
        "counts": counts,
        "aggregate": {
            "micro": _micro(rows),
            "macro": {name: _macro(rows, name) for name in MACRO},
            "iterations_for_all_good_results": {
                basis: _iterations(rows, basis) for basis in ("qrels", "retrieved")
            },
        },
        "strata": {},
        "gate": _gate(rows).row(),
        "routing": _routing(rows),
        "reranking": reranking_row(reranks),
        "retrieval": None,
        "generation": None,
    }


def _total(rows: Sequence[Row], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def _micro(rows: Sequence[Row]) -> dict[str, float | None]:
    results = _total(rows, "results")
    return {
        "srr": ratio(_total(rows, "duplicates"), results),
        "sre": ratio(_total(rows, "good_unique"), results),
        "avg_gain": ratio(_total(rows, "gain"), results),
    }


def _macro(rows: Sequence[Row], name: str) -> dict[str, Any]:
    found = estimate(Units.of_values((row["conversation_id"], row[name]) for row in rows))
    return {key: getattr(found, key) for key in ("mean", "n", "sd", "ci_low", "ci_high")}


def _iterations(rows: Sequence[Row], basis: str) -> dict[str, Any]:
    values = sorted(
        row["iterations_for_all_good_results"]
        for row in rows
        if row["all_good_basis"] == basis and row["iterations_for_all_good_results"] is not None
    )
    n = len(values)
    if not n:
        return {"n": 0, "mean": None, "median": None, "capped": None}
    median = (values[(n - 1) // 2] + values[n // 2]) / 2
    capped = sum(value >= ITERATIONS_CAP for value in values) / n
    return {"n": n, "mean": fsum(values) / n, "median": median, "capped": capped}


def _gate(rows: Sequence[Row]) -> GateCounts:
    return GateCounts(*(sum(row["gate"][name] for row in rows) for name in GateCounts._fields))


def _routing(rows: Sequence[Row]) -> dict[str, Any]:
    routes: dict[str, int] = {}
    for row in rows:
        for route, count in row["routing"]["routes"].items():
            routes[route] = routes.get(route, 0) + count
    labelled = sum(row["routing"]["labelled"] for row in rows)
    correct = sum(row["routing"]["correct"] for row in rows)
    return routing_row(routes, labelled, correct)
