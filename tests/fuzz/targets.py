"""What must hold for any bytes: each target takes some, and raises ``AssertionError`` if it fails.

A decoder gives a value or its own refusal, the kernel and its Python twin give the same one, and
nothing else is ever raised.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec

from stream_metrics.core.dedup.deduplicator import Deduplicator, PlainDeduplicator, deduplicator
from stream_metrics.core.dedup.normalise import Url, parse_url
from stream_metrics.core.dedup.tables import DedupRules
from stream_metrics.core.engine.codec import (
    UnknownSchema,
    add_fingerprints,
    decode_conversation,
    decode_sums,
)
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.digested import DigestedEvent, RecordDecoder, digest_event
from stream_metrics.core.engine.registers import SEARCH_ITERATION
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.engine.step import Step
from stream_metrics.core.events.decode import BadRecord, Event, decode_slow
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.times import parse_rfc3339
from stream_metrics.core.events.wire import Result
from stream_metrics.core.telemetry import events, interpret, mapping
from stream_metrics.core.telemetry.otlp.payloads import is_payload, spans_of
from stream_metrics.core.telemetry.otlp.spans import OtlpError
from stream_metrics.lab.sources.files import parse_line, record_line
from stream_metrics.lab.sources.otlp.framing import frames, is_whole
from stream_metrics.live.redis.codec import read_bucket, read_state
from tests.twins import kernel
from tests.twins.texts import event_with, fast_digest, run_instant, slow_digest

LIMITS: Final = Limits()
TIGHT: Final = Limits(
    record_bytes=4_096,
    json_levels=6,
    searches_per_event=2,
    results_per_event=3,
    labels_per_event=2,
    relevant_per_event=2,
    ids_per_result=2,
    fields_per_result=2,
    values_per_list=2,
    url_bytes=24,
)
RULES: Final = DedupRules()
MAPPING: Final = mapping()
KEY: Final = b"a digest key"
PLAIN: Final = PlainDeduplicator(RULES, KEY)
DEFAULT: Final = deduplicator(RULES, KEY)  # the compiled one, if there is a kernel
STEP: Final = Step(EngineConfig(rules=RULES), lambda _: DEFAULT)
RECORD_TIME_MS: Final = 1_718_020_800_000


def event(data: bytes) -> None:
    """A record is taken or refused; the kernel takes what Python takes, and the same of it."""
    for limits in (LIMITS, TIGHT):
        found = decode_slow(data, None, RECORD_TIME_MS, limits, require_key=False)
        if isinstance(found, BadRecord):
            _is_refusal(found)
        for key in _keys(found):
            slow = decode_slow(data, key, RECORD_TIME_MS, limits, require_key=True)
            expected = _seen(
                slow
                if isinstance(slow, BadRecord)
                else digest_event(slow, PLAIN, "k", RULES.tables),
                PLAIN,
            )
            decoder = RecordDecoder(DEFAULT, "k", RULES.tables, limits, require_key=True)
            taken = decoder.decode(data, key=key, timestamp_ms=RECORD_TIME_MS)
            assert _seen(taken, DEFAULT) == expected


def _keys(found: Event | BadRecord) -> tuple[bytes | None, ...]:
    """Keys that a record may have: the right one, another, none."""
    return (None, b"c", *(() if isinstance(found, BadRecord) else (_id_bytes(found),)))


def _id_bytes(found: Event) -> bytes:
    return found.conversation_id.encode()


def _is_refusal(bad: BadRecord) -> None:
    assert bad.reason != "internal_error"
    assert 0 < len(bad.message) < 400, "a message has a sane length"


def _seen(taken: DigestedEvent | BadRecord, dedup: Deduplicator) -> str:
    """All of it as a text in which ``1``, ``1.0`` and ``True`` are different."""
    if isinstance(taken, BadRecord) or taken.kind is not SEARCH_ITERATION:
        return repr(taken)
    sent, gate = taken.items
    each = [search.fingerprints for search in sent.values()]
    digests = [(f.types, f.documents, f.extra_values, f.urls_unparsed) for f in each]
    items = ({name: search._replace(fingerprints=None) for name, search in sent.items()}, gate)
    return repr((msgspec.structs.replace(taken, items=items), digests, dedup.pack(each)))


def json_text(data: bytes) -> None:
    """The kernel finds Python's digest of an event with such a value, or leaves it to Python."""
    digest = slow_digest(event_with(data))
    if kernel is not None:
        assert fast_digest(event_with(data)) in (None, digest)


def url(data: bytes) -> None:
    """A URL has one form, which is its own form, and one fingerprint."""
    text = data.decode("utf-8", "replace")
    form = parse_url(text)
    if form is not None:
        assert form.address[0], "a URL without a host counts as absent"
        assert form.parameters == tuple(sorted(form.parameters))
        assert parse_url(text) == form
    results = [Result(result_id="r", url=text, title="a title"), Result(result_id="q", url=text)]
    plain, compiled = PLAIN.fingerprints(results), DEFAULT.fingerprints(results)
    assert plain.urls_unparsed == compiled.urls_unparsed == (2 if text and form is None else 0)
    assert PLAIN.pack([plain]) == DEFAULT.pack([compiled])
    _spelled_otherwise(text, form)


def _spelled_otherwise(text: str, form: Url | None) -> None:
    """What a URL is known to be the same as."""
    if form is not None and "?" in text and "#" not in text:
        other = parse_url(text + "&utm_source=x")
        assert other == form or other is None, "a tracking parameter changes nothing"


def instant(data: bytes) -> None:
    """A time is read alike by both, and an instant that was read lies in the years 0 to 9999."""
    text = data.decode("utf-8", "replace")
    micros = parse_rfc3339(text)
    if kernel is not None:
        [(found, expected)] = run_instant(text)
        assert found is None or found == expected
    if micros is not None:
        assert -62_167_305_600_000_000 <= micros < 253_402_387_200_000_000


def packed(data: bytes) -> None:
    """Both read packed fingerprints or both refuse them, and read what is packed again alike.

    Only bytes that are packed as ``pack`` would do it mean the same to both: a field that stands
    twice is no such thing.
    """
    plain, compiled = _unpacked(PLAIN, data), _unpacked(DEFAULT, data)
    assert (plain is None) == (compiled is None), "one reads what the other refuses"
    if plain is not None:
        assert _unpacked(PLAIN, plain[0]) == _unpacked(DEFAULT, plain[0]) == plain


def _unpacked(dedup: Deduplicator, data: bytes) -> tuple[Any, ...] | None:
    try:
        found = dedup.unpack(data)
    except ValueError:
        return None
    return (dedup.pack(found), [(f.types, f.documents, f.extra_values) for f in found])


def state(data: bytes) -> None:
    """A stored conversation is read whole, or refused as damaged or as another release's.

    The bytes are parts, each with its size before it: name, value, name, value, …; names that begin
    with ``f`` are fingerprints.
    """
    hot, fingerprints = stored_parts(data)
    with suppress(DamagedState, UnknownSchema):
        conversation = decode_conversation("c", hot, "k")
        if hot:
            add_fingerprints(conversation, fingerprints, DEFAULT)
            STEP.restore(conversation)


def stored_parts(data: bytes) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Hot and fingerprint parts in ``data``."""
    pieces = []
    while data:
        size = int.from_bytes(data[:2], "big")
        pieces.append(data[2 : 2 + size])
        data = data[2 + size :]
    pairs = list(zip(pieces[::2], pieces[1::2], strict=False))
    fingerprints = {name[1:]: value for name, value in pairs if name[:1] == b"f"}
    return {name: value for name, value in pairs if name[:1] != b"f"}, fingerprints


def bucket(data: bytes) -> None:
    """A window bucket's sums are read, or refused as damaged."""
    with suppress(DamagedState):
        sums = decode_sums(data)
        assert all(type(name) is str and type(value) is int for name, value in sums.items())


def meta(data: bytes) -> None:
    """What is stored of a state partition is read, or refused as damaged."""
    hot, more = stored_parts(data)
    with suppress(DamagedState):
        read_state({**hot, **{b"f" + name: value for name, value in more.items()}})
    with suppress(DamagedState):
        read_bucket(data)


def line(data: bytes) -> None:
    """Any line of a recording is a record, and a record that is written is read again as it was."""
    text = data.replace(b"\n", b"").replace(b"\r", b"")
    record = parse_line(text)
    if record.topic:
        assert parse_line(record_line(record).rstrip(b"\n")) == record


def otlp(data: bytes) -> None:
    """A payload of traces is refused whole, or whatever its spans hold becomes events."""
    with suppress(OtlpError):
        for one in events(interpret(spans_of(data), MAPPING)):
            msgspec.json.decode(one.value)
    with suppress(OtlpError):
        for payload in frames(io.BytesIO(data)):
            is_payload(payload)
    is_whole(data)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (event, json_text, url, instant, packed, state, bucket, meta, line, otlp)
}
