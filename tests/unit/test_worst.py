"""The worst conversations of a window: their figures, order and duplicates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window, parse_window
from stream_metrics.core.engine.window_sums import WindowSums
from stream_metrics.core.events.record import Record
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.readers.worst import Request, WorstReport, latest, whole
from tests.property.test_partition import TOPIC, once, opened
from tests.unit.test_state_partition import NOON_S

HOUR = parse_window("1h")
NOON_US = NOON_S * 1_000_000
TRAFFIC = TrafficProfile(seed=5, conversations=60, duration_seconds=1_800, invalid=0.02)


def searched(
    conversation: str, iteration: int, docs: Sequence[str], at_s: int = NOON_S, **more: Any
) -> dict[str, Any]:
    """A search iteration; ids of results are those of documents prefixed by the iteration."""
    results = [{"result_id": f"{iteration}.{n}.{doc}", "doc_id": doc} for n, doc in enumerate(docs)]
    return {
        "type": "search_iteration",
        "event_id": f"{conversation}-{iteration}",
        "occurred_at": at_s,
        "conversation_id": conversation,
        "turn": 1,
        "iteration": iteration,
        "searches": [{"search_id": f"s-{iteration}", "results": results}],
        **more,
    }


def labelled(conversation: str, gains: dict[str, int]) -> dict[str, Any]:
    """Labels of results."""
    return {
        "type": "relevance_labels",
        "event_id": f"{conversation}-labels",
        "occurred_at": NOON_S,
        "conversation_id": conversation,
        "turn": 1,
        "labels": [{"result_id": name, "gain": gain} for name, gain in gains.items()],
    }


async def store_with(*events: dict[str, Any]) -> MemoryStore:
    """A store that has processed these events."""
    store = MemoryStore()
    partition = await opened(store, MemoryDeadLetters(), cache_results=10_000)
    records = [
        Record(
            json.dumps(event).encode(),
            event["conversation_id"].encode(),
            event["occurred_at"] * 1000,
            TOPIC,
            0,
            offset,
        )
        for offset, event in enumerate(events)
    ]
    await partition.process(records, once)
    return store


async def asked(
    store: MemoryStore, window: Window = HOUR, now_us: int = NOON_US, **more: Any
) -> dict[str, Any]:
    """The answer for the whole store."""
    request = Request(window, now_us, **{"min_results": 2, **more})
    return (await whole(store, EngineConfig(), (), request)).document()


def names(rows: list[dict[str, Any]]) -> list[str]:
    """The conversations of the rows."""
    return [row["conversation_id"] for row in rows]


async def test_the_highest_srr_comes_first() -> None:
    """Conversations are ranked by their share of duplicates; those without any are not listed."""
    store = await store_with(
        searched("none", 1, ["a", "b"]),
        searched("half", 1, ["a", "a"]),
        searched("most", 1, ["a", "a", "a"]),
        searched("also half", 1, ["a", "a", "b", "b"]),
    )

    rows = (await asked(store))["highest_srr"]

    assert names(rows) == ["most", "also half", "half"]
    assert [row["srr"] for row in rows] == [2 / 3, 0.5, 0.5]


async def test_the_lowest_sre_is_of_settled_iterations() -> None:
    """Results without a label yet do not lower SRE."""
    store = await store_with(
        searched("unlabelled", 1, ["a", "b"]),
        searched("good", 1, ["a", "b"]),
        labelled("good", {"1.0.a": 4, "1.1.b": 3}),
        searched("bad", 1, ["a", "b"]),
        labelled("bad", {"1.0.a": 4, "1.1.b": 0}),
    )

    rows = (await asked(store))["lowest_sre"]

    assert [(row["conversation_id"], row["sre"]) for row in rows] == [("bad", 0.5), ("good", 1.0)]


async def test_a_conversation_without_a_label_has_no_sre() -> None:
    """Iterations with only duplicates are settled, but nothing is known of the other results."""
    store = await store_with(*(searched("c", n, ["a", "b"]) for n in (1, 2)))

    found = await asked(store)

    assert found["lowest_sre"] == []
    assert found["judged"]["lowest_sre"] == 0
    assert [row["sre"] for row in found["highest_srr"]] == [None]


async def test_an_iteration_without_good_results_is_wasted() -> None:
    """Iterations with only duplicates, without results, or with bad ones are wasted once judged."""
    store = await store_with(
        searched("c", 1, ["a", "b"]),
        searched("c", 2, ["a", "b"]),
        searched("c", 3, []),
        searched("c", 4, ["d"]),
        searched("c", 5, ["e"]),
        labelled("c", {"1.0.a": 3, "1.1.b": 0, "4.0.d": 1}),
    )

    (row,) = (await asked(store))["most_wasted_iterations"]

    assert (row["iterations"], row["wasted_iterations"]) == (5, 3)


async def test_the_conversation_that_repeats_most_searches_comes_first() -> None:
    """Whatever it found; one without a query is not judged."""

    def asking(conversation: str, *queries: str) -> list[dict[str, Any]]:
        events = [searched(conversation, at, []) for at in range(1, len(queries) + 1)]
        for event, query in zip(events, queries, strict=True):
            event["searches"][0]["query"] = query
        return events

    store = await store_with(
        *asking("once", "a", "A"), *asking("loop", "a", "b", "a", "a"), searched("none", 1, ["a"])
    )
    answer = await asked(store)
    rows = answer["most_repeated_searches"]

    assert [
        (row["conversation_id"], row["repeated_searches"], row["queried_searches"]) for row in rows
    ] == [("loop", 2, 4), ("once", 1, 2)]
    assert answer["judged"]["most_repeated_searches"] == 2


async def test_shares_of_few_results_are_not_ranked() -> None:
    """One duplicate in two results is not listed if ten results are required."""
    store = await store_with(searched("c", 1, ["a", "a"]))

    assert names((await asked(store, min_results=3))["highest_srr"]) == []
    assert names((await asked(store, min_results=2))["highest_srr"]) == ["c"]


async def test_pairs_name_both_results() -> None:
    """A duplicate has its handle and iteration, those of the first occurrence, and the evidence."""
    store = await store_with(searched("c", 2, ["a", "b", "a"]), searched("c", 7, ["b"]))

    (row,) = (await asked(store))["highest_srr"]

    assert row["pairs"] == [
        {
            "turn": 1,
            "iteration": iteration,
            "result_id": result_id,
            "first_iteration": 2,
            "first_result_id": first,
            "evidence": "id",
            "entity_type": "other",
            "turn_text": "1",
        }
        for iteration, result_id, first in ((2, "2.2.a", "2.0.a"), (7, "7.0.b", "2.1.b"))
    ]


async def test_pairs_are_bounded() -> None:
    """Only the first duplicates are shown, while the figures count all."""
    store = await store_with(searched("c", 1, ["a"] * 50))

    (row,) = (await asked(store, max_pairs=3))["highest_srr"]

    assert (len(row["pairs"]), row["duplicates"]) == (3, 49)


async def test_rankings_are_bounded() -> None:
    """The worst of many conversations are kept, whatever the order in which they are read."""
    events = [
        searched(f"c-{n:02}", 1, ["a"] * (1 + n * 7 % 20) + ["b"] * 20, NOON_S) for n in range(20)
    ]
    store = await store_with(*events)

    every = (await asked(store, limit=100))["highest_srr"]
    few = (await asked(store, limit=3))["highest_srr"]

    assert len(every) == 20
    assert few == every[:3]


async def test_only_the_window_counts() -> None:
    """An iteration counts if its bucket is in the window; a pair may refer to an earlier result."""
    store = await store_with(
        searched("c", 1, ["a", "b"], NOON_S - 7_200), searched("c", 2, ["a", "c"], NOON_S)
    )

    (row,) = (await asked(store))["highest_srr"]

    assert (row["iterations"], row["results"], row["duplicates"]) == (1, 2, 1)
    assert [pair["first_iteration"] for pair in row["pairs"]] == [1]
    assert (await asked(store, now_us=NOON_US + HOUR.length_us))["conversations"] == 0


async def test_an_agent_has_its_own_iterations_only() -> None:
    """A conversation of two agents counts for each with that agent's searches."""
    store = await store_with(
        searched("c", 1, ["a", "a"], agent="first"),
        searched("c", 2, ["a", "b", "c"], agent="second"),
    )

    assert (await asked(store))["highest_srr"][0]["agents"] == ["first", "second"]
    assert (await asked(store, agent="first"))["highest_srr"][0]["results"] == 2
    assert (await asked(store, agent="second"))["highest_srr"][0]["srr"] == 1 / 3
    assert (await asked(store, agent="nobody"))["conversations"] == 0


async def test_other_means_agents_without_series() -> None:
    """Agents beyond the limit are found under the label of their series."""
    events = [searched(f"c-{n}", 1, ["a", "a"], agent=f"agent-{n:03}") for n in range(60)]
    store = await store_with(*events)

    rows = (await asked(store, agent="other", limit=100))["highest_srr"]

    assert len(rows) == 10
    assert rows[0]["agents"] == ["agent-050"]


async def traffic() -> MemoryStore:
    """A store that has processed generated traffic."""
    store = MemoryStore()
    partition = await opened(store, MemoryDeadLetters(), cache_results=10_000)
    records = [
        Record(record.value, record.key, record.timestamp_ms, TOPIC, 0, offset)
        for offset, record in enumerate(generate(TRAFFIC))
    ]
    await partition.process(records, once)
    return store


@pytest.mark.parametrize("window", DEFAULT_WINDOWS, ids=lambda window: window.name)
async def test_parts_add_up_to_the_window(window: Window) -> None:
    """The sum of all partitions equals the window at the same time, for each agent and all."""
    store = await traffic()
    exported = await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")
    now_us = exported.default_now_us()
    sums = WindowSums.of_partitions(exported.windows, now_us)
    expected = {agent: sums.of(window.name, agent).get("r", 0) for agent in sums.agents()}

    assert sum(expected.values()) > 0
    assert (await asked(store, window, now_us))["results"] == sum(expected.values())
    for agent, results in expected.items():
        assert (await asked(store, window, now_us, agent=agent))["results"] == results


async def looked_at(store: MemoryStore, request: Request, at_most: int = 1_000) -> WorstReport:
    """The answer of a worker that owns partition 0."""
    with ThreadPoolExecutor(1) as executor:
        return await latest(
            store, EngineConfig(), (), request, [0], max_conversations=at_most, executor=executor
        )


@pytest.mark.parametrize("window", DEFAULT_WINDOWS, ids=lambda window: window.name)
async def test_a_worker_gives_the_answer_of_the_whole_store(window: Window) -> None:
    """It reads only conversations with a record in the window, and misses none."""
    store = await traffic()
    now_us = (await export_state(store, EngineConfig(), DEFAULT_WINDOWS, "last")).default_now_us()
    request = Request(window, now_us)

    found = await looked_at(store, request)

    assert found.complete
    assert found.document() == (await whole(store, EngineConfig(), (), request)).document()


async def test_a_worker_reads_a_limited_number_of_conversations_and_says_so() -> None:
    """Beyond the limit it reads the latest, and marks the answer as incomplete."""
    events = [searched(f"c-{n}", 1, ["a", "a"], NOON_S - n) for n in range(10)]
    store = await store_with(*events)

    found = await looked_at(store, Request(HOUR, NOON_US, min_results=2), at_most=4)

    assert (found.read, found.complete) == (4, False)
    assert set(names(found.document()["highest_srr"])) == {"c-0", "c-1", "c-2", "c-3"}


async def test_a_forgotten_conversation_is_not_listed() -> None:
    """A tombstone adds nothing to the answer."""
    store = await store_with(
        searched("c", 1, ["a", "a"]),
        {
            "type": "forget",
            "event_id": "f",
            "occurred_at": NOON_S + 1,
            "conversation_id": "c",
        },
    )

    assert (await asked(store))["conversations"] == 0


async def test_turns_that_run_away_are_listed_with_their_conversations() -> None:
    """The longest first; of the agent that is asked for, and if they went on in the window."""
    long, longer = ([searched(name, n, ["a"]) for n in range(1, last)] for name, last in
                    (("long", 5), ("longer", 7)))  # fmt: skip
    short = [searched("short", n, ["a"]) for n in range(1, 4)]
    store = await store_with(*long, *longer, *short)

    def request(now_us: int = NOON_US, **more: Any) -> Request:
        return Request(HOUR, now_us, runaway_iterations=4, **more)

    async def found(of: Request) -> list[tuple[str, int]]:
        report = (await whole(store, EngineConfig(), (), of)).document()
        turns = report["runaway_turns"]
        return [(one["conversation_id"], one["iterations"]) for one in turns]

    assert await found(request()) == [("longer", 6), ("long", 4)]
    assert await found(request(limit=1)) == [("longer", 6)]
    assert await found(request(agent="another")) == []
    assert await found(request(now_us=NOON_US + 2 * HOUR.length_us)) == []
