"""The content of ``report.html`` and ``compare.html``; input never becomes markup."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import chdir
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stream_metrics.lab.evaluation.summaries import WORST, Conversations, Histogram, Queries
from stream_metrics.lab.replay.run import run
from stream_metrics.lab.reports.html.figures import stratified
from stream_metrics.lab.reports.html.markup import ENVIRONMENT, table
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.sources.unchanged import InputError
from tests.killed import State, put, state
from tests.replays import SPOOLED, RecordedProgress, task, traffic
from tests.unit.test_compare import folder, invoke

__all__ = ["folder"]

HOSTILE = "<img src=x onerror=alert(1)>\"'&\u202e\x1b"
VOID = {"meta", "br", "wbr", "line", "rect", "path", "circle"}


class Read(HTMLParser):
    """The elements of a page and its text; fails unless elements are nested correctly."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.headings: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element that opens."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element without content."""
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost element ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Record text, and whether it is that of a heading or a link."""
        if self._open and self._open[-1] == "h2":
            self.headings.append(data)
        if self._open and self._open[-1] == "a":
            self.links.append(data)
        if "style" not in self._open:
            self.text += data


@pytest.fixture
def replayed(folder: Path) -> Path:
    """The directory of a replay."""
    put(_replayed(), folder)
    return folder / "r"


@cache
def _replayed() -> State:
    with TemporaryDirectory() as folder, chdir(folder):
        invoke("generate", "--out", "t.jsonl", "--conversations", "15")
        invoke("replay", "t.jsonl", "--out", "r")
        return state(Path(folder))


def evaluated(folder: Path) -> Path:
    """The directory of an evaluation."""
    return folder / "A"


def compared(folder: Path) -> Path:
    """The directory of a comparison."""
    invoke("compare", "A", "B", "--resamples", "100", "--out", "c")
    return folder / "c"


PAGES = [(evaluated, "report.html"), (compared, "compare.html")]


@pytest.mark.slow
def test_a_replay_has_every_part(replayed: Path) -> None:
    """These are headline, figures of rows, searches and answers, and settings, in this order."""
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    assert page.headings == [
        "Headline", "Contents", "Figures", "Distributions", "By iteration",
        "Worst conversations", "Rows by stratum", "Searches", "Searches by score",
        "Worst searches", "Searches by stratum", "What judges searches", "Answers",
        "Answers by stratum", "Data quality", "Settings",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_contents_lead_to_every_section(replayed: Path) -> None:
    """The links of the contents are the sections of the page, in its order."""
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    links = [value for name, value in page.attributes if name == "href"]
    anchors = [value for name, value in page.attributes if name == "id"]
    assert links == [f"#{anchor}" for anchor in anchors[1:]]
    assert page.links == page.headings[2:]


def test_strata_are_folded_with_their_warnings_inside(replayed: Path) -> None:
    """A folded dimension is one line with the number of strata; language comes first."""
    found = (replayed / "report.html").read_text(encoding="utf-8")

    (rows,) = re.findall(r"<h2>Rows by stratum</h2>(.*?)</section>", found, re.S)
    folded = re.findall(r"<details class=\"card folded\">(.*?)</details>", rows, re.S)
    assert rows == "".join(f'<details class="card folded">{one}</details>' for one in folded)
    assert [re.search(r"<h3>(.*?)</h3>", one)[1] for one in folded] == [  # type: ignore[index]
        "Rows by language", "Sums by agent", "Sums by release",
    ]  # fmt: skip
    summary, inside = folded[0].split("</summary>")
    assert "2 strata, 2 with a warning" in summary
    assert "fewer than 50 units" in inside


def test_the_headline_names_several_languages(replayed: Path) -> None:
    """A mean over several languages is shown with the number of languages."""
    found = (replayed / "report.html").read_text(encoding="utf-8")

    (headline,) = re.findall(r"<h2>Headline</h2>(.*?)</section>", found, re.S)
    assert "in 2 languages" in headline


def test_gate_efficiency_says_how_many_searches_could_have_been_saved(replayed: Path) -> None:
    """Its tile and its row show the counts of the report."""
    gate = json.loads((replayed / "report.json").read_text())["gate"]
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    saved, could = gate["correct_skip"], gate["correct_skip"] + gate["wasted"]
    said = f"{saved} of {could} searches that were not needed were skipped"
    assert could > 0
    assert page.text.count(f"{said}; {gate['labelled']} decisions have a label") == 2


@pytest.mark.slow
def test_the_headline_is_that_of_the_report(replayed: Path) -> None:
    """The page shows SRR with the interval in ``report.json``."""
    aggregate = json.loads((replayed / "report.json").read_text())["aggregate"]
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    found = aggregate["micro_intervals"]["srr"]
    assert found["value"] == pytest.approx(aggregate["micro"]["srr"], abs=1e-12)
    assert f"{aggregate['micro']['srr']:.4f}" in page.text
    assert f"[{found['ci_low']:.4f}, {found['ci_high']:.4f}]" in page.text


def test_gate_and_routing_have_intervals(replayed: Path) -> None:
    """The page shows intervals of gate accuracy and routing accuracy."""
    aggregate = json.loads((replayed / "report.json").read_text())["aggregate"]
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    for name in ("gate_accuracy", "routing_accuracy"):
        found = aggregate["micro_intervals"][name]
        assert f"[{found['ci_low']:.4f}, {found['ci_high']:.4f}]" in page.text


def test_an_evaluation_has_its_parts(folder: Path) -> None:
    """These are headline, distributions, worst queries, data quality and settings."""
    page = Read((folder / "A" / "report.html").read_text(encoding="utf-8"))

    assert page.headings == [
        "Headline", "Contents", "Distributions", "Worst queries", "Data quality", "Settings",
    ]  # fmt: skip


@pytest.mark.parametrize(("made", "file"), PAGES)
def test_a_page_is_self_contained(folder: Path, made: Callable[[Path], Path], file: str) -> None:
    """It has no script, no URL, and links to its own sections only."""
    found = (made(folder) / file).read_text(encoding="utf-8")
    page = Read(found)

    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {name for name, _ in page.attributes} & {"src", "srcset"}
    assert all(str(value).startswith("#") for name, value in page.attributes if name == "href")
    assert "http" not in found.replace("http-equiv", "")
    assert "url(" not in found


@pytest.mark.slow
def test_conversations_link_to_their_traces_if_configured(
    replayed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worst conversations and worst searches have links; their ids are percent-encoded."""
    for file in ("conversations.jsonl", "queries.jsonl"):
        path = replayed / file
        path.write_text(path.read_text().replace('"conversation_id":"', '"conversation_id":"/?'))
    monkeypatch.setenv("STREAM_METRICS_WEB__CONVERSATION_URL", "https://t.test/{conversation_id}")

    invoke("report", "r", "--out", "r")

    page = Read((replayed / "report.html").read_text(encoding="utf-8"))
    links = [str(value) for name, value in page.attributes if name == "href"]
    outside = [link for link in links if not link.startswith("#")]
    assert len(outside) > 20
    assert all(link.startswith("https://t.test/%2F%3F") for link in outside)


def test_every_chart_has_a_description_and_a_table(replayed: Path) -> None:
    """The table shows the figures of the chart."""
    found = (replayed / "report.html").read_text(encoding="utf-8")

    figures = re.findall(r"<figure.*?</figure>", found, re.S)
    assert len(figures) == 9
    for figure in figures:
        assert re.search(r'<svg[^>]* role="img" aria-label="[^"]{20,}"', figure)
        assert "<table>" in figure


@pytest.mark.slow
def test_answers_have_their_own_section(replayed: Path) -> None:
    """It shows the means of the report; a page without answers has no such section."""
    report = json.loads((replayed / "report.json").read_text())
    found = report["generation"]["metrics"]["support_density"]
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))
    report["generation"] = None
    (replayed / "report.json").write_text(json.dumps(report))

    without = Read(write_report_page(replayed).read_text(encoding="utf-8"))

    assert f"[{found['ci_low']:.4f}, {found['ci_high']:.4f}]" in page.text
    assert "Support density" in page.text
    assert "Support density" not in without.text


def test_searches_have_their_own_section(replayed: Path) -> None:
    """It shows the means of the report, or only that no search is judged."""
    report = json.loads((replayed / "report.json").read_text())
    found = report["retrieval"]["metrics"]["ndcg@10"]
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))
    report["retrieval"]["queries_without_judgement"] = report["retrieval"]["queries"]
    (replayed / "report.json").write_text(json.dumps(report))

    without = Read(write_report_page(replayed).read_text(encoding="utf-8"))

    assert f"[{found['ci_low']:.4f}, {found['ci_high']:.4f}]" in page.text
    assert "ndcg@10" in page.text
    assert "ndcg@10" not in without.text
    assert "Rankings that nothing judges" in without.text


def test_names_of_the_input_are_text(replayed: Path) -> None:
    """Markup in conversation, agent, source, setting and message is escaped."""
    rows = [
        json.loads(line) for line in (replayed / "conversations.jsonl").read_text().splitlines()
    ]
    for row in rows:
        row["conversation_id"] = row["agent"] = row["release"] = HOSTILE
    rows[0]["agent"] = rows[0]["release"] = "other"
    searches = [json.loads(line) for line in (replayed / "queries.jsonl").read_text().splitlines()]
    for search in searches:
        search["conversation_id"] = search["search_id"] = HOSTILE
    (replayed / "queries.jsonl").write_text("\n".join(json.dumps(one) for one in searches))
    (replayed / "conversations.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    report = json.loads((replayed / "report.json").read_text())
    report["source"] = [HOSTILE]
    report["config"] = {HOSTILE: HOSTILE}
    strata = report["generation"]["strata"]
    strata[HOSTILE] = strata.pop("difficulty")
    strata[HOSTILE]["units"] = {HOSTILE: 1}
    for one in strata[HOSTILE]["metrics"].values():
        one["strata"] = {HOSTILE: next(iter(one["strata"].values()))}
    report["bad_records"] = {
        "first": [{"source": HOSTILE, "line": 1, "reason": HOSTILE, "message": HOSTILE}]
    }
    (replayed / "report.json").write_text(json.dumps(report))

    page = Read(write_report_page(replayed).read_text(encoding="utf-8"))

    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<img src=x onerror=alert(1)>\"'&\ufffd\ufffd") > 20


def test_names_of_runs_and_metrics_are_text(folder: Path) -> None:
    """Markup in the names of a comparison is escaped."""
    hostile = "<img src=x onerror=alert(1)>"
    (folder / "B").rename(folder / hostile)
    for name in ("A", hostile):
        path = folder / name / "queries.jsonl"
        path.write_text(path.read_text().replace('"mrr":', '"<b>mrr":'))
    invoke("compare", "A", hostile, "--resamples", "100", "--out", "c")

    page = Read((folder / "c" / "compare.html").read_text(encoding="utf-8"))

    assert not {"img", "b"} & set(page.tags)
    assert hostile in page.text
    assert "<b>mrr" in page.text


@pytest.mark.slow
def test_the_same_input_gives_the_same_page(folder: Path, replayed: Path) -> None:
    """A page contains no time and no path."""
    invoke("replay", "t.jsonl", "--out", "again")

    one, two = ((folder / out / "report.html").read_bytes() for out in ("r", "again"))
    assert one == two
    assert str(folder).encode() not in one


def test_a_page_needs_a_report(tmp_path: Path) -> None:
    """The error names the directory without a report."""
    with pytest.raises(InputError, match=r"no report\.json"):
        write_report_page(tmp_path)


def test_attributes_are_escaped() -> None:
    """A quote does not end an attribute, and invisible characters are replaced."""
    found = table('"><script>\x00', ["a"], [['<"\u202e>']])

    page = Read(str(found))

    assert "script" not in page.tags
    assert ("aria-label", '"><script>\ufffd') in page.attributes
    assert '<"\ufffd>' in page.text


def test_nothing_is_shown_as_none() -> None:
    """A template fails on a missing value instead of printing "None"."""
    with pytest.raises(TypeError, match="no value"):
        table("a", ["b"], [[None]])  # type: ignore[list-item]


def test_every_template_escapes() -> None:
    """No template switches escaping off."""
    for template in ENVIRONMENT.list_templates():
        source, _, _ = ENVIRONMENT.loader.get_source(ENVIRONMENT, template)  # type: ignore[union-attr]
        assert not re.search(r"\|\s*safe\b|autoescape", source), template
    assert ENVIRONMENT.autoescape is True


def test_every_value_is_in_one_bin() -> None:
    """A bound belongs to the upper bin, 1 to the last; undefined values have their own count."""
    bins = Histogram()
    for value in (0.0, 0.1, 0.05, 1.0, 0.99, None):
        bins.add(value)

    assert bins.counts == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins.undefined == 1


def test_the_worst_conversations_are_few_and_in_order() -> None:
    """The highest SRR comes first; ties are in the order of the file."""
    found = Conversations()
    for at in range(40):
        found.add(
            {
                "conversation_id": f"c{at:02}", "turn": 1, "agent": "a", "release": None, "n": 1,
                "over_limit": False, "iterations": [], "results": 10, "duplicates": at % 4,
                "unique": 10 - at % 4, "labelled": 10 - at % 4,
                "good_unique": 1, "srr": (at % 4) / 10, "sre": 0.1,
            }
        )  # fmt: skip

    assert [row["conversation_id"] for row in found.redundant] == [
        f"c{at:02}" for at in range(3, 40, 4)
    ][:WORST]
    assert found.strata("agent") == []


def worst_of(rows: Sequence[tuple[int | None, Sequence[float | None]]], *low: str) -> list[str]:
    """The worst of queries q0, q1 and so on, given their relevant documents and scores."""
    found = Queries([], ["ndcg@10", "mrr"], low)
    for at, (relevant, (ndcg, mrr)) in enumerate(rows):
        scores = {"ndcg@10": ndcg, "mrr": mrr}
        found.add({"query_id": f"q{at}", "n_relevant": relevant, "scores": scores})
    return [query for query, _ in found.worst()]


def test_the_worst_queries_go_by_direction() -> None:
    """The highest score is the worst if lower is better."""
    rows = [(1, (at / 10, 0.5)) for at in range(10)]

    assert worst_of(rows) == [f"q{at}" for at in range(10)]
    assert worst_of(rows, "ndcg@10") == [f"q{at}" for at in range(9, -1, -1)]


def test_other_metrics_break_ties_between_queries() -> None:
    """The number of relevant documents breaks further ties, then the order of the file."""
    rows = [(1, (0.0, 0.5)), (1, (0.0, None)), (1, (0.0, 0.1)), (3, (0.0, 0.1)), (1, (0.0, 0.1))]

    assert worst_of(rows) == ["q3", "q2", "q4", "q0", "q1"]


def test_queries_without_relevant_documents_are_not_the_worst() -> None:
    """Queries without a score are not, either; the number of relevant documents may be unknown."""
    assert worst_of([(0, (0.0, 0.0)), (1, (None, 0.0)), (None, (0.5, 0.5)), (2, (0.9, 1.0))]) == [
        "q2", "q3",
    ]  # fmt: skip


def test_the_page_names_the_metric_of_the_worst_queries(folder: Path) -> None:
    """It is NDCG at the largest cutoff, even if another metric comes first."""
    page = Read((folder / "A" / "report.html").read_text(encoding="utf-8"))

    assert "Worst by ndcg@" in page.text
    assert "Ties are broken by the other metrics" in page.text


def strata_of(size: int, *names: str) -> dict[str, Any]:
    """The block of a dimension with ``size`` strata and a small variance of every metric."""
    strata = [f"branch_{at:02}" for at in range(size)]
    found = {"mean": 0.5, "ci_low": 0.4, "ci_high": 0.6}
    metric = {
        "strata": dict.fromkeys(strata, found), "stratum_average": 0.25,
        "cross_stratum_variance": 0.000123,
    }  # fmt: skip
    return {
        "units": dict.fromkeys(strata, 20),
        "notes": dict.fromkeys(strata, "few"),
        "metrics": dict.fromkeys(names, metric),
    }


@pytest.mark.parametrize("size", [2, 3, 4, 12, 50])
def test_tables_of_strata_fit_on_paper(size: int) -> None:
    """A table has at most six columns, and no stratum or summary is left out."""
    names = [f"ndcg@{k}" for k in range(1, 10)]

    found = stratified("hpo_domain", strata_of(size, *names), names)

    tables = re.findall(r"<table>.*?</table>", found, re.S)
    assert all(1 < one.count('scope="col"') <= 6 for one in tables)
    assert found.count("[0.4000, 0.6000]") == size * len(names)
    assert found.count("0.2500") == found.count("0.00012") == len(names)


def test_small_strata_share_their_note() -> None:
    """The note appears once, after the names of all small strata."""
    found = stratified("hpo_domain", strata_of(3, "mrr"), ["mrr"])

    assert "<li>branch_00, branch_01, branch_02: few</li>" in found


@pytest.mark.parametrize(("runs", "named"), [(["B"], False), (["B", "C"], True)])
def test_a_difference_begins_with_metric_and_verdict(
    folder: Path, runs: list[str], named: bool
) -> None:
    """The first columns are metric, verdict and difference; with several runs the run is named."""
    shutil.copytree(folder / "A", folder / "C")
    invoke("compare", "A", *runs, "--resamples", "100", "--metric", "mrr", "--out", "c")

    page = (folder / "c" / "compare.html").read_text(encoding="utf-8")

    (_, table, *_) = re.split("<table>", page)
    assert [*re.findall(r'scope="col"[^>]*>([^<]*)', table)][:3] == [
        "Metric", "Significant", "Difference",
    ]  # fmt: skip
    (head, *_) = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert head.startswith("mrr")
    assert ("B</bdi>" in head) == named


@pytest.mark.slow
def test_a_metric_has_its_name_after_its_title(replayed: Path) -> None:
    """Conditions use the name; a name that equals the title is not repeated."""
    page = Read((replayed / "report.html").read_text(encoding="utf-8"))

    assert "Labelled share labelled_share" in page.text
    assert "SRR, mean over rows srr.macro" in page.text
    assert "SRR srr" not in page.text


@pytest.mark.slow
def test_a_page_from_memory_equals_that_from_files(tmp_path: Path) -> None:
    """Summaries that are taken during a replay give the same page as its files."""
    _, summaries = run(task(traffic(), tmp_path, SPOOLED), RecordedProgress())

    passed = write_report_page(tmp_path, summaries).read_bytes()

    assert [*summaries.searches.worst()]
    assert summaries.conversations.rows
    assert passed == write_report_page(tmp_path).read_bytes()
