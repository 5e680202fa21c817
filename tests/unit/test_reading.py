"""A conversation, read: its texts beside what the engine has decided, and what does not count."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.reading import LISTED, LeftOut, Reading, ReadResult, ReadTurn
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.core.metrics.labels import Counting
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

LONG = "The very same text of a document that is long enough to be told by it. " * 5
TRAFFIC = TrafficProfile(seed=11, conversations=12, duration_seconds=3_600, invalid=0.05)


def record(event: Mapping[str, Any], offset: int = 0) -> Record:
    """The event as a log has it."""
    value = json.dumps(event).encode()
    return Record(value, event["conversation_id"].encode(), None, "searches", 0, offset)


def read(*events: Mapping[str, Any], config: EngineConfig | None = None, **more: Any) -> Reading:
    """A reading of the conversation ``c``."""
    reading = Reading("c", config or EngineConfig(), **more)
    reading.feed(record(event, offset) for offset, event in enumerate(events))
    return reading


def results(turn: ReadTurn) -> list[ReadResult]:
    """All results of a turn."""
    return [
        one
        for iteration in turn.iterations
        for search in iteration.searches
        for one in search.results
    ]


def found(iteration: int, *sent: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An iteration whose search has found these."""
    event = searched("c", iteration, [], NOON_S + iteration, **more)
    event["searches"][0]["results"] = [
        {"result_id": f"r{iteration}.{rank}", **one} for rank, one in enumerate(sent, 1)
    ]
    return event


@cache
def traffic() -> list[Record]:
    """Generated traffic with late, repeated, changed and bad events."""
    return [Record(one.value, one.key, one.timestamp_ms) for one in generate(TRAFFIC)]


def by_conversation(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by their keys."""
    sorted_out: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        sorted_out[(one.key or b"").decode()].append(one)
    return sorted_out


@pytest.mark.parametrize("piece", [1, 5])
def test_a_turn_has_the_row_that_the_engine_gives(piece: int) -> None:
    """Of every conversation of a recording, in pieces of any size: no figure is computed anew."""
    replay = Replay(turn_scope="all")
    for one in traffic():
        replay.feed(one)
    rows = replay.rows()

    read_rows = []
    for name, own in sorted(by_conversation(traffic()).items()):
        reading = Reading(name, EngineConfig())
        for first in range(0, len(own), piece):
            reading.feed(own[first : first + piece])
        turns = (reading.turn(one.number).row for one in reading.turns())
        read_rows += [row for row in turns if row is not None]

    assert read_rows == rows


def test_as_many_results_repeat_as_the_row_says() -> None:
    """And as many searches; each repeated result stands behind what it repeats."""
    for name, own in by_conversation(traffic()).items():
        reading = Reading(name, EngineConfig())
        reading.feed(own)
        for summary in reading.turns():
            turn = reading.turn(summary.number)
            if turn.row is None:
                continue
            repeats = [(one.place, one.repeats) for one in results(turn) if one.repeats]
            searches = [one for part in turn.iterations for one in part.searches if one.repeats]
            assert (len(repeats), len(searches)) == (
                turn.row["duplicates"],
                turn.row["repeated_searches"],
            )
            for place, repeat in repeats:
                assert repeat.first.position <= repeat.partner.position < place.position


def test_a_repeated_result_says_by_what_it_was_recognised() -> None:
    """By the id, the address or the content, and as which result: not always the first one."""
    turn = read(
        found(1, {"doc_id": "d", "title": "One"}, {"url": "https://a.example/x", "content": LONG}),
        found(2, {"doc_id": "d"}, {"url": "https://a.example/x#top"}),
        found(3, {"content": LONG}, {"doc_id": "other"}),
    ).turn(1)

    told = {
        one.place.result_id: (
            one.repeats.first.result_id,
            one.repeats.partner.result_id,
            one.repeats.evidence,
        )
        for one in results(turn)
        if one.repeats is not None
    }
    assert told == {
        "r2.1": ("r1.1", "r1.1", "id"),
        "r2.2": ("r1.2", "r1.2", "address"),
        "r3.1": ("r1.2", "r1.2", "content"),
    }


def test_a_chain_of_repeats_names_each_link() -> None:
    """The third result has nothing in common with the first, only with the second."""
    turn = read(
        found(1, {"url": "https://a.example/x"}),
        found(2, {"url": "https://a.example/x", "content": LONG}),
        found(3, {"content": LONG}),
    ).turn(1)

    last = results(turn)[-1].repeats
    assert last is not None
    assert (last.first.result_id, last.partner.result_id, last.evidence) == (
        "r1.1",
        "r2.1",
        "content",
    )


def test_a_search_that_comes_late_moves_what_repeats_what() -> None:
    """The first iteration arrives last: what was first until then repeats it."""
    turn = read(found(2, {"doc_id": "d"}), found(1, {"doc_id": "d"})).turn(1)

    assert [one.repeats and one.repeats.first.result_id for one in results(turn)] == [None, "r1.1"]


def test_a_label_says_who_gave_it() -> None:
    """A labeller, an event that names nobody, the search itself; or nobody has labelled."""
    named = {**labelled("c", {"r1.1": 3}), "labeller": "judge-v3"}
    unnamed = {**labelled("c", {"r1.2": 1}), "event_id": "other"}
    sent: list[dict[str, Any]]
    sent = [{"doc_id": "a"}, {"doc_id": "b"}, {"doc_id": "c", "gain": 2}, {"doc_id": "d"}]
    turn = read(found(1, *sent), named, unnamed).turn(1)

    assert [one.label and (*one.label,) for one in results(turn)] == [
        (3, "judge-v3"),
        (1, "a label event that names nobody"),
        (2, "the search itself"),
        None,
    ]


@pytest.mark.parametrize(
    ("counting", "expected"),
    [
        ("human_first", [(3, "me"), (2, "judge, a model"), (1, "the search itself"), (None, "me")]),
        ("human", [(3, "me"), None, (1, "the search itself"), (None, "me")]),
        ("model", [(0, "judge, a model"), (2, "judge, a model"), None, None]),
    ],
)
def test_the_label_that_counts_is_shown_with_its_source(
    counting: Counting, expected: list[Any]
) -> None:
    """A person's, else the model's, or those of one source, as the setting has it."""
    person = {**labelled("c", {"r1.1": 3, "r1.4": None}), "labeller": "me"}  # type: ignore[dict-item]
    model = labelled("c", {"r1.1": 0, "r1.2": 2}) | {
        "event_id": "other", "labeller": "judge", "source": "model",
    }  # fmt: skip
    sent: list[dict[str, Any]]
    sent = [{"doc_id": "a"}, {"doc_id": "b"}, {"doc_id": "c", "gain": 1}, {"doc_id": "d"}]

    turn = read(found(1, *sent), person, model, config=EngineConfig(labels=counting)).turn(1)

    assert [one.label and (*one.label,) for one in results(turn)] == expected


def test_a_withdrawn_label_is_said_to_be_withdrawn() -> None:
    """It has no gain, and the inline one does not come back."""
    gone = {**labelled("c", {"r1.1": None}), "labeller": "me"}  # type: ignore[dict-item]
    [only] = results(read(found(1, {"doc_id": "a", "gain": 4}), gone).turn(1))

    assert (only.label, only.counted) == ((None, "me"), None)


def test_the_label_of_a_repeated_result_counts_where_the_document_is_first() -> None:
    """The first result has no label of its own, and yet a gain that counts."""
    turn = read(
        found(1, {"doc_id": "d"}), found(2, {"doc_id": "d"}), labelled("c", {"r2.1": 4})
    ).turn(1)

    assert [(one.label and one.label.value, one.counted) for one in results(turn)] == [
        (None, 4),
        (4, None),
    ]


def test_gate_routes_and_reranking_are_beside_the_results() -> None:
    """Decisions with their scores, and the labels that judge them."""
    event = found(1, {"doc_id": "a", "baseline_rank": 2}, {"doc_id": "b", "baseline_rank": 1})
    event["gate"] = {"decision": "search", "score": 0.25}
    event["searches"][0] |= {"query": " Why? ", "routing": {"selected": "w", "scores": {"w": 0.5}}}
    judged = labelled("c", {"r1.1": 4, "r1.2": 0}) | {
        "labeller": "me",
        "gate": [{"iteration": 1, "search_needed": False}],
        "routing": [{"search_id": "s-1", "optimal": "mail"}],
    }
    skip = searched("c", 2, [], NOON_S + 2, gate={"decision": "skip"})
    del skip["searches"]
    turn = read(event, judged, skip).turn(1)

    first, second = turn.iterations
    gate = first.gate
    assert (gate.decision, gate.explicit, gate.score, gate.needed) == (
        "search",
        True,
        0.25,
        (False, "me"),
    )
    [search] = first.searches
    assert (search.query, search.route, search.route_scores) == ("Why?", "w", {"w": 0.5})
    assert search.best_route == ("mail", "me")
    assert search.reranked is not None
    assert [*search.reranked] == pytest.approx([1.0, 0.63], abs=0.01)
    assert (second.gate.decision, second.searches, second.row) == ("skip", [], None)


@pytest.mark.parametrize(
    ("sent", "title"),
    [
        ({"title": "A title", "content": "A text"}, "A title"),
        ({"title": " \u200b", "snippet": "\n First line\nSecond"}, "First line"),
        ({"fields": {"file_name": "a.pdf"}, "url": "https://a.example"}, "a.pdf"),
        ({"url": "https://a.example"}, "https://a.example"),
        ({"doc_id": "a"}, None),
        ({"title": "x" * 300}, "x" * 200 + "…"),
    ],
)
def test_a_result_has_a_title_or_the_first_line_of_its_text(
    sent: dict[str, Any], title: str | None
) -> None:
    """Else a name or the address, and a long one is cut."""
    [only] = results(read(found(1, sent)).turn(1))

    assert only.title == title


def test_a_result_shows_its_ids() -> None:
    """The first ones, of a list the first value, each cut."""
    sent = {"a": [None, "x" * 200, "y"], "b": None, "c": "1", "d": "2"}
    [only] = results(read(found(1, {"doc_id": "doc", "ids": sent})).turn(1))

    assert (only.doc_id, only.ids) == ("doc", {"a": "x" * 100, "c": "1"})


def test_without_texts_nothing_that_was_written_is_kept() -> None:
    """Neither in the turn nor anywhere else in the reading."""
    secret = "canary"
    event = found(1, dict.fromkeys(("title", "snippet", "content", "url"), secret))
    event["searches"][0]["query"] = secret
    event["searches"][0]["results"][0]["fields"] = {"file_name": secret, "subject": secret}
    end = {
        **labelled("c", {}),
        "type": "turn_completed",
        "question": secret,
        "answer": secret,
        "reference_answers": [secret],
    }
    del end["labels"]
    reading = read(event, end, texts=False)

    turn = reading.turn(1)
    assert secret not in repr(turn)
    assert secret not in repr(reading._sent)  # noqa: SLF001 - what the process keeps in memory
    assert turn.iterations[0].searches[0].has_query
    assert secret in repr(read(event, end).turn(1))


def test_what_was_forgotten_is_not_shown() -> None:
    """The log may still have the events; of a turn after that, only what came then is there."""
    forget = {
        "type": "forget",
        "event_id": "f",
        "occurred_at": NOON_S + 5,
        "conversation_id": "c",
    }
    later = {**found(1, {"doc_id": "b", "title": "New"}), "turn": 2, "occurred_at": NOON_S + 9}
    reading = read(found(1, {"doc_id": "a", "title": "Old"}), forget, {**later, "event_id": "n"})

    assert [one.number for one in reading.turns()] == [2]
    assert reading.forgotten_us == (NOON_S + 5) * 1_000_000
    assert [one.title for one in results(reading.turn(2))] == ["New"]


@pytest.mark.parametrize(
    ("limit", "most", "left_out"),
    [
        ("results_per_turn", 1, LeftOut("search", "s-2", "results_per_turn", 1)),
        ("searches_per_turn", 1, LeftOut("search", "s-2", "searches_per_turn", 1)),
        ("iterations_per_turn", 1, LeftOut("search", "s-2", "iterations_per_turn", 1)),
        ("waiting_labels", 0, LeftOut("label of a result", "x", "waiting_labels", 0)),
    ],
)
def test_what_a_limit_refuses_is_named_with_the_limit(
    limit: str, most: int, left_out: LeftOut
) -> None:
    """The turn lists it, and the row says that it is over a limit."""
    config = EngineConfig(limits=Limits(**{limit: most}))
    turn = read(
        found(1, {"doc_id": "a"}), found(2, {"doc_id": "b"}), labelled("c", {"x": 1}), config=config
    ).turn(1)

    assert left_out in turn.left_out
    assert turn.row is not None
    assert turn.row["over_limit"]


def test_a_refused_turn_is_listed_with_its_limit() -> None:
    """It has no row, because the engine has none."""
    config = EngineConfig(limits=Limits(turns_per_conversation=1))
    reading = read(
        found(1, {"doc_id": "a"}),
        {**found(1, {"doc_id": "b"}), "turn": 2, "event_id": "second"},
        config=config,
    )

    turn = reading.turn(2)
    assert [one.number for one in reading.turns()] == [1, 2]
    assert turn.row is None
    assert turn.left_out == [LeftOut("search", "s-1", "turns_per_conversation", 1)]


def test_a_label_without_its_result_is_listed() -> None:
    """And no more once the result has come; of very many the first ones are listed."""
    labels = labelled("c", {f"r1.{n}": 1 for n in range(1, LISTED + 3)})
    before = read(labels).turn(1)
    after = read(labels, found(1, {"doc_id": "a"})).turn(1)

    assert before.left_out[0] == LeftOut("label of a result", "r1.1")
    assert (len(before.left_out), before.left_out_number) == (LISTED, LISTED + 2)
    assert LeftOut("label of a result", "r1.1") not in after.left_out


def test_a_bad_record_is_listed_with_its_reason() -> None:
    """With the message of a dead letter, which quotes nothing of it."""
    reading = read({**found(1), "iteration": "secret"}, found(2, {"doc_id": "a"}))

    [bad] = reading.refused
    assert bad.reason == "invalid"
    assert "secret" not in bad.message
    assert len(reading.turns()) == 1


def test_a_record_with_a_dead_letter_does_not_count() -> None:
    """It was refused when it came, whatever would become of it today."""
    events: Sequence[dict[str, Any]] = [found(1, {"doc_id": "a"}), found(2, {"doc_id": "a"})]
    letter = DeadLetter(record(events[1], 1), "internal_error", "a bug: KeyError")
    reading = read(*events, letters=[letter])

    assert reading.turn(1).row is not None
    assert (reading.turn(1).row or {})["results"] == 1
    assert [one.reason for one in reading.refused] == ["internal_error"]


def test_events_that_changed_nothing_are_counted() -> None:
    """Those that came again, and those of which later ones have taken everything."""
    old = found(1, {"doc_id": "a"})
    new = {**found(1, {"doc_id": "b"}), "event_id": "later", "occurred_at": NOON_S + 7}
    reading = read(new, old, new)

    assert reading.outcomes == {"applied": 1, "superseded": 1, "redelivered": 1}
    assert [one.doc_id for one in results(reading.turn(1))] == ["b"]


def test_a_field_that_events_do_not_have_is_counted() -> None:
    """By its path, as it was not used."""
    assert read({**found(1, {"doc_id": "a"}), "itration": 2}).unknown_fields == {"itration": 1}
