"""What people grade, as a table for spreadsheets: comma-separated values.

Programs that open such files take some texts for formulas, numbers or dates, and write them back
changed. So what identifies a row is in one cell that they take for text, and no cell begins like a
formula, nor does what a program takes for one that expects another separator. Other cells are for
people, and are not read back.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable
from io import StringIO
from typing import Final

import msgspec

from stream_metrics.core.judge.people import GRADES, Filled, FilledError, Row, refuse_grades

GRADE: Final = "grade"
KEY: Final = "row (do not change)"
COLUMNS: Final = (GRADE, "question", "query", "title", "text", "asked at", KEY)
CELL: Final = 32_000
"""The most UTF-16 units of a cell; spreadsheets hold 32,767."""
NOTHING: Final = "(no document: nothing to grade)"
_FORMULA: Final = re.compile(r"""((?:^|[;\t\r\n])[\s"']*)(?=[=+\-@＝＋－＠])""")
_SEPARATORS: Final = (",", ";", "\t")
_GRADE: Final = re.compile(r"([0-9]{1,9})(?:[.,]0+)?")
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class _Key(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    conversation_id: str
    turn: int
    result_id: str | None
    drawn: str


def encode_sheet(rows: Iterable[Row]) -> tuple[bytes, int]:
    """The table, and how many texts were cut because a cell does not hold more."""
    out, cut = StringIO(newline=""), 0
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        key = json.dumps([row.conversation_id, row.turn, row.result_id, row.drawn])
        texts = [row.question, row.query, row.title, row.text if row.result_id else NOTHING]
        cells = [_cell(text) for text in texts]
        cut += sum(is_cut for _, is_cut in cells)
        grade = "" if row.grade is None else str(row.grade)
        writer.writerow(
            [grade, *(text for text, _ in cells), row.asked_at, key.replace(";", "\\u003b")]
        )
    return out.getvalue().encode("utf-8-sig", "replace"), cut


def _cell(text: str) -> tuple[str, bool]:
    """A text that no program takes for a formula, and whether it was cut.

    >>> _cell("=HYPERLINK(A1)"), _cell("plain")
    (("'=HYPERLINK(A1)", False), ('plain', False))
    """
    safe = _FORMULA.sub(r"\1'", text.replace("\0", " "))
    units = safe.encode("utf-16-le", "replace")
    return units[: 2 * CELL].decode("utf-16-le", "ignore"), len(units) > 2 * CELL


def decode_sheet(data: bytes) -> list[Filled]:
    """The rows of a table that people have filled in, without texts; raises ``FilledError``.

    Other separators and encodings than those of ``encode_sheet`` are accepted, since programs
    choose theirs: what is read back has ASCII characters only.
    """
    encoding = next((name for bom, name in _BOMS if data.startswith(bom)), "latin-1")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FilledError(f"this is not {encoding}: {error.reason}") from None
    separator = _separator(text)
    read = csv.reader(StringIO(text, newline=""), delimiter=separator)
    found: list[Filled] = []
    wrong: list[tuple[int, str]] = []
    try:
        heads = [head.strip() for head in next(read, [])]
        for name in (GRADE, KEY):
            if name not in heads:
                raise FilledError(f"there is no column {name!r}")
        grade_at, key_at = heads.index(GRADE), heads.index(KEY)
        for number, cells in enumerate(read, 2):
            if any(cell.strip() for cell in cells):
                cells += [""] * (len(heads) - len(cells))
                grade = cells[grade_at].strip()
                given = _GRADE.fullmatch(grade)
                value = None if given is None else int(given[1])
                if grade and value not in GRADES:
                    wrong.append((number, grade))
                found.append(Filled(number, _row(cells[key_at].strip(), value, number)))
    except csv.Error as error:
        raise FilledError(str(error)) from None
    refuse_grades(wrong, "row")
    return found


def _separator(text: str) -> str:
    """The one that the row of heads has most."""
    head = text[: text.find("\n") + 1] or text
    return max(_SEPARATORS, key=head.count)


def _row(key: str, grade: int | None, number: int) -> Row:
    try:
        found = msgspec.json.decode(key, type=_Key)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise FilledError(f"row {number}: {KEY!r} is not as it was exported") from None
    return Row(
        found.conversation_id,
        found.turn,
        None,
        found.result_id,
        *("", "", "", "", ""),
        found.drawn,
        grade,
    )
