"""Which spans are one turn: by the root, and by what the user wrote."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stream_metrics.core.telemetry import Interpretation, Span
from tests.telemetry import agent, interpreted, model, of_kind, search, searched, span, tool

FIRST, SECOND = "Where is my parcel?", "And what about the bill?"


def run(
    name: str, start: float, asked: str = "", answered: str = "", found: str = "a", **others: Any
) -> list[Span]:
    """A run of an agent that searches once."""
    attributes = {
        "agent.name": name,
        **({"input.value": asked} if asked else {}),
        **({"output.value": answered} if answered else {}),
    }
    id = f"{name}{start:g}"
    parent = others.pop("parent", "root")
    return [
        agent(id, start, start + 9, parent=parent, attributes=attributes, **others),
        model(f"m{id}", id, start + 1),
        search(f"s{id}", id, start + 3, found=found),
    ]


def together(*runs: list[Span], root: Span | None = None) -> Interpretation:
    """The interpretation of runs under one root of the program."""
    root = root or span("root", end=1000, scope="app")
    return interpreted(root, *(one for each in runs for one in each))


def test_agents_that_were_asked_the_same_are_one_turn() -> None:
    """The first one handed the question on."""
    one = together(run("desk", 10, FIRST, "Ask the expert."), run("expert", 30, FIRST, found="b"))

    assert searched(one) == [(1, "a"), (2, "b")]
    [turn] = one.turns
    assert (turn.span_id, turn.agent, turn.question) == ("desk10", "desk", FIRST)


def test_an_agent_that_was_given_the_answer_of_another_is_part_of_its_turn() -> None:
    """A writer follows a researcher; the answer is that of the last."""
    notes = "The parcel is in Hamburg since Monday."
    one = together(
        run("researcher", 10, FIRST, notes),
        run("writer", 30, f"Write an answer from: {notes}", "It is in Hamburg.", "b"),
    )

    [turn] = one.turns
    assert (len(turn.searches), turn.answer) == (2, "It is in Hamburg.")


def test_agents_that_were_asked_different_questions_are_turns_of_their_own() -> None:
    """Nothing was handed on."""
    one = together(run("desk", 10, FIRST, "Tomorrow."), run("billing", 30, SECOND))

    assert [turn.agent for turn in one.turns] == ["desk", "billing"]
    assert one.following == 0


def test_runs_of_one_agent_are_turns_of_a_session() -> None:
    """Even if the user asks the same again."""
    one = together(run("desk", 10, FIRST), run("desk", 30, FIRST), run("desk", 50, SECOND))

    assert len(one.turns) == 3


def test_agents_without_recorded_questions_are_told_with_a_notice() -> None:
    """They may be one turn or two."""
    one = together(run("desk", 10), run("expert", 30))

    assert (len(one.turns), one.following) == (2, 1)
    assert (len(together(run("desk", 10), run("desk", 30)).turns), one.following) == (2, 1)


def test_an_agent_without_a_search_that_may_be_part_of_a_turn_is_no_skip() -> None:
    """It may have handed the question on to one that searched."""
    desk = [agent("a", 10, 19, parent="root", attributes={"agent.name": "desk"})]
    desk.append(model("m", "a", 11))
    one = together(desk, run("expert", 30))

    assert ([turn.agent for turn in one.turns], one.refused) == (["expert"], {"unrecognised": 1})
    asked, answered = {"input.value": FIRST}, {"input.value": SECOND}
    for spans, more in ((desk, asked), (expert := run("expert", 30), answered)):
        spans[0].attributes.update(more)
    assert [turn.skipped for turn in together(desk, expert).turns] == [True, False]


def test_a_handed_on_question_does_not_join_the_next_turn() -> None:
    """The next question begins another."""
    one = together(
        run("desk", 10, FIRST),
        run("expert", 30, FIRST),
        run("desk", 50, SECOND),
        run("expert", 70, SECOND),
    )

    assert [len(turn.searches) for turn in one.turns] == [2, 2]


def test_runs_of_two_conversations_are_never_one_turn() -> None:
    """Though their users ask the same."""
    runs = run("desk", 10, FIRST), run("expert", 30, FIRST)
    for number, spans in enumerate(runs):
        spans[0].attributes["session.id"] = f"c-{number}"

    assert len(together(*runs).turns) == 2


@pytest.mark.parametrize(
    ("scope", "name", "attributes"),
    [
        ("strands.telemetry.tracer", "g", {"gen_ai.operation.name": "invoke_graph"}),
        ("strands.telemetry.tracer", "g", {"gen_ai.operation.name": "invoke_swarm"}),
        ("app", "g", {"gen_ai.operation.name": "invoke_workflow"}),
        ("agent_framework", "workflow.run", {}),
        (
            "openinference.instrumentation.crewai",
            "crew.kickoff",
            {"openinference.span.kind": "CHAIN"},
        ),
        (
            "openinference.instrumentation.autogen_agentchat",
            "RoundRobinGroupChat.run_stream",
            {"openinference.span.kind": "AGENT"},
        ),
    ],
)
def test_a_group_of_agents_is_one_turn(scope: str, name: str, attributes: dict[str, str]) -> None:
    """Whatever its agents were told to do."""
    root = span("root", end=1000, scope=scope, name=name, attributes=attributes)
    runs = run("a", 10, FIRST), run("b", 30, "Write it down."), run("a", 50, "Check the text.")
    one = together(*runs, root=root)

    [turn] = one.turns
    assert (turn.span_id, turn.agent, len(turn.searches)) == ("root", "service", 3)


def test_agents_of_a_group_chat_are_one_turn() -> None:
    """AutoGen has a span for each message, and none for the chat."""
    root = span("root", end=1000, scope="app")
    runs = run("writer", 10), run("critic", 30, found="b"), run("writer", 50, found="c")
    message = span(
        "p",
        "root",
        5,
        scope="autogen SingleThreadedAgentRuntime",
        name="autogen process RoundRobinGroupChatManager_1",
        attributes={"messaging.operation": "process"},
    )

    assert len(together(*runs, root=root).turns) == 3
    [turn] = together(*runs, [message], root=root).turns
    assert len(turn.searches) == 3


@pytest.mark.parametrize(
    "scope", ["autogen SingleThreadedAgentRuntime", "agent_runtime InProcessRuntime"]
)
def test_a_trace_that_begins_with_a_message_to_an_agent_is_refused(scope: str) -> None:
    """The rest of the team has traces of its own, which would be turns, too."""
    message = span(
        "p",
        end=1000,
        scope=scope,
        name="send writer_1",
        attributes={"messaging.operation": "publish"},
    )
    silent = agent("writer", parent="p", attributes={"agent.name": "writer"})

    assert together(run("desk", 10, FIRST, parent="p"), root=message).refused == {"unrecognised": 1}
    one = interpreted(message, silent, model("m", "writer", 5))
    assert (one.refused, one.turns) == ({"unrecognised": 1}, ())
    root = span("root", end=1000, scope="app")
    inside = msgspec.structs.replace(message, parent_id="root")
    assert len(together(run("desk", 10, FIRST, parent="p"), [inside], root=root).turns) == 1


def test_an_agent_around_several_questions_is_refused() -> None:
    """It may be a session, of which each run is a turn."""
    runs = run("desk", 10, FIRST), run("desk", 30, SECOND)
    root = agent("root")

    assert together(*runs, root=root).refused == {"unrecognised": 1}
    asked = agent("root", attributes={"input.value": FIRST})
    assert len(together(*runs, root=asked).turns) == 1
    supervised = [*runs[1], model("supervisor", "root", 25)]
    assert len(together(runs[0], supervised, root=root).turns) == 1


def test_an_agent_that_is_asked_something_new_after_another_ran_is_refused() -> None:
    """It is one turn if it was given what the other said."""
    answer = "It was sent on Monday, and the bill is with it."
    runs = run("desk", 10, FIRST), run("writer", 30, FIRST, answer)

    assert together(*runs, run("desk", 50, SECOND), root=agent("root")).refused == {
        "unrecognised": 1
    }
    given = run("desk", 50, f"Check this: {answer}")
    assert len(together(*runs, given, root=agent("root")).turns) == 1


def test_an_agent_whose_models_were_asked_something_new_after_an_answer_is_refused() -> None:
    """It may be a session; a message of the user after a call of tools is none."""

    def call(id: str, start: float, messages: list[tuple[str, str]], answer: str) -> Span:
        attributes = {
            f"llm.input_messages.{at}.message.{name}": value
            for at, message in enumerate(messages)
            for name, value in zip(("role", "content"), message, strict=True)
        }
        return model(id, "root", start, attributes={**attributes, "output.value": answer})

    asked = ("user", FIRST)
    answer, calls = "In Hamburg.", '{"tool_calls": [{"id": "c"}]}'
    later = [asked, ("assistant", answer), ("user", SECOND)]
    observed = [asked, ("assistant", ""), ("user", "Observation: nothing")]
    root = agent("root")
    found = (search("s", "root", 3), search("r", "root", 9))

    session = call("m", 1, [asked], answer), call("n", 7, later, "Here.")
    assert interpreted(root, *session, *found).refused == {"unrecognised": 1}
    loop = call("m", 1, [asked], calls), call("n", 7, observed, answer)
    assert searched(interpreted(root, *loop, *found)) == [(1, "a"), (2, "a")]
    named = agent("root", attributes={"input.value": FIRST})
    assert searched(interpreted(named, *session, *found)) == [(1, "a"), (2, "a")]


def test_each_step_of_mastra_is_a_model_call() -> None:
    """One span of a generation is around all of them, and around their tools."""

    def part(kind: str, id: str, parent: str, start: float, end: float, **others: Any) -> Span:
        attributes = {"mastra.span.type": kind, **others}
        return span(id, parent, start, end, attributes, scope="@mastra/otel-exporter")

    result = '[{"id": "a", "text": "x"}]'
    called = {"gen_ai.tool.name": "searchDocs", "mastra.mcp_tool_call.output": result}
    called["mastra.mcp_tool_call.input"] = '{"query": "q"}'
    one = interpreted(
        part("agent_run", "run", "", 0, 99),
        part("model_generation", "all", "run", 1, 90),
        part("model_step", "first", "all", 2, 30),
        part("mcp_tool_call", "x", "first", 10, 20, **called),
        part("model_step", "second", "all", 31, 60),
        part("mcp_tool_call", "y", "second", 40, 50, **called),
        part("model_step", "third", "all", 61, 80),
    )

    assert searched(one) == [(1, "a"), (2, "a")]


def test_tools_of_pydantic_ai_before_the_conventions_are_tools() -> None:
    """Their spans have the name of the tool in an attribute only."""
    attributes = {"gen_ai.tool.name": "search_docs", "tool_arguments": '{"query": "q"}'}
    attributes["tool_response"] = '[{"id": "a", "text": "x"}]'
    one = interpreted(
        span("run", end=99, attributes={"agent_name": "desk"}, scope="pydantic-ai"),
        span("x", "run", 10, attributes=attributes, scope="pydantic-ai", name="running tool"),
    )

    assert searched(one) == [(1, "a")]


def test_a_trace_without_agents_that_was_asked_several_questions_is_refused() -> None:
    """The messages of a model call have those of an earlier one, and another of the user."""

    def call(id: str, start: float, *asked: str) -> Span:
        messages = {
            f"llm.input_messages.{2 * at}.message.{name}": value
            for at, text in enumerate(asked)
            for name, value in (("role", "user"), ("content", text))
        }
        return model(id, "root", start, attributes=messages)

    root = span("root", end=1000, scope="app")
    first = [root, call("m", 1, FIRST), search("s", "root", 3), call("n", 5, FIRST)]
    second = [call("o", 7, FIRST, SECOND), search("r", "root", 9)]

    assert len(interpreted(*first).turns) == 1
    assert interpreted(*first, *second).refused == {"unrecognised": 1}


def test_merged_tools_of_adk_are_told_once() -> None:
    """Calls at once have a span each, and one for all of them."""
    scope = "gcp.vertex.agent"
    found = '[{"id": "a", "text": "x"}]'

    def call(id: str, name: str, start: float) -> Span:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.arguments": '{"query": "q"}',
            "gen_ai.tool.call.result": found,
        }
        return span(id, "t", start, attributes=attributes, scope=scope, name=f"execute_tool {name}")

    invoked = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk"}
    one = interpreted(
        span("t", end=99, attributes=invoked, scope=scope),
        call("x", "search_docs", 1),
        call("y", "(merged tools)", 3),
    )

    assert searched(one) == [(1, "a")]


def test_an_agent_that_is_called_as_a_tool_is_part_of_the_turn() -> None:
    """Whatever it was asked."""
    outer = agent("root", attributes={"agent.name": "desk"})
    calls = [
        tool("x", "root", 5, 28, name="ask"),
        *run("expert", 10, FIRST, parent="x"),
        tool("y", "root", 29, 48, name="ask"),
        *run("expert", 30, SECOND, parent="y"),
    ]
    one = interpreted(outer, model("m", "root", 1), *calls)

    assert [turn.agent for turn in one.turns] == ["desk"]


def test_whole_milliseconds_do_not_merge_iterations() -> None:
    """A model call that began in the millisecond in which a tool ended came after it."""
    spans = (
        agent(end=60.4),
        model("m1", "agent", 1, 9.3),
        search("s1", "agent", 9, 9.6),
        model("m2", "agent", 9, 19.7),
        search("s2", "agent", 19, 19.9, found="b"),
        search("s3", "agent", 19, 20.1, found="c"),
        model("m3", "agent", 20, 29.2),
    )
    one = interpreted(*spans)

    assert searched(one) == [(1, "a"), (2, "b"), (2, "c")]
    assert not one.turns[0].iterations_inferred
    server = span("server", start=-0.001, end=61, scope="server")
    below = (msgspec.structs.replace(spans[0], parent_id="server"), *spans[1:])
    assert searched(interpreted(server, *below)) == searched(one)


def test_whole_milliseconds_of_a_clock_that_is_ahead_do_not_merge_iterations() -> None:
    """A second instrumentation may be given times that are all ahead by some nanoseconds."""
    spans = (
        agent(end=60.4),
        model("m1", "agent", 1, 9.3),
        search("s1", "agent", 9, 9.6),
        model("m2", "agent", 9, 19.7),
        search("s2", "agent", 19, 19.9, found="b"),
    )
    ahead = (
        msgspec.structs.replace(
            one, start_ns=one.start_ns + 900, end_ns=one.end_ns + 900, scope="vendor"
        )
        for one in spans
    )

    assert searched(interpreted(*ahead)) == [(1, "a"), (2, "b")]


def test_calls_within_one_millisecond_are_inferred() -> None:
    """Whether a model came before or after a search is not in the times."""
    spans = (
        agent(end=9.4),
        model("m1", "agent", 1, 1.1),
        search("s1", "agent", 1, 1.2),
        model("m2", "agent", 1, 1.3),
        search("s2", "agent", 2, 2.3, found="b"),
    )

    assert interpreted(*spans).turns[0].iterations_inferred


def test_steps_in_whole_milliseconds_do_not_overlap() -> None:
    """One that began in the millisecond in which another ended came after it."""
    steps = {"gen_ai.span.kind": "STEP"}
    spans = (
        agent(end=60.4),
        span("t1", "agent", 1, 9.6, steps),
        search("s1", "t1", 2, 3.5),
        span("t2", "agent", 9, 19.6, steps),
        search("s2", "t2", 10, 12.5),
    )

    assert not interpreted(*spans).turns[0].iterations_inferred
    assert of_kind("CHAIN", "x").start_ns % 1_000_000 == 0
