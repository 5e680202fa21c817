"""The collection that trec_eval ships gives the figures of trec_eval and pytrec_eval."""

from __future__ import annotations

import gzip
import json
from math import fsum
from pathlib import Path
from typing import Any

import pytest
import pytrec_eval
from typer.testing import CliRunner

from stream_metrics.cli import app

DATA = Path(__file__).parents[1] / "data" / "trec_eval"
PRINTED = 0.5e-4 + 1e-12
"""Half of the last decimal that trec_eval prints."""
CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)


def measures(level: int) -> dict[str, str]:
    """Our name for each of trec_eval's measures; trec_eval's level is our ``rel``."""
    rel = "" if level == 1 else f"(rel={level})"
    found = {"map": f"map{rel}", "recip_rank": f"mrr{rel}", "ndcg": "ndcg"}
    if level == 1:  # trec_eval scales grades above 1, which is another definition
        found["rbp"] = "rbp(p=0.9)"
    for k in CUTOFFS:
        found |= {
            f"P_{k}": f"precision{rel}@{k}",
            f"recall_{k}": f"recall{rel}@{k}",
            f"map_cut_{k}": f"map{rel}@{k}",
            f"ndcg_cut_{k}": f"ndcg@{k}",
        }
    return found | {f"success_{k}": f"hit{rel}@{k}" for k in (1, 5, 10)}


def published(name: str) -> dict[str, dict[str, float]]:
    """The figures in one of trec_eval's expected outputs, by query and for ``all``."""
    found: dict[str, dict[str, float]] = {}
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        measure, query, value = line.split()
        if measure != "runid" and not measure.startswith("relstring"):
            found.setdefault(query, {})[measure] = float(value)
    return found


def evaluated(out: Path, qrels: str, run: str, metrics: list[str]) -> dict[str, dict[str, Any]]:
    """The scores that the command writes, by query and for ``all``."""
    wanted = [part for name in metrics for part in ("--metric", name)]
    done = CliRunner().invoke(
        app,
        ["evaluate", "--qrels", str(DATA / qrels), "--run", str(DATA / run), *wanted,
         "--trec-float32", "--out", str(out)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (out / "queries.jsonl").read_text().splitlines()]
    found = {row["query_id"]: row["scores"] for row in rows}
    means = json.loads((out / "report.json").read_text())["retrieval"]["metrics"]
    return {**found, "all": {name: one["mean"] for name, one in means.items()}}


@pytest.mark.parametrize(
    ("expected", "qrels", "run", "level"),
    [
        ("out.test.aq", "qrels.test.gz", "results.test.gz", 1),
        ("out.test.aqc", "qrels.test.gz", "results.trunc.gz", 1),
        ("out.test.aql", "qrels.rel_level.gz", "results.test.gz", 2),
    ],
    ids=["whole", "a query missing", "graded"],
)
def test_figures_equal_those_published_by_trec_eval(
    tmp_path: Path, expected: str, qrels: str, run: str, level: int
) -> None:
    """This holds for every query and the mean, to the four printed decimals."""
    names = measures(level)
    theirs = published(expected)

    ours = evaluated(tmp_path, qrels, run, list(names.values()))

    assert ours.keys() == {"301", "302", "303", "all"}
    compared = 0
    for query, figures in theirs.items():
        for measure, name in names.items():
            if measure in figures:
                assert ours[query][name] == pytest.approx(figures[measure], abs=PRINTED), (
                    query,
                    name,
                )
                compared += 1
    assert compared > 100


def test_figures_equal_those_of_pytrec_eval(tmp_path: Path) -> None:
    """All scores on the collection agree within 1e-9."""
    names = {measure: name for measure, name in measures(1).items() if measure != "rbp"}
    with gzip.open(DATA / "qrels.test.gz", "rt") as file:
        qrels = pytrec_eval.parse_qrel(file)
    with gzip.open(DATA / "results.test.gz", "rt") as file:
        run = pytrec_eval.parse_run(file)
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels, {"map", "recip_rank", "ndcg", "P", "recall", "map_cut", "ndcg_cut", "success"}
    ).evaluate(run)

    ours = evaluated(tmp_path, "qrels.test.gz", "results.test.gz", list(names.values()))

    for measure, name in names.items():
        for query, figures in theirs.items():
            assert ours[query][name] == pytest.approx(figures[measure], abs=1e-9), name
        mean = fsum(figures[measure] for figures in theirs.values()) / len(theirs)
        assert ours["all"][name] == pytest.approx(mean, abs=1e-9), name
