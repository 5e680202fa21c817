"""Hypothesis strategies for event streams, built to make collisions and near misses common.

Every value comes from a small pool, in which the variants of one thing stand side by side: equal
after normalisation, equal in a prefix only, equal but for a part that does not count. A stream
has a palette of one to three entity types; a result is a base document of such a type, a mask
that takes whole kinds of evidence away, and a few edits. Pools begin with the plainest value, so
that failing examples shrink to it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

KeyedRecord = tuple[bytes, bytes, int | None]  # key, value, timestamp in milliseconds
Draw = st.DrawFn
Palette = list[tuple[str, str]]  # entity types, each with its usual URL

# --- pools of texts ---------------------------------------------------------------------------

_MID = "The closing dates of the quarter and the open invoices of the supplier"  # 50 … 100
_FIFTY = "Fifty characters of text, neither more nor fewer..."[:50]
_PREFIX_100 = ("One hundred characters that two snippets share before they part " * 2)[:100]
_LONG = ("A long content that two indexes may hold under two identifiers, word for word. " * 4)[
    :240
]
_PREFIX_500 = ("Five hundred characters which two contents have in common at first. " * 8)[:500]

TITLES = [
    "Quarterly plan",
    "QUARTERLY   plan ",
    "Stra\u00dfe und Plan",
    "STRASSE und\u00a0Plan",
    "Another plan",
    "\u00dcbersicht \u1e0b\u0323",
    "u\u0308BERSICHT d\u0323\u0307",
    "2024-05-06T09:00:00Z",
    "2024-05-06T11:00:00+02:00",
    _PREFIX_100 + " first",
    _PREFIX_100 + " second",
    "",
    None,
]
SNIPPETS = [
    _MID,
    _MID.upper().replace(" ", " \t "),
    _MID + ", with a second page",
    "No preview",
    _FIFTY,
    _FIFTY[:49],
    _FIFTY[:49] + "\u00e9",
    _FIFTY[:49] + "E\u0301",
    _PREFIX_100 + " and then the first",
    _PREFIX_100 + " and then the second",
    " \u2003 ",
    None,
]
CONTENTS = [
    _LONG,
    _LONG.swapcase(),
    _LONG[:200].strip() + "." * (200 - len(_LONG[:200].strip())),
    _LONG[:198].strip(),
    _LONG + " And more.",
    _LONG[:220] + "f\u00fcr",
    _LONG[:220] + "fu\u0308r",
    _MID,
    "short",
    _PREFIX_500 + " end one",
    _PREFIX_500 + " end two",
    "",
    None,
]
DOC_IDS = [
    "D-1",
    "D-2",
    "d-1",
    "D-3",
    "0F8FAD5B-D9CB-469F-A165-70867728950E",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    None,
]
URLS = [
    "https://docs.example/a/page?lang=en",
    "http://Docs.Example:443/a/page/?LANG=en&utm_source=x#part",
    "https://reader@docs.example/a/p%61ge?lang=en&view=1&token=9",
    "https://docs.example/a/page?lang=de",
    "https://docs.example/a/page?lang=en&id=7",
    "https://docs.example/a/page?lang=en&ID=8",
    "https://docs.example/a/page?lang=en&id=8&id=7",
    "https://docs.example/a/page?id=7&id=8&lang=en",
    "https://docs.example/a/page?lang=en&v=",
    "https://docs.example/a/page",
    "https://docs.example/a/page?view=1",
    "https://docs.example/a/page?action=2&web=1",
    "https://docs.example/a/page?lang=en#/route",
    "https://docs.example/a/page?lang=en#!route",
    "https://docs.example/a/Page?lang=en",
    "https://docs.example/a/b%2fc",
    "https://docs.example/a/b%2Fc",
    "https://docs.example/a/b/c",
    "https://docs.example:8080/a/page?lang=en",
    "https://docs.example",
    "ftp://docs.example:80/",
    "https://docs.example//",
    "http://[docs.example/a/page",
    "https://user@:443/a/page",
    "/a/page?lang=en",
    "https://docs.example/x/../a/./page?lang=en&ref=1",
    "https://docs.example:80/a/page?lang=en",
    "https://docs.example/a/page?lang=en#inbox/1",
    "https://docs.example/a/page?lang=en#inbox/2:~:text=x",
    "https://docs.example/a/page?lang=en#page=2",
    "https://docs.example/a/page?lang=%FC",
    "https://docs.example/a/page?lang=%fD",
    "wiki://docs.example/a/page?lang=en",
    "wiki://Docs.Example/a/page?lang=en",
    "https://b\u00fccher.example/a/\u00fc",
    "https://xn--bcher-kva.example/a/%C3%BC/",
    "https://docs.example/a/page?" + "&".join(f"n{n}=1" for n in range(501)),
    "",
    None,
]

# --- pools of IDs and fields ------------------------------------------------------------------

ID_VALUES: list[Any] = [
    "A1",
    "A2",
    "a1",
    ["A1"],
    ["A1", "A2"],
    ["A2", "A3"],
    "",
    [],
    [""],
    ["", "A1", None],
    "0F8FAD5B-D9CB-469F-A165-70867728950E",
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    None,
]
FIELD_VALUES: list[Any] = [
    "x",
    " X",
    "y",
    1,
    1.0,
    1.5,
    "1",
    True,
    False,
    0,
    ["x"],
    ["x", "y"],
    ["Y", "x"],
    ["x", "x"],
    [1, "x"],
    [True, None],
    ["", "x"],
    [],
    "",
    "2024-05-06T09:00:00Z",
    "2024-05-06T11:00:00.0000001+02:00",
    None,
]
TIME_VALUES: list[Any] = [
    "2024-05-06T09:00:00Z",
    "2024-05-06t11:00:00+02:00",
    "2024-05-06T04:30:00.000000-04:30",
    " 2024-05-06T09:00:00.0000009z ",
    "2024-05-06T09:00:00.000001Z",
    "2024-05-06 09:00:00Z",
    "2024-05-06T09:00:60Z",
    "2024-05-13T09:00:00Z",
    ["2024-05-06T11:00:00+02:00"],
    1714986000,
    "",
    None,
]
TITLE_FIELD_VALUES: list[Any] = [
    "Quarterly plan",
    "QUARTERLY  PLAN",
    "Another plan",
    ["Quarterly plan"],
    ["Quarterly plan", "Another plan"],
    "2024-05-06T09:00:00Z",
    7,
    True,
    "",
    None,
]

_FIELD_POOLS: dict[str, list[Any]] = {
    **dict.fromkeys(("start", "end", "date_time_received", "last_modified_time"), TIME_VALUES),
    **dict.fromkeys(("subject", "file_name", "display_name"), TITLE_FIELD_VALUES),
}

# The ID components and the fields that matter to a type, or that must not matter to it.
TYPE_PARTS: dict[str, tuple[list[str], list[str]]] = {
    "Document": (
        ["chunk_id", "site_id", "original_id", "tenant_id", "email"],
        ["author", "pages", "topic", "retrieved_at", "score", "source", "title", "subject"],
    ),
    "File": (
        ["file_id", "unique_id", "site_id", "web_id", "other_id"],
        ["file_name", "file_type", "author", "last_modified_by", "last_modified_time"],
    ),
    "Event": (
        ["event_id", "original_id", "site_id"],
        ["start", "end", "organizer_email", "subject", "invitees", "organizer_name"],
    ),
    "EmailMessage": (
        ["email_url", "original_id"],
        ["date_time_received", "from", "to", "subject", "is_read", "is_mentioned"],
    ),
    "TeamsMessage": (
        ["item_id", "container_id"],
        ["from", "to", "participants", "subject"],
    ),
    "PeopleInferenceAnswer": (
        ["alias", "upn", "email"],
        ["display_name", "department", "company_name", "office_location"],
    ),
    "External": (
        ["artifact_id", "site_id"],
        ["plugin_id", "plugin_type", "display_name"],
    ),
    "MeetingTranscript": (
        ["event_id", "web_id"],
        ["start", "end", "segment"],
    ),
}
TYPE_NAMES: dict[str, list[str | None]] = {
    "Document": [None, "Document", "DOCUMENT"],
    "File": ["File", "FILE"],
    "Event": ["Event", "event"],
    "EmailMessage": ["EmailMessage", "Email", "eMAIL"],
    "TeamsMessage": ["TeamsMessage", "teamsmessage"],
    "PeopleInferenceAnswer": ["PeopleInferenceAnswer", "People", "PEOPLE"],
    "External": ["External"],
    "MeetingTranscript": ["MeetingTranscript", "meetingTranscript"],
}
_KINDS = [*TYPE_PARTS, "Ticket"]

_OWN_POOLS: dict[str, list[Any]] = {
    "doc_id": DOC_IDS,
    "url": URLS,
    "title": TITLES,
    "snippet": SNIPPETS,
    "content": CONTENTS,
}

# What a mask takes away, so that each later step of verification gets its turn.
MASKS: list[tuple[str, ...]] = [
    (),
    ("ids", "doc_id"),
    ("ids", "doc_id", "content"),
    ("ids", "doc_id", "snippet", "content"),
    ("ids", "doc_id", "url"),
    ("ids", "doc_id", "url", "snippet", "content"),
    ("ids", "url"),
    ("ids", "url", "snippet"),
    ("doc_id", "url"),
    ("ids", "doc_id", "url", "content", "title"),
    ("ids", "doc_id", "url", "title", "snippet", "content", "fields"),
]


def _parts(kind: str) -> tuple[list[str], list[str]]:
    return TYPE_PARTS.get(kind, TYPE_PARTS["Document"])


def _base(kind: str) -> dict[str, Any]:
    ids, fields = _parts(kind)
    return {
        "ids": {ids[0]: "A1"},
        "doc_id": DOC_IDS[0],
        "url": URLS[0],
        "title": TITLES[0],
        "snippet": SNIPPETS[0],
        "content": CONTENTS[0],
        "fields": {name: _FIELD_POOLS.get(name, FIELD_VALUES)[0] for name in fields[:5]},
    }


def _slots(kind: str) -> list[tuple[str, str, list[Any]]]:
    ids, fields = _parts(kind)
    slots = [("", name, pool) for name, pool in _OWN_POOLS.items()]
    slots += [("", "url", URLS), ("", "url", URLS), ("", "doc_id", DOC_IDS)]
    slots += [("ids", name, ID_VALUES) for name in [ids[0], *ids]]
    slots += [("fields", name, _FIELD_POOLS.get(name, FIELD_VALUES)) for name in fields]
    return slots


_EDITS = {
    kind: st.lists(
        st.sampled_from(_slots(kind)).flatmap(
            lambda slot: st.tuples(st.just(slot[0]), st.just(slot[1]), st.sampled_from(slot[2]))
        ),
        max_size=3,
    )
    for kind in _KINDS
}
_MASK = st.sampled_from(MASKS)
_NAME = {kind: st.sampled_from(TYPE_NAMES.get(kind, [kind, kind.upper()])) for kind in _KINDS}
_EXTRAS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"gain": 3},
        {"gain": 1},
        {"gain": 0},
        {"baseline_rank": 1},
        {"baseline_rank": 2},
        {"baseline_rank": 2, "gain": 2},
        {"baseline_rank": 1, "gain": 4, "score": 0.75},
        {"score": 3, "x_unknown": {"deep": [1, None]}},
        {"gain": None, "url": None},
    ]
)
_PALETTE = st.lists(
    st.tuples(st.sampled_from(_KINDS), st.sampled_from([str(URLS[n]) for n in (0, 4, 6)])),
    min_size=1,
    max_size=3,
    unique=True,
)


@st.composite
def results(draw: Draw, palette: Palette, default_id: str) -> dict[str, Any]:
    """One result of one of the palette's types."""
    kind, url = draw(st.sampled_from(palette))
    document = _base(kind)
    document["url"] = url
    for part in draw(_MASK):
        document.pop(part)
    for group, name, value in draw(_EDITS[kind]):
        target = document.setdefault(group, {}) if group else document
        if isinstance(value, list):
            value = list(value)
        target[name] = value
    name = draw(_NAME[kind])
    if name is not None:
        document["entity_type"] = name
    document.update(draw(_EXTRAS))
    document["result_id"] = draw(st.sampled_from([default_id] * 7 + ["shared", "s1-1"]))
    return document


# --- events -----------------------------------------------------------------------------------

CONVERSATIONS = ["c1", "c2", "k\u00f6ln-3"]
SEARCH_IDS = ["s1", "s2", "s3", "s4", "s5"]
NARROW, WIDE = [1, 2, 3, 1, 2, 5, 9, 12], list(range(1, 13))
WIDE_IDS = [f"s{n}{letter}" for n in WIDE for letter in ("", "b")]
ROUTES = ["files", "mail", "people"]
START = datetime(2024, 5, 13, 8, 30, tzinfo=UTC)
OFFSETS_US = [
    int(second * 1_000_000)
    for second in (
        *(0, 1, 2, 3, 5, 8, 0.25, 2.5, 10, 10.000001, 20, 30, 58, 59, 60, 61, 119),
        *(290, 299.999999, 300, 301, 1770, 1790, 1800, 3540, 3599, 3600),
        *(21_240, 21_590, 21_600, 84_960, 86_390, 86_400, 90_000),
    )
]
_TURN = {False: st.sampled_from([1, 1, 1, 2, 2, 2**53 - 1]), True: st.just(1)}
_ITERATION = {False: st.sampled_from(NARROW), True: st.sampled_from(WIDE)}
_NOTATION = st.sampled_from(["Z", "number", "+02:00", "-04:30", "z", "digits"])
_TIME = st.tuples(st.sampled_from(OFFSETS_US), _NOTATION)


def moment(offset_us: int, notation: str) -> str | int | float:
    """Write a time of the pool in one of the notations."""
    when = START + timedelta(microseconds=offset_us)
    if notation == "number":
        micros = (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return micros // 1_000_000 if micros % 1_000_000 == 0 else micros / 1_000_000
    if notation == "+02:00":
        return when.astimezone(timezone(timedelta(hours=2))).isoformat()
    if notation == "-04:30":
        return when.astimezone(timezone(-timedelta(hours=4, minutes=30))).isoformat()
    text = when.replace(tzinfo=None).isoformat()
    if notation == "z":
        return text.replace("T", "t") + "z"
    if notation == "digits":
        return text + ("" if "." in text else ".000000") + "97Z"
    return text + "Z"


_ENVELOPE_EXTRAS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"x_trace": {"id": "t", "spans": [1, 2.5, None]}},
        {"version": 1},
        {"version": None, "dimensions": None},
        {"agent": "desk"},
        {"agent": "\u00c4sk", "release": "r1"},
        {"agent": "desk", "release": "r2"},
        {"release": "r1", "labels": None},
    ]
)
_GATE = st.sampled_from(
    [
        None,
        None,
        {"decision": "search"},
        {"decision": "skip", "score": 0.25},
        {"decision": "skip"},
        {"decision": "search", "score": None},
    ]
)
_ROUTING = st.sampled_from(
    [None, None]
    + [{"selected": route} for route in ROUTES]
    + [{"selected": "files", "scores": {"files": 0.5, "mail": 1, "people": None}}]
)
_ORDINAL = st.sampled_from([None, 0, 1, None, 2])
_QUERY = st.sampled_from(
    [None, "opening hours", "Opening\u00a0 HOURS ", "Z\u00fcrich", "zu\u0308rich", " "]
)


@st.composite
def searches(draw: Draw, palette: Palette, search_ids: list[str]) -> dict[str, Any]:
    """One search with up to four results."""
    search_id = draw(st.sampled_from(search_ids))
    size = draw(st.sampled_from([1, 2, 3, 0, 4, 2]))
    search: dict[str, Any] = {"search_id": search_id}
    ordinal, routing = draw(_ORDINAL), draw(_ROUTING)
    query = draw(_QUERY)
    if query is not None:
        search["query"] = query
    if ordinal is not None:
        search["ordinal"] = ordinal
    if routing is not None:
        search["routing"] = routing
    if size:
        search["results"] = [
            draw(results(palette, f"{search_id}-{rank}")) for rank in range(1, size + 1)
        ]
    return search


@st.composite
def iterations(draw: Draw, palette: Palette, wide: bool = False) -> dict[str, Any]:
    """The own fields of a search_iteration; in a wide stream an iteration has its own searches."""
    iteration = draw(_ITERATION[wide])
    search_ids = [f"s{iteration}", f"s{iteration}b"] if wide else SEARCH_IDS
    body: dict[str, Any] = {"type": "search_iteration", "iteration": iteration}
    size = draw(st.sampled_from([1, 2, 1, 0, 2, 1]))
    body["searches"] = [draw(searches(palette, search_ids)) for _ in range(size)]
    gate = draw(_GATE)
    if gate is not None:
        body["gate"] = gate
    return body


_GAIN = st.sampled_from([3, 2, 4, 1, 0, None, None])


def _labels(search_ids: list[str], iteration: st.SearchStrategy[int]) -> Any:
    handles = [f"{search}-{rank}" for search in search_ids for rank in (1, 2, 3)]
    return st.fixed_dictionaries(
        {"type": st.just("relevance_labels")},
        optional={
            "labels": st.lists(
                st.fixed_dictionaries(
                    {"result_id": st.sampled_from([*handles, "shared", "ghost"]), "gain": _GAIN}
                ),
                min_size=1,
                max_size=6,
            ),
            "routing": st.lists(
                st.fixed_dictionaries(
                    {
                        "search_id": st.sampled_from(search_ids),
                        "optimal": st.sampled_from([*ROUTES, None]),
                    }
                ),
                max_size=3,
            ),
            "gate": st.lists(
                st.fixed_dictionaries(
                    {
                        "iteration": iteration,
                        "search_needed": st.sampled_from([True, False, True, False, None]),
                    }
                ),
                max_size=3,
            ),
            "labeller": st.sampled_from(["llm", None]),
            "source": st.sampled_from(["model", "human", None]),
            "sample": st.sampled_from(["random", "chosen", None]),
        },
    )


_LABELS = {
    False: _labels(SEARCH_IDS, _ITERATION[False]),
    True: _labels(WIDE_IDS, _ITERATION[True]),
}
_COMPLETED = st.fixed_dictionaries(
    {
        "type": st.just("turn_completed"),
        "relevant": st.sampled_from(
            [
                ["D-1"],
                ["D-1", "D-7"],
                ["D-1", "D-2"],
                {"D-1": 4, "D-2": 1},
                {"D-2": 1},
                {"D-1": 2, "D-9": 3},
                {"d-1": 3, "D-3": None},
                {},
                [],
                None,
            ]
        ),
    },
    optional={
        "answer": st.just("Yes."),
        "reference_answers": st.sampled_from([["Yes"], [], ["Yes", None]]),
        "dimensions": st.just({"language": "en", "difficulty": None}),
    },
)


# --- invalid records --------------------------------------------------------------------------

_PLAIN: dict[str, Any] = {
    "type": "search_iteration",
    "event_id": "bad",
    "occurred_at": "2024-05-13T08:30:00Z",
    "conversation_id": "c1",
    "turn": 1,
    "iteration": 1,
}


def _with_result(**parts: Any) -> dict[str, Any]:
    result = {"result_id": "r", **parts}
    return {**_PLAIN, "searches": [{"search_id": "s1", "results": [result]}]}


def _without(name: str) -> dict[str, Any]:
    return {key: value for key, value in _PLAIN.items() if key != name}


_DATA: list[Any] = [
    *(_without(name) for name in _PLAIN),
    [_PLAIN],
    {**_PLAIN, "conversation_id": "not that of the key"},
    {**_PLAIN, "version": 2},
    {**_PLAIN, "version": 1.0},
    {**_PLAIN, "type": "search"},
    {**_PLAIN, "turn": 0},
    {**_PLAIN, "turn": 2**53},
    {**_PLAIN, "turn": True},
    {**_PLAIN, "turn": 1.0},
    {**_PLAIN, "iteration": 2**31},
    {**_PLAIN, "event_id": ""},
    {**_PLAIN, "event_id": "x" * 129},
    {**_PLAIN, "agent": ""},
    {**_PLAIN, "occurred_at": "2024-05-13 08:30:00Z"},
    {**_PLAIN, "occurred_at": "2024-05-13T08:30:00"},
    {**_PLAIN, "occurred_at": "2024-05-13T08:30:60Z"},
    {**_PLAIN, "occurred_at": "2023-02-29T08:30:00Z"},
    {**_PLAIN, "occurred_at": "1999-12-31T23:59:59.999999Z"},
    {**_PLAIN, "occurred_at": "2100-01-01T00:00:00.000001Z"},
    {**_PLAIN, "occurred_at": 946684799},
    {**_PLAIN, "occurred_at": True},
    {**_PLAIN, "gate": {"decision": "maybe"}},
    {**_PLAIN, "gate": {"score": 1}},
    {**_PLAIN, "searches": {}},
    {**_PLAIN, "searches": [{"results": []}]},
    {**_PLAIN, "searches": [{"search_id": "s1", "ordinal": -1}]},
    {**_PLAIN, "searches": [{"search_id": "s1", "routing": {"scores": {}}}]},
    _with_result(ids={"doc_id": "D-1"}),
    _with_result(ids={"file_id": 7}),
    _with_result(ids={"file_id": ["a"] * 65}),
    _with_result(doc_id=""),
    _with_result(gain=5),
    _with_result(gain=1.0),
    _with_result(gain=True),
    _with_result(baseline_rank=0),
    _with_result(score="1"),
    _with_result(fields={"a": {"b": 1}}),
    _with_result(fields={"a": [["x"]]}),
    _with_result(fields={f"n{n}": 1 for n in range(65)}),
    _with_result(url="https://docs.example/" + "x" * 8_192),
    {**_PLAIN, "type": "relevance_labels", "labels": [{"result_id": "s1-1"}]},
    {**_PLAIN, "type": "relevance_labels", "labels": [{"gain": 1}]},
    {**_PLAIN, "type": "relevance_labels", "gate": [{"iteration": 1, "search_needed": 1}]},
    {**_PLAIN, "type": "turn_completed", "relevant": ["D-1", "D-1"]},
    {**_PLAIN, "type": "turn_completed", "relevant": ["D-1", None]},
    {**_PLAIN, "type": "turn_completed", "relevant": {"D-1": 5}},
    {**_PLAIN, "type": "turn_completed", "answer": 1},
    {**_PLAIN, "type": "turn_completed", "dimensions": {"a": 1}},
]
_TEXT = json.dumps(_PLAIN)
INVALID: list[bytes] = [
    b"",
    b"null",
    b"{",
    b"\xff",
    _TEXT.encode("utf-16"),
    b"\xef\xbb\xbf" + _TEXT.encode(),
    *(json.dumps(data).encode() for data in _DATA),
    _TEXT.replace('"turn": 1', '"turn": 1, "turn": "x"').encode(),
    _TEXT.replace('"turn": 1', '"turn": 1, "x": "\\ud800"').encode(),
    _TEXT.replace('"turn": 1', '"turn": 1e0').encode(),
    _TEXT.replace('"2024-05-13T08:30:00Z"', "1e999").encode(),
    _TEXT.replace('"2024-05-13T08:30:00Z"', "NaN").encode(),
    _TEXT.replace('"turn": 1', '"turn": 1, "x": ' + "[" * 70 + "]" * 70).encode(),
]
_INVALID = st.sampled_from(INVALID)


# --- streams ----------------------------------------------------------------------------------


def _render(event: dict[str, Any], style: int) -> bytes:
    if style == 0:
        return json.dumps(event).encode()
    if style == 1:
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
        return ('{"type":"replaced by the later key",' + text[1:]).encode()
    return json.dumps(dict(reversed(event.items())), indent=1, ensure_ascii=False).encode()


@st.composite
def _events(draw: Draw, palette: Palette, conversations: list[str], wide: bool) -> dict[str, Any]:
    weight = draw(st.integers(0, 99))
    if weight < (84 if wide else 56):
        body = draw(iterations(palette, wide))
    elif weight < (94 if wide else 83):
        body = draw(_LABELS[wide])
    elif weight < 98:
        body = draw(_COMPLETED)
    else:
        body = {"type": "forget"}
    offset, notation = draw(_TIME)
    body["conversation_id"] = draw(st.sampled_from(conversations))
    if body["type"] != "forget":
        body["turn"] = draw(_TURN[wide])
    body["occurred_at"] = moment(offset, notation)
    body.update(draw(_ENVELOPE_EXTRAS))
    return body


_STAMP = st.sampled_from([None] * 8 + [0, 1_000, 1_000, -3_600_000, -40 * 3_600_000])
_STYLE = st.sampled_from([0, 0, 1, 2])
_NUMBERED = st.sampled_from([True] * 9 + [False])
_STRAY = st.sampled_from([False] * 39 + [True])
_WHAT = st.sampled_from(["own"] * 17 + ["repeat"] * 7 + ["odd"])
_HOW = st.sampled_from(["revised", "again", "same version", "same version", "revised", "moved"])
_REPEAT = st.fixed_dictionaries(
    {
        "how": _HOW,
        "back": st.integers(0, 5),
        "note": st.integers(0, 3),
        "time": _TIME,
        "iteration": _ITERATION[False],
        "ordinal": st.sampled_from([0, 1, 3]),
        "skip": st.sampled_from([0, 1]),
        "gain": _GAIN,
    }
)


@st.composite
def _steps(draw: Draw, palette: Palette, conversations: list[str], wide: bool) -> dict[str, Any]:
    """What one record is: an event of its own, the repetition of an earlier one, or invalid."""
    what = draw(_WHAT)
    step: dict[str, Any] = {"what": what}
    if what == "odd":
        step["value"] = draw(_INVALID)
        return step
    if what == "repeat":
        step.update(draw(_REPEAT))
    else:
        step["event"] = draw(_events(palette, conversations, wide))
        step["numbered"] = draw(_NUMBERED)
    step["style"], step["stamp"], step["stray"] = draw(_STYLE), draw(_STAMP), draw(_STRAY)
    return step


def _repeated(event: dict[str, Any], step: dict[str, Any], number: int) -> dict[str, Any]:
    """A redelivery of an event, another content under its version, or a newer version."""
    event = json.loads(json.dumps(event))
    if step["how"] == "again":
        return event
    if step["how"] == "same version":
        event["x_again"] = step["note"]
    else:
        event["event_id"] = f"e{number:02}"
        event["occurred_at"] = moment(*step["time"])
    if event["type"] == "search_iteration":
        if step["how"] == "moved":
            event["iteration"] = step["iteration"]
        for search in event["searches"][:1]:
            search["ordinal"] = step["ordinal"]
            if search.get("results"):
                search["results"] = search["results"][step["skip"] :]
    for label in event.get("labels") or []:
        label["gain"] = step["gain"]
    if event.get("relevant"):
        event["relevant"] = {"D-1": 2, "D-3": 3}
    return event


@st.composite
def streams(
    draw: Draw, min_events: int = 1, max_events: int = 25, conversations: int = 3
) -> list[KeyedRecord]:
    """A stream of records, most of them valid, of at most so many conversations."""
    palette = draw(_PALETTE)
    names = CONVERSATIONS[: draw(st.integers(1, conversations))]
    wide = draw(st.sampled_from([False, False, False, True]))
    if wide:
        names = names[:1]
    share = draw(st.sampled_from([0, 4, 4, 4] if wide else [0, 2]))
    least = max(min_events, max_events * share // 5)
    steps = draw(st.lists(_steps(palette, names, wide), min_size=least, max_size=max_events))
    events: list[dict[str, Any]] = []
    records: list[KeyedRecord] = []
    for number, step in enumerate(steps):
        if step["what"] == "odd":
            records.append((names[0].encode(), step["value"], None))
            continue
        if step["what"] == "repeat":
            if not events:
                continue
            event = _repeated(events[max(0, len(events) - 1 - step["back"])], step, number)
        else:
            event = dict(step["event"])
            event["event_id"] = f"e{number:02}" if step["numbered"] else "shared"
        events.append(event)
        timestamp = None
        if step["stamp"] is not None:
            last = int(START.timestamp() * 1000) + max(OFFSETS_US) // 1000
            timestamp = last + step["stamp"]
        key = b"stray" if step["stray"] else event["conversation_id"].encode()
        records.append((key, _render(event, step["style"]), timestamp))
    return records


@st.composite
def arrivals(draw: Draw, stream: list[KeyedRecord]) -> list[list[KeyedRecord]]:
    """The records of a stream in any order, some of them twice, cut into batches."""
    again = draw(st.lists(st.sampled_from(range(len(stream))), max_size=5)) if stream else []
    order = draw(st.permutations([*range(len(stream)), *again]))
    cuts = draw(st.lists(st.integers(0, len(order)), max_size=6))
    bounds = sorted({0, len(order), *cuts})
    return [[stream[n] for n in order[low:high]] for low, high in pairwise(bounds)]
