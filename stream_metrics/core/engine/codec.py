"""The stored format of conversations.

A conversation is two maps of small parts, so that an event rewrites only the parts it changes.

hot parts
    ``c``            header: schema, conversation id, digest key id, forgotten version;
                     the id is empty in a tombstone (a conversation that was forgotten entirely)
                     and in a stub (one that has expired)
    ``t`` + number   header of a turn, unless all its fields have their defaults
    ``e`` + digest   an event with the items it won: code of its type, turn, time, id; for a
                     search iteration its number, agent and release; then a part for each register;
                     then, from tables 3 on, the digests of the queries of its searches, if it has
                     searches: joined, zeros for one without a query, nil if none has one
    ``d`` + digest   if ranked metrics are configured: the digests under which ground truth names
                     the results of that event's searches
fingerprint parts
    digest           the packed fingerprints of that event's searches

The bytes depend only on the content and the schema, not on the order in which events arrived.

schema 1
    ids of events, searches and results are text
schema 2
    ids that are UUIDs in canonical form (36 lower-case characters) are stored as 16 bytes

schema 3
    of a conversation that has labels of a model or is in a random sample, whatever schema is
    written; its other parts are those of schemas 1 and 2. Labels of a model are events of type 4,
    with the parts of type 2. Labels that put their turn into the random sample of their source
    have a further part, true

All schemas can be read, and one conversation may mix parts of several, because each part shows its
own schema. The header names the latest schema that any part may have, so that a release without
that schema refuses the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from stream_metrics.core.dedup.deduplicator import Deduplicator, Fingerprints
from stream_metrics.core.dedup.digests import KEY_BYTES
from stream_metrics.core.engine.changes import Changes
from stream_metrics.core.engine.registers import (
    BY_CODE,
    EVENT_TYPES,
    MAX_INTEGER,
    SEARCH_ITERATION,
    EventType,
    Id,
    Integer,
    Items,
    Number,
    short_id,
    unpack_id,
)
from stream_metrics.core.engine.state import (
    SCHEMA_WITH_SOURCES,
    UNKNOWN_QUERY,
    Conversation,
    DamagedState,
    Search,
    Turn,
    Version,
    WinningEvent,
)

SCHEMAS: Final = (1, 2)
"""The schemas in which state can be written."""
READABLE: Final = (*SCHEMAS, SCHEMA_WITH_SOURCES)
"""Those that a conversation may have."""

_ENCODER = msgspec.msgpack.Encoder()

_Head = tuple[int, str, str, tuple[Integer, str, bytes] | None]
_TurnPart = tuple[Number, bool, Integer, Integer | None]
_LeftOut = tuple[Integer, Integer]
_DocIds = list[list[bytes | None]]

_HEAD: Final = msgspec.msgpack.Decoder(_Head)
_TURN: Final = msgspec.msgpack.Decoder(_TurnPart)
_TURN_WITH_LEFT_OUT: Final = msgspec.msgpack.Decoder(
    tuple[Number, bool, Integer, Integer | None, _LeftOut]
)


def _event_decoder(kind: EventType, *more: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(
        tuple.__class_getitem__(
            (
                int, Number, Integer, Id,
                *((Number, str, str | None) if kind.in_iteration else ()),
                *(register.stored for register in kind.registers[: 3 if kind.labels else None]),
                *more,
            )
        )
    )  # fmt: skip


_EVENTS: Final = {kind.code: _event_decoder(kind) for kind in EVENT_TYPES}
_WITH_QUERIES: Final = _event_decoder(SEARCH_ITERATION, bytes | None)
_WITH_SAMPLE: Final = {kind.code: _event_decoder(kind, bool) for kind in EVENT_TYPES if kind.labels}
# The first bytes of arrays: a search iteration with the digests of its queries, which has ten
# elements instead of nine, labels that put their turn into a random sample, which have eight
# instead of seven, and a turn's header with what was left out, which has five.
_QUERIES_MARK: Final = bytes((0x9A, SEARCH_ITERATION.code))
_SAMPLE_MARK: Final = b"\x98"
_LEFT_OUT_MARK: Final = b"\x95"
_DOC_IDS: Final = msgspec.msgpack.Decoder(_DocIds)
_SUMS: Final = msgspec.msgpack.Decoder(dict[str, Integer])
_ANY: Final = msgspec.msgpack.Decoder()

_HEADER: Final = b"c"
_NO_QUERY: Final = bytes(KEY_BYTES)

Parts = dict[bytes, bytes | None]


class UnknownSchema(Exception):
    """A stored conversation has a schema that this release does not know."""


def turn_field(number: int) -> bytes:
    """The name of a turn's header."""
    return b"t%d" % number


def encode_changes(
    conversation: Conversation, changes: Changes, dedup: Deduplicator, schema: int
) -> tuple[Parts, Parts]:
    """The hot and fingerprint parts to write after ``changes``, by schema; None deletes a part."""
    hot: Parts = {}
    fingerprints: Parts = {}
    forgotten = conversation.forgotten
    if changes.header or schema > conversation.schema or forgotten is not None:
        tombstone = forgotten is not None and not conversation.turns
        name = "" if tombstone else conversation.conversation_id
        latest = _latest_schema(conversation, schema)
        hot[_HEADER] = _ENCODER.encode((latest, name, conversation.key_id, forgotten))
    for number in changes.turns:
        hot[turn_field(number)] = _encode_turn(conversation.turns.get(number))
    for digest in changes.dropped:
        hot[b"e" + digest] = None
        fingerprints[digest] = None
    for digest in changes.written:
        hot[b"e" + digest] = _encode_event(conversation.events[digest], schema)
    for digest in changes.identified:
        hot[b"d" + digest] = _encode_doc_ids(conversation.events.get(digest))
    for digest in changes.fingerprinted:
        fingerprints[digest] = _encode_fingerprints(conversation.events[digest], dedup)
    return hot, fingerprints


def _latest_schema(conversation: Conversation, schema: int) -> int:
    """The latest schema that any part of a conversation may have, written in ``schema``."""
    if conversation.schema != SCHEMA_WITH_SOURCES:
        return max(schema, conversation.schema)
    for event in conversation.events.values():
        kind = BY_CODE[event.kind]
        if kind.by_model or (kind.labels and event.items[3]):
            return SCHEMA_WITH_SOURCES
    return schema  # what had sources was forgotten


def encode_stub(schema: int) -> Parts:
    """The stored form of a conversation that has expired."""
    return {_HEADER: _ENCODER.encode((schema, "", "", None))}


def encode_tombstone(schema: int, key_id: str, forgotten: Version) -> Parts:
    """The stored form of a conversation that was forgotten entirely."""
    return {_HEADER: _ENCODER.encode((schema, "", key_id, forgotten))}


def _encode_turn(turn: Turn | None) -> bytes | None:
    if turn is None or not (turn.over_limit or turn.refused or turn.qrels):
        return None
    head = (turn.number, turn.over_limit, turn.refused, turn.qrels)
    return _ENCODER.encode(head if turn.left_out is None else (*head, turn.left_out))


def _encode_event(event: WinningEvent, schema: int) -> bytes:
    """The bytes of an event, whose digest is the name of the part."""
    kind, short = BY_CODE[event.kind], schema >= 2
    event_id = short_id(event.event_id) if short else event.event_id
    parts: list[Any] = [event.kind, event.turn, event.occurred_us, event_id]
    if kind.in_iteration:
        parts += (event.iteration, event.agent, event.release)
    registers = kind.registers
    if kind.labels and not event.items[3]:
        registers = registers[:3]
    parts += [
        register.pack(event, event.items[register.event_index], short) for register in registers
    ]
    if kind.in_iteration:
        searches = event.searches
        if searches and searches[0].query != UNKNOWN_QUERY:
            joined = b"".join([search.query or _NO_QUERY for search in searches])
            parts.append(joined if any(joined) else None)
    return _ENCODER.encode(parts)


def _encode_fingerprints(event: WinningEvent, dedup: Deduplicator) -> bytes | None:
    searches: list[Fingerprints] = []
    for search in event.searches:
        assert search.fingerprints is not None  # loaded before any search may change
        searches.append(search.fingerprints)
    return dedup.pack(searches) if searches else None


def _encode_doc_ids(event: WinningEvent | None) -> bytes | None:
    searches = [] if event is None else event.searches
    return _ENCODER.encode([search.doc_ids for search in searches]) if searches else None


def decode_conversation(
    conversation_id: str, hot: Mapping[bytes, bytes], key_id: str
) -> Conversation:
    """The conversation with the items in ``hot``; if that is empty, a new one with ``key_id``.

    ``conversation_id`` is used where none is stored: for new conversations, tombstones and stubs.
    Raises ``UnknownSchema`` for an unknown schema and ``DamagedState`` for invalid bytes.
    """
    if not hot:
        return Conversation(conversation_id, key_id)
    header = stored_header(hot)
    if header.is_stub:
        return Conversation(conversation_id, key_id, expired=True)
    conversation = Conversation(header.conversation_id or conversation_id, header.key_id)
    conversation.schema = header.schema
    conversation.has_fingerprints = False
    conversation.forgotten = header.forgotten
    doc_ids: dict[bytes, bytes] = {}
    for name, value in hot.items():
        if name[:1] == b"e":
            _decode_event(conversation, name[1:], value)
        elif name[:1] == b"t":
            with_left_out = value[:1] == _LEFT_OUT_MARK
            decoder: Any = _TURN_WITH_LEFT_OUT if with_left_out else _TURN
            number, *rest = _read(decoder, value, "a turn's header")
            if name != turn_field(number):
                raise DamagedState(f"the header of turn {number} is stored under another name")
            turn = _turn(conversation, number)
            turn.over_limit, turn.refused, turn.qrels = rest[:3]
            turn.left_out = rest[3] if with_left_out else None
        elif name[:1] == b"d":
            doc_ids[name[1:]] = value
    for digest, value in doc_ids.items():
        _add_doc_ids(conversation, digest, value)
    return conversation


T = TypeVar("T")


def _read(decoder: msgspec.msgpack.Decoder[T], value: bytes, what: str) -> T:
    """Decode ``value``; raise ``DamagedState`` that names ``what`` if it is invalid."""
    try:
        return decoder.decode(value)
    except (ValueError, RecursionError) as error:  # ValueError covers msgspec's decoding errors
        raise DamagedState(f"{what} cannot be read ({type(error).__name__})") from error


class Header(NamedTuple):
    """The header of a stored conversation; the id is empty in a tombstone and in a stub."""

    schema: int
    conversation_id: str
    key_id: str
    forgotten: Version | None

    @property
    def is_stub(self) -> bool:
        """Whether the conversation has expired."""
        return not self.conversation_id and self.forgotten is None


def stored_header(hot: Mapping[bytes, bytes]) -> Header:
    """The header of a stored conversation; raises ``UnknownSchema`` and ``DamagedState``."""
    if _HEADER not in hot:
        raise DamagedState("a conversation has no header")
    try:
        return Header(*_known_schema(_HEAD.decode(hot[_HEADER])))
    except (ValueError, RecursionError):
        header = _read(_ANY, hot[_HEADER], "a conversation's header")
        if type(header) is list and header and type(header[0]) is int:
            _known_schema(header)  # the header of another schema may have another form
        raise DamagedState("a conversation's header cannot be read") from None


_Header = TypeVar("_Header", _Head, list[Any])


def _known_schema(header: _Header) -> _Header:
    if header[0] not in READABLE:
        raise UnknownSchema(
            f"a conversation is stored by schema {header[0]}; this release reads "
            f"{schemas_text(READABLE)}. "
            "Use the release that wrote it, or a later one"
        )
    return header


def schemas_text(schemas: Sequence[int] = SCHEMAS) -> str:
    """Schemas as text.

    >>> schemas_text(), schemas_text((1, 2, 3))
    ('1 and 2', '1, 2 and 3')
    """
    *others, last = map(str, schemas)
    return f"{', '.join(others)} and {last}"


def _turn(conversation: Conversation, number: int) -> Turn:
    turn = conversation.turns.get(number)
    if turn is None:
        turn = conversation.turns[number] = Turn(number)
    return turn


def _decode_event(conversation: Conversation, digest: bytes, value: bytes) -> None:
    mark = value[1:2]  # an event is a short array whose first element, its type, is one byte
    decoder = _EVENTS.get(mark[0]) if mark else None
    if decoder is None:
        raise DamagedState("an event has an unknown type")
    with_queries = value[:2] == _QUERIES_MARK
    if with_queries:
        decoder = _WITH_QUERIES
    elif value[:1] == _SAMPLE_MARK:
        decoder = _WITH_SAMPLE.get(mark[0], decoder)
    stored = _read(decoder, value, "an event")
    kind, number, first = BY_CODE[stored[0]], stored[1], 4
    event = WinningEvent(kind.code, number, (stored[2], unpack_id(stored[3]), digest), ())
    if kind.in_iteration:
        event.iteration, event.agent, event.release, first = stored[4], stored[5], stored[6], 7
    conversation.events[digest] = event
    turn = _turn(conversation, number)
    items: list[Items] = []
    for register in kind.registers:
        at = first + register.event_index
        entries = register.unpack(event, stored[at]) if at < len(stored) else {}
        winners = turn.winners[register.turn_index]
        for key in entries:
            winners[key] = event
        items.append(entries)
    event.items = tuple(items)
    if with_queries:
        _add_queries(event.searches, stored[-1])
    if kind.in_iteration:
        for search in event.searches:
            turn.results += len(search.result_ids)
        if turn.newest is None or event.version > turn.newest.version:
            turn.newest = event


def _add_queries(searches: list[Search], joined: bytes | None) -> None:
    if joined is not None and len(joined) != KEY_BYTES * len(searches):
        raise DamagedState("an event's queries are not those of its searches")
    for at, search in enumerate(searches):
        first = KEY_BYTES * at
        query = None if joined is None else joined[first : first + KEY_BYTES]
        search.query = None if query == _NO_QUERY else query


def _add_doc_ids(conversation: Conversation, digest: bytes, value: bytes) -> None:
    event = conversation.events.get(digest)
    searches = [] if event is None else event.searches
    ids = _read(_DOC_IDS, value, "the document ids of an event")
    if [len(its) for its in ids] != [len(search.result_ids) for search in searches]:
        raise DamagedState("an event's document ids are not those of its results")
    for search, its in zip(searches, ids, strict=True):
        search.doc_ids = its


def add_fingerprints(
    conversation: Conversation, fingerprints: Mapping[bytes, bytes], dedup: Deduplicator
) -> None:
    """Attach stored fingerprints to a decoded conversation's searches; raises ``DamagedState``."""
    for digest, event in conversation.events.items():
        searches = event.searches
        if searches:
            unpacked = _unpacked(fingerprints.get(digest), dedup)
            if [len(its.types) for its in unpacked] != [len(s.result_ids) for s in searches]:
                raise DamagedState("an event's fingerprints are not those of its results")
            for search, its in zip(searches, unpacked, strict=True):
                search.fingerprints = its
                conversation.turns[event.turn].extra_values += its.extra_values
    conversation.has_fingerprints = True


def _unpacked(data: bytes | None, dedup: Deduplicator) -> Sequence[Fingerprints]:
    if data is None:
        raise DamagedState("an event has no fingerprints")
    try:
        return dedup.unpack(data)
    except ValueError as error:
        raise DamagedState("an event's fingerprints cannot be read") from error


def encode_sums(sums: Mapping[str, int]) -> bytes:
    """The stored form of a window bucket; a bucket without sums is not stored.

    Raises ``OverflowError`` for a sum that is no signed 64-bit integer.
    """
    if max(sums.values(), default=0) > MAX_INTEGER:
        raise OverflowError("a sum of a window bucket is not a signed 64-bit integer")
    return _ENCODER.encode(sums)


def decode_sums(data: bytes) -> dict[str, int]:
    """The inverse of ``encode_sums``; raises ``DamagedState``."""
    return _read(_SUMS, data, "a window bucket")
