"""``stream-metrics compare``: its output and its figures."""

from __future__ import annotations

import json
import random
import re
import shutil
from contextlib import chdir
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.metrics.ranking.registry import DEFINITIONS
from stream_metrics.core.metrics.registry import METRICS
from stream_metrics.lab.choices import CORRECTIONS, METHODS
from stream_metrics.lab.evaluation.compare_runs import NOT_TESTED, Method, compare_runs
from stream_metrics.lab.evaluation.estimates import Intervals
from stream_metrics.lab.evaluation.notes import Run
from stream_metrics.lab.evaluation.observations import (
    MACRO,
    Kind,
    Observation,
    Observations,
    UnknownFigure,
    better_of,
    canonical_name,
)
from stream_metrics.lab.statistics.comparison import compare
from stream_metrics.lab.statistics.intervals import estimate
from stream_metrics.lab.statistics.strata_and_corrections import holm
from stream_metrics.lab.statistics.units import Units
from stream_metrics.lab.statistics.unpaired import compare_unpaired
from tests.helpers import refused
from tests.killed import State, put, state

FAST = Method(resample_count=500)
Scores = dict[str, dict[str, float | None]]


def scores(n: int, *, seed: int, metric: str = "mrr", shift: float = 0.0) -> Scores:
    """Scores of queries q000, q001 and so on."""
    draw = random.Random(seed)
    return {f"q{at:03}": {metric: draw.random() + shift} for at in range(n)}


def run(name: str, values: Scores, config: dict[str, Any] | None = None, **by: str) -> Run:
    """A run with one row per query; ``by`` gives every second query a dimension."""
    rows = [
        Observation(query, by if at % 2 else {}, found)
        for at, (query, found) in enumerate(values.items())
    ]
    report = {"source": ["run", "qrels"], "config": config or {}}
    return Run(name, {"queries": Observations("queries", "query", rows)}, report)


def units(values: Scores) -> Units:
    """The scores as units."""
    return Units.of_values((query, found["mrr"]) for query, found in values.items())


def metric_of(found: dict[str, Any], name: str = "mrr") -> dict[str, Any]:
    """The result for a metric."""
    block: dict[str, Any] = found["family"]["tables"]["queries"]["metrics"][name]
    return block


def only(found: dict[str, Any], name: str = "mrr") -> dict[str, Any]:
    """The only comparison of a metric."""
    (one,) = metric_of(found, name)["comparisons"]
    return dict(one)


# -- figures ----------------------------------------------------------------------------------


def test_shared_units_are_compared_in_pairs() -> None:
    """Difference, interval, p and effect are those of the paired comparison, later minus first."""
    one, other = scores(30, seed=1), scores(30, seed=2, shift=0.1)

    found = only(compare_runs([run("A", one), run("B", other)], FAST))

    expected = compare(units(other), units(one), resample_count=500)
    assert found["paired"] is True
    assert found["n"] == 30
    assert found["difference"] == expected.difference
    assert (found["ci_low"], found["ci_high"]) == (expected.ci_low, expected.ci_high)
    assert (found["p"], found["effect"]) == (expected.p, expected.effect)
    assert found["effect_size"] == "d_z"


def test_units_of_one_run_only_are_counted_and_left_out() -> None:
    """The difference is that of the shared units, with the numbers of the others."""
    one, other = scores(30, seed=1), scores(40, seed=1)
    del other["q000"]
    other["q001"]["mrr"] = one["q001"]["mrr"]

    result = compare_runs([run("A", one), run("B", other)], FAST)

    found = only(result)
    assert (found["n"], found["only_in_first"], found["only_in_run"]) == (29, 1, 10)
    assert (found["difference"], found["p"]) == (0.0, 1.0)
    assert any("29 shared units; 1 only in A, 10 only in B" in note for note in result["notes"])


def test_a_metric_with_fewer_units_has_a_note() -> None:
    """If a metric lacks units that its file has, values and difference may disagree."""
    one, other = scores(30, seed=1), scores(30, seed=2)
    for query in ("q000", "q001"):
        other[query]["mrr"] = None

    notes = compare_runs([run("A", one), run("B", other)], FAST)["notes"]

    assert (
        "B and A, mrr: defined for 28 units of both; 2 only in A, 0 only in B. Its difference is "
        "of those in both, its values of all"
    ) in notes


def test_gate_metrics_are_not_split_by_fields_of_searches() -> None:
    """A skipped turn has no search that could give its language, so no stratum has it."""

    def runs(*conversations: tuple[bool, dict[str, str]]) -> list[Run]:
        rows = [
            Observation(f"c{at}", own, {"gate_efficiency": (int(skip), 1), "srr": (1, 2)})
            for at, (skip, own) in enumerate(conversations)
        ]
        found = Observations("conversations", "conversation", rows)
        return [Run(name, {"conversations": found}, {}) for name in "AB"]

    def shown(several: list[Run], dimension: str) -> list[str]:
        found = compare_runs(several, FAST, dimensions=[dimension])
        return [*found["strata"][dimension]["x"]["tables"]["conversations"]["metrics"]]

    some = runs((False, {"language": "x", "agent": "x"}), (True, {"agent": "x"}))

    assert shown(some, "language") == ["srr"]
    assert shown(some, "agent") == ["gate_efficiency", "srr"]
    assert shown(runs((False, {"language": "x"})), "language") == ["gate_efficiency", "srr"]


def test_without_shared_units_the_comparison_is_unpaired_and_says_so() -> None:
    """It uses Welch's test for means with one value per unit, and has a note."""
    one = scores(12, seed=1)
    other = {f"x{query}": value for query, value in scores(14, seed=2).items()}

    result = compare_runs([run("A", one), run("B", other)], FAST)

    found = only(result)
    assert found["paired"] is False
    assert found["p"] == compare_unpaired(units(other), units(one), "welch").p
    assert found["effect_size"] == "hedges_g"
    assert any("no query is in both. The differences are unpaired" in n for n in result["notes"])


def test_units_with_several_values_are_not_compared_by_welch() -> None:
    """Unpaired ratios of sums are tested by the cluster bootstrap."""
    draw = random.Random(3)
    runs = []
    for name in "AB":
        rows = [
            Observation(f"{name}{at}", {}, {"srr": (draw.randint(0, 4), draw.randint(4, 9))})
            for at in range(20)
        ]
        tables = Observations("conversations", "conversation", rows)
        runs.append(Run(name, {"conversations": tables}, {}))

    found = compare_runs(runs, FAST)["family"]["tables"]["conversations"]["metrics"]["srr"]

    assert found["comparisons"][0]["test"] == "bootstrap"


def test_a_test_of_means_says_that_it_is_one() -> None:
    """If t is chosen for units with several values, the reason says what p refers to."""
    draw = random.Random(4)
    tables: list[dict[Kind, Observations]] = []
    for _ in range(2):
        rows = [Observation(f"c{at % 9}", {}, {"mrr": draw.random()}) for at in range(30)]
        tables.append({"queries": Observations("queries", "conversation", rows)})

    found = only(
        compare_runs([Run("A", tables[0], {}), Run("B", tables[1], {})], Method("wilcoxon"))
    )

    assert found["p"] is not None
    assert found["reason"] == "the test is of the units' own means, not of the figure"


def test_p_values_are_adjusted_over_all_runs_and_metrics() -> None:
    """The family of Holm's correction is runs times metrics, without metrics that have no
    direction."""
    draw = random.Random(5)

    def several() -> Scores:
        return {
            f"q{at}": {name: draw.random() for name in ("mrr", "ndcg@10", "judged@10")}
            for at in range(20)
        }

    found = compare_runs([run(name, several()) for name in "ABC"], FAST)

    tested = [one for name in ("mrr", "ndcg@10") for one in metric_of(found, name)["comparisons"]]
    assert found["family"]["size"] == 4
    assert [one["p_adjusted"] for one in tested] == holm([one["p"] for one in tested])
    untested = metric_of(found, "judged@10")["comparisons"][0]
    assert (untested["p"], untested["significant"]) == (None, None)
    assert untested["reason"] == NOT_TESTED
    assert untested["difference"] is not None


def test_strata_are_families_of_their_own() -> None:
    """Looking at strata does not change the results of the whole, nor the other way round."""
    one, other = scores(40, seed=1), scores(40, seed=2)
    runs = [run("A", one, language="de"), run("B", other, language="de")]

    found = compare_runs(runs, FAST, dimensions=["language"])

    assert found["family"] == compare_runs(runs, FAST)["family"]
    family = found["strata"]["language"]["de"]
    assert family["size"] == 1
    (of_stratum,) = family["tables"]["queries"]["metrics"]["mrr"]["comparisons"]
    assert of_stratum["n"] == 20
    assert of_stratum["p_adjusted"] == of_stratum["p"]
    assert any("fewer than 50" in note for note in family["notes"])


@pytest.mark.parametrize(("shift", "metric", "verdict"), [
    (0.3, "mrr", "better"), (-0.3, "mrr", "worse"), (0.3, "redundancy@10", "worse"),
])  # fmt: skip
def test_significance_has_a_direction(shift: float, metric: str, verdict: str) -> None:
    """The registry knows whether higher or lower is better; the verdict follows it."""
    draw = random.Random(9)
    one = scores(60, seed=1, metric=metric)
    other: Scores = {
        query: {metric: (found[metric] or 0.0) + shift + draw.gauss(0, 0.05)}
        for query, found in one.items()
    }

    found = only(compare_runs([run("A", one), run("B", other)], FAST), metric)

    assert (found["significant"], found["verdict"]) == (True, verdict)


def test_notes_concern_only_the_files_of_chosen_metrics() -> None:
    """A file without a chosen metric has no note."""
    other = Observations("turns", "conversation", [Observation("c", {}, {"exact_match": 1.0})])
    runs = [run("A", scores(9, seed=1)), run("B", scores(9, seed=2))]
    runs = [one._replace(files={**one.files, "turns": other}) for one in runs]

    chosen, all_ = (
        " ".join(compare_runs(runs, FAST, metrics=metrics)["notes"]) for metrics in (["mrr"], None)
    )

    assert "queries" in chosen
    assert "turns" not in chosen
    assert "turns" in all_


def test_different_settings_and_sources_have_a_note() -> None:
    """The note names the setting with both values."""
    runs = [
        run("A", scores(9, seed=1), {"evaluation": {"rel": 1, "seed": 3}}),
        run("B", scores(9, seed=2), {"evaluation": {"rel": 2, "seed": 3}}),
    ]

    notes = compare_runs(runs, FAST)["notes"]

    assert "setting evaluation.rel: 1 in A, 2 in B" in notes
    assert not any("seed" in note or "sources" in note for note in notes)


def test_the_order_of_rows_changes_nothing() -> None:
    """Resampling depends on the keys of units."""
    one, other = scores(25, seed=1), scores(25, seed=2)
    turned = dict(reversed(other.items()))

    assert (
        compare_runs([run("A", one), run("B", other)], FAST)["family"]
        == compare_runs([run("A", one), run("B", turned)], FAST)["family"]
    )


def test_the_correction_can_be_chosen() -> None:
    """Bonferroni multiplies each p by the size of the family; without a correction p stays."""
    draw = random.Random(5)
    values: list[Scores] = [
        {f"q{at}": {name: draw.random() for name in ("mrr", "ndcg@10")} for at in range(20)}
        for _ in "AB"
    ]
    runs = [run(name, one) for name, one in zip("AB", values, strict=True)]
    by_correction = {
        correction: [
            (one["p"], one["p_adjusted"])
            for name in ("mrr", "ndcg@10")
            for one in metric_of(found, name)["comparisons"]
        ]
        for correction in CORRECTIONS
        for found in [compare_runs(runs, FAST._replace(correction=correction))]
    }

    assert all(wide == min(1.0, 2 * p) for p, wide in by_correction["bonferroni"])
    assert all(same == p for p, same in by_correction["none"])
    assert [wide for _, wide in by_correction["holm"]] == holm(
        [p for p, _ in by_correction["holm"]]
    )


def test_intervals_can_be_chosen() -> None:
    """Kind, confidence and resamples apply to values; the last two apply to differences too."""
    one, other = scores(30, seed=1), scores(30, seed=2)
    runs = [run("A", one), run("B", other)]
    method = FAST._replace(intervals=Intervals("bca", 0.8, 300))

    block = metric_of(compare_runs(runs, method))

    value = estimate(units(one), "bca", confidence=0.8, resample_count=300)
    assert (block["values"][0]["ci_low"], block["values"][0]["ci_high"]) == value[4:6]
    paired = compare(units(other), units(one), None, confidence=0.8, interval_resamples=300)
    (found,) = block["comparisons"]
    assert (found["ci_low"], found["ci_high"]) == (paired.ci_low, paired.ci_high)


def test_the_kind_of_interval_never_changes_a_value() -> None:
    """Student's interval is for means with one value per unit; a ratio of sums keeps the percentile
    interval."""
    draw = random.Random(3)
    runs = []
    for name in "AB":
        rows = [
            Observation(f"c{at}", {}, {"srr": (draw.randint(0, 4), draw.randint(4, 9))})
            for at in range(20)
        ]
        tables = Observations("conversations", "conversation", rows)
        runs.append(Run(name, {"conversations": tables}, {}))

    by_kind = [
        compare_runs(runs, FAST._replace(intervals=Intervals(kind)))["family"] for kind in METHODS
    ]

    values = [one["tables"]["conversations"]["metrics"]["srr"]["values"] for one in by_kind]
    assert len({value[0]["value"] for value in values}) == 1
    assert values[METHODS.index("t")] == values[METHODS.index("percentile")]


def test_without_tests_there_are_differences_only() -> None:
    """There is no family, but values, intervals and effects are there."""
    runs = [run("A", scores(30, seed=1)), run("B", scores(30, seed=2))]

    result = compare_runs(runs, FAST._replace(tested=False))

    found, tested = only(result), only(compare_runs(runs, FAST))
    assert result["family"]["size"] == 0
    assert {found[name] for name in ("test", "p", "p_adjusted", "significant", "verdict")} == {None}
    for name in ("difference", "ci_low", "ci_high", "effect", "n"):
        assert found[name] == tested[name]


def test_without_intervals_there_are_values_and_tests() -> None:
    """Bounds of values and differences are null, and p is the same."""
    runs = [run("A", scores(30, seed=1)), run("B", scores(30, seed=2))]

    block = metric_of(compare_runs(runs, FAST._replace(intervals=None)))

    (found,) = block["comparisons"]
    assert found["p"] == only(compare_runs(runs, FAST))["p"]
    assert {one["ci_low"] for one in [found, *block["values"]]} == {None}


# -- names ------------------------------------------------------------------------------------


def test_directions_are_those_of_the_registries() -> None:
    """Every metric of both registries keeps its direction."""
    assert {metric.name: metric.better for metric in METRICS} == {
        metric.name: better_of(metric.name) for metric in METRICS
    }
    for definition in DEFINITIONS:
        cut = "@10" if definition.cutoff == "required" else ""
        assert better_of(definition.name + cut) == definition.metric.better


@pytest.mark.parametrize(("text", "name"), [
    ("srr", "srr"), ("srr.micro", "srr"), ("srr.macro", "srr.macro"), ("cg.macro", "cg"),
    ("NDCG_at_10", "ndcg@10"), ("rbp(p=0.80)", "rbp"),
])  # fmt: skip
def test_a_metric_may_be_written_in_several_ways(text: str, name: str) -> None:
    """Micro and macro may be given, and ranked metrics may be written as everywhere."""
    assert canonical_name(text, ["srr", "srr.macro", "cg", "ndcg@10", "rbp"]) == name


def test_an_unknown_metric_gets_a_suggestion() -> None:
    """The error names the nearest one, so a typing error is easy to see."""
    with pytest.raises(UnknownFigure, match=r"'ndcg@1o'.*did you mean ndcg@10"):
        canonical_name("ndcg@1o", ["ndcg@10", "srr"])


@pytest.mark.parametrize(("text", "near"), [
    ("average_precision", "map@10"), ("mean_reciprocal_rank@10", "mrr@10 or mrr"),
    ("hit_rate", "hit@1 or hit@10"), ("ndcg@7", "ndcg@10"),
])  # fmt: skip
def test_suggestions_give_full_names(text: str, near: str) -> None:
    """The message lists only metrics that exist here, whatever they are called elsewhere."""
    known = ["srr", "precision@10", "map@10", "mrr", "mrr@10", "hit@1", "hit@10", "ndcg@10"]

    with pytest.raises(UnknownFigure, match=rf"did you mean {near}\?$"):
        canonical_name(text, known)


# -- the command ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two directories that evaluate has written, A and B."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    put(_evaluated(), tmp_path)
    return tmp_path


@cache
def _evaluated() -> State:
    draw = random.Random(8)
    qrels = [f"q{q} 0 d{d} {draw.randint(0, 2)}" for q in range(40) for d in range(8)]
    with TemporaryDirectory() as folder, chdir(folder):
        Path("qrels").write_text("\n".join(qrels))
        for name in "AB":
            lines = [f"q{q} Q0 d{d} 1 {draw.random()} m" for q in range(40) for d in range(8)]
            Path(f"{name}.run").write_text("\n".join(lines))
            invoke("evaluate", "--run", f"{name}.run", "--qrels", "qrels", "--metric", "mrr",
                   "--metric", "ndcg@5", "--out", name)  # fmt: skip
        return state(Path(folder))


def invoke(*arguments: str, code: int = 0) -> str:
    """Standard output of the command."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def test_the_table_has_values_and_differences(folder: Path) -> None:
    """It has a line per metric and run, and a line per comparison with interval, p, Holm's p and
    verdict."""
    said = invoke("compare", "A", "B", "--resamples", "200")

    assert re.search(r"^ndcg@5 +higher +A +0\.\d{4} +\[0\.\d{4}, 0\.\d{4}\] +40$", said, re.M)
    assert re.search(
        r"^B vs A +ndcg@5 +[+-]0\.\d{4} +\[.*\] +[01]\.\d{4} +[01]\.\d{4} +no ", said, re.M
    )
    assert "note: sources: A.run, qrels in A, B.run, qrels in B" in said


def test_markdown_is_a_table_that_a_name_cannot_break(folder: Path) -> None:
    """A pipe in a directory's name is escaped, so every line has as many cells."""
    (folder / "B").rename(folder / "a|b<i>")

    said = invoke("compare", "A", "a|b<i>", "--resamples", "200", "--format", "md")

    lines = [line for line in said.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 2
    assert r"a\|b\<i\> vs A" in said


def test_json_is_reproducible(folder: Path) -> None:
    """The same directories give the same bytes on standard output and in compare.json."""
    options = ("compare", "A", "B", "--resamples", "200", "--format", "json", "--out", "found")

    first = invoke(*options)
    written = (folder / "found" / "compare.json").read_text()

    assert first == written == invoke(*options)
    assert json.loads(first)["family"]["size"] == 2


@pytest.mark.slow
def test_replays_are_compared_by_conversation(folder: Path) -> None:
    """The rows of a replay compared to themselves have no difference, and p is 1."""
    invoke("generate", "--out", "t.jsonl", "--conversations", "12")
    invoke("replay", "t.jsonl", "--out", "one")
    invoke("replay", "t.jsonl", "--out", "two")

    said = json.loads(invoke("compare", "one", "two", "--format", "json", "--resamples", "100"))

    found = said["family"]["tables"]["conversations"]["metrics"]
    report = json.loads((folder / "one" / "report.json").read_text())["aggregate"]
    assert found["srr"]["values"][0]["value"] == pytest.approx(report["micro"]["srr"], abs=1e-12)
    assert found["cg"]["values"][0]["value"] == report["macro"]["cg"]["mean"]
    assert {one["p"] for block in found.values() for one in block["comparisons"]} <= {1.0, None}
    assert "srr.macro" not in found
    assert found["srr"]["better"] == "lower"


SETTINGS = """
[evaluation]
interval = "t"
confidence = 0.8
resamples = 200
seed = 7

[comparison]
metrics = ["mrr"]
test = "permutation"
unpaired_test = "welch"
alpha = 0.2
correction = "bonferroni"
resamples = 300
"""


def test_settings_choose_metrics_and_statistics(folder: Path) -> None:
    """The settings of a file are in the comparison and in the titles of its tables."""
    (folder / "s.toml").write_text(SETTINGS)
    options = ("compare", "A", "B", "--config", "s.toml")

    found = json.loads(invoke(*options, "--format", "json"))

    chosen = ("test", "unpaired_test", "alpha", "correction", "resamples", "seed", "interval",
              "confidence", "interval_resamples")  # fmt: skip
    assert [found[name] for name in chosen] == [
        "permutation", "welch", 0.2, "bonferroni", 300, 7, "t", 0.8, 200,
    ]  # fmt: skip
    assert list(found["family"]["tables"]["queries"]["metrics"]) == ["mrr"]
    said = invoke(*options)
    assert re.search(r"^Comparison .* 80% CI +p +p \(Bonferroni\) ", said, re.M)
    assert "adjusted (Bonferroni) over 1, significant below 0.2" in said


def test_flags_override_settings(folder: Path) -> None:
    """Each flag replaces the setting of its name."""
    (folder / "s.toml").write_text(SETTINGS)

    found = json.loads(
        invoke(
            "compare", "A", "B", "--config", "s.toml", "--format", "json", "--metric", "ndcg@5",
            "--test", "bootstrap", "--unpaired-test", "auto", "--alpha", "0.1",
            "--correction", "none", "--resamples", "400", "--seed", "9",
        )
    )  # fmt: skip

    chosen = ("test", "unpaired_test", "alpha", "correction", "resamples", "seed")
    assert [found[name] for name in chosen] == ["bootstrap", "auto", 0.1, "none", 400, 9]
    assert list(found["family"]["tables"]["queries"]["metrics"]) == ["ndcg@5"]


def test_tests_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables say so, and the columns of p-values on the page are empty."""
    monkeypatch.setenv("STREAM_METRICS_COMPARISON__SIGNIFICANCE_TESTING", "false")

    said = invoke("compare", "A", "B", "--out", "found")

    assert "B against A; nothing is tested" in said
    assert json.loads((folder / "found" / "compare.json").read_text())["family"]["size"] == 0


@pytest.mark.slow
def test_a_replay_is_reported_with_the_intervals_of_the_settings(folder: Path) -> None:
    """The report has them among its settings and in the titles of its page."""
    (folder / "s.toml").write_text(SETTINGS)
    invoke("generate", "--out", "t.jsonl", "--conversations", "12")

    invoke("replay", "t.jsonl", "--out", "one", "--config", "s.toml")

    report = json.loads((folder / "one" / "report.json").read_text())
    chosen = {"interval": "t", "confidence": 0.8, "resamples": 200, "seed": 7}
    assert chosen.items() <= report["config"]["evaluation"].items()
    page = (folder / "one" / "report.html").read_text()
    assert "80% CI" in page
    assert "95% CI" not in page


@pytest.mark.parametrize("gate", ["any.worse", "mrr.worse", "mrr.p<0.1", "mrr.p_adjusted<0.1"])
def test_a_condition_on_a_disabled_test_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gate: str
) -> None:
    """It would never hold, and a regression would pass CI."""
    monkeypatch.setenv("STREAM_METRICS_COMPARISON__SIGNIFICANCE_TESTING", "false")

    said = refused(capsys, "compare", "A", "B", "--fail-if", gate)

    assert "nothing is tested, because comparison.significance_testing is false" in said


@pytest.mark.parametrize(("name", "value", "possible"), [
    ("COMPARISON__TEST", "z", "bootstrap"),
    ("COMPARISON__UNPAIRED_TEST", "z", "pooled_t"),
    ("COMPARISON__CORRECTION", "z", "'holm', 'bonferroni' or 'none'"),
    ("COMPARISON__ALPHA", "2", "less than or equal to 0.5"),
    ("COMPARISON__RESAMPLES", "5", "greater than or equal to 100"),
    ("COMPARISON__METRICS", '["mmr"]', "setting comparison.metrics: no figure is called 'mmr'"),
    ("EVALUATION__INTERVAL", "z", "'percentile', 'bca', 't' or 'wilson'"),
    ("EVALUATION__CONFIDENCE", "95", "less than 1"),
])  # fmt: skip
def test_an_invalid_setting_is_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str,
    value: str, possible: str,
) -> None:  # fmt: skip
    """The line names the setting and its valid values."""
    monkeypatch.setenv(f"STREAM_METRICS_{name}", value)

    said = refused(capsys, "compare", "A", "B")

    assert name.lower().replace("__", ".") in said
    assert possible in said


NO_FIGURES: dict[str, Any] = {
    **dict.fromkeys(MACRO), "gate": {}, "routing": {}, "iterations_for_all_good_results": None,
    "all_good_basis": None,
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), [
    (("A",), "give at least two directories"),
    (("A", "A"), "a directory is given twice"),
    (("A", "none"), "none: no such directory"),
    (("A", "empty"), "empty: no rows. It needs one of conversations.jsonl, queries.jsonl"),
    (("A", "B", "--metric", "ndcgg@5"), "--metric: no figure is called 'ndcgg@5'; did you mean"),
    (("A", "B", "--stratify", "x"), "--stratify: no row has the dimension 'x'"),
    (("A", "broken"), "queries.jsonl, line 1: "),
    (("A", "other"), "queries.jsonl, line 1: no row of queries"),
    (("A", "text"), "conversations.jsonl, line 1: no row of conversations (srr is not a finite"),
    (("A", "bytes"), "report.json: "),
    (("A", "old"), "report.json: schema version 0 is not 1, so another release wrote it; replay"),
    (("A", "new"), "report.json: schema version 99 is not 1"),
    (("A", "unversioned"), "report.json: schema version None is not 1"),
    (("A", "disjoint"), "no figure in common; there are mrr"),
])  # fmt: skip
def test_runs_that_cannot_be_compared_are_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    """The exit code is 2, and the line says what is wrong."""
    for name, line in {
        "broken": "{",
        "other": '{"query_id": "q", "scores": {"mrr": "high"}}',
        "disjoint": '{"query_id": "q1", "scores": {"hit@1": 1.0}}',
    }.items():
        (folder / name).mkdir()
        (folder / name / "queries.jsonl").write_text(line + "\n")
    (folder / "empty").mkdir()
    row = {"conversation_id": "c", "duplicates": "5", "results": 9, "good_unique": 1, "n": 2}
    row |= {"gain": 3, "unique": 4, "labelled": 2, "agent": "a", "release": None, **NO_FIGURES}
    (folder / "text").mkdir()
    (folder / "text" / "conversations.jsonl").write_text(json.dumps(row) + "\n")
    for name, content in {
        "bytes": b'{"schema_version": 1, "source": ["\xff"]}',
        "old": b'{"schema_version": 0}',
        "new": b'{"schema_version": 99}',
        "unversioned": b"{}",
    }.items():
        shutil.copytree(folder / "B", folder / name)
        (folder / name / "report.json").write_bytes(content)

    assert message in refused(capsys, "compare", *arguments)
