"""Unique texts in every field of an event, to find where they appear again.

A *canary* is a word that stands for one place. ``Canaries.planted`` puts one into every text of an
event, known and unknown, and into every name that a producer may choose; ``Canaries.found`` says
whose canaries stand in some bytes, as they were sent or in another form.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

HANDLES = frozenset(
    {"conversation_id", "event_id", "search_id", "result_id", "agent", "release", "selected",
     "optimal", "entity_type"}
)  # fmt: skip
"""Fields that Redis may store unchanged."""

_GIVEN = frozenset({"type", "occurred_at", "decision", "source", "sample"})
"""Words and times of the contract."""
_CHOSEN = frozenset({"ids", "fields", "scores", "dimensions", "relevant"})  # names by the producer
_LONG = " and two hundred characters more, so that deduplication takes it for evidence" * 4


class Canaries:
    """The canaries of some events, by place."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # the place of each canary
        self._texts: dict[bytes, str] = {}  # digests of planted texts: their place

    def word(self, place: str) -> str:
        """The canary of a place: 16 letters, large and small, which stand in no other text."""
        digits = hashlib.sha256(place.encode()).digest()
        word = "Qx" + "".join(chr(65 + d % 26 + 32 * (d & 1)) for d in digits[:14])
        self.places[word] = place
        return word

    def text(self, place: str, around: str = "{}") -> str:
        """The canary of a place in a longer text."""
        text = around.format(self.word(place))
        for form in {text, text.casefold(), " ".join(text.casefold().split())}:
            self._texts.update(dict.fromkeys(_digests(form.encode()), place))
        return text

    def planted(self, event: dict[str, Any], number: str) -> dict[str, Any]:
        """The event with a canary in the place of each text; what identifies stays the same within
        events of one ``number``."""
        planted: dict[str, Any] = self._in_map(event, number)
        return planted

    def _in_map(self, given: dict[str, Any], place: str) -> dict[str, Any]:
        chosen = place.rpartition(".")[2] in _CHOSEN
        found = {}
        for name, value in given.items():
            inner = f"{place}.{name}"
            found[name] = value if name in _GIVEN else self._in_value(value, inner)
            if chosen:
                found[self.word(f"{inner}.name")] = self._in_value(value, f"{inner}.again")
        if not chosen:  # a field of a newer producer
            word = self.word(f"{place}.unknown.name")
            found[word] = {word: self.text(f"{place}.unknown")}
        return found

    def _in_value(self, value: Any, place: str) -> Any:
        if isinstance(value, dict):
            return self._in_map(value, place)
        if isinstance(value, list):
            return [self._in_value(entry, f"{place}.{at}") for at, entry in enumerate(value)]
        return self._in_text(value, place) if isinstance(value, str) else value

    def _in_text(self, value: str, place: str) -> str:
        number, name = place.partition(".")[0], place.rpartition(".")[2]
        if name == "url":
            user, host, path, key, argument, part = (
                self.word(f"{place}.{which}")
                for which in ("user", "host", "path", "parameter", "argument", "part")
            )
            return f"https://{user}@{host}.example/a/{path}?{key}={argument}#{part}"
        if name in HANDLES:
            return self.text(f"{number}.{value}.{name}")
        return self.text(place, "{}" + _LONG if name in ("snippet", "content") else "{}")

    def found(self, data: bytes, *, allowed: Iterable[str] = ()) -> set[str]:
        """The places whose canaries stand in ``data``, but for those that end in an ``allowed``
        name.

        Found are a canary in large and small letters, as bytes, UTF-16, hexadecimal, base64 or
        percent-encoded, and a usual digest, without a key, of the whole text that it stands in.
        """
        ends = tuple(f".{name}" for name in allowed)
        small = data.lower()
        found = set()
        for word, place in self.places.items():
            if not place.endswith(ends) and _holds(data, small, word):
                found.add(place)
        for digest, place in self._texts.items():
            if not place.endswith(ends) and (digest in data or digest.hex().encode() in small):
                found.add(f"a digest of {place}")
        return found


def _holds(data: bytes, small: bytes, word: str) -> bool:
    for raw in (word.encode(), word.lower().encode()):
        percent = "".join(f"%{byte:02x}" for byte in raw).encode()
        if raw.hex().encode() in small or percent in small:
            return True
        if any(form in data for form in base64_forms(raw)):
            return True
    folded = word.lower()
    return folded.encode() in small or folded.encode("utf-16-le") in small


def base64_forms(raw: bytes) -> Iterator[bytes]:
    """The middle of what base64 makes of it, wherever in a longer text it stands."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        yield encoded[first:last]


def _digests(text: bytes) -> Iterator[bytes]:
    """The first 8 bytes of usual digests without a key."""
    for name in ("md5", "sha1", "sha256", "sha512", "sha3_256", "blake2s"):
        yield hashlib.new(name, text).digest()[:8]
    for size in (8, 16, 20, 32, 64):
        yield hashlib.blake2b(text, digest_size=size).digest()[:8]


def unpacked(stored: bytes | dict[bytes, bytes] | list[bytes]) -> bytes:
    """What is stored and what is packed inside of it, each part for itself on a line."""
    return b"\n".join(_parts(stored))


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _parts(name)
            yield from _parts(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _parts(entry)
    elif isinstance(value, bytes):
        yield value
        try:
            inner = msgspec.msgpack.decode(value)
        except (ValueError, RecursionError):
            return
        if isinstance(inner, dict | list):
            yield from _parts(inner)
