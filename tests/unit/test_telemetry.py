"""Which spans become turns, iterations and searches, and which are refused for which reason."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stream_metrics.core.events import Limits, decode
from stream_metrics.core.events.decode import Event
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry import (
    HELP,
    Interpretation,
    Options,
    Role,
    Row,
    events,
    interpret,
    mapping,
)
from stream_metrics.core.telemetry.contents.documents import documents_in_value
from stream_metrics.core.telemetry.recordings import Recordings
from stream_metrics.core.telemetry.roles.scopes import ScopeChoice
from stream_metrics.core.telemetry.spans import NO_ID, Span
from stream_metrics.lab.replay.offline import Replay
from tests.telemetry import (
    EXPECTED,
    MAPPING,
    OTEL,
    SCOPE,
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
    values,
)

Figures = tuple[str, int, int, float]

NOT_IN_THE_SPANS = {
    "langchain-otel-noid": {"no_identity": 8},
}
GROUPED_BY_TIME = "langchain-otel-partool"
TOLD_TWICE = "langchain-openinference-graph-and-otel"


def figures(name: str, **options: Any) -> tuple[list[Figures], Counter[str], bool]:
    """Rows of a captured program's turns with results, the refusals, and whether times grouped
    searches."""
    found = [interpret(spans, MAPPING, Options(**options)) for spans in traces(capture(name))]
    found.sort(key=lambda one: [turn.number for turn in one.turns])
    recordings = Recordings()
    for one in found:
        recordings.refuse_repeated(one)
    replay = Replay(turn_scope="all")
    for event in (event for one in found for event in events(one)):
        replay.feed(Record(event.value, event.conversation.encode(), event.occurred_us // 1000))
    assert not replay.rejected
    rows = [
        (row["conversation_id"], len(row["iterations"]), row["results"], row["srr"])
        for row in replay.rows()
        if row["results"]
    ]
    refused: Counter[str] = Counter()
    for one in found:
        refused.update(one.refused)
    return rows, refused, any(turn.iterations_inferred for one in found for turn in one.turns)


def expected(name: str) -> list[Figures]:
    """The turns that the program itself recorded."""
    return [
        (row["conversation_id"], row["iterations"], row["results"], row["srr"])
        for row in EXPECTED[name]
    ]


@pytest.mark.parametrize(
    "name", sorted(EXPECTED.keys() - NOT_IN_THE_SPANS - {GROUPED_BY_TIME, TOLD_TWICE})
)
def test_rows_of_a_captured_program_equal_its_own_account(name: str) -> None:
    """Iterations, results and SRR of each turn equal those that the agent program recorded."""
    rows, refused, _ = figures(name)

    assert (rows, refused) == (expected(name), {})


@pytest.mark.parametrize("name", sorted(NOT_IN_THE_SPANS))
def test_a_capture_without_what_figures_need_is_refused(name: str) -> None:
    """Turns whose spans lack required data have no rows."""
    rows, refused, _ = figures(name)

    assert (rows, refused) == ([], NOT_IN_THE_SPANS[name])


def test_searches_are_certain_where_only_time_groups_them() -> None:
    """Without model calls results and SRR hold, and iterations are marked as inferred."""
    rows, refused, inferred = figures(GROUPED_BY_TIME)

    assert [(row[0], *row[2:]) for row in rows] == [
        (row[0], *row[2:]) for row in expected(GROUPED_BY_TIME)
    ]
    assert (refused, inferred) == ({}, True)


def test_turns_that_two_instrumentations_recorded_in_separate_traces_count_once() -> None:
    """The second trace of each turn is refused; restricted to one scope, nothing else is."""
    rows, refused, _ = figures(TOLD_TWICE)
    assert (rows, refused) == (expected(TOLD_TWICE), {"two_scopes": len(rows)})

    for scope in (SCOPE, OTEL):
        scopes = ScopeChoice(by_service={"probe": frozenset({scope})})
        rows, refused, _ = figures(TOLD_TWICE, scopes=scopes)
        assert (rows, refused) == (expected(TOLD_TWICE), {"left_out": len(rows)})


def test_every_event_is_valid() -> None:
    """The worker accepts each event of each capture."""
    for name in EXPECTED:
        for spans in traces(capture(name)):
            for event in events(interpret(spans, MAPPING)):
                key = event.conversation.encode()
                assert isinstance(decode(event.value, key=key, limits=Limits()), Event)


def test_a_turn_without_a_search_is_a_skip() -> None:
    """Its gate event has the turn's start as its time and the turn's span as its id."""
    one = interpreted(agent(start=5, end=9), model("m", "agent", 6))

    [event] = values(one)
    assert event["gate"] == {"decision": "skip"}
    assert (event["event_id"], event["iteration"]) == ("t:agent:gate", 1)
    assert event["turn"] == 1_718_020_800_005_000
    assert interpreted(agent()).turns == ()  # no model answered


def test_a_model_call_between_searches_separates_them() -> None:
    """Searches without a model call between them form one iteration, even in sequence."""
    spans = (
        agent(),
        model("m1", "agent", 0),
        search("s1", "agent", 2, found="a"),
        search("s2", "agent", 4, found="b"),
        model("m2", "agent", 6),
        search("s3", "agent", 8, found="c"),
    )

    assert searched(interpreted(*spans)) == [(1, "a"), (1, "b"), (2, "c")]
    assert not interpreted(*spans).turns[0].iterations_inferred


def test_a_model_call_inside_a_tool_separates_only_searches_inside_it() -> None:
    """A tool that calls a model does not begin an iteration outside itself."""
    spans = (
        agent(),
        model("m1", "agent", 0),
        tool("t1", "agent", 2, 20),
        search("s1", "t1", 3, found="a"),
        model("inner", "t1", 5),
        search("s2", "t1", 7, found="b"),
        tool("t2", "agent", 3, 30),
        search("s3", "t2", 9, found="c"),
    )

    assert searched(interpreted(*spans)) == [(1, "a"), (1, "c"), (2, "b")]


def test_without_model_calls_iterations_are_inferred_from_times() -> None:
    """Overlapping searches form one iteration, and iterations are marked as inferred; a final model
    call separates none."""
    spans = (
        agent(),
        search("s1", "agent", 0, 5, found="a"),
        search("s2", "agent", 1, 6, found="b"),
        search("s3", "agent", 7, found="c"),
        model("answer", "agent", 9),
    )

    assert searched(interpreted(*spans)) == [(1, "a"), (1, "b"), (2, "c")]
    assert interpreted(*spans).turns[0].iterations_inferred


def test_step_spans_determine_iterations() -> None:
    """The turns of the OpenAI Agents loop are iterations, whatever times the spans inside have."""
    scope = "openinference.instrumentation.openai_agents"
    spans = (
        agent(scope=scope),
        of_kind("CHAIN", "p1", "agent", 0, 9, name="turn", scope=scope),
        of_kind("CHAIN", "p2", "agent", 10, 19, name="turn", scope=scope),
        search("s1", "p1", 1, found="a", scope=scope),
        search("s2", "p1", 4, found="b", scope=scope),
        search("s3", "p2", 11, found="c", scope=scope),
    )

    assert searched(interpreted(*spans)) == [(1, "a"), (1, "b"), (2, "c")]


def test_the_outermost_search_that_names_documents_counts() -> None:
    """Intermediate results of nested retrievers do not count."""
    one = interpreted(
        agent(),
        search("outer", "agent", 1, 9, found="ab"),
        search("inner", "outer", 2, found="abc"),
    )

    assert searched(one) == [(1, "ab")]
    assert one.nested == 1


def test_a_tool_that_returns_documents_is_a_search() -> None:
    """Its route is the tool's name, and searches inside it do not count separately."""
    output = json.dumps([{"id": "a", "content": "text"}])
    one = interpreted(
        agent(), tool("lookup", "agent", 1, 9, output=output), search("s", "lookup", 2)
    )

    assert searched(one) == [(1, "a")]
    assert one.turns[0].searches[0].route == "lookup"


def test_a_tool_with_a_model_call_and_searches_is_an_agent() -> None:
    """An agent that is used as a tool returns documents of its own searches."""
    output = json.dumps([{"id": "z", "content": "text"}])
    one = interpreted(
        agent(),
        tool("helper", "agent", 1, 9, output=output),
        model("m", "helper", 2),
        search("s", "helper", 4, found="a"),
    )

    assert searched(one) == [(1, "a")]


def test_a_reranker_replaces_the_search_before_it() -> None:
    """The reranker's results count, each with its rank before reranking."""
    one = interpreted(
        agent(),
        search("s1", "agent", 1, found="abc"),
        reranker("r1", "agent", 3, "abc", "ca"),
        model("m", "agent", 5),
        search("s2", "agent", 7, found="abd"),
        reranker("r2", "agent", 9, "abd", "d"),
    )

    assert searched(one) == [(1, "ca"), (2, "d")]
    assert [r.baseline_rank for r in one.turns[0].searches[0].results] == [3, 1]
    assert one.turns[0].searches[0].span_id == "r1"


def test_rerankers_of_concurrent_branches_replace_their_own_searches() -> None:
    """An earlier search that returned all inputs is preferred to the latest search."""
    one = interpreted(
        agent(),
        of_kind("CHAIN", "b1", "agent", 0, 9),
        of_kind("CHAIN", "b2", "agent", 0, 9),
        search("s1", "b1", 1, found="abc"),
        search("s2", "b2", 1.5, found="abd"),
        reranker("r1", "b1", 4, "abc", "ca"),
        reranker("r2", "b2", 4.5, "abd", "d"),
    )

    assert searched(one) == [(1, "ca"), (1, "d")]


def test_a_reranker_may_replace_several_searches() -> None:
    """It replaces the latest searches of the turn that returned its inputs."""
    one = interpreted(
        agent(),
        search("s1", "agent", 1, found="ab"),
        search("s2", "agent", 1.5, found="cd"),
        reranker("r", "agent", 5, "abcd", "dc"),
    )

    assert searched(one) == [(1, "dc")]


@pytest.mark.parametrize(
    ("scope", "name", "given"),
    [
        ("haystack", "TopPSampler.run", "documents"),
        ("llama_index", "Rerank._postprocess_nodes", "nodes"),
    ],
)
def test_a_postprocessor_replaces_the_search_before_it(scope: str, name: str, given: str) -> None:
    """It does so if documents went in and came out; a component without documents changes
    nothing."""
    scope = f"openinference.instrumentation.{scope}"
    nodes = [f"<NodeWithScore(node=TextNode(id_={id}), score=0.5)>" for id in "abc"]
    passed = {"input.value": json.dumps({given: nodes}), "output.value": json.dumps([nodes[1]])}
    spans = (
        agent(scope=scope),
        search("s", "agent", 1, found="abc", scope=scope),
        of_kind("CHAIN", "prompt", "agent", 3, name="PromptBuilder.run", scope=scope),
    )
    of_post = of_kind("CHAIN", "p", "agent", 5, name=name, scope=scope, attributes=passed)

    assert searched(interpreted(*spans)) == [(1, "abc")]
    assert searched(interpreted(*spans, of_post)) == [(1, "b")]


@pytest.mark.parametrize(("handed_on", "refused"), [("abc", {}), ("ca", {"unrecognised": 1})])
def test_a_turn_with_a_step_that_changes_results_is_refused(
    handed_on: str, refused: dict[str, int]
) -> None:
    """The agent received only what a node of its graph kept."""
    output = json.dumps({"docs": [{"id": id, "page_content": id} for id in handed_on]})
    one = interpreted(
        agent(),
        search("s", "agent", 1, found="abc"),
        of_kind("CHAIN", "grade", "agent", 3, attributes={"output.value": output}),
    )

    assert (len(one.turns), one.refused) == (not refused, refused)


def test_a_turn_with_an_unrecorded_tool_result_is_refused() -> None:
    """The tool may have been a search."""
    one = interpreted(agent(), model("m", "agent", 1), of_kind("TOOL", "handbook", "agent", 3))

    assert (one.turns, one.refused) == ((), {"content_off": 1})


def test_a_turn_with_documents_and_without_a_search_is_no_skip() -> None:
    """A step without a span found the documents."""
    output = {"output.value": '{"retriever": {"documents": [{"id": "a", "content": "x"}]}}'}
    one = interpreted(
        agent(), model("m", "agent", 1), of_kind("CHAIN", "c", "agent", 3, attributes=output)
    )

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_reranker_of_unknown_documents_is_refused() -> None:
    """Without its search, the results that the agent received are unknown."""
    one = interpreted(agent(), search("s", "agent", 1), reranker("r", "agent", 3, "xy", "y"))

    assert (one.turns, one.refused) == ((), {"unrecognised": 1})


def test_a_joiner_is_one_search() -> None:
    """The results of the retrievers that it merges do not count separately."""
    scope = "openinference.instrumentation.haystack"
    joined = {
        "input.value": json.dumps(
            {
                "documents": [
                    ["Document(id=a, content: 'x', score: 1)"],
                    ["Document(id=b, content: 'y', score: 2)"],
                ]
            }
        ),
        "output.value": json.dumps({"documents": ["Document(id=b, content: 'y', score: 2)"]}),
    }
    one = interpreted(
        agent(),
        search("s1", "agent", 1, found="a", scope=scope),
        search("s2", "agent", 1.5, found="b", scope=scope),
        of_kind(
            "CHAIN", "j", "agent", 5, name="DocumentJoiner.run", scope=scope, attributes=joined
        ),
    )

    assert searched(one) == [(1, "b")]
    assert one.turns[0].searches[0].results[0].baseline_rank is None


def _otel_search(id: str, start: float, found: str, **others: Any) -> Any:
    documents = json.dumps([{"id": letter} for letter in found])
    attributes = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents}
    return span(id, "root", start, start + 5, attributes | others, scope=OTEL)


def test_a_search_that_two_instrumentations_recorded_counts_once() -> None:
    """Overlapping searches of different scopes with equal documents are one."""
    spans = [
        span("root", end=100, scope="app"),
        search("s1", "root", 1, 9, found="ab"),
        _otel_search("o1", 2, "ab"),
        search("s2", "root", 20, 29, found="ab"),
        _otel_search("o2", 40, "ab"),
    ]

    one = interpreted(*spans, scopes=ScopeChoice(frozenset({SCOPE, OTEL, "app"})))
    assert [search.span_id for turn in one.turns for search in turn.searches] == ["s1", "s2", "o2"]
    assert one.duplicate == 1


def test_searches_of_two_scopes_in_one_trace_that_are_not_merged_are_refused() -> None:
    """They may be the same calls, told twice; the message has the setting that says."""
    spans = [
        span("root", end=100, scope="app"),
        search("s1", "root", 1, 9, found="ab"),
        _otel_search("o1", 40, "ab"),
    ]
    one = interpreted(*spans)

    assert (one.turns, one.refused) == ((), {"two_scopes": 1})
    assert f'otlp.scopes = {{"service" = ["{SCOPE}", "{OTEL}"]}}' in one.refusals[0].message


def test_searches_of_two_scopes_that_do_not_compare_are_refused() -> None:
    """One has ids and the other texts."""
    texts = {"retrieval.documents.0.document.content": "some text", "input.value": "q"}
    one = interpreted(
        span("root", end=100, scope="app"),
        of_kind("RETRIEVER", "s1", "root", 1, 9, attributes=texts),
        _otel_search("o1", 2, "a", **{"gen_ai.retrieval.query.text": "q"}),
    )

    assert (one.turns, one.refused) == ((), {"two_scopes": 1})


def test_sibling_agents_are_separate_turns() -> None:
    """A trace may hold a session; a setting makes it one turn."""
    spans = (
        span("root", end=100, scope="app"),
        agent("a1", 1, 9, parent="root"),
        search("s1", "a1", 2, found="a"),
        agent("a2", 11, 19, parent="root"),
        search("s2", "a2", 12, found="b"),
    )

    assert [turn.span_id for turn in interpreted(*spans).turns] == ["a1", "a2"]
    assert [turn.span_id for turn in interpreted(*spans, turn="trace").turns] == ["root"]


def test_a_search_outside_all_turns_is_refused() -> None:
    """Which turn used it is unknown."""
    one = interpreted(
        span("root", end=100), agent("a", 1, 9, parent="root"), search("s", "root", 20)
    )

    assert one.refused == {"outside_turn": 1}


@pytest.mark.parametrize(
    ("attributes", "others", "reason"),
    [
        ({"retrieval.documents.1.document.id": "b"}, {}, "truncated"),
        ({"retrieval.documents.0.document.id": "b"}, {"dropped_attributes": 3}, "truncated"),
        ({}, {"dropped_attributes": 3}, "truncated"),
        ({"output.value": '{"documents": [{"id": "a", "page_con'}, {}, "truncated"),
        ({}, {}, "content_off"),
        ({"output.value": "__REDACTED__"}, {}, "content_off"),
        ({"retrieval.documents.0.document.content": "__REDACTED__"}, {}, "no_identity"),
        ({"retrieval.documents.0.document.content": " "}, {}, "no_identity"),
        ({"retrieval.documents.0.document.score": 0.5}, {}, "no_identity"),
    ],
)
def test_a_search_without_recorded_results_is_refused(
    attributes: dict[str, Any], others: dict[str, Any], reason: str
) -> None:
    """Its whole turn is refused."""
    one = interpreted(
        agent(),
        search("whole", "agent", 1),
        of_kind("RETRIEVER", "s", "agent", 3, attributes=attributes, **others),
    )

    assert (one.turns, one.refused) == ((), {reason: 1})
    assert (one.refusals[0].trace_id, one.refusals[0].span_id) == ("t", "s")
    assert HELP[one.refusals[0].reason]


def test_another_attribute_replaces_a_truncated_one() -> None:
    """The output has all documents, although flattened attributes are missing."""
    attributes = {
        "retrieval.documents.1.document.id": "b",
        "output.value": '["<NodeWithScore(node=TextNode(id_=a), score=0.5)>", '
        '"<NodeWithScore(node=TextNode(id_=b), score=0.25)>"]',
    }
    one = interpreted(of_kind("RETRIEVER", "s", attributes=attributes, dropped_attributes=1))

    assert searched(one) == [(1, "ab")]


def test_a_search_without_results_is_a_search() -> None:
    """An empty list has no results, and neither has a search that failed."""
    one = interpreted(agent(), search("s", "agent", 1, found=""))
    failed = interpreted(agent(), of_kind("RETRIEVER", "s", "agent", 1, failed=True))

    assert searched(one) == searched(failed) == [(1, "")]


def test_a_trace_with_a_missing_parent_is_incomplete() -> None:
    """A setting makes such spans roots."""
    spans = (search("s", "lost", 1), search("bad", NO_ID, 2))

    assert interpreted(*spans).refused == {"incomplete": 2}
    assert searched(interpreted(*spans, missing_parents="root")) == [(1, "a"), (2, "a")]


def test_spans_in_a_cycle_are_refused() -> None:
    """A cycle of parents has no root."""
    one = interpreted(agent(), search("s", "x", 1), span("x", "y"), span("y", "x"))

    assert (one.turns, one.refused) == ((), {"cycle": 3})


def test_a_span_without_ids_is_refused() -> None:
    """Ids of the wrong length count as missing."""
    assert interpreted(search("", "", 1), search("s", "", 1, trace_id="")).refused == {"bad_id": 2}


@pytest.mark.parametrize("start_ns", [0, 1_718_020_800, 1_718_020_800_000_000_000 * 5])
def test_impossible_times_are_refused(start_ns: int) -> None:
    """For example times of 1970, or seconds written as nanoseconds."""
    one = interpreted(msgspec.structs.replace(search("s", "", 1), start_ns=start_ns))

    assert (one.turns, one.refused) == ((), {"time_out_of_range": 1})


def test_a_trace_of_too_many_spans_is_refused() -> None:
    """It is refused before its tree is built."""
    assert interpreted(*(span(str(id)) for id in range(11)), max_spans=10).refused == {
        "too_large": 1
    }


@pytest.mark.parametrize(
    "one",
    [
        tool("search_kb", "agent", 1, output="some text without form"),
        of_kind(
            "CHAIN",
            "retrieve",
            "agent",
            1,
            attributes={"output.value": '{"docs": [{"id": "a", "page_content": "x"}]}'},
        ),
        span("q", "agent", 1, attributes={"db.vector.query.top_k": 3}, scope="chroma"),
    ],
)
def test_an_unknown_span_that_looks_like_a_search_is_refused(one: Any) -> None:
    """The message lists its attributes."""
    found = interpreted(agent(), model("m", "agent", 5), one)

    assert (found.turns, found.refused) == ((), {"unrecognised": 1})
    assert "it has" in (found.refusals[0].message)


_DOCUMENTS = json.dumps([{"id": id, "page_content": id, "metadata": {}} for id in "ab"])
_PRODUCTS: dict[str, tuple[dict[str, Any], str]] = {
    "langsmith": (
        {
            "langsmith.span.kind": "retriever",
            "gen_ai.operation.name": "embeddings",
            "gen_ai.prompt": '{"query": "q"}',
            "gen_ai.completion": f'{{"documents": {_DOCUMENTS}}}',
        },
        "langsmith",
    ),
    "mlflow": (
        {
            "mlflow.spanType": '"RETRIEVER"',
            "mlflow.spanInputs": '"q"',
            "mlflow.spanOutputs": _DOCUMENTS,
        },
        "mlflow.langchain",
    ),
    "azure": (
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.type": "retriever",
            "gen_ai.tool.name": "kb",
            "gen_ai.retriever.query": "q",
            "gen_ai.retriever.results": json.dumps(
                [{"metadata": {"id": id}, "content": id} for id in "ab"]
            ),
        },
        "azure.ai",
    ),
    "loongsuite": (
        {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.span.kind": "RETRIEVER",
            "gen_ai.retrieval.query.text": "q",
            "gen_ai.retrieval.documents": _DOCUMENTS,
        },
        "opentelemetry.instrumentation.langchain",
    ),
    "openllmetry": (
        {
            "gen_ai.operation.name": "vector_db_retrieve",
            "traceloop.span.kind": "task",
            "traceloop.entity.input": '{"query": "q", "tags": []}',
            "traceloop.entity.output": f'{{"documents": {_DOCUMENTS}, "count": 2}}',
        },
        "opentelemetry.instrumentation.langchain",
    ),
    "langfuse": (
        {
            "langfuse.observation.type": "retriever",
            "langfuse.observation.input": "q",
            "langfuse.observation.output": _DOCUMENTS,
        },
        "langfuse-sdk",
    ),
    "otel tool": (
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "kb",
            "gen_ai.tool.call.arguments": '{"query": "q"}',
            "gen_ai.tool.call.result": json.dumps(_DOCUMENTS),
        },
        OTEL,
    ),
    "otel structure": (
        {
            "gen_ai.operation.name": "retrieval",
            "gen_ai.retrieval.query.text": "q",
            "gen_ai.retrieval.documents": [{"id": "a"}, {"id": "b"}],
        },
        OTEL,
    ),
}


@pytest.mark.parametrize("product", sorted(_PRODUCTS))
def test_presets_know_the_searches_of_each_product(product: str) -> None:
    """The search has its documents and its query."""
    attributes, scope = _PRODUCTS[product]
    one = interpreted(span("s", attributes=attributes, scope=scope, name="KbRetriever"))

    assert searched(one) == [(1, "ab")]
    assert one.turns[0].searches[0].query == "q"


@pytest.mark.parametrize("operation", ["rerank", "rerank_documents"])
def test_a_reranker_of_loongsuite_is_one(operation: str) -> None:
    """Its documents are in its own attributes, with texts nested in objects."""
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.rerank.input_documents": json.dumps(["b", "a"]),
        "gen_ai.rerank.output_documents": json.dumps(
            [{"index": 1, "relevance_score": 0.7, "document": {"text": "a"}}]
        ),
    }
    one = interpreted(
        span("root", end=50),
        span("s", "root", 1, attributes=_PRODUCTS["loongsuite"][0]),
        span("r", "root", 5, attributes=attributes),
    )

    assert searched(one) == [(1, "a")]
    assert one.turns[0].searches[0].results[0].baseline_rank == 2


def test_rows_of_the_settings_come_first() -> None:
    """They match spans that presets miss, or override presets."""
    row = Row(Role.SEARCH, (("vendor.kind", "find"),), documents=("vendor.hits",))
    spans = [span("s", attributes={"vendor.kind": "find", "vendor.hits": '[{"id": "a"}]'})]

    assert searched(interpret(spans, mapping([row]))) == [(1, "a")]
    off = Row(Role.OTHER, (("openinference.span.kind", "RETRIEVER"),))
    assert interpret([search("s", "", 1)], mapping([off])).turns == ()


def test_the_conversation_is_of_the_span_or_its_nearest_ancestor() -> None:
    """Otherwise it is that of the trace's other spans, if all agree."""
    named = {"session.id": "near"}
    near = interpreted(agent(attributes=named), search("s", "agent", 1))
    beside = interpreted(agent(), search("s", "agent", 1), model("m", "agent", 3, attributes=named))

    assert [turn.conversation for turn in (*near.turns, *beside.turns)] == ["near", "near"]
    assert interpreted(search("s", "", 1)).turns[0].conversation == "t"


def test_spans_that_disagree_on_the_conversation_are_refused() -> None:
    """So is a trace that names no conversation, if a setting requires one."""
    one = interpreted(
        agent(),
        search("s", "agent", 1),
        model("m1", "agent", 3, attributes={"session.id": "x"}),
        model("m2", "agent", 5, attributes={"session.id": "y"}),
    )

    assert (one.turns, one.refused) == ((), {"no_conversation": 1})
    assert interpreted(search("s", "", 1), require_conversation=True).refused == {
        "no_conversation": 1
    }


def test_conversation_attributes_have_a_precedence() -> None:
    """GenAI's attribute precedes OpenInference's, and metadata come last."""
    attributes = {
        "metadata": '{"thread_id": "c"}',
        "session.id": "b",
        "gen_ai.conversation.id": "a",
    }
    found = []
    while attributes:
        one = interpreted(agent(attributes=attributes), search("s", "agent", 1))
        found += [turn.conversation for turn in one.turns]
        attributes.popitem()

    assert found == ["a", "b", "c"]


def test_agent_and_release_come_from_spans_and_their_resource() -> None:
    """An attribute of the turn's span names the agent, else the service does, never a span."""
    resource = {"service.name": "service", "service.version": "2"}
    named = interpreted(agent(name="turn", attributes={"agent.name": "x"}), search("s", "agent", 1))
    of_turn = interpreted(agent(name="turn"), search("s", "agent", 1, resource=resource))
    bare = interpreted(search("s", "", 1))

    assert [one.turns[0].searches[0].agent for one in (named, of_turn, bare)] == [
        "x",
        "service",
        "service",
    ]
    assert of_turn.turns[0].searches[0].release == "2"


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ('[{"id": "a"}]', ["a"]),
        ('{"documents": [{"doc_id": "a"}]}', ["a"]),
        ('{"result": {"results": [{"document.id": "a", "text": "x"}]}}', ["a"]),
        ('"[{\\"chunk_id\\": \\"a\\", \\"doc_id\\": \\"page\\"}]"', ["page#a"]),
        ('[{"metadata": {"id": "a"}, "pageContent": "x"}]', ["a"]),
        ('[{"chunk_id": 3, "doc_id": "page"}]', ["page#3"]),
        ('[{"node": {"id_": "a", "text": "x"}, "score": 0.5}]', ["a"]),
        ("[Document(id='a', metadata={'source': 'b'}, page_content='x, (y)')]", ["a"]),
        ("[{'id': 'a', 'content': 'x'}, {'id': 'b', 'content': None}]", ["a", "b"]),
        ("[\"Document(id=a, content: 'x...', meta: {}, score: 0.5)\"]", ["a"]),
        (
            '{"type": "tool", "data": {"content": "[{\\"id\\": \\"a\\", \\"text\\": \\"x\\"}]"}}',
            ["a"],
        ),
        (
            '{"output": {"lc": 1, "type": "constructor", "id": ["m", "ToolMessage"], "kwargs": '
            '{"tool_call_id": "1", "content": "text", "artifact": [{"id": "a", "text": "x"}]}}}',
            ["a"],
        ),
        (
            '{"content": [{"type": "text", "text": "[{\\"id\\": \\"a\\", \\"text\\": \\"x\\"}]"}],'
            ' "isError": false}',
            ["a"],
        ),
        ("[]", []),
    ],
)
def test_documents_are_found_in_every_form(value: str, ids: list[str]) -> None:
    """Lists, envelopes, JSON in texts, and the output of ``repr`` are read."""
    found = documents_in_value(value)

    assert isinstance(found, list)
    assert [document.id for document in found] == ids


@pytest.mark.parametrize(
    "value",
    [
        '[{"role": "user", "content": "x"}]',
        '{"messages": [{"type": "ai", "content": "x"}]}',
        '[{"id": 5, "status": "sent"}]',
        '["a", "b"]',
        "some text",
        "42",
        '{"temperature": 21}',
    ],
)
def test_a_tools_result_without_the_form_of_documents_has_none(value: str) -> None:
    """Messages, records and texts are not documents."""
    assert documents_in_value(value, strict=True) is None


def test_texts_distinguish_chunks_of_one_page() -> None:
    """The address of the page is no identity; if texts are disabled, their digests are used."""
    attributes = {
        f"retrieval.documents.{at}.document.{name}": value
        for at, text in enumerate(("one", "two", "one"))
        for name, value in (
            ("content", text),
            ("metadata", '{"source": "https://example.org/page"}'),
        )
    }
    one = interpreted(of_kind("RETRIEVER", "s", attributes=attributes), content=False)

    results = one.turns[0].searches[0].results
    first, second, third = (result.ids["passage"] for result in results)
    assert first == third != second
    assert first.startswith("sha256:")
    assert [result.doc_id for result in results] == [None] * 3
    [event] = [json.loads(event.value) for event in events(one, content=False)]
    assert "content" not in event["searches"][0]["results"][0]


def test_recorded_answers_and_questions_are_kept() -> None:
    """The last message of the model is the answer, and the last of the person the question."""
    messages = '{"messages": [{"type": "human", "data": {"content": "why?"}}%s]}'
    answered = messages % ', {"type": "ai", "data": {"content": "so"}}'
    attributes = {"input.value": messages % "", "output.value": answered}
    spans = (agent(attributes=attributes), search("s", "agent", 1))

    [_, completed] = values(interpreted(*spans))
    assert (completed["answer"], completed["question"]) == ("so", "why?")
    assert completed["type"] == "turn_completed"
    assert len(values(interpreted(*spans, content=False))) == 1


def test_two_turns_that_begin_simultaneously_are_refused() -> None:
    """They would have the same number."""
    spans = (
        span("root", end=50),
        agent("a1", 1, 9, parent="root"),
        search("s1", "a1", 2),
        agent("a2", 1, 9, parent="root"),
        search("s2", "a2", 2),
    )

    assert interpreted(*spans).refused == {"turn_conflict": 1}


def test_order_and_repetition_of_captured_spans_change_nothing() -> None:
    """The events have the same bytes."""
    rng = random.Random(20)
    for name in EXPECTED:
        for spans in traces(capture(name)):
            before = [*events(interpret(spans, MAPPING))]
            shuffled = [*spans, *rng.choices(spans, k=5)]
            rng.shuffle(shuffled)
            assert [*events(interpret(shuffled, MAPPING))] == before


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_row_that_matches_decides(name: str) -> None:
    """The cache of candidate rows does not change which row matches."""
    spans = capture(name)
    inside: dict[str, list[Span]] = {}
    for one in spans:
        inside.setdefault(one.parent_id, []).append(one)

    for one in spans:
        inner = inside.get(one.span_id, ())
        first = next((row for row in MAPPING.rows if row.matches(one, inner)), None)
        assert MAPPING.row(one, inner) is first


@pytest.mark.parametrize("scope", ["my.app", "httpx"])
def test_a_function_between_model_calls_of_a_trace_without_an_agent_is_named(scope: str) -> None:
    """The model may have asked for it, and nothing tells what it found; what ran before may not."""
    before, first, between, last = (
        of_kind("LLM", id, "", start)
        if id[0] == "m"
        else span(id, "", start, start + 1, {}, scope=scope)
        for id, start in (("auth", 0), ("m1", 10), ("load_pages", 20), ("m2", 30))
    )

    one = interpreted(before, first, between, last)

    assert one.refused == {"unseen_searches": 1}
    assert "load_pages" in one.refusals[0].message
    assert interpreted(before, first, last).refused == {}


CREWAI = "opentelemetry.instrumentation.crewai.instrumentation"


def crew(*tools: Span) -> Interpretation:
    """A crew of OpenLLMetry with a task whose description is that of the user, and its agent."""
    asked = "Find out why my gears jump on a worn chain."
    kinds: list[tuple[str, str, float, dict[str, Any], str]] = [
        ("crew", "", 0, {"gen_ai.system": "crewai"}, "crewai.workflow"),
        ("task", "crew", 1, {"traceloop.span.kind": "task"}, f"{asked}.task"),
        ("agent", "task", 2, {"traceloop.span.kind": "agent"}, "Mechanic.agent"),
        ("m1", "agent", 3, {"gen_ai.request.model": "gpt"}, "gpt.llm"),
        ("m2", "agent", 30, {"gen_ai.request.model": "gpt"}, "gpt.llm"),
    ]
    spans = [
        span(id, parent, start, 100 - start, attributes, name=name, scope=CREWAI)
        for id, parent, start, attributes, name in kinds
    ]
    return interpreted(*spans, *tools)


def test_a_crew_of_openllmetry_is_one_turn() -> None:
    """Its agents and tasks are parts of it."""
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search_docs",
        "gen_ai.tool.call.arguments": '{"query": "gears"}',
        "gen_ai.tool.call.result": '[{"id": "a", "text": "Chains wear."}]',
    }
    one = crew(span("t", "agent", 10, 20, attributes, name="search_docs.tool", scope=CREWAI))

    assert one.refused == {}
    assert searched(one) == [(1, "a")]


def test_a_crew_of_openllmetry_without_tools_is_no_decision_not_to_search() -> None:
    """Most versions write no spans of tools; what the user wrote is not in the refusal."""
    one = crew()

    assert (one.turns, one.refused) == ((), {"unseen_searches": 1})
    assert "gears" not in one.refusals[0].message


FOUND = '[{"id": "a", "content": "Chains wear."}]'
SPRING = (
    ("r", "", 0, {"spring.ai.kind": "chat_client", "spring.ai.chat.client.conversation.id": "c"}),
    ("a", "r", 1, {"spring.ai.kind": "advisor", "spring.ai.advisor.name": "search"}),
    (
        "v",
        "a",
        2,
        {
            "spring.ai.kind": "vector_store",
            "db.operation.name": "query",
            "db.vector.query.response.documents": FOUND,
        },
    ),
    ("m1", "r", 10, {"gen_ai.operation.name": "chat"}),
    (
        "t",
        "r",
        20,
        {
            "spring.ai.kind": "tool_call",
            "spring.ai.tool.definition.name": "searchDocs",
            "spring.ai.tool.call.arguments": '{"query": "chains"}',
            "spring.ai.tool.call.result": FOUND,
        },
    ),
    ("m2", "r", 30, {"gen_ai.operation.name": "chat"}),
)
GENKIT = (
    ("r", "", 0, {"genkit:metadata:subtype": "flow", "genkit:sessionId": "c"}),
    (
        "v",
        "r",
        1,
        {
            "genkit:metadata:subtype": "retriever",
            "genkit:output": '{"documents": [{"content": [{"text": "Chains wear."}],'
            ' "metadata": {"id": "a"}}]}',
        },
    ),
    ("u", "r", 9, {"genkit:type": "util"}),
    ("m1", "u", 10, {"genkit:metadata:subtype": "model"}),
    (
        "t",
        "u",
        20,
        {
            "genkit:metadata:subtype": "tool.v2",
            "genkit:input": '{"query": "chains"}',
            "genkit:output": FOUND,
        },
    ),
    ("m2", "u", 30, {"genkit:metadata:subtype": "model"}),
)


@pytest.mark.parametrize("spans", [SPRING, GENKIT], ids=["Spring AI", "Genkit"])
def test_frameworks_of_java_and_go_tell_their_searches(
    spans: Sequence[tuple[str, str, float, dict[str, Any]]],
) -> None:
    """Their retrievers, and their tools, which are two decisions; or that there were none."""
    ends = {"r": 100.0, "a": 8.0, "u": 90.0}
    built = [
        span(
            id,
            parent,
            start,
            ends.get(id, start + 5),
            attributes,
            name="search_docs" if id == "t" else id,
        )
        for id, parent, start, attributes in spans
    ]

    one = interpreted(*built)
    none = interpreted(*(each for each in built if each.span_id in ("r", "u", "m1")))

    assert searched(one) == [(1, "a"), (2, "a")]
    assert (one.turns[0].conversation, one.refused) == ("c", {})
    assert [turn.skipped for turn in none.turns] == [True]
