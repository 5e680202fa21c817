"""``stream-metrics evaluate``: its output, files, settings and errors."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.metrics.ranking.registry import SUITES, parse_all
from stream_metrics.lab.choices import SEED
from tests.helpers import refused
from tests.unit.test_ontology import write_ontology

QRELS = "q1 0 a 2\nq1 0 b 1\nq2 0 c 1\nq3 0 d 0\n"
RUN = "q1 Q0 b 1 0.9 m\nq1 Q0 a 2 0.8 m\nq2 Q0 x 1 0.7 m\nq3 Q0 d 1 0.6 m\nq9 Q0 d 1 0.6 m\n"
CASES = {
    "metadata": {"dataset_id": "tiny", "language": "de"},
    "test_cases": [
        {"text": "Krampfanfälle", "expected_hpo_ids": ["HP:0001250"], "difficulty": "easy"},
        {"text": "Herzfehler", "expected_hpo_ids": ["HP:0001627", "HP:0001629"]},
    ],
}
FOUND = (
    '{"case_id": 0, "retrieved": ["HP:0000001", "HP:0001250"]}\n'
    '{"case_id": 1, "retrieved": ["HP:0001629", "HP:0001627"]}\n'
)

Evaluate = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small collection, without settings from outside."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")  # undoes what --config sets
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(RUN)
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    (tmp_path / "found.jsonl").write_text(FOUND)
    return tmp_path


def evaluate(*arguments: str, run: str = "run", qrels: str = "qrels") -> str:
    """Standard output of the command."""
    done = CliRunner().invoke(app, ["evaluate", "--run", run, "--qrels", qrels, *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def report(out: Path) -> dict[str, Any]:
    """The block ``retrieval`` of the report."""
    found: dict[str, Any] = json.loads((out / "report.json").read_text())["retrieval"]
    return found


# -- output and files -------------------------------------------------------------------------


def test_a_table_needs_no_directory(folder: Path) -> None:
    """Without --out the command writes nothing and prints a table with a line per metric."""
    before = sorted(folder.iterdir())

    said = evaluate("--metric", "mrr", "--metric", "ndcg@10")

    assert sorted(folder.iterdir()) == before
    assert re.search(r"^mrr +0\.3333 +\[0\.0000, 1\.0000\] +0\.5774 +3$", said, re.M)
    assert re.search(r"^ndcg@10 +0\.2866 ", said, re.M)
    assert re.search(r"^judged@10 ", said, re.M)


def test_the_output_counts_what_was_left_out(folder: Path) -> None:
    """These are missing and dropped queries, and queries without relevant documents."""
    (folder / "run").write_text(RUN.replace("q2 Q0 x 1 0.7 m\n", ""))

    said = evaluate("--metric", "mrr", "--metric", "precision(rel=2)@5")

    assert "3 queries; 1 of the qrels missing in the run; 1 of the run without qrels" in said
    assert "queries with nothing relevant: 1 to 2, by metric;" in said


def test_the_files_have_rows_and_figures(folder: Path) -> None:
    """queries.jsonl has a row per query, sorted by code point; report.json has the figures."""
    evaluate("--metric", "mrr", "--out", "out")

    lines = (folder / "out" / "queries.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["query_id"] for row in rows] == ["q1", "q2", "q3"]
    assert [row["scores"]["mrr"] for row in rows] == [1.0, 0.0, 0.0]
    found = report(folder / "out")
    assert (found["queries"], found["queries_missing"], found["queries_dropped"]) == (3, 0, 1)
    assert found["strategy_used"] == "qrels"
    assert found["metrics"]["mrr"]["mean"] == pytest.approx(1 / 3, abs=1e-15)
    assert found["metrics"]["mrr"]["over_queries_with_relevant"]["mean"] == 0.5
    run = json.loads((folder / "out" / "run.json").read_text())
    assert run.keys() == {"version", "python", "seconds", "queries_per_second"}


def test_the_same_input_gives_the_same_bytes(folder: Path) -> None:
    """The order of lines, compression and the batch size of scoring do not matter."""
    draw = random.Random(5)
    qrels = [f"{q} 0 d{d} {draw.randint(0, 3)}" for q in range(60) for d in range(12)]
    run = [f"{q} Q0 d{d} 1 {draw.random()} m" for q in range(55) for d in range(20)]
    (folder / "qrels").write_text("\n".join(qrels))
    (folder / "run").write_text("\n".join(run))
    evaluate("--out", "one")
    draw.shuffle(qrels)
    draw.shuffle(run)
    (folder / "qrels").write_bytes(gzip.compress("\n".join(qrels).encode()))
    (folder / "run").write_bytes(gzip.compress("\n".join(run).encode()))
    (folder / "small.toml").write_text("[evaluation]\nbatch_results = 1\n")
    evaluate("--out", "two", "--config", "small.toml")

    for name in ("queries.jsonl", "report.json"):
        one, two = ((folder / out / name).read_bytes() for out in ("one", "two"))
        assert one == two
        assert one.count(b"\n") == (60 if name == "queries.jsonl" else 1)


def test_a_limit_scores_the_first_queries(folder: Path) -> None:
    """With --limit 1 there is one row, and an interval has no bounds."""
    evaluate("--metric", "mrr", "--limit", "1", "--out", "out")

    mrr = report(folder / "out")["metrics"]["mrr"]
    assert (mrr["n"], mrr["mean"], mrr["ci_low"], mrr["ci_high"]) == (1, 1.0, None, None)


def test_test_cases_are_split_by_their_dimensions(folder: Path) -> None:
    """Each stratum has its own figures; a case without the dimension is in none."""
    said = evaluate(
        "--metric", "recall@1", "--stratify", "difficulty", "--out", "out",
        run="found.jsonl", qrels="cases.json",
    )  # fmt: skip

    strata = report(folder / "out")["strata"]["difficulty"]
    assert (strata["units"], strata["without"]) == ({"easy": 1}, 1)
    assert strata["metrics"]["recall@1"]["strata"]["easy"]["mean"] == 0.0
    assert "by difficulty" in said
    assert "easy: fewer than 50 units: a warning, not a result" in said


def test_several_languages_come_first(folder: Path) -> None:
    """A run of several languages shows the figures of each before those of all."""
    for language, term in (("de", "HP:0000001"), ("fr", "HP:0000002")):
        case = {"text": "x", "expected_hpo_ids": [term], "case_id": language}
        (folder / "set" / language).mkdir(parents=True)
        (folder / "set" / language / "tiny.json").write_text(json.dumps([case]))
    (folder / "found.jsonl").write_text(
        '{"case_id": "de", "retrieved": ["HP:0000001"]}\n{"case_id": "fr", "retrieved": []}\n'
    )

    said = evaluate("--metric", "mrr", run="found.jsonl", qrels="set")

    assert said.index("by language") < said.index("interval")
    assert re.search(r"^mrr +1\.0000 +0\.0000 +0\.5000 +0\.25$", said, re.M)


def test_a_beir_folder_is_read(folder: Path) -> None:
    """Qrels come from the folder; the run is TREC's, with the option of its benchmark."""
    (folder / "beir" / "qrels").mkdir(parents=True)
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\n")
    (folder / "beir" / "queries.jsonl").write_text('{"_id": "q1", "text": "x"}\n')
    (folder / "run").write_text("q1 Q0 q1 1 0.9 m\nq1 Q0 a 2 0.8 m\n")

    evaluate("--metric", "mrr", "--out", "with", qrels="beir")
    evaluate("--metric", "mrr", "--ignore-identical-ids", "--out", "without", qrels="beir")

    means = [report(folder / out)["metrics"]["mrr"]["mean"] for out in ("with", "without")]
    assert means == [0.5, 1.0]


def test_subtopics_give_alpha_ndcg(folder: Path) -> None:
    """Two documents of one subtopic score less than documents of two."""
    (folder / "qrels").write_text("q 1 a 1\nq 1 b 1\nq 2 c 1\n")
    (folder / "run").write_text("q Q0 a 1 3 m\nq Q0 b 2 2 m\nq Q0 c 3 1 m\n")

    evaluate("--metric", "alpha_ndcg@10", "--subtopic-qrels", "--out", "out")

    found = report(folder / "out")["metrics"]["alpha_ndcg@10"]["mean"]
    assert found == pytest.approx(0.9651954696014428, abs=1e-12)


def test_terms_of_an_ontology_are_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MaxOntSim uses the ontology in the settings.

    A sibling is near, and the term itself gives 1.
    """
    (folder / "hpo").mkdir()
    write_ontology(folder / "hpo")
    monkeypatch.setenv("STREAM_METRICS_EVALUATION__HPO_FOLDER", str(folder / "hpo"))
    case = {"text": "seizure", "expected_hpo_ids": ["HP:0000021"]}
    (folder / "cases.json").write_text(json.dumps([case]))
    (folder / "found.jsonl").write_text(
        '{"case_id": 0, "retrieved": ["HP:0000022", "HP:0000021"]}\n'
    )

    evaluate(
        "--metric", "max_ont_sim@1", "--metric", "max_ont_sim@2", "--out", "out",
        run="found.jsonl", qrels="cases.json",
    )  # fmt: skip

    found = report(folder / "out")["metrics"]
    assert 0.0 < found["max_ont_sim@1"]["mean"] < found["max_ont_sim@2"]["mean"] == 1.0


def test_a_degenerate_interval_has_a_note(folder: Path) -> None:
    """If all values are equal, a line below the table says so."""
    said = evaluate("--metric", "precision(rel=9)@1", "--metric", "mrr")

    assert re.search(r"^precision\(rel=9\)@1: all values are equal", said, re.M)


# -- settings ---------------------------------------------------------------------------------


def test_settings_choose_metrics_relevance_and_statistics(folder: Path) -> None:
    """The table ``evaluation`` of the settings applies; --metric overrides it."""
    (folder / "s.toml").write_text(
        """\
        [evaluation]
        metrics = ["hit_at_1", "ndcg@10"]
        graded_relevance = false
        rel = 2
        interval = "wilson"
        confidence = 0.9
        """
    )

    evaluate("--config", "s.toml", "--out", "out")
    evaluate("--config", "s.toml", "--metric", "code", "--out", "code")

    found = report(folder / "out")["metrics"]
    assert list(found) == ["hit@1", "ndcg@10", "judged@1", "judged@10"]
    assert found["hit@1"]["mean"] == 0.0  # the first document has grade 1
    assert found["hit@1"]["method"] == "wilson"
    assert found["ndcg@10"]["mean"] == pytest.approx(0.6309297535714575 / 3, abs=1e-12)
    suite = [str(one) for one in parse_all(SUITES["code"])]
    assert list(report(folder / "code")["metrics"])[: len(suite)] == suite


def test_intervals_can_be_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report then has means only."""
    monkeypatch.setenv("STREAM_METRICS_EVALUATION__CONFIDENCE_INTERVALS", "false")

    evaluate("--metric", "mrr", "--out", "out")

    mrr = report(folder / "out")["metrics"]["mrr"]
    assert (mrr["mean"], mrr["ci_low"]) == (pytest.approx(1 / 3, abs=1e-15), None)


def test_a_report_names_no_path(folder: Path) -> None:
    """Sources are file names, so equal files elsewhere give equal bytes."""
    evaluate("--out", "out", run=str(folder / "run"), qrels=str(folder / "qrels"))

    text = (folder / "out" / "report.json").read_text()
    assert json.loads(text)["source"] == ["run", "qrels"]
    assert str(folder) not in text


def test_a_report_says_how_it_was_made(folder: Path) -> None:
    """It has the metrics as given, and every option that affects figures."""
    evaluate(
        "--metric", "MRR", "--limit", "2", "--queries", "intersection", "--trec-float32",
        "--ignore-identical-ids", "--out", "out",
    )  # fmt: skip

    config = json.loads((folder / "out" / "report.json").read_text())["config"]
    assert config["options"] == {
        "queries": "intersection", "ignore_identical_ids": True, "trec_float32": True,
        "subtopic_qrels": False, "split": None, "limit": 2, "stratify": None,
    }  # fmt: skip
    assert config["evaluation"] == {
        "metrics": ["MRR"], "graded_relevance": True, "rel": 1.0, "predicate": None,
        "confidence_intervals": True,
        "interval": "percentile", "confidence": 0.95, "resamples": 1000, "seed": SEED,
    }  # fmt: skip


# -- lines and documents that do not count ----------------------------------------------------


def test_a_run_without_common_documents_may_be_asked_for(folder: Path) -> None:
    """A retriever that found nothing relevant scores 0, if one says that this is so."""
    (folder / "others").write_text("q1 0 x 1\n")

    said = evaluate("--metric", "mrr", "--allow-no-common-documents", qrels="others")

    assert re.search(r"^mrr +0\.0000 ", said, re.M)


def test_one_common_document_is_enough(folder: Path) -> None:
    """It may be judged as not relevant: ids are then of one kind."""
    (folder / "others").write_text("q1 0 x 1\nq2 0 y 1\nq3 0 d 0\n")

    assert "(25.0% judged)" in evaluate("--metric", "mrr", qrels="others")


def test_a_run_that_found_nothing_scores_zero(folder: Path) -> None:
    """Without results there are no ids that could be of another kind."""
    (folder / "nothing.jsonl").write_text('{"case_id": 0, "retrieved": []}\n')

    said = evaluate("--metric", "mrr", run="nothing.jsonl", qrels="cases.json")

    assert re.search(r"^mrr +0\.0000 ", said, re.M)


def test_comments_and_blank_lines_are_said_on_standard_error(folder: Path) -> None:
    """Standard output has only figures."""
    (folder / "run").write_text(f"# by hand\n{RUN}\n")

    done = CliRunner().invoke(app, ["evaluate", "--run", "run", "--qrels", "qrels"])

    assert done.stderr == "run: 1 comment (first on line 1) and 1 blank line passed over\n"
    assert done.exit_code == 0


# -- errors -----------------------------------------------------------------------------------


ERRORS: dict[str, tuple[list[str], str]] = {
    "no qrels": (["--run", "run", "--qrels", "none"], "none: no such file"),
    "no run": (["--run", "none", "--qrels", "qrels"], "none: no such file"),
    "unknown metric": (
        ["--run", "run", "--qrels", "qrels", "--metric", "ndgc@10"],
        "--metric: unknown metric 'ndgc@10'; did you mean ndcg",
    ),
    "no cut-off": (
        ["--run", "run", "--qrels", "qrels", "--metric", "recall"],
        "--metric: 'recall' needs a cut-off, as in recall@10",
    ),
    "schema": (
        ["--run", "found.jsonl", "--qrels", "wrong.json"],
        "wrong.json, case 0 (c-1): field expected_hpo_ids, entry 0: String should match",
    ),
    "truncated": (
        ["--run", "cut.gz", "--qrels", "qrels"],
        "cut.gz, after line 4: the gzip data ends in the middle, so the file was cut off",
    ),
    "repeated document": (
        ["--run", "twice", "--qrels", "qrels"],
        "twice, line 2: query q1 has document b twice",
    ),
    "nothing in common": (
        ["--run", "found.jsonl", "--qrels", "qrels"],
        "have no query in common. Compare their ids, for example '0' and 'q1'",
    ),
    "no document in common": (
        ["--run", "run", "--qrels", "others"],
        "run and others have no document in common in any query. Compare their ids, for example "
        "'b' and 'A.txt' of query q1. If nothing relevant was retrieved, give "
        "--allow-no-common-documents",
    ),
    "no document of a subtopic in common": (
        ["--run", "run", "--qrels", "others", "--subtopic-qrels"],
        "for example 'b' and 'A.txt' of query q1",
    ),
    "no retrieved list in common": (
        ["--run", "upper.jsonl", "--qrels", "cases.json"],
        "for example 'hp:0001250' and 'HP:0001250' of query 0",
    ),
    "grade too large": (
        ["--run", "run", "--qrels", "qrels", "--metric", "err(max_grade=1)@5"],
        "qrels, line 1: err(max_grade=1)@5: a grade of 2 is above max_grade=1",
    ),
    "grade too large for its gain": (
        ["--run", "run", "--qrels", "large", "--metric", "ndcg(gains=exponential)@5",
         "--fail-if", "ndcg(gains=exponential)@5<0.9"],
        "large, line 2: ndcg(gains=exponential)@5: a grade of 1100 is above 1,000",
    ),
    "unknown dimension": (
        ["--run", "run", "--qrels", "qrels", "--stratify", "language"],
        "--stratify: no query has the dimension 'language'; there are: none",
    ),
    "name too long": (
        ["--run", "run", "--qrels", "q" * 300],
        f"{'q' * 300}: File name too long",
    ),
    "out is a file": (
        ["--run", "run", "--qrels", "qrels", "--out", "run"],
        "--out run: this is a file; name a directory",
    ),
    "markup": (
        ["--run", "[red]", "--qrels", "qrels"],
        "[red]: no such file",
    ),
    "unknown metric in the settings": (
        ["--run", "run", "--qrels", "qrels", "--config", "wrong.toml"],
        "setting evaluation.metrics: unknown metric 'recal@5'; did you mean recall",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_line_and_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The line says what is wrong and where, and nothing is written."""
    packed = gzip.compress(RUN.encode())
    (folder / "cut.gz").write_bytes(packed[: len(packed) - 10])
    (folder / "twice").write_text("q1 Q0 b 1 0.9 m\nq1 Q0 b 2 0.8 m\n")
    (folder / "wrong.toml").write_text('[evaluation]\nmetrics = ["recal@5"]\n')
    (folder / "others").write_text("q1 0 A.txt 1\nq2 0 B.txt 1\n")
    (folder / "large").write_text("q1 0 a 1\nq1 0 b 1100\n")
    (folder / "upper.jsonl").write_text('{"case_id": 0, "retrieved": ["hp:0001250"]}\n')
    case = {"case_id": "c-1", "text": "x", "expected_hpo_ids": ["MONDO:1"]}
    (folder / "wrong.json").write_text(json.dumps({"test_cases": [case]}))
    arguments, message = ERRORS[name]

    said = refused(capsys, "evaluate", "--out", "out", *arguments)

    assert message in said
    assert not (folder / "out").exists()
