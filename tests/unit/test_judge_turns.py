"""The turns of a judge's sample: when they are due, what is asked of them, and what is known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.events.record import Record
from stream_metrics.core.judge.labels import label_events, labeller_of, sample_event
from stream_metrics.core.judge.options import Times
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurn, OpenTurns, Work

NOON_S = 1_781_000_000
SETTLE_MS, KEPT_MS = 60_000, 900_000
JUDGE = {"model": "m", "judge": "0123456789abcdef"}


def opened(settle_ms: int = SETTLE_MS) -> OpenTurns:
    """No turns yet, of a partition whose conversations are all in the sample."""
    labeller = labeller_of(**JUDGE)
    return OpenTurns(EngineConfig(), Sampler(b"key"), labeller, Times(settle_ms, KEPT_MS))


def search(*results: Mapping[str, Any], number: int = 1, **more: Any) -> dict[str, Any]:
    """An iteration with a search that has found these results."""
    event: dict[str, Any] = {
        "type": "search_iteration",
        "event_id": f"s{number}",
        "occurred_at": NOON_S + number,
        "conversation_id": "c",
        "turn": 1,
        "iteration": number,
        "searches": [
            {
                "search_id": f"s{number}",
                "query": "who",
                "results": [
                    {"result_id": f"{number}.{rank}", **one} for rank, one in enumerate(results, 1)
                ],
            }
        ],
    }
    return event | more


def ended(**texts: str) -> dict[str, Any]:
    """The end of the turn."""
    event = {"type": "turn_completed", "event_id": "end", "occurred_at": NOON_S + 9}
    return {**event, "conversation_id": "c", "turn": 1, **texts}


def record(event: Mapping[str, Any] | bytes, offset: int = 0, topic: str = "searches") -> Record:
    """The event as a log has it, written at the second of its offset."""
    value = event if isinstance(event, bytes) else json.dumps(event).encode()
    return Record(value, b"c", (NOON_S + offset) * 1000, topic, 0, offset)


def add(turns: OpenTurns, *events: Mapping[str, Any] | bytes, first: int = 0) -> None:
    """Add events, one a second."""
    for offset, event in enumerate(events, first):
        turns.add(record(event, offset), 1.0)


def due(turns: OpenTurns, after_s: float) -> list[OpenTurn]:
    """The turns that are due so long after noon."""
    return turns.due(int((NOON_S + after_s) * 1000))


def the_work(turns: OpenTurns, after_s: float = 3_600) -> Work:
    """What is to be graded of the only turn that is due."""
    [turn] = due(turns, after_s)
    work = turn.work()
    assert work is not None
    return work


def asked(work: Work) -> list[str]:
    """The results that are to be graded."""
    return [ask.result_id for ask in work.asks]


def test_a_turn_is_due_when_nothing_of_it_has_come_for_the_time_to_settle() -> None:
    """Not earlier, and once."""
    turns = opened()
    add(
        turns,
        search({"doc_id": "a", "title": "A"}),
        search({"doc_id": "b", "title": "B"}, number=2),
    )
    assert due(turns, 60.9) == []
    [turn] = due(turns, 61)
    assert due(turns, 61) == []
    turn.running = True
    add(turns, search({"doc_id": "c", "title": "C"}, number=3), first=100)
    assert due(turns, 999) == [], "somebody asks for its grades"
    turn.running = False
    assert due(turns, 999) == [turn]


def test_a_turn_without_labels_is_undrawn_when_it_has_been_due_for_a_while() -> None:
    """As long as it took to be due, once, and again when something of it has come."""
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}))
    assert undrawn(turns, 119) == []
    [turn] = undrawn(turns, 120)
    assert undrawn(turns, 999) == []
    add(turns, search({"doc_id": "b", "title": "B"}, number=2), first=100)
    assert undrawn(turns, 999) == [turn]


def test_a_turn_is_undrawn_at_the_latest_when_it_is_forgotten() -> None:
    """Where that is soon after it is due."""
    turns = opened(settle_ms=KEPT_MS - 10_000)
    add(turns, search({"doc_id": "a", "title": "A"}))
    assert undrawn(turns, 899) == []
    assert len(undrawn(turns, 900)) == 1


@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_turn_of_which_an_event_says_that_it_is_in_the_sample_is_drawn(
    *, is_labelled: bool
) -> None:
    """Be it one with labels, or one that was written while the turn waited for them."""
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}))
    work = the_work(turns)
    events = label_events(work, {"1.1": 3}, **JUDGE) if is_labelled else [told(work)]
    add(turns, *events, first=1)
    assert undrawn(turns, 999) == []


def test_what_is_told_of_a_turn_that_waits_takes_no_work_away() -> None:
    """Its documents are still to be graded."""
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}))
    work = the_work(turns)
    add(turns, told(work), first=1)
    add(turns, ended(), first=2)
    assert asked(the_work(turns)) == asked(work) == ["1.1"]


def undrawn(turns: OpenTurns, after_s: float) -> list[OpenTurn]:
    """The turns so long after noon of which nothing says that they are in the sample."""
    return turns.undrawn(int((NOON_S + after_s) * 1000), 9)


def told(work: Work) -> bytes:
    """The event that a turn is in the sample."""
    return sample_event(work, **JUDGE)


def test_a_document_is_asked_about_once_a_turn_with_the_query_that_found_it_first() -> None:
    """However often it was returned."""
    turns = opened()
    first = {"doc_id": "a", "title": "A", "content": "long"}
    add(turns, search(first, {"doc_id": "b", "title": "B"}), search(first, number=2))
    work = the_work(turns)
    assert [(ask.result_id, ask.texts) for ask in work.asks] == [
        ("1.1", ("", "who", "A", "long")),
        ("1.2", ("", "who", "B", "")),
    ]
    assert work.problem is None


def test_a_later_iteration_is_asked_about_for_its_new_documents() -> None:
    """Once the first ones have grades."""
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}))
    [turn] = due(turns, 100)
    turn.grade(["1.1"])
    assert turn.work() is None
    again = {"doc_id": "a", "title": "A"}
    add(turns, search(again, {"doc_id": "b", "title": "B"}, number=2), first=200)
    assert asked(the_work(turns)) == ["2.2"]


def test_grades_that_come_back_on_the_topic_tell_what_is_done() -> None:
    """A judge that starts again asks for nothing that has a label of its own."""
    before = opened()
    events = [search({"doc_id": "a", "title": "A"}, {"doc_id": "b", "title": "B"})]
    add(before, *events)
    work = the_work(before)
    written = label_events(work, {"1.1": 3, "1.2": 0}, **JUDGE)
    for labels_first in (True, False):
        turns = opened()
        if labels_first:
            add(turns, *written)
        add(turns, *events)
        if not labels_first:
            add(turns, *written)
        [turn] = due(turns, 3_600)
        assert turn.work() is None


def test_labels_of_others_do_not_count_as_done() -> None:
    """A person's label stands beside the model's."""
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}))
    [label] = label_events(the_work(turns), {"1.1": 3}, **JUDGE)
    other = json.loads(label) | {"labeller": "ada"}
    turns = opened()
    add(turns, search({"doc_id": "a", "title": "A"}), other)
    assert asked(the_work(turns)) == ["1.1"]


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([search({"doc_id": "a"})], "no_text"),
        ([search({"doc_id": "a", "content": " \n"}, {"doc_id": "b", "title": "B"})], "no_text"),
        ([search({"doc_id": "a", "title": "A"}, searches=[
            {"search_id": "s", "results": [{"result_id": "r", "title": "A"}]}])], "no_query"),
        ([search({"doc_id": "a", "title": "A"}, searches=[
            {"search_id": "s", "results": [{"result_id": "r", "title": "A"}]}]),
          ended(question="Who?")], None),
        ([search({"doc_id": "a", "snippet": "words"})], None),
        ([search({"doc_id": "a", "fields": {"file_name": "report.pdf"}})], None),
    ],
)  # fmt: skip
def test_a_turn_says_what_it_lacks(events: list[dict[str, Any]], problem: str | None) -> None:
    """It cannot be graded without texts, and is not graded in part."""
    turns = opened()
    add(turns, *events)
    assert the_work(turns).problem == problem


def test_a_repeated_document_is_graded_by_whichever_of_its_results_has_a_text() -> None:
    """The label goes to the first one."""
    turns = opened()
    full = {"doc_id": "a", "content": "words"}
    add(turns, search({"doc_id": "a"}), search(full, number=2))
    work = the_work(turns)
    assert asked(work) == ["1.1"]
    assert work.asks[0].texts.text == "words"


def test_a_turn_without_results_is_in_the_sample_by_an_event_without_labels() -> None:
    """So that estimates count it."""
    turns = opened()
    add(turns, search() | {"gate": {"decision": "skip"}, "searches": []})
    work = the_work(turns)
    [event] = map(json.loads, label_events(work, {}, **JUDGE))
    assert (event["labels"], event["sample"], event["source"]) == ([], "random", "model")


def test_forgetting_a_conversation_ends_its_turns() -> None:
    """Nothing of it is asked about any more."""
    turns = opened()
    forget = {"type": "forget", "event_id": "f", "occurred_at": NOON_S + 50, "conversation_id": "c"}
    add(turns, search({"doc_id": "a", "title": "A"}), forget)
    assert (len(turns), turns.bytes, due(turns, 3_600)) == (0, 0, [])


def test_the_first_record_of_a_turn_is_held_until_nothing_of_it_is_expected() -> None:
    """In each log that has one, so that whoever reads next finds it."""
    turns = opened()
    turns.add(record(search({"doc_id": "a", "title": "A"}), 3), 1.0)
    turns.add(record(ended(question="Who?"), 8, "labels"), 1.0)
    turns.add(record(search({"doc_id": "b", "title": "B"}, number=2), 5), 1.0)
    assert turns.offsets() == {("searches", 0): 3, ("labels", 0): 8}
    [turn] = due(turns, 100)
    turns.forget_old((NOON_S + 7 + 900) * 1000)
    assert len(turns) == 1
    turn.running = True
    turns.forget_old((NOON_S + 9 + 900) * 1000)
    assert len(turns) == 1, "its grades are being asked for"
    turn.running = False
    turns.forget_old((NOON_S + 9 + 900) * 1000)
    assert (len(turns), turns.bytes, turns.offsets()) == (0, 0, {})


def test_room_is_made_by_what_was_looked_at() -> None:
    """Never by a turn that waits for its grades."""
    turns = opened()
    for number in range(3):
        add(turns, search({"doc_id": "a", "title": "A"}, turn=number + 1))
    first, *_ = due(turns, 3_600)
    first.running = True
    add(turns, search({"doc_id": "b", "title": "B"}, number=2, turn=3), first=5_000)
    turns.make_room(0)
    assert sorted(one.number for one in (first, *due(turns, 9_000))) == [1, 3]


def test_conversations_outside_of_the_sample_are_not_even_decoded() -> None:
    """Nothing of them is kept."""
    turns = opened()
    turns.add(record(search({"doc_id": "a", "title": "A"})), 0.0)
    assert len(turns) == 0


def test_a_record_that_is_no_event_is_passed_over() -> None:
    """A worker tells of it."""
    turns = opened()
    for value in (b"{", b"null", b'{"type": "search_iteration"}', b"\xff"):
        turns.add(record(value), 1.0)
    turns.add(Record(None, b"c", 0, "searches", 0, 9), 1.0)
    turns.add(Record(b"{}", None, 0, "searches", 0, 9), 1.0)
    assert len(turns) == 0


def test_events_of_a_search_have_the_same_id_and_time_whenever_it_is_judged() -> None:
    """So a repeated judgement replaces the one before."""
    turns = opened()
    add(
        turns,
        search({"doc_id": "a", "title": "A"}),
        search({"doc_id": "b", "title": "B"}, number=2),
    )
    work = the_work(turns)
    once = list(map(json.loads, label_events(work, {"1.1": 3, "2.1": 0}, **JUDGE)))
    again = list(map(json.loads, label_events(work, {"1.1": 1, "2.1": 4}, **JUDGE)))
    named = [(one["event_id"], one["occurred_at"]) for one in once]
    assert named == [(one["event_id"], one["occurred_at"]) for one in again]
    assert len(set(named)) == 2
    assert [one["labels"] for one in once] == [
        [{"result_id": "1.1", "gain": 3}],
        [{"result_id": "2.1", "gain": 0}],
    ]


def test_what_was_erased_is_not_asked_about_when_it_comes_later() -> None:
    """Its record is held as long as that of a turn."""
    turns = opened()
    forget = {"type": "forget", "event_id": "f", "occurred_at": NOON_S + 50, "conversation_id": "c"}
    add(turns, forget, first=7)
    add(turns, search({"doc_id": "a", "title": "A"}), first=8)
    [turn] = due(turns, 3_600)
    assert turn.work() is None
    assert turns.offsets() == {("searches", 0): 7}
    turns.forget_old((NOON_S + 8 + 900) * 1000)
    assert turns.offsets() == {}


def test_a_clock_that_is_ahead_holds_up_no_turn() -> None:
    """Neither its own, nor those that came after it, nor what is committed after a ``forget``."""
    turns = opened()
    now_ms = NOON_S * 1000
    ahead = 10 * 365 * 86_400
    turns.add(record(search({"title": "A"}), ahead), 1.0, now_ms)
    other = search({"title": "B"}) | {"turn": 2, "event_id": "other"}
    turns.add(record(other, 1), 1.0, now_ms + 1_000)
    erased = {"type": "forget", "event_id": "f", "occurred_at": NOON_S - 9, "conversation_id": "c"}
    turns.add(record(erased, ahead), 1.0, now_ms + 1_000)
    assert [turn.number for turn in due(turns, 61)] == [1, 2]
    turns.forget_old(now_ms + KEPT_MS + 1_000)
    assert turns.offsets() == {}
