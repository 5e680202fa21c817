"""The reference itself, compared with figures and verdicts worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracle import Outcome, Record, evaluate

MID = "a sentence of more than fifty characters which is good evidence"
LONG = "a content of more than two hundred characters, " * 6
NO_ID: dict[str, Any] = {}


def event(kind: str, number: int, **fields: Any) -> dict[str, Any]:
    """An event of turn 1, one second after the event numbered before it."""
    return {
        "type": kind,
        "event_id": f"e{number:02}",
        "occurred_at": 1_715_589_000 + number,
        "conversation_id": "c",
        "turn": 1,
        **fields,
    }


def search(number: int, results: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """One search in an event and iteration of its own; results have handles r<number><letter>."""
    named = [{"result_id": f"r{number}{'abcdefgh'[n]}", **one} for n, one in enumerate(results)]
    one = {"search_id": f"s{number}", "results": named}
    return event("search_iteration", number, **{"iteration": number, "searches": [one], **fields})


def labels(number: int, **gains: int | None) -> dict[str, Any]:
    """A label event."""
    entries = [{"result_id": name, "gain": gain} for name, gain in gains.items()]
    return event("relevance_labels", number, labels=entries)


def run(*events: dict[str, Any], **options: Any) -> Outcome:
    """The result of events that must all be valid."""
    outcome = evaluate([Record(json.dumps(one).encode()) for one in events], **options)
    assert outcome.invalid == []
    return outcome


def row(*events: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The only row of some events."""
    (line,) = run(*events, **options).rows
    loaded: dict[str, Any] = json.loads(line)
    return loaded


def verdict(a: dict[str, Any], b: dict[str, Any], **options: Any) -> str:
    """The evidence that makes the second of two results a duplicate, or `unique`."""
    (turn,) = run(search(1, [a, b]), **options).turns
    placed = turn.found[1].placement.verdict
    return "unique" if placed is None else str(placed.evidence)


def sums(outcome: Outcome, name: str, now: int | None = None) -> dict[tuple[str, ...], int]:
    """The window sums of one name by the other labels."""
    found = json.loads(outcome.windows(now))["sums"]
    return {
        tuple(value for key, value in one.items() if key not in ("name", "agent", "value")): one[
            "value"
        ]
        for one in found
        if one["name"] == name
    }


WORKED = (
    search(1, [{"doc_id": "1", "gain": 3}, {"doc_id": "2", "gain": 2}]),
    search(2, [{"doc_id": "3", "gain": 4}, {"doc_id": "4", "gain": 1}, {"doc_id": "1"}]),
    search(3, [{"doc_id": "5", "gain": 2}, {"doc_id": "2"}, {"doc_id": "3"}]),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gain", [5, 4, 2]),
        ("cg", [5, 9, 11]),
        ("rg", [5, 4.5, 3.6667]),
        ("dcg", [5, 7.5237, 8.5237]),
        ("drg", [5, 3.7619, 2.8412]),
        ("avg_gain", [2.5, 1.3333, 0.6667]),
        ("rag", [2.5, 1.9167, 1.5]),
        ("drag", [2.5, 1.6706, 1.2249]),
        ("sre", [1, 0.6, 0.5]),
        ("srr", [0, 0.2, 0.375]),
        ("r_at", [2, 5, 8]),
        ("ur_at", [2, 4, 5]),
        ("gr_at", [2, 3, 4]),
        ("dup_at", [0, 1, 3]),
    ],
)
def test_the_worked_example_has_the_published_figures(name: str, expected: list[float]) -> None:
    """It has three iterations."""
    found = [iteration[name] for iteration in row(*WORKED)["iterations"]]
    assert found == pytest.approx(expected, abs=5e-5)


def test_the_worked_example_has_all_good_results_after_its_third_iteration() -> None:
    """The row says so."""
    found = row(*WORKED)
    assert (found["iterations_for_all_good_results"], found["all_good_basis"]) == (3, "retrieved")


FILE = {"entity_type": "File"}
MEETING = {"entity_type": "MeetingTranscript"}
TALK = {**MEETING, "title": "Talk", "fields": {"start": "2024-05-06T09:00:00Z"}}
GUIDE = {"doc_id": "1", "content": LONG}
PAGE = "https://x.example/p"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({"ids": {"k": "A"}}, {"ids": {"k": ["B", "A"]}}, "id"),
        ({"ids": {"k": "A"}}, {"ids": {"k": "a"}}, "unique"),
        ({"ids": {"upn": "A"}}, {"ids": {"upn": "a"}}, "id"),
        ({"ids": {"k": "A"}, "doc_id": "1"}, {"doc_id": "1"}, "unique"),
        ({"ids": {"k": ""}, "doc_id": "1"}, {"doc_id": "1"}, "id"),
        ({"ids": {"site_id": "A"}, "title": "t"}, {"ids": {"site_id": "A"}, "title": "t"}, "unique"),
        ({"ids": {"site_id": "A"}, "doc_id": "1"}, {"ids": {"site_id": "B"}, "doc_id": "1"}, "unique"),
        ({**FILE, "ids": {"x": "A"}}, {**FILE, "ids": {"x": "A"}}, "unique"),
        ({"entity_type": "email", "ids": {"email_url": "u"}},
         {"entity_type": "EMAILMESSAGE", "ids": {"email_url": "u"}}, "id"),
        ({"entity_type": "Email", "doc_id": "1"}, {"doc_id": "1"}, "unique"),
        (GUIDE, {"doc_id": "2", "content": LONG.upper()}, "id"),
        (GUIDE, {"doc_id": "2", "content": LONG + "more"}, "unique"),
        ({"doc_id": "1", "content": MID}, {"doc_id": "2", "content": MID}, "unique"),
        ({"url": PAGE}, {"url": "http://X.example:80/%70/?utm_id=1#top"}, "url"),
        ({"url": PAGE + "?view=1"}, {"url": PAGE + "?view=2"}, "unique"),
        ({"url": PAGE + "?a=1&view=1"}, {"url": PAGE + "?a=1&view=2"}, "url"),
        ({"url": PAGE, "snippet": MID}, {"url": PAGE + "?a=1", "snippet": MID}, "text"),
        ({"url": PAGE + "?v=1", "snippet": MID}, {"url": PAGE + "?V=2", "snippet": MID}, "unique"),
        ({"url": PAGE + "#/a"}, {"url": PAGE}, "unique"),
        ({"url": "http://[x", "snippet": MID}, {"url": "http://u@:80/", "snippet": MID}, "text"),
        ({"title": "t", "snippet": "No preview"}, {"title": "T", "snippet": "No preview"}, "unique"),
        ({"title": "t", "fields": {"a": 1, "b": "x"}},
         {"title": "t", "fields": {"a": 1.0, "b": [" X "]}}, "fields"),
        ({"title": "t", "fields": {"a": 1, "b": "x"}},
         {"title": "t", "fields": {"a": "1", "b": "x"}}, "unique"),
        ({"title": "t", "fields": {"a": True, "b": "x"}},
         {"title": "t", "fields": {"a": 1, "b": "x"}}, "unique"),
        ({"title": "t", "fields": {"a": ["x", "y"], "b": 1, "score": 1}},
         {"title": "t", "fields": {"a": ["Y", "X"], "b": 1, "score": 2}}, "fields"),
        (TALK, {**TALK, "fields": {"start": "2024-05-06t11:00:00.0000001+02:00"}}, "fields"),
        ({**TALK, "ids": {"event_id": "1"}, "fields": {"segment": 1}},
         {**TALK, "ids": {"event_id": "1"}, "fields": {"segment": 2}}, "unique"),
        ({"entity_type": "Event", "title": "t", "snippet": MID,
          "fields": {"start": "a", "end": "b"}},
         {"entity_type": "Event", "snippet": MID, "fields": {"start": "a", "end": "b", "subject": "T"}},
         "text"),
    ],
)  # fmt: skip
def test_a_pair_is_judged_by_the_rules_of_verification(
    a: dict[str, Any], b: dict[str, Any], expected: str
) -> None:
    """The table has a pair for each rule."""
    assert verdict(a, b) == expected


def test_identical_content_can_be_turned_off() -> None:
    """Then equal long contents do not outweigh unequal generic ids."""
    other = {"doc_id": "2", "content": LONG}
    assert verdict(GUIDE, other, identical_content="different") == "unique"


def test_unequal_snippets_can_be_allowed() -> None:
    """With the option off, they no longer prevent a match of equal contents."""
    a, b = ({"snippet": f"{n} {MID}", "content": LONG} for n in (1, 2))
    assert verdict(a, b) == "unique"
    assert verdict(a, b, snippet_rejects=False) == "text"


def test_a_contradicting_id_ends_a_chain() -> None:
    """A document with an id takes no result with another id, even if a member without one
    matches."""
    a, b, c = ({**FILE, "ids": ids, "snippet": MID} for ids in (
        {"file_id": "1"}, NO_ID, {"file_id": "2"}
    ))  # fmt: skip
    found = row(search(1, [a, b, c]))
    assert found["duplicates_of"] == {"r1b": "r1a"}


def test_only_the_first_sixty_four_candidates_are_verified() -> None:
    """A match after 64 others with the same key is not found."""
    others = [{"title": "t", "snippet": f"text {n}"} for n in range(64)]
    twin = {"title": "t", "fields": {"a": 1, "b": 2}, "snippet": "x"}
    assert row(event_with([*others[1:], twin, twin]))["duplicates"] == 1
    assert row(event_with([*others, twin, twin]))["duplicates"] == 0


def event_with(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One event with one search of many results."""
    named = [{"result_id": str(n), **one} for n, one in enumerate(results)]
    one = {"search_id": "s", "results": named}
    return event("search_iteration", 1, iteration=1, searches=[one])


def test_labels_take_precedence_over_inline_gains() -> None:
    """Null withdraws a label for good, and a duplicate inherits the label."""
    found = row(
        search(1, [{"doc_id": "1", "gain": 4}, {"doc_id": "2"}, {"doc_id": "2", "gain": 2}]),
        labels(3, r1a=None),
        labels(2, r1a=1, ghost=None),
    )
    assert (found["labelled"], found["unlabelled"], found["gain"]) == (1, 1, 2)


def test_gain_of_document_max_takes_the_highest_label() -> None:
    """The default takes the first label of a document."""
    events = (search(1, [{"doc_id": "1", "gain": 2}, {"doc_id": "1", "gain": 4}]),)
    assert row(*events)["gain"] == 2
    assert row(*events, gain_of_document="max")["gain"] == 4


def test_a_replaced_search_moves_as_a_whole() -> None:
    """A newer version takes its iteration and all results with it."""
    newer = search(1, [{"doc_id": "2"}], event_id="new", occurred_at=1_715_589_009, iteration=7)
    found = row(newer, search(1, [{"doc_id": "1"}, {"doc_id": "3"}]))
    assert [(one["iteration"], one["results"]) for one in found["iterations"]] == [(7, 1)]


def test_the_first_of_results_with_one_handle_takes_the_label() -> None:
    """The order is the canonical one; the other keeps its inline gain."""
    found = row(
        search(2, [{"doc_id": "1", "gain": 3, "result_id": "r"}]),
        search(1, [{"doc_id": "2", "gain": 2, "result_id": "r"}]),
        labels(3, r=0),
    )
    assert [one["gain"] for one in found["iterations"]] == [0, 3]


def test_a_forget_erases_only_older_events() -> None:
    """Erased and kept ones are counted."""
    outcome = run(
        search(1, [{"doc_id": "1"}]),
        {key: one for key, one in event("forget", 2).items() if key != "turn"},
        search(3, [{"doc_id": "1"}]),
    )
    assert json.loads(outcome.rows[0])["results"] == 1
    assert (outcome.counts["forgotten"], outcome.counts["conversations"]) == (1, 1)
    assert json.loads(outcome.windows())["now"] == 1_715_589_003_000_000


def test_the_highest_turn_gives_the_row() -> None:
    """Events of lower turns are stale."""
    events = (search(1, [{}]), search(2, [{}], turn=2), labels(3, r1a=3))
    outcome = run(*events)
    assert [json.loads(one)["turn"] for one in outcome.rows] == [2]
    assert outcome.counts["stale"] == 2
    assert len(run(*events, turn_scope="all").rows) == 2
    assert sums(outcome, "turns")["1m",] == 2


@pytest.mark.parametrize(
    ("relevant", "value", "basis"),
    [
        (["1"], 1, "qrels"),
        ({"1": 2, "5": 4}, 3, "qrels"),
        (["1", "9"], 100, "qrels"),
        ({"1": 1}, None, "qrels"),
        ([], None, "qrels"),
        (None, 3, "retrieved"),
    ],
)
def test_ground_truth_defines_all_good_documents(
    relevant: object, value: int | None, basis: str
) -> None:
    """It may be empty."""
    found = row(*WORKED, event("turn_completed", 4, relevant=relevant))
    assert (found["iterations_for_all_good_results"], found["all_good_basis"]) == (value, basis)


def test_a_turn_without_a_search_has_null_metrics() -> None:
    """Its counts are 0."""
    found = row(event("search_iteration", 1, iteration=1, gate={"decision": "skip"}))
    assert (found["n"], found["results"], found["gain"], found["sre_upper"]) == (0, 0, None, None)
    assert found["gate"]["skip"] == 1


def test_a_search_without_results_has_zeros() -> None:
    """It makes one iteration, whose figures are not null."""
    found = row(search(1, []))
    assert (found["gain"], found["sre"], found["sre_upper"]) == (0, 0.0, 0.0)


def test_improvement_over_a_baseline_of_0_is_undefined() -> None:
    """The search still counts in the means."""
    ranked = [{"doc_id": "1", "baseline_rank": 2, "gain": 0}, {"doc_id": "2", "baseline_rank": 1}]
    assert row(search(1, ranked))["reranking"] == {
        "searches": 1,
        "undefined": 1,
        "ndcg_shown": 0.0,
        "ndcg_baseline": 0.0,
        "improvement": None,
        "mean_improvement": None,
    }


def test_a_bucket_leaves_its_window_after_sixty_newer_ones() -> None:
    """A future bucket is not counted."""
    outcome = run(search(1, [{}], occurred_at=1_715_589_000))
    start = 1_715_589_000_000_000
    assert ("1m",) in sums(outcome, "results", start + 59_999_999)
    assert ("1m",) not in sums(outcome, "results", start + 60_000_000)
    assert ("5m",) in sums(outcome, "results", start + 60_000_000)
    assert ("1m",) not in sums(outcome, "results", start - 1)


def test_the_worked_example_has_the_expected_windows() -> None:
    """Real figures are in billionths, zeros are left out, and iterations have their number."""
    outcome = run(*WORKED)
    metrics = sums(outcome, "turn_metric_sum")
    assert metrics["5m", "rg"] == 3_666_666_667
    assert ("1m", "rg") not in metrics
    assert sums(outcome, "iteration_gain")["1h", "3"] == 2
    assert ("1h", "1") not in sums(outcome, "iteration_duplicate_results")
    assert sums(outcome, "duplicates") == {
        (window, "other", "id", "earlier_iteration"): 3 for window in ("5m", "1h")
    }


@pytest.mark.parametrize(
    ("time", "micros"),
    [
        ("2024-05-13T08:30:00.1234569Z", 1_715_589_000_123_456),
        ("2024-05-13t10:30:00+02:00", 1_715_589_000_000_000),
        (1_715_589_000.5, 1_715_589_000_500_000),
        (946_684_800, 946_684_800_000_000),
        ("2100-01-01T00:00:00Z", 4_102_444_800_000_000),
    ],
)
def test_times_are_read_in_both_notations(time: object, micros: int) -> None:
    """They are exact to the microsecond."""
    outcome = run(event("search_iteration", 1, iteration=1, occurred_at=time))
    assert outcome.events[0].time == micros


def test_the_key_and_the_timestamp_must_fit_the_event() -> None:
    """The key is the conversation, and no event is a day ahead of its record."""
    value = json.dumps(search(1, [])).encode()
    day_before = 1_715_589_001_000 - 86_400_000
    records = [
        Record(value, b"c", day_before),
        Record(value, b"d"),
        Record(value),
        Record(value, b"c", day_before - 1),
    ]
    assert evaluate(records, keyed=True).invalid == [
        (1, "key_mismatch"),
        (2, "missing_key"),
        (3, "time_out_of_range"),
    ]
    assert evaluate(records).invalid == [(1, "key_mismatch"), (3, "time_out_of_range")]


@pytest.mark.parametrize("stamps", [(1, 2), (2, 1)])
def test_of_equal_versions_the_same_content_wins_in_any_order(stamps: tuple[int, int]) -> None:
    """Their contents differ."""
    events = [search(1, [{"doc_id": "1"}] * n) for n in stamps]
    assert row(*events) == row(*reversed(events))
