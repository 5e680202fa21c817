"""The stored format of fingerprints.

A packed result is the index of its type (2 bytes), its flags (1 byte) and then, for each value, a
tag and its digest (1 + 16 bytes; candidate keys 1 + 8). Names outside ``KNOWN_NAMES`` are in a
table that the results of one event share. Tags are part of the stored format and are never reused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from stream_metrics.core.dedup.digests import DIGEST_BYTES, KEY_BYTES, KNOWN_NAMES, Digester, Name
from stream_metrics.core.dedup.fingerprint import Fingerprint

# Attributes by tag, from 1; the last three are candidate keys.
_OWN: Final = (
    "doc", "doc_exact", "url", "parameters", "title", "snippet", "content",
    "key_title", "key_snippet", "key_content",
)  # fmt: skip
_IDENTITY_TAGS: Final = {
    "id": 11, "itemid": 12, "version": 13, "sourcedoc": 14, "docid": 15, "v": 16, "p": 17,
}  # fmt: skip
_URL_TAGS: Final = {18: "route", 19: "weak"}  # further attributes
_KNOWN_ID: Final = 32
_KNOWN_FIELD: Final = 96
_NEW_ID: Final = 160
_NEW_FIELD: Final = 207
_NEW_SPAN: Final = 47
_FAR_ID: Final = 254
_FAR_FIELD: Final = 255

_KNOWN_INDEX: Final = {name: index for index, name in enumerate(KNOWN_NAMES)}
_OWN_BY_TAG: Final = dict(enumerate(_OWN, 1)) | _URL_TAGS
_IDENTITY_BY_TAG: Final = {tag: name for name, tag in _IDENTITY_TAGS.items()}


class PackedSearches(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fingerprints of one event's searches: shared names and types, then packed results."""

    names: list[bytes]
    types: list[str]
    searches: list[list[bytes]]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(PackedSearches)


class Packer:
    """Packs the results of one event."""

    def __init__(self, digester: Digester) -> None:
        self._digester = digester
        self._names: dict[bytes, int] = {}
        self._types: dict[str, int] = {}
        self._searches: list[list[bytes]] = []

    def add_search(self, fingerprints: list[Fingerprint]) -> None:
        """Append one search's results."""
        self._searches.append([self._pack(f) for f in fingerprints])

    def encode(self) -> bytes:
        """The whole event's bytes."""
        return _ENCODER.encode(PackedSearches(list(self._names), list(self._types), self._searches))

    def _pack(self, f: Fingerprint) -> bytes:
        type_index = self._types.setdefault(f.type, len(self._types)).to_bytes(2, "big")
        if f.packed is not None:
            return type_index + f.packed
        names = len(self._names)
        packed = self._pack_values(f)
        if not names and not self._names:  # uses no names of this event
            f.packed = packed
        return type_index + packed

    def _pack_values(self, f: Fingerprint) -> bytes:
        parts = [bytes((f.flags,))]
        own = (
            f.doc, f.doc_exact, f.url, f.parameters, f.title, f.snippet, f.content,
            f.key_title, f.key_snippet, f.key_content,
        )  # fmt: skip
        for tag, value in enumerate(own, 1):  # in the order of _OWN
            if value is not None:
                parts.append(_TAG[tag])
                parts.append(value)
        for name, digest in f.identity.items():
            parts.append(_TAG[_IDENTITY_TAGS[name]])
            parts.append(digest)
        for tag, value in zip(_URL_TAGS, (f.route, f.weak), strict=True):
            if value is not None:
                parts.append(_TAG[tag])
                parts.append(value)
        for component, digests in f.ids.items():
            tag_bytes = self._tag(component, _KNOWN_ID, _NEW_ID, _FAR_ID)
            for digest in digests:
                parts.append(tag_bytes)
                parts.append(digest)
        for field_name, digest in f.fields.items():
            parts.append(self._tag(field_name, _KNOWN_FIELD, _NEW_FIELD, _FAR_FIELD))
            parts.append(digest)
        return b"".join(parts)

    def _tag(self, name: Name, known: int, new: int, far: int) -> bytes:
        if isinstance(name, str):
            index = _KNOWN_INDEX.get(name)
            if index is not None:
                return _TAG[known + index]
            digest = self._digester.name_digest(name)
        else:
            digest = name
        position = self._names.setdefault(digest, len(self._names))
        if position < _NEW_SPAN:
            return _TAG[new + position]
        return _TAG[far] + position.to_bytes(4, "big")


_TAG: Final = tuple(bytes((tag,)) for tag in range(256))
_TAGS: Final = frozenset(
    (
        *_OWN_BY_TAG,
        *_IDENTITY_BY_TAG,
        *range(_KNOWN_ID, _KNOWN_ID + len(KNOWN_NAMES)),
        *range(_KNOWN_FIELD, _KNOWN_FIELD + len(KNOWN_NAMES)),
        *range(_NEW_ID, 256),
    )
)


class Unpacker:
    """The packed results of one event."""

    __slots__ = ("_digester", "_packed")

    def __init__(self, digester: Digester, data: bytes) -> None:
        self._digester = digester
        self._packed = _DECODER.decode(data)
        if any(len(name) != KEY_BYTES for name in self._packed.names):
            raise _malformed()

    def searches(self) -> list[list[Fingerprint]]:
        """The fingerprints of each search; raises ``ValueError`` if they are malformed."""
        return [[self._unpack(data) for data in search] for search in self._packed.searches]

    def _unpack(self, data: bytes) -> Fingerprint:
        at, end = 3, len(data)
        kind = int.from_bytes(data[:2], "big")
        if end < at or kind >= len(self._packed.types):
            raise _malformed()
        f = Fingerprint(self._packed.types[kind])
        f.flags = data[2]
        name: Name = b""
        while at < end:
            tag = data[at]
            at += 1
            size = KEY_BYTES if 8 <= tag <= 10 else DIGEST_BYTES
            if tag >= _FAR_ID:
                name = self._name(int.from_bytes(data[at : at + 4], "big"))
                at += 4
            digest = data[at : at + size]
            at += size
            if at > end or tag not in _TAGS:
                raise _malformed()
            if tag in _OWN_BY_TAG:
                setattr(f, _OWN_BY_TAG[tag], digest)
            elif tag < _KNOWN_ID:
                f.identity = {**f.identity, _IDENTITY_BY_TAG[tag]: digest}
            elif tag < _KNOWN_FIELD:
                _add_id(f, KNOWN_NAMES[tag - _KNOWN_ID], digest)
            elif tag < _NEW_ID:
                f.fields = {**f.fields, KNOWN_NAMES[tag - _KNOWN_FIELD]: digest}
            elif tag < _NEW_FIELD:
                _add_id(f, self._name(tag - _NEW_ID), digest)
            elif tag < _FAR_ID:
                f.fields = {**f.fields, self._name(tag - _NEW_FIELD): digest}
            elif tag == _FAR_ID:
                _add_id(f, name, digest)
            else:
                f.fields = {**f.fields, name: digest}
        return f

    def _name(self, index: int) -> Name:
        if index >= len(self._packed.names):
            raise _malformed()
        return self._digester.resolve(self._packed.names[index])


def _malformed() -> ValueError:
    return ValueError("not packed fingerprints")


def _add_id(f: Fingerprint, name: Name, digest: bytes) -> None:
    f.ids = {**f.ids, name: (*f.ids.get(name, ()), digest)}
