"""However a replay is divided, its files are the same bytes and equal the reference."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.core.metrics.words import ARTICLES
from tests import oracle
from tests.helpers import examples
from tests.oracle.retrieval import METRICS
from tests.oracle.searches import rows
from tests.replays import AT_ONCE, IN_PARTS, SPOOLED, merged, replayed
from tests.strategies import KeyedRecord, arrivals, streams

BROKEN = [(b"c1", b"{", None), (b"c1", b'{"type": "unheard of"}', 7), (b"", b"\xff", None)]


@st.composite
def inputs(draw: st.DrawFn) -> list[KeyedRecord]:
    """The records of some streams in an order of arrival, some of them broken."""
    stream = draw(streams())
    arrived = [record for batch in draw(arrivals(stream)) for record in batch]
    for broken in draw(st.lists(st.sampled_from(BROKEN), max_size=3)):
        arrived.insert(draw(st.integers(0, len(arrived))), broken)
    return arrived


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(inputs(), st.sampled_from(["last", "all"]))
def test_the_execution_of_a_replay_has_no_effect(arrived: list[KeyedRecord], scope: str) -> None:
    """In one piece, from 64 shards, and from parts of these, all files are the same."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        at_once, spooled, in_parts = (
            replayed(records, Path(folder, str(n)), scale, turn_scope=scope)
            for n, scale in enumerate((AT_ONCE, SPOOLED, IN_PARTS))
        )

    assert spooled == at_once
    assert in_parts == at_once


@settings(max_examples=examples(40))
@given(inputs(), st.sampled_from(["last", "all"]))
def test_a_replay_gives_the_figures_of_the_reference(
    arrived: list[KeyedRecord], scope: str
) -> None:
    """Rows, windows, counts and bad records equal those of the brute-force reference."""
    given_records = [oracle.Record(value, key, at) for key, value, at in arrived]
    expected = oracle.evaluate(given_records, turn_scope=scope)
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]

    with tempfile.TemporaryDirectory() as folder:
        found = replayed(records, Path(folder), SPOOLED, turn_scope=scope)

    report = json.loads(found["report.json"])
    assert found["conversations.jsonl"].decode() == "".join(row + "\n" for row in expected.rows)
    assert found["windows.json"].decode() == expected.windows()
    assert report["counts"] == expected.counts
    bad = [(one["line"] - 1, one["reason"]) for one in report["bad_records"]["first"]]
    assert bad == expected.invalid


@settings(max_examples=examples(40))
@given(inputs(), st.integers(1, 4))
def test_merged_replays_equal_the_whole_replay(arrived: list[KeyedRecord], shares: int) -> None:
    """The merged replays of any number of inputs equal the replay of all of them."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        whole = replayed(records, Path(folder, "whole"), AT_ONCE)

        assert merged(records, Path(folder), shares) == whole


@st.composite
def with_reference_answers(draw: st.DrawFn) -> list[KeyedRecord]:
    """Records of turns of which some have reference answers, and none has labels."""
    found = []
    for key, value, at in draw(inputs()):
        event = _parsed(value)
        kind = event.get("type")
        if kind == "relevance_labels":
            continue
        if kind == "turn_completed":
            event.pop("relevant", None)
            event["reference_answers"] = draw(st.lists(st.sampled_from(TEXTS), max_size=2))
            value = json.dumps(event).encode()
        for search in event.get("searches") or () if kind == "search_iteration" else ():
            for result in search.get("results") or ():
                result.pop("gain", None)
            value = json.dumps(event).encode()
        found.append((key, value, at))
    return found


TEXTS = ["The Quarterly plan.", "the closing dates of the quarter", "", "Another plan of Strasse"]


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


WITHOUT_IDS = [
    (
        b"c1",
        b'{"conversation_id": "c1", "turn": 1, "occurred_at": "2024-05-13T08:30:00Z", ' + rest,
        None,
    )
    for rest in (
        b'"event_id": "e1", "type": "search_iteration", "iteration": 1, "searches": '
        b'[{"search_id": "s1", "results": [{"title": "Quarterly plan"}]}]}',
        b'"event_id": "e2", "type": "turn_completed", "relevant": ["D-1"], '
        b'"answer": "Yes.", "reference_answers": ["The quarterly plan"]}',
    )
]
"""Results without ids, of which the ground truth says nothing and reference answers would."""


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.one_of(inputs(), with_reference_answers()), st.sampled_from(["last", "all"]))
@example(WITHOUT_IDS, "last")
def test_searches_are_those_of_the_reference(arrived: list[KeyedRecord], scope: str) -> None:
    """Rows, strategies, scores and means over searches and turns equal those of the reference."""
    given_records = [oracle.Record(value, key, at) for key, value, at in arrived]
    expected = [
        row
        for turn in oracle.evaluate(given_records, turn_scope=scope).rowed
        for row in rows(turn, ARTICLES["en"])
    ]
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]

    with tempfile.TemporaryDirectory() as folder:
        found = replayed(records, Path(folder), SPOOLED, turn_scope=scope, metrics=tuple(METRICS))

    given_rows = [json.loads(line) for line in found["queries.jsonl"].splitlines()]
    for row in given_rows:
        row["scores"] = {name: row["scores"][name] for name in METRICS}
    assert [approximately(row) for row in expected] == given_rows
    block = json.loads(found["report.json"])["retrieval"]
    counts = Counter(row["strategy"] for row in expected)
    assert block["queries_without_judgement"] == counts.pop(None, 0)
    assert {name: n for name, n in block["strategy_counts"].items() if n} == counts
    for name in METRICS:
        by_turn: dict[tuple[str, int], list[float]] = {}
        for row in expected:
            if row["scores"][name] is not None:
                by_turn.setdefault((row["conversation_id"], row["turn"]), []).append(
                    row["scores"][name]
                )
        values = [value for several in by_turn.values() for value in several]
        means = [fmean(several) for several in by_turn.values()]
        one = block["metrics"][name]
        assert one["mean"] == pytest.approx(fmean(values) if values else None)
        assert one["macro_turn"]["mean"] == pytest.approx(fmean(means) if means else None)


def approximately(row: dict[str, Any]) -> dict[str, Any]:
    """The row, with scores compared approximately."""
    scores = {
        name: None if value is None else pytest.approx(value, abs=1e-12)
        for name, value in row["scores"].items()
    }
    return {**row, "scores": scores}
