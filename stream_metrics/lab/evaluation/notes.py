"""Notes on a comparison: turns beyond a limit, small samples, differing settings and sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.lab.evaluation.observations import Kind, Observations
from stream_metrics.lab.evaluation.report_figures import beyond_limit_of, without_ids_of
from stream_metrics.lab.statistics.strata_and_corrections import FEW, MODERATE

Rows = Mapping[Kind, Sequence[Observations | None]]
"""The rows of each run, the baseline first, by the kind of file."""


class Run(NamedTuple):
    """One report directory.

    Attributes:
        name: The displayed name.
        files: The rows, by the kind of file.
        report: The content of ``report.json``; empty if there is none.
    """

    name: str
    files: Mapping[Kind, Observations]
    report: Mapping[str, Any]


def notes_of(runs: Sequence[Run], by_kind: Rows) -> list[str]:
    """All notes, those on what is missing in the figures first."""
    notes = [note for run in runs for note in _about_input(run)]
    notes += about_rows([run.name for run in runs], by_kind)
    notes += [note for run in runs for note in _about_estimates(run)]
    for run in runs[1:]:
        notes += _about_settings(runs[0], run)
    return notes


def about_rows(names: Sequence[str], by_kind: Rows) -> list[str]:
    """Notes on missing rows, missing labels and small samples."""
    notes = []
    for kind, (one, *others) in by_kind.items():
        if unlabelled := runs_without_labels(names, [one, *others]):
            notes.append(f"{no_labels(unlabelled)}, so SRE and gains have no value there")
        for run, other in zip(names[1:], others, strict=True):
            if one is None or other is None:
                notes.append(f"{names[0] if one is None else run} has no rows of {kind}")
            else:
                notes += _about_units(names[0], run, kind, one, other)
    return notes


def runs_without_labels(names: Sequence[str], several: Sequence[Observations | None]) -> list[str]:
    """The runs that found documents of which none has a label."""
    runs = zip(names, several, strict=True)
    return [run for run, one in runs if one is not None and one.nothing_labelled]


def no_labels(runs: Iterable[str]) -> str:
    """The note that these runs have no labels.

    >>> no_labels(["before", "after"])
    'no document of before and after has a label'
    """
    return f"no document of {' and '.join(runs)} has a label"


def _about_units(
    first: str, run: str, kind: Kind, one: Observations, other: Observations
) -> list[str]:
    shared = len(one.units & other.units)
    about = f"{run} and {first}, {kind}"
    if not shared:
        fewest = min(len(one.units), len(other.units))
        small = f"; with {fewest:,} units on one side, only large differences can be detected"
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
        found.append(
            f"{about}: {shared:,} shared units: fewer than {FEW} are a warning, not a result"
        )
    elif shared < MODERATE:
        found.append(
            f"{about}: {shared:,} shared units: with fewer than {MODERATE}, only large "
            "differences can be detected"
        )
    return found


def about_figures(
    first: str, run: str, names: Sequence[str], both: int, alone: Sequence[int]
) -> str:
    """The note that some figures are not defined for all units that two runs share.

    >>> about_figures("before", "after", ["srr"], 200, (0, 100))
    'after and before, srr: defined for 200 units of both; 0 only in before, 100 only in \
after. Its difference is of those in both, its values of all'
    """
    its = "Its difference is" if len(names) == 1 else "Their differences are"
    values = "its values" if len(names) == 1 else "their values"
    return (
        f"{run} and {first}, {', '.join(names)}: defined for {both:,} units of both; "
        f"{alone[0]:,} only in {first}, {alone[1]:,} only in {run}. {its} of those in both, "
        f"{values} of all"
    )


def _about_input(run: Run) -> list[str]:
    rows = run.files.get("conversations")
    beyond = beyond_limit_of(run.report, BeyondLimit() if rows is None else rows.beyond_limit)
    said = [beyond.text()] if beyond.turns else []
    return [f"{run.name}, {text}" for text in (*said, *without_ids_of(run.report).texts())]


def _about_estimates(run: Run) -> list[str]:
    """The note that figures have no estimate from a model's labels."""
    figures = [
        figure
        for figure, found in run.report.get("estimates", {}).get("all", {}).items()
        if found.get("incomplete")
    ]
    if not figures:
        return []
    return [
        f"{run.name} has no combined estimate of {', '.join(figures)}, because over 5% of what "
        "was drawn for the model is not labelled by it"
    ]


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
