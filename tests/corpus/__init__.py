"""A corpus of valid and broken events: every field of every type, with every kind of value.

``FULL`` holds one event of each type in which every known field stands. ``FIELDS`` names each
field, ``TOKENS`` the JSON texts put in its place, and ``accepts`` says, in rules of its own that
share nothing with the decoder, whether the event is still valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.corpus.fields import FIELDS, Field, accepts

HOLE = "@@hole@@"

FULL: dict[str, dict[str, Any]] = {
    "search_iteration": {
        "type": "search_iteration",
        "version": 1,
        "event_id": "e-1",
        "occurred_at": "2024-06-10T09:15:25Z",
        "conversation_id": "conv-1",
        "turn": 1,
        "agent": "support",
        "release": "r1",
        "iteration": 1,
        "gate": {"decision": "search", "score": 0.5},
        "searches": [
            {
                "search_id": "s1",
                "ordinal": 0,
                "query": "q",
                "routing": {"selected": "files", "scores": {"files": 0.5, "mail": None}},
                "results": [
                    {
                        "result_id": "r1",
                        "entity_type": "File",
                        "ids": {"file_id": "f", "drive": ["d", None], "none": None},
                        "doc_id": "doc",
                        "url": "https://x.example/a",
                        "title": "t",
                        "snippet": "s",
                        "content": "c",
                        "fields": {"n": 1, "b": True, "f": 0.5, "s": "x", "l": [1, "a", None]},
                        "score": 0.5,
                        "baseline_rank": 2,
                        "gain": 3,
                    },
                    {"result_id": "r2"},
                ],
            },
            {"search_id": "s2", "results": []},
        ],
    },
    "relevance_labels": {
        "type": "relevance_labels",
        "version": 1,
        "event_id": "e-2",
        "occurred_at": 1718010925.5,
        "conversation_id": "conv-1",
        "turn": 1,
        "labels": [{"result_id": "r1", "gain": 4}, {"result_id": "r2", "gain": None}],
        "labeller": "judge",
        "routing": [{"search_id": "s1", "optimal": "files"}],
        "gate": [{"iteration": 1, "search_needed": True}],
        "source": "model",
        "sample": "random",
    },
    "turn_completed": {
        "type": "turn_completed",
        "version": 1,
        "event_id": "e-3",
        "occurred_at": 1718010925,
        "conversation_id": "conv-1",
        "turn": 1,
        "answer": "a",
        "reference_answers": ["a", None],
        "relevant": {"doc": 4, "other": None},
        "question": "q",
        "dimensions": {"language": "de", "none": None},
    },
    "forget": {
        "type": "forget",
        "version": 1,
        "event_id": "e-4",
        "occurred_at": 1718010925,
        "conversation_id": "conv-1",
        "turn": 1,
    },
}

_LENGTHS = (0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257)
_INTEGERS = (0, 1, 4, 5, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**20, 10**308)

TOKENS: tuple[str, ...] = (
    "null",
    *(json.dumps("x" * n) for n in _LENGTHS),
    *(json.dumps("\U0001f600" * n, ensure_ascii=False) for n in _LENGTHS),
    *(json.dumps("\U0001f600" * n) for n in (64, 65)),
    *(json.dumps("e\u0301" * n) for n in (32, 33, 64, 65, 128, 129)),
    *(str(n) for n in _INTEGERS),
    *(str(-n) for n in _INTEGERS),
    "-0", "0.0", "-0.0", "1.0", "1.5", "4.0", "1e0", "1E+0", "10e-1", "1e3", "5e-324", "1e308",
    "1e309", "-1e999", "1" + "0" * 309, "9" * 5000,
    "true", "false",
    "[]", "{}", "[null]", "[null,null]", "[[]]", "[{}]", "[[null]]", "[true]", "[1]", "[1.0]",
    "[0,4]", '["a"]', '["a","b"]', '["a","a"]', '[""]', '["a",null]', '["a",1]', '["a",[]]',
    '["a",{}]', '[1,true,0.5,"x",null]',
    f'["{"x" * 256}"]', f'["{"x" * 257}"]',
    '{"a":null}', '{"a":"b"}', '{"a":1}', '{"a":1.0}', '{"a":4}', '{"a":5}', '{"a":-1}',
    '{"a":true}', '{"a":[]}', '{"a":{}}', '{"a":["b"]}', '{"a":["b",null]}', '{"a":["b",1]}',
    '{"a":[1,2.5,false]}', '{"a":[[]]}', '{"a":[{}]}', '{"a":{"b":"c"}}', '{"":"x"}', '{"":1}',
    '{"":null}', f'{{"{"x" * 256}":1}}', f'{{"{"x" * 257}":1}}', f'{{"{"x" * 257}":null}}',
    '{"doc_id":"d"}', '{"doc_id":null}', '{"doc_id":""}', '{"doc_id":[]}', '{"doc_id":[null]}',
    '{"Doc_id":"d"}', '{"a":1e999}', '{"a":' + "9" * 400 + "}",
    '"NaN"', '"1"', '"true"', '"null"', '"search"', '"skip"', '"forget"', '"a\\u0000b"',
    '"2024-06-10T09:15:25Z"', '"2024-06-10t09:15:25.1234567z"', '"2024-06-10 09:15:25Z"',
    '"2024-06-10T09:15:25"', '"2024-02-30T00:00:00Z"', '"2023-02-29T00:00:00Z"',
    '"2024-02-29T23:59:59-23:59"', '"2024-06-10T24:00:00Z"', '"2016-12-31T23:59:60Z"',
    '"2024-06-10T09:15:25+24:00"', '"2024-06-10T09:15:25.Z"', '"2024-06-10T09:15:25Z\\n"',
    '"\\u0662024-06-10T09:15:25Z"', '{"decision":"skip"}', '{"decision":null}',
    '{"decision":"skip","score":null}', '{"selected":"a"}', '{"selected":"a","scores":{"a":true}}',
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """An event with ``token`` in the place of one field (None: the field is left out)."""

    field: Field
    token: str | None
    text: str
    accepted: bool


def cases(field: Field) -> Iterator[Case]:
    """All cases for one field."""
    for token in (None, *TOKENS):
        yield Case(field, token, _with(field, token), accepts(field, token))


def _with(field: Field, token: str | None) -> str:
    event = json.loads(json.dumps(FULL[field.type]))
    node = event
    for step in field.path[:-1]:
        node = node[step]
    if token is None:
        if not isinstance(node, dict) or field.path[-1] in node:
            del node[field.path[-1]]
        return json.dumps(event)
    node[field.path[-1]] = HOLE
    return json.dumps(event).replace(f'"{HOLE}"', token)


__all__ = ["FIELDS", "FULL", "TOKENS", "Case", "Field", "accepts", "cases"]
