"""The fast way from bytes to an event gives what the slow way gives, or leaves the record to it."""

from __future__ import annotations

import itertools
import json
import math
from datetime import datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stream_metrics.adapters.replay.texts import payload_again
from stream_metrics.events import BadRecord, Event, Limits
from stream_metrics.events.canonical import content_digest, decode_json
from stream_metrics.events.decode import decode, decode_fast, decode_slow
from stream_metrics.events.times import parse_rfc3339
from stream_metrics.events.wire import SearchIteration, TurnCompleted
from stream_metrics.kernel import kernel
from stream_metrics.traffic import TrafficProfile, generate
from tests.corpus import FIELDS, FULL, Field, cases
from tests.helpers import examples
from tests.strategies import KeyedRecord, streams
from tests.unit.test_bad_input import OK, TABLE, Row, planted, raw, searching, spliced
from tests.unit.test_canonical import _DOCUMENT, _NUMBER
from tests.unit.test_contract import mutated
from tests.unit.test_times import OFFSETS, written

pytestmark = pytest.mark.kernel

LIMITS = Limits()
LEVELS = LIMITS.json_levels
THOROUGH = settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(300)
)


def compiled() -> ModuleType:
    """The kernel, without which nothing here can be said."""
    assert kernel is not None, "stream-metrics-kernel is not installed: make kernel"
    return kernel


def slow_digest(value: bytes) -> bytes | None:
    """The digest by the slow way; None if it refuses the text."""
    try:
        obj, delicate = decode_json(value)
        return content_digest(obj, delicate=delicate)
    except (ValueError, RecursionError, OverflowError):
        return None


def fast_digest(value: bytes, levels: int = LEVELS) -> bytes | None:
    """The digest by the kernel; None if it leaves the text to the slow way."""
    found: bytes | None = compiled().content_digest(value, levels)
    return found


def agreed(value: bytes) -> bool:
    """Whether the kernel finds the slow way's digest or none."""
    found = fast_digest(value)
    return found is None or found == slow_digest(value)


def surely(value: bytes) -> bool:
    """Whether the kernel finds the slow way's digest."""
    found = fast_digest(value)
    return found is not None and found == slow_digest(value)


def both(
    value: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = LIMITS,
    require_key: bool = False,
) -> tuple[Event | None, Event | BadRecord]:
    """What the two ways make of a record, after a check that they do not contradict each other.

    Nor does a replay that reads the payload again.

    They are compared as texts, in which ``1``, ``1.0`` and ``True`` are different.
    """
    slow = decode_slow(value, key, timestamp_ms, limits, require_key)
    fast = None
    if value is not None:
        envelope = compiled().envelope
        fast = decode_fast(envelope, value, key, timestamp_ms, limits, require_key)
    whole = decode(
        value, key=key, timestamp_ms=timestamp_ms, limits=limits, require_key=require_key
    )
    assert fast is None or repr(fast) == repr(slow)
    assert repr(whole) == repr(slow)
    if isinstance(slow, Event) and isinstance(slow.payload, SearchIteration | TurnCompleted):
        kind = "search_iteration" if isinstance(slow.payload, SearchIteration) else "turn_completed"
        assert repr(payload_again(value or b"", kind)) == repr(slow.payload)
    return fast, slow


# --- digests --------------------------------------------------------------------------------------


@THOROUGH
@given(_DOCUMENT)
@example('{"b":1,"a":{"d":[],"c":{}}}')
@example('{"a":1,"a":2}')
@example('{"a\\u0000":1,"a":2}')
@example('{"\\u00e9":1,"e":2,"\U00010000":3,"\uffff":4}')
@example('{"longer_key_b":1,"longer_key_a":2,"longer_k":3}')
@example('{"longer_key_a":1,"longer_key_a":2}')
@example('{"":1}')
def test_any_text(text: str) -> None:
    """Of any JSON text, in any spelling, the kernel finds the one digest or none."""
    assert agreed(text.encode())


@settings(THOROUGH, max_examples=examples(1_000))
@given(_NUMBER)
def test_any_number(token: str) -> None:
    """The same for single numbers, of which most are the hard ones."""
    assert agreed(f'{{"a":{token}}}'.encode())
    assert agreed(f"[ {token} ]".encode())
    assert agreed(token.encode())


@pytest.mark.parametrize("size", range(1, 6))
def test_grammar_of_numbers(size: int) -> None:
    """Of all short texts that resemble numbers, the kernel takes none that the slow way refuses."""
    taken = 0
    for characters in itertools.product("-+019.e", repeat=size):
        value = f"[{''.join(characters)}]".encode()
        found = fast_digest(value)
        assert found is None or found == slow_digest(value), value
        taken += found is not None
    assert taken


@pytest.mark.parametrize("byte", range(256))
def test_every_byte_everywhere(byte: int) -> None:
    """A byte that is put anywhere into a JSON text is refused where the slow way refuses it."""
    text = b'{"k":["a\\n",1.5,{"\xc3\xa9":true,"b":[]}]}'
    for place in range(len(text) + 1):
        assert agreed(text[:place] + bytes([byte]) + text[place:])
        assert agreed(text[:place] + bytes([byte]) + text[place + 1 :])


def test_every_cut() -> None:
    """A JSON text that ends too early is left to the slow way."""
    text = b' {"k" : ["a\\ud83d\\ude00", -1.5 , {"\xc3\xa9":null,"b":false}], "a": 1}'
    assert surely(text)
    assert all(fast_digest(text[:end]) is None for end in range(len(text)))


@pytest.mark.slow
def test_every_character() -> None:
    """Every character is written as the slow way writes it, whether it was escaped or not."""
    for code in (*range(0xD800), *range(0xE000, 0x10000), 0x10000, 0x1F600, 0x10FFFF):
        units = chr(code).encode("utf-16-be").hex()
        coded = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        assert surely(f'["{coded}","12345678{coded.upper().replace("U", "u")}"]'.encode())
        assert surely(json.dumps([f"{chr(code)}12345678"], ensure_ascii=False).encode())
        assert agreed(f'{{"{coded}":1,"a":2}}'.encode())


@pytest.mark.parametrize(
    "text",
    [
        "\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041",
        "\\u12g4", "\\u123", "\\x41", "\\U0041", "\\u+041", "\\", "\\'", "\\u\xe9\xe9",
    ],
)  # fmt: skip
def test_broken_escapes(text: str) -> None:
    """Half a pair of surrogates and escapes that JSON does not know are left to the slow way."""
    assert fast_digest(f'["{text}"]'.encode()) is None
    assert fast_digest(f'{{"{text}":1}}'.encode()) is None


def is_half_way(value: float) -> bool:
    """Whether two shortest decimals are equally near, of which `repr` takes the even one."""
    shown, exact = Decimal(repr(value)), Decimal(value)
    unit = Decimal((0, (1,), int(shown.as_tuple().exponent)))
    return abs(shown - exact) * 2 == unit


def test_floats_around_powers_of_two() -> None:
    """Where doubles become coarser, floats are written as `repr` writes them, or left alone."""
    for power in range(-14, 54):
        for factor in range(-40, 41):
            value = 2.0**power * (1 + factor * 2**-52)
            for number in (value, value + 2.0 ** (power - 3), value * 10):
                if 1e-4 <= number < 1e16:
                    left = fast_digest(f"[{number!r}]".encode()) is None
                    assert left == is_half_way(number)
                    assert agreed(f"[{number!r}]".encode())


def test_floats_half_way_between_decimals() -> None:
    """A float that lies just between the two shortest decimals is left to the slow way."""
    values = [562949953421312.25, 1125899906842624.25, 9007199.0009765625]
    assert all(is_half_way(value) for value in values)
    for value in values:
        assert repr(value) != str(Decimal(value))
        assert fast_digest(repr(value).encode()) is None
        assert fast_digest(str(Decimal(value)).encode()) is None


_PLAIN_NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'))
_PLAIN_FLOAT = st.floats(1e-4, 1e16, exclude_max=True).filter(lambda v: not is_half_way(v))
_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**19 - 1)
    | st.just(0.0)
    | st.just(-0.0)
    | _PLAIN_FLOAT
    | _PLAIN_FLOAT.map(lambda value: -value)
    | st.floats(0, 1000).map(lambda value: round(value, 3)).filter(lambda v: v >= 1e-4)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_PLAIN_NAME, inner, max_size=12),
    max_leaves=30,
)


@THOROUGH
@given(_PLAIN, st.booleans(), st.sampled_from([None, 0, 2]), st.booleans())
def test_plain_values_are_taken(
    value: Any, ascii_only: bool, indent: int | None, compact: bool
) -> None:
    """What JSON libraries write of ordinary values is never left to the slow way."""
    separators = (",", ":") if compact else None
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    assert surely(text.encode())


@THOROUGH
@given(st.binary() | st.text().map(str.encode) | _DOCUMENT.map(str.encode), st.data())
def test_changed_bytes(value: bytes, data: st.DataObject) -> None:
    """Whatever bytes are put into whatever text, the kernel finds the one digest or none."""
    place = data.draw(st.integers(0, len(value)))
    piece = data.draw(
        st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"{", b"]", b",", b":", b"-", b"."])
    )
    behind = place + data.draw(st.integers(0, 3))
    assert agreed(value[:place] + piece + value[behind:])


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_levels(opener: str, closer: str) -> None:
    """Just as many levels as are allowed are taken, never more than the slow way can recurse."""
    step = opener.count("[") + opener.count("{")
    for levels in (2, 64, 200):
        text = opener * (levels // step) + "1" + closer * (levels // step)
        assert surely(text.encode()) == (levels <= LEVELS)
        assert fast_digest(text.encode(), levels) is not None
        assert fast_digest(text.encode(), levels - 1) is None
    assert fast_digest(b"[" * 201 + b"]" * 201, 10**9) is None
    assert fast_digest(b"[" * 100_000, 10**9) is None
    assert fast_digest(b"[]", -1) is None


def test_wide_objects_are_sorted() -> None:
    """Objects of many keys, in any order, and deep in each other, are put in order."""
    names = [f"{word}{number}" for number in range(500, 0, -7) for word in ("b", "longer_key_")]
    wide: dict[str, Any] = {name: {n: [{n: 1.5}] for n in names[:9]} for name in names}
    assert surely(json.dumps({"z": wide, "a": [wide]}).encode())
    twice = json.dumps({**wide, "twice": 1})[:-1] + ',"twice":2}'
    assert fast_digest(twice.encode()) is None


def test_deep_objects_are_sorted() -> None:
    """Objects in such depth, each with its keys out of order, are put in order as others are."""
    for levels in (12, 60):
        text = '{"b":' * levels + '"' + "x" * 999 + '"' + ',"a":1}' * levels
        assert surely(text.encode())


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_hostile_records(row: Row) -> None:
    """The kernel changes nothing about any record of the table of bad input."""
    both(row.value, row.key, row.timestamp_ms, LIMITS, row.require_key)


def test_what_of_the_table_is_unusual() -> None:
    """Of the table's good records only odd numbers and keys that stand twice are slow."""
    slow = {
        row.name
        for row in TABLE
        if row.expected == OK
        and both(row.value, row.key, row.timestamp_ms, LIMITS, row.require_key)[0] is None
    }
    assert slow == {
        "-0", "-0 as an ordinal", "1e-999", "20 digits, unknown field", "20 digits as a score",
        "308 digits", "1 MiB of decimals", "time token 1.7180208e9",
        "duplicate keys, last valid", "64 levels behind a key that comes again",
    }  # fmt: skip


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_every_value_in_every_field(field: Field) -> None:
    """Every kind of value in every field has the same end on both ways."""
    for case in cases(field):
        both(case.text.encode())


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mutated())
def test_mutated_events(text: str) -> None:
    """A valid event to which a few things happened has the same end on both ways."""
    both(text.encode())


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(planted(), st.none() | st.just(b"conv-1"), st.booleans())
def test_planted_events(value: bytes, key: bytes | None, require_key: bool) -> None:
    """So has an event with foreign texts for values and names, and one that was cut."""
    both(value, key, None, LIMITS, require_key)


@settings(THOROUGH, max_examples=examples(500))
@given(st.sampled_from(sorted(FULL)), st.booleans(), st.data())
def test_flipped_bytes(kind: str, indented: bool, data: st.DataObject) -> None:
    """So has an event of which single bytes were changed, lost or doubled."""
    value = json.dumps(FULL[kind], indent=1 if indented else None).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(value) - 1))
        piece = data.draw(
            st.binary(min_size=1, max_size=1)
            | st.sampled_from([b"", b'"', b"0", b"1.0", b"null", b"[", b"}", b'"type":"forget",'])
        )
        value = value[:place] + piece + value[place + data.draw(st.integers(0, 1)) :]
    both(value)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(streams(min_events=5))
def test_generated_events_are_fast(stream: list[KeyedRecord]) -> None:
    """The valid events that other tests run on are fast but for odd numbers and keys sent twice."""
    for key, value, timestamp_ms in stream:
        fast, slow = both(value, key, timestamp_ms, LIMITS, True)
        if fast is None and isinstance(slow, Event):
            assert b"replaced by the later key" in value or _has_odd_numbers(value)


def _has_odd_numbers(value: bytes) -> bool:
    seen = []

    def note(token: str) -> float:
        number = float(token)
        size = abs(number)
        seen.append("e" in token.lower() or (size != 0 and not 1e-4 <= size < 1e16))
        return number

    json.loads(value, parse_float=note)
    return any(seen)


def test_traffic_is_fast() -> None:
    """Each valid event of the demo's traffic takes the fast way."""
    profile = TrafficProfile(seed=3, conversations=60, start=1_718_000_000, duration_seconds=600)
    valid = 0
    for record in generate(profile):
        fast, slow = both(record.value, record.key)
        assert (fast is None) == isinstance(slow, BadRecord)
        valid += fast is not None
    assert valid > 500


# --- limits ---------------------------------------------------------------------------------------

_AT_LIMITS: list[tuple[dict[str, int], bytes]] = [
    ({"searches_per_event": 2}, raw("search_iteration", searches=[{"search_id": "s"}] * 2)),
    ({"results_per_event": 2}, searching({}, {})),
    ({"labels_per_event": 2}, raw("relevance_labels", labels=[{"result_id": "r", "gain": 1}] * 2)),
    ({"relevant_per_event": 2}, raw("turn_completed", relevant=["a", "b"])),
    ({"relevant_per_event": 2}, raw("turn_completed", relevant={"a": 1, "b": 2})),
    ({"ids_per_result": 2}, searching({"ids": {"a": "x", "b": "y"}})),
    ({"fields_per_result": 2}, searching({"fields": {"a": "x", "b": 1}})),
    ({"values_per_list": 2}, searching({"ids": {"a": ["x", None]}})),
    ({"values_per_list": 2}, searching({"fields": {"a": [1, 2]}})),
    ({"url_bytes": 8}, searching({"url": "12\u20ac567"})),
    ({"json_levels": 3}, raw(x=[[]])),
    ({"record_bytes": len(raw())}, raw()),
]


@pytest.mark.parametrize(("limit", "value"), _AT_LIMITS, ids=str)
def test_limits(limit: dict[str, int], value: bytes) -> None:
    """Both ways draw each limit at the same place: what just fits, fits on the fast way, too."""
    ((name, bound),) = limit.items()
    fast, slow = both(value, limits=Limits(**{name: bound}))
    assert isinstance(slow, Event)
    assert fast is not None
    fast, slow = both(value, limits=Limits(**{name: bound - 1}))
    assert isinstance(slow, BadRecord)


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (searching({"ids": {"doc_id": "d"}}), False),
        (searching({"ids": {"doc_id": None}}), True),
        (searching({"ids": {"doc_id": []}}), False),
        (searching({"ids": {"doc_ids": "d", "doc_i": "e"}}), True),
        (searching({"ids": {"doc\u005fid": "d"}}).replace(b"doc_id", b"doc\\u005fid"), False),
        (searching({"doc_id": "d", "fields": {"doc_id": "e"}}), True),
        (raw("search_iteration", searches=[{"search_id": "s", "ids": {"doc_id": "d"}}]), True),
    ],
)
def test_doc_id_in_ids(value: bytes, valid: bool) -> None:
    """A `doc_id` in `ids` is found by both ways, however it is spelled."""
    fast, slow = both(value)
    assert isinstance(slow, Event) == (fast is not None) == valid


@pytest.mark.parametrize(
    ("value", "fast"),
    [
        (spliced(b'"type":"forget"'), False),
        (spliced(b'"turn":2'), False),
        (spliced(b'"x":{"y":1,"y":1}'), False),
        (raw(version=None), True),
        (raw(version=1), True),
        (raw(turn=None), True),
        (raw("search_iteration", agent=None, gate=None, searches=None), True),
        (raw(x={"type": "x", "deep": [{"unknown": 1.5}]}), True),
        (raw(conversation_id='c\u00e9\n"\\\u0000'), True),
        (raw().replace(b'"type"', b'"\\u0074ype"').replace(b"forget", b"f\\u006frget"), True),
    ],
)
def test_members(value: bytes, fast: bool) -> None:
    """A name that stands twice needs the slow way; null, unknown names and escapes do not."""
    found, slow = both(value)
    assert isinstance(slow, Event)
    assert (found is not None) == fast


# --- instants -------------------------------------------------------------------------------------


@given(
    st.datetimes(),
    OFFSETS,
    st.text("0123456789", max_size=12),
    st.sampled_from(["TZ", "tz", "Tz", "tZ"]),
)
def test_instants(naive: datetime, offset: int, digits: str, letters: str) -> None:
    """The kernel reads RFC 3339 as Python does."""
    text = written(naive, offset, digits, letters)
    assert compiled().parse_rfc3339(text) == parse_rfc3339(text) is not None


@given(
    st.lists(
        st.sampled_from([
            *("2024", "0000", "1900", "02", "29", "30", "12", "23", "24", "59", "60"),
            *"--:::Tt Zz+.09x\u0663\ud800",
        ]),
        max_size=16,
    ).map("".join)
    | st.from_regex(
        r"\A(0000|1900|2000|2023|2024|9999)-(00|01|02|04|12|13)-(00|01|28|29|30|31|32)[Tt ]"
        r"(00|23|24):(00|59|60):(00|59|60)(\.[0-9]{0,8})?([Zz]|[+-](00|23|24):(00|59|60))?\n?\Z"
    )
)  # fmt: skip
def test_grammar_of_instants(text: str) -> None:
    """The kernel refuses what Python refuses."""
    assert compiled().parse_rfc3339(text) == parse_rfc3339(text)


@settings(THOROUGH, max_examples=examples(1_000))
@given(
    st.floats(9.4e8, 4.2e9)
    | st.integers(946_684_799, 4_102_444_801)
    | st.integers(946_684_800 * 2**21, 4_102_444_800 * 2**21).map(lambda n: n / 2**21)
    | st.integers(946_684_800 * 10**7, 4_102_444_800 * 10**7).map(lambda n: n / 10**7)
)
@example(1_718_020_800.0078125)
@example(1_718_020_800.0234375)
@example(946_684_800.0195312)  # half-way between two shortest forms: left to Python
def test_unix_seconds(seconds: float) -> None:
    """Unix seconds are rounded to the same microsecond, halves to even, on both ways."""
    fast, slow = both(raw(occurred_at=seconds))
    assert isinstance(slow, Event) or fast is None


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
@example(2**53)
@example(-(2**53))
@example(math.nextafter(1e16, 0))
@example(1e-4)
@example(-0.0)
def test_any_number_as_an_instant(seconds: float) -> None:
    """Any number for an instant has the same end on both ways."""
    both(raw(occurred_at=seconds))
