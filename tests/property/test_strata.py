"""Figures by stratum equal those of a plain implementation, for any dimensions."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.run import Execution
from tests.helpers import examples
from tests.oracle import strata
from tests.replays import AT_ONCE, IN_PARTS, SPOOLED, replayed

NOON_S = 1_718_020_800
FACTS = ("agent", "route")  # taken from the searches, not from recorded dimensions of that name
DIMENSIONS = ("agent", "release", "route", "language", "difficulty")
Body = dict[str, Any]

_AGENTS = st.sampled_from(["desk", "bot"])
_RELEASES = st.sampled_from([None, "r1", "r2"])
_RECORDED = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("language", "difficulty", *FACTS), st.sampled_from(["de", "en"]))
)
_RESULT = st.tuples(st.sampled_from("abcd"), st.sampled_from([None, 0, 1, 2, 3, 4]))


@st.composite
def searches(draw: st.DrawFn, name: str) -> Body:
    """A search with a few results, some of them labeled."""
    route = draw(st.sampled_from([None, "web", "kb"]))
    sent: Body = {"search_id": name, "results": []}
    if route is not None:
        sent["routing"] = {"selected": route}
    for at, (doc, gain) in enumerate(draw(st.lists(_RESULT, max_size=3))):
        result = {"result_id": f"{name}-{at}", "doc_id": doc, "content": f"about {doc}"}
        sent["results"].append(result if gain is None else {**result, "gain": gain})
    return sent


@st.composite
def labels(draw: st.DrawFn, number: int, names: list[str]) -> list[Body]:
    """Gate labels of an iteration, or nothing."""
    gate = draw(st.sampled_from([[], [{"iteration": number, "search_needed": True}],
                                 [{"iteration": number, "search_needed": False}]]))  # fmt: skip
    best = {name: draw(st.sampled_from([None, "web", "kb"])) for name in names}
    routing = [{"search_id": one, "optimal": route} for one, route in best.items() if route]
    if not (gate or routing):
        return []
    return [{"type": "relevance_labels", "gate": gate, "routing": routing}]


@st.composite
def turns(draw: st.DrawFn) -> list[Body]:
    """The events of a turn, with or without searches and recorded dimensions."""
    events: list[Body] = []
    for number in range(1, draw(st.sampled_from([1, 1, 2, 0])) + 1):
        sent = [draw(searches(f"s{number}-{at}")) for at in range(draw(st.sampled_from([1, 2, 0])))]
        event: Body = {"type": "search_iteration", "iteration": number, "searches": sent}
        release = draw(_RELEASES)
        if release is not None:
            event["release"] = release
        if not sent:
            event["gate"] = {"decision": "skip"}
        events.append({**event, "agent": draw(_AGENTS)})
        events += draw(labels(number, [one["search_id"] for one in sent]))
    if not events or draw(st.booleans()):
        end: Body = {"type": "turn_completed", "dimensions": draw(_RECORDED)}
        end |= draw(st.sampled_from([{}, {"relevant": {"a": 3, "b": 1}}]))
        end |= draw(st.sampled_from([{}, {"answer": "about a"}, {"answer": "b"}]))
        end |= draw(st.sampled_from([{}, {"reference_answers": ["a", "about b"]}]))
        events.append(end)
    return events


@st.composite
def recorded(draw: st.DrawFn) -> list[Record]:
    """Conversations of one or more turns."""
    records = []
    for number in range(draw(st.integers(1, 10))):
        own = draw(st.lists(turns(), min_size=1, max_size=2))
        for turn, events in enumerate(own, 1):
            for at, event in enumerate(events):
                name = f"{turn}-{at}"
                body = {
                    "event_id": name, "conversation_id": f"c{number}", "turn": turn,
                    "occurred_at": NOON_S + at, **event,
                }  # fmt: skip
                records.append(Record(json.dumps(body).encode()))
    return records


_WAYS = st.builds(
    strata.Way,
    st.sampled_from(["percentile", "percentile", "t"]),
    st.sampled_from([0.95, 0.8]),
    st.sampled_from([40, 99]),
    st.integers(0, 2**32),
)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    recorded(),
    st.sampled_from(["last", "all"]),
    st.lists(st.sampled_from(DIMENSIONS), unique=True),
    _WAYS,
    st.sampled_from([AT_ONCE, SPOOLED, IN_PARTS]),
)
def test_figures_by_stratum_equal_the_plain_implementation(
    records: list[Record], scope: str, asked: list[str], way: strata.Way, scale: Execution
) -> None:
    """This holds for means, quotients, their intervals and the spread of strata in each block."""
    chosen = dict(zip(("interval", "confidence", "resamples", "seed"), way, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        plain = replayed(records, out, scale, turn_scope=scope, evaluation=chosen)
        queries, answers = lines(plain["queries.jsonl"]), lines(plain["turns.jsonl"])
        known = strata.known_dimensions(queries, answers)
        asked = [name for name in asked if name in known]
        split = {"turn_scope": scope, "evaluation": chosen, "stratify": tuple(asked)}
        files = replayed(records, out, scale, **split)

    report = json.loads(files["report.json"])
    rows = lines(files["conversations.jsonl"])
    names = asked or strata.unasked(rows, queries)
    expected = {name: strata.of_rows(rows, queries, name, way) for name in names}
    assert list(report["strata"]) == names
    assert [*differences(expected, report["strata"], "strata")] == []
    for block, own in (("retrieval", queries), ("generation", answers)):
        names = strata.dimensions_of(own, asked)
        expected = {name: strata.of_scores(own, name, way) for name in names}
        found = (report[block] or {"strata": {}})["strata"]
        assert list(found) == names
        assert [*differences(expected, found, block)] == []


def lines(content: bytes) -> list[Body]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in content.splitlines()]


def differences(expected: Any, found: Any, where: str) -> Iterator[str]:
    """Where the second differs from the first; figures, but not strata, may have more fields."""
    if isinstance(expected, dict):
        more = {"method", "note"} if "ci_low" in expected else set()
        if not expected.keys() <= found.keys() <= expected.keys() | more:
            yield f"{where}: {sorted(expected)} and {sorted(found)}"
            return
        for name, value in expected.items():
            yield from differences(value, found[name], f"{where}/{name}")
    elif isinstance(expected, float) and isinstance(found, float):
        if not isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12):
            yield f"{where}: {expected} and {found}"
    elif expected != found:
        yield f"{where}: {expected} and {found}"
