"""What people grade, in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.core.judge.people import FilledError, Row
from stream_metrics.core.judge.sheet import CELL, decode_sheet, encode_sheet

FORMULA: Final = "=+-@＝＋－＠"
AWKWARD: Final = st.text("=+-@;,\t\r\n \"'|!0ä\N{GRINNING FACE}", max_size=12)
TEXTS: Final = st.one_of(AWKWARD, st.text(max_size=20))
ROWS: Final = st.lists(
    st.builds(
        Row,
        conversation_id=st.one_of(TEXTS, st.sampled_from(["007", "1.10", "3-4", "1e5", "=1"])),
        turn=st.integers(0, 1 << 53),
        search_id=st.just("s"),
        result_id=st.one_of(st.none(), TEXTS),
        asked_at=st.just("2026-06-09T12:00:00Z"),
        question=TEXTS,
        query=TEXTS,
        title=TEXTS,
        text=TEXTS,
        drawn=st.just("63fa9588533186b2"),
        grade=st.one_of(st.none(), st.integers(0, 4)),
    ),
    max_size=4,
)


def table(data: bytes) -> list[list[str]]:
    """The cells of a file, as a program shows them."""
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))


@given(ROWS, st.sampled_from([",", ";", "\t"]), st.sampled_from(["utf-8-sig", "cp1252", "utf-16"]))
def test_what_a_program_saves_is_read(rows: list[Row], separator: str, encoding: str) -> None:
    """With its own separator and encoding; texts may be lost, ids and grades are not."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator).writerows(table(encode_sheet(rows)[0]))
    saved = out.getvalue().encode(encoding, "replace")

    assert [
        (r.conversation_id, r.turn, r.result_id, r.drawn, r.grade) for _, r in decode_sheet(saved)
    ] == [(r.conversation_id, r.turn, r.result_id, r.drawn, r.grade) for r in rows]


@given(ROWS, st.sampled_from([",", ";", "\t"]))
@example([Row("a;=1", 1, "s", "r", "", "a;=1", 'a;"=1', "a\n-1", "a\t@1", "d")], ";")
def test_no_cell_begins_like_a_formula(rows: list[Row], expected: str) -> None:
    """Whichever separator a program expects, which may break cells and lines apart."""
    text = encode_sheet(rows)[0].decode("utf-8-sig")
    for cells in csv.reader(io.StringIO(text, newline=""), delimiter=expected):
        for cell in cells:
            assert (
                cell.strip(" \t\r\n\"'")[:1] not in tuple(FORMULA)
                or "'" in cell[: len(cell) - len(cell.lstrip(" \t\r\n\"'"))]
            )


@given(ROWS)
def test_texts_are_shown_whole(rows: list[Row]) -> None:
    """Line breaks and quotes included; before what looks like a formula there is an apostrophe."""
    _, *shown = table(encode_sheet(rows)[0])
    for row, cells in zip(rows, shown, strict=True):
        written = row.query.replace("\0", " ")
        assert cells[2].replace("'", "") == written.replace("'", "")
        if not any(mark in written for mark in FORMULA):
            assert cells[2] == written


def row(text: str) -> Row:
    """A row with this text."""
    return Row("c", 1, "s", "r", "2026-06-09T12:00:00Z", "q", "q", "t", text, "d")


def test_a_text_that_no_cell_holds_is_cut() -> None:
    """At a whole character, and counted."""
    data, cut = encode_sheet([row("\N{GRINNING FACE}" * CELL), row("short")])
    _, first, second = table(data)
    assert (cut, first[4], second[4]) == (1, "\N{GRINNING FACE}" * (CELL // 2), "short")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no column 'grade'"),
        (b"grade,row\n3,x\n", "no column 'row (do not change)'"),
        (b"grade,row (do not change)\n\n3,\n", "row 3: 'row (do not change)' is not as"),
        (
            b'grade,row (do not change)\nx,"[""c"",1,""r"",""d""]"\n',
            "1 grade is not one of 0, 1, 2, 3, 4: 'x' in row 2",
        ),
        (b"\xff\xfe\x00", "this is not utf-16"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(content: bytes, why: str) -> None:
    """With the row."""
    with pytest.raises(FilledError, match=re.escape(why)):
        list(decode_sheet(content))


@pytest.mark.parametrize(("given_", "read"), [("3", 3), ("3.0", 3), ("3,00", 3), ("", None)])
def test_a_grade_is_read_as_programs_write_it(given_: str, read: int | None) -> None:
    """A whole number, maybe with a decimal point."""
    data = encode_sheet([row("text")])[0].decode().replace('""', f'"{given_}"', 1)
    [found] = decode_sheet(data.encode())
    assert found.row.grade == read


def test_all_grades_that_are_none_are_named() -> None:
    """The first ones with their rows, as a spreadsheet counts them, whatever is wrong with them."""
    wrong = ["5", "9", "-1", "3.5", "good", "10", "3,5", "x", "y", "z", "a", "b"]
    saved = encode_sheet([row("two\nlines")] * 13)[0].decode()
    for grade in ["4", *wrong]:
        saved = saved.replace('\r\n"",', f'\r\n"{grade}",', 1)
    with pytest.raises(FilledError) as caught:
        decode_sheet(saved.encode())
    said = str(caught.value)
    assert said.startswith("12 grades are not one of 0, 1, 2, 3, 4: '5' in row 3, '9' in row 4, ")
    assert said.endswith("'z' in row 12, and 2 more")
