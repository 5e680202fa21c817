"""The canonical JSON behind an event's digest: equal content gives equal text."""

from __future__ import annotations

import hashlib
import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stream_metrics.core.events import canonical
from stream_metrics.core.events.canonical import canonical_json, content_digest, decode_json
from tests.helpers import examples

EXACT = settings(
    suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=examples(300)
)


def reference_form(obj: Any) -> bytes:
    """The canonical form by its definition."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def matches_reference(raw: bytes) -> bool:
    """Whether the canonical form of ``raw`` equals the reference, by either reading of ``raw``."""
    obj, delicate = decode_json(raw)
    return canonical_json(obj, delicate=delicate) == reference_form(json.loads(raw))


def form(raw: bytes) -> bytes:
    """The canonical form of a record."""
    obj, delicate = decode_json(raw)
    return canonical_json(obj, delicate=delicate)


def digest(raw: bytes) -> bytes:
    """The digest of a record's content."""
    obj, delicate = decode_json(raw)
    return content_digest(obj, delicate=delicate)


def test_a_decode_that_another_interrupts_is_right() -> None:
    """Threads decode at the same time, and each digest has the form of its own numbers."""
    interrupted = []

    def switch(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_filename == canonical.__file__:
            sys.setprofile(None)
            interrupted.append(form(b"[1.5]"))

    sys.setprofile(switch)
    try:
        obj, delicate = decode_json(b"[1e-7, 2.5]")
    finally:
        sys.setprofile(None)

    assert interrupted == [b"[1.5]"]
    assert canonical_json(obj, delicate=delicate) == b"[1e-07,2.5]"


# --- JSON texts in every spelling -----------------------------------------------------------------

_SPACE = st.text(" \t\r\n", max_size=2)
_DIGITS = st.text("0123456789", min_size=1, max_size=25)
_INTEGER = st.integers().map(str) | st.integers(-(10**400), 10**400).map(str) | st.just("-0")
_DECIMAL = st.builds(
    "{}{}.{}{}".format,
    st.sampled_from(["", "-"]),
    st.sampled_from(["0", "1", "9" * 15, "9" * 16, "9" * 17]) | st.integers(0, 10**18).map(str),
    st.sampled_from(["", "000", "0000", "00000", "9999999999"]),
    _DIGITS,
)
_EXPONENT = st.builds(
    "{}{}{}{}".format,
    st.one_of(_DECIMAL, st.integers(-(10**18), 10**18).map(str)),
    st.sampled_from("eE"),
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 280).map(str),
)
_FLOAT = st.floats(allow_nan=False, allow_infinity=False).map(repr)
NUMBER = st.one_of(_INTEGER, _DECIMAL, _EXPONENT, _FLOAT)


@st.composite
def _string(draw: st.DrawFn) -> str:
    pieces = []
    for character in draw(st.text(max_size=6)):
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = json.dumps(character)[1:-1]
        units = character.encode("utf-16-be").hex()
        coded = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        forms = [plain, escaped, coded, coded.upper().replace("\\U", "\\u")]
        pieces.append(draw(st.sampled_from([*forms, "\\/"] if character == "/" else forms)))
    return f'"{"".join(pieces)}"'


def _joined(parts: list[str], brackets: str, spaces: list[str]) -> str:
    before, behind = spaces
    return brackets[0] + ",".join(before + part + behind for part in parts) + brackets[1]


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    spaces = st.lists(_SPACE, min_size=2, max_size=2)
    members = st.builds(
        lambda name, a, b, v: name + a + ":" + b + v, _string(), _SPACE, _SPACE, inner
    )
    return st.builds(_joined, st.lists(inner, max_size=5), st.just("[]"), spaces) | st.builds(
        _joined, st.lists(members, max_size=5), st.just("{}"), spaces
    )


_LEAF = st.sampled_from(["null", "true", "false"]) | NUMBER | _string()
DOCUMENT = _containers(st.recursive(_LEAF, _containers, max_leaves=8))


@pytest.mark.slow
@EXACT
@given(DOCUMENT)
def test_any_json_text_has_the_form_that_json_writes(text: str) -> None:
    """This holds for any object or list in any spelling."""
    assert matches_reference(text.encode())


@settings(EXACT, max_examples=examples(1_000))
@given(NUMBER, _SPACE)
def test_any_number_has_the_form_that_json_writes(token: str, space: str) -> None:
    """Most of the numbers are hard cases."""
    assert matches_reference(f'{{"a":{space}{token}}}'.encode())
    assert matches_reference(f"[0,{space}{token}{space}]".encode())


def test_floats_are_written_as_repr_writes_them() -> None:
    """This holds for every power of ten and its two neighbours."""
    for exponent in range(-330, 309):
        for factor in ("1", "9.999999999999999", "1.0000000000000002"):
            token = f"{factor}e{exponent - (factor[0] == '9')}"
            plain = f"{float(token):.340f}" if exponent < 17 else f"{float(token):.1f}"
            assert matches_reference(f"[{token}]".encode()), token
            assert matches_reference(f"[{plain}]".encode()), token


@pytest.mark.slow
def test_every_character_has_the_form_that_json_writes() -> None:
    """It does not matter whether it was escaped."""
    for code in (*range(0xD800), *range(0xE000, 0x10000), 0x10000, 0x1F600, 0x10FFFF):
        units = chr(code).encode("utf-16-be").hex()
        coded = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        assert matches_reference(f'["{coded}",{{"{coded}":1}}]'.encode())
        assert matches_reference(json.dumps([chr(code)], ensure_ascii=False).encode())


def test_keys_are_sorted_by_code_point() -> None:
    """This differs from the order of UTF-16 units."""
    raw = json.dumps(
        {"\U00010000": 1, "\uffff": 2, "b": 3, "B": 4, "": 5, "a\x00": 6, "a": 7}
    ).encode()
    text = form(raw)
    assert text == '{"":5,"B":4,"a":7,"a\\u0000":6,"b":3,"\uffff":2,"\U00010000":1}'.encode()
    assert matches_reference(raw)


def test_the_last_of_equal_keys_counts() -> None:
    """This holds for the event and for its digest."""
    raw = b'{"a":1e0,"a":{"b":1},"a":2}'
    assert form(raw) == b'{"a":2}'


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@EXACT
@given(st.dictionaries(st.text(max_size=3), _VALUES), st.randoms(use_true_random=False))
def test_the_digest_ignores_spelling(document: dict[str, Any], random: Any) -> None:
    """Key order, white space and escapes change nothing."""
    names = list(document)
    random.shuffle(names)
    shuffled = {name: document[name] for name in names}
    spellings = [json.dumps(document), json.dumps(shuffled, indent=1, ensure_ascii=False)]
    digests = {digest(s.encode()) for s in spellings}
    assert digests == {hashlib.sha256(reference_form(document)).digest()[:16]}


@pytest.mark.parametrize("number", [2**1024 - 2**970 - 1, 10**308])
def test_the_largest_exact_integers_have_a_digest(number: int) -> None:
    """These are the largest that a double represents exactly."""
    raw = json.dumps({"a": [-number, number]}).encode()
    assert len(digest(raw)) == 16


@pytest.mark.parametrize("number", [2**1024 - 2**970, -(2**1024), 10**400])
def test_integers_beyond_doubles_are_refused(number: int) -> None:
    """JSON readers disagree about them."""
    raw = json.dumps({"a": [{"b": number}]}).encode()
    with pytest.raises(OverflowError):
        digest(raw)
