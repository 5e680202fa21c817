"""The metrics of a worker about the events of a state partition."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stream_metrics.core.engine.config import MAX_AGENTS, MAX_ROUTES, EngineConfig
from stream_metrics.core.engine.series import MAX_SERIES, PREFIX
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.record import Record
from stream_metrics.live.layout import Identity
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.ports import Position
from stream_metrics.live.prometheus.operations import Operations
from stream_metrics.live.prometheus.windows import WindowCollector
from stream_metrics.live.worker.cache import ConversationCache
from stream_metrics.live.worker.names import SharedNames
from stream_metrics.live.worker.options import PartitionOptions
from stream_metrics.live.worker.partition import StatePartition

TOPIC = "events"
IDENTITY = Identity("group", 1, "settings", {TOPIC: 1})
START = 1_718_020_800  # 2024-06-10T12:00:00Z
Sample = tuple[str, dict[str, str], float]


async def once(call: Callable[[], Awaitable[Any]]) -> Any:
    """Call once; the memory store needs no retries."""
    return await call()


class Observed:
    """One state partition over a memory store, and its metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.operations = Operations(self.registry, [TOPIC])
        self.now = START
        self._offset = 0
        self._samples: list[Sample] | None = None  # since the last events
        store = MemoryStore()
        options = PartitionOptions(
            IDENTITY, EngineConfig(), "", {"": b""}, DEFAULT_WINDOWS, require_key=False
        )
        self._partition = StatePartition(
            0, options, store, MemoryDeadLetters(), ConversationCache(10_000),
            SharedNames(store, options), self.operations, b"token",
        )  # fmt: skip
        claimed = asyncio.run(store.claim(0, b"token", {TOPIC: Position(0)}))
        self._partition.adopt(claimed)
        self._collector = WindowCollector(
            lambda: [self._partition.windows], lambda: self.now * 1_000_000
        )

    def take(self, *events: dict[str, Any]) -> None:
        """Process the events in one batch, each with its time as the timestamp."""
        records = [
            Record(
                json.dumps(event).encode(), None, event["occurred_at"] * 1000, TOPIC, 0,
                self._offset + at,
            )
            for at, event in enumerate(events)
        ]  # fmt: skip
        self._offset += len(records)
        self._samples = None
        self.now = max([self.now, *(event["occurred_at"] for event in events)])
        asyncio.run(self._partition.process(records, once))

    def page(self) -> str:
        """All metrics."""
        self._collector.prepare()
        return generate_latest(self.registry).decode() + self._collector.render()

    def samples(self) -> list[Sample]:
        """All metrics as samples."""
        if self._samples is None:
            self._samples = [
                (sample.name, sample.labels, sample.value)
                for family in text_string_to_metric_families(self.page())
                for sample in family.samples
            ]
        return self._samples

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric's series with these labels."""
        return sum(
            value
            for found, its, value in self.samples()
            if found == f"streammetrics_{name}" and labels.items() <= its.items()
        )


def search(
    results: Sequence[str], at: int = START, iteration: int = 1, **more: Any
) -> dict[str, Any]:
    """A search of conversation c-1; ``results`` are handles and documents."""
    found = [
        {"result_id": f"r-{name}", "doc_id": name, **more.get("of_each", {})} for name in results
    ]
    searched = {"search_id": f"s-{iteration}", "results": found, **more.get("search", {})}
    return {
        "type": "search_iteration", "event_id": f"e-{iteration}", "occurred_at": at,
        "conversation_id": "c-1", "turn": 1, "iteration": iteration, "searches": [searched],
        **more.get("event", {}),
    }  # fmt: skip


def labels(gains: dict[str, int], at: int = START, event_id: str = "l-1") -> dict[str, Any]:
    """Labels for results of conversation c-1."""
    return {
        "type": "relevance_labels", "event_id": event_id, "occurred_at": at,
        "conversation_id": "c-1", "turn": 1,
        "labels": [{"result_id": f"r-{name}", "gain": gain} for name, gain in gains.items()],
    }  # fmt: skip


def test_waiting_labels_are_counted_until_their_result_comes() -> None:
    """A label before its result waits and is matched later; one without a result keeps waiting."""
    observed = Observed()
    observed.take(labels({"a": 3, "b": 0, "lost": 1}))
    assert observed.total("labels_waiting_total") == 3
    assert observed.total("label_delay_seconds_count") == 0

    observed.take(search(["a", "b"], START + 2))

    assert observed.total("labels_waiting_total") == 3
    assert observed.total("labels_found_total") == 2
    assert observed.total("label_delay_seconds_count") == 2


def test_labels_in_the_batch_of_their_result_do_not_wait() -> None:
    """Producers do not control the order within a batch."""
    observed = Observed()
    observed.take(labels({"a": 3}), search(["a"], START + 2))

    assert observed.total("labels_waiting_total") == 0
    assert observed.total("labels_found_total") == 0
    assert observed.total("label_delay_seconds_count") == 1


def test_replacing_a_search_does_not_match_its_labels_again() -> None:
    """They stay with the new version without having waited."""
    observed = Observed()
    observed.take(search(["a"]))
    observed.take(labels({"a": 3}, START + 1))
    observed.take({**search(["a", "b"], START + 2), "event_id": "e-1b"})

    assert observed.total("window_unique_results", window="5m") == 2
    assert observed.total("labels_found_total") == 0
    assert observed.total("label_delay_seconds_count") == 1


def test_a_late_change_counts_as_late_only_for_short_windows() -> None:
    """A label after ten minutes changes the longer windows."""
    observed = Observed()
    observed.take(search(["a"]))
    observed.take(labels({"a": 3}, START + 600))

    late = {window.name: observed.total("late_changes_total", window=window.name)
            for window in DEFAULT_WINDOWS}  # fmt: skip
    assert late == {"1m": 2, "5m": 2, "30m": 0, "1h": 0, "6h": 0, "24h": 0}  # iteration, turn
    assert observed.total("window_good_results", window="30m") == 1


def test_conversations_are_cache_hits_or_new() -> None:
    """The first event of a conversation creates it, and the next one finds it in memory."""
    observed = Observed()
    observed.take(search(["a"]))
    observed.take(search(["b"], START + 1, 2), search(["c"], START + 2, 3))

    assert observed.total("conversations_opened_total", found="nowhere") == 1
    assert observed.total("conversations_opened_total", found="cache") == 1
    assert observed.total("state_written_bytes_total") > 500


EVENTS = 200  # several times as many agents and routes as have series of their own


def hostile(number: int) -> dict[str, Any]:
    """A search whose every text tries to create series or to break the page."""
    ugly = f'"}} 1\n# {number}\\ 🏴'
    event = {
        "agent": f"agent{ugly}", "release": f"release{ugly}",
        "conversation_id": f"private-{number % 211}", "event_id": f"e-{number}",
        "turn": 1 + number % 3,
        "gate": {"decision": ("search", "skip")[number % 2]},
    }  # fmt: skip
    route = {
        "query": f"private query {number}",
        "routing": {"selected": f"route{number}|{ugly[:20]}", "scores": {}},
    }
    each = {
        "title": "private title", "entity_type": f"type{ugly}", "baseline_rank": 1,
        "url": "https://private.example/page",
    }  # fmt: skip
    made = search(
        [f"{number}-a", "same", "same too"], START + number % 60, 1 + number % 12,
        event=event, search=route, of_each=each,
    )  # fmt: skip
    made["searches"][0]["search_id"] = f"s-{number}"
    for rank, result in enumerate(made["searches"][0]["results"], 1):
        result["result_id"] += f"-{number}"
        result["baseline_rank"] = 4 - rank
    return made


@pytest.mark.slow
def test_hostile_events_make_no_more_series_than_allowed() -> None:
    """Agents and routes beyond the limits count as other, and nothing private is shown."""
    observed = Observed()
    observed.take(*(hostile(number) for number in range(EVENTS)))

    page = observed.page()
    windows = [(labels, value) for name, labels, value in observed.samples()
               if name.startswith(PREFIX)]  # fmt: skip
    assert observed.total("events_total", outcome="applied") == EVENTS
    assert len(windows) <= MAX_SERIES
    assert len({labels["agent"] for labels, _ in windows if "agent" in labels}) == MAX_AGENTS + 1
    assert len({labels["route"] for labels, _ in windows if "route" in labels}) == MAX_ROUTES + 1
    assert observed.total("window_searches", window="24h") == EVENTS
    assert observed.total("agents_beyond_limit_total") >= EVENTS - MAX_AGENTS
    assert observed.total("routes_beyond_limit_total") == EVENTS - MAX_ROUTES
    assert len(observed.samples()) - len(windows) < 500
    assert "private" not in page
