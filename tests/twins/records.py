"""Records as events: the fast decoder, and the slow one, which can reject a record."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from stream_metrics.core.events import BadRecord, Event, Limits
from stream_metrics.core.events.decode import decode, decode_fast, decode_slow
from stream_metrics.core.events.wire import SearchIteration, TurnCompleted
from stream_metrics.lab.replay.reread import reread_payload
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.corpus import FIELDS, FULL, cases
from tests.helpers import examples
from tests.strategies import streams
from tests.twins import Claim, Pair, Twin
from tests.unit.test_bad_input import OK, TABLE, planted, raw, searching, spliced
from tests.unit.test_contract import mutated

LIMITS = Limits()


def both(
    value: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = LIMITS,
    require_key: bool = False,
) -> tuple[Event | None, Event | BadRecord]:
    """The results of both decoders for a record; ``decode`` must equal the slow one."""
    slow = decode_slow(value, key, timestamp_ms, limits, require_key)
    fast = None
    if value is not None:
        fast = decode_fast(value, key, timestamp_ms, limits, require_key)
    whole = decode(
        value, key=key, timestamp_ms=timestamp_ms, limits=limits, require_key=require_key
    )
    assert repr(whole) == repr(slow)
    if isinstance(slow, Event) and isinstance(slow.payload, SearchIteration | TurnCompleted):
        kind = "search_iteration" if isinstance(slow.payload, SearchIteration) else "turn_completed"
        assert repr(reread_payload(value or b"", kind)) == repr(slow.payload)
    return fast, slow


def run(
    value: bytes | None,
    key: bytes | None = None,
    timestamp_ms: int | None = None,
    limits: Limits = LIMITS,
    require_key: bool = False,
) -> Iterator[Pair]:
    """The event as a text in which ``1``, ``1.0`` and ``True`` differ."""
    fast, slow = both(value, key, timestamp_ms, limits, require_key)
    yield (None if fast is None else repr(fast)), repr(slow)


def run_valid(*record: Any) -> Iterator[Pair]:
    """The same for a record that Python accepts."""
    assert isinstance(both(*record)[1], Event)
    yield from run(*record)


def run_refused(*record: Any) -> Iterator[Pair]:
    """The same for a record that Python rejects."""
    assert isinstance(both(*record)[1], BadRecord)
    yield from run(*record)


def of_stream(stream: list[tuple[bytes, bytes, int]]) -> Iterator[Pair]:
    """The valid events that other tests run on; each that is usual is taken."""
    for key, value, timestamp_ms in stream:
        fast, slow = both(value, key, timestamp_ms, LIMITS, True)
        if fast is None and isinstance(slow, Event):
            assert b"replaced by the later key" in value or _has_odd_numbers(value)
        yield (None if fast is None else repr(fast)), repr(slow)


def _has_odd_numbers(value: bytes) -> bool:
    seen = []

    def note(token: str) -> float:
        number = float(token)
        size = abs(number)
        seen.append("e" in token.lower() or (size != 0 and not 1e-4 <= size < 1e16))
        return number

    json.loads(value, parse_float=note)
    return any(seen)


# --- cases ----------------------------------------------------------------------------------------


@st.composite
def flipped(draw: st.DrawFn) -> tuple[bytes]:
    """An event with single bytes changed, removed or doubled."""
    kind, indented = draw(st.sampled_from(sorted(FULL))), draw(st.booleans())
    value = json.dumps(FULL[kind], indent=1 if indented else None).encode()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(value) - 1))
        piece = draw(
            st.binary(min_size=1, max_size=1)
            | st.sampled_from([b"", b'"', b"0", b"1.0", b"null", b"[", b"}", b'"type":"forget",'])
        )
        value = value[:place] + piece + value[place + draw(st.integers(0, 1)) :]
    return (value,)


def traffic(valid: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """The demo's traffic: records that are valid, or those that are not."""
    profile = TrafficProfile(seed=3, conversations=60, start=1_718_000_000, duration_seconds=600)
    for record in generate(profile):
        slow = decode_slow(record.value, record.key, None, LIMITS, False)
        if isinstance(slow, Event) == valid:
            yield record.value, record.key


UNUSUAL = frozenset({
    "-0", "-0 as an ordinal", "1e-999", "20 digits, unknown field", "20 digits as a score",
    "308 digits", "1 MiB of decimals", "time token 1.7180208e9",
    "duplicate keys, last valid", "64 levels behind a key that comes again",
})  # fmt: skip
"""Of the table's good records only odd numbers and keys that stand twice are left to Python."""


def of_table(names: Any) -> list[tuple[Any, ...]]:
    """The good records of the table of bad input whose names are such."""
    return [
        (row.value, row.key, row.timestamp_ms, LIMITS, row.require_key)
        for row in TABLE
        if row.expected == OK and names(row.name)
    ]


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


def at_limits(less: int) -> list[tuple[Any, ...]]:
    """Records at the limits, under limits lowered by this much."""
    return [
        (value, None, None, Limits(**{name: bound - less}))
        for limit, value in _AT_LIMITS
        for name, bound in limit.items()
    ]


_DOC_IDS = [
    (searching({"ids": {"doc_id": "d"}}), False),
    (searching({"ids": {"doc_id": None}}), True),
    (searching({"ids": {"doc_id": []}}), False),
    (searching({"ids": {"doc_ids": "d", "doc_i": "e"}}), True),
    (searching({"ids": {"doc\u005fid": "d"}}).replace(b"doc_id", b"doc\\u005fid"), False),
    (searching({"doc_id": "d", "fields": {"doc_id": "e"}}), True),
    (raw("search_iteration", searches=[{"search_id": "s", "ids": {"doc_id": "d"}}]), True),
]
"""Events with a ``doc_id``, and whether they are valid."""
_MEMBERS = [
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
]
"""Valid events, and whether they are taken."""

_SECONDS = (
    st.floats(9.4e8, 4.2e9)
    | st.integers(946_684_799, 4_102_444_801)
    | st.integers(946_684_800 * 2**21, 4_102_444_800 * 2**21).map(lambda n: n / 2**21)
    | st.integers(946_684_800 * 10**7, 4_102_444_800 * 10**7).map(lambda n: n / 10**7)
)
_HALF_WAY = 946_684_800.0195312  # between two shortest forms


def at(seconds: float) -> tuple[bytes]:
    """A record of an event at a time in Unix seconds."""
    return (raw(occurred_at=seconds),)


# --- claims ---------------------------------------------------------------------------------------

ENVELOPE = Twin("envelope", run)
VALID = Twin("envelope", run_valid)
REFUSED = Twin("envelope", run_refused)
CLAIMS = [
    Claim(
        ENVELOPE,
        "records of the table of bad input have one end",
        listed=[(row.value, row.key, row.timestamp_ms, LIMITS, row.require_key) for row in TABLE],
    ),
    Claim(
        ENVELOPE,
        "its good records are handled",
        listed=of_table(lambda name: name not in UNUSUAL),
        handled=True,
    ),
    Claim(
        VALID,
        "but those with odd numbers or names that stand twice",
        listed=of_table(lambda name: name in UNUSUAL),
        handled=False,
    ),
    Claim(
        ENVELOPE,
        "every kind of value in every field has one end",
        listed=lambda: ((case.text.encode(),) for field in FIELDS for case in cases(field)),
    ),
    Claim(
        ENVELOPE,
        "valid events to which a few things happened have one end",
        st.tuples(mutated().map(str.encode)),
    ),
    Claim(
        ENVELOPE,
        "events with foreign texts for values and names have one end, and those that were cut",
        st.tuples(
            planted(), st.none() | st.just(b"conv-1"), st.none(), st.just(LIMITS), st.booleans()
        ),
    ),
    Claim(
        ENVELOPE,
        "events of which single bytes were changed have one end",
        flipped(),
        max_examples=examples(500),
    ),
    Claim(
        Twin("envelope", of_stream),
        "usual events that other tests run on are handled",
        st.tuples(streams(min_events=5)),
        slow=True,
    ),
    Claim(
        ENVELOPE,
        "valid events of the demo's traffic are handled",
        listed=lambda: traffic(valid=True),
        handled=True,
        at_least=500,
    ),
    Claim(
        REFUSED,
        "its invalid records are left to Python",
        listed=lambda: traffic(valid=False),
        handled=False,
    ),
    Claim(VALID, "what just fits into a limit is handled", listed=at_limits(0), handled=True),
    Claim(REFUSED, "what just does not is left to Python", listed=at_limits(1), handled=False),
    Claim(
        VALID,
        "a doc_id that is no id is handled",
        listed=[(value,) for value, valid in _DOC_IDS if valid],
        handled=True,
    ),
    Claim(
        REFUSED,
        "a doc_id in ids is found, however it is spelled",
        listed=[(value,) for value, valid in _DOC_IDS if not valid],
        handled=False,
    ),
    Claim(
        VALID,
        "null, unknown names and escapes are handled",
        listed=[(value,) for value, fast in _MEMBERS if fast],
        handled=True,
    ),
    Claim(
        VALID,
        "a name that stands twice is left to Python",
        listed=[(value,) for value, fast in _MEMBERS if not fast],
        handled=False,
    ),
    Claim(
        ENVELOPE,
        "Unix seconds are rounded to the same microsecond, halves to even",
        _SECONDS.map(at),
        [at(1_718_020_800.0078125), at(1_718_020_800.0234375), at(_HALF_WAY)],
        max_examples=examples(1_000),
    ),
    Claim(
        ENVELOPE,
        "any number for an instant has one end",
        (st.floats(allow_nan=False, allow_infinity=False) | st.integers()).map(at),
        [at(2**53), at(-(2**53)), at(math.nextafter(1e16, 0)), at(1e-4), at(-0.0)],
    ),
]
