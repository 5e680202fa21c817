"""Agents, conversations and releases come from attributes meant for them, never from user text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.telemetry import Options, Role, Row, Span, interpret, mapping
from tests.telemetry import agent, interpreted, model, of_kind, search, span, tool, values

CREWAI = "openinference.instrumentation.crewai._event_listener"
QUESTION = "Why does QxCanaryQ jump on a worn chain?"


def agents(*spans: Any, **options: Any) -> set[str | None]:
    """The agents of the searches and turns of a trace, and of its refusals."""
    one = interpreted(*spans, **options)
    return {
        *(turn.agent for turn in one.turns),
        *(search.agent for turn in one.turns for search in turn.searches),
        *(refusal.agent for refusal in one.refusals),
    }


def test_an_agent_is_never_named_by_a_span() -> None:
    """The name of a span may have the user's text in it."""
    crew = (
        of_kind("CHAIN", "c", end=99, scope=CREWAI, name="crew.kickoff"),
        agent(
            "a",
            1,
            98,
            parent="c",
            scope=CREWAI,
            name=f"workshop.{QUESTION}.execute",
            attributes={"graph.node.id": "workshop", "input.value": QUESTION},
        ),
        search("s", "a", 5, scope=CREWAI),
    )

    assert agents(*crew) == {"workshop"}
    assert agents(agent(name=QUESTION), search("s", "agent", 1)) == {"service"}
    assert agents(agent(name=QUESTION), tool("t", "agent", 1, name="handbook")) == {"service"}


@pytest.mark.parametrize("attribute", ["gen_ai.agent.name", "agent.name", "graph.node.id"])
def test_an_attribute_with_the_question_names_no_agent(attribute: str) -> None:
    """Programs make agents for a task, and name them by it."""
    attributes = {attribute: f"agent for: {QUESTION}", "input.value": QUESTION}
    spans = (agent(attributes=attributes, scope=CREWAI), search("s", "agent", 1, scope=CREWAI))

    assert agents(*spans) == {"service"}


def test_no_label_of_an_event_has_user_text() -> None:
    """Neither agent nor route, whatever spans are called."""
    one = interpreted(
        agent(name=QUESTION, attributes={"input.value": QUESTION}),
        search("s", "agent", 1, name=f"search {QUESTION}", attributes={"input.value": QUESTION}),
    )

    [event] = [value for value in values(one) if value["type"] == "search_iteration"]
    labels = (event["agent"], event["searches"][0].get("routing"))
    assert "QxCanaryQ" not in str(labels)


def test_a_turn_has_one_agent() -> None:
    """That of its span, else that which all spans in it agree on, else the service."""
    named = {"agent.name": "desk"}
    inner = (
        agent("b", 2, 9, parent="agent", attributes={"agent.name": "expert"}),
        search("s", "b", 3),
    )
    other = agent("c", 10, 19, parent="agent", attributes={"agent.name": "billing"})

    assert agents(agent(attributes=named), *inner) == {"desk"}
    assert agents(agent(), *inner) == {"expert"}
    assert agents(agent(), *inner, other) == {"service"}


def test_a_workflow_without_a_name_has_that_of_the_agent_in_it_and_not_of_those_it_calls() -> None:
    """Google ADK puts one around each agent, whichever others the agent asks in a turn."""

    def named(id: str, parent: str, name: str) -> Span:
        return agent(id, parent=parent, called=name)

    group = span("w", end=99, attributes={"gen_ai.operation.name": "invoke_workflow"})
    spans = (group, named("d", "w", "desk"), named("r", "d", "research"), search("s", "r", 1))

    assert [turn.agent for turn in interpreted(*spans).turns] == ["desk"]


def test_attributes_of_the_settings_come_first_on_whichever_span() -> None:
    """Those that the table knows count only where none of a trace has one of these."""
    spans = (
        agent(attributes={"chat": "c-1", "bot": "desk"}),
        search("s", "agent", 1, attributes={"session.id": "other", "agent.name": "x"}),
        search("r", "agent", 3, attributes={"chat": "c-1"}),
    )
    turn = interpret(spans, mapping((), ["chat"], ["bot"]), Options()).turns[0]

    assert (turn.conversation, turn.agent) == ("c-1", "desk")
    below = (
        agent(),
        search("s", "agent", 1, attributes={"session.id": "a"}),
        span("x", "s", 1, attributes={"chat": "c-2"}),
    )
    assert interpret(below, mapping((), ["chat"]), Options()).turns[0].conversation == "c-2"


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.conversation.id": "resp_68a1b2c3d4e5f60718293a4b"},
        {"gen_ai.conversation.id": "chatcmpl-BqZ81kTf03"},
        {"gen_ai.conversation.id": "r-17", "gen_ai.response.id": "r-17"},
    ],
)
def test_the_id_of_a_response_is_no_conversation(attributes: dict[str, str]) -> None:
    """The next turn has another."""
    [turn] = interpreted(agent(attributes=attributes), search("s", "agent", 1)).turns
    assert turn.conversation == "t"
    both = attributes | {"session.id": "c"}
    [turn] = interpreted(agent(attributes=both), search("s", "agent", 1)).turns
    assert turn.conversation == "c"


def test_the_outermost_agent_names_the_conversation() -> None:
    """An agent that is called as a tool has one of its own."""
    outer = agent(attributes={"gen_ai.conversation.id": "c"})
    call = tool("t", "agent", 1, 9, name="ask")
    inner = agent("b", 2, 8, parent="t", attributes={"gen_ai.conversation.id": "inner"})

    [turn] = interpreted(outer, call, inner, search("s", "b", 3)).turns
    assert turn.conversation == "c"
    own = search("s", "agent", 3, attributes={"gen_ai.conversation.id": "d"})
    assert interpreted(outer, own).refused == {"no_conversation": 1}


@pytest.mark.parametrize(
    "session", ["ai.telemetry.metadata.sessionId", "ai.settings.context.sessionId"]
)
def test_the_ai_sdk_names_agent_and_conversation_in_its_metadata(session: str) -> None:
    """Its function and session are attributes of the program; version 7 has a context for them."""

    def of(operation: str, id: str, parent: str, start: float, end: float, **more: str) -> Any:
        attributes = {
            "ai.operationId": operation,
            "ai.telemetry.functionId": "desk",
            session: "c",
            **more,
        }
        return span(id, parent, start, end, attributes, scope="ai", name=operation)

    found = '[{"id": "a", "text": "x"}]'
    tool_call = {"ai.toolCall.name": "searchDocs", "ai.toolCall.args": '{"query": "q"}'}
    one = interpreted(
        of("ai.generateText", "t", "", 0, 99),
        of("ai.generateText.doGenerate", "m", "t", 1, 2),
        of("ai.toolCall", "x", "t", 3, 4, **tool_call, **{"ai.toolCall.result": found}),
    )

    [turn] = one.turns
    assert (turn.agent, turn.conversation, turn.searches[0].route) == ("desk", "c", "searchDocs")


def test_pydantic_ai_has_the_question_in_the_messages_of_its_agent() -> None:
    """Of a conversation it is the last one."""
    messages = [
        {"role": role, "parts": [{"type": "text", "content": said}]}
        for role, said in (("user", "first?"), ("assistant", "yes"), ("user", "second?"))
    ]
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "pydantic_ai.all_messages": json.dumps(messages),
        "final_result": "no",
    }

    [turn] = interpreted(
        span("t", attributes=attributes, scope="pydantic-ai"), search("s", "t", 0)
    ).turns

    assert (turn.question, turn.answer) == ("second?", "no")


def test_a_call_of_the_ai_sdk_without_tools_is_no_turn() -> None:
    """It rewrites a question or classifies it, and decides nothing about a search."""

    def call(id: str, start: float, **more: Any) -> list[Any]:
        inner = {"ai.operationId": "ai.generateText.doGenerate", **more}
        return [
            span(id, "root", start, start + 9, {"ai.operationId": "ai.generateText"}, scope="ai"),
            span(f"m{id}", id, start + 1, start + 8, inner, scope="ai"),
        ]

    root = span("root", end=99, scope="app")
    one = interpreted(root, *call("a", 1), *call("b", 20, **{"ai.prompt.tools": ["{}"]}))

    assert [(turn.span_id, turn.skipped) for turn in one.turns] == [("b", True)]


def test_rows_read_scopes_of_javascript_as_those_of_python() -> None:
    """LangGraph's run is a turn in both."""
    row = Row(Role.TURN, scope="openinference.instrumentation.langchain", span="x")

    assert row.matches(span("x", scope="@arizeai/openinference-instrumentation-langchain"))
    assert not row.matches(span("x", scope="@arizeai/openinference-instrumentation-openai"))
    graph = of_kind(
        "CHAIN",
        "g",
        end=99,
        name="LangGraph",
        scope="@arizeai/openinference-instrumentation-langchain",
    )
    assert interpreted(graph, model("m", "g", 1)).turns[0].skipped


def test_the_role_of_an_agent_of_crewai_with_what_was_put_into_it_is_no_name() -> None:
    """Roles have the inputs of a crew, which users write."""
    scope, inputs = "openinference.instrumentation.crewai", '{"topic": "deadlines of refunds"}'

    def crew(role: str) -> str | None:
        inside = {"graph.node.id": role, "input.value": "Research it."}
        one = interpreted(
            of_kind(
                "CHAIN",
                "crew",
                "",
                0,
                99,
                attributes={"crew_inputs": inputs},
                scope=scope,
                name="C.kickoff",
            ),
            of_kind("AGENT", "a", "crew", 1, 90, attributes=inside, scope=scope, name="role"),
            model("m", "a", 2),
            search("s", "a", 5),
        )
        return one.turns[0].agent

    assert crew("Expert") == "Expert"
    assert crew("Expert on deadlines of refunds") == "service"
