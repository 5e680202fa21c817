"""Fields that the contract does not name have no effect, and are counted at every depth."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.dedup.deduplicator import deduplicator
from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.events import Event, Limits, decode
from stream_metrics.core.events.fields import FIELDS, MOST_NAMED, KnownFields
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.sources.problems import find_problems
from tests.corpus import FULL
from tests.strategies import KeyedRecord, streams

RULES = DedupRules()
DECODER = RecordDecoder(deduplicator(RULES, b"key"), "k", RULES.tables, Limits())


def encoded(event: dict[str, Any]) -> bytes:
    """The event as a record's value."""
    return json.dumps(event).encode()


def planted(value: Any, fields: KnownFields, extra: dict[str, Any]) -> Any:
    """A copy of the event with ``extra`` first in each object, except maps with free names."""
    if isinstance(value, list):
        return [planted(one, fields, extra) for one in value]
    if not isinstance(value, dict):
        return value
    inside = {
        name: planted(inner, fields.inside[name], extra) if name in fields.inside else inner
        for name, inner in value.items()
    }
    return {**extra, **inside}


def counted(value: bytes) -> tuple[str, ...]:
    """The unknown fields of a valid event, for which both decoders agree."""
    event = decode(value, limits=Limits())
    taken = DECODER.decode(value)
    assert isinstance(event, Event)
    assert isinstance(taken, DigestedEvent)
    assert taken.unknown == event.unknown
    return event.unknown


PLACES = {
    "search_iteration": ["", "gate.", "searches.", "searches.routing.", "searches.results."],
    "relevance_labels": ["", "labels.", "routing.", "gate."],
    "turn_completed": [""],
    "forget": [""],
}


@pytest.mark.parametrize("kind", FULL)
def test_an_unknown_field_is_counted_at_every_depth(kind: str) -> None:
    """It counts once for each place in an event; maps such as `ids` may have any names."""
    assert counted(encoded(FULL[kind])) == ()

    found = counted(encoded(planted(FULL[kind], FIELDS[kind], {"x-1": {"searches": [{}]}})))

    assert sorted(found) == sorted(f"{place}x-1" for place in PLACES[kind])


@pytest.mark.kernel
@pytest.mark.parametrize("kind", ["search_iteration", "relevance_labels"])
def test_events_with_unknown_fields_stay_on_the_fast_path(kind: str) -> None:
    """A field of a newer producer does not make decoding slower."""
    value = encoded(planted(FULL[kind], FIELDS[kind], {"tenant": 1, "label": None}))

    taken = DECODER.decode_fast(value, None, None)

    assert taken is not None
    assert len(taken.unknown) == 2 * len(PLACES[kind])


@pytest.mark.kernel
@pytest.mark.parametrize("kind", ["search_iteration", "relevance_labels"])
@pytest.mark.parametrize(
    "names", [[f"x{n}" for n in range(3 * MOST_NAMED)], ["x.y"], ["\u00e4", "x" * 65, ""]]
)
def test_events_with_many_or_unusual_fields_stay_on_the_fast_path(
    kind: str, names: list[str]
) -> None:
    """They are counted as on the slow path."""
    extra = dict.fromkeys(names, 1)
    value = json.dumps(planted(FULL[kind], FIELDS[kind], extra), ensure_ascii=False).encode()

    taken = DECODER.decode_fast(value, None, None)

    assert taken is not None
    assert taken.unknown == counted(value)


@pytest.mark.parametrize("kind", ["relevance_labels", "turn_completed"])
def test_agent_and_release_are_known_everywhere(kind: str) -> None:
    """They are fields of the envelope; types that do not use them accept any value."""
    assert counted(encoded({**FULL[kind], "agent": [1], "release": {"x": 1}})) == ()


NAMES = st.one_of(
    st.sampled_from(["search", "label", "titel", "trace_id", "other", "a" * 64, "a" * 65, "1", ""]),
    st.sampled_from(["a b", "a.b", "\u00e4", "x\n", "<b>", "someone@example.org", "-a", "_"]),
    st.text(max_size=3),
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(FULL)),
    st.lists(NAMES, unique=True, max_size=2 * MOST_NAMED),
    st.booleans(),
)
def test_names_of_unknown_fields_are_bounded(kind: str, names: list[str], everywhere: bool) -> None:
    """Kernel and Python count the same names: short, plain, and a limited number per event."""
    extra = {name: 1 for name in names if name not in FIELDS[kind].names}
    plain = FULL[kind]
    event = planted(plain, FIELDS[kind], extra) if everywhere else {**plain, **extra}

    found = counted(encoded(event))

    assert len(found) == len(set(found)) <= MOST_NAMED + 1
    assert bool(found) == bool(extra)
    for path in found:
        name = path.rpartition(".")[2]
        assert name.isascii()
        assert 1 <= len(name) <= 64
        assert name.replace("_", "a").replace("-", "a").isalnum()


def once(stream: list[KeyedRecord]) -> list[KeyedRecord]:
    """The stream without events that share a version with an event of other content.

    Which of these counts is decided by their digests, and so by unknown fields, too.
    """
    first: dict[tuple[str, int, str], bytes] = {}
    kept = []
    for key, value, timestamp_ms in stream:
        event = decode(value, key=key, timestamp_ms=timestamp_ms, limits=Limits())
        if isinstance(event, Event):
            version = (event.conversation_id, *event.version[:2])
            if first.setdefault(version, event.digest) != event.digest:
                continue
        kept.append((key, value, timestamp_ms))
    return kept


def figures(stream: list[KeyedRecord]) -> tuple[list[str], str, Replay]:
    """Rows and windows of a stream, and the replay that made them."""
    engine = Replay(turn_scope="all")
    for key, value, timestamp_ms in stream:
        engine.feed(Record(value, key, timestamp_ms))
    return [canonical(row) for row in engine.rows()], canonical(engine.windows()), engine


@pytest.mark.slow
@settings(deadline=None)
@given(
    streams().map(once),
    st.dictionaries(
        st.sampled_from(["label", "search", "titel", "x", "results_", "tenant"]),
        st.sampled_from([None, 1, "x", [{"gain": 4}], {"doc_id": "D-1", "searches": []}]),
        min_size=1,
        max_size=3,
    ),
)
def test_unknown_fields_change_no_figure(stream: list[KeyedRecord], extra: dict[str, Any]) -> None:
    """Rows and windows are the same with and without them, in every object of every event."""
    with_extra = []
    valid = 0
    for key, value, timestamp_ms in stream:
        if isinstance(decode(value, key=key, timestamp_ms=timestamp_ms, limits=Limits()), Event):
            event = json.loads(value)
            value = encoded(planted(event, FIELDS[event["type"]], extra))
            valid += 1
        with_extra.append((key, value, timestamp_ms))

    rows, windows, _ = figures(stream)
    other_rows, other_windows, engine = figures(with_extra)

    assert other_rows == rows
    assert other_windows == windows
    assert {engine.observations.unknown_fields[name] for name in extra} == {valid}


EMPTY = [
    ("search_iteration", {"searches": None, "gate": None}, 1),
    ("search_iteration", {"searches": [], "gate": None}, 1),
    ("search_iteration", {"searches": [], "gate": {"decision": "skip"}}, 0),
    ("search_iteration", {"searches": [{"search_id": "s"}], "gate": None}, 0),
    ("relevance_labels", {"labels": None, "routing": [], "gate": None}, 1),
    ("relevance_labels", {"labels": [{"result_id": "r", "gain": None}], "gate": None}, 0),
    ("relevance_labels", {"labels": [], "routing": [], "gate": None}, 1),
    ("turn_completed", {}, 0),
    ("forget", {}, 0),
]


@pytest.mark.parametrize(("kind", "changes", "count"), EMPTY)
def test_an_empty_event_is_counted(kind: str, changes: dict[str, Any], count: int) -> None:
    """These are search iterations without searches and gate, and labels without any label."""
    names = ("event_id", "occurred_at", "conversation_id", "turn", "iteration", "type")
    event = {name: value for name, value in FULL[kind].items() if name in names} | changes
    engine = Replay()
    engine.feed(Record(encoded(event)))
    engine.flush()

    found = [one.kind for one in find_problems(encoded(event), limits=Limits())]

    assert engine.observations.counts["empty"] == count
    assert engine.invalid == 0
    assert found == ["empty_event"] * count


ITERATION: dict[str, Any] = {
    "type": "search_iteration",
    "event_id": "e",
    "occurred_at": 1_742_288_400,
    "conversation_id": "c",
    "turn": 1,
    "iteration": 1,
}


def result(**members: Any) -> dict[str, Any]:
    """An event with one result."""
    results = [{"result_id": "r", **members}]
    return {**ITERATION, "searches": [{"search_id": "s", "results": results}]}


LABELS: dict[str, Any] = {**FULL["relevance_labels"], "labels": None}


@pytest.mark.parametrize(
    ("event", "path", "known"),
    [
        ({**ITERATION, "search": []}, "search", "searches"),
        ({**ITERATION, "Searches": []}, "Searches", "searches"),
        ({**LABELS, "label": []}, "label", "labels"),
        ({**LABELS, "label": {"result_id": "r", "gain": 1}}, "label", "labels"),
        ({**LABELS, "label": "good"}, "label", "labels"),
        (result(relevance=3), "searches.results.relevance", "gain"),
        ({**FULL["turn_completed"], "relevant": None, "relevent": ["d"]}, "relevent", "relevant"),
        ({**LABELS, "lables": []}, "lables", "labels"),
        (result(titel="x"), "searches.results.titel", "title"),
        (result(docId="x"), "searches.results.docId", "doc_id"),
        (result(text="x"), "searches.results.text", "content"),
        (result(content=None, text="x"), "searches.results.text", "content"),
        ({**ITERATION, "searches": [{"search_id": "s", "hits": []}]}, "searches.hits", "results"),
        ({**FULL["turn_completed"], "answer": None, "anwser": "x"}, "anwser", "answer"),
        (result(**{"doc id": "x"}), "other", "doc_id"),
        ({**ITERATION, **{f"x{n}": n for n in range(99)}, "search": []}, "search", "searches"),
    ],
)
def test_a_field_near_a_known_one_is_an_error(event: dict[str, Any], path: str, known: str) -> None:
    """The error names both fields."""
    found = [one for one in find_problems(encoded(event), limits=Limits()) if one.level == "error"]

    assert [(one.kind, one.about) for one in found] == [("misspelt_field", path)]
    assert f"did you mean `{known}`?" in found[0].message


@pytest.mark.parametrize(
    "event",
    [
        {**ITERATION, "gate": {"decision": "skip"}, "trace_id": "x", "session_id": 1, "source": 2},
        {**ITERATION, "searches": [{"search_id": "s"}], "search": "a field of its own"},
        result(title="x", titel="y"),
        result(id="x", rank=1, tags=[], vector_score=1.5, created_at="x", language="en"),
        {**ITERATION, "gate": {"decision": "skip"}, "searched": False, "results_count": 0},
        {**ITERATION, "gate": {"decision": "skip"}, "searched": ["an index"], "search": None},
        {**LABELS, "labels_by": "x", "labeled": "2025-01-01", "agents": ["x"], "released": "x"},
        {**LABELS, "labels": [{"result_id": "r", "gain": 1, "gained": 2}], "judge": "x"},
        result(relevance=0.87, context="a passage", url_hash="x", titles=["x"], link={"x": 1}),
        result(grade="A", contents=[], scored=True, doc_ids=["x"], text=None),
    ],
)
def test_other_unknown_fields_are_warnings(event: dict[str, Any]) -> None:
    """Such a name resembles no field, or only one that the object has as well."""
    found = find_problems(encoded(event), limits=Limits())

    assert found
    assert {one.kind for one in found} == {"unknown_field"}


MISSING: list[tuple[dict[str, Any], str, str]] = [
    ({"occurred_at": None, "occured_at": "2025-03-18T09:00:00Z"}, "occurred_at", "occured_at"),
    ({"occurred_at": None, "occurredAt": 1_742_288_400}, "occurred_at", "occurredAt"),
    ({"occurred_at": None, "timestamp": 1_742_288_400.5}, "occurred_at", "timestamp"),
    ({"event_id": None, "eventId": "e-1"}, "event_id", "eventId"),
    ({"type": None, "event_type": "search_iteration"}, "type", "event_type"),
    ({"type": None, "tpye": "search_iteration"}, "type", "tpye"),
    ({"searches": [{"serch_id": "s-1"}]}, "search_id", "searches.serch_id"),
]


@pytest.mark.parametrize(("changes", "missing", "sent"), MISSING)
def test_a_required_field_that_is_misspelt_is_called_missing(
    changes: dict[str, Any], missing: str, sent: str
) -> None:
    """The error names the missing field, and the one that was sent in its place."""
    event = {name: value for name, value in {**ITERATION, **changes}.items() if value is not None}

    [found] = find_problems(encoded(event), limits=Limits())

    assert found.kind == "bad_record"
    assert f"missing required field `{missing}`" in found.message
    assert found.message.endswith(f"; was it sent as `{sent}`?")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"occurred_at": None},
        {"occured_at": True},
        {"occured_at": None},
        {"occured_at": ["2025-03-18T09:00:00Z"]},
        {"occurred@": "2025-03-18T09:00:00Z"},
        {"gate": {"occured_at": "2025-03-18T09:00:00Z", "decision": "skip"}},
    ],
)
def test_a_missing_time_is_called_missing(changes: dict[str, Any]) -> None:
    """Null counts as missing; a field of another kind, in another object or with an unusual name
    is not taken for the time.
    """
    event = {name: value for name, value in ITERATION.items() if name != "occurred_at"}

    [found] = find_problems(encoded({**event, **changes}), limits=Limits())

    assert found.about == "invalid"
    assert found.message == "Object missing required field `occurred_at`"


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [
        (1_742_288_400_250, "milliseconds"),
        (1_742_288_400_250.5, "milliseconds"),
        (1_742_288_400_250_000, "microseconds"),
        (1_742_288_400_250_000_000, "nanoseconds"),
    ],
)
def test_a_number_in_another_unit_is_named_so(seconds: float, unit: str) -> None:
    """`occurred_at` is in seconds; the error says which unit the number seems to have."""
    (found,) = find_problems(encoded({**ITERATION, "occurred_at": seconds}), limits=Limits())

    assert found.about == "time_out_of_range"
    assert found.message == f"`occurred_at` looks like {unit}; `occurred_at` takes seconds"


@pytest.mark.parametrize("seconds", [17, -1_742_288_400_250, 1e300, 5e9, "1999-01-01T00:00:00Z"])
def test_other_times_out_of_range_are_not_taken_for_another_unit(seconds: Any) -> None:
    """A number outside 2000 to 2100 in every unit is only reported as out of range."""
    (found,) = find_problems(encoded({**ITERATION, "occurred_at": seconds}), limits=Limits())

    assert found.about == "time_out_of_range"
    assert "looks like" not in found.message
