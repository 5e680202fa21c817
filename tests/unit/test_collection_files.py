"""Files of test collections: their contents, and the one error of each broken file."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.lab.evaluation.collection import Collection, join
from stream_metrics.lab.evaluation.scoring import metrics_of, score_rankings
from stream_metrics.lab.sources.collection.sources import read_run, read_truth
from stream_metrics.lab.sources.collection.trec import read_run as read_trec
from stream_metrics.lab.sources.packing import open_packed, packing_of_name
from stream_metrics.lab.sources.unchanged import InputError

RUN = "1 Q0 a 1 0.5 mine\n1 Q0 b 2 0.5 mine\n1 Q0 c 3 0.75 mine\n"
QRELS = "1 0 a 1\n1 0 b 0\n2 0 a -1\n"
CASE = {"text": "Krampfanfälle", "expected_hpo_ids": ["HP:0001250"]}


def write(path: Path, content: str | bytes) -> Path:
    """Write a file, compressed if its name says so."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, open_packed(file, packing_of_name(path.name)) as into:
        into.write(data)
    return path


def truth(path: Path, **options: Any) -> Collection:
    """The collection at a path."""
    return read_truth(path, **options).collection


# -- TREC -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.txt", "run.txt.gz", "run.txt.zst"])
def test_a_run_is_sorted_by_score_and_then_by_id(tmp_path: Path, name: str) -> None:
    """The highest score comes first, equal ones by descending id; the rank column is ignored."""
    assert read_run(write(tmp_path / name, RUN)) == {"1": ["c", "b", "a"]}


def test_gzip_is_recognised_by_content(tmp_path: Path) -> None:
    """The name of the file does not matter."""
    path = write(tmp_path / "run", gzip.compress(RUN.encode()))

    assert read_run(path) == {"1": ["c", "b", "a"]}


def test_scores_are_compared_in_double_precision_unless_asked(tmp_path: Path) -> None:
    """With the option, scores that differ only beyond single precision are ties."""
    path = write(tmp_path / "run", "1 Q0 a 1 1.000000000001 m\n1 Q0 b 2 1.0 m\n")

    assert read_run(path) == {"1": ["a", "b"]}
    assert read_run(path, float32=True) == {"1": ["b", "a"]}


def test_scores_beyond_single_precision_are_ties(tmp_path: Path) -> None:
    """Scores too large for single precision are infinite there."""
    path = write(tmp_path / "run", "1 Q0 a 1 1e300 m\n1 Q0 b 2 1e299 m\n1 Q0 c 3 1 m\n")

    assert read_run(path, float32=True) == {"1": ["b", "a", "c"]}


def test_any_white_space_separates_fields(tmp_path: Path) -> None:
    """Blank lines and comments are ignored."""
    path = write(tmp_path / "run", "# a comment\n\n1\tQ0  a 1\t0.5 my run of May\r\n   \n")

    assert read_run(path) == {"1": ["a"]}


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """It changes neither the first query's id nor the JSON of test cases."""
    mark = b"\xef\xbb\xbf"

    assert read_run(write(tmp_path / "run", mark + RUN.encode())) == {"1": ["c", "b", "a"]}
    path = write(tmp_path / "cases.json", mark + json.dumps([CASE]).encode())
    assert truth(path).queries == ["0"]


def test_grades_may_be_negative_or_fractional(tmp_path: Path) -> None:
    """They are used as written."""
    path = write(tmp_path / "qrels", QRELS + "3 0 a 0.5\n")

    assert truth(path).qrels == {"1": {"a": 1.0, "b": 0.0}, "2": {"a": -1.0}, "3": {"a": 0.5}}


def test_the_second_field_is_the_subtopic(tmp_path: Path) -> None:
    """A document may be judged for several subtopics of a query."""
    path = write(tmp_path / "qrels", "1 s a 1\n1 t a 1\n1 t b 1\n")

    collection = truth(path, subtopics=True)

    assert collection.subtopics == {"1": {"s": {"a": 1.0}, "t": {"a": 1.0, "b": 1.0}}}
    assert collection.queries == ["1"]
    rankings = join(collection, {"1": ["a", "b"]}).rankings
    metrics = metrics_of(["alpha_ndcg@2", "recall@1"])
    assert next(score_rankings(rankings, metrics).rows())["scores"] == {
        "alpha_ndcg@2": 1.0, "recall@1": 0.5, "judged@1": 1.0, "judged@2": 1.0,
    }  # fmt: skip


def test_files_give_what_ir_measures_gives(tmp_path: Path) -> None:
    """A thousand random queries score as in ir-measures, which reads the same files."""
    draw = random.Random(3)
    documents = [f"d{number:03}" for number in range(60)]
    qrels, run = [], []
    for query in range(1_000):
        for one in draw.sample(documents, draw.randint(1, 20)):
            qrels.append(f"{query} 0 {one} {draw.choice([0, 0, 1, 1, 2, 3])}")
        if draw.random() < 0.95:
            for rank, one in enumerate(draw.sample(documents, draw.randint(1, 40))):
                run.append(f"{query} Q0 {one} {rank} {1000 - rank / 8} random")
    draw.shuffle(run)
    qrels_path = write(tmp_path / "qrels.gz", "\n".join(qrels))
    run_path = write(tmp_path / "run.gz", "\n".join(run))
    pairs = {
        "ndcg@10": "nDCG@10", "map": "AP", "mrr@10": "RR@10", "precision@5": "P@5",
        "recall@20": "R@20", "hit@3": "Success@3", "judged@10": "Judged@10",
    }  # fmt: skip
    wanted = {name: ir_measures.parse_measure(theirs) for name, theirs in pairs.items()}
    found = ir_measures.iter_calc(
        list(wanted.values()),
        ir_measures.read_trec_qrels(gzip.decompress(qrels_path.read_bytes()).decode()),  # type: ignore[no-untyped-call]
        ir_measures.read_trec_run(gzip.decompress(run_path.read_bytes()).decode()),  # type: ignore[no-untyped-call]
    )
    theirs = {(one.query_id, str(one.measure)): one.value for one in found}

    joined = join(truth(qrels_path), read_run(run_path))
    rows = list(score_rankings(joined.rankings, metrics_of(pairs)).rows())

    assert len(rows) == 1_000
    for row in rows:
        for name, measure in wanted.items():
            value = theirs[row["query_id"], str(measure)]
            if name == "judged@10" and not row["n_retrieved"]:
                assert (row["scores"][name], value) == (None, 0.0)
            else:
                assert row["scores"][name] == pytest.approx(value, abs=1e-9), (row, name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RUN + "1 Q0 a 9 0.1 m\n", "line 4: query 1 has document a twice"),
        ("1 Q0 a 1 0.5\n", r"line 1: a line of a TREC run has 6 fields .* this one has 5"),
        ("1 Q0 a 1 high m\n", "line 1: the score 'high' is not a number"),
        ("1 Q0 a 1 nan m\n", "line 1: the score 'nan' is not a number"),
        ("1 Q0 a 1 1_0 m\n", "line 1: the score '1_0' is not a number"),
        (b"1 Q0 a 1 0.5 m\n1 Q0 \xff 1 0.5 m\n", "line 2: not UTF-8"),
        ("\n", "there is no ranking in this file"),
    ],
)
def test_a_broken_run_is_located(tmp_path: Path, content: str | bytes, message: str) -> None:
    """One error has the file, the line and the problem."""
    with pytest.raises(InputError, match=rf"run\b.*{message}"):
        read_run(write(tmp_path / "run", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 0 a 1\n1 0 a 1\n", "line 2: document a is judged a second time for query 1"),
        ("1 s a 1\n1 t a 1\n", "give --subtopic-qrels"),
        ("1 0 a\n", r"line 1: a line of a TREC qrels has 4 fields .* this one has 3"),
        ("1 0 a x\n", "line 1: the grade 'x' is not a number"),
        ("1 0 a 1_0\n", "line 1: the grade '1_0' is not a number"),
        ("1 0 a ١\n", "line 1: the grade '١' is not a number"),
        ("1 0 a 1e999\n", "line 1: the grade '1e999' is not finite"),
        ("", "there are no qrels in this file"),
    ],
)
def test_broken_qrels_are_located(tmp_path: Path, content: str, message: str) -> None:
    """One error has the file, the line and the problem."""
    with pytest.raises(InputError, match=message):
        truth(write(tmp_path / "qrels", content))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    """The error of a truncated gzip file says how far reading got."""
    lines = "".join(f"{number} Q0 d{number} 1 {number / 7} mine\n" for number in range(20_000))
    whole = write(tmp_path / "run.gz", lines).read_bytes()
    (tmp_path / "run.gz").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(
        InputError, match=r"run\.gz, after line [\d,]+: the gzip data ends in the middle"
    ):
        read_run(tmp_path / "run.gz")


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    """Neither a gzip name with other content nor damaged gzip content is read."""
    (tmp_path / "run.gz").write_text(RUN)
    packed = bytearray(gzip.compress(RUN.encode()))
    packed[-6] ^= 0xFF
    (tmp_path / "bad.gz").write_bytes(packed)

    for name in ("run.gz", "bad.gz"):
        with pytest.raises(InputError, match=r"damaged, or not a gzip file .*; get it again"):
            read_run(tmp_path / name)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """The error names it."""
    for read in (read_run, truth):
        with pytest.raises(InputError, match="missing: no such file"):
            read(tmp_path / "missing")


def test_reading_reports_progress(tmp_path: Path) -> None:
    """The reported lines add up to those of the file."""
    count = 120_000
    lines = "".join(f"q Q0 d{number} 1 {number} mine\n" for number in range(count))
    told: list[int] = []

    read_trec(write(tmp_path / "run", lines), progress=told.append)

    assert sum(told) == count
    assert len(told) > 2


# -- BEIR -------------------------------------------------------------------------------------

BEIR_QRELS = "query-id\tcorpus-id\tscore\nq 1\tdoc one\t2\nq2\td2\t1\n"
BEIR_QUERIES = (
    '{"_id": "q 1", "text": "first", "metadata": {"language": "de", "url": 7}}\n'
    '{"_id": "q2", "text": "second", "metadata": {}}\n'
    '{"_id": "q3", "text": "of another split"}\n'
)


def beir(folder: Path, **files: str) -> Path:
    """Write a BEIR folder without a corpus."""
    files = {"qrels/test.tsv": BEIR_QRELS, "queries.jsonl": BEIR_QUERIES} | files
    for name, content in files.items():
        if content:
            write(folder / name, content)
    return folder


def test_a_beir_folder_needs_no_corpus(tmp_path: Path) -> None:
    """Qrels come from the split, dimensions from the metadata; ids may contain blanks."""
    found = read_truth(beir(tmp_path))

    assert found.kind == "beir"
    assert found.collection.qrels == {"q 1": {"doc one": 2.0}, "q2": {"d2": 1.0}}
    assert found.collection.dimensions == {"q 1": {"language": "de"}, "q2": {}}


def test_long_texts_are_not_dimensions(tmp_path: Path) -> None:
    """Some collections keep a query's description in its metadata, which splits nothing."""
    metadata = {"description": "x" * 65, "topic": "x" * 64, "empty": ""}
    query = json.dumps({"_id": "q2", "metadata": metadata})
    folder = beir(
        tmp_path,
        **{"qrels/test.tsv": "query-id\tcorpus-id\tscore\nq2\td\t1\n", "queries.jsonl": query},
    )

    assert truth(folder).dimensions == {"q2": {"topic": "x" * 64}}


def test_a_beir_qrels_file_is_enough(tmp_path: Path) -> None:
    """Its header distinguishes it from TREC's."""
    path = beir(tmp_path) / "qrels" / "test.tsv"

    assert truth(path).qrels == {"q 1": {"doc one": 2.0}, "q2": {"d2": 1.0}}


def test_the_split_is_test_or_the_only_one(tmp_path: Path) -> None:
    """A split can be given, and must be if there are several but no test split."""
    one = beir(tmp_path / "one", **{"qrels/test.tsv": "", "qrels/dev.tsv": BEIR_QRELS})
    two = beir(tmp_path / "two", **{"qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq3\td\t1\n"})
    several = beir(
        tmp_path / "several",
        **{"qrels/test.tsv": "", "qrels/dev.tsv": BEIR_QRELS, "qrels/train.tsv": BEIR_QRELS},
    )

    assert truth(one).queries == ["q 1", "q2"]
    assert truth(two).queries == ["q 1", "q2"]
    assert truth(two, split="dev").queries == ["q3"]
    with pytest.raises(InputError, match="choose one with --split: dev, train"):
        truth(several)
    with pytest.raises(InputError, match=r"there is no prod\.tsv; there are dev, train"):
        truth(several, split="prod")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("queries.jsonl", "", "it has qrels/ but no queries.jsonl"),
        ("queries.jsonl", '{"_id": "q 1"}\n', "query q2 of the qrels is not in this file"),
        ("queries.jsonl", '{"_id": 3}\n', "line 1: the field _id is missing or not text"),
        ("queries.jsonl", '{"_id": "q2"}\n' * 2, "line 2: query q2 occurs twice"),
        ("queries.jsonl", "{\n", "line 1: not JSON"),
        ("queries.jsonl", "[]\n", "line 1: write one JSON object per line"),
        ("qrels/test.tsv", "q 1\td\t1\n", "begin with the fields query-id, corpus-id, score"),
        ("qrels/test.tsv", BEIR_QRELS + "q2\td3\n", "line 4: write 3 fields"),
        ("qrels/test.tsv", BEIR_QRELS + "q2\td2\t1\n", "line 4: document d2 is judged a second"),
        ("qrels/test.tsv", BEIR_QRELS + "q2\td4\tx\n", "line 4: the score 'x' is not a number"),
    ],
)
def test_an_error_in_a_beir_folder_is_located(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    """One error has the file, the position and the problem."""
    with pytest.raises(InputError, match=message):
        truth(beir(tmp_path, **{name: content}))


# -- test cases -------------------------------------------------------------------------------


def cases(*changes: dict[str, Any], **metadata: str) -> str:
    """A file of cases; each is the default one with changes."""
    return json.dumps({"metadata": metadata, "test_cases": [CASE | change for change in changes]})


def test_a_case_without_an_id_has_its_index(tmp_path: Path) -> None:
    """Of three cases the second has an id; the others are 0 and 2."""
    path = write(tmp_path / "tiny.json", cases({}, {"case_id": "fits"}, {}))

    found = read_truth(path)

    assert found.kind == "cases"
    assert found.collection.qrels == {name: {"HP:0001250": 1.0} for name in ("0", "fits", "2")}


def test_a_plain_list_of_cases_is_accepted(tmp_path: Path) -> None:
    """The older format has no metadata around the cases."""
    path = write(tmp_path / "german" / "tiny.json", json.dumps([CASE]))

    assert truth(path).dimensions == {"0": {"language": "de"}}


def test_a_case_has_its_dimensions(tmp_path: Path) -> None:
    """These are language, difficulty, category and branch of the ontology."""
    about = {"difficulty": "easy", "category": "synonym", "hpo_domain": "Nervous system"}
    path = write(tmp_path / "cases.json", cases(about, {}, language="nl"))

    assert truth(path).dimensions == {"0": {"language": "nl", **about}, "1": {"language": "nl"}}


def test_the_language_may_come_from_the_folder(tmp_path: Path) -> None:
    """All files below a folder are read; a language in a file overrides its folder's."""
    write(tmp_path / "german" / "a.json", cases({"case_id": "a"}))
    write(tmp_path / "fr" / "b.json.gz", cases({"case_id": "b"}))
    write(tmp_path / "english" / "c.json", cases({"case_id": "c"}, language="es"))

    found = truth(tmp_path).dimensions

    assert {name: one["language"] for name, one in found.items()} == {
        "a": "de", "b": "fr", "c": "es",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("{}", "the field test_cases is missing or not a list"),
        ('{"test_cases": {}}', "the field test_cases is missing or not a list"),
        (cases({}, {"text": 7}), r"case 1: field text: Input should be a valid string"),
        (cases({"case_id": None}), r"case 0: field case_id: Value error, null is not a value"),
        (cases({"difficulty": ""}), "field difficulty: .*'easy', 'medium' or 'hard'"),
        (
            cases({"case_id": "x", "expected_hpo_ids": ["HP:1"]}),
            r"case 0 \(x\): field expected_hpo_ids, entry 0: String should match pattern",
        ),
        (cases({"expected_hpo_ids": "HP:0001250"}), "field expected_hpo_ids: .* valid list"),
        (cases({"difficulty": "nasty"}), "field difficulty: .*'easy', 'medium'"),
        (cases({"category": "other"}), "field category: .*'exact_match'"),
        (cases({"case_id": 7}), "field case_id: .* valid string"),
        (cases({}, language="pt"), "metadata: field language: .*'de', 'en'"),
        (json.dumps([7]), "case 0: write an object"),
        (json.dumps([{"text": "no terms"}]), "case 0: field expected_hpo_ids: Field required"),
        (cases({"case_id": "a"}, {"case_id": "a"}), r"case 1 \(a\): .* already has a case 'a'"),
        (cases({"case_id": "1"}, {}), r"case 1 \(1\): .* already has a case '1'"),
    ],
)
def test_an_invalid_case_is_located(tmp_path: Path, content: str, message: str) -> None:
    """One error has the file, the case and the field."""
    with pytest.raises(InputError, match=rf"cases\.json.*{message}"):
        truth(write(tmp_path / "cases.json", content))


def test_retrieved_lists_are_rankings(tmp_path: Path) -> None:
    """Each line is a case; an index may be a number, and an id may occur repeatedly."""
    path = write(
        tmp_path / "found.jsonl",
        '{"case_id": "a", "retrieved": ["HP:0000002", "HP:0000001", "HP:0000002"]}\n'
        '{"case_id": 1, "retrieved": []}\n',
    )

    assert read_run(path) == {"a": ["HP:0000002", "HP:0000001", "HP:0000002"], "1": []}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"retrieved": []}', "line 1: the field case_id is missing"),
        ('{"case_id": true, "retrieved": []}', "line 1: the field case_id is missing"),
        ('{"case_id": "a"}', "line 1, case a: the field retrieved must be a list of ids"),
        ('{"case_id": "a", "retrieved": [1]}', "line 1, case a: the field retrieved must be"),
        ('{"case_id": "a", "retrieved": []}\n' * 2, "line 2: case a occurs twice"),
        ('{"case_id": "a", ', "line 1: not JSON"),
    ],
)
def test_a_broken_list_is_located(tmp_path: Path, line: str, message: str) -> None:
    """One error has the file, the line and the problem."""
    with pytest.raises(InputError, match=rf"found\.jsonl, {message}"):
        read_run(write(tmp_path / "found.jsonl", line))


# -- arbitrary files --------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["1", "Q0", "a", "0.5", "nan", "\t", "\n", " ", "{", "}", "[", "]", '"', ":", ",", "#",
     '"case_id"', '"retrieved"', '"test_cases"', "query-id\tcorpus-id\tscore\n", "é", "\ufeff"]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=40).map("".join)))
@example(b"\x1f\x8b")
@example(b"PAR1")
@example("[" * 100_000)
@example("\x00")
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    """A reader accepts arbitrary bytes or says what is wrong with them."""
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)

    for read in (read_run, read_truth):
        with suppress(InputError):
            assert read(path)


# -- kinds of files ---------------------------------------------------------------------------


def test_options_of_another_kind_are_errors(tmp_path: Path) -> None:
    """Subtopics belong to TREC and splits to BEIR; other kinds would ignore them silently."""
    qrels, folder = write(tmp_path / "qrels", QRELS), beir(tmp_path / "beir")

    with pytest.raises(InputError, match="only a BEIR folder has splits"):
        truth(qrels, split="test")
    with pytest.raises(InputError, match="only TREC qrels have subtopics"):
        truth(folder, subtopics=True)


def test_a_folder_without_qrels_is_an_error(tmp_path: Path) -> None:
    """The error says what a folder may contain; a run cannot be a folder."""
    with pytest.raises(InputError, match="this folder has no qrels"):
        truth(tmp_path)
    with pytest.raises(InputError, match="this is a folder"):
        read_run(tmp_path)
