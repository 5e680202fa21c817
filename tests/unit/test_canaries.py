"""The search for canaries finds them in every encoding that could leak."""

from __future__ import annotations

import base64
import hashlib
import json
from urllib.parse import quote

import msgspec
import pytest

from tests.canaries import Canaries, unpacked
from tests.corpus import FULL

CANARIES = Canaries()
TEXT = CANARIES.text("0.query", "What is {} good for?")
WORD = CANARIES.word("0.query")
FORMS = {
    "as sent": TEXT.encode(),
    "small": TEXT.lower().encode(),
    "large": TEXT.upper().encode(),
    "JSON": json.dumps({"message": TEXT}).encode(),
    "UTF-16": TEXT.encode("utf-16"),
    "hexadecimal": TEXT.encode().hex().encode(),
    "large hexadecimal": TEXT.lower().encode().hex().upper().encode(),
    "base64": base64.b64encode(TEXT.encode()),
    "base64 of small letters": base64.b64encode(b" " + TEXT.lower().encode()),
    "base64 for URLs": base64.urlsafe_b64encode(b"  " + TEXT.encode()).rstrip(b"="),
    "percent": quote(TEXT).encode(),
    "percent throughout": "".join(f"%{byte:02X}" for byte in TEXT.encode()).encode(),
    "digest": hashlib.sha256(TEXT.encode()).digest()[:16],
    "digest in hexadecimal": hashlib.md5(TEXT.encode(), usedforsecurity=False).hexdigest().encode(),
    "digest of the normalised text": hashlib.blake2b(TEXT.casefold().encode()).digest(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_canary_is_found_in_every_form(form: str) -> None:
    """Only its place is named."""
    CANARIES.word("0.title")
    found = CANARIES.found(b"\x00\xff before" + FORMS[form] + b"behind \x80")

    assert found
    assert all("0.query" in place for place in found)


def test_an_allowed_place_is_not_reported() -> None:
    """All other places still are."""
    canaries = Canaries()
    both = canaries.word("0.a.agent") + canaries.word("0.query")

    assert canaries.found(both.encode(), allowed=["agent"]) == {"0.query"}


def test_stored_values_are_unpacked() -> None:
    """Texts are found inside nested packed values."""
    inner = msgspec.msgpack.encode([[b"x", "within"]])
    stored = msgspec.msgpack.encode({"name": inner})

    assert {b"name", b"within"} <= set(unpacked(stored).split(b"\n"))


@pytest.mark.parametrize("kind", FULL)
def test_canaries_are_planted_everywhere(kind: str) -> None:
    """An event keeps no other text than words of the contract, times and field names."""
    canaries = Canaries()
    planted = json.dumps(canaries.planted(FULL[kind], "0"))

    remaining = {text for text in _texts(json.loads(planted)) if not canaries.found(text.encode())}
    assert remaining <= {kind, "search", "model", "random", "2024-06-10T09:15:25Z"}
    assert len(canaries.found(planted.encode())) == len(canaries.places)


def _texts(value: object) -> set[str]:
    if isinstance(value, dict):
        return {text for entry in value.values() for text in _texts(entry)}
    if isinstance(value, list):
        return {text for entry in value for text in _texts(entry)}
    return {value} if isinstance(value, str) else set()
