"""Content that was uploaded elsewhere is refused as missing, with where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stream_metrics.core.telemetry import Interpretation, Options, interpret, mapping
from tests.telemetry import span

WHERE = "gs://traces/2026/result.json"
QUERY = json.dumps({"query": "refunds"})
CALL = {"gen_ai.tool.call.id": "c"}


def turn(
    tool: dict[str, Any], chat: dict[str, Any] | None = None, agent: dict[str, Any] | None = None
) -> Interpretation:
    """The interpretation of a turn with a search tool between two model calls."""
    searched = {"gen_ai.tool.name": "search_docs", "gen_ai.tool.call.arguments": QUERY}
    given: tuple[tuple[str, str, float, float, str, dict[str, Any]], ...] = (
        ("turn", "", 0, 100, "invoke_agent", agent or {}),
        ("first", "turn", 1, 5, "chat", {}),
        ("tool", "turn", 10, 20, "execute_tool", searched | tool),
        ("last", "turn", 90, 95, "chat", chat or {}),
    )
    spans = [
        span(id, parent, start, end, {"gen_ai.operation.name": operation, **attributes}, scope="x")
        for id, parent, start, end, operation, attributes in given
    ]
    return interpret(spans, mapping(), Options())


@pytest.mark.parametrize(
    ("tool", "chat", "agent"),
    [
        ({"gen_ai.tool.call.result_ref": f"{WHERE}?token=secret"}, {}, {}),
        ({"gen_ai.tool.call.result": f"{WHERE}?token=secret"}, {}, {}),
        ({"gen_ai.tool.call.result": json.dumps([{"type": "uri", "uri": WHERE}])}, {}, {}),
        ({"gen_ai.tool.call.result": "{}", "gen_ai.output.messages_ref": WHERE}, {}, {}),
        ({}, {"gen_ai.input.messages_ref": WHERE}, {}),
        ({}, {}, {"gen_ai.output.messages_ref": WHERE}),
    ],
    ids=["attribute", "address", "part", "nothing", "model", "agent"],
)
def test_a_result_that_was_uploaded_is_refused_with_its_place(
    tool: dict[str, Any], chat: dict[str, Any], agent: dict[str, Any]
) -> None:
    """Without what may be a secret in an address."""
    one = turn(tool, chat, agent)

    assert (one.turns, one.refused) == ((), {"content_off": 1})
    assert f"uploaded to {WHERE}" in one.refusals[0].message
    assert "secret" not in one.refusals[0].message


def test_documents_of_a_retrieval_that_were_uploaded_are_refused_with_their_place() -> None:
    """As the result of a tool."""
    attributes = {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.documents_ref": WHERE,
    }
    one = interpret([span("s", attributes=attributes, scope="x")], mapping(), Options())

    assert one.refused == {"content_off": 1}
    assert WHERE in one.refusals[0].message


def test_a_result_that_was_uploaded_is_read_where_a_message_has_it() -> None:
    """Nothing is missing then."""
    documents = [{"id": "a", "text": "Refunds take five days."}]
    response = {"type": "tool_call_response", "id": "c", "response": documents}
    messages = json.dumps([{"role": "tool", "parts": [response]}])

    one = turn(CALL | {"gen_ai.tool.call.result": WHERE}, {}, {"gen_ai.output.messages": messages})

    assert one.refused == {}
    assert [result.doc_id for result in one.turns[0].searches[0].results] == ["a"]


def test_an_answer_that_was_uploaded_may_have_called_tools() -> None:
    """A turn with it is no decision not to search, unless the model says that it ended."""
    agent = span("t", end=100, attributes={"gen_ai.operation.name": "invoke_agent"}, scope="x")
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.output.messages_ref": WHERE}
    ended = attributes | {"gen_ai.response.finish_reasons": ["stop"]}
    refused, skipped = (
        interpret([agent, span("m", "t", 1, 2, each, scope="x")], mapping(), Options())
        for each in (attributes, ended)
    )

    assert refused.refused == {"unseen_searches": 1}
    assert WHERE in refused.refusals[0].message
    assert [one.skipped for one in skipped.turns] == [True]
