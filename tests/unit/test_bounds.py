"""Limits on the size of a turn and a conversation, and how the cache treats large ones."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.worker.options import conversation_key
from tests.unit.test_state_partition import NOON_S, Fed

Body = dict[str, Any]


def event(kind: str, number: int, conversation: str = "c", turn: int = 1, **body: Any) -> Body:
    """An event; a higher number means a later one."""
    return {
        "type": kind,
        "event_id": f"{kind[0]}{number}",
        "occurred_at": NOON_S + number,
        "conversation_id": conversation,
        "turn": turn,
        **body,
    }


def searching(number: int, *searches: Body, **more: Any) -> Body:
    """A search iteration of these searches."""
    given = [{"search_id": f"s{number}.{n}", **search} for n, search in enumerate(searches)]
    return event("search_iteration", number, **{"iteration": 1, "searches": given, **more})


def labelling(number: int, *names: str, **more: Any) -> Body:
    """Labels for these results."""
    labels = [{"result_id": name, "gain": 3} for name in names]
    return event("relevance_labels", number, labels=labels, **more)


def batched(*batches: list[Body], **limits: int) -> list[dict[str, Any]]:
    """The rows of all turns, with each batch applied as one."""
    engine = Replay(EngineConfig(limits=replace(Limits(), **limits)), turn_scope="all")
    for batch in batches:
        for body in batch:
            engine.feed(Record(json.dumps(body).encode()))
        engine.flush()
    return engine.rows()


def rows(events: list[Body], **limits: int) -> list[dict[str, Any]]:
    """The rows of all turns, with each event applied by itself."""
    return batched(*([body] for body in events), **limits)


def results(*names: str, **more: Any) -> Body:
    """A search that found these results."""
    return {"results": [{"result_id": name, "doc_id": name, **more} for name in names]}


def test_searches_without_results_are_bounded() -> None:
    """They add no result, so a limit of their own refuses them; the turn is flagged."""
    events = [searching(n, {}, {}) for n in range(3)]

    ((full,), (over,)) = rows(events, searches_per_turn=6), rows(events, searches_per_turn=5)

    assert (full["over_limit"], over["over_limit"]) == (False, True)


def test_values_are_bounded() -> None:
    """Values of ids and fields beyond eight per result count towards the turn's limit."""
    ids = {"version_id": [str(n) for n in range(20)]}
    events = [searching(n, results(f"r{n}", ids=ids)) for n in range(3)]
    for body in events:
        del body["searches"][0]["results"][0]["doc_id"]

    ((full,), (over,)) = rows(events, values_per_turn=36), rows(events, values_per_turn=35)

    assert (full["results"], full["over_limit"]) == (3, False)
    assert (over["results"], over["over_limit"]) == (2, True)


def test_a_replaced_search_frees_its_room() -> None:
    """Every limit counts the newer version of a search instead of the old one."""
    ids = {"version_id": [str(n) for n in range(20)]}
    found: Body = {"search_id": "s", "results": [{"result_id": "r", "ids": ids}]}
    events = [searching(n, found) for n in range(10)]

    (row,) = rows(events, results_per_turn=1, searches_per_turn=1, values_per_turn=12)

    assert (row["results"], row["over_limit"]) == (1, False)


def test_labels_refused_before_any_turn_flag_a_later_turn() -> None:
    """If labels for too many turns are refused, a turn created afterwards is flagged."""
    labels = [labelling(turn, "r", turn=turn) for turn in range(1, 5)]
    (row,) = rows([*labels, searching(9, results("r"), turn=4)], turns_per_conversation=3)
    (all_there,) = rows([*labels, searching(9, results("r"), turn=4)], turns_per_conversation=4)

    assert (row["labelled"], row["over_limit"]) == (0, True)
    assert (all_there["labelled"], all_there["over_limit"]) == (1, False)


def test_empty_label_events_keep_the_flag_of_a_limit() -> None:
    """A turn that was refused something before it exists is flagged, even after an empty event."""
    waiting = labelling(1, "x", turn=2)
    events = [waiting, labelling(2, "a"), labelling(3), searching(4, results("a"))]

    (row,) = rows(events, waiting_labels=1)

    assert row["over_limit"]


def test_labels_of_results_that_are_replaced_count_as_waiting() -> None:
    """Replacing a search again and again leaves no more labels than may wait."""
    events = []
    for number in range(0, 6, 2):
        found = {"search_id": "s", **results(f"a{number}", f"b{number}")}
        events += [searching(number, found), labelling(number + 1, f"a{number}", f"b{number}")]

    ((full,), (over,)) = rows(events, waiting_labels=4), rows(events, waiting_labels=3)

    assert (full["labelled"], full["over_limit"]) == (2, False)
    assert (over["labelled"], over["over_limit"]) == (2, True)


def test_of_labels_of_replaced_results_the_latest_is_refused() -> None:
    """Labels that came first stay, and count when their result returns."""
    events = [
        searching(1, {"search_id": "s", **results("a", "b")}),
        labelling(2, "a"),
        labelling(3, "b"),
        searching(4, {"search_id": "s", **results("c")}),
        searching(5, {"search_id": "s", **results("a")}),
    ]
    (first,) = rows(events, waiting_labels=1)
    (last,) = rows([*events, searching(6, {"search_id": "s", **results("b")})], waiting_labels=1)

    assert (first["labelled"], last["labelled"]) == (1, 0)


def test_an_iteration_without_searches_frees_its_room() -> None:
    """This holds within the batch that moves the search away; a later search there needs room
    again."""
    found = {"search_id": "s", **results("a")}
    first = [searching(1, found), searching(2, results("b"), iteration=2)]
    moved = searching(3, found, iteration=2)
    then = [searching(4, results("c"), iteration=3), searching(5, results("d"), iteration=1)]

    (row,) = batched(first, [moved, *then], iterations_per_turn=2)

    assert ([its["iteration"] for its in row["iterations"]], row["over_limit"]) == ([2, 3], True)


def test_a_forget_clears_the_flags_of_limits() -> None:
    """A turn of newer events is not flagged for earlier refusals, however batches are cut."""
    forget = event("forget", 5)
    newer = searching(9, results("r"))
    refused = [searching(1, results("a", "b"))]

    (row,) = batched(refused, [forget, newer], results_per_turn=1)

    assert (row["results"], row["over_limit"]) == (1, False)
    assert [row] == batched(refused, [forget], [newer], results_per_turn=1)


MANY = 1_000
KINDS: dict[str, Body] = {
    "labels": labelling(1, *(f"r{n}" for n in range(MANY))),
    "routing labels": event(
        "relevance_labels",
        1,
        routing=[{"search_id": f"s{n}", "optimal": "files"} for n in range(MANY)],
    ),
    "gate labels": event(
        "relevance_labels",
        1,
        gate=[{"iteration": n + 1, "search_needed": True} for n in range(MANY)],
    ),
    "relevant": event("turn_completed", 1, relevant={f"d{n}": 2 for n in range(MANY)}),
    "searches": searching(1, *[{}] * 200),
    "values": searching(
        1,
        *[{"results": [{"result_id": "r", "fields": {f"f{n}": n for n in range(60)}}]}] * 20,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_everything_in_a_conversation_counts_towards_the_cache(kind: str) -> None:
    """A cache for a thousand results keeps few conversations that hold a thousand other items."""
    fed = await Fed.new(cache_results=1_000)
    for number in range(20):
        name = f"c{number}"
        body = json.dumps({**KINDS[kind], "conversation_id": name}).encode()
        await fed.take((name.encode(), body, NOON_S * 1000))

    cache = fed.state.cache
    assert 0 < len(cache) <= 10
    assert cache.results <= 1_000


async def test_a_conversation_larger_than_the_cache_evicts_no_other() -> None:
    """It is read from the store each time."""
    fed = await Fed.new(cache_results=100)
    small = json.dumps(labelling(1, "r", conversation="small")).encode()
    large = json.dumps({**KINDS["labels"], "conversation_id": "large"}).encode()
    await fed.take((b"small", small, NOON_S * 1000))
    await fed.take((b"large", large, NOON_S * 1000))

    cache = fed.state.cache
    assert len(cache) == 1
    assert cache.get(0, conversation_key("small")) is not None


SEQUENCES: dict[str, list[Body]] = {
    "duplicates": [searching(1, results("r1", "r2", doc_id="d"))],
    "gate": [searching(1, results("r"), gate={"decision": "search"})],
    "late": [searching(2, results("r2")), searching(1, results("r1")), labelling(3, "r1")],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *SEQUENCES])
async def test_evicted_conversations_are_freed_without_garbage_collection(kind: str) -> None:
    """A conversation has no reference cycles, so eviction frees its memory at once."""
    bodies = SEQUENCES.get(kind) or [KINDS[kind]]
    fed = await Fed.new(cache_results=10_000)
    for number in range(3):
        name = f"c{number}"
        for body in bodies:
            value = json.dumps({**body, "conversation_id": name}).encode()
            await fed.take((name.encode(), value, NOON_S * 1000))
    assert len(fed.state.cache) == 3
    gc.collect()
    gc.disable()
    try:
        fed.state.cache.drop_partition(0)
        assert gc.collect() == 0
    finally:
        gc.enable()
