"""Writes the interpretation of a trace as events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from stream_metrics.core.events.times import rfc3339
from stream_metrics.core.telemetry.interpretation import Interpretation, Label, Result, Search, Turn


class Event(NamedTuple):
    """An event: its conversation, which is its key, its time in Unix microseconds, and its JSON."""

    conversation: str
    occurred_us: int
    value: bytes


def events(interpretation: Interpretation, content: bool = True) -> Iterator[Event]:
    """The events of a trace in the order of its turns; ``content`` is whether to include texts."""
    for turn in interpretation.turns:
        yield from turn_events(interpretation.trace_id, turn, content)
    yield from label_events(interpretation.trace_id, interpretation.labels)


def turn_events(trace_id: str, turn: Turn, content: bool = True) -> Iterator[Event]:
    """The events of a turn, without labels."""
    for search in turn.searches:
        yield _search(trace_id, turn, search, content)
    if turn.skipped:
        yield _event(
            trace_id,
            turn,
            "search_iteration",
            turn.span_id,
            turn.number,
            agent=turn.agent,
            release=turn.release,
            iteration=1,
            gate={"decision": "skip"},
            kind="gate",
        )
    if turn.answer is not None or turn.question is not None:
        yield _event(
            trace_id,
            turn,
            "turn_completed",
            turn.span_id,
            turn.number,
            answer=turn.answer,
            question=turn.question,
        )


def label_events(
    trace_id: str,
    labels: Iterable[Label],
    *,
    source: str | None = None,
    sample: str | None = None,
) -> Iterator[Event]:
    """The labels of a trace, one event for each turn, time and labeller.

    The event id is derived from the content, so that the same labels are the same event in every
    run.

    Args:
        trace_id: The trace.
        labels: Its labels.
        source: Whether people or a model gave them, as events say it; None: they do not say it.
        sample: Whether their turns were drawn at random; None: events do not say it.
    """
    said = _present(source=source, sample=sample)

    def together(label: Label) -> tuple[int, str, int, str]:
        turn = label.turn
        return (turn.number, turn.conversation, label.time_us, label.labeller or "")

    for _, group in groupby(
        sorted(labels, key=lambda label: (*together(label), label.result_id)), together
    ):
        each = list(group)
        turn, time_us, labeller = each[0].turn, each[0].time_us, each[0].labeller
        given = [{"result_id": label.result_id, "gain": label.gain} for label in each]
        content = msgspec.json.encode([time_us, labeller, given, *([said] if said else ())])
        kind = f"labels:{hashlib.sha256(content).hexdigest()[:16]}"
        yield _event(
            trace_id,
            turn,
            "relevance_labels",
            turn.span_id,
            time_us,
            labels=given,
            labeller=labeller,
            kind=kind,
            **said,
        )


def _search(trace_id: str, turn: Turn, search: Search, content: bool) -> Event:
    results = [
        _result(search.span_id, rank, result, content)
        for rank, result in enumerate(search.results, 1)
    ]
    return _event(
        trace_id,
        turn,
        "search_iteration",
        search.span_id,
        search.start_ns // 1000,
        agent=search.agent,
        release=search.release,
        iteration=search.iteration,
        searches=[
            _present(
                search_id=search.span_id,
                ordinal=search.ordinal,
                query=search.query,
                routing={"selected": search.route} if search.route else None,
                results=results,
            )
        ],
    )


def _result(span_id: str, rank: int, result: Result, content: bool) -> dict[str, Any]:
    document = result.document
    return _present(
        result_id=f"{span_id}/{rank}",
        doc_id=result.doc_id,
        url=result.url,
        title=document.title if content else None,
        content=document.text if content else None,
        score=document.score,
        baseline_rank=result.baseline_rank,
        ids=result.ids or None,
        fields=result.fields or None,
    )


def _event(
    trace_id: str,
    turn: Turn,
    type_: str,
    span_id: str,
    occurred_us: int,
    *,
    kind: str | None = None,
    **parts: Any,
) -> Event:
    value = _present(
        type=type_,
        event_id=f"{trace_id}:{span_id}:{kind or type_}",
        occurred_at=rfc3339(occurred_us),
        conversation_id=turn.conversation,
        turn=turn.number,
        **parts,
    )
    return Event(turn.conversation, occurred_us, msgspec.json.encode(value))


def _present(**parts: Any) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None}
