"""The generated streams contain every feature that the property tests claim to cover."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.helpers import examples
from tests.oracle import Event, Outcome, Record, Turn, evaluate
from tests.oracle.dedup import NAMED_TYPES, Settings, url_parts
from tests.oracle.retrieval import METRICS, scores
from tests.oracle.turns import SOURCES
from tests.strategies import INVALID, KeyedRecord, arrivals, streams

SAMPLE = 700


def _outcome(stream: list[KeyedRecord]) -> Outcome:
    return evaluate([Record(value, key, stamp) for key, value, stamp in stream], keyed=True)


def _turn_features(turn: Turn) -> set[str]:
    found = turn.found
    seen = set()
    for one in found:
        verdict, placement = one.placement.verdict, one.placement
        if verdict is not None:
            kind = one.kind if one.kind in NAMED_TYPES else "other"
            seen |= {f"evidence {verdict.evidence}", f"step {verdict.step}", f"duplicate {kind}"}
        seen |= {f"refused {step}" for step in placement.refused}
        seen |= {"contradiction"} if placement.contradicted else set()
        if placement.contradicted and verdict is not None:
            seen.add("contradiction, then joined another")
        if one.raw["gain"] is not None and one.labels["human"] is None:
            seen.add("withdrawn label over inline gain")
        if not one.holds_handle:
            seen.add("handle conflict")
            if [other.search_id for other in found if other.raw["result_id"] == "shared"].count(
                one.search_id
            ) > 1:
                seen.add("handle conflict within a search")
        if one.raw["url"] and url_parts(one.raw, Settings()) is None:
            seen.add("absent url")
        if one.raw["url"] and "#/" in one.raw["url"]:
            seen.add("route in a fragment")
        if (here := url_parts(one.raw, Settings())) is not None:
            there = [url_parts(other.raw, Settings()) for other in found]
            same = [each for each in there if each is not None and each.place == here.place]
            if any(each.weak != here.weak for each in same):
                seen.add("weak parameters that differ")
            if any(each.route != here.route for each in same):
                seen.add("routes that differ")
        first = found[placement.first]
        for source in SOURCES:
            own, other = first.labels[source], one.labels[source]
            if own is None and other is not None:
                seen.add(f"inherited {source} label")
            if own is not None and other not in (None, own):
                seen.add(f"{source} label conflict")
        by_source = {turn.gain_by(source, placement.first) for source in SOURCES}
        if None not in by_source and len(by_source) > 1:
            seen.add("sources that differ")
    counted = turn.counted()
    if counted and counted != list(range(counted[0], counted[0] + len(counted))):
        seen.add("gap in iterations")
    if set(turn.gates) - set(counted):
        seen.add("gate without search")
    for iteration in turn.iterations():
        decision, needed = turn.decision_of(iteration), turn.needed(iteration)
        seen.add(f"gate {decision} {needed}")
        if decision == "skip" and iteration in counted:
            seen.add("gate conflict")
        if len({won.event.event_id for won in turn.searches_of(iteration)}) > 1:
            seen.add("several events in an iteration")
        if iteration in counted:
            counts = turn.iteration_counts(iteration)
            settled = counts["labelled"] * 10 >= counts["unique"] * 9
            seen.add("settled" if settled and counts["unique"] else "unsettled")
    for search_id, won in turn.searches.items():
        route, optimal = won.entry["route"], turn.optimal(search_id)
        seen.add(f"route {route is not None} {None if optimal is None else optimal == route}")
        seen |= _ranked_features(turn, search_id)
        pair = turn.rerank_of(search_id)
        if pair is not None:
            seen.add("rerank undefined" if pair[1] == 0 else "rerank")
            seen |= {"rerank better"} if pair[0] > pair[1] else set()
    value, basis = turn.all_good()
    seen.add(f"all good {basis} {'none' if value is None else 'capped' if value == 100 else ''}")
    seen |= {f"{source} sample" for source in turn.samples}
    if turn.orphan_labels():
        seen.add("orphan label")
    return seen


def _ranked_features(turn: Turn, search_id: str) -> set[str]:
    found = scores(turn, search_id, tuple(METRICS))
    if not found:
        return {"ranked by nothing"}
    given = turn.completed is not None and turn.completed.entry is not None
    judge = "ground truth" if given else "labels"
    seen = {f"ranked by {judge}"}
    seen |= {f"{judge}: {name}" for name, value in found.items() if 0 < value < 1}
    mine = [one for one in turn.found if one.search_id == search_id]
    seen |= {f"{judge}: nothing found"} if not mine else set()
    documents = {one.placement.first for one in mine}
    doc_ids = [one.raw["doc_id"] for one in mine if one.raw["doc_id"] is not None]
    if len(documents) == len(mine) and len(set(doc_ids)) < len(doc_ids):
        seen.add(f"{judge}: a doc_id that stands twice, of two documents")
    return seen


def _event_features(events: list[Event]) -> set[str]:
    seen = set()
    versions: dict[tuple[object, ...], set[tuple[int, str]]] = {}
    contents: dict[tuple[object, ...], set[str]] = {}
    deliveries: Counter[tuple[str, str]] = Counter()
    newest_iteration: dict[tuple[str, int], int] = {}
    arrived: set[tuple[str, int, str]] = set()
    places: dict[tuple[object, ...], set[int]] = {}
    for event in events:
        place = (event.conversation, event.turn)
        deliveries[event.conversation, event.digest] += 1
        contents.setdefault((event.conversation, event.version), set()).add(event.digest)
        items: list[tuple[object, ...]] = []
        if event.type == "search_iteration":
            iteration = event.body["iteration"]
            if iteration < newest_iteration.get(place, 0):
                seen.add("iteration before one that came already")
            newest_iteration[place] = max(iteration, newest_iteration.get(place, 0))
            for search in event.body["searches"]:
                items.append(("search", search["search_id"]))
                places.setdefault((place, search["search_id"]), set()).add(iteration)
                arrived |= {(*place, result["result_id"]) for result in search["results"]}
        elif event.type == "relevance_labels":
            for result_id, _ in event.body["labels"]:
                items.append(("label", result_id))
                early = (*place, result_id) not in arrived
                seen.add("label before its result" if early else "label after its result")
        elif event.type == "turn_completed":
            items.append(("completed",))
        for item in items:
            versions.setdefault((*place, *item), set()).add(event.version)
    for item, known in versions.items():
        if len(known) > 1:
            seen.add(f"replaced {item[2]}")
    seen |= {"search moved"} if any(len(where) > 1 for where in places.values()) else set()
    seen |= {"redelivery"} if any(n > 1 for n in deliveries.values()) else set()
    seen |= {"same version"} if any(len(one) > 1 for one in contents.values()) else set()
    return seen


def _features(stream: list[KeyedRecord]) -> set[str]:
    outcome = _outcome(stream)
    seen = {f"invalid {reason}" for _, reason in outcome.invalid} | _event_features(outcome.events)
    for turn in outcome.turns:
        seen |= _turn_features(turn)
    if len({turn.conversation for turn in outcome.turns}) > 1:
        seen.add("several conversations")
    if len({(turn.conversation, turn.number) for turn in outcome.turns}) > len(outcome.rows):
        seen.add("several turns")
    seen |= {name for name in ("stale", "forgotten") if outcome.counts[name]}
    rows = [json.loads(row) for row in outcome.rows]
    seen |= {"a row without search"} if any(row["n"] == 0 for row in rows) else set()
    seen |= {"a release"} if any(row["release"] for row in rows) else set()
    if outcome.counts["forgotten"] and rows:
        seen.add("forgotten in part")
    sums = json.loads(outcome.windows())["sums"]
    results = {one["value"] for one in sums if one["name"] == "results"}
    seen |= {"windows that differ"} if len(results) > 1 else set()
    seen |= {f"{len({one['agent'] for one in sums})} agents"}
    seen |= {f"iteration {one['iteration']}" for one in sums if "iteration" in one}
    seen |= {f"span {one['span']}" for one in sums if "span" in one}
    for _, value, _ in stream:
        seen |= {"number as time"} if b'"occurred_at": 17' in value else set()
        seen |= {"offset as time"} if b"+02:00" in value or b"-04:30" in value else set()
    return seen


EXPECTED = sorted(
    {
        *(f"evidence {name}" for name in ("id", "url", "text", "fields")),
        *(f"step {name}" for name in ("ids", "doc_id", "identical_content")),
        *(f"step {name}" for name in ("url", "url_text", "fields")),
        *(f"refused {name}" for name in ("ids", "doc_id", "url", "url_identity", "url_text")),
        *(f"refused {name}" for name in ("segment", "fields", "inconclusive")),
        *(f"duplicate {name}" for name in (*NAMED_TYPES, "other")),
        *("contradiction", "contradiction, then joined another"),
        *("withdrawn label over inline gain", "orphan label", "sources that differ"),
        *(f"inherited {source} label" for source in SOURCES),
        *(f"{source} label conflict" for source in SOURCES),
        *(f"{source} sample" for source in SOURCES),
        *("handle conflict", "handle conflict within a search", "absent url"),
        *("route in a fragment", "gap in iterations", "gate without search", "gate conflict"),
        *(f"gate {one} {needed}" for one in ("search", "skip") for needed in (True, False, None)),
        *(f"route True {correct}" for correct in (True, False, None)),
        *("route False False", "several events in an iteration", "settled", "unsettled"),
        *("rerank", "rerank better", "rerank undefined", "ranked by nothing"),
        *(f"ranked by {name}" for name in ("labels", "ground truth")),
        *(
            f"{judge}: {what}"
            for judge in ("labels", "ground truth")
            for what in (
                *(name for name in METRICS if name[:4] not in ("hit@", "aqwv")),
                "nothing found",
                "a doc_id that stands twice, of two documents",
            )
        ),
        *(f"all good {name}" for name in ("qrels ", "qrels none", "qrels capped")),
        *(f"all good {name}" for name in ("retrieved ", "retrieved none", "None none")),
        *("iteration before one that came already", "search moved", "redelivery", "same version"),
        *("replaced search", "replaced label", "replaced completed"),
        *("label before its result", "label after its result"),
        *("weak parameters that differ", "routes that differ"),
        *("several conversations", "several turns", "stale", "forgotten", "forgotten in part"),
        *("a row without search", "a release", "windows that differ", "1 agents", "3 agents"),
        *(
            "iteration 1",
            "iteration 4",
            "iteration 9+",
            "span same_iteration",
            "span earlier_iteration",
        ),
        *("number as time", "offset as time"),
        *(f"invalid {name}" for name in ("invalid", "time_out_of_range", "key_mismatch")),
    }
)


def test_invalid_records_are_invalid() -> None:
    """Every record in the pool of invalid records is refused; all reasons but size occur."""
    outcome = evaluate([Record(value, b"c1") for value in INVALID])
    assert [index for index, _ in outcome.invalid] == list(range(len(INVALID)))
    assert {reason for _, reason in outcome.invalid} == {
        *("not_json", "too_deep", "unknown_version", "unknown_type", "invalid"),
        *("time_out_of_range", "over_limit", "key_mismatch"),
    }


def seen_in_sample() -> Counter[str]:
    """Count the streams of a fixed sample in which each feature occurs."""
    counts: Counter[str] = Counter()

    @settings(
        max_examples=SAMPLE,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(streams())
    def collect(stream: list[KeyedRecord]) -> None:
        counts.update(_features(stream))

    collect()
    return counts


@pytest.mark.long
def test_every_feature_occurs() -> None:
    """A few hundred generated streams contain each feature."""
    seen = seen_in_sample()
    assert not {feature for feature in EXPECTED if not seen[feature]}, sorted(seen.items(), key=str)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
@given(st.data())
def test_arrivals_hold_every_record(data: st.DataObject) -> None:
    """An arrival order has each record of the stream at least once, and no others."""
    stream = data.draw(streams(max_events=8))
    batches = data.draw(arrivals(stream))
    assert Counter(stream).keys() == {record for batch in batches for record in batch}
    assert not Counter(stream) - Counter(record for batch in batches for record in batch)


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
@given(st.data())
def test_arrival_order_changes_nothing(data: st.DataObject) -> None:
    """The oracle gives the same rows and windows for every arrival order of a stream."""
    stream = data.draw(streams())
    batches = data.draw(arrivals(stream))
    here = _outcome(stream)
    there = _outcome([record for batch in batches for record in batch])
    assert (here.rows, here.windows()) == (there.rows, there.windows())
    assert {**here.counts, "events": 0, "invalid": 0} == {**there.counts, "events": 0, "invalid": 0}


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
@given(streams(min_events=3, max_events=6, conversations=1))
def test_streams_stay_within_their_bounds(stream: list[KeyedRecord]) -> None:
    """No stream has more records or conversations than requested."""
    assert len(stream) <= 6
    assert {key for key, _, _ in stream} <= {b"c1", b"stray"}
