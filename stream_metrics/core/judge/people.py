"""What people grade: a part of the model's sample, as rows to fill in, and the labels from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stream_metrics.core.engine.beyond_limit import counted
from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.judge.prompt import Texts
from stream_metrics.core.judge.turns import Work

GRADES: Final = (0, 1, 2, 3, 4)
NO_TEXTS: Final = Texts("", "", "", "")
LISTED_ROWS: Final = 10
NOT_DRAWN: Final = "its documents are not those that were drawn: some are missing, or were added"


class FilledError(ValueError):
    """A file that people have filled in is none, or has grades that are none; the message says
    which."""


class Row(msgspec.Struct, frozen=True, omit_defaults=False):
    """A document to grade, or a turn without any, whose ``result_id`` is None.

    ``drawn`` is ``mark_of`` the turn: it shows that all its documents were drawn and are here.
    Raises ``msgspec.ValidationError`` when decoded from something else.
    """

    conversation_id: str
    turn: int
    search_id: str | None
    result_id: str | None
    asked_at: str
    question: str
    query: str
    title: str
    text: str
    drawn: str
    grade: int | None = None


class Filled(NamedTuple):
    """A row that comes back, and where it was in its file: a row of a spreadsheet, or a line."""

    number: int
    row: Row


class _AnyGrade(Row, frozen=True):
    grade: Any = None


def mark_of(conversation_id: str, turn: int, result_ids: Iterable[str]) -> str:
    """A checksum of a turn and of the results that hold the labels of its documents.

    It is no secret, so it shows mistakes and no intent: documents that were deleted, and turns that
    somebody has added because they looked wrong.

    >>> mark_of("c-1", 1, ["r-2", "r-1"])
    '63fa9588533186b2'
    """
    content = msgspec.json.encode([conversation_id, turn, sorted(result_ids)])
    return hashlib.sha256(content).hexdigest()[:16]


def rows(work: Work) -> Iterator[Row]:
    """What a person needs in order to grade a turn."""
    drawn = mark_of(work.conversation_id, work.turn, [ask.result_id for ask in work.asks])
    found: list[tuple[str | None, str | None, int, Texts]] = [
        (ask.search_id, ask.result_id, ask.search_us, ask.texts) for ask in work.asks
    ]
    for search_id, result_id, time_us, texts in found or [(None, None, work.time_us, NO_TEXTS)]:
        yield Row(
            work.conversation_id, work.turn, search_id, result_id, rfc3339(time_us), *texts, drawn
        )


def refuse_grades(wrong: Sequence[tuple[int, str]], place: str) -> None:
    """Raise ``FilledError`` if any of the grades of these rows is none.

    >>> refuse_grades([(7, "5")], "row")
    Traceback (most recent call last):
    stream_metrics.core.judge.people.FilledError: 1 grade is not one of 0, 1, 2, 3, 4: '5' in row 7
    """
    if wrong:
        named = [f"{grade[:20]!r} in {place} {number}" for number, grade in wrong[:LISTED_ROWS]]
        more = len(wrong) - LISTED_ROWS
        raise FilledError(
            f"{counted(len(wrong), 'grade is', 'grades are')} not one of "
            f"{', '.join(map(str, GRADES))}: {', '.join(named)}"
            + (f", and {more:,} more" if more > 0 else "")
        )


def decode_lines(data: bytes) -> list[Filled]:
    """The rows of a file with a JSON object a line; raises ``FilledError``."""
    found: list[Filled] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                row = msgspec.json.decode(line, type=_AnyGrade)
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise FilledError(
                    f"line {number}: this is no row of `judge export-for-people`"
                ) from None
            if row.grade is not None and (type(row.grade) is not int or row.grade not in GRADES):
                wrong.append((number, str(row.grade)))
            found.append(Filled(number, row))
    refuse_grades(wrong, "line")
    return found


class LeftOut(NamedTuple):
    """A turn that gives no labels, with the reason, and the numbers of the rows that cause it."""

    conversation_id: str
    turn: int
    why: str
    numbers: Sequence[int] = ()


def people_events(
    filled: Iterable[Filled], time_us: int, labeller: str | None
) -> tuple[list[tuple[str, bytes]], list[LeftOut]]:
    """Labels of people, an event a turn with its conversation, and the turns that are left out.

    ``time_us`` is when they were given: of two labels of a result the later one counts. The same
    rows at the same time give the same events. A turn is left out if not all its documents have a
    grade, or if its documents are not those that were drawn.
    """
    turns: dict[tuple[str, int], list[Filled]] = {}
    for one in filled:
        turns.setdefault((one.row.conversation_id, one.row.turn), []).append(one)
    events, left_out = [], []
    for (conversation, turn), each in turns.items():
        documents = [one for one in each if one.row.result_id is not None]
        mark = mark_of(conversation, turn, [str(one.row.result_id) for one in documents])
        empty = [one.number for one in documents if one.row.grade is None]
        if any(one.row.drawn != mark for one in each):
            left_out.append(LeftOut(conversation, turn, NOT_DRAWN))
        elif empty:
            why = f"{counted(len(empty), 'document')} without a grade"
            left_out.append(LeftOut(conversation, turn, why, empty))
        else:
            event = _event(conversation, turn, [one.row for one in documents], time_us, labeller)
            events.append((conversation, event))
    return events, left_out


def _event(
    conversation: str, turn: int, graded: Sequence[Row], time_us: int, labeller: str | None
) -> bytes:
    labels: list[Mapping[str, Any]] = [
        {"result_id": row.result_id, "gain": row.grade} for row in graded
    ]
    content = msgspec.json.encode([conversation, turn, labels, time_us, labeller])
    event = {
        "type": "relevance_labels",
        "event_id": f"people:{hashlib.sha256(content).hexdigest()[:32]}",
        "occurred_at": rfc3339(time_us),
        "conversation_id": conversation,
        "turn": turn,
        "source": "human",
        "sample": "random",
        "labels": labels,
    }
    return msgspec.json.encode(event if labeller is None else {**event, "labeller": labeller})
