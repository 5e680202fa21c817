"""Ranked metrics of a large run, against ``pytrec_eval``, ``ranx`` and ``ir_measures``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.agreement import differs
from benchmarks.collection import DEPTH, TIED
from benchmarks.figures import Figure, figures_table, section
from benchmarks.ran import RAN, Engines
from benchmarks.rivals import PEERS, Measurement, Rival, peer_versions
from benchmarks.rivals.rankings import METRICS
from stream_metrics.core.compiled import VARIABLE

QUERIES: Final = 100_000
ROUNDS: Final = 5
OURS: Final = ("ours", "ours, no kernel")
PEER_TOOLS: Final = ("pytrec_eval", "ranx", "ir_measures")
LIBRARIES: Final = ("pytrec_eval-terrier", "ranx", "ir_measures", "numba", "numpy")
TOOLS: Final = (*OURS, *PEER_TOOLS)
STEPS: Final = ("from_dicts", "parse", "from_parsed")
ARRAYS: Final = "as_arrays"
"""A step of ours alone: ranx leaves its scores in arrays, the others bring theirs by query."""
TOLERANCE: Final = 1e-9
MODULE: Final = "benchmarks.rivals.rankings"


def run(*, quick: bool = False, queries: int | None = None, rounds: int | None = None) -> str:
    """Measure, and return the report.

    Raises:
        RuntimeError: A tool gives other scores where the definitions are the same.
    """
    count = queries or (5_000 if quick else QUERIES)
    versions = peer_versions(LIBRARIES)
    without = Engines()
    with (
        tempfile.TemporaryDirectory(prefix="ranked-") as folder,
        Rival(MODULE, note=RAN.note) as ours,
        Rival(MODULE, environment={VARIABLE: "python"}, note=without.note) as plain,
        # An empty cache, so that all of the compiling is seen, once.
        Rival(MODULE, python=PEERS, environment={"NUMBA_CACHE_DIR": folder}) as peers,
    ):
        where = dict(zip(TOOLS, (ours, plain, peers, peers, peers), strict=True))
        compiling = _compile(peers)
        for rival in (ours, plain, peers):
            rival.ask("make", queries=count)
        agreement = _same_scores(where, Path(folder))  # and each tool has run once
        measured: dict[str, list[dict[str, Measurement]]] = {tool: [] for tool in TOOLS}
        for _ in range(rounds or (3 if quick else ROUNDS)):
            for tool in TOOLS:
                measured[tool].append(_round(where[tool], tool))
    return section(
        f"ranked metrics: {count:,} queries × {DEPTH} results",
        f"{', '.join(METRICS)}, by query; tools in turn. Before, ranx compiled for "
        f"{compiling:.0f} s.\npeers with {versions}\nours, no kernel:{without.told()}" + agreement,
        "from dictionaries of dictionaries\n" + _figures(measured, "from_dicts"),
        "from each tool's own form to scores by query; ranx's stay in arrays\n"
        + _figures(measured, "from_parsed"),
        "the same, ours in arrays too\n" + _arrays(measured),
        "making that form of the dictionaries\n" + _figures(measured, "parse"),
    )


def _compile(peers: Rival) -> float:
    """Let ranx compile all that it needs, and say how long it took."""
    peers.ask("make", queries=100)
    return sum(peers.ask(step, tool="ranx").seconds for step in STEPS)


def _steps(tool: str) -> tuple[str, ...]:
    return (*STEPS, ARRAYS) if tool in OURS else STEPS


def _round(rival: Rival, tool: str) -> dict[str, Measurement]:
    measured = {step: rival.ask(step, tool=tool) for step in _steps(tool)}
    rival.ask("forget", tool=tool)
    return measured


def _figures(measured: Mapping[str, list[dict[str, Measurement]]], step: str) -> str:
    figures = []
    for tool, rounds in measured.items():
        figures.append(Figure(tool, [one[step].cpu_seconds for one in rounds], "CPU s"))
    for tool, rounds in measured.items():
        figures.append(Figure(f"{tool}, wall", [one[step].seconds for one in rounds], "s"))
    for tool in PEER_TOOLS:
        pairs = zip(measured[tool], measured["ours"], strict=True)
        ratios = [one[step].seconds / mine[step].seconds for one, mine in pairs]
        goal = "> 1" if step != "parse" else ""
        figures.append(Figure(f"{tool} ÷ ours, wall", ratios, "", goal))
    return figures_table(figures)


def _arrays(measured: Mapping[str, list[dict[str, Measurement]]]) -> str:
    """Ours against ranx, without what it does not do."""
    figures = [
        Figure(tool, [one[ARRAYS].cpu_seconds for one in measured[tool]], "CPU s") for tool in OURS
    ]
    pairs = zip(measured["ranx"], measured["ours"], strict=True)
    ratios = [one["from_parsed"].seconds / mine[ARRAYS].seconds for one, mine in pairs]
    return figures_table([*figures, Figure("ranx ÷ ours, wall", ratios, "", "> 1")])


def _same_scores(where: Mapping[str, Rival], folder: Path) -> str:
    """Hold all scores of all tools against ours, from both forms.

    Raises:
        RuntimeError: Scores differ where the definitions are the same.
    """
    scores = {}
    for tool, rival in where.items():
        for step in _steps(tool):
            rival.ask(step, tool=tool)
            if step != "parse":
                path = folder / "scores.npy"
                rival.ask("save", tool=tool, path=str(path))
                scores[tool, step] = np.load(path)
        rival.ask("forget", tool=tool)
    mine = scores.pop(("ours", "from_dicts"))
    tied = np.arange(len(mine)) % TIED == 0
    otherwise = 0
    for (tool, step), theirs in scores.items():
        other = np.asarray(differs(theirs, mine, TOLERANCE).any(axis=1))
        if tool == "ranx":  # it leaves the order of tied results to its sort
            otherwise = max(otherwise, int(other[tied].sum()))
            other &= ~tied
        if other.any():
            at = int(np.flatnonzero(other)[0])
            raise RuntimeError(f"{tool}, {step}: query {at}: {theirs[at]}, and ours {mine[at]}")
    return (
        f"All scores of all tools are the same to {TOLERANCE:g}, those of ranx where no results "
        f"of a query are tied:\nof {int(tied.sum()):,} queries with many ties it scores "
        f"{otherwise:,} otherwise.\n"
    )
