"""Regressions found by reviews."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.dedup.tables import DedupRules, EntityType, Need
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import Row
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.settings import DedupSettings, EntityTypeSettings
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.live.readers.export import Export, NowTooEarly
from tests import oracle

Event = dict[str, Any]
NOON_US = 1_718_020_800_000_000


def searching(number: int, results: list[Event], turn: int = 1) -> Event:
    """A search iteration of one search."""
    return {
        "type": "search_iteration",
        "event_id": f"s{turn}-{number}",
        "occurred_at": 1_718_020_800 + number,
        "conversation_id": "c",
        "turn": turn,
        "iteration": number,
        "searches": [{"search_id": f"s-{number}", "results": results}],
    }


def labelling(number: int, gains: dict[str, int], turn: int = 1) -> Event:
    """A label event."""
    return {
        "type": "relevance_labels",
        "event_id": f"l{turn}-{number}",
        "occurred_at": 1_718_021_000 + number,
        "conversation_id": "c",
        "turn": turn,
        "labels": [{"result_id": name, "gain": gain} for name, gain in gains.items()],
    }


def rows(events: list[Event], config: EngineConfig | None = None, *, one_by_one: bool) -> list[Row]:
    """The rows of all turns."""
    engine = Replay(config, turn_scope="all")
    for event in events:
        engine.feed(Record(json.dumps(event).encode()))
        if one_by_one:
            engine.flush()
    return engine.rows()


@pytest.mark.parametrize("one_by_one", [True, False])
def test_labels_with_results_in_the_batch_do_not_wait(one_by_one: bool) -> None:
    """The limit on waiting labels does not count them."""
    config = EngineConfig(limits=Limits(waiting_labels=3))
    events: list[Event] = []
    for turn in range(1, 5):
        names = [f"r{n}" for n in range(3)]
        events.append(searching(1, [{"result_id": n, "doc_id": n} for n in names], turn))
        events.append(labelling(1, dict.fromkeys(names, 2), turn))

    found = rows(events, config, one_by_one=one_by_one)

    assert [(row["labelled"], row["over_limit"]) for row in found] == [(3, False)] * 4


def test_too_many_waiting_labels_are_refused() -> None:
    """Labels beyond the limit are refused, the turn is flagged, and waiting ones stay."""
    config = EngineConfig(limits=Limits(waiting_labels=2))
    events = [
        searching(1, [{"result_id": "r0"}]),
        labelling(1, {f"r{n}": 3 for n in range(5)}),
        searching(2, [{"result_id": f"r{n}", "doc_id": f"d{n}"} for n in range(1, 5)]),
    ]

    (row,) = rows(events, config, one_by_one=True)

    assert (row["labelled"], row["over_limit"]) == (3, True)


@pytest.mark.parametrize(("subject", "same"), [(7, False), (True, False), ("x", True)])
def test_a_subject_that_is_not_a_string_gives_no_key(subject: object, same: bool) -> None:
    """Events match by a string in `subject`, never by a number or a boolean."""
    fields = {"subject": subject, "start": "a", "end": "b", "organizer_email": "o"}
    results = [
        {"result_id": name, "entity_type": "Event", "fields": fields} for name in ("r1", "r2")
    ]
    event = searching(1, results)

    (row,) = rows([event], one_by_one=True)

    assert (row["duplicates"] == 1) is same
    reference = oracle.evaluate([oracle.Record(json.dumps(event).encode())])
    assert json.loads(reference.rows[0])["duplicates"] == row["duplicates"]


def test_rules_in_settings_may_name_any_field() -> None:
    """A rule works with names that no built-in rule has."""
    kind = EntityType(
        name="Ticket",
        definitive=None,
        rejects=("title", "*"),
        confirms=((Need(1, ("ticket_no",)), Need(1, ("title",))),),
        parts_differ=("part",),
    )
    config = EngineConfig(rules=DedupRules(types=(kind,)))

    def result(name: str, **fields: object) -> Event:
        return {"result_id": name, "entity_type": "ticket", "title": "t", "fields": fields}

    events = [
        searching(1, [result("r1", ticket_no=4, part=1), result("r2", ticket_no=4, part=2)]),
        searching(2, [result("r3", ticket_no=4), result("r4", ticket_no=5)]),
    ]

    (row,) = rows(events, config, one_by_one=True)

    assert row["duplicates_of"] == {"r3": "r1"}


def test_a_rule_in_settings_replaces_the_built_in_one() -> None:
    """Names and types are compared without case."""
    rules = DedupSettings(entity_types=(EntityTypeSettings(name="file"),)).rules()

    assert [kind.name for kind in rules.types if kind.name.casefold() == "file"] == ["file"]


def test_an_export_without_a_time_works_for_lagging_events() -> None:
    """If the largest event time cannot be answered any more, it takes the earliest time
    that can."""
    lagging = Export(windows=[Windows()], last_event_us=NOON_US, record_time_ms=NOON_US // 1000)
    assert lagging.windows_document(None)["now"] == NOON_US

    lagging.record_time_ms += 100_000
    assert lagging.windows_document(None)["now"] == NOON_US + 99_000_000
    with pytest.raises(NowTooEarly):
        lagging.windows_document(NOON_US)


def test_results_with_many_common_values_are_matched_quickly() -> None:
    """Results that share one of 64 values of an id each are one document."""
    values = [[f"v{n}-{at}" for at in range(63)] + ["same"] for n in range(400)]
    results = [{"result_id": f"r{n}", "ids": {"chunk_id": v}} for n, v in enumerate(values)]

    (row,) = rows([searching(1, results)], one_by_one=True)

    assert (row["unique"], row["duplicates"]) == (1, 399)
