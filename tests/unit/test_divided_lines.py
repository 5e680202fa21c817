"""How lines of runs and qrels are divided into fields, and what shifted fields come to."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stream_metrics.core.metrics.ranking.names import GradeLimit
from stream_metrics.core.metrics.ranking.registry import parse_all
from stream_metrics.lab.sources.collection.sources import read_run, read_truth
from stream_metrics.lab.sources.unchanged import InputError
from tests.helpers import examples
from tests.oracle.ranking import cut

ASCII_BLANKS = " \t\n\r\v\f"
NOT_ASCII_BLANKS = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\ufeff\u200b"

SIGNS = st.sampled_from(f"ab1#\"',.;é{NOT_ASCII_BLANKS}")
WORDS = st.text(SIGNS, min_size=1, max_size=4).filter(lambda text: text[0] not in "#\ufeff")
PHRASES = st.lists(WORDS | st.sampled_from(["12", "0", "Q0", "1.5"]), min_size=2, max_size=4).map(
    " ".join
)
RANKS = st.integers(-1, 30).map(str) | st.just("1.0")
SCORES = st.integers(-3, 30).map(str) | st.floats(-9, 9).map(repr)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a file, always the same one."""
    path = tmp_path_factory.mktemp("files") / "file"

    def write(content: str) -> Path:
        path.write_bytes(content.encode())
        return path

    return write


def qrels_of(path: Path) -> object:
    """The grades in a file of qrels."""
    return read_truth(path).collection.qrels


# -- TREC -------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(WORDS, WORDS, RANKS, SCORES, st.sampled_from([" ", "\t", " \t ", "  ", "\v", "\f "]))
def test_white_space_beyond_ascii_is_part_of_ids(
    written: Callable[[str], Path], query: str, document: str, rank: str, score: str, blank: str
) -> None:
    """Only ASCII's white space divides, as in trec_eval: a no-break space does not."""
    run = blank.join([query, "Q0", document, rank, score, "bm25"])
    assume(not run.startswith(("{", "[")))

    assert read_run(written(f"{run}\r\n")) == {query: [document]}
    assert qrels_of(written(blank.join([query, "0", document, "2"]))) == {query: {document: 2.0}}


@settings(max_examples=examples(60))
@given(PHRASES, PHRASES, RANKS, SCORES, PHRASES)
def test_tabs_divide_fields_with_blanks(
    written: Callable[[str], Path], query: str, document: str, rank: str, score: str, name: str
) -> None:
    """Where a line has as many tabs as it needs, ids may have blanks in them."""
    run = "\t".join([query, "Q0", document, rank, score, name])

    assert read_run(written(run)) == {query: [document]}
    assert qrels_of(written(f"{query}\t0\t{document}\t1")) == {query: {document: 1.0}}


@settings(max_examples=examples(100))
@given(WORDS | PHRASES, WORDS | PHRASES, RANKS, SCORES)
def test_an_id_with_a_blank_is_never_cut(
    written: Callable[[str], Path], query: str, document: str, rank: str, score: str
) -> None:
    """Divided by blanks, a line with such an id is refused, whatever stands where the rank was."""
    assume(" " in query + document)

    with pytest.raises(InputError, match="line 1: "):
        read_run(written(f"{query} Q0 {document} {rank} {score} bm25"))
    with pytest.raises(InputError, match="line 1: "):
        read_truth(written(f"{query} 0 {document} 1"))


GAPS = st.sampled_from([" ", "\t", "  ", "\v", " \t", "\xa0"])
ANY = st.sampled_from(["Q0", "0", "1", "2.5", "-3", "m"]) | WORDS
USUAL = (WORDS, st.just("Q0"), WORDS, RANKS, SCORES, ANY)
LINES = st.tuples(*(field | ANY for field in USUAL), st.lists(ANY, max_size=2)).flatmap(
    lambda found: st.lists(GAPS, min_size=8, max_size=8).map(
        lambda gaps: "".join(chain.from_iterable(zip([*found[:6], *found[6]], gaps, strict=False)))
    )
)


@settings(max_examples=examples(100))
@given(LINES)
@example("q  Q0\tone\xa0two 1 2.5 my run")
def test_what_blanks_divide_is_read_as_trec_eval_reads_it(
    written: Callable[[str], Path], line: str
) -> None:
    """Any line is refused, divided by tabs alone, or cut as in trec_eval."""
    found = None
    with suppress(InputError):
        found = read_run(written(line))

    if found is not None and line.count("\t") != 5:
        fields = cut(line)
        assert found == {fields[0]: [fields[2]]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 Q0 Rules 2023 2 7.1 bm25", "rank and score may be '2023 2' or '2 7.1'"),
        ("q1 Q0 Rules of May 2 7.1 bm25", "the rank 'of' is not a whole number"),
        ("q1 Q0 d 1.5 7.1 bm25", "the rank '1.5' is not a whole number; if an id has a blank"),
        ("q1 Q0 d first 7.1 bm25", "the rank 'first' is not a whole number"),
        ("q1 Q0 d \u0661 7.1 bm25", "the rank '\u0661' is not a whole number"),
        ("q1\tQ0\t7.1\td\t1\tbm25", "the rank 'd' is not a whole number"),
        # Without a column, a blank in an id makes six fields.
        ("q1 Q0 Rules 2023 2 7.1", "rank and score may be '2023 2' or '2 7.1'"),
        ("q1\tQ0\tRules 2023\t2\t7", "rank and score may be '2023 2' or '2 7'"),
        ("q1 Rules 2023 2 7.1 bm25", "the second field is 'Rules', but Q0 or a number"),
        ("q1\tQ0\t\t2\t7.1\tbm25", "the document between the tabs is empty"),
        ("\tQ0\td\t2\t7.1\tbm25", "the query between the tabs is empty"),
        ("q1 Q0 d 1 1e999 bm25", "the score '1e999' is beyond the range of doubles"),
        ("q1 Q0 d 1 1e-999 bm25", "the score '1e-999' is too near to 0"),
        ("q Q0 a 1 2.5 m\rq Q0 b 2 1.5 m", "rank and score may be '1 2.5' or '2 1.5'; end lines"),
    ],
)
def test_shifted_fields_of_a_run_are_refused(
    written: Callable[[str], Path], line: str, message: str
) -> None:
    """Ignored fields are checked, because they show that others stand in the wrong place."""
    with pytest.raises(InputError) as refusal:
        read_run(written(f"q Q0 first 1 9.5 bm25\n{line}\n"))

    assert f"line 2: {message}" in str(refusal.value)


@pytest.mark.parametrize(
    "line",
    [
        "q 0 d 1 9.5 bm25",
        "q q0 d -1 9.5 bm25",
        "q Q0 d 1.0 -inf bm25",
        "q Q0 d 1 9 my run of May",
        "q Q0 d 1 9 2024",
        "q\t\td\t1\t9\t",
        "q\tround one\td\t1\t9\t7 8",
        "\ufeffq Q0 d 1 9.5 bm25",
        " q Q0 d 1 9.5 bm25 \v",
    ],
)
def test_what_other_programs_write_is_read(written: Callable[[str], Path], line: str) -> None:
    """A line of a run may have any rank, name and second field that show no shift."""
    assert read_run(written(f"q Q0 first 1 99.5 2024\n{line}\n")) == {"q": ["first", "d"]}


def test_the_scores_of_a_run_without_a_name_are_no_names(written: Callable[[str], Path]) -> None:
    """A run has one name: numbers that differ are scores, and behind them is a divided id."""
    with pytest.raises(InputError, match="line 2: rank and score may be '2023 2' or '2 8'"):
        read_run(written("q1 Q0 Rules 2024 1 9\nq1 Q0 Rules 2023 2 8\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1 0 Rules 2023 1", "a line of a TREC qrels has 4 fields"),
        ("q1 Rules 2023 1", "the second field is 'Rules', but Q0 or a number"),
        ("q1\tRules 2023\t1", "the second field is 'Rules', but Q0 or a number"),
        ("q1\t0\td\t1\tlast", "this one has 5; if an id has a blank, divide the 4 fields by tabs"),
        ("q1\t0\t \t1", "the document between the tabs is empty"),
        ("q 0 a 1\rq 0 b 2", "this one has 8; end lines with a line feed"),
    ],
)
def test_shifted_fields_of_qrels_are_refused(
    written: Callable[[str], Path], line: str, message: str
) -> None:
    """An id with a blank can take the place of the second field."""
    with pytest.raises(InputError) as refusal:
        read_truth(written(f"q 0 first 1\n{line}\n"))

    assert message in str(refusal.value)


@pytest.mark.parametrize("second", ["Q0", "0", "1", "4.5"])
def test_the_second_field_of_qrels_is_ignored(written: Callable[[str], Path], second: str) -> None:
    """Rounds of an evaluation stand there, for example."""
    assert qrels_of(written(f"q {second} d 1\n")) == {"q": {"d": 1.0}}


def test_whole_numbers_are_compared_exactly(written: Callable[[str], Path]) -> None:
    """Doubles would make a tie of scores beyond 2^53 that differ by 1."""
    content = "q Q0 b 2 9007199254740992 m\nq Q0 a 1 9007199254740993 m\nq Q0 c 3 9e15 m\n"

    assert read_run(written(content)) == {"q": ["a", "b", "c"]}


def test_quotes_are_signs_like_others(written: Callable[[str], Path]) -> None:
    """TREC files know no quotes."""
    assert read_run(written('"q" Q0 "a"" 1 2.0 m\n')) == {'"q"': ['"a""']}


def test_a_byte_order_mark_may_begin_any_line(written: Callable[[str], Path]) -> None:
    """Files that were joined have one in the middle, which is not part of an id."""
    assert read_run(written("\ufeffq Q0 a 1 2.5 m\n\ufeffq Q0 b 2 1.5 m\n")) == {"q": ["a", "b"]}


def test_a_file_of_comments_is_called_that(written: Callable[[str], Path]) -> None:
    """Ids of queries may begin with # as well, which no line shows."""
    for read in (read_run, read_truth):
        with pytest.raises(InputError, match="file: 2 of its lines begin with #, and are comm"):
            read(written("#1 Q0 a 1 2.5 m\n\n #2 Q0 a 1 2.5 m\n"))


def test_what_was_passed_over_is_said(written: Callable[[str], Path]) -> None:
    """Comments and blank lines are counted, with the first comment, which may be a mistaken id."""
    said: list[str] = []

    read_run(written("\nq Q0 a 1 2.5 m\n  # one\n#q Q0 b 2 1.5 m\n \t\n"), say=said.append)
    read_truth(written("q 0 a 1\n# one\n"), say=said.append)
    read_run(written("q Q0 a 1 2.5 m\n"), say=said.append)

    assert [line.rpartition(": ")[2] for line in said] == [
        "2 comments (first on line 3) and 2 blank lines passed over",
        "1 comment (first on line 2) passed over",
    ]


# -- BEIR -------------------------------------------------------------------------------------

HEADER = "query-id\tcorpus-id\tscore\n"
CSV_SIGNS = st.sampled_from(f"ab\"'\t\n #{NOT_ASCII_BLANKS}")
IDS = (
    st.text(CSV_SIGNS, min_size=1, max_size=6)
    .map(lambda text: text.strip(ASCII_BLANKS))
    .filter(lambda text: text and "\ufeff" not in text)
)


@settings(max_examples=examples(60))
@given(st.dictionaries(IDS, st.dictionaries(IDS, st.integers(-1, 3), min_size=1), min_size=1))
def test_what_csv_writes_is_read(
    written: Callable[[str], Path], qrels: dict[str, dict[str, int]]
) -> None:
    """Ids with quotes, tabs and line ends come back from what Python's csv module writes."""
    text = io.StringIO(newline="")
    rows = csv.writer(text, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
    rows.writerow(("query-id", "corpus-id", "score"))
    rows.writerows(
        (query, document, grade) for query, of in qrels.items() for document, grade in of.items()
    )

    assert qrels_of(written(text.getvalue())) == qrels


@pytest.mark.parametrize(
    "header",
    [
        '"query-id"\t"corpus-id"\t"score"',
        "query_id\tcorpus_id\tscore",
        "Query-ID\tCorpus-ID\tScore ",
    ],
)
def test_a_header_may_be_quoted(written: Callable[[str], Path], header: str) -> None:
    """Quotes, case and underscores of the header do not matter."""
    assert qrels_of(written(f'\ufeff\n{header}\n"a ""b"""\td\t1\n')) == {'a "b"': {"d": 1.0}}


def test_a_quote_within_a_field_is_a_sign(written: Callable[[str], Path]) -> None:
    """Only a field that begins with a quote is quoted."""
    assert qrels_of(written(f'{HEADER}q\t5" disk\t1\n')) == {"q": {'5" disk': 1.0}}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('q1\td1\t1\nq2\t"Heroes" album\t1\n', "line 3: not CSV with tabs: "),
        ('q1\t"Heroes\t1\nq2\td\t1\n', "line 2: not CSV with tabs: unexpected end of data"),
        ('q1\t"Heroes\t1\nq2\t"Low\t1\n', "line 2: not CSV with tabs: "),
        ('q1\t"two\nlines"\t1\nq2\td\tx\n', "line 4: the score 'x' is not a number"),
        ('q1\t"two\nlines"\t1\nq2\t"two\nlines"\n', "line 4: write 3 fields separated by tabs"),
        ('q1\t""\t1\n', "line 2: the corpus-id is empty"),
        ('""\td\t1\n', "line 2: the query-id is empty"),
        ("q1\td\t1\textra\n", "line 2: write 3 fields separated by tabs, this line has 4"),
    ],
)
def test_malformed_csv_is_located(written: Callable[[str], Path], rows: str, message: str) -> None:
    """The line is that on which the row begins, also behind ids of several lines."""
    with pytest.raises(InputError) as refusal:
        read_truth(written(HEADER + rows))

    assert message in str(refusal.value)


def test_another_header_is_refused(written: Callable[[str], Path]) -> None:
    """It is that of BEIR in part, so that the file is not taken for TREC's."""
    for header in ("query-id\tdoc\tscore", "query-id corpus-id score"):
        with pytest.raises(InputError, match="line 1: qrels of BEIR begin with the fields"):
            read_truth(written(f"{header}\nq\td\t1\n"))


# -- grades -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "grade", "message"),
    [
        ("ndcg(gains=exponential)@5", "1100", "a grade of 1100 is above 1,000, the largest whose"),
        ("ndcg@5", "1e300", "a grade of 1e+300 is above 9,007,199,254,740,992, the largest whose"),
        ("q_measure", "1e308", "a grade of 1e+308 is above 9,007,199,254,740,992"),
        ("err@5", "5", r"a grade of 5 is above max_grade=4; give the largest possible grade"),
        ("err@5", "2000", r"a grade of 2000 is above 4, the largest"),
        ("rbp(gains=linear)", "5", r"a grade of 5 is above max_grade=4"),
    ],
)
def test_a_grade_too_large_for_a_gain_is_located(
    written: Callable[[str], Path], metric: str, grade: str, message: str
) -> None:
    """TREC's and BEIR's qrels alike are refused by file and line."""
    limit = GradeLimit.of(parse_all(["mrr", metric]))
    for content in (f"q 0 a 1\nq 0 b {grade}\n", f"{HEADER}q\tb\t{grade}\n"):
        with pytest.raises(InputError, match=r"file, line 2: ") as refusal:
            read_truth(written(content), limit=limit)
        assert f"{metric}: {message}" in str(refusal.value)


@pytest.mark.parametrize("grade", ["5e-324", "-1e-300", "1e-999"])
def test_a_grade_too_near_to_zero_is_located(written: Callable[[str], Path], grade: str) -> None:
    """Its discounted gain would be rounded to another one."""
    with pytest.raises(InputError, match=f"line 2: the grade '{grade}' is too near to 0"):
        read_truth(written(f"q 0 a 1\nq 0 b {grade}\n"))


def test_binary_metrics_take_any_finite_grade(written: Callable[[str], Path]) -> None:
    """Only gains can be too large."""
    limit = GradeLimit.of(parse_all(["mrr", "recall@5", "ndcg(gains=binary)", "rbp"]))

    assert read_truth(written("q 0 a 1e300\n"), limit=limit).collection.qrels == {"q": {"a": 1e300}}
