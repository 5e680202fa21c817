"""The interpretation of traces does not depend on the order of spans, nor fail on any content."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.settings import OtlpSettings
from stream_metrics.core.telemetry import (
    PRESETS,
    Grading,
    Link,
    Options,
    Span,
    SpanEvent,
    events,
    interpret,
)
from stream_metrics.core.telemetry.explanation import explain
from stream_metrics.core.telemetry.interpret import Details
from stream_metrics.core.telemetry.labels.evaluations import NO_GRADES, RESULT
from stream_metrics.core.telemetry.otlp.payloads import spans_of
from tests.helpers import examples
from tests.otlp import SpanSpec, as_json, as_protobuf
from tests.telemetry import MAPPING, START_NS

NAMES = sorted(
    {name for row in PRESETS for name in (*row.documents, *row.inputs, *row.query, *row.answer)}
    | {"metadata", "session.id", "gen_ai.agent.name", "tool.name", "gen_ai.tool.name"}
    | {f"retrieval.documents.{at}.document.id" for at in (0, 1, 3, 99999999)}
    | {f"evaluations.{at}.evaluation.{name}" for at in (0, "x") for name in ("score", "label")}
    | {f"annotations.0.annotation.{name}" for name in ("name", "score", "metadata")}
    | {"gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label", "document", "position"}
)
GRADING = Grading(("*",), (("a", 3),), ((0.5, 2),), ("document", "metadata:id"), ("position",))
KINDS = [pair for row in PRESETS for pair in row.when if pair[1]]
TEXTS = [
    "",
    "a",
    "__REDACTED__",
    '[{"id": "a"}, {"id": "b"}]',
    '{"documents": [{"page_content": "x", "metadata": {"source": "https://example.org/a"}}]}',
    '{"documents": [',
    '"[{\\"id\\": \\"a\\"}]"',
    "[Document(id='a', page_content='x')]",
    "<NodeWithScore(node=TextNode(id_=a), score=nan)>",
    "[" * 5000,
    "-" * 300 + "1",
    "[" + "-" * 300 + "1]",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
VALUES: st.SearchStrategy[Any] = st.sampled_from(TEXTS) | st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "documents", "content", "type", "kwargs", "metadata", "score"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
LINKS = st.sampled_from([0, 0, 1, 2])
IDS = [f"{number:016x}" for number in range(1, 8)]


@st.composite
def any_spans(draw: st.DrawFn) -> list[Span]:
    """Arbitrary spans of one trace."""
    found = []
    for _ in range(draw(st.integers(0, 9))):
        attributes = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
        attributes |= dict(draw(st.lists(st.sampled_from(KINDS), max_size=2)))
        start_ns = draw(st.sampled_from([0, 5, START_NS, START_NS + 2_000_000, 2**63 - 1]))
        found.append(
            Span(
                draw(st.sampled_from(["t", "t", "t", ""])),
                draw(st.sampled_from([*IDS, ""])),
                draw(st.sampled_from(["", "", *IDS, "invalid"])),
                start_ns,
                start_ns + draw(st.sampled_from([0, 1_000_000, 9_000_000, -5])),
                draw(st.booleans()),
                attributes,
                draw(st.dictionaries(st.sampled_from(["service.name"]), SCALARS, max_size=1)),
                draw(st.sampled_from(["search", "turn", "DocumentJoiner.run", "x"])),
                scope=draw(st.sampled_from(["", *(row.scope for row in PRESETS)])),
                events=tuple(
                    SpanEvent(draw(st.sampled_from(["e", RESULT])), 0, one)
                    for one in draw(
                        st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), max_size=1)
                    )
                ),
                dropped_attributes=draw(st.sampled_from([0, 0, 3])),
                links=tuple(Link("t", draw(st.sampled_from(IDS))) for _ in range(draw(LINKS))),
            )
        )
    return found


OPTIONS = st.builds(
    Options,
    turn=st.sampled_from(["span", "trace"]),
    content=st.booleans(),
    missing_parents=st.sampled_from(["refuse", "root"]),
    grading=st.sampled_from([NO_GRADES, GRADING]),
)


@settings(max_examples=examples(300))
@given(any_spans(), OPTIONS, st.randoms(use_true_random=False))
def test_order_and_repetition_have_no_effect(
    spans: list[Span], options: Options, random: Any
) -> None:
    """Events and refusals equal those of the original order."""
    again = [*spans, *(random.choice(spans) for _ in range(3) if spans)]
    random.shuffle(again)
    usual = [span for span in again if span.trace_id and span.span_id]
    first = interpret([span for span in spans if span.trace_id and span.span_id], MAPPING, options)
    other = interpret(usual, MAPPING, options)

    assert [*events(first)] == [*events(other)]
    assert first.refused == other.refused


@settings(max_examples=examples(300))
@given(any_spans(), OPTIONS)
def test_no_content_of_spans_fails_the_interpretation(spans: list[Span], options: Options) -> None:
    """Unusable spans are counted under a reason."""
    one = interpret(spans, MAPPING, options)

    assert sum(one.refused.values()) >= len(one.refusals)
    assert one.spans + one.repeated + one.refused["bad_id"] == len(spans)


@settings(max_examples=examples(50))
@given(any_spans(), OPTIONS)
def test_any_spans_are_explained_with_valid_settings(spans: list[Span], options: Options) -> None:
    """Each search of a turn is told once, and each row that is proposed can be in the settings."""
    details = Details()
    one = interpret(spans, MAPPING, options, details)
    seen = [*explain(spans, MAPPING, details, one)]

    searches = [search.span_id for turn in one.turns for search in turn.searches]
    assert sorted(each.span_id for each in seen if each.outcome == "search") == sorted(searches)
    for row, _ in (row for each in seen for row in each.rows):
        OtlpSettings().with_row(row)


@settings(max_examples=examples(50))
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), max_size=4))
def test_both_encodings_give_the_same_spans(attributes: dict[str, Any]) -> None:
    """Scope, name and dropped counts are read from both."""
    made = [SpanSpec(1, 2, 3, attributes=attributes)]

    assert spans_of(as_json(made)) == spans_of(as_protobuf(made))
