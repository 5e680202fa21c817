"""Labels of people and of a model stand side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from stream_metrics.cli.settings import Settings
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.label_sums import samples
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.labels import COUNTING, Counting
from stream_metrics.lab.replay.offline import Replay
from tests.unit.test_oracle import event, search

Body = dict[str, Any]
FOUND = search(1, [{"doc_id": "a"}, {"doc_id": "b"}], gate={"decision": "search"})


def said(number: int, source: str | None, *, sample: str | None = None, **gains: Any) -> Body:
    """Labels of a source."""
    entries = [{"result_id": name, "gain": gain} for name, gain in gains.items()]
    return event("relevance_labels", number, labels=entries, source=source, sample=sample)


def replayed(events: Sequence[Body], **options: Any) -> Replay:
    """The engine after these events."""
    engine = Replay(EngineConfig(**options))
    for one in events:
        engine.feed(Record(json.dumps(one).encode()))
        engine.flush()
    return engine


def row(*events: Body, **options: Any) -> Body:
    """The only row of some events."""
    (only,) = replayed(events, **options).rows()
    return only


def sampled(*events: Body) -> set[str]:
    """The sources in whose random sample the turn of some events is."""
    (conversation,) = replayed(events).conversations()
    (turn,) = conversation.turns.values()
    return set(samples(turn))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_later_label_of_a_model_never_replaces_a_persons(order: Sequence[int]) -> None:
    """The person's gain counts for the document that both have labelled, in any order."""
    events = [FOUND, said(2, "human", r1a=4), said(3, "model", r1a=0, r1b=3)]

    found = row(*(events[at] for at in order))

    assert (found["labelled"], found["good_unique"], found["gain"]) == (2, 2, 7)
    assert found["labelled_by"] == {"human": 1, "model": 1}


def test_a_withdrawn_label_of_a_person_leaves_the_models() -> None:
    """Null takes back the label of its own source only, and the other one counts again."""
    events = [FOUND, said(2, "human", r1a=4), said(3, "model", r1a=2)]

    by_model = row(*events, said(4, "human", r1a=None))
    by_human = row(*events, said(4, "model", r1a=None))

    assert (by_model["gain"], by_model["labelled_by"]) == (2, {"model": 1})
    assert by_human["gain"] == 4
    assert "labelled_by" not in by_human


def test_inline_gains_are_a_persons() -> None:
    """A model's label does not replace the gain that came with the search."""
    inline = search(1, [{"doc_id": "a", "gain": 1}, {"doc_id": "b"}])

    found = row(inline, said(2, "model", r1a=4, r1b=4))

    assert (found["gain"], found["labelled_by"]) == (4, {"human": 1, "model": 1})


def test_the_label_that_is_inherited_is_of_the_same_source() -> None:
    """A repeated document has a person's label wherever one of its results has it, before any of a
    model's."""
    again = search(2, [{"doc_id": "a"}])

    found = row(FOUND, again, said(3, "model", r1a=4), said(4, "human", r2a=2))

    assert (found["gain"], found.get("labelled_by")) == (2, None)


@pytest.mark.parametrize(
    ("counting", "expected"),
    [("human_first", (6, 1)), ("human", (3, 0)), ("model", (3, 1))],
)
def test_a_setting_says_whose_labels_count(counting: Counting, expected: tuple[int, int]) -> None:
    """Those of one source alone, or a person's first."""
    events = [FOUND, said(2, "human", r1a=3), said(3, "model", r1a=0, r1b=3)]

    found = row(*events, labels=counting)

    by_model = found.get("labelled_by", {}).get("model", 0)
    assert found["gain"] == expected[0]
    assert min(by_model, 1) == expected[1]


@pytest.mark.parametrize("counting", COUNTING)
def test_labels_of_routes_and_gates_are_by_source_as_well(counting: Counting) -> None:
    """A later label of a model replaces no person's, and counts where there is none."""
    asked = FOUND | {
        "searches": [FOUND["searches"][0] | {"routing": {"selected": "files"}}],
    }
    person = event(
        "relevance_labels", 2,
        routing=[{"search_id": "s1", "optimal": "files"}],
        gate=[{"iteration": 1, "search_needed": True}],
    )  # fmt: skip
    model = event(
        "relevance_labels", 3, source="model",
        routing=[{"search_id": "s1", "optimal": "web"}],
        gate=[{"iteration": 1, "search_needed": False}],
    )  # fmt: skip

    both, alone = row(asked, model, person, labels=counting), row(asked, model, labels=counting)

    by_person = counting != "model"
    assert both["routing"]["correct"] == by_person
    assert both["gate"]["correct_search"] == by_person
    assert alone["gate"]["wasted"] == alone["routing"]["labelled"] == (counting != "human")


def test_patterns_say_which_labellers_are_models() -> None:
    """They hold where an event does not name its source."""
    named = said(2, None, r1a=3) | {"labeller": "Judge-V3"}

    assert "labelled_by" not in row(FOUND, named)
    assert row(FOUND, named, model_labellers=("judge-*",))["labelled_by"] == {"model": 1}
    person = named | {"source": "human"}
    assert "labelled_by" not in row(FOUND, person, model_labellers=("judge-*",))


def test_a_random_sample_is_for_good() -> None:
    """An event without labels puts its turn into the sample of its source, and a later event that
    says `chosen`, or is superseded, does not take it out."""
    drawn = said(3, "model", sample="random")
    later = said(9, "model", sample="chosen", r1a=3)

    assert sampled(FOUND, later, drawn) == sampled(drawn, FOUND, later) == {"model"}
    assert sampled(FOUND, said(3, None, sample="random", r1a=1)) == {"human"}
    assert sampled(FOUND, drawn, said(4, "human", sample="random")) == {"human", "model"}
    assert sampled(FOUND, said(3, "model", r1a=1)) == set()


def test_a_forget_erases_the_samples_up_to_its_version() -> None:
    """The sample of a later event stays, whichever of the two came first."""
    erased = event("forget", 5)
    del erased["turn"]
    first, last = said(3, "model", sample="random"), said(7, "human", sample="random")
    again = FOUND | {"event_id": "e08", "occurred_at": FOUND["occurred_at"] + 7}

    for events in permutations([first, last, erased, again]):
        assert sampled(*events) == {"human"}


def test_an_event_that_only_draws_a_turn_is_not_empty() -> None:
    """It is counted as empty if it says nothing about the turn."""
    counts = [
        replayed([FOUND, said(2, "model", sample=sample)]).observations.counts["empty"]
        for sample in ("random", "chosen")
    ]

    assert counts == [0, 1]


def test_the_limit_of_waiting_labels_holds_for_each_source() -> None:
    """Labels of a model that wait do not keep those of people out."""
    waiting: dict[str, Any] = {f"x{number}": 1 for number in range(3)}
    engine = replayed(
        [said(1, "model", **waiting), said(2, "human", **waiting), FOUND],
        limits=Limits(waiting_labels=3),
    )
    over = replayed([said(1, "model", **waiting, y=1), FOUND], limits=Limits(waiting_labels=3))

    assert engine.outcome().orphan_labels == 6
    assert engine.outcome().beyond_limit.labels == 0
    assert over.outcome().beyond_limit.labels == 1


def test_conflicts_are_counted_within_a_source() -> None:
    """That a person and a model differ is no conflict of labels."""
    again = search(2, [{"doc_id": "a"}])
    of_two = replayed([FOUND, again, said(3, "human", r1a=1), said(4, "model", r2a=3)])
    of_one = replayed([FOUND, again, said(3, "model", r1a=1), said(4, "model", r2a=3)])

    assert of_two.observations.counts["label_conflicts"] == 0
    assert of_one.observations.counts["label_conflicts"] == 1


def test_the_default_settings_leave_the_fingerprint_as_it_was() -> None:
    """State of earlier releases is taken over; another choice needs a build."""
    plain = Settings.model_validate({})
    by_model = Settings.model_validate({"metrics": {"labels": "model"}})
    named = Settings.model_validate({"labels": {"model_labellers": ["judge*"]}})

    assert len({one.fingerprint() for one in (plain, by_model, named)}) == 3
    assert "metrics.labels" not in plain.state_settings()
    assert "labels.model_labellers" not in plain.state_settings()
    assert by_model.state_settings()["metrics.labels"] == "model"
    assert named.state_settings()["labels.model_labellers"] == ["judge*"]
