"""What programs do with results after a search, as far as traces show it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.telemetry import Span
from tests.telemetry import (
    agent,
    interpreted,
    model,
    of_kind,
    reranker,
    search,
    searched,
    tool,
)

UNRECOGNISED = {"unrecognised": 1}


def text(letter: str) -> str:
    """The text of a document."""
    return f"The text about {letter * 12}, which is long enough."


def texts(letters: str) -> str:
    """The texts of documents, joined as by a tool or a prompt."""
    return "\n\n".join(text(letter) for letter in letters)


def found(id: str, parent: str, start: float, letters: str, **others: Any) -> Span:
    """A search whose documents have texts."""
    attributes = {
        f"retrieval.documents.{at}.document.{part}": value
        for at, letter in enumerate(letters)
        for part, value in (("id", letter), ("content", text(letter)))
    }
    return of_kind("RETRIEVER", id, parent, start, attributes=attributes, **others)


def asked(id: str, start: float, prompt: str) -> Span:
    """A model call with this prompt."""
    return model(id, "agent", start, attributes={"input.value": json.dumps({"messages": [prompt]})})


def test_a_search_span_that_is_a_sibling_of_its_tool_belongs_to_it() -> None:
    """The tool's text contains the results, so both are one search with the tool's route."""
    one = interpreted(
        agent(),
        model("m1", "agent", 0),
        tool("lookup", "agent", 2, 9, output=texts("ab")),
        found("s", "agent", 3, "ab"),
    )

    assert (searched(one), one.refused) == ([(1, "ab")], {})
    assert one.turns[0].searches[0].route == "lookup"


def test_documents_of_a_tool_and_its_sibling_search_count_once() -> None:
    """The tool is the outer of both, so its results count."""
    output = json.dumps([{"id": "b", "content": text("b")}])
    one = interpreted(
        agent(), tool("lookup", "agent", 2, 9, output=output), found("s", "agent", 3, "ab")
    )

    assert searched(one) == [(1, "b")]


def test_concurrent_tools_get_the_searches_whose_documents_they_returned() -> None:
    """Both tools ran during both searches."""
    one = interpreted(
        agent(),
        tool("first", "agent", 1, 9, output=texts("ab")),
        tool("second", "agent", 1.5, 9.5, output=texts("cd")),
        found("s1", "agent", 3, "cd"),
        found("s2", "agent", 3.5, "ab"),
    )

    routes = {search.span_id: search.route for search in one.turns[0].searches}
    assert routes == {"s1": "second", "s2": "first"}


@pytest.mark.parametrize(
    ("output", "refused"), [("ab", {}), ("b", UNRECOGNISED), ("ba", UNRECOGNISED)]
)
def test_a_turn_with_a_tool_that_kept_a_part_is_refused(
    output: str, refused: dict[str, int]
) -> None:
    """Its text has some of the results of its retriever, or all of them in another order."""
    one = interpreted(
        agent(), tool("t", "agent", 1, 9, output=texts(output)), found("s", "t", 2, "ab")
    )

    assert (len(one.turns), one.refused) == (not refused, refused)


@pytest.mark.parametrize(
    ("output", "refused"), [("ab", {}), ("a", UNRECOGNISED), ("ba", UNRECOGNISED)]
)
def test_a_turn_with_a_node_that_returned_less_than_its_search_is_refused(
    output: str, refused: dict[str, int]
) -> None:
    """It reranked the results without a span for that."""
    docs = json.dumps({"docs": [{"id": id, "page_content": id} for id in output]})
    one = interpreted(
        agent(),
        of_kind("CHAIN", "retrieve", "agent", 1, 9, attributes={"output.value": docs}),
        search("s", "retrieve", 2, found="ab"),
    )

    assert (len(one.turns), one.refused) == (not refused, refused)


def test_a_node_may_also_return_earlier_results() -> None:
    """Documents that it accumulates are returned unchanged."""
    docs = json.dumps({"docs": [{"id": id, "page_content": id} for id in "xab"]})
    one = interpreted(
        agent(),
        of_kind("CHAIN", "retrieve", "agent", 1, 9, attributes={"output.value": docs}),
        search("s", "retrieve", 2, found="ab"),
    )

    assert searched(one) == [(1, "ab")]


@pytest.mark.parametrize(("shown", "refused"), [("abc", {}), ("ac", UNRECOGNISED), ("", {})])
def test_a_turn_whose_model_was_shown_a_part_is_refused(
    shown: str, refused: dict[str, int]
) -> None:
    """A step dropped the rest; a model that is shown none of the results proves nothing."""
    one = interpreted(
        agent(), found("s", "agent", 1, "abc"), asked("m", 3, texts(shown) + "\nAnswer.")
    )

    assert (len(one.turns), one.refused) == (not refused, refused)


def test_a_model_may_look_at_each_document_separately() -> None:
    """All calls after a search count together."""
    one = interpreted(
        agent(),
        found("s", "agent", 1, "ab"),
        asked("m1", 3, f"Does this help? {text('a')}"),
        asked("m2", 5, f"Does this help? {text('b')}"),
    )

    assert searched(one) == [(1, "ab")]


def test_a_model_that_is_shown_the_last_search_alone_does_not_refute_the_first() -> None:
    """Both searches found the same document, and the prompt has the results of the last."""
    one = interpreted(
        agent(),
        found("s1", "agent", 1, "ab"),
        asked("m1", 3, "Rewrite the question."),
        found("s2", "agent", 5, "ac"),
        asked("m2", 7, texts("ac")),
    )

    assert searched(one) == [(1, "ab"), (2, "ac")]


def test_searches_that_may_be_nested_are_refused() -> None:
    """A retriever that calls another without its callbacks leaves such spans."""
    query = {"attributes": {"input.value": "question"}}
    one = interpreted(
        agent(),
        search("outer", "agent", 1, 9, found="ab", **query),
        search("inner", "agent", 2, 5, found="ab", **query),
    )

    assert (one.turns, one.refused) == ((), UNRECOGNISED)


def test_overlapping_searches_are_two() -> None:
    """Neither ran entirely during the other."""
    query = {"attributes": {"input.value": "question"}}
    one = interpreted(
        agent(),
        search("s1", "agent", 1, 5, found="ab", **query),
        search("s2", "agent", 2, 9, found="ab", **query),
    )

    assert searched(one) == [(1, "ab"), (1, "ab")]


def test_a_search_that_a_reranker_may_have_been_given_too_is_refused() -> None:
    """All results of one search are among those of another, and the reranker was given the
    union."""
    one = interpreted(
        agent(),
        search("s1", "agent", 1, found="ab"),
        search("s2", "agent", 1.5, found="abc"),
        reranker("r", "agent", 5, "abc", "c"),
    )

    assert (one.turns, one.refused) == ((), UNRECOGNISED)


def test_a_joiner_replaces_all_searches_whose_lists_it_was_given() -> None:
    """This includes a search whose documents another one found too."""
    scope = "openinference.instrumentation.haystack"
    lists = [[{"id": id, "content": id} for id in letters] for letters in ("ab", "abc")]
    passed = {
        "input.value": json.dumps({"documents": lists}),
        "output.value": json.dumps({"documents": lists[1]}),
    }
    one = interpreted(
        agent(scope=scope),
        search("s1", "agent", 1, found="ab", scope=scope),
        search("s2", "agent", 1.5, found="abc", scope=scope),
        of_kind("CHAIN", "j", "agent", 5, name="Joiner.run", scope=scope, attributes=passed),
    )

    assert searched(one) == [(1, "abc")]


@pytest.mark.parametrize(("start", "refused"), [(5, {"content_off": 1}), (0, {})])
def test_a_turn_with_a_redacted_postprocessor_after_a_search_is_refused(
    start: float, refused: dict[str, int]
) -> None:
    """It may have changed their results."""
    scope = "openinference.instrumentation.llama_index"
    hidden = {"input.value": "__REDACTED__", "output.value": "__REDACTED__"}
    name = "Rerank._postprocess_nodes"
    one = interpreted(
        agent(scope=scope),
        search("s", "agent", 3, found="abc", scope=scope),
        of_kind("CHAIN", "p", "agent", start, name=name, scope=scope, attributes=hidden),
    )

    assert (len(one.turns), one.refused) == (not refused, refused)


@pytest.mark.parametrize(
    "calls",
    [
        {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "lookup"},
        {"output.value": '{"message": {"tool_calls": [{"id": "1"}]}}'},
        {"output.value": "ChatMessage(content=[ToolCall(tool_name='lookup')])"},
    ],
)
def test_a_turn_whose_tools_have_no_spans_is_no_skip(calls: dict[str, str]) -> None:
    """One of them may have searched."""
    one = interpreted(agent(), model("m", "agent", 1, attributes=calls))

    assert (one.turns, one.refused) == ((), UNRECOGNISED)


@pytest.mark.parametrize(
    "calls",
    [
        {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "file_search_call"},
        {"output.value": '{"output": [{"type": "web_search_call", "id": "1"}]}'},
    ],
)
def test_a_turn_with_a_model_that_searches_at_its_host_is_refused(calls: dict[str, str]) -> None:
    """Its answer does not record the documents, whatever else the turn has."""
    one = interpreted(
        agent(), found("s", "agent", 1, "ab"), model("m", "agent", 3, attributes=calls)
    )

    assert (one.turns, one.refused) == ((), UNRECOGNISED)


def test_runs_of_one_agent_that_may_be_separate_turns_are_refused() -> None:
    """OpenTelemetry's spans of OpenAI Agents do not distinguish a second run from a handoff."""
    scope = "opentelemetry.instrumentation.genai.openai_agents"

    def of(operation: str, id: str, parent: str, start: float, end: float, name: str) -> Span:
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": name,
            "gen_ai.tool.name": "lookup",
            "gen_ai.tool.call.arguments": '{"query": "?"}',
            "gen_ai.tool.call.result": json.dumps([{"id": "a", "text": text("a")}]),
        }
        return agent(id, start, end, parent=parent, scope=scope, attributes=attributes)

    def run(second: str) -> list[Span]:
        spans = [
            of("invoke_workflow", "w", "", 0, 99, "w"),
            of("invoke_agent", "a1", "w", 1, 9, "desk"),
            of("invoke_agent", "a2", "w", 11, 19, second),
            of("execute_tool", "t1", "a1", 2, 3, "lookup"),
            of("execute_tool", "t2", "a2", 12, 13, "lookup"),
        ]
        for span in spans:
            del span.attributes["openinference.span.kind"]
        return spans

    assert interpreted(*run("desk")).refused == UNRECOGNISED
    assert len(interpreted(*run("expert")).turns) == 1
