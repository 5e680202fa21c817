"""Reports and comparisons of recordings whose conversations are in random samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.cli.compare_tables import as_markdown
from stream_metrics.core.alerts.estimates import estimates
from stream_metrics.core.events.record import Record
from stream_metrics.lab.evaluation.compare_estimates import compared_estimates
from stream_metrics.lab.evaluation.compare_runs import compare_runs
from stream_metrics.lab.evaluation.notes import Run, notes_of
from stream_metrics.lab.evaluation.shown_estimates import TITLE
from stream_metrics.lab.reports.html.comparison import comparison_page
from stream_metrics.lab.reports.run_directory import read_observations, read_report
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.helpers import ran
from tests.label_samples import in_samples
from tests.replays import AT_ONCE, IN_PARTS, SPOOLED, merged, replayed, traffic

RECORDS = [
    Record(one.value, one.key, one.timestamp_ms)
    for one in in_samples(generate(TrafficProfile(seed=5, conversations=80, start=1_742_284_800)))
]


def estimated(files: dict[str, bytes]) -> dict[str, Any]:
    """The block ``estimates`` of a report."""
    found: dict[str, Any] = json.loads(files["report.json"])["estimates"]
    return found


def test_a_report_has_the_estimates_of_all_agents_and_of_each(tmp_path: Path) -> None:
    """Its samples add up over agents, and it names a model that is too kind."""
    found = estimated(replayed(RECORDS, tmp_path, AT_ONCE))
    sre = found["all"]["sre"]
    by_agent = [one["sre"]["conversations"] for one in found["by_agent"].values()]

    assert len(by_agent) > 1
    for sample in ("both", "people", "model"):
        assert sre["conversations"][sample] == sum(one[sample] for one in by_agent)
    assert sre["conversations"]["both"] > 10
    assert sre["conversations"]["people"] == 0
    assert sre["judge_off"]["ci_low"] > 0
    assert sre["model"] > sre["human"]["value"]
    width, alone = (sre[by]["ci_high"] - sre[by]["ci_low"] for by in ("combined", "human"))
    assert width < alone


def test_a_report_in_parts_has_the_same_estimates(tmp_path: Path) -> None:
    """Whether a recording is replayed at once, in pieces or in shares that are merged."""
    whole = estimated(replayed(RECORDS, tmp_path / "once", AT_ONCE))

    for name, scale in (("spooled", SPOOLED), ("parts", IN_PARTS)):
        assert estimated(replayed(RECORDS, tmp_path / name, scale)) == whole
    assert estimated(merged(RECORDS, tmp_path / "shares", 3)) == whole


def test_a_report_without_random_samples_says_nothing_of_them(tmp_path: Path) -> None:
    """Nor do its windows, buckets and parts."""
    files = replayed(traffic(), tmp_path, AT_ONCE)

    assert [name for name, text in files.items() if b"label_sums" in text] == []
    assert [name for name, text in files.items() if b"estimates" in text] == []


def run(name: str, combined: dict[str, float] | None) -> Run:
    """A run with an estimate of SRE."""
    conversations = {"both": 60, "people": 0, "model": 600}
    sre = {"combined": combined, "conversations": conversations}
    return Run(name, {}, {"estimates": {"all": {"sre": sre}}})


GOOD = {"value": 0.5, "ci_low": 0.46, "ci_high": 0.54}
BAD = {"value": 0.4, "ci_low": 0.37, "ci_high": 0.43}


def test_runs_are_compared_by_their_combined_estimates() -> None:
    """The difference has an interval from those of both, and is significant without 0 in it."""
    block = compared_estimates([run("before", GOOD), run("after", BAD), run("again", GOOD)])
    sre = block["estimates"]["tables"]["estimates"]["metrics"]["sre"]
    worse, same = sre["comparisons"]

    assert worse["difference"] == pytest.approx(-0.1)
    assert (worse["ci_low"], worse["ci_high"]) == pytest.approx((-0.15, -0.05))
    assert (worse["significant"], worse["verdict"], worse["n"]) == (True, "worse", 120)
    assert (same["significant"], same["verdict"]) == (False, None)


def test_a_run_without_a_combined_estimate_is_not_compared() -> None:
    """Nor is a figure that only one of two runs has."""
    assert compared_estimates([run("before", GOOD), run("after", None)]) == {}
    assert compared_estimates([run("before", GOOD), Run("after", {}, {})]) == {}
    assert compared_estimates([Run("before", {}, {}), run("after", GOOD)]) == {}


def test_a_comparison_says_of_which_run_the_model_has_not_labelled_its_sample() -> None:
    """That run has no combined estimate."""
    left_out = run("after", None)
    left_out.report["estimates"]["all"]["sre"]["incomplete"] = True

    assert notes_of([run("before", GOOD), left_out], {}) == [
        "after has no combined estimate of sre, because over 5% of what was drawn for the model is "
        "not labelled by it"
    ]


def test_a_comparison_shows_estimates(tmp_path: Path) -> None:
    """Tables for people and the page have a part for them."""
    runs = []
    for name in ("before", "after"):
        replayed(RECORDS, tmp_path / name, AT_ONCE)
        directory = tmp_path / name
        runs.append(Run(name, read_observations(directory), read_report(directory)))
    found = compare_runs(runs, metrics=["srr"])

    assert "estimates" in found
    assert f"### {TITLE}" in as_markdown(found)
    assert TITLE in comparison_page(found)


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("sre.combined.worse", 1),
        ("sre.combined.difference_high<0", 1),
        ("sre.combined<0.2", 1),
        ("sre.combined.n<60", 0),
        ("gain.combined.worse", 0),
        ("ndcg@10.combined.worse", 2),
        ("any.worse", 0),
    ],
)
def test_a_build_fails_by_an_estimate(tmp_path: Path, gate: str, code: int) -> None:
    """That both runs have; ``any`` leaves estimates out, because no p of theirs is adjusted."""
    for name in ("before", "after"):
        replayed(RECORDS, tmp_path / name, AT_ONCE)
    path = tmp_path / "after" / "report.json"
    report = json.loads(path.read_text())
    sre = report["estimates"]["all"]["sre"]
    sre["combined"] = {"value": 0.1, "ci_low": 0.05, "ci_high": 0.15}
    sre["conversations"]["both"] = 60
    path.write_text(json.dumps(report))

    runs = (str(tmp_path / "before"), str(tmp_path / "after"))
    done = ran("compare", *runs, "--metric", "srr", "--metric", "sre", "--fail-if", gate)

    assert done.returncode == code, done.stderr
    assert (gate in done.stderr) == (code > 0)


def test_estimates_of_a_report_are_those_of_its_sums(tmp_path: Path) -> None:
    """They follow from the sums that the parts of a replay keep."""
    files = replayed(RECORDS, tmp_path, AT_ONCE)
    total: dict[str, dict[str, int]] = {}
    for of in json.loads(files["parts.json"])["outcome"]["label_sums"].values():
        for code, value in of.items():
            _, figure, sample, name = code.split("|")
            if figure == "gain":
                into = total.setdefault(sample, {})
                into[name] = into.get(name, 0) + value
    found = estimates("gain", total)
    reported = estimated(files)["all"]["gain"]

    assert found.combined is not None
    assert [reported["combined"][name] for name in ("value", "ci_low", "ci_high")] == [
        *found.combined
    ]
