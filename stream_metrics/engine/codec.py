"""Conversations as bytes and back: the stored format, in every schema that was ever written.

A conversation is two maps of small parts, so that an event writes what it changed and no more.

hot parts
    ``c``            header: schema, conversation id, digest key id, forgotten version;
                     the id is empty in a tombstone (a conversation that was forgotten, all of it)
                     and in a stub (one that has expired)
    ``t`` + number   header of a turn, where it says more than nothing
    ``e`` + digest   one carrier: an event with the items of it that stand
    ``d`` + digest   where ranked metrics are configured: the digests under which ground truth names
                     the results of that carrier's searches
fingerprint parts
    digest           the packed fingerprints of that carrier's searches

The bytes depend on the content and the schema alone, not on the order in which events came.

schema 1
    ids of events, searches and results are text
schema 2
    those that are a UUID in its usual form (36 characters, small letters) are its 16 bytes

All schemas are read, and parts of several may be mixed in one conversation: they are told by the
parts themselves. The header names the latest schema that any part may have, so that a release that
does not know it refuses the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from stream_metrics.dedup.deduplicator import Deduplicator, Fingerprints
from stream_metrics.dedup.tables import OTHER_CODE, published, type_codes
from stream_metrics.engine.config import OTHER
from stream_metrics.engine.state import (
    COMPLETED,
    LABELS,
    SEARCHES,
    Carrier,
    Completed,
    Conversation,
    DamagedState,
    Search,
    Turn,
    Version,
)
from stream_metrics.engine.step import Changes

SCHEMAS: Final = (1, 2)

_ENCODER = msgspec.msgpack.Encoder()

# What each part holds; the order is that of ``encode_carrier`` and its neighbours.
_Version = tuple[int, str, bytes]
_Number = Annotated[int, msgspec.Meta(ge=1)]
_Gain = Annotated[int, msgspec.Meta(ge=0, le=4)]
_Head = tuple[int, str, str, _Version | None]
_TurnPart = tuple[_Number, bool, int, _Version | None, int | None]
_Id = Any  # a text, or 16 bytes: ``_whole``
_SearchPart = tuple[
    _Id, int, int, str | None, list[_Id], list[int], str, str,
    list[_Gain | None] | None, list[_Number | None] | None,
]  # fmt: skip
_Searches = tuple[int, _Number, int, _Id, int, str, str | None, str | None, list[_SearchPart]]
_Labels = tuple[
    int, _Number, int, _Id,
    dict[_Id, _Gain | None], dict[_Id, str | None], dict[int, bool | None],
]  # fmt: skip
_Completed = tuple[int, _Number, int, _Id, dict[bytes, _Gain] | None]
_DocIds = list[list[bytes | None]]

_HEAD: Final = msgspec.msgpack.Decoder(_Head)
_TURN: Final = msgspec.msgpack.Decoder(_TurnPart)
_CARRIERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    SEARCHES: msgspec.msgpack.Decoder(_Searches),
    LABELS: msgspec.msgpack.Decoder(_Labels),
    COMPLETED: msgspec.msgpack.Decoder(_Completed),
}
_DOC_IDS: Final = msgspec.msgpack.Decoder(_DocIds)
_SUMS: Final = msgspec.msgpack.Decoder(dict[str, int])
_ANY: Final = msgspec.msgpack.Decoder()

_HEADER: Final = b"c"
_EVIDENCE: Final = {"": "-", "id": "i", "url": "u", "text": "t", "fields": "f"}
_EVIDENCE_BACK: Final = {code: name for name, code in _EVIDENCE.items()}
_TYPES: Final = {OTHER: OTHER_CODE, **type_codes()}
_TYPES_BACK: Final = {code: name for name, code in _TYPES.items()}

Parts = dict[bytes, bytes | None]

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_LENGTH: Final = 36
_UUID_BYTES: Final = 16


class UnknownSchema(Exception):
    """The stored conversation was written by a release with another schema."""


def turn_field(number: int) -> bytes:
    """The name of a turn's header."""
    return b"t%d" % number


def encode_changes(
    conversation: Conversation, changes: Changes, dedup: Deduplicator, schema: int
) -> tuple[Parts, Parts]:
    """The hot and fingerprint parts that ``changes`` rewrites, by a schema; None deletes one."""
    hot: Parts = {}
    fingerprints: Parts = {}
    forgotten = conversation.forgotten
    if changes.header or schema > conversation.schema or forgotten is not None:
        tombstone = forgotten is not None and not conversation.turns
        name = "" if tombstone else conversation.conversation_id
        latest = max(schema, conversation.schema)
        hot[_HEADER] = _ENCODER.encode((latest, name, conversation.key_id, forgotten))
    for number in changes.turns:
        hot[turn_field(number)] = _encode_turn(conversation.turns.get(number))
    for digest in changes.dropped:
        hot[b"e" + digest] = None
        fingerprints[digest] = None
    for digest in changes.written:
        carrier = conversation.carriers[digest]
        hot[b"e" + digest] = _encode_carrier(conversation, carrier, schema)
    for digest in changes.identified:
        hot[b"d" + digest] = _encode_doc_ids(conversation, digest)
    for digest in changes.fingerprinted:
        carrier = conversation.carriers[digest]
        fingerprints[digest] = _encode_fingerprints(conversation, carrier, dedup)
    return hot, fingerprints


def encode_stub(schema: int) -> Parts:
    """What is left of a conversation that has expired, besides its key."""
    return {_HEADER: _ENCODER.encode((schema, "", "", None))}


def encode_tombstone(schema: int, key_id: str, forgotten: Version) -> Parts:
    """What is left of a conversation that was forgotten, all of it, besides its key."""
    return {_HEADER: _ENCODER.encode((schema, "", key_id, forgotten))}


def _encode_turn(turn: Turn | None) -> bytes | None:
    if turn is None or not (turn.over_limit or turn.refused or turn.ghost or turn.qrels):
        return None
    return _ENCODER.encode((turn.number, turn.over_limit, turn.refused, turn.ghost, turn.qrels))


def _encode_carrier(conversation: Conversation, carrier: Carrier, schema: int) -> bytes:
    """One carrier's bytes; its digest is the name of the part."""
    short = schema >= 2
    event_id = _short(carrier.event_id) if short else carrier.event_id
    head = (carrier.kind, carrier.turn, carrier.occurred_us, event_id)
    if carrier.kind == SEARCHES:
        found = _searches(conversation, carrier)
        searches = tuple([_search_tuple(search, short=short) for search in found])
        return _ENCODER.encode(
            (*head, carrier.iteration, carrier.agent, carrier.release, carrier.gate, searches)
        )
    if carrier.kind == LABELS:
        labels: Mapping[Any, Any] = carrier.labels
        routing: Mapping[Any, Any] = carrier.routing_labels
        if short:
            labels = {_short(name): gain for name, gain in labels.items()}
            routing = {_short(name): route for name, route in routing.items()}
        return _ENCODER.encode((*head, labels, routing, carrier.gate_labels))
    completed = conversation.turns[carrier.turn].completed if carrier.completed else None
    return _ENCODER.encode((*head, completed.relevant if completed is not None else None))


def _searches(conversation: Conversation, carrier: Carrier) -> list[Search]:
    """A carrier's searches, in the order of its event."""
    if not carrier.searches:
        return []
    found = conversation.turns[carrier.turn].searches
    return [found[search_id] for search_id in carrier.searches]


def _search_tuple(search: Search, *, short: bool) -> tuple[Any, ...]:
    return (
        _short(search.search_id) if short else search.search_id,
        search.ordinal,
        search.index,
        search.route,
        [_short(name) for name in search.result_ids] if short else search.result_ids,
        search.documents,
        "".join([_EVIDENCE[evidence] for evidence in search.evidence]),
        "".join([_TYPES[kind] for kind in search.types]),
        search.gains,
        search.baseline,
    )


def _encode_fingerprints(
    conversation: Conversation, carrier: Carrier, dedup: Deduplicator
) -> bytes | None:
    if not carrier.searches:
        return None
    searches: list[Fingerprints] = []
    for search in _searches(conversation, carrier):
        assert search.fingerprints is not None  # whoever replaces a search has loaded them
        searches.append(search.fingerprints)
    return dedup.pack(searches)


def _encode_doc_ids(conversation: Conversation, digest: bytes) -> bytes | None:
    carrier = conversation.carriers.get(digest)
    if carrier is None or not carrier.searches:
        return None
    return _ENCODER.encode([search.doc_ids for search in _searches(conversation, carrier)])


def decode_conversation(
    conversation_id: str, hot: Mapping[bytes, bytes], key_id: str
) -> Conversation:
    """The conversation that ``hot`` holds, items only; a new one with ``key_id`` if it is empty.

    ``conversation_id`` is for those without their own: new ones, tombstones and stubs. Raises
    ``UnknownSchema`` for parts that another release wrote, and ``DamagedState`` for bytes that no
    release writes.
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
            _decode_carrier(conversation, name[1:], value)
        elif name[:1] == b"t":
            number, *rest = _read(_TURN, value, "a turn's header")
            if name != turn_field(number):
                raise DamagedState(f"the header of turn {number} is stored under another name")
            turn = _turn(conversation, number)
            turn.over_limit, turn.refused, turn.ghost, turn.qrels = rest
        elif name[:1] == b"d":
            doc_ids[name[1:]] = value
    for digest, value in doc_ids.items():
        _add_doc_ids(conversation, digest, value)
    return conversation


T = TypeVar("T")


def _read(decoder: msgspec.msgpack.Decoder[T], value: bytes, what: str) -> T:
    """What ``value`` holds; raises ``DamagedState`` where it is not ``what`` should be."""
    try:
        return decoder.decode(value)
    except (ValueError, RecursionError) as error:  # the first: all of msgspec's decoding errors
        raise DamagedState(f"{what} cannot be read ({type(error).__name__})") from error


class Header(NamedTuple):
    """What a stored conversation says of itself; the id is empty in a tombstone and in a stub."""

    schema: int
    conversation_id: str
    key_id: str
    forgotten: Version | None

    @property
    def is_stub(self) -> bool:
        """Whether this is what is left of a conversation that has expired."""
        return not self.conversation_id and self.forgotten is None


def stored_header(hot: Mapping[bytes, bytes]) -> Header:
    """The header of a stored conversation; raises ``UnknownSchema`` and ``DamagedState``."""
    if _HEADER not in hot:
        raise DamagedState("a conversation has no header")
    try:
        return Header(*_known_schema(_HEAD.decode(hot[_HEADER])))
    except (ValueError, RecursionError):
        found = _read(_ANY, hot[_HEADER], "a conversation's header")
        if type(found) is list and found and type(found[0]) is int:
            _known_schema(found)  # another release's header may look otherwise
        raise DamagedState("a conversation's header cannot be read") from None


_Header = TypeVar("_Header", _Head, list[Any])


def _known_schema(header: _Header) -> _Header:
    if header[0] not in SCHEMAS:
        raise UnknownSchema(
            f"a conversation is stored by schema {header[0]}; this release reads {schemas_text()}. "
            "Take the release that wrote it, or a later one"
        )
    return header


def tables_text() -> str:
    """The numbers of the deduplication tables that this release has, for messages."""
    return " and ".join(map(str, published()))


def schemas_text() -> str:
    """The schemas that this release reads, for messages."""
    return " and ".join(map(str, SCHEMAS))


def _short(name: str) -> str | bytes:
    """An id as schema 2 stores it."""
    if len(name) == _UUID_LENGTH and _UUID.fullmatch(name):
        return bytes.fromhex(name.replace("-", ""))
    return name


def _whole(stored: object) -> str:
    """An id as any schema stored it; raises ``DamagedState``."""
    if type(stored) is str:
        return stored
    if type(stored) is not bytes or len(stored) != _UUID_BYTES:
        raise DamagedState("an id is neither text nor a UUID")
    digits = stored.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _turn(conversation: Conversation, number: int) -> Turn:
    turn = conversation.turns.get(number)
    if turn is None:
        turn = conversation.turns[number] = Turn(number)
    return turn


def _decode_carrier(conversation: Conversation, digest: bytes, value: bytes) -> None:
    mark = value[1:2]  # a carrier is a short array that begins with its kind, a small number
    decoder = _CARRIERS.get(mark[0]) if mark else None
    if decoder is None:
        raise DamagedState("an event has an unknown kind")
    stored = _read(decoder, value, "an event")
    kind, number, occurred_us, event_id = stored[:4]
    carrier = Carrier(kind, number, (occurred_us, _whole(event_id), digest))
    conversation.carriers[digest] = carrier
    turn = _turn(conversation, number)
    if kind == SEARCHES:
        _, _, _, _, carrier.iteration, carrier.agent, carrier.release, carrier.gate, found = stored
        if carrier.gate is not None:
            turn.gates[carrier.iteration] = carrier
        for parts in found:
            search = _decode_search(carrier, parts)
            carrier.searches.append(search.search_id)
            turn.searches[search.search_id] = search
            turn.results += len(search.result_ids)
    elif kind == LABELS:
        _, _, _, _, labels, routing_labels, carrier.gate_labels = stored
        carrier.labels = {_whole(name): gain for name, gain in labels.items()}
        carrier.routing_labels = {_whole(name): route for name, route in routing_labels.items()}
        turn.labels.update(dict.fromkeys(carrier.labels, carrier))
        for search_id, route in carrier.routing_labels.items():
            turn.routing_labels[search_id] = (carrier, route)
        for iteration, needed in carrier.gate_labels.items():
            turn.gate_labels[iteration] = (carrier, needed)
    elif kind == COMPLETED:
        carrier.completed, turn.completed = True, Completed(carrier, stored[4])


def _add_doc_ids(conversation: Conversation, digest: bytes, value: bytes) -> None:
    carrier = conversation.carriers.get(digest)
    searches = [] if carrier is None else _searches(conversation, carrier)
    found = _read(_DOC_IDS, value, "the document ids of an event")
    if [len(its) for its in found] != [len(search.result_ids) for search in searches]:
        raise DamagedState("an event's document ids are not those of its results")
    for search, its in zip(searches, found, strict=True):
        search.doc_ids = its


def _decode_search(carrier: Carrier, parts: _SearchPart) -> Search:
    search = Search(carrier, _whole(parts[0]), parts[1], parts[2])
    search.route, search.documents = parts[3], parts[5]
    search.result_ids = [_whole(name) for name in parts[4]]
    try:
        search.evidence = [_EVIDENCE_BACK[code] for code in parts[6]]
    except KeyError:
        raise DamagedState("a search has results with unknown evidence") from None
    try:
        search.types = [_TYPES_BACK[code] for code in parts[7]]
    except KeyError as error:
        raise DamagedState(
            f"a search has results of an entity type that is stored as {error.args[0]!r}, and this "
            f"release has none with that code (it has dedup.tables {tables_text()}). A newer "
            "release wrote it: take that release, or a later one"
        ) from None
    search.gains, search.baseline = parts[8], parts[9]
    results = len(search.result_ids)
    if any(len(part) != results for part in parts[5:] if part is not None):
        raise DamagedState("a search's results are incomplete")
    return search


def add_fingerprints(
    conversation: Conversation, fingerprints: Mapping[bytes, bytes], dedup: Deduplicator
) -> None:
    """Attach stored fingerprints to a decoded conversation's searches; raises ``DamagedState``."""
    for digest, carrier in conversation.carriers.items():
        if carrier.searches:
            found = _unpacked(fingerprints.get(digest), dedup)
            searches = _searches(conversation, carrier)
            if [len(its.types) for its in found] != [len(s.result_ids) for s in searches]:
                raise DamagedState("an event's fingerprints are not those of its results")
            for search, its in zip(searches, found, strict=True):
                search.fingerprints = its
                conversation.turns[carrier.turn].extra_values += its.extra_values
    conversation.has_fingerprints = True


def _unpacked(data: bytes | None, dedup: Deduplicator) -> Sequence[Fingerprints]:
    if data is None:
        raise DamagedState("an event has no fingerprints")
    try:
        return dedup.unpack(data)
    except ValueError as error:
        raise DamagedState("an event's fingerprints cannot be read") from error


def encode_sums(sums: Mapping[str, int]) -> bytes:
    """A window bucket's sums; a bucket without any is not stored."""
    return _ENCODER.encode(sums)


def decode_sums(data: bytes) -> dict[str, int]:
    """The inverse of ``encode_sums``; raises ``DamagedState``."""
    return _read(_SUMS, data, "a window bucket")
