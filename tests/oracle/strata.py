"""Figures by stratum with their intervals, computed row by row and draw by draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from .report import AT_LAST

Row = Mapping[str, Any]
Block = dict[str, Any]

FACTS = ("agent", "release", "route")


class Way(NamedTuple):
    """How intervals are computed."""

    method: str
    confidence: float
    resamples: int
    seed: int


# -- a figure ---------------------------------------------------------------------------------


def mean_of(values: Iterable[tuple[str, float | None]], way: Way) -> Block:
    """The mean of all values; a conversation may have several."""
    known = [(unit, value) for unit, value in values if value is not None]
    return {
        "mean": _mean([value for _, value in known]),
        "n": len(known),
        "sd": _sd([value for _, value in known]),
        **_interval([(unit, value, 1.0) for unit, value in known], way),
    }


def quotient_of(values: Sequence[tuple[str, float, float]], way: Way) -> Block:
    """A quotient of sums; conversations whose denominator is 0 do not count."""
    by_unit = _by_unit(values)
    ratios = [above / below for above, below in by_unit]
    return {
        "value": _ratio(by_unit),
        "n": len(ratios),
        "sd": _sd(ratios),
        **_interval(values, way),
    }


def _interval(values: Sequence[tuple[str, float, float]], way: Way) -> Block:
    units = _by_unit(values)
    if len(units) < 2:
        return {"ci_low": None, "ci_high": None}
    tail = (1 - way.confidence) / 2
    if way.method == "t" and all(below == 1 for _, below in units):
        own = [above / below for above, below in units]
        middle, spread = _mean(own), _sd(own)
        assert middle is not None
        assert spread is not None
        half = float(t.ppf(1 - tail, len(own) - 1)) * spread / sqrt(len(own))
        return {"ci_low": middle - half, "ci_high": middle + half}
    draws = np.random.Generator(np.random.PCG64(way.seed))
    figures = []
    for _ in range(way.resamples):
        drawn = [units[at] for at in draws.integers(0, len(units), size=len(units))]
        figures.append(_ratio(drawn))
    figures.sort()
    return {"ci_low": _quantile(figures, tail), "ci_high": _quantile(figures, 1 - tail)}


def _by_unit(values: Iterable[tuple[str, float, float]]) -> list[tuple[float, float]]:
    """Both sums of each conversation by its id, except where the denominator is 0."""
    found: dict[str, tuple[float, float]] = {}
    for unit, above, below in values:
        before = found.get(unit, (0.0, 0.0))
        found[unit] = (before[0] + above, before[1] + below)
    return [found[unit] for unit in sorted(found) if found[unit][1]]


def _ratio(units: Sequence[tuple[float, float]]) -> Any:
    below = sum(one for _, one in units)
    return sum(one for one, _ in units) / below if units else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _sd(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    middle = sum(values) / len(values)
    return sqrt(sum((one - middle) ** 2 for one in values) / (len(values) - 1))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile, interpolated between the two nearest values."""
    place = share * (len(ordered) - 1)
    for at, (low, high) in enumerate(pairwise(ordered)):
        if at <= place <= at + 1:
            return low + (high - low) * (place - at)
    return ordered[-1]


# -- blocks of a report -----------------------------------------------------------------------


def of_rows(rows: Sequence[Row], searches: Sequence[Row], dimension: str, way: Way) -> Block:
    """The block ``strata`` for a dimension, from rows of conversations and of their searches."""
    stratum_of = {id(row): _stratum(row, searches, dimension) for row in rows}
    strata: dict[str, Block] = {}
    for name in _sorted_names(stratum_of.values()):
        own = [row for row in rows if stratum_of[id(row)] == name]
        macro = {
            one: mean_of([(row["conversation_id"], row[one]) for row in own], way)
            for one in AT_LAST
        }
        parts = [(row["conversation_id"], quotients(row)) for row in own]
        micro = {
            one: quotient_of([(unit, *found[one]) for unit, found in parts], way)
            for one in parts[0][1]
        }
        units = len({row["conversation_id"] for row in own})
        strata[name] = {
            "conversations": units, "note": _note(units), "macro": macro, "micro": micro,
        }  # fmt: skip
    across = {one: _across([found["macro"][one] for found in strata.values()]) for one in AT_LAST}
    return {
        "strata": strata,
        "without": sum(name is None for name in stratum_of.values()),
        "stratum_average": {one: found[0] for one, found in across.items()},
        "cross_stratum_variance": {one: found[1] for one, found in across.items()},
    }


def quotients(row: Row) -> dict[str, tuple[float, float]]:
    """The numerators and denominators of the metrics that are quotients of sums."""
    gate, routing, gain = row["gate"], row["routing"], row["gain"] or 0
    right_skips, right_searches = gate["correct_skip"], gate["correct_search"]
    decided = right_skips + right_searches + gate["missed"] + gate["wasted"]
    return {
        "srr": (row["duplicates"], row["results"]),
        "sre": (row["good_unique"], row["results"]),
        "avg_gain": (gain, row["results"]),
        "rg": (gain, row["n"]),  # the cumulative gain of a turn over its iterations
        "labelled": (row["labelled"], row["unique"]),
        "repeated_searches": (row["repeated_searches"] or 0, row["queried_searches"] or 0),
        "empty_searches": (row["empty_searches"], row["searches"]),
        "iterations_without_new": (row["iterations_without_new"], row["n"]),
        "trailing_without_new": (row["trailing_without_new"], row["n"]),
        "gate_efficiency": (right_skips, decided),
        "gate_accuracy": (right_skips + right_searches, decided),
        "skip_precision": (right_skips, right_skips + gate["missed"]),
        "skip_recall": (right_skips, right_skips + gate["wasted"]),
        "routing_accuracy": (routing["correct"], routing["labelled"]),
    }


def of_scores(rows: Sequence[Row], dimension: str, way: Way) -> Block:
    """``retrieval`` or ``generation`` for a dimension, from rows of searches or answers."""
    values = [_told(row).get(dimension) for row in rows]
    names = _sorted_names(values)
    chosen = {
        name: [row for row, value in zip(rows, values, strict=True) if value == name]
        for name in names
    }
    units = {name: len({row["conversation_id"] for row in chosen[name]}) for name in names}
    metrics = {}
    for metric in rows[0]["scores"]:
        found = {
            name: mean_of([(r["conversation_id"], r["scores"][metric]) for r in chosen[name]], way)
            for name in names
        }
        average, variance = _across(list(found.values()))
        metrics[metric] = {
            "strata": found, "stratum_average": average, "cross_stratum_variance": variance,
        }  # fmt: skip
    return {
        "units": units,
        "without": values.count(None),
        "notes": {name: _note(count) for name, count in units.items()},
        "metrics": metrics,
    }


def dimensions_of(rows: Sequence[Row], asked: Sequence[str]) -> list[str]:
    """The dimensions of scores: those requested that exist, else those with several values."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for name, value in _told(row).items():
            values.setdefault(name, set()).add(value)
    if asked:
        return [name for name in asked if name in values]
    several = sorted(name for name, known in values.items() if 2 <= len(known) <= 50)
    return sorted(several, key=lambda name: name != "language")


def known_dimensions(searches: Sequence[Row], answers: Sequence[Row]) -> set[str]:
    """All dimensions by which figures can be split."""
    return {*FACTS}.union(*(_told(row) for row in (*searches, *answers)))


def unasked(rows: Sequence[Row], searches: Sequence[Row]) -> list[str]:
    """The dimensions of rows by default: the language, if there are several."""
    languages = {_stratum(row, searches, "language") for row in rows} - {None}
    return ["language"] if 2 <= len(languages) <= 50 else []


def _stratum(row: Row, searches: Sequence[Row], dimension: str) -> str | None:
    if dimension == "agent":
        return str(row["agent"])
    if dimension == "release":
        return "none" if row["release"] is None else str(row["release"])
    if dimension == "route":
        return "+".join(sorted(row["routing"]["routes"])) or None
    own = [
        search["dimensions"]
        for search in searches
        if (search["conversation_id"], search["turn"]) == (row["conversation_id"], row["turn"])
    ]
    return own[0].get(dimension) if own else None


def _told(row: Row) -> dict[str, str]:
    return {"agent": row["agent"], "release": "none", **row["dimensions"]}


def _sorted_names(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value is not None})


def _across(found: Sequence[Block]) -> tuple[float | None, float | None]:
    """The unweighted mean of the strata's means, and the deviations from it."""
    means = [one["mean"] for one in found if one["mean"] is not None]
    middle = _mean(means)
    if middle is None:
        return None, None
    return middle, sum((one - middle) ** 2 for one in means) / len(means)


def _note(units: int) -> str | None:
    if units < 50:
        return "fewer than 50 units: a warning, not a result"
    return None if units >= 200 else "fewer than 200 units: only large differences can be detected"
