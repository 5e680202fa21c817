"""A log of searches whose results begin to repeat, and the evidence that follows from it alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from stream_metrics.core.alerts.standing import Standing, Told
from tests.drill.gather import IN_USE

AGENTS = ("first", "second")
WORSE = 15  # minutes at the end, in which the first agent repeats itself

Event = Mapping[str, Any]


def searches(first_minute: int, minutes: int) -> Iterator[Event]:
    """A search of each agent in each minute."""
    rng = Random(5)
    for number in range(2 * minutes):
        minute, agent = number // 2, AGENTS[number % 2]
        worse = agent == AGENTS[0] and minute >= minutes - WORSE
        repeats = rng.random() < (0.9 if worse else 0.1)
        docs = ["a", "a" if repeats else "b", "c", "d", "a" if repeats else "e"]
        results = [{"result_id": f"{n}", "doc_id": doc} for n, doc in enumerate(docs)]
        yield {
            "type": "search_iteration",
            "event_id": f"e-{number}",
            "occurred_at": 60 * (first_minute + minute) + 20,
            "conversation_id": f"c-{number}",
            "turn": 1,
            "iteration": 1,
            "agent": agent,
            "searches": [{"search_id": "s", "results": results}],
        }


def of_the_log(events: Iterable[Event], minute: int) -> Told:
    """What there is after a minute, by counts of events: without partitions, state or clocks."""
    counts: dict[str, dict[int, dict[str, int]]] = {}
    for event in events:
        found = counts.setdefault(event["agent"], {}).setdefault(event["occurred_at"] // 60, {})
        documents = [result["doc_id"] for result in event["searches"][0]["results"]]
        for name, value in (
            ("searches", 1),
            ("results", len(documents)),
            ("duplicate_results", len(documents) - len(set(documents))),
            ("empty_searches", 0),
        ):
            found[name] = found.get(name, 0) + value
    return Standing(IN_USE).at(counts, minute)


def values(told: Told) -> dict[tuple[str, str], Any]:
    """Evidence by shift, and the ratio, of what is exported."""
    return {
        (agent, name): (stands.evidence, stands.ratio)
        for agent, figures in told.items()
        for name, stands in figures.items()
        if stands.evidence is not None
    }
