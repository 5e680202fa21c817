"""``--stratify`` in a replay: agent, release, route and recorded dimensions, in every block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.events.record import Record
from stream_metrics.lab.evaluation.estimates import UnknownDimension
from stream_metrics.lab.replay.report import MACRO
from stream_metrics.lab.replay.run import run
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.reports.run_directory import read_observations
from tests.replays import AT_ONCE, IN_PARTS, RecordedProgress, merged, replayed, task
from tests.unit.test_replay_answers import record
from tests.unit.test_replay_searches import search
from tests.unit.test_report import figures

DIMENSIONS = ("language", "route", "agent")


def recorded(size: int = 18) -> list[Record]:
    """Conversations in two languages with one or two routes; every sixth has neither."""
    records = []
    for number in range(size):
        name = f"c{number:02}"
        route = None if number % 6 == 5 else "web"
        records.append(search(name, 1, "a", "b", route=route))
        if number % 3 == 0:
            records.append(search(name, 2, "a", route="kb"))
        if number % 6 != 5:
            language = {"language": "de" if number % 2 else "en"}
            records.append(
                record("turn_completed", name, 9, answer="about a", dimensions=language,
                       relevant={"a": 3})
            )  # fmt: skip
    return records


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """The rows of conversations."""
    lines = (directory / "conversations.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def report_of(directory: Path, *stratify: str) -> dict[str, Any]:
    """The report of ``recorded()``, split by these dimensions."""
    return run(task(recorded(), directory, AT_ONCE, stratify=stratify), RecordedProgress()).content


def test_rows_are_split_by_recorded_dimensions(tmp_path: Path) -> None:
    """A stratum has the figures of its rows; rows without the dimension are counted."""
    found = report_of(tmp_path, "language")["strata"]["language"]

    assert found["without"] == 3
    for language, odd in (("de", 1), ("en", 0)):
        own = [
            row
            for number, row in enumerate(rows_in(tmp_path))
            if number % 6 != 5 and number % 2 == odd
        ]
        stratum = found["strata"][language]
        assert figures(own) == (stratum["macro"], stratum["micro"])
        assert stratum["conversations"] == len(own)


def test_a_row_belongs_to_the_set_of_routes_of_its_turn(tmp_path: Path) -> None:
    """A search belongs to its own route only."""
    report = report_of(tmp_path, "route")

    found = report["strata"]["route"]
    assert {name: one["conversations"] for name, one in found["strata"].items()} == {
        "kb+web": 6, "web": 9,
    }  # fmt: skip
    assert found["without"] == 3
    assert report["retrieval"]["strata"]["route"]["units"] == {"kb": 6, "web": 15}
    assert report["generation"]["strata"]["route"]["units"] == {"kb+web": 6, "web": 9}


def test_every_summary_is_split_by_the_given_dimensions(tmp_path: Path) -> None:
    """By default rows are split by language, and other summaries by all dimensions."""
    asked = report_of(tmp_path / "asked", "language", "agent")
    unasked = report_of(tmp_path / "unasked")

    assert list(asked["strata"]) == ["language", "agent"]
    assert list(asked["retrieval"]["strata"]) == ["language", "agent"]
    assert list(asked["generation"]["strata"]) == ["language", "agent"]
    assert unasked["strata"] == {"language": asked["strata"]["language"]}
    assert list(unasked["retrieval"]["strata"]) == ["language", "route"]
    assert list(unasked["generation"]["strata"]) == ["language", "route"]


def test_an_unknown_dimension_is_an_error(tmp_path: Path) -> None:
    """The message lists the known ones."""
    with pytest.raises(UnknownDimension, match="'topic'; there are: agent, language, release, rou"):
        report_of(tmp_path, "topic")


def test_every_way_of_replaying_gives_the_same_strata(tmp_path: Path) -> None:
    """This holds for replays in memory, in shards, and for merged inputs."""
    whole = replayed(recorded(), tmp_path / "whole", AT_ONCE, stratify=DIMENSIONS)
    pieces = replayed(recorded(), tmp_path / "pieces", IN_PARTS, stratify=DIMENSIONS)
    assert pieces == whole
    assert merged(recorded(), tmp_path, 2, DIMENSIONS) == whole


def test_comparisons_use_the_same_strata(tmp_path: Path) -> None:
    """``compare --stratify language`` computes the figures that the report has of a stratum."""
    report = report_of(tmp_path, *DIMENSIONS)

    rows = read_observations(tmp_path)["conversations"]

    for dimension in DIMENSIONS:
        for stratum, own in rows.strata(dimension).items():
            found = report["strata"][dimension]["strata"][stratum]
            assert own.figure("srr").figure == found["micro"]["srr"]["value"]


def test_the_page_has_a_section_for_each_dimension(tmp_path: Path) -> None:
    """The section shows the mean of each stratum."""
    report = report_of(tmp_path, "language")

    page = write_report_page(tmp_path).read_text(encoding="utf-8")

    assert page.index("<h2>Headline</h2>") < page.index("<h3>Rows by language</h3>")
    mean = report["strata"]["language"]["strata"]["de"]["macro"][MACRO[0]]["mean"]
    assert f"{mean:.4f}" in page


@pytest.mark.parametrize(("languages", "split"), [(1, False), (2, True), (50, True), (51, False)])
def test_by_default_rows_are_split_by_a_few_languages(
    tmp_path: Path, languages: int, split: bool
) -> None:
    """Rows in one language, or in more than 50, are not split."""
    records = []
    for number in range(languages):
        records.append(search(f"c{number:02}", 1, "a"))
        told = {"language": f"l{number:02}"}
        records.append(record("turn_completed", f"c{number:02}", 9, dimensions=told))

    report = run(task(records, tmp_path, AT_ONCE), RecordedProgress()).content

    assert list(report["strata"]) == (["language"] if split else [])


def test_rows_without_a_release_are_a_stratum_everywhere(tmp_path: Path) -> None:
    """This holds for rows, searches and answers, in the report and in a comparison."""
    records = [search("c0", 1, "a", release="r1"), search("c1", 1, "a"), search("c2", 1, "b")]
    records += [record("turn_completed", f"c{at}", 9, answer="about a") for at in range(3)]
    report = run(
        task(records, tmp_path, AT_ONCE, stratify=("release",)), RecordedProgress()
    ).content

    rows = read_observations(tmp_path)

    found = report["strata"]["release"]["strata"]
    assert {name: one["conversations"] for name, one in found.items()} == {"none": 2, "r1": 1}
    for block in ("retrieval", "generation"):
        assert report[block]["strata"]["release"]["units"] == {"none": 2, "r1": 1}
    for kind in ("conversations", "queries", "turns"):
        sizes = {name: len(own.units) for name, own in rows[kind].strata("release").items()}
        assert sizes == {"none": 2, "r1": 1}
