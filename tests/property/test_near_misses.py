"""Results of tools that are no searches never become searches in silence."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.telemetry import Options, interpret
from tests.telemetry import MAPPING, agent, model, of_kind

KEYS = st.sampled_from(
    [
        *("id", "title", "text", "content", "url", "name", "description", "status", "date", "body"),
        *("results", "items", "documents", "data", "rows", "events", "tickets", "files", "value"),
        *("hits", "matches", "result", "metadata", "payload", "fields", "source", "type"),
    ]
)
TEXTS = st.sampled_from(
    ["Rain", "Standup at nine", "SELECT 1", "https://x.example/1", "<p>Hi</p>", "a\n\nb", "--", "7"]
)
LEAVES = TEXTS | st.integers(0, 9) | st.none() | st.booleans()
RESULTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(1, 9), "title": TEXTS, "text": TEXTS},
        optional={"url": st.just("https://x.example/2"), "status": TEXTS},
    ),
    min_size=1,
    max_size=4,
)
NAMES = st.sampled_from(
    [
        *("get_weather", "list_orders", "get_messages", "run_sql", "create_ticket", "list_files"),
        *("read_file", "fetch_page", "translate", "list_events", "get_todos", "run_code"),
    ]
)
ARGUMENTS = st.sampled_from(
    [
        *({}, {"city": "Bern"}, {"path": "/"}, {"text": "hello"}, {"url": "https://x.example"}),
        *({"sql": "SELECT 1"}, {"query": "SELECT id, text FROM notes"}, {"id": 7}),
    ]
)
SIGNS = st.sampled_from(
    [
        *({}, {"tool.name": "search_docs"}, {"tool.description": "Looks up messages"}),
        {"input.value": '{"query": "standup"}'},
    ]
)


@given(
    name=NAMES,
    arguments=ARGUMENTS,
    result=RESULTS | ROWS | st.builds(lambda rows: {"results": rows}, ROWS),
    sign=SIGNS,
)
def test_a_tool_with_one_sign_at_most_is_no_search(
    name: str, arguments: dict[str, Any], result: Any, sign: dict[str, str]
) -> None:
    """Whatever it returns: without scores, its name or its query alone show nothing."""
    attributes = {
        "tool.name": name,
        "input.value": json.dumps(arguments),
        "output.value": json.dumps(result),
        **sign,
    }

    one = interpret(
        [
            agent(),
            model("m", "agent", 1),
            of_kind("TOOL", "tool", "agent", 3, attributes=attributes),
            model("n", "agent", 5),
        ],
        MAPPING,
        Options(),
    )

    assert [search for turn in one.turns for search in turn.searches] == []
