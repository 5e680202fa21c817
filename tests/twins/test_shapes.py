"""The kernel's cache of object shapes does not change its results."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.twins.texts import LEVELS, event_with, fast_digest, slow_digest

pytestmark = pytest.mark.kernel

PATIENT = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
LONGEST_REMEMBERED = 21  # with quotes and a colon, 24 bytes
MOST_MEMBERS = 64
MOST_CHILDREN = 32
MOST_PLACES = 2_048
MOST_LEVELS = 200

# Keys with common beginnings, as long as can be cached and longer, and with escapes.
_KEYS = [
    "", "a", "a\x01", "a\u00e9", "ab", "b", "longer_k", "longer_key_a", "longer_key_b", "url",
    "doc_id", "results", "results_", "x" * 20, "x" * 21, "x" * 22, "x" * 21 + "y", "\u00e9",
    "\uffff", "\U00010000", 'a"', "a\\", "a:", '":"',
]  # fmt: skip
_NAMES = st.sampled_from(_KEYS)
_SPACES = st.sampled_from(["", "", "", " ", "\n\t"])


def agreed(value: bytes) -> bool:
    """Whether the kernel finds Python's digest of an event with such a value, or none."""
    event = event_with(value)
    return fast_digest(event) in (None, slow_digest(event))


def surely(value: bytes) -> bool:
    """Whether the kernel finds Python's digest of an event with such a value."""
    return surely_whole(event_with(value))


def surely_whole(event: bytes) -> bool:
    """Whether the kernel finds Python's digest of an event."""
    found = fast_digest(event)
    return found is not None and found == slow_digest(event)


@st.composite
def _objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    """An object as a text: some keys stand twice, some are escaped, some have spaces around."""
    names = draw(st.permutations(_KEYS[:16]) | st.lists(_NAMES, max_size=6))
    width = draw(st.integers(0, 8))
    coded = draw(st.sampled_from([False, False, True]))
    before, behind, last = draw(_SPACES), draw(_SPACES), draw(_SPACES)
    members = [
        f"{before}{json.dumps(name, ensure_ascii=coded)}{behind}:{last}{draw(values)}"
        for name in names[:width]
    ]
    return "{" + ",".join(members) + last + "}"


_SCALARS = st.sampled_from(["1", "-2.50", '"x"', '"\\u00e9\\n"', "true", "null", "[]", "{}"])
_LISTS = _objects(_SCALARS).map(lambda text: f"[{text},{text}]")
_TEXTS = _objects(_SCALARS | _objects(_SCALARS) | _LISTS)


@PATIENT
@given(st.lists(_TEXTS, min_size=1, max_size=6))
@example(['{"b":1,"a":2}', '{"a":2,"b":1}', '{"b":1,"a":2,"b":3}', '{"b":1}', '{"b":1,"a":2}'])
@example(['{"a":1,"a":1}', '{"a":1,"a":1}', '{"a":1,"ab":1}', '{"ab":1,"a":1}'])
@example(['{"b":{"b":1,"a":2}}', '{"b":[{"a":1,"b":2},{"b":1,"a":2}]}', '{"b":{"a":1}}'])
@example(['{"b":1,"a" :2}', '{"b":1, "a":2}', '{"b":1,"\\u0061":2}', '{"b":1,"a":2}'])
def test_one_after_another(texts: list[str]) -> None:
    """Each text has its own digest, whatever came before it, and the same when it is repeated."""
    for text in [*texts, *reversed(texts)]:
        assert agreed(text.encode())
        event = event_with(text.encode())
        assert fast_digest(event) == fast_digest(event)


@PATIENT
@given(st.permutations(list("abcd")), st.integers(1, 4), _SPACES, st.data())
def test_every_order(names: list[str], width: int, space: str, data: st.DataObject) -> None:
    """Objects of a few keys are taken and put in order, in whatever order they came last."""
    texts = []
    for _ in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.permutations(names))[:width]
        texts.append("{" + f",{space}".join(f'"{name}":"{name}"' for name in chosen) + "}")
    assert all(surely(f"[{space}{text}]".encode()) for text in texts)
    assert surely(f"[{','.join(texts)}]".encode())


def test_keys_that_begin_alike() -> None:
    """Keys that differ in one byte, or only in their length, are not confused."""
    for size in range(LONGEST_REMEMBERED + 3):
        for end in ("", "a", "b", '\\"', "\u00e9"):
            assert surely(f'{{"{"k" * size}":1,"j":2}}'.encode())
            value = f'{{"{"k" * size}{end}":1,"{"k" * size}c":2,"j":3}}'.encode()
            assert agreed(value)
            assert (fast_digest(event_with(value)) is None) == (end == '\\"')


def test_keys_at_the_end() -> None:
    """A key is read alike inside a text and directly before its end."""
    for value in ("1", '"a longer value than all keys"', "[]"):
        for width in range(1, 6):
            members = ",".join(f'"{name}":{value}' for name in "edcba"[:width]) + "}"
            assert surely_whole(f'{{"type":"t","occurred_at":0,{members}'.encode())
            assert surely(f"[{{{members},{{{members}]".encode())


def _wide(count: int, first: int = 0) -> dict[str, Any]:
    return {f"k{number}": number for number in range(first, first + count)}


def test_wide_objects_again_and_again() -> None:
    """Objects with more members than are cached are sorted each time."""
    for width in (MOST_MEMBERS - 1, MOST_MEMBERS, MOST_MEMBERS + 1, 5 * MOST_MEMBERS):
        text = json.dumps(_wide(width), separators=(",", ":")).encode()
        assert surely(text)
        assert surely(text)


def test_many_ways_to_go_on() -> None:
    """More keys than are cached at one node are distinguished."""
    first = [f'{{"other{number}":1,"a":2}}' for number in range(3 * MOST_CHILDREN)]
    assert all(surely(text.encode()) for text in first)
    assert surely(f"[{','.join(first)}]".encode())


def test_more_than_is_remembered() -> None:
    """After the cache was cleared, texts of usual shapes are read as before."""
    usual = b'{"type":"x","occurred_at":1,"agent":[{"url":"u","ids":{"b":1,"a":2}}]}'
    before = fast_digest(usual)
    assert surely_whole(usual)
    for first, count in itertools.product(range(0, 2 * MOST_PLACES, 40), (20, 40)):
        assert surely(json.dumps({"ids": _wide(count, first)}, separators=(",", ":")).encode())
        assert fast_digest(usual) == before


@pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_levels(opener: str, closer: str) -> None:
    """Exactly the allowed number of levels is accepted, and never more than Python can recurse."""
    step = opener.count("[") + opener.count("{")
    for depth in (2, LEVELS - 1, LEVELS, MOST_LEVELS - 1):
        times = depth // step
        event = event_with(opener.encode() * times + b"1" + closer.encode() * times)
        levels = times * step + 1
        assert surely_whole(event) == (levels <= LEVELS)
        assert fast_digest(event, levels) is not None
        assert fast_digest(event, levels - 1) is None
    assert fast_digest(event_with(b"[" * MOST_LEVELS + b"]" * MOST_LEVELS), 10**9) is None
    assert fast_digest(event_with(b"[" * 100_000), 10**9) is None
    assert fast_digest(event_with(b"[]"), -1) is None
