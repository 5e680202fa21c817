"""The figures of a ``report.json`` by the names that conditions and pages use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.without_ids import WithoutIds
from stream_metrics.core.metrics.labels import nothing_labelled
from stream_metrics.core.metrics.registry import BASES, BLOCKS, ITERATIONS, QUOTIENTS, metrics_at
from stream_metrics.lab.evaluation.observations import MACRO, MACRO_SUFFIX, uses_labels
from stream_metrics.lab.metrics.generation import BY_NAME as ANSWERS

SCHEMA_VERSION: Final = 1
"""The schema version of ``report.json``."""
PARTS: Final = ("value", "n", "sd", "ci_low", "ci_high")
MICRO: Final = {one.name: one.reported for one in QUOTIENTS if one.place not in BLOCKS}
"""Quotients of sums over all rows, with their keys in a report."""
DECISIONS: Final = metrics_at("gate", "routing", "reranking")
COUNTS: Final = (
    "events", "invalid", "stale", "forgotten", "conversations", "turns", "iterations", "results",
    "unique", "duplicates", "good_unique", "labelled", "unlabelled", "searches",
    "queried_searches", *(metric.key for metric in metrics_at("count")), "orphan_labels",
)  # fmt: skip
REPLAY_FIGURES: Final = (
    *MICRO,
    *(name + MACRO_SUFFIX if name in MICRO else name for name in MACRO),
    *(f"{ITERATIONS}.{basis}" for basis in BASES),
    *(metric.name for metric in DECISIONS),
    *(f"counts.{name}" for name in COUNTS),
    *ANSWERS,
)
"""The figures that every report of a replay has."""


def figures_of_report(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Every figure of a report, with its interval if the report has one.

    Figures that depend on labels have no value if documents were found and none has a label.

    >>> found = figures_of_report({"retrieval": {"metrics": {"mrr": {"mean": 0.5, "n": 4}}}})
    >>> found["mrr"]["value"], found["mrr"]["ci_low"]
    (0.5, None)
    """
    found: dict[str, dict[str, float | None]] = {}
    if report.get("aggregate") is not None:
        found |= _replayed(report)
    for block in (report.get("retrieval"), report.get("generation")):
        for name, one in ((block or {}).get("metrics") or {}).items():
            found[name] = _parts(one, "mean")
    return found


def _replayed(report: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    aggregate = report["aggregate"]
    intervals = aggregate.get("micro_intervals") or {}
    found = {}
    for name, key in MICRO.items():
        one = intervals.get(key) or {}
        found[name] = _parts(one, "value")
        found[name]["value"] = aggregate["micro"].get(key, one.get("value"))
    for name, one in aggregate["macro"].items():
        found[name + MACRO_SUFFIX if name in found else name] = _parts(one, "mean")
    for basis, one in aggregate[ITERATIONS].items():
        found[f"{ITERATIONS}.{basis}"] = _parts(one, "mean")
    for metric in DECISIONS:
        name, value = metric.name, (report.get(metric.place) or {}).get(metric.key)
        found[name] = {**_parts(intervals.get(name) or {}, "value"), "value": value}
    if without_labels(report):
        found |= {name: _parts({}, "value") for name in found if uses_labels(name)}
    for name, count in (report.get("counts") or {}).items():
        if not isinstance(count, dict):  # `labelled_by` is one
            found[f"counts.{name}"] = {"value": count}
    return found | {name: _parts({}, "mean") for name in ANSWERS}


_NOTHING: Final = BeyondLimit()


def beyond_limit_of(report: Mapping[str, Any], rows: BeyondLimit = _NOTHING) -> BeyondLimit:
    """What a report says is missing in its figures, or else what its ``rows`` say."""
    said = report.get("beyond_limit")
    if not said:
        return rows
    found = BeyondLimit(*(said.get(name, 0) for name in BeyondLimit._fields))
    return found.at_least(rows.turns)


def without_ids_of(report: Mapping[str, Any]) -> WithoutIds:
    """What a report says could not be compared with ground truth."""
    said = report.get("without_doc_id") or {}
    return WithoutIds(*(said.get(name, 0) for name in WithoutIds._fields))


def without_labels(report: Mapping[str, Any]) -> bool:
    """Whether documents were found and none of them has a label."""
    counts = report.get("counts") or {}
    return nothing_labelled(counts.get("unique", 0), counts.get("labelled", 0))


def _parts(one: Mapping[str, Any], key: str) -> dict[str, float | None]:
    return {"value": one.get(key), **{part: one.get(part) for part in PARTS[1:]}}
