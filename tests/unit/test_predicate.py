"""User-defined relevance rules: ``--predicate`` of ``replay`` and ``evaluate``."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.ranking.relevance import (
    PredicateError,
    Query,
    Relevance,
    Retrieved,
)
from stream_metrics.lab.evaluation.collection import Collection, JudgingOptions, join
from stream_metrics.lab.evaluation.predicate import load_predicate
from stream_metrics.lab.evaluation.scoring import Ranking, metrics_of, score_rankings
from stream_metrics.lab.replay.run import Execution, run
from stream_metrics.lab.reports.files import QUERIES
from tests.helpers import refused, rest_long
from tests.replays import (
    AT_ONCE,
    CONFIG,
    IN_PARTS,
    SPOOLED,
    RecordedProgress,
    files_of,
    replayed,
    task,
    traffic,
)
from tests.unit.test_replay_answers import record
from tests.unit.test_replay_searches import judged, rows_in, search

RULES = '''
TOTALS = {"c00": None, "c01": 0}

class Vowels:
    """Documents whose id, text or query has an a, but for two conversations."""

    def total(self, query):
        return TOTALS.get(query.conversation_id, 7)

    def relevant(self, query, result):
        if query.conversation_id == "c01":
            return False
        return result.doc_id in ("a", "d") and result.text == f"about {result.doc_id}"

class Ids:
    def total(self, query):
        return None if query.query_id == "skipped" else 3

    def relevant(self, query, result):
        return result.doc_id.startswith("a")

class Sums(dict):
    pass

def wrong_total(value):
    class Wrong(Ids):
        def total(self, query):
            return value
    return Wrong()

def wrong_answer(value):
    class Wrong(Ids):
        def relevant(self, query, result):
            if isinstance(value, Exception):
                raise value
            return value
    return Wrong()

vowels, ids, nothing = Vowels(), Ids(), Sums()
text_total, true_total, negative = wrong_total("7"), wrong_total(True), wrong_total(-1)
boundless = wrong_total(10**12)
small, one = wrong_total(1), wrong_answer(1)
failing = wrong_answer(KeyError("no such title"))

class Few:
    def total(self):
        return 1
    def relevant(self, query, result):
        return True
few = Few()
class Half:
    relevant = True
    def total(self, query):
        return 1
half = Half()
'''

LIBRARY = "colorsys"  # one that nothing has imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the module ``rules`` in it and no settings from outside."""
    monkeypatch.setenv("STREAM_METRICS_CONFIG", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "broken.py").write_text("import json\n1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_library\n")
    (tmp_path / "run").write_text(
        "q1 Q0 a1 1 0.9 m\nq1 Q0 b 2 0.8 m\nq1 Q0 a2 3 0.7 m\nq2 Q0 b 1 0.9 m\n"
        "skipped Q0 a1 1 0.9 m\n"
    )
    (tmp_path / "qrels").write_text("q2 0 b 1\nq3 0 b 1\n")
    lines = [one.value or b"" for one in judged(3)]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    _forget_modules()
    yield tmp_path
    _forget_modules()


def _forget_modules() -> None:
    """Let modules be imported again: those of other tests have the same names."""
    load_predicate.cache_clear()
    for name in ("rules", "broken", "needy", "both", "titles", LIBRARY):
        sys.modules.pop(name, None)


def ruled(name: str = "rules:vowels") -> dict[str, Any]:
    """Settings ``evaluation`` with that predicate."""
    return {"predicate": name}


def evaluated(*arguments: str) -> dict[str, Any]:
    """The rows of an evaluation by query, and its block ``retrieval``."""
    done = CliRunner().invoke(app, ["evaluate", "--run", "run", "--out", "out", *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    lines = Path("out", "queries.jsonl").read_text().splitlines()
    rows = {row["query_id"]: row for row in map(json.loads, lines)}
    return {"rows": rows, "report": json.loads(Path("out", "report.json").read_text())}


# -- replay -----------------------------------------------------------------------------------


def test_a_replay_judges_by_the_rule_after_ground_truth(folder: Path) -> None:
    """After ground truth the rule judges if it applies, then labels and overlap as before."""
    records = judged(8)
    files = replayed(records, folder / "out", AT_ONCE, evaluation=ruled())
    first = [row for row in rows_in(files) if row["search_id"] == "s1"]

    assert [row["strategy"] for row in first] == ["qrels"] + 3 * ["custom"] + ["qrels"] + 3 * [
        "custom"
    ]
    counts = json.loads(files["report.json"])["retrieval"]["strategy_counts"]
    assert counts == {"qrels": 4, "custom": 12, "judged": 0, "token_overlap": 0}
    assert (first[1]["n_relevant"], first[2]["n_relevant"]) == (0, 7)


def test_if_the_rule_does_not_apply_the_next_strategy_judges(folder: Path) -> None:
    """With a total of None, the labels of a conversation judge it."""
    labels = [{"result_id": "r1-0", "gain": 4}]
    records = [search("c00", 1, "a", "b"), record("relevance_labels", "c00", 8, labels=labels)]

    rows = rows_in(replayed(records, folder / "out", AT_ONCE, evaluation=ruled()))

    assert [row["strategy"] for row in rows] == ["judged"]


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_gives_what_the_library_gives(folder: Path, seed: int) -> None:
    """Every score equals that of the same ids and texts judged by the same object."""
    draw = random.Random(seed)
    records, expected = [], {}
    relevance = Relevance(predicate=load_predicate("rules:vowels"))
    metrics = metrics_of(CONFIG["evaluation"]["metrics"])
    for number in range(60):
        name = f"c{number:02}"
        before: set[str] = set()
        for second in range(1, draw.randint(2, 4)):
            docs = draw.choices("abcdef", k=draw.randint(0, 5))
            records.append(search(name, second, *docs))
            results = [Retrieved(doc, doc, f"about {doc}", doc in before) for doc in docs]
            query = Query(results, conversation_id=name, query_id=f"s{second}")
            row = relevance.judge(query)
            if row is not None:
                values = next(iter(score([row], metrics)))
                expected[name, f"s{second}"] = values
            before |= {*docs}
    draw.shuffle(records)

    rows = rows_in(replayed(records, folder / "out", AT_ONCE, evaluation=ruled()))

    found = {
        (row["conversation_id"], row["search_id"]): row["scores"]
        for row in rows
        if row["strategy"] is not None
    }
    assert {row["strategy"] for row in rows} == {"custom", None}
    assert found == expected


def score(rows: list[Any], metrics: list[Any]) -> Iterator[dict[str, float | None]]:
    """Scores by metric of judged rankings, as rows have them."""
    scored = score_rankings([Ranking("q", row) for row in rows], metrics)
    return (row["scores"] for row in scored.rows())


def test_a_rule_sees_what_was_recorded(folder: Path) -> None:
    """It gets query, question, dimensions and the result's own fields, also for turns
    with labels."""
    (folder / "looking.py").write_text(
        "SEEN = []\n"
        "def total(query):\n"
        "    SEEN.append((query.place, query.text, query.question, query.language,\n"
        "                 dict(query.dimensions), list(query.references)))\n"
        "    return 1\n"
        "def relevant(query, result):\n"
        "    return result.recorded.fields['kind'] == 'good'\n"
        "class Both:\n"
        "    def total(self, query): return total(query)\n"
        "    def relevant(self, query, result): return relevant(query, result)\n"
        "both = Both()\n"
    )
    sent = {"search_id": "s", "query": "who?", "results": [
        {"result_id": "r1", "doc_id": "x", "fields": {"kind": "bad"}},
        {"result_id": "r2", "doc_id": "y", "fields": {"kind": "good"}}]}  # fmt: skip
    records = [
        record("search_iteration", "c", 1, iteration=1, searches=[sent], release="r9"),
        record("relevance_labels", "c", 2, labels=[{"result_id": "r1", "gain": 4}]),
        record("turn_completed", "c", 3, question="Who?", reference_answers=["me"],
               dimensions={"language": "de"}),
    ]  # fmt: skip

    rows = rows_in(replayed(records, folder / "out", AT_ONCE, evaluation=ruled("looking:both")))

    assert (rows[0]["strategy"], rows[0]["scores"]["mrr"]) == ("custom", 0.5)
    assert sys.modules["looking"].SEEN == [
        ("conversation 'c', turn 1, search 's'", "who?", "Who?", "de",
         {"language": "de", "release": "r9"}, ["me"])
    ]  # fmt: skip
    del sys.modules["looking"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale",
    rest_long([SPOOLED, Execution(small_records=0, piece_bytes=20_000, processes=2), IN_PARTS], 2),
)
def test_shards_and_processes_change_nothing(folder: Path, scale: Execution) -> None:
    """Other processes import the rule from the current directory, although a library has its name,
    and give the same bytes."""
    records = [*judged(), *traffic(60)]
    (folder / f"{LIBRARY}.py").write_text(RULES.replace('f"about {result.doc_id}"', "result.text"))
    one = replayed(records, folder / "one", AT_ONCE, evaluation=ruled(f"{LIBRARY}:vowels"))
    other = replayed(records, folder / "other", scale, evaluation=ruled(f"{LIBRARY}:vowels"))

    assert one == other
    assert b'"custom"' in one[QUERIES]


def test_an_unfinished_replay_of_another_rule_is_not_continued(folder: Path) -> None:
    """The rule is part of the identity of a replay."""
    records = judged()
    failing = task(records, folder / "out", SPOOLED, evaluation=ruled("rules:failing"))
    with pytest.raises(PredicateError):
        run(failing, RecordedProgress())
    load_predicate.cache_clear()

    told = RecordedProgress()
    run(task(records, folder / "out", SPOOLED, evaluation=ruled()), told)

    assert [note for note in told.notes if "other settings" in note] != []
    assert files_of(folder / "out") == replayed(
        records, folder / "other", AT_ONCE, evaluation=ruled()
    )


def test_a_report_names_the_rule_and_the_digest_of_its_file(folder: Path) -> None:
    """Two rules of one name are two settings; without a rule there is none."""
    command = ["replay", "events.jsonl", "--out", "out"]

    def config(*more: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, [*command, *more])
        assert done.exit_code == 0, (done.output, done.exception)
        report = json.loads((folder / "out" / "report.json").read_text())
        found: dict[str, Any] = report["config"]["evaluation"]
        return found

    assert config()["predicate"] is None
    named = config("--predicate", "rules:vowels")
    assert (named["predicate"], len(named["predicate_sha256"])) == ("rules:vowels", 64)
    (folder / "rules.py").write_text(RULES + "\n# changed\n")
    assert config("--predicate", "rules:vowels")["predicate_sha256"] != named["predicate_sha256"]


def test_the_setting_equals_the_flag(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evaluation.predicate`` in the environment gives the same bytes as ``--predicate``."""
    CliRunner().invoke(app, ["replay", "events.jsonl", "--out", "a", "--predicate", "rules:vowels"])
    monkeypatch.setenv("STREAM_METRICS_EVALUATION__PREDICATE", "rules:vowels")
    CliRunner().invoke(app, ["replay", "events.jsonl", "--out", "b"])

    assert files_of(folder / "a") == files_of(folder / "b")
    assert b'"custom"' in files_of(folder / "a")[QUERIES]


# -- evaluate ---------------------------------------------------------------------------------


def test_without_qrels_the_rule_judges_every_query_of_the_run(folder: Path) -> None:
    """Queries to which it does not apply are dropped and counted."""
    found = evaluated("--predicate", "rules:ids", "--metric", "mrr", "--metric", "recall@5")

    block = found["report"]["retrieval"]
    assert list(found["rows"]) == ["q1", "q2"]
    assert found["rows"]["q1"]["scores"]["recall@5"] == pytest.approx(2 / 3, abs=1e-15)
    assert found["rows"]["q2"]["scores"]["mrr"] == 0.0
    assert (block["strategy_used"], block["strategy_counts"]["custom"]) == ("custom", 2)
    assert (block["queries_missing"], block["queries_dropped"]) == (0, 1)
    assert found["report"]["source"] == ["run"]
    assert found["report"]["config"]["evaluation"]["predicate"] == "rules:ids"


def test_a_query_with_qrels_is_judged_by_them(folder: Path) -> None:
    """The rule judges the others; the terminal shows both numbers."""
    found = evaluated("--qrels", "qrels", "--predicate", "rules:ids", "--metric", "mrr")

    rows = found["rows"]
    assert {name: row["strategy"] for name, row in rows.items()} == {
        "q1": "custom", "q2": "qrels", "q3": "qrels"
    }  # fmt: skip
    assert rows["q2"]["scores"]["mrr"] == 1.0
    block = found["report"]["retrieval"]
    assert (block["strategy_used"], block["queries_missing"]) == ("mixed", 1)
    command = ["evaluate", "--run", "run", "--qrels", "qrels", "--predicate", "rules:ids"]
    assert "judged by qrels (2), custom (1)" in CliRunner().invoke(app, command).stdout


def test_query_sets_apply_to_the_rule_as_well(folder: Path) -> None:
    """``intersection`` leaves out what the run lacks; ``limit`` takes the first queries by id."""
    collection = Collection({"q2": {"b": 1}, "q3": {"b": 1}})
    ranked = {"q1": ["a1"], "q2": ["b"], "skipped": ["a1"]}
    fallback = Relevance(predicate=load_predicate("rules:ids"))

    both = join(collection, ranked, JudgingOptions(queries="intersection", fallback=fallback))
    first = join(collection, ranked, JudgingOptions(limit=1, fallback=fallback))

    assert ([one.unit for one in both.rankings], both.missing, both.dropped) == (["q1", "q2"], 1, 1)
    assert [one.unit for one in first.rankings] == ["q1"]


# -- names that libraries have ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "json", LIBRARY])
def test_a_rule_may_be_named_like_a_library(folder: Path, name: str) -> None:
    """The file in the current directory is used, and everybody else gets the library."""
    (folder / "rules.py").rename(folder / f"{name}.py")

    found = evaluated("--predicate", f"{name}:ids", "--metric", "mrr")

    assert list(found["rows"]) == ["q1", "q2"]
    written = found["report"]["config"]["evaluation"]["predicate_sha256"]
    assert written == hashlib.sha256((folder / f"{name}.py").read_bytes()).hexdigest()
    assert not hasattr(importlib.import_module(name), "vowels")


def test_files_beside_a_rule_hide_no_library(folder: Path) -> None:
    """A rule imports files of the current directory, unless a library has their name."""
    (folder / f"{LIBRARY}.py").write_text("1 / 0\n")
    (folder / "titles.py").write_text("from rules import Ids\n")
    (folder / "both.py").write_text(f"import {LIBRARY}\nfrom titles import Ids\nids = Ids()\n")

    found = evaluated("--predicate", "both:ids", "--metric", "mrr")

    assert list(found["rows"]) == ["q1", "q2"]


def test_a_rule_may_be_in_a_module_without_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script and a notebook name their own ``__main__:rule``."""
    written: Any = ModuleType("written")
    written.rule = SimpleNamespace(total=lambda query: 1, relevant=lambda query, result: True)
    monkeypatch.setitem(sys.modules, "written", written)

    assert load_predicate("written:rule") is written.rule


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rules", "write package.module:object"),
        ("rules:", "write package.module:object"),
        ("no such:thing", "write package.module:object"),
        ("no_such_rules:it", "there is no module 'no_such_rules'"),
        ("rules.deeper:it", "there is no module 'rules.deeper'"),
        ("needy:it", "importing needy raised ModuleNotFoundError: No module named 'no_such_"),
        ("broken:it", "importing broken raised ZeroDivisionError: division by zero"),
        ("rules:nobody", "no 'nobody' in the module rules"),
        ("rules:vowels.deeper", "no 'deeper' in this object of the type Vowels"),
        ("rules:Vowels", "this is the class Vowels; create an instance of it"),
        ("rules:nothing", "this object of the type Sums has no total(query)"),
        ("rules:half", "this object of the type Half has no relevant(query, result)"),
        ("rules:few", "it cannot be called as total(query): too many positional arguments"),
    ],
)
@pytest.mark.parametrize("command", ["replay", "evaluate"])
def test_an_invalid_predicate_is_refused_at_the_start(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, says: str
) -> None:
    """One line names the object and the problem; nothing is written."""
    source = ["replay", "events.jsonl"] if command == "replay" else ["evaluate", "--run", "run"]

    said = refused(capsys, *source, "--out", "out", "--predicate", name)

    assert f"predicate {name!r}: " in said
    assert says in said
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("text_total", "total(query) gave '7' for {}; expected an integer from 0 on, or None"),
        ("true_total", "total(query) gave True for {}; expected an integer from 0 on, or None"),
        ("negative", "total(query) gave -1 for {}; expected an integer from 0 on, or None"),
        ("boundless", "total(query) gave 1000000000000 for {}; expected at most 1,000,000, or"),
        ("small", "found 2 relevant documents for {}, but its total is 1"),
        ("one", "of the result 'a1' gave 1 for {}; expected True or False"),
        (
            "failing",
            "of the result 'a1' raised KeyError: 'no such title' (rules.py, line 35) for {}",
        ),
    ],
)
def test_a_rule_that_fails_while_scoring_is_named_with_its_query(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    """Evaluations and replays end with an error that has the rule, the query and the cause."""
    found = refused(capsys, "evaluate", "--run", "run", "--predicate", f"rules:{name}")
    assert f"predicate 'rules:{name}'" in found
    assert says.format("query 'q1'") in found

    (folder / "one.jsonl").write_bytes(search("c7", 1, "a1", "a2").value or b"")
    found = refused(capsys, "replay", "one.jsonl", "--out", "out", "--predicate", f"rules:{name}")
    assert says.format("conversation 'c7', turn 1, search 's1'") in found


def test_a_rule_that_fails_in_another_process_is_named(folder: Path) -> None:
    """The error is the same in every process."""
    scale = Execution(small_records=0, piece_bytes=1_000, processes=2)
    with pytest.raises(PredicateError, match=r"predicate 'rules:failing': .* raised KeyError"):
        run(
            task(judged(), folder / "out", scale, evaluation=ruled("rules:failing")),
            RecordedProgress(),
        )


def test_neither_qrels_nor_a_rule_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names both options."""
    said = refused(capsys, "evaluate", "--run", "run")

    assert "give relevance judgements with --qrels, or a rule with --predicate" in said


def test_a_rule_that_applies_to_nothing_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any score there is no report."""
    (folder / "run").write_text("skipped Q0 a 1 1 m\n")

    said = refused(capsys, "evaluate", "--run", "run", "--predicate", "rules:ids")

    assert re.search("applies to no query of the run", said)


def test_expected_terms_come_from_qrels_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``max_ont_sim`` with a rule is refused."""
    said = refused(
        capsys, "evaluate", "--run", "run", "--predicate", "rules:ids", "--metric", "max_ont_sim@5"
    )

    assert "max_ont_sim needs the expected terms" in said


def test_a_conversation_without_events_is_no_error(folder: Path) -> None:
    """A ``forget`` leaves nothing for the rule to judge."""
    forget = {"type": "forget", "event_id": "f", "conversation_id": "c02",
              "occurred_at": 2_000_000_000}  # fmt: skip
    gone = Record(json.dumps(forget).encode(), b"c02", None)

    rows = rows_in(replayed([*judged(3), gone], folder / "out", AT_ONCE, evaluation=ruled()))

    assert {row["conversation_id"] for row in rows} == {"c00", "c01"}
