"""What people grade: a part of the model's sample, as rows to fill in, and the labels from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.judge.turns import Work

GRADES: Final = (0, 1, 2, 3, 4)


class Row(msgspec.Struct, frozen=True, omit_defaults=False):
    """A document to grade, or a turn without any, whose ``result_id`` is None.

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
    grade: int | None = None


def rows(work: Work) -> Iterator[Row]:
    """What a person needs in order to grade a turn."""
    for ask in work.asks:
        yield Row(
            work.conversation_id,
            work.turn,
            ask.search_id,
            ask.result_id,
            rfc3339(ask.search_us),
            *ask.texts,
        )
    if not work.asks:
        yield Row(
            work.conversation_id, work.turn, None, None, rfc3339(work.time_us), "", "", "", ""
        )


class Unfinished(NamedTuple):
    """A turn of which some documents have no grade, or a wrong one, so that it is left out."""

    conversation_id: str
    turn: int
    without: int
    wrong: int


def people_events(
    filled: Iterable[Row], time_us: int, labeller: str | None
) -> tuple[list[bytes], list[Unfinished]]:
    """Labels of people, an event a turn, and the turns that are left out.

    ``time_us`` is when they were given: of two labels of a result the later one counts. The same
    rows at the same time give the same events.
    """
    turns: dict[tuple[str, int], list[Row]] = {}
    for row in filled:
        turns.setdefault((row.conversation_id, row.turn), []).append(row)
    events, unfinished = [], []
    for (conversation, turn), each in turns.items():
        graded = [row for row in each if row.result_id is not None]
        without = sum(row.grade is None for row in graded)
        wrong = sum(row.grade is not None and row.grade not in GRADES for row in graded)
        if without or wrong:
            unfinished.append(Unfinished(conversation, turn, without, wrong))
        else:
            events.append(_event(conversation, turn, graded, time_us, labeller))
    return events, unfinished


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
