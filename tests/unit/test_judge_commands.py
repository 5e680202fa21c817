"""``stream-metrics judge`` on recordings: forecasts, what people grade, and how both agree."""

from __future__ import annotations

import csv
import gzip
import io
import json
import stat
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score

from stream_metrics import lab
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.pairs import PairCollector
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.lab.evaluation.agreement import Pair, agreement, drift_of
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.sources.files import parse_line
from stream_metrics.live.local.folder import digest_key_file
from tests.folders import fill
from tests.helpers import ran
from tests.judged import lines, turn_events, wanted

KEY = "a secret of the tests"
NOON_S = 1_781_006_400
SET = {
    "STREAM_METRICS_STATE__DIGEST_KEY": KEY,
    "STREAM_METRICS_JUDGE__RATE": "0.5",
    "STREAM_METRICS_JUDGE__PEOPLE_RATE": "0.25",
    "STREAM_METRICS_JUDGE__MODEL": "m",
}


def recording(folder: Path, conversations: int = 40) -> Path:
    """A file with the events of some conversations of two days."""
    events: list[dict[str, Any]] = []
    for number in range(conversations):
        chance = Random(number)
        events += turn_events(f"c{number}", 1, NOON_S + number % 2 * 86_400, chance)
    path = folder / "events.jsonl"
    path.write_bytes(lines(events))
    return path


def drawn(rate: float, conversations: int = 40) -> set[str]:
    """The conversations in a sample."""
    sampler = Sampler(KEY.encode())
    return {f"c{n}" for n in range(conversations) if sampler.includes(f"c{n}", rate)}


def test_a_dry_run_says_what_each_day_would_cost(tmp_path: Path) -> None:
    """Each document once, at least for what is sent and at most for what is reserved."""
    priced = {"STREAM_METRICS_JUDGE__INPUT_PRICE": "2", "STREAM_METRICS_JUDGE__OUTPUT_PRICE": "8"}
    environment = {**SET, **priced}
    file = str(recording(tmp_path))
    done = ran("judge", "--dry-run", file, "--format", "json", environment=environment)
    days = json.loads(done.stdout)
    assert [day["day"] for day in days] == ["2026-06-09", "2026-06-10"]
    assert sum(day["conversations"] for day in days) == len(drawn(0.5))
    sent = [json.loads(line) for line in Path(file).read_text().splitlines()]
    records = [Record(json.dumps(e).encode(), e["conversation_id"].encode()) for e in sent]
    labels = wanted(records, Sampler(KEY.encode()), 0.5, 8_000)
    assert sum(day["documents"] for day in days) == len(labels)
    for day in days:
        assert day["calls"] <= day["documents"]
        assert 0 < day["tokens_about"] < day["tokens_at_most"]
        assert 0 < day["money_about"] < day["money_at_most"]
    table = ran("judge", "--dry-run", file, environment=environment)
    assert "2026-06-09" in table.stdout
    assert "50.00% of the conversations" in table.stderr


@pytest.mark.slow
def test_a_dry_run_of_the_demos_day_counts_the_documents_that_a_replay_counts() -> None:
    """Of all conversations: each unique document of each turn."""
    path = Path(lab.__file__).parent / "data" / "day.jsonl.gz"
    replay = Replay(turn_scope="all")
    for line in gzip.decompress(path.read_bytes()).splitlines():
        replay.feed(parse_line(line))
    rows = replay.rows()
    everything = {"STREAM_METRICS_JUDGE__RATE": "1"}
    done = ran("judge", "--dry-run", str(path), "--format", "json", environment=everything)
    [day] = json.loads(done.stdout)
    assert day["turns"] == len(rows) > 500
    assert day["documents"] == sum(row["unique"] for row in rows)
    assert (day["not_judged"], day["calls"] <= day["documents"]) == ({}, True)


def test_a_dry_run_says_which_rate_would_fit(tmp_path: Path) -> None:
    """If the budget would end the sample of a day."""
    environment = {**SET, "STREAM_METRICS_JUDGE__TOKENS_PER_DAY": "5000"}
    done = ran("judge", "--dry-run", str(recording(tmp_path)), environment=environment)
    assert "judge.tokens_per_day would be spent after about" in done.stderr
    assert "judge.rate = " in done.stderr


def test_people_get_a_part_of_the_models_sample(tmp_path: Path) -> None:
    """In a file that only its owner can read and that is never overwritten."""
    out = tmp_path / "to-grade.jsonl"
    file = str(recording(tmp_path))
    done = ran("judge", "export-for-people", str(out), file, environment=SET)
    assert done.returncode == 0, done.stderr
    assert f"{len(drawn(0.25))} of 40 conversations (judge.people_rate 25%), " in done.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["conversation_id"] for row in found} == drawn(0.25) <= drawn(0.5)
    assert all(row["grade"] is None and row["query"] and row["text"] for row in found)
    again = ran("judge", "export-for-people", str(out), file, environment=SET)
    assert (again.returncode, "choose another name" in again.stderr) == (2, True)
    above = ran("judge", "export-for-people", "x", file, "--rate", "0.6", environment=SET)
    assert (above.returncode, "is above judge.rate" in above.stderr) == (2, True)


def test_the_sample_of_people_needs_the_key_of_the_judges(tmp_path: Path) -> None:
    """Another key draws other conversations."""
    done = ran("judge", "export-for-people", "x", str(recording(tmp_path)))
    assert (done.returncode, "digest_key_file" in done.stderr) == (2, True)


def test_a_judge_needs_the_key_of_the_workers() -> None:
    """Without one, anybody could tell which conversations are in, and people would get others."""
    done = ran("judge", environment={"STREAM_METRICS_JUDGE__MODEL": "m"})
    assert (done.returncode, "digest_key_file" in done.stdout + done.stderr) == (2, True)


def test_which_gain_of_a_search_counts_does_not_depend_on_the_order() -> None:
    """That of its latest revision; what was erased counts nowhere."""
    search = {
        "type": "search_iteration",
        "event_id": "s",
        "conversation_id": "c",
        "turn": 1,
        "iteration": 1,
    }
    events = [
        search
        | {
            "occurred_at": NOON_S + gain,
            "searches": [{"search_id": "s", "results": [{"result_id": "r", "gain": gain}]}],
        }
        for gain in (1, 3)
    ]
    by_model = {
        "type": "relevance_labels",
        "event_id": "l",
        "occurred_at": NOON_S,
        "conversation_id": "c",
        "turn": 1,
        "source": "model",
        "labels": [{"result_id": "r", "gain": 2}],
    }
    for order in permutations([*events, by_model]):
        assert graded(order) == [(3, 2)]
    for gone, left in ((0, [(3, 2)]), (3, [])):
        erased: dict[str, Any] = {"type": "forget", "event_id": "x", "conversation_id": "c"}
        erased["occurred_at"] = NOON_S - 1 + gone
        for order in permutations([*events, by_model, erased]):
            assert graded(order) == left


def graded(events: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """The grades by people and by the model."""
    collector = PairCollector(Limits())
    for event in events:
        collector.add(Record(json.dumps(event).encode(), b"c", NOON_S * 1000, "t", 0, 0))
    return [(one.human, one.model) for one in collector.pairs()]


def test_grades_of_people_become_labels_of_whole_turns(tmp_path: Path) -> None:
    """Of people, in their random sample; a turn that is not finished is named and left out."""
    out, file = tmp_path / "to-grade.jsonl", str(recording(tmp_path))
    ran("judge", "export-for-people", str(out), file, environment=SET)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    unfinished = found[-1]["conversation_id"]
    for row in found[:-1]:
        row["grade"] = 3
    out.write_text("\n".join(json.dumps(row) for row in found))
    done = ran("judge", "import", str(out), "--labeller", "ada", "--time", "1781100000000000")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["conversation_id"] for one in events} == drawn(0.25) - {unfinished}
    assert f"left out: conversation '{unfinished}', turn 1: 1 document without" in done.stderr
    assert done.stderr.rstrip().endswith(f"a grade, in line {len(found)}")
    for one in events:
        assert (one["source"], one["sample"], one["labeller"]) == ("human", "random", "ada")
        name = one["conversation_id"]
        rows = {row["result_id"] for row in found if row["conversation_id"] == name}
        assert {label["result_id"] for label in one["labels"]} == rows
    again = ran("judge", "import", str(out), "--labeller", "ada", "--time", "1781100000000000")
    assert again.stdout == done.stdout


def test_people_may_grade_in_a_spreadsheet(tmp_path: Path) -> None:
    """Its rows give the labels that lines of JSON with the same grades do."""
    file, labels = str(recording(tmp_path)), []
    for name in ("to-grade.jsonl", "to-grade.csv"):
        out = tmp_path / name
        done = ran("judge", "export-for-people", str(out), file, environment=SET)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
        if out.suffix == ".jsonl":
            found = [json.loads(line) | {"grade": 3} for line in out.read_text().splitlines()]
            out.write_text("\n".join(json.dumps(row) for row in found))
        else:
            heads, *rows = csv.reader(out.read_text("utf-8-sig").splitlines())
            assert (heads[0], {row[0] for row in rows}) == ("grade", {""})
            saved = io.StringIO()
            csv.writer(saved, delimiter=";").writerows([heads, *(["3", *r[1:]] for r in rows)])
            out.write_text(saved.getvalue(), "cp1252")
        done = ran("judge", "import", str(out), "--time", "1781100000000000")
        labels.append(done.stdout)
    assert labels[0] == labels[1] != ""
    sheet = tmp_path / "to-grade.csv"
    sheet.write_text(sheet.read_text("cp1252").replace("3;", "good;", 1))
    wrong = ran("judge", "import", str(sheet))
    assert (wrong.returncode, "'good' in row 2" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("grade", [5, -1, 3.5, "3", True])
def test_a_line_with_a_grade_that_is_none_is_refused(tmp_path: Path, grade: object) -> None:
    """With the line."""
    out = tmp_path / "to-grade.jsonl"
    ran("judge", "export-for-people", str(out), str(recording(tmp_path)), environment=SET)
    first, *others = [json.loads(line) | {"grade": 3} for line in out.read_text().splitlines()]
    out.write_text("\n".join(json.dumps(row) for row in [first | {"grade": grade}, *others]))
    done = ran("judge", "import", str(out))
    said = f"1 grade is not one of 0, 1, 2, 3, 4: '{grade}' in line 1"
    assert (done.returncode, done.stdout, said in done.stderr) == (2, "", True)


def test_what_was_not_drawn_gives_no_label_of_a_random_sample(tmp_path: Path) -> None:
    """Neither a turn that somebody has added, nor one of which a document was deleted."""
    out, file = tmp_path / "to-grade.jsonl", str(recording(tmp_path))
    ran("judge", "export-for-people", str(out), file, environment=SET)
    found = [json.loads(line) | {"grade": 2} for line in out.read_text().splitlines()]
    last = found[-1]["conversation_id"]
    added = found[0] | {"conversation_id": "complaint"}
    out.write_text("\n".join(json.dumps(row) for row in [*found[:-1], added]))
    done = ran("judge", "import", str(out))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["conversation_id"] for one in events} == drawn(0.25) - {last}
    for name in (last, "complaint"):
        assert f"conversation '{name}', turn 1: its documents are not those" in done.stderr


@pytest.mark.parametrize(
    ("content", "why"),
    [("{}", "line 1: this is no row"), ("", "no turn gives labels"), ("nonsense", "no row")],
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: str, why: str) -> None:
    """With the line."""
    path = tmp_path / "grades.jsonl"
    path.write_text(content)
    done = ran("judge", "import", str(path))
    assert (done.returncode, why in done.stderr) == (2, True)


def stream(folder: Path, conversations: int, *, kinder_from: int, noise: float = 0.4) -> Path:
    """Events with labels of people and of a model that is half a grade too kind, and from one
    conversation on, another grade."""
    chance = Random(5)
    events: list[dict[str, Any]] = []
    for number in range(conversations):
        at = NOON_S + number * 600
        turn = turn_events(f"c{number}", 1, at, chance)
        events += turn
        results = [r for e in turn[:2] for r in e["searches"][0]["results"]]
        labels: dict[str, list[dict[str, Any]]] = {"human": [], "model": []}
        for result in {one["result_id"]: one for one in results}.values():
            human = chance.randint(0, 3)
            bias = 0.5 + (number >= kinder_from)
            model = min(4, max(0, round(human + bias + chance.gauss(0, noise))))
            labels["human"].append({"result_id": result["result_id"], "gain": human})
            labels["model"].append({"result_id": result["result_id"], "gain": model})
        for source, each in labels.items():
            events.append(
                {
                    "type": "relevance_labels",
                    "event_id": f"{source}-{number}",
                    "occurred_at": at + 60,
                    "conversation_id": f"c{number}",
                    "turn": 1,
                    "source": source,
                    "labeller": f"{source}-1",
                    "labels": each,
                }
            )
    path = folder / "both.jsonl"
    path.write_bytes(lines(events))
    return path


def test_agreement_finds_a_known_bias_and_its_drift(tmp_path: Path) -> None:
    """Since about when the model became kinder, and what it is at each grade."""
    path = stream(tmp_path, 120, kinder_from=70)
    done = ran("judge", "agreement", str(path), "--format", "json")
    whole, *others = json.loads(done.stdout)
    assert [one["agent"] for one in others] == ["support"]
    assert whole["conversations"] == 120
    value, low, high = whole["bias"]
    assert low < 0.5 + 50 / 120 < high + 0.15
    assert low < value < high
    drift = whole["drift"]
    began = (drift["since_us"] / 1e6 - NOON_S) / 600
    assert 64 <= began <= 76
    assert 0.3 < drift["before"] < 0.7
    assert 1.1 < drift["after"] < 1.7
    table = ran("judge", "agreement", str(path))
    assert "the model has become kinder" in table.stdout
    assert "weighted κ" in table.stdout
    assert "κ of good" in table.stdout


def test_agreement_is_of_turns_that_people_were_given_at_random(tmp_path: Path) -> None:
    """Those that they chose are left out, aloud; if there are no others, they count, aloud."""
    path = stream(tmp_path, 40, kinder_from=99)
    done = ran("judge", "agreement", str(path), "--format", "json")
    assert json.loads(done.stdout)[0]["conversations"] == 40
    assert "are of turns that people chose, so these figures may not hold" in done.stderr
    sent = [json.loads(line) for line in path.read_text().splitlines()]
    for event in sent:
        if event["event_id"] in {f"human-{n}" for n in range(30)} | {"model-35"}:
            event["sample"] = "random"
    erased = {"type": "forget", "event_id": "x", "conversation_id": "c3", "occurred_at": NOON_S}
    again = next(e for e in sent if e["event_id"] == "human-3")
    again = again | {"event_id": "later", "occurred_at": NOON_S + 9_000, "sample": "chosen"}
    path.write_bytes(lines([*sent, again, erased | {"occurred_at": NOON_S + 8_000}]))
    done = ran("judge", "agreement", str(path), "--format", "json")
    assert json.loads(done.stdout)[0]["conversations"] == 29
    assert "left out: " in done.stderr


def test_agreement_needs_both(tmp_path: Path) -> None:
    """And says how to get them."""
    done = ran("judge", "agreement", str(recording(tmp_path)))
    assert (done.returncode, "export-for-people" in done.stderr) == (2, True)


def test_each_command_reads_the_folder_of_one_process(tmp_path: Path) -> None:
    """By its name or with --data, and with the digest key that is there."""
    both = stream(tmp_path, 40, kinder_from=99)
    folder = fill(tmp_path / "data", [json.loads(line) for line in both.read_text().splitlines()])
    environment = {**SET, "STREAM_METRICS_STATE__DIGEST_KEY": ""}
    sampler = Sampler(digest_key_file(folder).read_text().strip().encode())
    places, said = {"named": [str(folder)], "data": ["--data", str(folder)]}, {}
    for name, place in places.items():
        out = tmp_path / f"{name}.jsonl"
        lines_of = [
            ("judge", "--dry-run", *place, "--format", "json"),
            ("judge", "agreement", *place, "--format", "json"),
            ("judge", "export-for-people", str(out), *place),
        ]
        done = [ran(*line, environment=environment) for line in lines_of]
        assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
        said[name] = [done[0].stdout, done[1].stdout, out.read_text()]
    assert said["named"] == said["data"]
    found = {json.loads(line)["conversation_id"] for line in said["data"][2].splitlines()}
    assert found == {f"c{n}" for n in range(40) if sampler.includes(f"c{n}", 0.25)}
    [whole, *_] = json.loads(said["data"][1])
    assert whole["conversations"] == 40


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("--dry-run", "FOLDER", "--data", "FOLDER"), "leave out SOURCES"),
        (("--data", "FOLDER"), "with --dry-run only"),
        (("--dry-run", "--data", "."), "there is no stream-metrics.db in it"),
    ],
)
def test_a_folder_is_named_once_and_where_it_is_read(
    tmp_path: Path, line: tuple[str, ...], why: str
) -> None:
    """Otherwise the command says what is wrong, and reads nothing."""
    folder = str(fill(tmp_path / "data", turn_events("c", 1, NOON_S, Random(1))))
    done = ran("judge", *(folder if one == "FOLDER" else one for one in line), environment=SET)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def pairs(conversations: int, seed: int, shift_from: int | None = None) -> list[Pair]:
    """Grades whose bias differs between conversations, and maybe shifts."""
    chance, found = Random(seed), []
    for number in range(conversations):
        bias = 0.15 + chance.gauss(0, 0.5)
        bias += 0.8 if shift_from is not None and number >= shift_from else 0.0
        for _ in range(chance.randint(2, 12)):
            human = chance.randint(0, 4)
            model = min(4, max(0, round(human + bias + chance.gauss(0, 0.6))))
            found.append(Pair(f"c{number}", number * 10**9, "a", "", human, model))
    return found


@pytest.mark.slow
def test_drift_is_seldom_found_where_there_is_none() -> None:
    """And mostly where there is one."""
    false = sum(drift_of(pairs(120, seed))[0] is not None for seed in range(100))
    true = sum(drift_of(pairs(120, seed, 60))[0] is not None for seed in range(100))
    assert false <= 10
    assert true >= 90


@pytest.mark.slow
def test_the_intervals_hold() -> None:
    """Of the bias, in nearly 95 of 100 samples, though grades of a conversation are alike."""
    exact = agreement(pairs(20_000, 77), 2).bias.value
    assert exact is not None
    held = 0
    for seed in range(200):
        found = agreement(pairs(60, 1_000 + seed), 2).bias
        assert found.low is not None
        assert found.high is not None
        held += found.low <= exact <= found.high
    assert 0.90 <= held / 200 <= 0.99


def test_kappa_is_that_of_scikit_learn() -> None:
    """Plain, with quadratic weights, and of good or not."""
    found = pairs(50, 3)
    human, model = [one.human for one in found], [one.model for one in found]
    mine = agreement(found, 2)
    assert mine.kappa.value == pytest.approx(cohen_kappa_score(human, model))
    weighted = cohen_kappa_score(human, model, weights="quadratic")
    assert mine.weighted.value == pytest.approx(weighted)
    for good_gain in (1, 2, 4):
        good = ([grade >= good_gain for grade in grades] for grades in (human, model))
        found_good = agreement(found, good_gain).good_kappa
        assert found_good.value == pytest.approx(cohen_kappa_score(*good))
        assert found_good.value is not None
        assert found_good.low is not None
        assert found_good.low < found_good.value
    assert mine.by_grade[0][0] == human.count(0)
    assert mine.table.sum() == len(found)


def test_of_one_conversation_there_is_no_interval() -> None:
    """Nor of grades that are all the same a κ."""
    same = [Pair("c", 0, "a", "", 2, 2)] * 3
    found = agreement(same, 2)
    assert (found.kappa.value, found.bias, found.drift) == (None, (0.0, None, None), None)
