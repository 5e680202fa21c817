"""Labels joined with traces do not depend on order and equal labels sent as events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.events import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import Grading, Options, mapping
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.sources.evaluation_reader import EvaluationReader
from stream_metrics.lab.sources.otlp.traces import TraceStore
from tests.helpers import examples
from tests.otlp import RETRIEVER, START_NS, SpanSpec, as_json, documents

GRADING = Grading(cutoffs=((0.25, 1), (0.5, 2), (0.75, 4)))
START_US = START_NS // 1000
LETTERS = "abcdef"
RERANKER = {"openinference.span.kind": "RERANKER"}
AGENT = {"openinference.span.kind": "AGENT"}
MODEL = {"openinference.span.kind": "LLM"}


@dataclass(frozen=True)
class TraceSearch:
    """A search of a trace: the documents of its span, and those that the agent received from
    ``agent_span``."""

    trace: int
    span: int
    found: str
    agent_span: int
    received: str


@dataclass(frozen=True)
class Case:
    """Spans, rows about them, and the gains that the program recorded for them."""

    spans: list[SpanSpec]
    rows: list[dict[str, Any]]
    gains: list[tuple[str, str, int, int]]  # conversation, result, time, gain


def flat(prefix: str, letters: str) -> dict[str, Any]:
    """Documents as OpenInference attributes."""
    return {f"{prefix}.{at}.document.id": one for at, one in enumerate(letters)}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Traces with one turn each, with nested and reranked searches and scores of their spans."""
    spans, searches = [], []
    for trace in range(1, draw(st.integers(1, 3)) + 1):
        root = 100 * trace
        of_root = {**AGENT, "session.id": f"s-{trace % 2}"}
        spans.append(SpanSpec(trace, root, 0, 1000 * trace, 1000 * trace + 900, of_root))
        for number in range(1, draw(st.integers(1, 3)) + 1):
            span, at = root + 10 * number, 1000 * trace + 100 * number
            found = "".join(draw(st.lists(st.sampled_from(LETTERS), min_size=1, unique=True)))
            received, agent_span = found, span
            spans.append(SpanSpec(trace, span + 3, root, at - 5, at - 4, MODEL))
            retriever = {**RETRIEVER, **documents(*found)}
            spans.append(SpanSpec(trace, span, root, at, at + 50, retriever))
            inner = ""
            if draw(st.booleans()):
                inner = "".join(draw(st.permutations(found)))
                of_inner = {**RETRIEVER, **documents(*inner)}
                spans.append(SpanSpec(trace, span + 1, span, at + 1, at + 2, of_inner))
            if draw(st.booleans()):
                received = "".join(draw(st.lists(st.sampled_from(found), min_size=1, unique=True)))
                agent_span = span + 2
                of_reranker = {
                    **RERANKER,
                    **flat("reranker.input_documents", found),
                    **flat("reranker.output_documents", received),
                }
                spans.append(SpanSpec(trace, agent_span, root, at + 60, at + 70, of_reranker))
            searches.append(TraceSearch(trace, span, found, agent_span, received))
            if inner:
                searches.append(TraceSearch(trace, span + 1, inner, agent_span, received))
            if agent_span != span:
                searches.append(TraceSearch(trace, agent_span, received, agent_span, received))
    rows, wanted = [], []
    for _ in range(draw(st.integers(1, 12))):
        one = draw(st.sampled_from(searches))
        letter = draw(st.sampled_from(LETTERS))
        score, time_us = (
            draw(st.sampled_from([0.0, 0.3, 0.6, 1.0])),
            START_US + draw(st.integers(0, 2)),
        )
        row: dict[str, Any] = {"span_id": f"{one.span:016x}", "score": score}
        row |= {"time": time_us, "labeller": draw(st.sampled_from(["x", "y"]))}
        if draw(st.booleans()):
            row["trace_id"] = f"{one.trace:032x}"
        if draw(st.booleans()):
            row["doc_id"] = letter
        else:
            row["position"] = one.found.find(letter)
        rows.append(row)
        if letter in one.found and letter in one.received:
            result = f"{one.agent_span:016x}/{one.received.index(letter) + 1}"
            gain = sum(score >= smallest for smallest in (0.25, 0.5)) + 2 * (score >= 0.75)
            wanted.append((f"s-{one.trace % 2}", result, time_us, gain))
    disputed = {
        each[1:3] for each in wanted if len({w[3] for w in wanted if w[1:3] == each[1:3]}) > 1
    }
    return Case(spans, rows, [each for each in wanted if each[1:3] not in disputed])


def taken(case: Case, spans: list[SpanSpec], cuts: int) -> TraceStore:
    """The traces, in payloads of ``cuts`` spans."""
    found = TraceStore(mapping(), Options(grading=GRADING), Limits())
    for at in range(0, len(spans), cuts):
        found.add_payload(as_json(spans[at : at + cuts]))
    return found


def joined(case: Case, spans: list[SpanSpec], rows: list[dict[str, Any]], cuts: int) -> list[bytes]:
    """The label events that result from the join."""
    scores = EvaluationReader(mapping(), GRADING)
    for row in rows:
        scores.record(json.dumps(row).encode(), "row", None)
    with taken(case, spans, cuts) as traces:
        return [event.value for event in traces.label_events(scores.evaluations)[0]]


def replayed(case: Case, labels: list[bytes]) -> list[dict[str, Any]]:
    """The rows of the searches with these labels."""
    replay = Replay(turn_scope="all")
    with taken(case, case.spans, 1000) as traces:
        for record in traces.records():
            replay.feed(record)
    for value in labels:
        replay.feed(Record(value, json.loads(value)["conversation_id"].encode()))
    assert not replay.rejected
    return list(replay.rows())


@settings(max_examples=examples(100))
@given(cases(), st.randoms(use_true_random=False), st.integers(1, 9))
def test_the_order_of_rows_and_spans_has_no_effect(case: Case, random: Any, cuts: int) -> None:
    """The division of spans into payloads has none either: events are equal byte for byte."""
    spans, rows = [*case.spans], [*case.rows]
    random.shuffle(spans)
    random.shuffle(rows)

    assert joined(case, spans, rows, cuts) == joined(case, case.spans, case.rows, 1000)


@settings(max_examples=examples(100))
@given(cases())
def test_joined_labels_count_like_labels_sent_as_events(case: Case) -> None:
    """Each gain counts for the result as which the agent received the document."""
    with taken(case, case.spans, 1000) as traces:
        events = [json.loads(record.value or b"") for record in traces.records()]
    turns = {
        result["result_id"]: event["turn"]
        for event in events
        for search in event.get("searches", ())
        for result in search["results"]
    }
    given_directly = [
        json.dumps(
            {
                "type": "relevance_labels",
                "event_id": f"given-{number}",
                "occurred_at": time_us / 10**6,
                "conversation_id": conversation,
                "turn": turns[result],
                "labels": [{"result_id": result, "gain": gain}],
            }
        ).encode()
        for number, (conversation, result, time_us, gain) in enumerate(case.gains)
    ]

    found = replayed(case, joined(case, case.spans, case.rows, 1000))

    assert found == replayed(case, given_directly)
