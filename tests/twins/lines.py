"""Conversations of lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from stream_metrics.core.events.decode import BadRecord
from stream_metrics.core.events.key import key_of
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.core.telemetry.otlp.payloads import is_payload
from stream_metrics.lab.replay.index_lines import keyed_lines, plain_lines
from stream_metrics.lab.replay.spool import spool_key
from stream_metrics.lab.sources.files import parse_line, record_line
from tests.property.test_replay_ranges import recordings
from tests.twins import Claim, Pair, Twin

LIMITS = Limits()
SMALL = Limits(record_bytes=200)
EVENT = b'{"type": "forget", "event_id": "e", "conversation_id": "c-1", "occurred_at": 1718020800}'


def run(block: bytes, limits: Limits = LIMITS) -> Iterator[Pair]:
    """The lines of a block, then the key of each that is a record with a conversation."""
    found, plain = keyed_lines(block, limits), plain_lines(block)
    yield _places(found), _places(plain)
    for at, (start, length) in enumerate(zip(found.starts, found.lengths, strict=True)):
        record = parse_line(block[start : start + length])
        is_bad = isinstance(key_of(record.value, None, limits), BadRecord)
        if is_payload(record.value) or not is_bad:
            expected = tuple(spool_key(record, int(start), limits))
            yield tuple(found.keys[at].tolist()) if found.known[at] else None, expected


def _places(found: Any) -> tuple[Any, ...]:
    return found.lines, *(column.tolist() for column in found[1:4])


def recorded(sent: bytes, **others: Any) -> bytes:
    """A recorded record without its end of the line."""
    line = record_line(Record(sent, b"c-1", 1_718_020_800_000, "searches", 1, 7)).rstrip()
    return json.dumps(json.loads(line) | others).encode()


def event(text: str) -> bytes:
    """The event with a text instead of its conversation's id."""
    return EVENT.replace(b'"c-1"', text.encode())


NOT_FIRST = EVENT.replace(b'"type": "forget", ', b"")[:-1] + b', "type": "forget"}'
KEYED_LINES = Twin("keyed_lines", run)
CLAIMS = [
    Claim(KEYED_LINES, "the lines are those of the block", st.tuples(recordings())),
    Claim(
        KEYED_LINES,
        "the usual lines are keyed",
        listed=[
            (EVENT,),
            (EVENT + b"\r\n\n \t\r\r\n" + NOT_FIRST + b"\n",),
            (recorded(EVENT),),
            (recorded(EVENT, key=None, timestamp=None) + b"\n" + EVENT,),
            (event('"\\u00e9\\ud83d\\ude00é"'),),
            (event('"c-1", "fields": {"conversation_id": "c-2"}'),),
            (event(f'"{"é" * 128}"'),),
        ],
        handled=True,
    ),
    Claim(
        KEYED_LINES,
        "of a repeated id the last one counts, however its name is written",
        listed=[
            (event('"c-1", "conversation_id": "c-2"'),),
            (event('"c-1", "conversation\\u005fid": "c-2"'),),
            (event('"c-1", "\\u0063onversation_id": "c-2"'),),
        ],
    ),
    Claim(
        KEYED_LINES,
        "traces are left to Python, as events and in records",
        listed=[
            (b'{"resourceSpans": [], "type": "forget", "conversation_id": "c-1"}',),
            (recorded(b'{"resourceSpans": [], "conversation_id": "c-1"}'),),
            (recorded(b' {"resourceSpans": [], "conversation_id": "c-1"}'),),
        ],
    ),
    Claim(
        KEYED_LINES,
        "a line that only resembles a recorded record is an event",
        listed=[
            (NOT_FIRST[:-1] + b', "offset": 1, "value": "{}"}',),
            (recorded(EVENT, timestamp="noon", conversation_id="c-2"),),
            (recorded(EVENT, timestamp=0.5, conversation_id="c-2"),),
            (recorded(EVENT, timestamp=True, conversation_id="c-2"),),
            (recorded(EVENT, key=1, conversation_id="c-2"),),
            (recorded(EVENT, value=None, conversation_id="c-2"),),
            (recorded(EVENT, value_base64="e30=", conversation_id="c-2"),),
            (recorded(EVENT, key_base64="e30", conversation_id="c-2"),),
            (b'{"conversation_id": "c-1", "value": "{}"}',),
        ],
    ),
    Claim(
        KEYED_LINES,
        "a record over the limit has no conversation",
        listed=[
            (EVENT[:-1] + b" " * 200 + b"}", SMALL),
            (recorded(EVENT[:-1] + b" " * 200 + b"}"), SMALL),
        ],
    ),
]
