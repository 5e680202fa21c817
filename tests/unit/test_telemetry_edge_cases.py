"""Edge cases: traces that look valid and are either interpreted correctly or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from stream_metrics.core.telemetry import Row, SpanEvent, interpret, mapping
from stream_metrics.core.telemetry.contents.documents import documents_in_value
from stream_metrics.core.telemetry.retrieval.page_ids import LONG_TEXT
from stream_metrics.core.telemetry.roles.mapping import Role
from tests.telemetry import (
    CONFORMANCE,
    agent,
    capture,
    interpreted,
    model,
    of_kind,
    reranker,
    search,
    searched,
    span,
    tool,
    traces,
)


def documents(letters: str, **others: Any) -> str:
    """A tool's result."""
    return json.dumps([{"id": letter, "content": f"text {letter}"} | others for letter in letters])


# What evaluators, and models inside of searches, are to a turn.


def test_spans_inside_an_evaluator_are_ignored() -> None:
    """Its model call separates no searches, and its own searches and agents are not the agent's."""
    judge = of_kind("EVALUATOR", "judge", "agent", 3, 6)
    spans = (
        agent(),
        model("m", "agent", 0),
        search("s1", "agent", 1, found="a"),
        judge,
        model("verdict", "judge", 4),
        search("evidence", "judge", 5, found="z"),
        agent("inner", 3, 6, parent="judge"),
        search("s2", "agent", 7, found="b"),
    )

    assert searched(interpreted(*spans)) == [(1, "a"), (1, "b")]
    assert (
        interpreted(judge, agent("inner", 3, 6, parent="judge"), model("m", "inner", 4)).turns == ()
    )


def test_a_model_call_inside_a_search_separates_no_iterations() -> None:
    """If all model calls rewrite queries or rerank, iterations are inferred from times."""
    one = interpreted(
        agent(),
        search("s1", "agent", 1, 5, found="a"),
        model("rewrite", "s1", 2),
        search("s2", "agent", 6, 9, found="b"),
        model("rewrite again", "s2", 7),
    )

    assert searched(one) == [(1, "a"), (2, "b")]
    assert one.turns[0].iterations_inferred


# Truncated spans.


@pytest.mark.parametrize("kind", ["LLM", "RETRIEVER", "AGENT", "RERANKER"])
def test_a_turn_with_a_span_without_its_kind_is_truncated(kind: str) -> None:
    """SDKs drop the oldest attributes, and instrumentations set the kind first."""
    lost = of_kind(kind, "lost", "agent", 3, dropped_attributes=1)
    lost.attributes.pop("openinference.span.kind")
    one = interpreted(agent(), search("s1", "agent", 1), lost, search("s2", "agent", 5))

    assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_turns_inside_a_span_without_its_kind_are_refused() -> None:
    """The span may have been the agent of which they are parts."""
    lost = span("lost", end=100, dropped_attributes=9)
    one = interpreted(
        lost,
        agent("a1", 1, 9, parent="lost"),
        search("s1", "a1", 2),
        agent("a2", 11, 19, parent="lost"),
        search("s2", "a2", 12),
    )

    assert (one.turns, one.refused) == ((), {"truncated": 2})


def test_attributes_with_different_documents_are_refused() -> None:
    """One of them was cut off, or describes something else."""
    for output in ('[{"id": "a"}, {"id": "b"}]', '[{"id": "b"}]'):
        one = interpreted(search("s", "", 1, found="a", attributes={"output.value": output}))

        assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_texts_suffice_if_the_truncated_attribute_had_no_ids() -> None:
    """The output is complete, and its texts identify its documents."""
    attributes = {
        "retrieval.documents.1.document.content": "y",
        "output.value": '{"documents": [{"page_content": "x"}, {"page_content": "y"}]}',
    }
    one = interpreted(of_kind("RETRIEVER", "s", attributes=attributes, dropped_attributes=2))

    assert [len(found.results) for found in one.turns[0].searches] == [2]


# Calls that failed.


def test_a_failed_tool_has_no_results() -> None:
    """The results of a search inside it do not count either."""
    said = {"type": "tool", "data": {"content": "timeout", "status": "error", "tool_call_id": "1"}}
    for failed in (
        of_kind("TOOL", "t", "agent", 1, 9, failed=True),
        tool("t", "agent", 1, 9, output=json.dumps(said)),
    ):
        one = interpreted(agent(), failed, search("s", "t", 2, found="abc"))

        assert searched(one) == [(1, "")]


def test_a_failed_search_has_no_results() -> None:
    """For example a retriever that compresses the results of another."""
    outer = of_kind("RETRIEVER", "outer", "agent", 1, 9, failed=True)

    assert searched(interpreted(agent(), outer, search("s", "outer", 2, found="abc"))) == [(1, "")]


def test_searches_of_a_failed_agent_tool_count() -> None:
    """Model calls, or a turn inside it, show that it is an agent."""
    failed = of_kind("TOOL", "helper", "agent", 1, 9, failed=True)
    inner = search("s", "helper", 4, found="a")

    assert searched(interpreted(agent(), failed, model("m", "helper", 2), inner)) == [(1, "a")]
    assert searched(interpreted(agent(), failed, agent("sub", 1, 9, parent="helper"), inner)) == [
        (1, "a")
    ]


# Tools.


def test_a_tool_whose_retriever_calls_a_model_is_a_search() -> None:
    """A model call next to the search makes the tool an agent; one inside the search does not."""
    one = interpreted(
        agent(),
        tool("lookup", "agent", 1, 9, output=documents("a")),
        search("s", "lookup", 2, 8, found="abc"),
        model("compress", "s", 3),
    )

    assert searched(one) == [(1, "a")]


@pytest.mark.parametrize(
    "attributes",
    [
        {"tool.name": "handbook"},
        {"tool.name": "ask_kb"},
        {"tool.name": "policies", "tool.description": "Search the company's policies."},
    ],
)
def test_a_search_tool_with_a_text_result_is_refused(attributes: dict[str, str]) -> None:
    """Its name or its description shows that its result was found by a search."""
    call = of_kind("TOOL", "t", "agent", 3, attributes=attributes | {"output.value": "some text"})
    one = interpreted(agent(), model("m", "agent", 1), call)

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


@pytest.mark.parametrize("name", ["chroma.query", "qdrant.search", "milvus.hybrid_search"])
def test_a_vector_database_query_outside_searches_is_refused(name: str) -> None:
    """The agent searched, and no span records the results; writes are not searches."""
    database = span("q", "agent", 3, name=name, scope="opentelemetry.instrumentation.chromadb")
    one = interpreted(agent(), model("m", "agent", 1), database)
    write = span("q", "agent", 3, name="chroma.add")

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})
    assert interpreted(agent(), model("m", "agent", 1), write).turns[0].skipped


# Redacted texts.


@pytest.mark.parametrize(
    "text",
    ["*****", "<fully masked due to failed mask function>", "[REDACTED]", "…", "XXXXX", "[masked]"],
)
def test_a_redacted_text_is_no_text(text: str) -> None:
    """Otherwise all documents would be one."""
    attributes = {
        f"retrieval.documents.{at}.document.content": one for at, one in enumerate(["a b c", text])
    }
    one = interpreted(of_kind("RETRIEVER", "s", attributes=attributes))

    assert (one.turns, one.refused) == ((), {"no_identity": 1})


# Which spans are turns.


AGENTS = "openinference.instrumentation.openai_agents"


def test_each_run_in_a_trace_of_the_agents_sdk_is_a_turn() -> None:
    """The trace's root span is an agent too, and holds a session; agents after a handoff are not
    turns."""
    spans = [of_kind("AGENT", "trace", end=100, scope=AGENTS, name="workshop")]
    for at, run in enumerate(("r1", "r2")):
        start = 10 * at
        spans += [
            of_kind("CHAIN", run, "trace", start, start + 9, scope=AGENTS, name="Agent workflow"),
            agent(f"{run}a", start, start + 4, parent=run, scope=AGENTS),
            of_kind("CHAIN", f"{run}s", f"{run}a", start, start + 4, scope=AGENTS, name="turn"),
            tool(f"{run}t", f"{run}s", start + 1, output=documents("ab"), scope=AGENTS),
            agent(f"{run}b", start + 5, start + 9, parent=run, scope=AGENTS),
        ]
    one = interpreted(*spans)

    assert [turn.span_id for turn in one.turns] == ["r1", "r2"]
    assert searched(one) == [(1, "ab"), (1, "ab")]


def test_an_agent_tool_of_the_agents_sdk_is_no_turn() -> None:
    """Of nested runs only the outermost counts."""
    one = interpreted(
        of_kind("AGENT", "trace", end=100, scope=AGENTS),
        of_kind("CHAIN", "outer", "trace", 1, 90, scope=AGENTS, name="Agent workflow"),
        agent("lead", 2, 80, parent="outer", scope=AGENTS),
        tool("ask", "lead", 3, 70, scope=AGENTS),
        of_kind("CHAIN", "inner", "ask", 4, 60, scope=AGENTS, name="Agent workflow"),
        agent("sub", 5, 50, parent="inner", scope=AGENTS),
        model("m", "sub", 6, scope=AGENTS),
        tool("search", "sub", 8, output=documents("a"), scope=AGENTS),
    )

    assert [turn.span_id for turn in one.turns] == ["outer"]


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ({"openinference.span.kind": "CHAIN"}, "metadata:{}"),
        ({"langsmith.span.kind": "chain"}, "langsmith.metadata.{}"),
        ({"langfuse.observation.type": "chain"}, "langfuse.observation.metadata.{}"),
        ({"mlflow.spanType": '"CHAIN"'}, "metadata:{}"),
    ],
)
def test_a_graph_is_a_turn_and_its_agents_are_none(kind: dict[str, Any], metadata: str) -> None:
    """LangGraph marks its runs; a graph of an older version has its default name."""

    def marked(id: str, parent: str, start: float, end: float, **about: str) -> Any:
        named = (
            {"metadata": json.dumps(about)}
            if ":" in metadata
            else {metadata.format(name): value for name, value in about.items()}
        )
        return span(id, parent, start, end, kind | named, name=about.get("name", id))

    spans = (
        span("socket", end=100, scope="app"),
        marked("g1", "socket", 1, 40, ls_integration="langgraph"),
        marked("n1", "g1", 2, 30, ls_integration="langgraph", langgraph_node="ask_agent"),
        search("s1", "n1", 3),
        marked("g2", "socket", 50, 90, name="LangGraph"),
        search("s2", "g2", 60),
    )

    assert [turn.span_id for turn in interpreted(*spans).turns] == ["g1", "g2"]


def test_a_node_that_is_named_agent_is_no_turn() -> None:
    """LangChain's kind is AGENT for any name that contains "agent", also a tool's."""
    in_graph = {"metadata": '{"langgraph_node": "agent"}'}
    one = interpreted(
        span("graph", end=100, attributes={"openinference.span.kind": "CHAIN"}),
        agent("research_agent", 1, 9, parent="graph", attributes=in_graph),
        search("s1", "research_agent", 2),
        agent("writing_agent", 11, 19, parent="graph", attributes=in_graph),
        search("s2", "writing_agent", 12),
    )
    named = {
        "tool.name": "agent_search",
        "input.value": '{"query": "?"}',
        "output.value": documents("ab"),
    }

    assert len(one.turns) == 1
    assert searched(interpreted(agent(), agent("t", 1, 9, parent="agent", attributes=named))) == [
        (1, "ab")
    ]


def test_a_workflow_of_llama_index_under_openllmetry_is_no_turn() -> None:
    """Its outermost spans have that kind, and its retrievers are still searches."""
    scope = "opentelemetry.instrumentation.llamaindex"
    nodes = [json.dumps({"node": {"id_": id, "text": id}, "score": 1.0}) for id in "ab"]

    def of_class(id: str, name: str, start: float, parent: str = "turn", **others: Any) -> Any:
        kind = {"traceloop.span.kind": name.rpartition(".")[2]}
        return span(id, parent, start, start + 5, kind | others, name=name, scope=scope)

    found = {"traceloop.entity.output": json.dumps(nodes)}
    one = interpreted(
        span("turn", end=100, scope="app"),
        of_class("r1", "VectorIndexRetriever.workflow", 0, **found),
        of_class("inner", "VectorIndexRetriever.task", 1, "r1", **found),
        of_class("engine", "RetrieverQueryEngine.workflow", 10),
        of_class("r2", "VectorIndexRetriever.task", 11, "engine", **found),
    )

    assert searched(one) == [(1, "ab"), (2, "ab")]
    assert len(one.turns) == 1
    assert one.turns[0].iterations_inferred


@pytest.mark.parametrize(
    ("output", "turns", "refused"),
    [
        ({"retriever": {"documents": [{"id": "a", "content": "x"}]}}, 1, {}),
        ({"llm": {"replies": ["so"]}}, 0, {"content_off": 1}),
        (
            {name: {"documents": [{"id": name, "content": "x"}]} for name in ("keyword", "vector")},
            0,
            {"unrecognised": 1},
        ),
    ],
)
def test_a_haystack_pipeline_under_openllmetry_must_return_documents(
    output: dict[str, Any], turns: int, refused: dict[str, int]
) -> None:
    """Its components have no spans, so one that returns no documents may still have searched."""
    one = interpreted(
        span("turn", end=100, scope="app"),
        span(
            "p",
            "turn",
            1,
            attributes={
                "traceloop.span.kind": "workflow",
                "traceloop.entity.output": json.dumps(output),
            },
            name="haystack_pipeline.workflow",
            scope="opentelemetry.instrumentation.haystack",
        ),
    )

    assert (len(one.turns), one.refused) == (turns, refused)


def test_haystacks_components_are_known_when_they_run_asynchronously() -> None:
    """Their spans then have another method's name."""
    scope = "openinference.instrumentation.haystack"
    passed = {
        "input.value": json.dumps({"documents": ["Document(id=a)", "Document(id=b)"]}),
        "output.value": json.dumps({"documents": ["Document(id=b)"]}),
    }
    one = interpreted(
        agent(scope=scope),
        search("s", "agent", 1, found="ab", scope=scope),
        of_kind("CHAIN", "p", "agent", 5, name="Keeper.run_async", scope=scope, attributes=passed),
    )

    assert searched(one) == [(1, "b")]


# Outputs of steps.


def _step(id: str, start: float, output: str, given: str = "", name: str = "") -> Any:
    def docs(letters: str) -> str:
        return json.dumps({"docs": [{"id": one, "page_content": one} for one in letters]})

    attributes = {"output.value": docs(output), "input.value": docs(given)}
    return of_kind("CHAIN", id, "agent", start, attributes=attributes, name=name or id)


@pytest.mark.parametrize(
    ("handed_on", "given", "fine"),
    [
        ("ab", "", True),  # what the first search returned
        ("abcd", "", True),  # both, one after the other
        ("a", "", False),
        ("ba", "", False),
        ("cd", "abcd", False),  # the second search's, out of what was given
        ("cd", "cd", True),
        ("xy", "", False),  # of no search
        ("xy", "yx", True),  # such as documents that came with the question
    ],
)
def test_steps_must_output_documents_of_searches_unchanged(
    handed_on: str, given: str, fine: bool
) -> None:
    """Otherwise a step without a span filtered, sorted or found them."""
    one = interpreted(
        agent(),
        search("s1", "agent", 1, found="ab"),
        search("s2", "agent", 3, found="cd"),
        _step("grade", 5, handed_on, given),
    )

    assert (len(one.turns), one.refused) == (fine, {} if fine else {"unrecognised": 1})


def test_a_component_that_adds_documents_is_refused() -> None:
    """It is traced like any component, next to a known search."""
    scope = "openinference.instrumentation.haystack"
    found = {"output.value": json.dumps({"documents": ["Document(id=x)"]})}
    one = interpreted(
        agent(scope=scope),
        search("s", "agent", 1, found="ab", scope=scope),
        of_kind("CHAIN", "c", "agent", 3, name="Kb.run", scope=scope, attributes=found),
    )

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


# Which documents are the same.


def texts(*each: str, **others: Any) -> dict[str, Any]:
    """Attributes of a search with these texts as results."""
    return {
        f"retrieval.documents.{at}.document.{name}": value
        for at, text in enumerate(each)
        for name, value in ({"content": text} | {k: v[at] for k, v in others.items()}).items()
    }


def found(id: str, start: float, attributes: dict[str, Any]) -> Any:
    """A retriever with these attributes."""
    return of_kind("RETRIEVER", id, "agent", start, attributes=attributes)


def test_ids_generated_for_each_search_are_ignored() -> None:
    """Frameworks generate them for documents without ids; ids that recur are real."""
    made = [f"00000000-0000-4000-8000-{number:012}" for number in range(4)]
    one = interpreted(
        agent(),
        found("s1", 1, texts("x", "y", id=made[:2])),
        found("s2", 3, texts("y", "x", id=made[2:])),
    )
    real = interpreted(
        agent(),
        found("s1", 1, texts("x", "y", id=made[:2])),
        found("s2", 3, texts("y", "x", id=[made[1], made[2]])),
    )

    assert (one.turns, one.refused) == ((), {"no_identity": 2})
    assert len(real.turns) == 1


def test_truncated_texts_do_not_identify_documents() -> None:
    """Several texts that end at the same conventional length were cut off there."""
    long = [
        f"{number} " + "x" * (126 if cut else 140 + number) for cut in (0, 1) for number in (1, 2)
    ]

    cut = interpreted(agent(), found("s", 1, texts(*long[2:])))
    assert (cut.turns, cut.refused) == ((), {"truncated": 1})
    assert len(interpreted(agent(), found("s", 1, texts(*long[:2]))).turns) == 1
    assert len(interpreted(agent(), found("s", 1, texts(*long[2:], id=["a", "b"]))).turns) == 1


def test_documents_of_one_search_with_one_text_and_without_ids_are_refused() -> None:
    """Masking produces such texts."""
    one = interpreted(agent(), found("s", 1, texts("(see above)", "(see above)")))

    assert (one.turns, one.refused) == ((), {"no_identity": 1})


def test_a_text_takes_the_id_of_the_same_text() -> None:
    """A tool that omits ids returned documents of another search."""
    x, y, z = (letter * (LONG_TEXT + 1) for letter in "xyz")
    one = interpreted(
        agent(), found("s1", 1, texts(x, y, id=["a", "b"])), found("s2", 3, texts(y, z))
    )

    first, second = one.turns[0].searches
    assert [result.doc_id for result in first.results] == ["a", "b"]
    assert second.results[0].doc_id == "b"


def test_a_turn_and_its_searches_are_of_one_conversation() -> None:
    """An agent tool may run in its own conversation, which makes the turn's conversation
    ambiguous."""
    own, other = {"session.id": "x"}, {"session.id": "y"}
    one = interpreted(agent(attributes=own), search("s", "agent", 1, attributes=other))

    assert (one.turns, one.refused) == ((), {"no_conversation": 1})
    assert interpreted(search("s", "", 1, attributes=other)).turns[0].conversation == "y"


def test_concurrent_steps_make_iterations_inferred() -> None:
    """For example those of concurrent agents that are tools of another."""
    spans = [agent(scope=AGENTS)]
    for step, start in (("p1", 1), ("p2", 5)):
        spans += [
            of_kind("CHAIN", step, "agent", start, start + 9, name="turn", scope=AGENTS),
            search(f"{step}s", step, start + 1, found=step[-1], scope=AGENTS),
        ]

    assert interpreted(*spans).turns[0].iterations_inferred


def test_a_chain_under_openllmetry_is_no_turn() -> None:
    """A graph, which has another provider, is one."""
    scope = "opentelemetry.instrumentation.langchain"
    for provider, turns in (("langchain", 1), ("langgraph", 2)):
        kind = {
            "traceloop.span.kind": "workflow",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": provider,
        }
        one = interpreted(
            span("app", end=100, scope="app"),
            span("w1", "app", 1, 9, kind, scope=scope, name="rag.workflow"),
            search("s1", "w1", 2, scope=scope),
            span("w2", "app", 11, 19, kind, scope=scope, name="rag.workflow"),
            search("s2", "w2", 12, scope=scope),
        )

        assert len(one.turns) == turns


# What decides iterations.


def test_a_step_between_two_searches_makes_iterations_inferred() -> None:
    """The program made a decision there, or the span of a model call was lost."""
    spans = (
        agent(),
        model("m", "agent", 0),
        search("s1", "agent", 1, found="a"),
        search("s2", "agent", 5, found="b"),
    )
    step = of_kind("CHAIN", "rewrite", "agent", 3)

    assert not interpreted(*spans).turns[0].iterations_inferred
    assert interpreted(*spans, step).turns[0].iterations_inferred


def test_clock_skew_makes_iterations_inferred() -> None:
    """A search that begins before its tool was timed by another clock."""
    spans = (
        agent(),
        model("m1", "agent", 1),
        search("s1", "agent", 3, found="a"),
        model("m2", "agent", 5),
        tool("t", "agent", 7, 12),
    )

    assert not interpreted(*spans, search("s2", "t", 8, found="b")).turns[0].iterations_inferred
    assert interpreted(*spans, search("s2", "t", 4, found="b")).turns[0].iterations_inferred


# Forms of documents.


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ('[{"id": "a", "score": NaN}, {"id": "b", "score": -Infinity}]', ["a", "b"]),
        ('[{"id": "a", "blob": null, "shown": true, "score": NaN}]', ["a"]),
        ("[Document(id='a', metadata={'on': date(2026, 1, 1)}, page_content='x')]", ["a"]),
        ("[{'id': UUID('00000000-0000-4000-8000-000000000001'), 'text': 'x'}]", None),
    ],
)
def test_python_literals_and_invalid_json_numbers_are_read(
    value: str, ids: list[str] | None
) -> None:
    """Numbers that JSON lacks, dates, and ids that are not texts are read."""
    found = documents_in_value(value)

    assert isinstance(found, list)
    made = ["00000000-0000-4000-8000-000000000001"]
    assert [document.id for document in found] == (made if ids is None else ids)


def test_documents_of_several_events_are_refused() -> None:
    """It is unknown whether each event has all of them, or a part."""
    event = SpanEvent("e", 0, {"gen_ai.retrieval.documents": '[{"id": "a"}]'})
    kind = {"gen_ai.operation.name": "retrieval"}

    assert searched(interpreted(span("s", attributes=kind, events=(event,)))) == [(1, "a")]
    assert interpreted(span("s", attributes=kind, events=(event, event))).refused == {
        "unrecognised": 1
    }


# What hides whether it changed anything.


@pytest.mark.parametrize(
    ("attributes", "others", "reason"),
    [
        ({"input.value": "__REDACTED__", "output.value": "__REDACTED__"}, {}, "content_off"),
        ({"input.value": '{"nodes": ["<Node', "output.value": '["<Nod'}, {}, "truncated"),
        ({}, {"dropped_attributes": 2}, "truncated"),
        ({"input.value": "{}", "output.value": '"text"'}, {}, None),
        ({}, {}, None),
    ],
)
def test_a_postprocessor_that_hides_its_documents_is_refused(
    attributes: dict[str, str], others: dict[str, Any], reason: str | None
) -> None:
    """It is refused if it ran after a search; one that records an empty list changes nothing."""
    scope = "openinference.instrumentation.llama_index"
    post = of_kind(
        "CHAIN",
        "p",
        "agent",
        5,
        name="Rerank._postprocess_nodes",
        scope=scope,
        attributes=attributes,
        **others,
    )
    one = interpreted(agent(scope=scope), search("s", "agent", 1, found="ab", scope=scope), post)

    assert one.refused == ({} if reason is None else {reason: 1})


def test_a_step_that_removes_all_results_is_refused() -> None:
    """The agent then received none of the results."""
    without_documents = of_kind(
        "CHAIN",
        "grade",
        "agent",
        5,
        attributes={
            "input.value": json.dumps({"documents": [[{"id": "a", "page_content": "a"}]]}),
            "output.value": '{"documents": []}',
        },
    )
    one = interpreted(agent(), search("s", "agent", 1, found="a"), without_documents)

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_tool_with_a_truncated_result_is_refused() -> None:
    """The result may have been documents, whatever the tool's name."""
    call = tool("policies", "agent", 3, output='[{"id": "a", "cont')
    one = interpreted(agent(), model("m", "agent", 1), call)

    assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_a_run_without_its_identifying_attribute_is_refused() -> None:
    """A session in one trace would be one turn."""
    kind = {"mlflow.spanType": "AGENT"}
    one = interpreted(
        span("trace", end=100, attributes=kind),
        span("run", "trace", 1, 9, kind, dropped_attributes=3),
        search("s", "run", 2),
    )

    assert (one.turns, one.refused) == ((), {"truncated": 1})


def test_turns_that_two_instrumentations_count_differently_are_refused() -> None:
    """It is unknown which instrumentation is right."""
    one = interpreted(
        span("root", end=100, scope="app"),
        agent("whole", 0, 90, parent="root", scope="one"),
        search("s1", "whole", 2, 4, scope="one"),
        search("s2", "whole", 12, 14, found="b", scope="one"),
        agent("first", 1, 9, parent="root"),
        search("t1", "first", 2.1, 4.1),
        agent("second", 11, 19, parent="root"),
        search("t2", "second", 12.1, 14.1, found="b"),
    )

    assert (one.turns, one.refused) == ((), {"two_scopes": 1})
    empty = [agent(f"e{at}", at, 90, parent="root", scope="ab"[at % 2]) for at in range(4)]
    assert interpreted(span("root", end=100), *empty).refused == {}


# Spans of the program itself.


def test_spans_that_a_program_names_turns_are_turns() -> None:
    """They yield to agents inside them, name no agent, and are never skips."""
    spans = (
        span("socket", end=100, scope="app"),
        span("t1", "socket", 1, 9, scope="app", name="turn"),
        search("s1", "t1", 2),
        span("t2", "socket", 11, 19, scope="app", name="turn"),
        search("s2", "t2", 12),
        span("t3", "socket", 21, 29, scope="app", name="turn"),
        model("m", "t3", 22),
    )
    one = interpreted(*spans)

    assert [turn.span_id for turn in one.turns] == ["t1", "t2"]
    assert {turn.agent for turn in one.turns} == {"service"}
    first = (*spans[:2], agent("a", 1, 4, parent="t1"), search("s", "a", 2))
    second = (agent("b", 5, 8, parent="t1"), search("r", "b", 6))
    assert [turn.span_id for turn in interpreted(*first).turns] == ["a"]
    assert [turn.span_id for turn in interpreted(*first, *second).turns] == ["t1"]


def test_program_spans_with_one_name_that_may_be_turns_are_refused() -> None:
    """A setting makes the trace the turn; spans with different names are its parts."""
    for name, refused in (("ask", {"unrecognised": 1}), ("answer", {})):
        spans = (
            span("socket", end=100, scope="app"),
            span("t1", "socket", 1, 9, scope="app", name="ask"),
            search("s1", "t1", 2),
            span("t2", "socket", 11, 19, scope="app", name=name),
            search("s2", "t2", 12),
        )

        assert interpreted(*spans).refused == refused
        assert len(interpreted(*spans, turn="trace").turns) == 1


def test_chains_that_may_be_graphs_are_refused_where_there_are_several() -> None:
    """LoongSuite does not distinguish them; a nested one is a part of the outer one."""
    chain = {"gen_ai.span.kind": "CHAIN", "gen_ai.operation.name": "chain"}
    spans = [span("socket", end=100, scope="app")]
    for at, id in enumerate(("g1", "g2")):
        start = 10 * at
        spans += [
            span(id, "socket", start, start + 9, chain, name="chain workshop"),
            span(f"{id}n1", id, start + 1, start + 3, chain, name="chain retrieve"),
            search(f"{id}s1", f"{id}n1", start + 1),
            span(f"{id}n2", id, start + 5, start + 8, chain, name="chain retrieve"),
            search(f"{id}s2", f"{id}n2", start + 6),
        ]

    assert interpreted(*spans).refused == {"unrecognised": 1}
    assert len(interpreted(*spans[:6]).turns) == 1


def test_graphs_of_a_session_in_one_trace_are_turns_if_their_first_step_has_a_span() -> None:
    """LoongSuite writes a span `chain __start__` into graphs, whatever their names."""
    apart = traces(capture("langchain-loongsuite-graph", CONFORMANCE))
    session = span("5e", start=-9e9, end=9e9, scope="app", trace_id="7")
    together = [
        replace(one, trace_id="7", parent_id=one.parent_id or "5e")
        for each in apart
        for one in each
    ]
    one = interpreted(session, *together)

    assert not one.refused
    assert len(one.turns) == len(apart) == 3
    assert {turn.agent for turn in one.turns} == {"workshop"}
    alone = {turn.number: turn.searches for each in apart for turn in interpreted(*each).turns}
    assert {turn.number: turn.searches for turn in one.turns} == alone


@pytest.mark.parametrize("outer", ["chain agent", "chain RunnableSequence"])
def test_a_graph_inside_a_chain_that_may_be_one_is_no_turn(outer: str) -> None:
    """Graphs that an agent calls as its tools are parts of its turn."""
    chain = {"gen_ai.span.kind": "CHAIN", "gen_ai.operation.name": "chain"}
    spans = [span("outer", start=0, end=100, attributes=chain, name=outer)]
    for at, id in enumerate(("g1", "g2")):
        start = 10 * at + 1
        spans += [
            model(f"{id}m", "outer", start),
            span(id, "outer", start + 2, start + 9, chain, name="chain searcher"),
            span(f"{id}a", id, start + 2, start + 3, chain, name="chain __start__"),
            search(f"{id}s", id, start + 4),
        ]

    assert [len(turn.searches) for turn in interpreted(*spans).turns] == [2]


def test_graphs_in_a_chain_without_its_own_model_are_refused() -> None:
    """They may be turns of a session; no model call in the chain requested them."""
    chain = {"gen_ai.span.kind": "CHAIN", "gen_ai.operation.name": "chain"}
    spans = [span("outer", start=0, end=100, attributes=chain, name="chain session")]
    for at, id in enumerate(("g1", "g2")):
        start = 10 * at + 1
        spans += [
            span(id, "outer", start + 2, start + 9, chain, name="chain workshop"),
            span(f"{id}a", id, start + 2, start + 3, chain, name="chain __start__"),
            model(f"{id}m", id, start + 3),
            search(f"{id}s", id, start + 5),
        ]

    assert interpreted(*spans).refused == {"unrecognised": 1}
    assert [len(turn.searches) for turn in interpreted(*spans, turn="trace").turns] == [2]
    assert [len(turn.searches) for turn in interpreted(*spans[:5]).turns] == [1]
    for role, name, searches in (
        (Role.TURN, "chain workshop", [1, 1]),
        (Role.TURN, "chain session", [2]),
        (Role.OTHER, "chain workshop", [2]),
    ):
        one = interpret(spans, mapping([Row(role, span=name)]))
        assert [len(turn.searches) for turn in one.turns] == searches


@pytest.mark.parametrize(
    "attributes",
    [
        {"db.system.name": "elasticsearch", "db.operation.name": "search"},
        {"db.system": "opensearch", "db.operation": "msearch"},
    ],
)
def test_a_search_engine_query_outside_searches_is_refused(
    attributes: dict[str, str],
) -> None:
    """Its client's span does not record the results."""
    one = interpreted(agent(), model("m", "agent", 1), span("q", "agent", 3, attributes=attributes))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_data_store_tool_is_a_search_tool() -> None:
    """The conventions have a tool type for that."""
    kind = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.type": "datastore",
        "gen_ai.tool.name": "policies",
        "gen_ai.tool.call.result": "some text",
    }
    one = interpreted(agent(), model("m", "agent", 1), span("t", "agent", 3, attributes=kind))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_ids_that_number_results_are_ignored() -> None:
    """Tools number the results that a model is to cite; ids that stay with their texts are real."""
    places = ["1", "2"]
    one = interpreted(
        agent(),
        found("s1", 1, texts("x", "y", id=places)),
        found("s2", 3, texts("y", "z", id=places)),
    )
    same = interpreted(
        agent(),
        found("s1", 1, texts("x", "y", id=places)),
        found("s2", 3, texts("x", "y", id=places)),
    )

    assert (one.turns, one.refused) == ((), {"no_identity": 2})
    assert len(same.turns) == 1


def test_an_inner_agent_without_model_calls_makes_iterations_inferred() -> None:
    """The outer agent's model calls do not show the decisions of the inner one."""
    spans = (
        agent(),
        model("m", "agent", 0),
        tool("ask", "agent", 1, 20),
        agent("inner", 2, 19, parent="ask"),
        search("s1", "inner", 3, found="a"),
        search("s2", "inner", 6, found="b"),
    )

    assert interpreted(*spans).turns[0].iterations_inferred
    asked = interpreted(*spans, model("asked", "inner", 2.5))
    assert (searched(asked), asked.turns[0].iterations_inferred) == ([(1, "a"), (1, "b")], False)


def test_a_reranker_does_not_replace_an_unrelated_one() -> None:
    """Its input comes from a search without a span that found the same."""
    one = interpreted(
        agent(),
        of_kind("CHAIN", "p1", "agent", 0, 5),
        search("s1", "p1", 1, found="abc"),
        reranker("r1", "p1", 3, "abc", "ca"),
        of_kind("CHAIN", "p2", "agent", 6, 9),
        reranker("r2", "p2", 8, "ca", "a"),
    )

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_postprocessor_that_ran_before_its_search_is_refused() -> None:
    """The clocks disagree on their order."""
    scope = "openinference.instrumentation.llama_index"
    nodes = [f"<NodeWithScore(node=TextNode(id_={id}), score=0.5)>" for id in "ab"]
    passed = {"input.value": json.dumps({"nodes": nodes}), "output.value": json.dumps(nodes[:1])}
    name = "Rerank._postprocess_nodes"
    post = of_kind("CHAIN", "p", "agent", 1, name=name, scope=scope, attributes=passed)
    one = interpreted(agent(scope=scope), post, search("s", "agent", 5, found="ab", scope=scope))

    assert (one.turns, one.refused) == ((), {"time_out_of_range": 1})


def test_concurrent_agents_make_iterations_inferred() -> None:
    """The model of one separates the searches of the other, unless each is a tool."""

    def spans(around: Any) -> list[Any]:
        made = [agent(), model("m", "agent", 0)]
        for id, start in (("a", 1), ("b", 3)):
            made += [
                around(id, "agent", start, start + 20),
                model(f"{id}m", id, start + 1),
                search(f"{id}s1", id, start + 5, found=id),
                model(f"{id}n", id, start + 8),
                search(f"{id}s2", id, start + 11, found=id),
            ]
        return made

    nodes = interpreted(*spans(lambda *place: of_kind("CHAIN", *place))).turns[0]
    assert nodes.iterations_inferred
    assert not interpreted(*spans(tool)).turns[0].iterations_inferred
