"""Scores of evaluators: the result that each is about, the gain that it gives, and unused ones."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from stream_metrics.core.events import Limits, decode
from stream_metrics.core.events.decode import Event as Taken
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.wire import RelevanceLabels
from stream_metrics.core.telemetry import (
    HELP,
    Evaluation,
    Grading,
    Link,
    Options,
    Span,
    SpanEvent,
    apply_evaluations,
    events,
    interpret,
    label_events,
)
from stream_metrics.core.telemetry.labels.evaluations import evaluation_of_row, instant
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from stream_metrics.lab.replay.offline import Replay
from tests.telemetry import (
    MAPPING,
    OTEL,
    SCOPE,
    START_NS,
    agent,
    of_kind,
    reranker,
    search,
    span,
    tool,
)

GRADING = Grading(
    grades=(("relevant", 3), ("irrelevant", 0)),
    cutoffs=((0.5, 2), (0.9, 4)),
    document=("my.document", "metadata:document_id"),
    position=("my.position",),
)
WHEN_US = START_NS // 1000 + 5_000_000


def result(**attributes: Any) -> SpanEvent:
    """OpenTelemetry's event with a score of 0.95, which is the gain 4."""
    given = {"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.95}
    return SpanEvent("gen_ai.evaluation.result", START_NS + 7_000, {**given, **attributes})


def evaluator(id: str, parent: str, start: float, /, **attributes: Any) -> Span:
    """An evaluator's span that found a document relevant."""
    links = attributes.pop("links", ())
    given = {
        "evaluations.0.evaluation.name": "document relevance",
        "evaluations.0.evaluation.label": "relevant",
    }
    return of_kind("EVALUATOR", id, parent, start, attributes={**given, **attributes}, links=links)


def labelled(*spans: Span, grading: Grading = GRADING) -> tuple[dict[str, int], list[str]]:
    """The gains of a trace by result, and the reasons of unused scores."""
    interpreted = interpret(spans, MAPPING, Options(grading=grading))
    refused = sorted(
        reason for reason, number in interpreted.refused.items() for _ in range(number)
    )
    return {label.result_id: label.gain for label in interpreted.labels}, list(refused)


def given(
    spans: list[Span], *evaluations: Evaluation, grading: Grading = GRADING
) -> tuple[dict[str, int], list[str]]:
    """The same for evaluations from elsewhere."""
    interpreted, unused = apply_evaluations(spans, MAPPING, Options(grading=grading), evaluations)
    return {label.result_id: label.gain for label in interpreted.labels}, [
        one.reason for one in unused
    ]


def about(span_id: str, score: float = 1.0, **others: Any) -> Evaluation:
    """An evaluation of a span."""
    return Evaluation("line 1", span_id, others.pop("trace_id", ""), WHEN_US, score, **others)


# In the trace


def test_an_event_on_a_search_with_one_document_labels_it() -> None:
    """The event need not name the document."""
    one = search("s", "agent", 1, 2, found="a", events=(result(),))

    assert labelled(agent(), one) == ({"s/1": 4}, [])


def test_an_event_on_a_search_with_several_documents_is_ambiguous_unless_it_names_one() -> None:
    """By an attribute that a setting names: the id, the text or the place."""
    plain = search("s", "agent", 1, 2, found="abc", events=(result(),))
    by_id = search("s", "agent", 1, 2, found="abc", events=(result(**{"my.document": "b"}),))
    by_place = search("s", "agent", 1, 2, found="abc", events=(result(**{"my.position": 2}),))
    elsewhere = search("s", "agent", 1, 2, found="abc", events=(result(**{"my.document": "x"}),))
    beyond = search("s", "agent", 1, 2, found="abc", events=(result(**{"my.position": 3}),))

    assert labelled(agent(), plain) == ({}, ["label_ambiguous"])
    assert labelled(agent(), by_id) == ({"s/2": 4}, [])
    assert labelled(agent(), by_place) == ({"s/3": 4}, [])
    assert labelled(agent(), elsewhere) == ({}, ["label_no_document"])
    assert labelled(agent(), beyond) == ({}, ["label_no_document"])


def test_attributes_outside_the_settings_are_ignored() -> None:
    """Another product may give the same name another meaning."""
    one = search("s", "agent", 1, 2, found="ab", events=(result(**{"my.document": "b"}),))

    assert labelled(agent(), one, grading=Grading(cutoffs=((0.5, 2),)))[1] == ["label_ambiguous"]


def test_a_position_and_an_id_must_agree() -> None:
    """A score that contradicts itself labels nothing."""
    event = result(**{"my.document": "b", "my.position": 0})
    one = search("s", "agent", 1, 2, found="ab", events=(event,))

    assert labelled(agent(), one) == ({}, ["label_no_document"])


def test_openinference_annotations_are_about_the_span_that_carries_them() -> None:
    """Each is flattened under its number."""
    attributes = {
        "annotations.0.annotation.name": "Retrieval Relevance",
        "annotations.0.annotation.label": "Irrelevant",
        "annotations.1.annotation.name": "toxicity",
        "annotations.1.annotation.score": 1,
    }
    one = search("s", "agent", 1, 2, found="a", attributes=attributes)

    assert labelled(agent(), one) == ({"s/1": 0}, ["label_other_name"])


def test_an_evaluator_span_is_about_the_span_that_it_links_to() -> None:
    """Its parent does not matter, even if it is another search."""
    spans = [
        agent(),
        search("s", "agent", 1, 2, found="a"),
        search("other", "agent", 3, 9, found="b"),
        evaluator("e", "other", 4, links=(Link("t", "s"),)),
    ]

    assert labelled(*spans) == ({"s/1": 3}, [])


def test_an_evaluator_with_several_links_or_one_to_another_trace_labels_nothing() -> None:
    """The evaluated span is ambiguous or unknown here."""
    spans = [agent(), search("s", "agent", 1, 2, found="a")]
    two = evaluator("e", "agent", 4, links=(Link("t", "s"), Link("t", "agent")))
    other = evaluator("e", "agent", 4, links=(Link("u", "s"),))

    assert labelled(*spans, two) == ({}, ["label_no_span"])
    assert labelled(*spans, other) == ({}, ["label_no_span"])


def test_an_evaluator_inside_of_a_search_with_one_document_is_about_it() -> None:
    """This holds unless a link says otherwise."""
    spans = [agent(), search("s", "agent", 1, 9, found="a"), evaluator("e", "s", 4)]

    assert labelled(*spans) == ({"s/1": 3}, [])


def test_an_evaluator_after_searches_is_about_the_document_it_names_in_the_latest_one() -> None:
    """Without a name the document is unknown, even if there is only one."""
    spans = [
        agent(),
        search("s1", "agent", 1, 2, found="ab"),
        search("s2", "agent", 3, 4, found="ca"),
        search("s3", "agent", 8, 9, found="a"),
    ]
    by_setting = evaluator("e", "agent", 5, **{"metadata": '{"document_id": "a"}'})
    by_input = evaluator("e", "agent", 5, **{"retrieval.documents.0.document.id": "a"})

    assert labelled(*spans, by_setting) == ({"s2/2": 3}, [])
    assert labelled(*spans, by_input) == ({"s2/2": 3}, [])
    assert labelled(*spans, evaluator("e", "agent", 5)) == ({}, ["label_no_document"])


@pytest.mark.parametrize(
    "attributes",
    [
        {"output.value": '[{"name": "relevance", "score": 0.95, "kind": "llm"}]'},
        {"output.value": '{"score": 0.95, "label": "unsure"}', "metadata": "{}"},
        {"output.value": "0.95"},
        {"metadata": '{"evaluator_name": "relevance", "score": 0.95}', "output.value": "yes"},
        {"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.95},
    ],
)
def test_scores_of_evaluator_spans_are_found_where_products_write_them(
    attributes: dict[str, Any],
) -> None:
    """They are in the output, in the metadata, or in OpenTelemetry's attributes."""
    one = of_kind(
        "EVALUATOR", "e", "s", 2, attributes=attributes, name="relevance", links=(Link("t", "s"),)
    )

    assert labelled(agent(), search("s", "agent", 1, 9, found="a"), one) == ({"s/1": 4}, [])


def test_evaluators_of_phoenix_name_the_document_by_its_text() -> None:
    """The attributes are those that arize-phoenix-evals 3.9.4 writes.

    Cut-offs do not apply to scores whose attributes say that lower is better.
    """
    attributes = {
        "input.value": '{"input": "q", "document_text": "the text"}',
        "metadata": '{"evaluator.kind": "code", "evaluator.class": "_FunctionEvaluator"}',
        "output.value": '[{"name": "document_relevance", "score": 0.9, "metadata": {"trace_id": '
        '"954cdb44b95252cd777bc6f9fe620364"}, "kind": "code", "direction": "maximize"}]',
    }
    texts = {
        f"retrieval.documents.{n}.document.content": f"{one} text"
        for n, one in ((0, "another"), (1, "the"))
    }
    spans = [
        agent(),
        of_kind("RETRIEVER", "s", "agent", 1, 2, attributes=texts),
        of_kind("EVALUATOR", "e", "agent", 4, attributes=attributes),
    ]
    by_text = replace(GRADING, document=("input.value:document_text",))
    lower = {"output.value": attributes["output.value"].replace("maximize", "minimize")}
    inverse = of_kind("EVALUATOR", "e", "agent", 4, attributes={**attributes, **lower})

    assert labelled(*spans, grading=by_text) == ({"s/2": 4}, [])
    assert labelled(*spans) == ({}, ["label_no_document"])
    assert labelled(*spans[:2], inverse, grading=by_text) == ({}, ["label_no_grade"])


def test_an_evaluation_that_is_a_span_of_its_own_is_about_the_search_around_it() -> None:
    """Senders without span events write it so; on another span the attributes are about
    that span."""
    attributes = {"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": 0.95}
    event = span("e", "s", 2, 2, attributes, name="gen_ai.evaluation.result")
    found = search("s", "agent", 1, 9, found="a")
    itself = search("s", "agent", 1, 9, found="a", attributes=attributes)

    assert labelled(agent(), found, event) == ({"s/1": 4}, [])
    assert labelled(agent(), itself) == ({"s/1": 4}, [])
    assert labelled(agent(attributes=attributes), found) == ({}, ["label_no_document"])


def test_evaluators_count_whichever_instrumentation_wrote_them() -> None:
    """`otlp.scopes` chooses whose searches count, not who judges them."""
    spans = [
        agent(),
        search("s", "agent", 1, 2, found="a"),
        search("o", "agent", 20, 21, found="a", scope="another", events=(result(),)),
        evaluator("e", "agent", 4, links=(Link("t", "s"),)),
    ]
    spans[-1] = msgspec.structs.replace(spans[-1], scope="evaluators")
    scopes = ScopeChoice(frozenset({SCOPE}))
    interpreted = interpret(spans, MAPPING, Options(grading=GRADING, scopes=scopes))

    assert [(label.result_id, label.gain) for label in interpreted.labels] == [("s/1", 3)]
    assert dict(interpreted.refused) == {"label_no_search": 1}


def test_scores_of_spans_around_very_many_searches_are_refused() -> None:
    """The cost of finding the document is bounded; scores of searches are cheap."""
    around = [span(f"x{n}", f"x{n - 1}" if n else "agent", 1, 9, {}) for n in range(500)]
    inside = [search(f"s{n}", "x499", 10 * n, 10 * n + 5) for n in range(5000)]
    spans = [agent(end=10**6), *around, *inside]

    gains, reasons = given(spans, about("x3", document="a"), about("s7"))

    assert (gains, reasons) == ({"s7/1": 4}, ["too_large"])


def test_other_evaluations_are_counted_and_label_nothing() -> None:
    """The correctness of an answer says nothing about a document."""
    event = result(**{"gen_ai.evaluation.name": "Correctness"})
    one = search("s", "agent", 1, 2, found="a", events=(event,))

    assert labelled(agent(), one) == ({}, ["label_other_name"])
    names = Grading(names=("correct*",), cutoffs=((0.5, 1),))
    assert labelled(agent(), one, grading=names) == ({"s/1": 1}, [])


def test_without_a_setting_scores_are_unused_and_searches_are_events() -> None:
    """The reason names the settings."""
    one = search("s", "agent", 1, 2, found="a", events=(result(),))
    interpreted = interpret([agent(), one], MAPPING)

    assert dict(interpreted.refused) == {"label_no_grade": 1}
    assert len(interpreted.turns) == 1
    assert "labels.grades" in HELP["label_no_grade"]
    assert "labels.cutoffs" in HELP["label_no_grade"]


def test_simultaneous_scores_that_disagree_are_refused() -> None:
    """Nothing says which one is the revision; equal gains are one label."""
    low = result(**{"gen_ai.evaluation.score.value": 0.1})
    twice = search("s", "agent", 1, 2, found="a", events=(result(), low))
    same = search("s", "agent", 1, 2, found="a", events=(result(), result()))

    assert labelled(agent(), twice) == ({}, ["label_conflict", "label_conflict"])
    assert labelled(agent(), same) == ({"s/1": 4}, [])


def test_labels_of_a_trace_are_valid_events() -> None:
    """There is one event per turn, time and labeller, with an id from its content."""
    one = search(
        "s",
        "agent",
        1,
        2,
        found="ab",
        events=(
            result(**{"my.position": 0}),
            result(**{"my.position": 1, "gen_ai.evaluation.score.value": 0.6}),
        ),
    )
    interpreted = interpret([agent(), one], MAPPING, Options(grading=GRADING))
    *_, event = events(interpreted)
    value = json.loads(event.value)

    taken = decode(event.value, timestamp_ms=None, limits=Limits())
    assert isinstance(taken, Taken)
    assert isinstance(taken.payload, RelevanceLabels)
    assert value["labels"] == [{"result_id": "s/1", "gain": 4}, {"result_id": "s/2", "gain": 2}]
    assert value["labeller"] == "Relevance"
    assert value["turn"] == interpreted.turns[0].number
    assert value["conversation_id"] == event.conversation == "t"
    assert value["occurred_at"] == "2024-06-10T12:00:00.000007Z"


# Joined with a trace


def chunks(id: str, start: float, *found: dict[str, Any]) -> Span:
    """A search tool that returns these."""
    return tool(id, "agent", start, start + 1, output=json.dumps(found))


def test_a_score_that_names_a_page_is_ambiguous_if_a_search_returned_several_parts_of_it() -> None:
    """The text names one of them."""
    texts = [f"Section {number} says something of its own, and at some length." for number in "ab"]
    spans = [agent(), chunks("s", 1, *({"id": "leave", "text": text} for text in texts))]

    assert given(spans, about("s", document="leave")) == ({}, ["label_ambiguous"])
    assert given(spans, about("s", document=texts[1])) == ({"s/2": 4}, [])


def test_a_label_on_a_nested_span_goes_to_the_part_of_the_page_with_the_same_text() -> None:
    """Without a text it may be any of them."""
    texts = [f"Section {number} says something of its own, and at some length." for number in "ab"]
    found = json.dumps([{"id": "leave", "text": text} for text in texts])
    spans = [agent(), tool("t", "agent", 1, 9, output=found)]
    named = {"retrieval.documents.0.document.id": "leave"}
    with_text = named | {"retrieval.documents.0.document.content": texts[1]}

    def inner(attributes: dict[str, str]) -> Span:
        return of_kind("RETRIEVER", "s", "t", 2, 3, attributes=attributes)

    assert given([*spans, inner(with_text)], about("s", position=0)) == ({"t/2": 4}, [])
    assert given([*spans, inner(named)], about("s", position=0)) == ({}, ["label_ambiguous"])


def test_a_score_may_name_a_chunk_without_its_document() -> None:
    """If two documents have such a chunk, the score has to say which."""
    one, two = ({"chunk_id": "c0", "doc_id": name, "text": name} for name in ("leave", "travel"))
    spans = [agent(), chunks("s", 1, one), chunks("s2", 3, one, two)]

    assert given(spans, about("s", document="c0")) == ({"s/1": 4}, [])
    assert given(spans, about("s2", document="c0")) == ({}, ["label_ambiguous"])
    assert given(spans, about("s2", document="travel#c0")) == ({"s2/2": 4}, [])


def test_a_label_on_a_nested_span_goes_to_the_result_with_the_same_document() -> None:
    """The tool's results are recorded; the nested retriever has them in another order."""
    spans = [
        agent(),
        tool(
            "t", "agent", 1, 9, output='[{"id": "b", "content": "B"}, {"id": "a", "content": "A"}]'
        ),
        search("s", "t", 2, 3, found="abc"),
    ]

    assert given(spans, about("s", position=0)) == ({"t/2": 4}, [])
    assert given(spans, about("s", document="b")) == ({"t/1": 4}, [])
    assert given(spans, about("s", position=2)) == ({}, ["label_no_document"])
    assert given(spans, about("t", position=0)) == ({"t/1": 4}, [])


def test_a_label_on_a_search_goes_to_the_results_of_its_reranker() -> None:
    """The agent never received what the reranker left out."""
    spans = [
        agent(),
        search("s", "agent", 1, 2, found="abc"),
        reranker("r", "agent", 3, "abc", "cb"),
        reranker("q", "agent", 5, "cb", "b"),
    ]

    assert given(spans, about("s", position=1)) == ({"q/1": 4}, [])
    assert given(spans, about("r", position=1)) == ({"q/1": 4}, [])
    assert given(spans, about("s", position=2)) == ({}, ["label_no_document"])


def test_a_label_on_a_span_of_another_instrumentation_goes_to_the_search_that_counts() -> None:
    """Both recorded one call; the other may have no ids."""
    otel = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.documents": '[{"id": "a"}, {"id": "b"}]',
    }
    spans = [
        agent(),
        search("s", "agent", 1, 2, found="ab"),
        span("o", "agent", 1, 2, otel, scope=OTEL),
    ]

    found = [given(spans, about(id, position=1)) for id in ("s", "o")]

    assert found[0] == found[1]
    assert len(found[0][0]) == 1


def test_a_score_on_a_span_around_searches_must_name_a_unique_document() -> None:
    """A score of an answer, or of a chain, is not about a document."""
    spans = [
        agent(),
        search("s1", "agent", 1, 2, found="a"),
        search("s2", "agent", 3, 4, found="ab"),
    ]

    assert given(spans, about("agent", document="b")) == ({"s2/2": 4}, [])
    assert given(spans, about("agent", document="a")) == ({}, ["label_ambiguous"])
    assert given(spans, about("agent", document="x")) == ({}, ["label_no_document"])
    assert given(spans[:2], about("agent")) == ({}, ["label_no_document"])
    assert given(spans[:2], about("agent", position=0)) == ({}, ["label_no_document"])


def test_each_unused_score_has_a_reason() -> None:
    """There is no span, no search, or the turn or trace was refused."""
    spans = [agent(), search("s", "agent", 1, 2, found="a"), of_kind("LLM", "m", "agent", 5)]
    cut = of_kind("RETRIEVER", "s", "agent", 1, dropped_attributes=3)
    orphan = search("s", "gone", 1, 2, found="a")

    assert given(spans, about("x")) == ({}, ["label_no_span"])
    assert given(spans, about("s", trace_id="u")) == ({}, ["label_no_span"])
    assert given(spans, about("")) == ({}, ["label_no_span"])
    assert given(spans, about("m")) == ({}, ["label_no_search"])
    assert given([agent(), cut], about("s")) == ({}, ["label_not_told"])
    assert given([orphan], about("s")) == ({}, ["label_not_told"])
    assert given(spans, about("s", 0.1, name="bias")) == ({}, ["label_other_name"])
    assert given(spans, about("s"), grading=Grading()) == ({}, ["label_no_grade"])
    early = Evaluation("line 1", "s", "", 5, 1.0)
    assert given(spans, early) == ({}, ["label_malformed"])


def test_a_document_found_twice_by_a_search_is_labelled_once() -> None:
    """Both results are the same document."""
    spans = [agent(), search("s", "agent", 1, 2, found="aba")]

    assert given(spans, about("s", document="a")) == ({"s/1": 4}, [])


def test_an_address_shared_by_chunks_identifies_none_of_them() -> None:
    """Their ids or positions do."""
    chunks = {
        f"retrieval.documents.{at}.document.{name}": value
        for at, id in enumerate("ab")
        for name, value in (("id", id), ("metadata", '{"source": "https://example.org/page"}'))
    }
    spans = [agent(), of_kind("RETRIEVER", "s", "agent", 1, attributes=chunks)]

    assert given(spans, about("s", document="https://example.org/page"))[1] == ["label_ambiguous"]
    assert given(spans, about("s", document="b")) == ({"s/2": 4}, [])


def test_the_order_of_spans_and_scores_has_no_effect() -> None:
    """Events are equal byte for byte."""
    spans = [
        agent(),
        search("s1", "agent", 1, 2, found="ab"),
        search("s2", "agent", 3, 4, found="ab"),
        reranker("r", "agent", 5, "ab", "ba"),
    ]
    scores = [
        Evaluation("x", id, "", WHEN_US + at % 2, at / 4, position=at % 2, name="relevance")
        for at in range(5)
        for id in ("s1", "s2", "r")
    ]

    def written() -> list[Any]:
        interpreted, unused = apply_evaluations(spans, MAPPING, Options(grading=GRADING), scores)
        return [*label_events(interpreted.trace_id, interpreted.labels), *sorted(unused)]

    expected = written()
    for seed in range(20):
        random.Random(seed).shuffle(spans)
        random.Random(seed).shuffle(scores)
        assert written() == expected
    assert len(expected) > 3


def test_a_later_score_replaces_an_earlier_one() -> None:
    """The order of replay does not matter; repeating a score has no effect."""
    spans: list[Span] = [agent(), search("s", "agent", 1, 2, found="a")]
    interpreted = interpret(spans, MAPPING)
    searches = [Record(event.value, event.conversation.encode()) for event in events(interpreted)]

    def records(score: float, time_us: int) -> list[Record]:
        one = Evaluation("x", "s", "", time_us, score)
        found, _ = apply_evaluations(spans, MAPPING, Options(grading=GRADING), [one])
        return [Record(e.value, e.conversation.encode()) for e in label_events("t", found.labels)]

    first, revised = records(1.0, WHEN_US), records(0.5, WHEN_US + 1)

    for order in ([first, revised], [revised, first], [revised, first, first, revised]):
        replay = Replay()
        for record in [*searches, *(one for each in order for one in each)]:
            replay.feed(record)
        [row] = replay.rows()
        assert row["iterations"][0]["gain"] == 2


# Rows of tables


def test_a_row_without_a_required_field_is_refused() -> None:
    """It needs a span, and a score that is a number."""
    with pytest.raises(ValueError, match="no span_id; it has score"):
        evaluation_of_row({"score": 1}, GRADING, "line 1", 0)
    with pytest.raises(ValueError, match="score is no number"):
        evaluation_of_row({"span_id": "a", "score": "high"}, GRADING, "line 1", 0)
    with pytest.raises(ValueError, match="'yesterday' is no time"):
        evaluation_of_row(
            {"span_id": "a", "score": 1, "created_at": "yesterday"}, GRADING, "line 1", 0
        )


def test_nested_columns_are_read_like_flat_ones() -> None:
    """Phoenix' API returns annotations in this form."""
    row = {
        "name": "relevance",
        "span_id": "0A" * 8,
        "document_position": 1,
        "annotator_kind": "LLM",
        "result": {"label": "relevant", "score": 0.9, "explanation": None},
        "updated_at": "2026-11-23T09:00:00+00:00",
        "created_at": "2026-11-22T09:00:00+00:00",
    }

    found = evaluation_of_row(row, GRADING, "line 1", 0)

    assert (found.span_id, found.position, found.label, found.score) == (
        "0a" * 8,
        1,
        "relevant",
        0.9,
    )
    assert found.time_us == instant("2026-11-23T09:00:00Z")
    assert (found.name, found.labeller) == ("relevance", "relevance")


def test_ranks_count_from_one_and_positions_from_zero() -> None:
    """Both may be text, as in CSV; an impossible position labels nothing."""
    row = {"span_id": "a", "score": "1"}

    assert evaluation_of_row({**row, "rank": "1"}, GRADING, "", 0).position == 0
    assert evaluation_of_row({**row, "position": "1"}, GRADING, "", 0).position == 1
    assert evaluation_of_row({**row, "rank": 0}, GRADING, "", 0).position == -1
    assert evaluation_of_row({**row, "position": 0.5}, GRADING, "", 0).position == -1
    assert evaluation_of_row(row, GRADING, "", 0).position is None


def test_times_are_read_in_every_unit() -> None:
    """No number is a time between 2000 and 2100 in two of them."""
    seconds = 1_795_424_400

    found = {instant(seconds * unit) for unit in (1, 10**3, 10**6, 10**9)}

    assert found == {seconds * 10**6}
    assert instant(str(seconds)) == instant(float(seconds)) == seconds * 10**6
    assert instant("soon") is instant(5) is instant(None) is None
