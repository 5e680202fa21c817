"""Without labels, relevance is unknown, and no summary shows 0 for it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stream_metrics.cli import app
from stream_metrics.lab.evaluation.summaries import Conversations
from tests.unit.test_report_page import Read
from tests.unit.test_worst import labelled, searched

UNLABELLED = [
    searched(f"c-{n}", iteration, [f"a{n}", f"b{iteration}"], agent="quiet" if n % 2 else "mute")
    for n in range(6)
    for iteration in (1, 2)
]
LABELS = [labelled(f"c-{n}", {f"1.0.a{n}": 3, "1.1.b1": 0}) for n in (1, 3, 5)]
"""Of every conversation of the agent ``quiet``, and of none of ``mute``."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with replays ``without`` labels, and ``partly`` with those of one agent."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "without.jsonl", UNLABELLED)
    written(tmp_path / "partly.jsonl", [*UNLABELLED, *LABELS])
    for name in ("without", "partly"):
        assert ran("replay", f"{name}.jsonl", "--out", name, "--stratify", "agent").exit_code == 0
    return tmp_path


def written(path: Path, events: Iterable[dict[str, Any]]) -> None:
    """Write events as JSON Lines."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def ran(*arguments: str) -> Result:
    """Run a command to its end."""
    return CliRunner().invoke(app, list(arguments))


def page(folder: Path) -> tuple[str, str]:
    """The HTML of a report page, and its text."""
    found = (folder / "report.html").read_text(encoding="utf-8")
    return found, Read(found).text


def test_the_files_follow_the_definitions(folder: Path) -> None:
    """In report.json and in rows SRE and gains are 0 without a label."""
    micro = json.loads((folder / "without" / "report.json").read_text())["aggregate"]["micro"]
    rows = (folder / "without" / "conversations.jsonl").read_text().splitlines()

    assert (micro["sre"], micro["avg_gain"]) == (0.0, 0.0)
    assert {json.loads(row)["sre"] for row in rows} == {0.0}


def test_the_printed_summary_says_that_nothing_is_labelled(folder: Path) -> None:
    """SRE and gain have no value, while SRR has one; with labels all have values."""
    said = {name: ran("report", name).stderr for name in ("without", "partly")}

    assert re.search(r"^documents +18, of them 0 labelled", said["without"], re.M)
    assert re.search(r"^SRR +0\.2500", said["without"], re.M)
    for title in ("SRE", "gain per result"):
        assert re.search(rf"^{title} +- \(no document has a label\)", said["without"], re.M)
        assert re.search(rf"^{title} +\d\.\d{{4}}", said["partly"], re.M)


def test_the_report_page_shows_no_efficiency(folder: Path) -> None:
    """No tile, table, chart or list has an SRE, and the headline says why."""
    found, said = page(folder / "without")

    (headline,) = re.findall(r"<h2>Headline</h2>(.*?)</section>", found, re.S)
    for title in ("SRE", "AvgGain"):
        tile = f'<h3>{title}</h3><p class="value">-</p><p>0 of 18 documents have a label</p>'
        assert tile in headline
    assert "SRE and gains have no value without labels." in said
    assert "6 without any label have no SRE." in said
    assert "Histogram of SRR" in found
    assert "Histogram of SRE" not in found
    assert "SRE by iteration" not in found
    (lowest,) = re.findall(r"<h3>Lowest SRE</h3>(.*?)</div>", found, re.S)
    assert "None." in lowest
    (strata,) = re.findall(r"<h3>Sums by agent</h3>(.*?)</table>", found, re.S)
    assert strata.count('<td class="number">-</td>') == 2


def test_an_agent_without_labels_has_no_efficiency(folder: Path) -> None:
    """Strata, worst conversations and the distribution omit conversations without labels."""
    found, said = page(folder / "partly")

    (sums,) = re.findall(r"<h3>Sums by agent</h3>(.*?)</table>", found, re.S)
    assert re.findall(r"<code>(\w+)</code>.*?>([-.\d]+)</td></tr>", sums) == [
        ("mute", "-"),
        ("quiet", "0.2500"),
    ]
    (rows,) = re.findall(r"<h3>Rows by agent</h3>(.*?)</table>", found, re.S)
    assert re.search(r"SRE</th><td class=\"number\">-<br>-</td><td class=\"number\">0\.2500", rows)
    (lowest,) = re.findall(r"<h3>Lowest SRE</h3>(.*?)</table>", found, re.S)
    assert re.findall(r"<code>(c-\d)</code>", lowest) == ["c-1", "c-3", "c-5"]
    assert "3 without any label have no SRE." in said


def test_iterations_before_the_first_label_have_no_efficiency() -> None:
    """SRE@i is known from the first iteration whose documents have a label."""

    def iteration(labelled: int) -> dict[str, Any]:
        return {"unique": 2, "labelled": labelled, "srr": 0.0, "sre": 0.5 * labelled}

    rows = Conversations()
    rows.add(
        {
            "conversation_id": "c", "turn": 1, "agent": "a", "release": None, "over_limit": False,
            "n": 3, "results": 6, "duplicates": 0, "good_unique": 1, "unique": 6, "labelled": 1,
            "srr": 0.0, "sre": 1 / 6, "iterations": [iteration(0), iteration(1), iteration(0)],
        }
    )  # fmt: skip

    assert [one.sre for one in rows.by_iteration()] == [None, 0.5, 0.0]


@pytest.mark.parametrize("condition", ["sre<0.5", "sre>0.5", "rg.ci_low>0", "avg_gain>=0"])
def test_a_condition_on_an_unlabelled_metric_fails_with_the_reason(
    folder: Path, condition: str
) -> None:
    """Any comparison fails, and the message blames the missing labels."""
    found = ran("report", "without", "--fail-if", condition)

    assert found.exit_code == 1
    assert "is not defined, because no document has a label" in found.stderr
    assert ran("report", "partly", "--fail-if", "sre>0.5").exit_code == 0


def test_a_comparison_leaves_out_metrics_that_one_run_has_no_labels_for(folder: Path) -> None:
    """It compares SRR, names the run without labels, and refuses a request for SRE."""
    found = ran("compare", "partly", "without", "--resamples", "100", "--stratify", "agent")

    assert found.exit_code == 0
    assert "SRR" in found.stdout
    assert (
        "no document of without has a label, so SRE and gains have no value there" in found.stdout
    )
    figures = re.findall(r"^(\w+) ", found.stdout, re.M)
    assert not {"SRE", "CG", "RG", "AvgGain"} & set(figures)
    for more, option in (
        (["--metric", "sre"], "--metric: sre has no value, as"),
        (["--fail-if", "sre.difference<0"], "--fail-if 'sre.difference<0':"),
    ):
        refused = ran("compare", "partly", "without", *more)
        assert f"{option} no document of without has a label" in str(refused.exception)


def test_a_run_that_lost_its_labels_does_not_pass_for_not_worse(folder: Path) -> None:
    """Its SRE cannot be tested; a comparison without metrics of labels does not need them."""
    shutil.copytree("without", "again")
    gate = ("--fail-if", "any.worse", "--resamples", "100")

    refused = ran("compare", "partly", "without", *gate)
    assert str(refused.exception) == "--fail-if 'any.worse': no document of without has a label"
    assert ran("compare", "partly", "without", "--metric", "srr", *gate).exit_code == 0
    assert ran("compare", "without", "again", *gate).exit_code == 0


def test_a_comparison_has_no_difference_in_a_stratum_without_labels(folder: Path) -> None:
    """Two labelled runs are compared by SRE, except for the agent without labels."""
    shutil.copytree("partly", "again")

    found = json.loads(
        ran("compare", "partly", "again", "--metric", "sre", "--stratify", "agent",
            "--format", "json", "--resamples", "100").stdout
    )  # fmt: skip

    values = {
        stratum: [value["value"] for value in sre["values"]]
        for stratum, family in found["strata"]["agent"].items()
        for sre in [family["tables"]["conversations"]["metrics"]["sre"]]
    }
    assert values == {"mute": [None, None], "quiet": [0.25, 0.25]}
    assert "no document of partly and again has a label" in str(found["strata"]["agent"]["mute"])
