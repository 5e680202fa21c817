"""What people read of a replay whose labels are a model's, or of random samples."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.metrics.labels import MODEL_OFF
from stream_metrics.lab.evaluation.shown_estimates import (
    ABOUT,
    TITLE,
    shown_estimates,
)
from tests.unit.test_page_estimates import DOCS, SAMPLED, in_sample, judged
from tests.unit.test_worst import labelled, searched

PEOPLE = (searched("c", 1, "ab"), labelled("c", {"1.0.a": 3, "1.1.b": 0}))
BY_MODEL = labelled("d", {"1.0.a": 3}) | {"source": "model"}
UNSAMPLED_MODEL = (*PEOPLE, searched("d", 1, "ab"), BY_MODEL)


def replayed(events: Sequence[dict[str, Any]], folder: Path) -> tuple[str, str, dict[str, Any]]:
    """The summary of a replay, its page as text, and its report."""
    (folder / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    arguments = ["replay", str(folder / "in.jsonl"), "--out", str(folder / "out")]
    done = CliRunner().invoke(app, [*arguments, "--processes", "1"])
    assert done.exit_code == 0, done.output
    page = re.sub(r"<style>.*?</style>", "", (folder / "out/report.html").read_text(), flags=re.S)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page).replace("&#39;", "'"))
    return done.stderr, text, json.loads((folder / "out/report.json").read_text())


def test_the_summary_prints_each_estimate_with_its_interval_and_conversations(
    tmp_path: Path,
) -> None:
    """By people, by the model without an interval, and combined."""
    summary, _, report = replayed(SAMPLED, tmp_path)
    sre = report["estimates"]["all"]["sre"]

    for by, one, conversations in (
        ("by people", sre["human"], "24"),
        ("combined", sre["combined"], "24 by both, 24 by model"),
    ):
        bounds = f"[{one['ci_low']:.4f}, {one['ci_high']:.4f}]"
        line = rf"{by} +{one['value']:.4f} +{re.escape(bounds)} +{conversations}\s"
        assert re.search(line, summary)
    assert re.search(rf"by the model +{sre['model']:.4f} +- +48\s", summary)


def test_how_far_the_model_is_off_stands_beside_the_estimates(tmp_path: Path) -> None:
    """With its interval, of the conversations that both labelled."""
    summary, page, report = replayed(SAMPLED, tmp_path)
    off = report["estimates"]["all"]["sre"]["judge_off"]
    said = f"{off['value']:.4f} [{off['ci_low']:.4f}, {off['ci_high']:.4f}] 24"

    assert f"the model is off by {said}" in re.sub(r" +", " ", summary)
    assert f"SRE, the model is off by {said}" in page


def test_sre_of_a_models_labels_says_where_the_estimate_is(tmp_path: Path) -> None:
    """If most labels are a model's; only of SRE, since no estimate is of gain per result."""
    by_model = [event for n in range(500, 530) for event in judged(n, "it-desk", ("model",))]
    summary, page, _ = replayed([*SAMPLED, *by_model], tmp_path)

    said = "SRE 0.5808 (540 of 780 labels are a model's): read SRE, combined, below gain per"
    assert said in re.sub(r"\s+", " ", summary)
    assert page.count("Read SRE, combined, of the headline's estimates.") >= 1


def test_where_people_labelled_half_nothing_is_said_of_it(tmp_path: Path) -> None:
    """Their labels count before those of the model."""
    summary, page, _ = replayed(SAMPLED, tmp_path)
    assert "ead SRE, combined" not in summary + page


def test_the_page_shows_the_estimates_in_its_head_and_says_what_they_are(tmp_path: Path) -> None:
    """They stand before the contents."""
    _, page, report = replayed(SAMPLED, tmp_path)
    head = page[page.index("Headline") : page.index("Contents")]

    assert f"{TITLE} {ABOUT}" in head
    for one in shown_estimates(report):
        assert f"{one.figure}, {one.by} {one.value} {one.interval} {one.conversations}" in head


def test_only_estimates_that_there_are_are_shown() -> None:
    """A sample of people alone has no estimate by a model."""
    human = {"value": 0.5, "ci_low": None, "ci_high": None}
    found = {"human": human, "model": None, "combined": None}
    found["conversations"] = {"both": 0, "people": 1, "model": 0}
    shown = shown_estimates({"estimates": {"all": {"ndcg@10": found, "sre": found}}})

    assert [tuple(one) for one in shown] == [
        ("SRE", "by people", "0.5000", "-", "1"),
        ("ndcg@10", "by people", "0.5000", "-", "1"),
    ]


def test_a_sample_that_is_not_labelled_is_said_in_place_of_the_combined_estimate(
    tmp_path: Path,
) -> None:
    """With the conversations that the model has not labelled whole."""
    drawn = [event for n in range(3) for event in (searched(f"d{n}", 1, DOCS), in_sample(f"d{n}"))]
    summary, page, _ = replayed([*SAMPLED, *drawn], tmp_path)

    said = "combined none - 3 not labelled whole by the model, over 5% of its sample"
    assert said in page
    assert said in re.sub(r"\s+", " ", summary)
    assert "by the model " not in summary.replace(said, "")


def test_sre_and_gain_say_how_many_of_their_labels_are_of_a_model(tmp_path: Path) -> None:
    """And that no interval includes how far it is off, in the summary and on the page."""
    summary, page, _ = replayed(UNSAMPLED_MODEL, tmp_path)

    for title in ("SRE", "gain per result"):
        assert re.search(rf"{title} +\S+ \(1 of 3 labels are a model's\)", summary)
    assert MODEL_OFF in summary
    for title in ("SRE", "AvgGain"):
        said = f"3 of 4 documents have a label, 1 of these by a model. {MODEL_OFF}"
        assert re.search(rf"{title} \S+ {re.escape(said)}", page)
    assert TITLE not in page


@pytest.mark.parametrize("events", [PEOPLE, judged(1, "it-desk", ("human",))])
def test_labels_of_people_need_no_such_words(
    tmp_path: Path, events: Sequence[dict[str, Any]]
) -> None:
    """Neither in the summary nor on the page."""
    summary, page, _ = replayed(events, tmp_path)

    for text in (summary, page):
        assert MODEL_OFF not in text
        assert "a model's" not in text
        assert "by a model" not in text
