"""Grades as ``relevance_labels`` events, the same ones whenever a turn is judged again.

The id of an event is made of the judge, the turn and the search, its time is that of the search, so
that labels of a repeated judgement replace one another instead of adding up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.judge.turns import Work

LABELLER: Final = "judge"


def labeller_of(model: str, judge: str) -> str:
    """The name that signs the labels of a judge: the model's, and the hash of what it is asked."""
    return f"{LABELLER}:{model}:{judge}"


def label_events(work: Work, grades: Mapping[str, int], *, model: str, judge: str) -> list[bytes]:
    """The events that put a turn into the model's random sample, with its grades by result id.

    There is an event for each search with a graded result; if there is none, one without labels.
    """
    searches: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for ask in work.asks:
        label = {"result_id": ask.result_id, "gain": grades[ask.result_id]}
        searches.setdefault((ask.search_id, ask.search_us), []).append(label)
    if not searches:
        return [sample_event(work, model=model, judge=judge)]
    return [
        _event(work, search_id, search_us, labels, model, judge)
        for (search_id, search_us), labels in searches.items()
    ]


def sample_event(work: Work, *, model: str, judge: str) -> bytes:
    """The event that puts a turn into the model's random sample, without labels."""
    return _event(work, "", work.time_us, [], model, judge)


def _event(
    work: Work, search_id: str, time_us: int, labels: list[dict[str, Any]], model: str, judge: str
) -> bytes:
    about = hashlib.sha256(f"{work.conversation_id}\0{search_id}".encode()).hexdigest()[:32]
    return msgspec.json.encode(
        {
            "type": "relevance_labels",
            "event_id": f"{LABELLER}:{judge}:{work.turn}:{about}",
            "occurred_at": rfc3339(time_us),
            "conversation_id": work.conversation_id,
            "turn": work.turn,
            "source": "model",
            "sample": "random",
            "labeller": labeller_of(model, judge),
            "labels": labels,
        }
    )
