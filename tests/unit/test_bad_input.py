"""Hostile and malformed records: each becomes an event or a rejection with a known reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.core.events import REASONS, BadRecord, Event, Limits, decode
from tests.corpus import FULL
from tests.helpers import examples

LIMITS = Limits()
NOON_MS = 1_718_020_800_000  # 2024-06-10T12:00:00Z
NOON_US = NOON_MS * 1000
DAY_US = 86_400 * 10**6
OK = "event"


@dataclass(frozen=True)
class Row:
    """A record with its outcome: ``OK`` or a reason. ``at`` is the event's time, if it matters."""

    name: str
    value: bytes | None
    expected: str
    key: bytes | None = None
    timestamp_ms: int | None = NOON_MS
    at: int | None = None
    require_key: bool = False


def event(kind: str = "forget", **changes: Any) -> dict[str, Any]:
    """A small valid event with changes."""
    return {
        "type": kind, "event_id": "e", "occurred_at": NOON_MS // 1000, "conversation_id": "c",
        "turn": 1, **({"iteration": 1} if kind == "search_iteration" else {}), **changes,
    }  # fmt: skip


def raw(kind: str = "forget", **changes: Any) -> bytes:
    """The bytes of ``event``."""
    return json.dumps(event(kind, **changes), ensure_ascii=False).encode()


def spliced(fragment: bytes) -> bytes:
    """A valid event with ``fragment`` as further members, not checked by any JSON library."""
    return raw()[:-1] + b"," + fragment + b"}"


def searching(*results: dict[str, Any], **search: Any) -> bytes:
    """An event with one search."""
    rows = [{"result_id": f"r{i}", **result} for i, result in enumerate(results)]
    searches = [{"search_id": "s", "results": rows, **search}]
    return raw("search_iteration", searches=searches)


def sized(size: int) -> bytes:
    """A valid event of exactly ``size`` bytes."""
    short = raw(extra="")
    return raw(extra="x" * (size - len(short)))


def nested(levels: int, opener: str = "[", closer: str = "]") -> bytes:
    """An event with an unknown field; the event itself counts as one of its ``levels``."""
    return spliced(f'"x":{opener * (levels - 1)}{closer * (levels - 1)}'.encode())


def at(value: Any, expected: str, instant: int | None = None, **more: Any) -> Row:
    """A row about ``occurred_at``."""
    return Row(f"time {value!r}", raw(occurred_at=value), expected, at=instant, **more)


def stamped(text: str, expected: str, instant: int | None = None) -> Row:
    """A row about ``occurred_at`` as written in the JSON."""
    value = raw(occurred_at=0).replace(b'"occurred_at": 0', f'"occurred_at": {text}'.encode())
    return Row(f"time token {text[:30]}", value, expected, at=instant)


MIB = 2**20
NOT_JSON = [
    Row("tombstone", None, "not_json"),
    Row("empty", b"", "not_json"),
    Row("blank", b" \n\t ", "not_json"),
    Row("text", b"hello", "not_json"),
    Row("zeros", b"\x00" * 64, "not_json"),
    Row("gzip", b"\x1f\x8b\x08\x00" + b"\x00" * 20, "not_json"),
    Row("schema registry prefix", b"\x00\x00\x00\x00\x07" + raw(), "not_json"),
    Row("byte order mark", b"\xef\xbb\xbf" + raw(), "not_json"),
    Row("UTF-16", raw().decode().encode("utf-16"), "not_json"),
    Row("truncated", raw()[:-1], "not_json"),
    Row("truncated in a text", b'{"type":"for', "not_json"),
    Row("truncated in an escape", b'{"type":"\\u00', "not_json"),
    Row("two documents", raw() + raw(), "not_json"),
    Row("newline behind", raw() + b"\n", OK),
    Row("trailing comma", raw()[:-1] + b",}", "not_json"),
    Row("comment", raw() + b"// x", "not_json"),
    Row("single quotes", b"{'type':'forget'}", "not_json"),
    Row("no-break space between", raw().replace(b": ", b":\xc2\xa0"), "not_json"),
    Row("line separator between", raw().replace(b": ", b":\xe2\x80\xa8"), "not_json"),
    Row("form feed between", raw().replace(b": ", b":\x0c"), "not_json"),
    Row("raw newline in a text", spliced(b'"x":"a\nb"'), "not_json"),
    Row("raw NUL in a text", spliced(b'"x":"a\x00b"'), "not_json"),
    Row("bad escape", spliced(b'"x":"\\x41"'), "not_json"),
    Row("high surrogate alone", spliced(b'"x":"\\ud800"'), "not_json"),
    Row("low surrogate alone", spliced(b'"x":"\\udc00"'), "not_json"),
    Row("surrogates swapped", spliced(b'"x":"\\udc00\\ud800"'), "not_json"),
    Row("surrogate in a name", spliced(b'"\\ud800":1'), "not_json"),
    Row("surrogate pair", spliced(b'"x":"\\ud83d\\ude00"'), OK),
    Row("surrogate as UTF-8", spliced(b'"x":"\xed\xa0\x80"'), "not_json"),
    Row("overlong slash", spliced(b'"x":"\xc0\xaf"'), "not_json"),
    Row("overlong NUL", spliced(b'"x":"\xc0\x80"'), "not_json"),
    Row("beyond Unicode", spliced(b'"x":"\xf4\x90\x80\x80"'), "not_json"),
    Row("Latin-1", spliced(b'"x":"caf\xe9"'), "not_json"),
    Row("Latin-1 in a name", spliced(b'"caf\xe9":1'), "not_json"),
    Row("NaN", spliced(b'"x":NaN'), "not_json"),
    Row("Infinity", spliced(b'"x":Infinity'), "not_json"),
    Row("minus Infinity", spliced(b'"x":-Infinity'), "not_json"),
    Row("leading zero", spliced(b'"x":01'), "not_json"),
    Row("plus sign", spliced(b'"x":+1'), "not_json"),
    Row("bare point", spliced(b'"x":.5'), "not_json"),
    Row("hexadecimal", spliced(b'"x":0x10'), "not_json"),
    Row("number as a name", spliced(b'1:"x"'), "not_json"),
]
SHAPE = [
    Row("null", b"null", "invalid"),
    Row("number", b"1", "invalid"),
    Row("list of events", b"[" + raw() + b"]", "invalid"),
    Row("event in a text", json.dumps(raw().decode()).encode(), "invalid"),
    Row("envelope around it", json.dumps({"payload": event()}).encode(), "unknown_type"),
    Row("empty object", b"{}", "unknown_type"),
    Row("unknown type", raw("search_iterations"), "unknown_type"),
    Row("type in capitals", raw("FORGET"), "unknown_type"),
    Row("type with a space", raw("forget "), "unknown_type"),
    Row("type is a list", raw(type=["forget"]), "unknown_type"),
    Row("type is an object", raw(type={"forget": 1}), "unknown_type"),
    Row("version 2", raw(version=2), "unknown_version"),
    Row("version 0", raw(version=0), "unknown_version"),
    Row("version is a text", raw(version="1"), "invalid"),
    Row("version 1.0", raw(version=1.0), "invalid"),
    Row("version true", raw(version=True), "invalid"),
    Row("version null", raw(version=None), OK),
    Row("turn true", raw("turn_completed", turn=True), "invalid"),
    Row("turn 0", raw("turn_completed", turn=0), "invalid"),
    Row("turn 2**53 - 1", raw("turn_completed", turn=2**53 - 1), OK),
    Row("turn 2**53", raw("turn_completed", turn=2**53), "invalid"),
    Row("forget without turn", json.dumps({**event(), "turn": None}).encode(), OK),
    Row("forget with a broken turn", raw(turn="1"), "invalid"),
    Row("id is a number", raw(conversation_id=7), "invalid"),
    Row("empty id", raw(conversation_id=""), "invalid"),
    Row("id of 128 astral characters", raw(conversation_id="\U0001f600" * 128), OK),
    Row("id of 129 characters", raw(conversation_id="x" * 129), "invalid"),
    Row("id of a white space", raw(conversation_id="\u2003"), OK),
    Row("NUL in an id", raw(conversation_id="a\x00b"), OK, key=b"a\x00b"),
    Row("newlines in an id", raw(conversation_id="a\r\nINFO b"), OK),
    Row("duplicate keys, last valid", spliced(b'"event_id":7,"event_id":"e2"'), OK),
    Row("duplicate keys, last broken", spliced(b'"event_id":"e2","event_id":7'), "invalid"),
    Row("unknown fields", raw(x={"y": [1, None]}, __faust={"ns": "a.B"}), OK),
    Row("prototype names", raw(__proto__={"a": 1}, constructor=1, __class__="os"), OK),
    Row("label without gain", raw("relevance_labels", labels=[{"result_id": "r"}]), "invalid"),
    Row("null label", raw("relevance_labels", labels=[None]), "invalid"),
    Row("doc_id in ids", searching({"ids": {"doc_id": "d"}}), "invalid"),
    Row("null doc_id in ids", searching({"ids": {"doc_id": None}}), OK),
    Row("relevant twice", raw("turn_completed", relevant=["a", "a"]), "invalid"),
    Row("relevant with null", raw("turn_completed", relevant=["a", None]), "invalid"),
    Row("relevant with an empty id", raw("turn_completed", relevant={"": 1}), "invalid"),
    Row("gain 5", searching({"gain": 5}), "invalid"),
    Row("nested list in fields", searching({"fields": {"a": [[1]]}}), "invalid"),
    Row("search without id", raw("search_iteration", searches=[{}]), "invalid"),
]
NUMBERS = [
    Row("1e999", spliced(b'"x":1e999'), "invalid"),
    Row("-1e999", spliced(b'"x":-1e999'), "invalid"),
    Row("1e-999", spliced(b'"x":1e-999'), OK),
    Row("-0", spliced(b'"x":-0'), OK),
    Row("-0 as an ordinal", searching(ordinal=0).replace(b'"ordinal": 0', b'"ordinal": -0'), OK),
    Row("-0.0 as an ordinal", searching(ordinal=-0.0), "invalid"),
    Row("20 digits, unknown field", spliced(b'"x":' + b"9" * 20), OK),
    Row("20 digits as a score", searching({"score": 10**20}), OK),
    Row("20 digits as a turn", raw("turn_completed", turn=10**20), "invalid"),
    Row("309 digits", spliced(b'"x":' + b"9" * 309), "invalid"),
    Row("308 digits", spliced(b'"x":' + b"9" * 308), OK),
    Row("400 digits as a score", searching({"score": 10**400}), "invalid"),
    Row("400 digits in fields", searching({"fields": {"a": [10**400]}}), "invalid"),
    Row("5,000 digits", spliced(b'"x":' + b"9" * 5_000), "invalid"),
    Row("1 MiB of digits", spliced(b'"x":' + b"9" * MIB), "invalid"),
    Row("1 MiB of decimals", spliced(b'"x":0.' + b"3" * MIB), OK),
    Row("rank 1e0", searching({"baseline_rank": 1.0}), "invalid"),
]
SIZES = [
    Row("8 MiB", sized(8 * MIB), OK),
    Row("8 MiB + 1", sized(8 * MIB + 1), "too_large"),
    Row("8 MiB + 1 of junk", b"[" * (8 * MIB + 1), "too_large"),
    Row("1 MiB title", searching({"title": "x" * MIB}), OK),
    Row("1 MiB id", raw(event_id="x" * MIB), "invalid"),
    Row("1 MiB name", spliced(b'"' + b"x" * MIB + b'":1'), OK),
    Row("64 levels", nested(64), OK),
    Row("65 levels", nested(65), "too_deep"),
    Row("64 levels of objects", nested(64, '{"a":', "}").replace(b":}", b":0}"), OK),
    Row("65 levels of objects", nested(65, '{"a":', "}").replace(b":}", b":0}"), "too_deep"),
    Row("65 levels behind a key that comes again", nested(65)[:-1] + b',"x":1}', "too_deep"),
    Row("64 levels behind a key that comes again", nested(64)[:-1] + b',"x":1}', OK),
    Row("brackets and quotes in a text", raw(x=['\\"[' * 99, "\\", ["]}"], '"' + "{" * 99]), OK),
    Row("65 levels, then such texts", nested(65)[:-1] + b',"y":"\\\\\\"]","z":"\\\\"}', "too_deep"),
    Row("many brackets, not deep", spliced(b'"x":[' + b"[]," * 500 + b"[]]"), OK),
    Row("brackets in a text", spliced(b'"x":"' + b"[{" * 1_000 + b'"'), OK),
    Row("100,000 open brackets", b"[" * 100_000, "too_deep"),
    Row("100,000 open braces", b'{"a":' * 100_000, "too_deep"),
    Row("100,000 levels, unknown field", nested(100_000), "too_deep"),
    Row("200 searches", raw("search_iteration", searches=[{"search_id": "s"}] * 200), OK),
    Row("201 searches", raw("search_iteration", searches=[{"search_id": "s"}] * 201), "over_limit"),
    Row("2,000 results", searching(*[{}] * 2_000), OK),
    Row("2,001 results", searching(*[{}] * 2_001), "over_limit"),
    Row(
        "2,001 results over three searches",
        raw("search_iteration", searches=[
            {"search_id": f"s{i}", "results": [{"result_id": "r"}] * 667} for i in range(3)
        ]), "over_limit"),
    Row("10,000 labels", raw(
        "relevance_labels", labels=[{"result_id": "r", "gain": 1}] * 10_000), OK),
    Row("10,001 labels of three kinds", raw(
        "relevance_labels", labels=[{"result_id": "r", "gain": 1}] * 5_000,
        routing=[{"search_id": "s", "optimal": None}] * 5_000,
        gate=[{"iteration": 1, "search_needed": None}]), "over_limit"),
    Row("10,000 relevant", raw("turn_completed", relevant=[str(i) for i in range(10_000)]), OK),
    Row("10,001 relevant", raw(
        "turn_completed", relevant=[str(i) for i in range(10_001)]), "over_limit"),
    Row("10,001 grades", raw(
        "turn_completed", relevant={str(i): 1 for i in range(10_001)}), "over_limit"),
    Row("64 ids", searching({"ids": {str(i): "x" for i in range(64)}}), OK),
    Row("65 ids", searching({"ids": {str(i): "x" for i in range(65)}}), "over_limit"),
    Row("64 ids, a null", searching({"ids": {str(i): "x" for i in range(64)} | {"n": None}}), OK),
    Row("64 fields", searching({"fields": {str(i): 1 for i in range(64)}}), OK),
    Row("65 fields", searching({"fields": {str(i): 1 for i in range(65)}}), "over_limit"),
    Row("64 values", searching({"ids": {"a": ["x"] * 64}}), OK),
    Row("65 values, one null", searching({"ids": {"a": ["x"] * 64 + [None]}}), "over_limit"),
    Row("65 values of a field", searching({"fields": {"a": [1] * 65}}), "over_limit"),
]  # fmt: skip
URLS = [
    Row("bad IPv6", searching({"url": "http://[::1/x"}), OK),
    Row("bad port", searching({"url": "http://a:99999999/x"}), OK),
    Row("NFKC host", searching({"url": "http://a\u2100b.example/"}), OK),
    Row("CR and LF", searching({"url": "http://a/\r\nX-Header: 1"}), OK),
    Row("not a URL", searching({"url": "\x00\x01\u202e"}), OK),
    Row("script URL", searching({"url": "javascript:alert(1)"}), OK),
    Row("8,192 bytes", searching({"url": "http://a/" + "x" * 8_183}), OK),
    Row("8,193 bytes", searching({"url": "http://a/" + "x" * 8_184}), "over_limit"),
    Row("8,193 bytes, few characters", searching({"url": "xxx" + "\u20ac" * 2_730}), "over_limit"),
    Row("8,192 bytes of astral characters", searching({"url": "\U0001f600" * 2_048}), OK),
]  # fmt: skip
KEYS = [
    Row("key agrees", raw(), OK, key=b"c", require_key=True),
    Row("key is another", raw(), "key_mismatch", key=b"d"),
    Row("key in JSON quotes", raw(), "key_mismatch", key=b'"c"'),
    Row("empty key", raw(), "key_mismatch", key=b""),
    Row("key is not UTF-8", raw(), "key_mismatch", key=b"\xff"),
    Row("key in another case", raw(), "key_mismatch", key=b"C"),
    Row(
        "key in another normal form", raw(conversation_id="\xe9"), "key_mismatch", key=b"e\xcc\x81"
    ),
    Row("no key, needed", raw(), "missing_key", require_key=True),
    Row("no key, not needed", raw(), OK),
]
TIMES = [
    at("2024-06-10T12:00:00Z", OK, NOON_US),
    at("2024-06-10t14:00:00.000001999+02:00", OK, NOON_US + 1),
    at("2024-06-10T12:00:00-00:00", OK, NOON_US),
    at("2024-06-10 12:00:00Z", "invalid"),
    at("2024-06-10T12:00:00", "invalid"),
    at("2024-06-10T12:00Z", "invalid"),
    at("20240610T120000Z", "invalid"),
    at("2024-06-10T12:00:00,5Z", "invalid"),
    at("2024-06-10T12:00:00+0200", "invalid"),
    at("2024-06-10T24:00:00Z", "invalid"),
    at("2024-06-09T23:59:60Z", "invalid"),
    at("2024-02-30T00:00:00Z", "invalid"),
    at("2024-06-10T12:00:00Z ", "invalid"),
    at("\uff12024-06-10T12:00:00Z", "invalid"),
    at("0000-01-01T00:00:00Z", "time_out_of_range"),
    at("1999-12-31T23:59:59.999999Z", "time_out_of_range"),
    at("2000-01-01T00:00:00Z", OK, 946_684_800 * 10**6),
    at("2000-01-01T00:00:00+00:01", "time_out_of_range"),
    at("2024-06-11T12:00:00Z", OK, NOON_US + DAY_US),
    at("2024-06-11T12:00:00.000001Z", "time_out_of_range"),
    at("2024-06-11T11:59:59.999999Z", OK, NOON_US + DAY_US - 1),
    at("2100-01-01T00:00:00Z", OK, 4_102_444_800 * 10**6, timestamp_ms=None),
    at("2100-01-01T00:00:00.000001Z", "time_out_of_range", timestamp_ms=None),
    at("2099-12-31T23:59:59Z", OK, timestamp_ms=-1),
    at("9999-12-31T23:59:59Z", "time_out_of_range"),
    at(1_718_020_800, OK, NOON_US),
    at(1_718_020_800.5, OK, NOON_US + 500_000),
    at(1_718_020_800.000001, OK, NOON_US + 1),
    at(1_718_020_800_000, "time_out_of_range"),
    at(-1, "time_out_of_range"),
    at("1718020800", "invalid"),
    at(True, "invalid"),
    at(None, "invalid"),
    at([], "invalid"),
    stamped("1.7180208e9", OK, NOON_US),
    stamped("1718020800.0000005", OK, NOON_US),  # the double is 0.48 us, not 0.5
    stamped("1718020800.0078125", OK, NOON_US + 7_812),  # exactly 7812.5 us
    stamped("1718020800.0234375", OK, NOON_US + 23_438),  # exactly 23437.5 us
    stamped("1718020800.00000144", OK, NOON_US + 1),
    stamped("1e308", "time_out_of_range"),
    stamped("1e309", "invalid"),
    stamped("9" * 400, "invalid"),
    stamped("-0", "time_out_of_range"),
]  # fmt: skip
TABLE = NOT_JSON + SHAPE + NUMBERS + SIZES + URLS + KEYS + TIMES


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_record_has_the_listed_outcome(row: Row) -> None:
    """Decoding gives the event or the rejection in the table."""
    got = decode(
        row.value,
        key=row.key,
        timestamp_ms=row.timestamp_ms,
        limits=LIMITS,
        require_key=row.require_key,
    )
    assert (got.reason if isinstance(got, BadRecord) else OK) == row.expected
    if row.at is not None:
        assert isinstance(got, Event)
        assert got.occurred_us == row.at


def test_the_table_covers_every_reason() -> None:
    """Every reason that decoding can give occurs in the table."""
    assert {row.expected for row in TABLE} == {OK, *REASONS} - {"internal_error"}


def test_limits_can_be_lowered() -> None:
    """A lower limit refuses what the default accepts."""
    tight = Limits(
        record_bytes=400, json_levels=3, searches_per_event=1, results_per_event=2,
        labels_per_event=1, relevant_per_event=1, ids_per_result=1, fields_per_result=1,
        values_per_list=1, url_bytes=8,
    )  # fmt: skip
    records = {
        raw(x="x" * 400): "too_large",
        raw(x=[[[]]]): "too_deep",
        raw("relevance_labels", labels=[{"result_id": "r", "gain": 1}] * 2): "over_limit",
        raw("turn_completed", relevant=["a", "b"]): "over_limit",
        raw("search_iteration", searches=[{"search_id": "s"}] * 2): "over_limit",
    }
    for record, reason in records.items():
        got = decode(record, limits=tight)
        assert isinstance(got, BadRecord)
        assert got.reason == reason


# --- messages never quote the record --------------------------------------------------------------

CANARY = "canary_zq"
_PLANTED = st.sampled_from([
    CANARY, f".{CANARY}", f"x - at `$.{CANARY}`", f" - at .{CANARY}", f"`key` in `$.{CANARY}`",
    f"$.{CANARY}[0]", f"'{CANARY}'", f"\n{CANARY}\x00", f"Invalid enum value - at `$.{CANARY}`",
])  # fmt: skip


def _planted(node: Any, draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 5)) == 0:
        return draw(_PLANTED)
    if isinstance(node, dict):
        named = {name: _planted(value, draw) for name, value in node.items()}
        if draw(st.integers(0, 3)) == 0:
            named[draw(_PLANTED)] = draw(st.sampled_from([{}, [], 1, CANARY, None]))
        return named
    return [_planted(value, draw) for value in node] if isinstance(node, list) else node


@st.composite
def planted(draw: st.DrawFn) -> bytes:
    """An event with canaries as values and names; sometimes truncated, so that it is not JSON."""
    full = FULL[draw(st.sampled_from(sorted(FULL)))]
    document = {name: _planted(value, draw) for name, value in full.items()}
    if draw(st.booleans()):
        document["type"] = full["type"]
    value = json.dumps(document).encode()
    end = draw(st.none() | st.integers(0, len(value)))
    return value[:end] + draw(st.sampled_from([b"", b"", CANARY.encode(), b"\xff"]))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(300))
@given(planted(), st.none() | st.just(CANARY.encode()))
def test_messages_never_quote_the_record(value: bytes, key: bytes | None) -> None:
    """No content of a record gets into its error message."""
    got = decode(value, key=key, limits=LIMITS)
    assert not isinstance(got, BadRecord) or CANARY not in got.message
    assert not isinstance(got, BadRecord) or len(got.message) <= 600


@pytest.mark.parametrize("text", ["x - at .canary_zq", "canary_zq", "' - at `$.canary_zq"])
def test_a_message_about_a_choice_hides_the_value(text: str) -> None:
    """A wrong `decision` is located but not quoted, even if it looks like a path."""
    got = decode(raw("search_iteration", gate={"decision": text}), limits=LIMITS)
    assert got == BadRecord("invalid", "Invalid enum value - at `$.gate.decision`")


def depth(value: Any) -> int:
    """Levels of nesting of a value."""
    inner = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


_BRACKETED = st.recursive(
    st.text('[]{}"\\a\n', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\'), inner, max_size=2)
    ),
    max_leaves=30,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_BRACKETED)
def test_levels_are_counted_outside_texts(value: Any) -> None:
    """Brackets, quotes and backslashes in texts do not affect the count of levels."""
    record = json.dumps({**event(), "x": value, "y": [[]] * 9}).encode()
    levels = max(1 + depth(value), 3)
    assert isinstance(decode(record, limits=Limits(json_levels=levels)), Event)
    refused = decode(record, limits=Limits(json_levels=levels - 1))
    assert isinstance(refused, BadRecord)
    assert refused.reason == "too_deep"


# --- arbitrary input ------------------------------------------------------------------------------

_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.binary() | st.text().map(str.encode),
    st.none() | st.binary(max_size=4),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_arbitrary_bytes_never_raise(value: bytes, key: bytes | None, stamp: int | None) -> None:
    """Any bytes, with any key and timestamp, give an event or a rejection."""
    got = decode(value, key=key, timestamp_ms=stamp, limits=LIMITS)
    assert isinstance(got, Event) or got.reason in REASONS


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(sorted(FULL)), st.dictionaries(st.text(), _ANY), st.data())
def test_arbitrary_json_never_raises(kind: str, extra: dict[str, Any], data: st.DataObject) -> None:
    """An event with any fields replaced by any JSON gives an event or a rejection."""
    changed = data.draw(st.lists(st.sampled_from(sorted(FULL[kind])), max_size=3))
    document = {**FULL[kind], **extra, **{name: data.draw(_ANY) for name in changed}}
    got = decode(json.dumps(document).encode(), limits=LIMITS)
    assert isinstance(got, Event) or got.reason in REASONS
