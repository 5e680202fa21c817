"""Loops: the same search again, nothing found, nothing new, and what limits leave out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import msgspec
import pytest

from stream_metrics.cli.options import partition_options
from stream_metrics.cli.settings import Settings
from stream_metrics.core.dedup.deduplicator import PlainDeduplicator
from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.cells import CODES
from stream_metrics.core.engine.codec import decode_conversation
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.state import UNKNOWN_QUERY, DamagedState
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.readers.export import export_state
from stream_metrics.live.worker.options import conversation_key
from tests.unit.test_bounds import Body, event, results, rows, searching
from tests.unit.test_state_partition import NOON_S, Fed

LOOPS = (
    "searches", "queried_searches", "repeated_searches", "empty_searches",
    "iterations_without_new", "trailing_without_new",
)  # fmt: skip
BEFORE = EngineConfig(rules=DedupRules(tables=published()[2]))


def asking(
    number: int, query: str | None, *names: str, route: str | None = None, **more: Any
) -> Body:
    """An iteration with one search that asks for ``query`` and finds these results."""
    search = {**results(*names), "query": query}
    if route is not None:
        search["routing"] = {"selected": route}
    return searching(number, search, **{"iteration": number, **more})


def figures(events: Sequence[Body], *names: str) -> list[Any]:
    """Figures of the only row."""
    (row,) = rows(list(events))
    return [row[name] for name in names or LOOPS]


def replayed(events: Sequence[Body], config: EngineConfig | None = None) -> Replay:
    """The engine after these events, each applied by itself."""
    engine = Replay(config)
    for one in events:
        engine.feed(Record(json.dumps(one).encode()))
        engine.flush()
    return engine


def sums(engine: Replay, window: str = "24h") -> dict[str, int]:
    """The window sums of loops by name, as far as they are not 0."""
    return {
        one["name"]: one["value"]
        for one in engine.windows()["sums"]
        if one["name"] in LOOPS and one["window"] == window
    }


# --- repeated searches ------------------------------------------------------------------------


def test_a_search_with_the_query_of_an_earlier_one_is_repeated() -> None:
    """Each after the first counts."""
    events = [asking(n, query, f"r{n}") for n, query in enumerate("abaca", 1)]

    assert figures(events, "searches", "queried_searches", "repeated_searches") == [5, 5, 2]


@pytest.mark.parametrize(
    "query",
    [
        "opening hours in z\xfcrich",
        " OPENING  hours\tin Z\xfcrich",
        "Opening hours in Zu\u0308rich\n",
    ],
)
def test_queries_are_folded_as_texts_of_results(query: str) -> None:
    """Case, white space and canonically equivalent spellings make no difference."""
    events = [asking(1, "Opening hours in Z\xfcrich"), asking(2, query)]

    assert figures(events, "repeated_searches") == [1]


def test_another_query_is_not_repeated() -> None:
    """Punctuation and order of words count."""
    events = [asking(n, query) for n, query in enumerate(["a b", "b a", "a b?", "ab"], 1)]

    assert figures(events, "repeated_searches") == [0]


@pytest.mark.parametrize(
    ("routes", "repeated"),
    [(("mail", "mail"), 1), (("mail", "files"), 0), ((None, None), 1), (("mail", None), 0)],
)
def test_the_same_query_by_another_route_is_not_repeated(
    routes: tuple[str | None, str | None], repeated: int
) -> None:
    """No route is like a route of its own."""
    events = [asking(n, "a", route=route) for n, route in enumerate(routes, 1)]

    assert figures(events, "repeated_searches") == [repeated]


@pytest.mark.parametrize("query", [None, "", " \t\u3000"])
def test_searches_without_a_query_take_no_part(query: str | None) -> None:
    """Neither as repeated ones nor as those to compare with."""
    events = [asking(1, query), asking(2, query), asking(3, "a")]

    assert figures(events, "searches", "queried_searches", "repeated_searches") == [3, 1, 0]


def test_searches_of_one_iteration_repeat_each_other() -> None:
    """Also those of one event."""
    events = [searching(1, {"query": "a"}, {"query": "A"}, {"query": "b"})]

    assert figures(events, "searches", "repeated_searches") == [3, 1]


def test_turns_do_not_repeat_each_other() -> None:
    """The same question may be asked again in the next turn."""
    found = rows([asking(1, "a"), asking(2, "a", turn=2)])

    assert [row["repeated_searches"] for row in found] == [0, 0]


def test_the_order_of_arrival_has_no_effect() -> None:
    """The repeated search is the later one in canonical order, also in windows."""
    events = [
        asking(1, "a", "x"),
        asking(2, "a", agent="second"),
        asking(3, "b", "x", agent="third"),
        event("forget", 0),
    ]
    found = {
        json.dumps([engine.rows(), engine.windows()])
        for order in permutations(events)
        for engine in [replayed(order)]
    }

    assert len(found) == 1
    by_agent = {
        one["agent"]: one["value"]
        for one in replayed(events).windows()["sums"]
        if one["name"] == "repeated_searches" and one["window"] == "5m"
    }
    assert by_agent == {"second": 1}


def test_a_revised_search_asks_what_its_new_version_asks() -> None:
    """Its former query no longer counts."""
    revised = asking(9, "b", iteration=1)
    revised["searches"][0]["search_id"] = "s1.0"

    assert figures([asking(1, "a"), asking(2, "a")], "repeated_searches") == [1]
    assert figures([asking(1, "a"), asking(2, "a"), revised], "repeated_searches") == [0]


def test_forgotten_searches_are_not_repeated() -> None:
    """What came after the ``forget`` counts by itself."""
    events = [asking(1, "a"), event("forget", 5), asking(6, "a")]

    assert figures(events, "searches", "repeated_searches") == [1, 0]


# --- nothing found, nothing new -----------------------------------------------------------------


def test_searches_without_a_result_are_empty() -> None:
    """Whether they have a query or not."""
    events = [asking(1, "a"), asking(2, None), asking(3, "a", "x")]

    assert figures(events, "empty_searches") == [2]


def test_iterations_that_find_no_new_document_count() -> None:
    """Those at the end, which could have been saved, also by themselves."""
    found = [("x",), (), ("y", "x"), ("x",), (), ("y",)]
    events = [asking(n, str(n), *names) for n, names in enumerate(found, 1)]
    for one in events:
        for result in one["searches"][0]["results"]:
            result["result_id"] += one["event_id"]

    assert figures(events, "iterations_without_new", "trailing_without_new") == [4, 3]


def test_a_turn_that_finds_nothing_is_without_new_from_its_first_iteration() -> None:
    """All of it could have been saved."""
    events = [asking(n, "a") for n in range(1, 4)]

    assert figures(events, "iterations_without_new", "trailing_without_new") == [3, 3]


def test_a_turn_without_a_search_has_zeros() -> None:
    """Nothing was searched, so nothing was searched again."""
    skipped = event("search_iteration", 1, iteration=1, gate={"decision": "skip"})

    assert figures([skipped]) == [0] * len(LOOPS)


def test_windows_have_the_sums_of_rows() -> None:
    """Each iteration at its time, and the end of a turn at its last iteration."""
    events = [
        asking(1, "a", "x"),
        asking(2, "a"),
        asking(3, "a"),
        asking(4, "b", "y"),
        asking(5, "b"),
    ]
    engine = replayed(events)
    (row,) = engine.rows()

    assert sums(engine) == {name: row[name] for name in LOOPS}


# --- state --------------------------------------------------------------------------------------


async def stored(fed: Fed) -> dict[bytes, bytes]:
    """The parts of the conversation."""
    (found,) = await fed.store.load(0, [(conversation_key("c"), True)])
    return dict(found.hot)


def sent(*events: Body) -> list[tuple[bytes, bytes, int]]:
    """Records of a worker."""
    return [(b"c", json.dumps(one).encode(), NOON_S * 1000) for one in events]


async def test_state_has_eight_bytes_of_a_query() -> None:
    """Its keyed digest, the same for equal queries; no text."""
    fed = await Fed.new()
    await fed.take(*sent(asking(1, "Opening hours"), asking(2, "opening HOURS"), asking(3, None)))

    conversation = decode_conversation("c", await stored(fed), "k")
    queries = [search.query for search in conversation.turns[1].searches()]
    expected = PlainDeduplicator(DedupRules(), b"secret").query("opening hours")
    assert expected is not None
    assert len(expected) == 8
    assert sorted(queries, key=str) == sorted([expected, expected, None], key=str)
    assert PlainDeduplicator(DedupRules(), b"another").query("opening hours") != expected
    assert b"opening" not in b"".join((await stored(fed)).values()).lower()


async def test_a_conversation_that_is_read_again_continues() -> None:
    """Its stored digests are compared with those of new searches."""
    fed = await Fed.new(cache_results=0)
    for one in (asking(1, "a"), asking(3, "a"), asking(2, "a")):
        await fed.take(*sent(one))

    (row,) = (await fed.export()).rows
    assert row["repeated_searches"] == 2


async def test_state_of_earlier_tables_knows_no_queries() -> None:
    """Its bytes do not change, rows say that repeated searches are unknown, and windows of loops
    have nothing."""
    fed = await Fed.new(engine=BEFORE)
    await fed.take(*sent(asking(1, "a"), asking(2, "a")))

    found = await export_state(fed.store, BEFORE, DEFAULT_WINDOWS, "last")
    (row,) = found.rows
    assert [row[name] for name in LOOPS] == [2, None, None, 2, 2, 2]
    assert not {one["name"] for one in found.windows_document(None)["sums"]} & {*LOOPS[1:]}
    for name, part in (await stored(fed)).items():
        assert name[:1] != b"e" or len(msgspec.msgpack.decode(part)) == 9


def test_digests_are_part_of_the_state_from_tables_3_on() -> None:
    """State that lacks them says so, whatever tables a release reads it with."""
    conversation = replayed([asking(1, "a")], BEFORE).conversations()

    assert [s.query for c in conversation for s in c.turns[1].order] == [UNKNOWN_QUERY]


async def test_queries_that_are_not_those_of_the_searches_are_damage() -> None:
    """There is one for each search."""
    fed = await Fed.new()
    await fed.take(*sent(asking(1, "a")))
    parts = await stored(fed)
    (name,) = [name for name in parts if name[:1] == b"e"]
    event_part = msgspec.msgpack.decode(parts[name])
    parts[name] = msgspec.msgpack.encode([*event_part[:-1], bytes(16)])

    with pytest.raises(DamagedState, match="queries"):
        decode_conversation("c", parts, "k")


def test_windows_of_state_that_counts_no_loops_have_no_series_of_them() -> None:
    """They are absent, and not 0."""
    tables = {"dedup": {"tables": 2}, "state": {"allow_empty_key": True}}
    before, now = (
        {
            head
            for window in partition_options(Settings.model_validate(set_)).windows
            for head in window.heads
        }
        for set_ in (tables, {"state": {"allow_empty_key": True}})
    )

    assert {CODES[head].name for head in now - before} == {*LOOPS[1:]}


# --- beyond limits ------------------------------------------------------------------------------

TIGHT = EngineConfig(limits=replace(Limits(), results_per_turn=3))
RUNAWAY = [asking(n, "a", f"a{n}", f"b{n}") for n in range(1, 6)]


def test_a_row_says_what_limits_left_out() -> None:
    """Searches and their results, which are part of no other figure."""
    (row,) = replayed(RUNAWAY, TIGHT).rows()

    assert (row["over_limit"], row["beyond_limit"]) == (True, {"searches": 4, "results": 8})
    assert (row["searches"], row["results"], row["repeated_searches"]) == (1, 2, 0)


def test_a_turn_within_limits_leaves_nothing_out() -> None:
    """Zeros."""
    (row,) = replayed(RUNAWAY).rows()

    assert row["beyond_limit"] == {"searches": 0, "results": 0}


def test_labels_beyond_a_limit_are_no_searches() -> None:
    """The turn is beyond a limit, and no search is left out."""
    labels = [event("relevance_labels", 9, labels=[{"result_id": n, "gain": 1} for n in "xyz"])]

    (row,) = rows([asking(1, "a"), *labels], waiting_labels=1)
    assert (row["over_limit"], row["beyond_limit"]) == (True, {"searches": 0, "results": 0})


def test_searches_of_turns_beyond_the_limit_count_for_the_last_turn() -> None:
    """They have no turn of their own."""
    events = [asking(1, "a"), asking(2, "a", "x", "y", turn=2), asking(3, "a", "x", turn=3)]

    (row,) = rows(events, turns_per_conversation=1)
    assert row["beyond_limit"] == {"searches": 2, "results": 3}


async def test_what_limits_left_out_is_stored() -> None:
    """A worker that reads the conversation again goes on counting."""
    fed = await Fed.new(cache_results=0, engine=TIGHT)
    for one in RUNAWAY:
        await fed.take(*sent(one))

    (row,) = (await export_state(fed.store, TIGHT, DEFAULT_WINDOWS, "last")).rows
    assert row["beyond_limit"] == {"searches": 4, "results": 8}


async def test_state_of_earlier_tables_does_not_count_what_limits_left_out() -> None:
    """The row says that it is unknown."""
    tight = replace(BEFORE, limits=TIGHT.limits)
    fed = await Fed.new(engine=tight)
    await fed.take(*sent(*RUNAWAY))

    (row,) = (await export_state(fed.store, tight, DEFAULT_WINDOWS, "last")).rows
    assert (row["over_limit"], row["beyond_limit"]) == (True, None)
    assert len(msgspec.msgpack.decode((await stored(fed))[b"t1"])) == 4
