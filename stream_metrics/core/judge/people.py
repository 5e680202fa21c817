"""What people grade: a part of the model's sample, as rows to fill in, and the labels from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.judge.prompt import Texts
from stream_metrics.core.judge.turns import Work

GRADES: Final = (0, 1, 2, 3, 4)
NO_TEXTS: Final = Texts("", "", "", "")


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


class LeftOut(NamedTuple):
    """A turn that gives no labels, with the reason."""

    conversation_id: str
    turn: int
    why: str


def people_events(
    filled: Iterable[Row], time_us: int, labeller: str | None
) -> tuple[list[tuple[str, bytes]], list[LeftOut]]:
    """Labels of people, an event a turn with its conversation, and the turns that are left out.

    ``time_us`` is when they were given: of two labels of a result the later one counts. The same
    rows at the same time give the same events. A turn is left out if not all its documents have a
    grade from 0 to 4, or if its documents are not those that were drawn.
    """
    turns: dict[tuple[str, int], list[Row]] = {}
    for row in filled:
        turns.setdefault((row.conversation_id, row.turn), []).append(row)
    events, left_out = [], []
    for (conversation, turn), each in turns.items():
        if (why := _problem(each)) is not None:
            left_out.append(LeftOut(conversation, turn, why))
        else:
            graded = [row for row in each if row.result_id is not None]
            event = _event(conversation, turn, graded, time_us, labeller)
            events.append((conversation, event))
    return events, left_out


def _problem(turn: Sequence[Row]) -> str | None:
    """Why a turn gives no labels; None if it does."""
    found = [row.result_id for row in turn if row.result_id is not None]
    mark = mark_of(turn[0].conversation_id, turn[0].turn, found)
    if any(row.drawn != mark for row in turn):
        return "its documents are not those that were drawn: some are missing, or were added"
    grades = [row.grade for row in turn if row.result_id is not None]
    without = grades.count(None)
    wrong = sum(grade is not None and grade not in GRADES for grade in grades)
    if without or wrong:
        why = f"{without:,} documents without a grade"
        return why + (f", {wrong:,} with one that is not 0 to 4" if wrong else "")
    return None


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
