"""Several runs against the first of them: values, differences, tests, strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from stream_metrics.evaluation.estimates import UnknownDimension
from stream_metrics.evaluation.observed import (
    MEAN,
    READ,
    Better,
    Kind,
    Observations,
    UnknownFigure,
    better_of,
    canonical_name,
)
from stream_metrics.statistics.comparison import TEST_RESAMPLES, Comparison, Test, compare
from stream_metrics.statistics.intervals import CONFIDENCE, estimate
from stream_metrics.statistics.resampling import SEED
from stream_metrics.statistics.several import ALPHA, FEW, MODERATE, holm
from stream_metrics.statistics.units import Units
from stream_metrics.statistics.unpaired import UnpairedTest, compare_unpaired

Block = dict[str, Any]

NOT_TESTED: Final = "neither higher nor lower is better: not tested"
OF_MEANS: Final = "the test is of the units' own means, not of the figure"
FIGURE_TESTS: Final = ("bootstrap", "plain_bootstrap", "permutation")
"""Tests of the figure itself, whatever it is."""


class Run(NamedTuple):
    """One directory.

    Attributes:
        name: As it is shown.
        files: Its rows, by the kind of file.
        report: Its ``report.json``; empty if it has none.
    """

    name: str
    files: Mapping[Kind, Observations]
    report: Mapping[str, Any]


class Method(NamedTuple):
    """How runs are compared.

    Attributes:
        paired: The test where they share units.
        unpaired: The one where they share none. None: ``welch`` for means with a value a unit,
            ``bootstrap`` for what Welch's test is not about: quotients of sums, and units with
            several values.
        alpha: The level of significance.
        resample_count, seed: Of tests that resample.
    """

    paired: Test = "bootstrap"
    unpaired: UnpairedTest | None = None
    alpha: float = ALPHA
    resample_count: int = TEST_RESAMPLES
    seed: int = SEED


def versus(
    runs: Sequence[Run],
    method: Method = Method(),  # noqa: B008 - a value, never changed
    *,
    metrics: Sequence[str] | None = None,
    dimensions: Sequence[str] = (),
) -> Block:
    """Compare runs with the first: the content of ``compare.json``.

    The p-values of all figures and runs are one family (Holm). Each stratum is one of its own.

    Args:
        runs: Two or more.
        method: Of the tests.
        metrics: Which figures; None: all that the first run and another have, without the means
            over rows of what is a quotient of sums as well.
        dimensions: What to split by.

    Raises:
        UnknownFigure: There is no such figure in the first and another run.
        UnknownDimension: No row has such a dimension.
        ValueError: There are no two runs, or nothing that the first has in common with another.
    """
    if len(runs) < 2:
        raise ValueError("give two runs or more: the first is what the others are compared with")
    kinds: list[Kind] = [
        kind
        for kind in READ
        if kind in runs[0].files and any(kind in run.files for run in runs[1:])
    ]
    if not kinds:
        raise ValueError(
            f"{runs[0].name} has rows of {_listed(runs[0].files)}, the others have rows of "
            f"{_listed({kind for run in runs[1:] for kind in run.files})}: nothing to compare"
        )
    by_kind = {kind: [run.files.get(kind) for run in runs] for kind in kinds}
    chosen = _chosen(runs[0].name, by_kind, metrics)
    names = [run.name for run in runs]
    for dimension in dimensions:
        _check(dimension, by_kind)
    return {
        "schema_version": 1,
        "runs": [
            {
                "name": run.name,
                "source": run.report.get("source"),
                "rows": {kind: len(run.files[kind].rows) for kind in sorted(run.files)},
            }
            for run in runs
        ],
        "test": method.paired,
        "unpaired_test": method.unpaired or "auto",
        "alpha": method.alpha,
        "confidence": CONFIDENCE,
        "resamples": method.resample_count,
        "notes": _notes(runs, by_kind),
        "family": _family(names, by_kind, chosen, method),
        "strata": {
            dimension: {
                stratum: _of_stratum(names, _stratum(by_kind, dimension, stratum), chosen, method)
                for stratum in _strata(by_kind, dimension)
            }
            for dimension in dict.fromkeys(dimensions)
        },
    }


_Rows = Mapping[Kind, Sequence[Observations | None]]


def _listed(kinds: Any) -> str:
    return " and ".join(sorted(kinds)) or "nothing"


def _chosen(first: str, by_kind: _Rows, metrics: Sequence[str] | None) -> dict[Kind, list[str]]:
    """The figures of each kind: those that the first run and another have."""
    shared: dict[Kind, list[str]] = {}
    anywhere: dict[str, None] = {}
    for kind, several in by_kind.items():
        names = [one.names if one is not None else [] for one in several]
        others = {name for found in names[1:] for name in found}
        shared[kind] = [name for name in names[0] if name in others]
        anywhere |= dict.fromkeys(name for found in names for name in found)
    known = [name for found in shared.values() for name in found]
    if not known:
        raise UnknownFigure(
            f"{first} and the others have no figure in common; there are "
            f"{', '.join(anywhere) or 'none'}"
        )
    if metrics is None:
        return {kind: [n for n in found if not n.endswith(MEAN)] for kind, found in shared.items()}
    wanted = []
    for text in metrics:
        name = canonical_name(text, known if text not in anywhere else [*known, text])
        if name not in known:
            raise UnknownFigure(
                f"{name} is not in {first} and another run; in both are {', '.join(known)}"
            )
        wanted.append(name)
    return {
        kind: [n for n in dict.fromkeys(wanted) if n in found] for kind, found in shared.items()
    }


# -- one family -------------------------------------------------------------------------------


def _family(
    names: Sequence[str], by_kind: _Rows, chosen: Mapping[Kind, Sequence[str]], method: Method
) -> Block:
    """Every figure of every kind, with p-values that are adjusted together."""
    tables: Block = {}
    tested: list[Block] = []
    for kind, several in by_kind.items():
        first = several[0]
        if first is None or not chosen[kind]:
            continue
        tables[kind] = {
            "unit": first.unit,
            "units": [None if one is None else len(one.units) for one in several],
            "metrics": {},
        }
        shared = [0 if one is None else len(first.units & one.units) for one in several]
        for name in chosen[kind]:
            figures = [None if one is None else one.figure(name) for one in several]
            block = _metric(names, name, figures, shared, method)
            tables[kind]["metrics"][name] = block
            if block["better"] != "neither":
                tested += block["comparisons"]
    adjusted = holm([one["p"] for one in tested])
    for one, p in zip(tested, adjusted, strict=True):
        one["p_adjusted"] = p
        one["significant"] = None if p is None else p < method.alpha
    for table in tables.values():
        for block in table["metrics"].values():
            for one in block["comparisons"]:
                one["verdict"] = _verdict(one, block["better"])
    return {"size": len(tested), "tables": tables, "notes": []}


def _metric(
    names: Sequence[str],
    name: str,
    figures: Sequence[Units | None],
    shared: Sequence[int],
    method: Method,
) -> Block:
    better = better_of(name)
    first = figures[0]
    assert first is not None
    return {
        "better": better,
        "values": [None if one is None else _value(one, method) for one in figures],
        "comparisons": [
            _compared(run, one, first, better, method, paired=bool(both))
            for run, one, both in zip(names[1:], figures[1:], shared[1:], strict=True)
            if one is not None
        ],
    }


def _value(units: Units, method: Method) -> Block:
    found = estimate(units, seed=method.seed)
    return {
        "value": found.mean,
        "n": found.n,
        "units": found.units,
        "sd": found.sd,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
    }


def _compared(
    run: str, units: Units, first: Units, better: Better, method: Method, *, paired: bool
) -> Block:
    both = len(set(units.keys) & set(first.keys))
    found: Comparison
    if paired:
        found = compare(
            units, first, method.paired, resample_count=method.resample_count, seed=method.seed
        )
    else:
        by_figure: UnpairedTest = "welch" if units.single and first.single else "bootstrap"
        test = method.unpaired or by_figure
        found = compare_unpaired(
            units, first, test, resample_count=method.resample_count, seed=method.seed
        )
    tested = better != "neither"
    return {
        "run": run,
        "paired": paired,
        "n": found.n,
        "only_in_first": first.size - both,
        "only_in_run": units.size - both,
        "first": found.b,
        "value": found.a,
        "difference": found.difference,
        "ci_low": found.ci_low,
        "ci_high": found.ci_high,
        "effect": found.effect,
        "effect_size": "d_z" if paired else "hedges_g",
        "test": found.test,
        "statistic": found.statistic if tested else None,
        "p": found.p if tested else None,
        "p_adjusted": None,
        "significant": None,
        "reason": _reason(found, units, first) if tested else NOT_TESTED,
    }


def _reason(found: Comparison, units: Units, first: Units) -> str | None:
    """Why p is not there, or what else it is of than the figure."""
    if found.p is None or found.test in FIGURE_TESTS or (units.single and first.single):
        return found.reason
    return found.reason or OF_MEANS


def _verdict(one: Block, better: Better) -> str | None:
    """``better`` or ``worse``, if the difference is significant and it matters which way."""
    if not one["significant"] or not one["difference"] or better == "neither":
        return None
    return "better" if (one["difference"] > 0) == (better == "higher") else "worse"


# -- strata -----------------------------------------------------------------------------------


def _check(dimension: str, by_kind: _Rows) -> None:
    known = {
        name
        for several in by_kind.values()
        for one in several
        if one is not None
        for row in one.rows
        for name in row.dimensions
    }
    if dimension not in known:
        there = ", ".join(sorted(known)) or "none"
        raise UnknownDimension(f"no row has the dimension {dimension!r}; there are: {there}")


def _strata(by_kind: _Rows, dimension: str) -> list[str]:
    """The strata that the first run and another have rows of."""
    found = set()
    for first, *others in by_kind.values():
        if first is not None:
            mine = set(first.strata(dimension))
            found |= {
                n for one in others if one is not None for n in mine & {*one.strata(dimension)}
            }
    return sorted(found)


def _of_stratum(
    names: Sequence[str], by_kind: _Rows, chosen: Mapping[Kind, Sequence[str]], method: Method
) -> Block:
    return {**_family(names, by_kind, chosen, method), "notes": _about_rows(names, by_kind)}


def _stratum(by_kind: _Rows, dimension: str, stratum: str) -> _Rows:
    return {
        kind: [None if one is None else one.strata(dimension).get(stratum) for one in several]
        for kind, several in by_kind.items()
    }


# -- what to know before reading --------------------------------------------------------------


def _notes(runs: Sequence[Run], by_kind: _Rows) -> list[str]:
    """Small samples, runs without shared units, other configurations and other sources."""
    notes = _about_rows([run.name for run in runs], by_kind)
    for run in runs[1:]:
        notes += _about_settings(runs[0], run)
    return notes


def _about_rows(names: Sequence[str], by_kind: _Rows) -> list[str]:
    """What each run lacks, and what is too small."""
    notes = []
    for kind, (one, *others) in by_kind.items():
        for run, other in zip(names[1:], others, strict=True):
            if one is None or other is None:
                notes.append(f"{names[0] if one is None else run} has no rows of {kind}")
            else:
                notes += _about_units(names[0], run, kind, one, other)
    return notes


def _about_units(
    first: str, run: str, kind: Kind, one: Observations, other: Observations
) -> list[str]:
    shared = len(one.units & other.units)
    about = f"{run} and {first}, {kind}"
    if not shared:
        fewest = min(len(one.units), len(other.units))
        small = f"; with {fewest:,} units on one side only large ones are seen"
        return [
            f"{about}: no {one.unit} is in both. The differences are unpaired"
            + (small if fewest < MODERATE else "")
        ]
    found = []
    alone = len(one.units) - shared, len(other.units) - shared
    if any(alone):
        found.append(
            f"{about}: {shared:,} shared units; {alone[0]:,} only in {first}, {alone[1]:,} only in "
            f"{run}. Differences are of shared units, values of all"
        )
    if shared < FEW:
        found.append(f"{about}: {shared:,} shared units: fewer than {FEW} are a warning, no result")
    elif shared < MODERATE:
        found.append(
            f"{about}: {shared:,} shared units: with fewer than {MODERATE} only differences of "
            "some size are seen"
        )
    return found


def _about_settings(first: Run, run: Run) -> list[str]:
    notes = []
    if not (first.report and run.report):
        missing = [one.name for one in (first, run) if not one.report]
        return [f"{' and '.join(missing)}: no report.json, so settings are not compared"]
    mine, theirs = (_flat(one.report.get("config") or {}) for one in (first, run))
    for key in sorted(mine.keys() | theirs.keys()):
        if mine.get(key) != theirs.get(key):
            notes.append(
                f"setting {key}: {_shown(mine.get(key))} in {first.name}, "
                f"{_shown(theirs.get(key))} in {run.name}"
            )
    sources = [one.report.get("source") for one in (first, run)]
    if sources[0] != sources[1]:
        notes.append(
            f"sources: {_shown(sources[0])} in {first.name}, {_shown(sources[1])} in {run.name}"
        )
    return notes


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
