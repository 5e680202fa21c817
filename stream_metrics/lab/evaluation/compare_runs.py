"""Compare runs with the first one: values, differences, tests, strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict

from stream_metrics.core.metrics.decisions import FACTS
from stream_metrics.core.metrics.registry import metrics_at
from stream_metrics.lab.choices import ALPHA, SEED, TEST_RESAMPLES, Correction, Test
from stream_metrics.lab.evaluation.compare_estimates import compared_estimates
from stream_metrics.lab.evaluation.estimates import Intervals, UnknownDimension, with_intervals
from stream_metrics.lab.evaluation.notes import (
    Rows,
    Run,
    about_figures,
    about_rows,
    no_labels,
    notes_of,
    runs_without_labels,
)
from stream_metrics.lab.evaluation.observations import (
    MACRO_SUFFIX,
    READERS,
    Better,
    Kind,
    Observations,
    UnknownFigure,
    better_of,
    canonical_name,
    uses_labels,
)
from stream_metrics.lab.statistics.comparison import Comparison, compare
from stream_metrics.lab.statistics.strata_and_corrections import adjusted
from stream_metrics.lab.statistics.units import Units
from stream_metrics.lab.statistics.unpaired import UnpairedTest, compare_unpaired

Block = dict[str, Any]

GATE: Final = tuple(metric.name for metric in metrics_at("gate"))

NOT_TESTED: Final = "neither higher nor lower is better: not tested"
OF_MEANS: Final = "the test is of the units' own means, not of the figure"
WITHOUT_GATE: Final = (
    "figures of the gate are left out: turns without a search or an answer have no such dimension"
)
FIGURE_TESTS: Final = ("bootstrap", "plain_bootstrap", "permutation")
"""Tests of the figure itself rather than of the units' means."""


class Method(NamedTuple):
    """How runs are compared.

    Attributes:
        paired: The test for runs that share units.
        unpaired: The test for runs that share none. None: ``welch`` for means with one value per
            unit, ``bootstrap`` for quotients of sums and units with several values, to which
            Welch's test does not apply.
        alpha: The significance level.
        resample_count: The number of resamples of a test.
        seed: The seed of tests and of the intervals of differences.
        correction: How the p-values of a family are adjusted.
        intervals: How to compute the intervals of values. Those of differences are always
            percentile intervals. None: no bounds.
        tested: Whether differences are tested at all.
    """

    paired: Test = "bootstrap"
    unpaired: UnpairedTest | None = None
    alpha: float = ALPHA
    resample_count: int = TEST_RESAMPLES
    seed: int = SEED
    correction: Correction = "holm"
    intervals: Intervals | None = Intervals()
    tested: bool = True


def compare_runs(
    runs: Sequence[Run],
    method: Method = Method(),  # noqa: B008 - a value, never changed
    *,
    metrics: Sequence[str] | None = None,
    dimensions: Sequence[str] = (),
) -> Block:
    """Compare runs with the first one and return the content of ``compare.json``.

    The p-values of all figures and runs form one family. Each stratum is a family of its own.

    Args:
        runs: Two or more runs, the baseline first.
        method: How to compare.
        metrics: The figures to compare. None: all that the baseline and another run have, without
            the means over rows of figures that also have a quotient of sums.
        dimensions: The dimensions to split by.

    Raises:
        UnknownFigure: A figure is not in both the baseline and another run.
        UnknownDimension: No row has such a dimension.
        ValueError: There are fewer than two runs, or the baseline has no kind of rows in common
            with another.
    """
    if len(runs) < 2:
        raise ValueError("give two runs or more: the first is what the others are compared with")
    kinds: list[Kind] = [
        kind
        for kind in READERS
        if kind in runs[0].files and any(kind in run.files for run in runs[1:])
    ]
    if not kinds:
        raise ValueError(
            f"{runs[0].name} has rows of {_listed(runs[0].files)}, the others have rows of "
            f"{_listed({kind for run in runs[1:] for kind in run.files})}: nothing to compare"
        )
    by_kind = {kind: [run.files.get(kind) for run in runs] for kind in kinds}
    names = [run.name for run in runs]
    chosen = _chosen(names, by_kind, metrics)
    by_kind = {kind: several for kind, several in by_kind.items() if chosen[kind]}
    for dimension in dimensions:
        _check(dimension, by_kind)
    family = _family(names, by_kind, chosen, method)
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
        **_shown_method(method),
        **compared_estimates(runs),
        "notes": notes_of(runs, by_kind) + _about_family(names, by_kind, family),
        "family": family,
        "strata": {
            dimension: {
                stratum: _of_stratum(
                    names, _stratum(by_kind, dimension, stratum), chosen, left, method
                )
                for stratum in _strata(by_kind, dimension)
            }
            for dimension in dict.fromkeys(dimensions)
            for left in [_stratifiable(dimension, by_kind, chosen)]
        },
    }


def _shown_method(method: Method) -> Block:
    """The method as part of ``compare.json``."""
    intervals = method.intervals
    return {
        "significance_testing": method.tested,
        "test": method.paired,
        "unpaired_test": method.unpaired or "auto",
        "alpha": method.alpha,
        "correction": method.correction,
        "resamples": method.resample_count,
        "seed": method.seed,
        "interval": None if intervals is None else intervals.method,
        "confidence": None if intervals is None else intervals.confidence,
        "interval_resamples": None if intervals is None else intervals.resample_count,
    }


def _listed(kinds: Any) -> str:
    return " and ".join(sorted(kinds)) or "nothing"


def _chosen(
    runs: Sequence[str], by_kind: Rows, metrics: Sequence[str] | None
) -> dict[Kind, list[str]]:
    """The figures to compare, by kind: those that the baseline and another run have."""
    first = runs[0]
    unlabelled = dict.fromkeys(
        run for several in by_kind.values() for run in runs_without_labels(runs, several)
    )
    shared: dict[Kind, list[str]] = {}
    anywhere: dict[str, None] = {}
    for kind, several in by_kind.items():
        names = [of_run.names if of_run is not None else [] for of_run in several]
        others = {name for listed in names[1:] for name in listed}
        shared[kind] = [name for name in names[0] if name in others]
        anywhere |= dict.fromkeys(name for listed in names for name in listed)
    known = [name for listed in shared.values() for name in listed]
    if not known:
        raise UnknownFigure(
            f"{first} and the others have no figure in common; there are "
            f"{', '.join(anywhere) or 'none'}"
        )
    if metrics is None:
        return {
            kind: [n for n in listed if not n.endswith(MACRO_SUFFIX)]
            for kind, listed in shared.items()
        }
    wanted = []
    for text in metrics:
        if unlabelled and uses_labels(text) and not any(map(uses_labels, known)):
            raise UnknownFigure(f"{text} has no value, as {no_labels(unlabelled)}")
        name = canonical_name(text, known if text not in anywhere else [*known, text])
        if name not in known:
            raise UnknownFigure(
                f"{name} is not in {first} and another run; in both are {', '.join(known)}"
            )
        wanted.append(name)
    return {
        kind: [n for n in dict.fromkeys(wanted) if n in listed] for kind, listed in shared.items()
    }


# -- one family -------------------------------------------------------------------------------


def _family(
    names: Sequence[str], by_kind: Rows, chosen: Mapping[Kind, Sequence[str]], method: Method
) -> Block:
    """Compare every figure of every kind and adjust their p-values together."""
    tables: Block = {}
    tested: list[Block] = []
    for kind, several in by_kind.items():
        first = several[0]
        if first is None or not chosen[kind]:
            continue
        tables[kind] = {
            "unit": first.unit,
            "units": [None if of_run is None else len(of_run.units) for of_run in several],
            "metrics": {},
        }
        shared = [0 if of_run is None else len(first.units & of_run.units) for of_run in several]
        for name in chosen[kind]:
            figures = [None if of_run is None else of_run.figure(name) for of_run in several]
            block = _metric(names, name, figures, shared, method)
            tables[kind]["metrics"][name] = block
            if method.tested and block["better"] != "neither":
                tested += block["comparisons"]
    corrected = adjusted([comparison["p"] for comparison in tested], method.correction)
    for comparison, p in zip(tested, corrected, strict=True):
        comparison["p_adjusted"] = p
        comparison["significant"] = None if p is None else p < method.alpha
    for table in tables.values():
        for block in table["metrics"].values():
            for comparison in block["comparisons"]:
                comparison["verdict"] = _verdict(comparison, block["better"])
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
        "values": [None if units is None else _value(units, method) for units in figures],
        "comparisons": [
            _compared(run, units, first, better, method, paired=bool(both))
            for run, units, both in zip(names[1:], figures[1:], shared[1:], strict=True)
            if units is not None
        ],
    }


def _value(units: Units, method: Method) -> Block:
    estimate = with_intervals({"": units}, method.intervals)[""]
    return {
        "value": estimate.mean,
        "n": estimate.n,
        "units": estimate.units,
        "sd": estimate.sd,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
    }


def _compared(
    run: str, units: Units, first: Units, better: Better, method: Method, *, paired: bool
) -> Block:
    both = len(set(units.keys) & set(first.keys))
    tested = method.tested and better != "neither"
    comparison = _comparison(units, first, method, paired=paired, tested=tested)
    return {
        "run": run,
        "paired": paired,
        "n": comparison.n,
        "only_in_first": first.size - both,
        "only_in_run": units.size - both,
        "first": comparison.b,
        "value": comparison.a,
        "difference": comparison.difference,
        "ci_low": comparison.ci_low,
        "ci_high": comparison.ci_high,
        "effect": comparison.effect,
        "effect_size": "d_z" if paired else "hedges_g",
        "test": comparison.test,
        "statistic": comparison.statistic,
        "p": comparison.p,
        "p_adjusted": None,
        "significant": None,
        "reason": _reason(comparison, units, first, better) if method.tested else None,
    }


class _Options(TypedDict):
    confidence: float | None
    interval_resamples: int
    resample_count: int
    seed: int


def _comparison(
    units: Units, first: Units, method: Method, *, paired: bool, tested: bool
) -> Comparison:
    intervals = method.intervals or Intervals()
    options: _Options = {
        "confidence": None if method.intervals is None else intervals.confidence,
        "interval_resamples": intervals.resample_count,
        "resample_count": method.resample_count,
        "seed": method.seed,
    }
    if paired:
        return compare(units, first, method.paired if tested else None, **options)
    by_figure: UnpairedTest = "welch" if units.single and first.single else "bootstrap"
    test = method.unpaired or by_figure
    return compare_unpaired(units, first, test if tested else None, **options)


def _reason(comparison: Comparison, units: Units, first: Units, better: Better) -> str | None:
    """Why there is no p-value, or what it tests if that is not the figure itself."""
    if better == "neither":
        return NOT_TESTED
    if comparison.p is None or comparison.test in FIGURE_TESTS or (units.single and first.single):
        return comparison.reason
    return comparison.reason or OF_MEANS


def _verdict(comparison: Block, better: Better) -> str | None:
    """``better`` or ``worse`` for a significant difference with a preferred direction."""
    if not comparison["significant"] or not comparison["difference"] or better == "neither":
        return None
    return "better" if (comparison["difference"] > 0) == (better == "higher") else "worse"


# -- strata -----------------------------------------------------------------------------------


def _check(dimension: str, by_kind: Rows) -> None:
    known = {
        name
        for several in by_kind.values()
        for of_run in several
        if of_run is not None
        for row in of_run.rows
        for name in row.dimensions
    }
    if dimension not in known:
        there = ", ".join(sorted(known)) or "none"
        raise UnknownDimension(f"no row has the dimension {dimension!r}; there are: {there}")


def _strata(by_kind: Rows, dimension: str) -> list[str]:
    """The strata that both the baseline and another run have rows in."""
    strata = set()
    for first, *others in by_kind.values():
        if first is not None:
            mine = set(first.strata(dimension))
            strata |= {
                n
                for of_run in others
                if of_run is not None
                for n in mine & {*of_run.strata(dimension)}
            }
    return sorted(strata)


def _stratifiable(
    dimension: str, by_kind: Rows, chosen: Mapping[Kind, Sequence[str]]
) -> dict[Kind, Sequence[str]]:
    """The figures that can be split by a dimension.

    Recorded dimensions are in the rows of a turn's searches and answer. A turn with neither, such
    as one whose gate skipped the only search, is in no stratum, so gate figures are left out.
    """
    rows = [
        row
        for of_run in by_kind.get("conversations", ())
        if of_run is not None
        for row in of_run.rows
    ]
    if dimension in FACTS or all(dimension in row.dimensions for row in rows):
        return {**chosen}
    return {kind: [n for n in names if n not in GATE] for kind, names in chosen.items()}


def _of_stratum(
    names: Sequence[str],
    by_kind: Rows,
    chosen: Mapping[Kind, Sequence[str]],
    left: Mapping[Kind, Sequence[str]],
    method: Method,
) -> Block:
    family = _family(names, by_kind, left, method)
    notes = about_rows(names, by_kind) + _about_family(names, by_kind, family)
    if left != chosen:
        notes.append(WITHOUT_GATE)
    return {**family, "notes": notes}


def _about_family(names: Sequence[str], by_kind: Rows, family: Block) -> list[str]:
    """Notes on figures that are not defined for all units that both runs have."""
    notes = []
    for kind, table in family["tables"].items():
        compared: dict[tuple[str, int, int, int], list[str]] = {}
        for metric, block in table["metrics"].items():
            for comparison in block["comparisons"]:
                if comparison["paired"]:
                    alone = comparison["only_in_first"], comparison["only_in_run"]
                    compared.setdefault((comparison["run"], comparison["n"], *alone), []).append(
                        metric
                    )
        notes += [
            about_figures(names[0], run, metrics, both, alone)
            for (run, both, *alone), metrics in compared.items()
            if any(alone) and tuple(alone) != _unshared(names, by_kind[kind], run)
        ]
    return notes


def _unshared(names: Sequence[str], several: Sequence[Observations | None], run: str) -> Any:
    first, other = several[0], several[names.index(run)]
    if first is None or other is None:
        return None
    return len(first.units - other.units), len(other.units - first.units)


def _stratum(by_kind: Rows, dimension: str, stratum: str) -> Rows:
    return {
        kind: [
            None if of_run is None else of_run.strata(dimension).get(stratum) for of_run in several
        ]
        for kind, several in by_kind.items()
    }
