"""No text of a user becomes a label, whatever spans are called, and no unknown span a decision."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.telemetry import Interpretation, Span
from tests.telemetry import agent, interpreted, model, of_kind, search, span, tool

CANARY = "QxWornChainQ"
ASKED = f"Why does {CANARY} jump on a worn chain?"
NAMES = st.sampled_from([ASKED, f"workshop.{ASKED}.execute", f"search {ASKED}", "step", CANARY * 9])
KINDS = st.sampled_from(["AGENT", "CHAIN", "LLM", "TOOL", "RETRIEVER", "EMBEDDING", ""])
SCOPES = st.sampled_from(
    [
        "app",
        "openinference.instrumentation.crewai",
        "openinference.instrumentation.langchain",
        "ai",
        "strands.telemetry.tracer",
    ]
)
TEXTS = st.sampled_from(["input.value", "gen_ai.retrieval.query.text", "task.name", "output.value"])


@st.composite
def traces(draw: st.DrawFn) -> list[Span]:
    """Spans of one trace with a question in names and texts, and sometimes names of agents."""
    spans: list[Span] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from(["", *(one.span_id for one in spans)])) if spans else ""
        attributes: dict[str, Any] = dict.fromkeys(draw(st.sets(TEXTS)), ASKED)
        if kind := draw(KINDS):
            attributes["openinference.span.kind"] = kind
        if kind == "RETRIEVER" and draw(st.booleans()):
            attributes["retrieval.documents.0.document.id"] = "a"
        if draw(st.booleans()):
            attributes["agent.name"] = draw(st.sampled_from(["desk", "expert"]))
        start = draw(st.integers(0, 50))
        spans.append(
            span(
                f"s{number}",
                parent,
                start,
                start + draw(st.integers(0, 50)),
                attributes,
                name=draw(NAMES),
                scope=draw(SCOPES),
            )
        )
    return spans


def labels(one: Interpretation) -> list[str | None]:
    """What becomes a label of a metric."""
    return [
        one.agent,
        *(refusal.agent for refusal in one.refusals),
        *(name for turn in one.turns for name in (turn.agent, turn.release)),
        *(
            name
            for turn in one.turns
            for each in turn.searches
            for name in (each.agent, each.route, each.release)
        ),
    ]


@given(traces())
def test_no_label_has_text_of_the_user(spans: list[Span]) -> None:
    """Neither in agents nor in routes, of turns and of refusals."""
    assert not any(CANARY in (name or "") for name in labels(interpreted(*spans)))


@given(
    st.sampled_from(["app", "my.scope", "requests", "psycopg"]),
    st.text(min_size=1, max_size=30),
    st.dictionaries(
        st.sampled_from(["db.system.name", "http.method", "code.function.name"]), st.just("x")
    ),
    st.booleans(),
)
def test_no_turn_with_an_unknown_span_is_a_decision(
    scope: str, name: str, attributes: dict[str, str], nested: bool
) -> None:
    """Whatever it is called, and wherever it is in the turn."""
    outer = of_kind("CHAIN", "c", "agent", 2, 9)
    unknown = span("x", "c" if nested else "agent", 3, 4, attributes, name=name, scope=scope)
    known = (agent(), model("m", "agent", 1), outer)

    assert interpreted(*known).turns[0].skipped
    one = interpreted(*known, unknown)
    assert not any(turn.skipped for turn in one.turns) or attributes.get("db.system.name")
    with_tool = interpreted(*known, tool("x", "agent", 3, name=name))
    assert not any(turn.skipped for turn in with_tool.turns) or name in ("finish", "think")
    assert interpreted(*known, search("s", "agent", 3)).turns[0].searches
