"""What a judge is given to read, and the labels that it must have written."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.labels import LABELLER
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.prompt import Texts, prompt_of
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurns
from tests.model_endpoint import document_of, grade_of

Labels = dict[tuple[str, int, str], int]
"""Grades by conversation, turn and result."""


def turn_events(
    conversation: str, turn: int, at_s: float, chance: Random, *, iterations: int = 2
) -> list[dict[str, Any]]:
    """The events of a turn whose searches return some documents again."""
    found: list[dict[str, Any]] = []
    for iteration in range(1, iterations + 1):
        results = []
        for rank in range(1, chance.randint(1, 4) + 1):
            number = chance.randint(1, 5)
            results.append(
                {
                    "result_id": f"{iteration}.{rank}",
                    "doc_id": f"{conversation}-{turn}-{number}",
                    "title": f"Document {number}",
                    "content": f"grade-{chance.randint(0, 4)} of {conversation} {turn} {number}",
                }
            )
        found.append(
            {
                "type": "search_iteration",
                "event_id": f"{conversation}-{turn}-{iteration}",
                "occurred_at": at_s + iteration / 10,
                "conversation_id": conversation,
                "turn": turn,
                "agent": "support",
                "iteration": iteration,
                "searches": [
                    {
                        "search_id": f"s{iteration}",
                        "query": f"what {conversation} asks",
                        "results": results,
                    }
                ],
            }
        )
    found.append(
        {
            "type": "turn_completed",
            "event_id": f"{conversation}-{turn}-end",
            "occurred_at": at_s + 1,
            "conversation_id": conversation,
            "turn": turn,
            "question": f"What {conversation} wants",
        }
    )
    return found


def lines(events: Iterable[Mapping[str, Any]]) -> bytes:
    """The events as they are posted."""
    return b"\n".join(json.dumps(event).encode() for event in events)


def wanted(records: Iterable[Record], sampler: Sampler, rate: float, text_chars: int) -> Labels:
    """The labels that a judge of the test endpoint must write about these records."""
    turns = OpenTurns(EngineConfig(), sampler, "nobody", Times(0, 0))
    for record in records:
        turns.add(record, rate)
    found: Labels = {}
    for turn in turns.due(1 << 60):
        work = turn.work()
        if work is None or work.problem is not None:
            continue
        for ask in work.asks:
            found[work.conversation_id, work.turn, ask.result_id] = graded(ask.texts, text_chars)
    return found


def graded(texts: Texts, text_chars: int) -> int:
    """The grade that the test endpoint gives."""
    prompt = prompt_of(texts, text_chars)
    return grade_of(document_of({"messages": [{"content": prompt.user}]}))


def written(records: Iterable[Record]) -> Labels:
    """The labels of models that are in force; raises ``AssertionError`` if two events that say the
    same thing have different versions, so that they would not replace one another."""
    found: Labels = {}
    versions = defaultdict[tuple[str, int, str], set[tuple[Any, Any]]](set)
    for record in records:
        event = json.loads(record.value or b"{}")
        if event.get("source") != "model":
            continue
        assert event["labeller"].startswith(LABELLER)
        assert event["sample"] == "random"
        for label in event["labels"]:
            at = (event["conversation_id"], event["turn"], label["result_id"])
            found[at] = label["gain"]
            versions[at].add((event["event_id"], event["occurred_at"]))
    assert all(len(each) == 1 for each in versions.values())
    return found


def drawn(records: Iterable[Record]) -> set[tuple[str, int]]:
    """The conversations and turns that are in the random sample of a model."""
    events = [json.loads(record.value or b"{}") for record in records]
    return {
        (event["conversation_id"], event["turn"])
        for event in events
        if event.get("source") == "model" and event["sample"] == "random"
    }
