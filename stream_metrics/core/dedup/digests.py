"""Keyed digests, which the state stores instead of texts, URLs and document ids.

A digest is a keyed BLAKE2b of a slot (the kind of value) and the value's comparable form. Without
the key, nobody can recover a text from the state or test whether a guessed text is in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

DIGEST_BYTES: Final = 16
NAME_BYTES: Final = 8
KEY_BYTES: Final = 8

# Names that a packed fingerprint writes as one byte. The order is part of the stored format:
# append only.
KNOWN_NAMES: Final = (
    "file_id", "unique_id", "site_id", "web_id", "event_id", "original_id", "email_url", "item_id",
    "alias", "upn", "email", "artifact_id", "tenant_id", "container_id", "chunk_id",
    "file_name", "file_type", "author", "last_modified_by", "last_modified_time",
    "start", "end", "organizer_email", "subject",
    "date_time_received", "from", "to", "participants",
    "display_name", "department", "company_name", "office_location",
    "plugin_id", "plugin_type", "segment",
)  # fmt: skip

Name = str | bytes  # a known name itself, any other name as its 8-byte digest

_MAX_SLOTS: Final = 4_096
_LONGEST_NAME: Final = 64  # longer names are not cached


class Digester:
    """Digests under one secret key (at most 64 bytes; empty means unkeyed, for offline replay).

    >>> d = Digester(b"secret")
    >>> d.of("title", "a") == d.of("title", "a"), d.of("title", "a") == d.of("url", "a")
    (True, False)
    >>> d.of("title", "a") == Digester(b"other").of("title", "a")
    False
    """

    __slots__ = ("_fixed", "_key", "_names", "_resolved", "_slots")

    def __init__(self, key: bytes = b"", names: Iterable[str] = ()) -> None:
        """``names`` are further names used in rules, which ``resolve`` can then recognise."""
        self._key = key
        self._slots: dict[str, hashlib.blake2b] = {}
        self._fixed: dict[str, Name] = {name: name for name in (*KNOWN_NAMES, *names)}
        self._names = dict(self._fixed)
        self._resolved = {self.name_digest(name): name for name in names}

    def of(self, slot: str, text: str) -> bytes:
        """The 16-byte digest of ``text`` in ``slot``."""
        base = self._slots.get(slot)
        if base is None:
            base = self._new_slot(slot)
        state = base.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return state.digest()

    def name(self, name: str) -> Name:
        """The form of the name of an ID component or field in a fingerprint."""
        known = self._names.get(name)
        if known is None:
            known = self.name_digest(name)
            if len(name) <= _LONGEST_NAME:
                if len(self._names) > _MAX_SLOTS:
                    self._names = dict(self._fixed)
                self._names[name] = known
        return known

    def name_digest(self, name: str) -> bytes:
        """The stored form of a name that is not in ``KNOWN_NAMES``."""
        return self.of("name", name)[:NAME_BYTES]

    def resolve(self, digest: bytes) -> Name:
        """The name of a stored digest if rules use it, else the digest."""
        return self._resolved.get(digest, digest)

    def _new_slot(self, slot: str) -> hashlib.blake2b:
        base = hashlib.blake2b(digest_size=DIGEST_BYTES, key=self._key)
        label = slot.encode("utf-8", "surrogatepass")
        base.update(len(label).to_bytes(4, "big") + label)
        if len(slot) <= _LONGEST_NAME:
            if len(self._slots) > _MAX_SLOTS:
                self._slots.clear()
            self._slots[slot] = base
        return base
