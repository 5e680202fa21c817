"""The compiled way to add to a window bucket writes the bytes that the one in Python writes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.engine.codec import encode_sums
from stream_metrics.engine.state import DamagedState
from stream_metrics.engine.windows import Sums, added_bucket, plain_bucket
from stream_metrics.kernel import kernel

CODES = st.one_of(
    st.sampled_from(["r", "u", "d", "ts|rg", "D|File|url|same_iteration", "R|ü|yes"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
)
EDGES = [sign * 2**bits + step for bits in range(64) for step in (-1, 0, 1) for sign in (-1, 1)]
SMALL = [value for value in EDGES if -(2**63) <= value < 2**63]
NUMBERS = st.one_of(st.sampled_from(SMALL), st.integers(-(2**40), 2**40))
SUMS = st.dictionaries(CODES, NUMBERS.filter(bool), max_size=40)


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Without the kernel's own way nothing here can be said."""
    assert hasattr(kernel, "added_bucket"), "the kernel is not there, or older: make kernel"


@given(SUMS, st.dictionaries(CODES, NUMBERS, max_size=40))
def test_any_sums_on_any_bucket(held: Sums, sums: Sums) -> None:
    """Codes that are new, that are there, that go, and that the window has not."""
    stored = encode_sums(held) if held else None
    kept = {code for at, code in enumerate([*held, *sums]) if at % 3}

    def result(way: object) -> object:
        try:
            return way(stored, sums, kept)  # type: ignore[operator]
        except (OverflowError, msgspec.MsgspecError) as error:
            return type(error)

    assert result(added_bucket) == result(plain_bucket)


@given(SUMS.filter(bool))
def test_a_bucket_that_is_taken_back_goes(held: Sums) -> None:
    """Nothing is left of it."""
    less = {code: -value for code, value in held.items() if value != -(2**63)}
    held = {code: held[code] for code in less}
    stored = encode_sums(held) if held else None

    assert added_bucket(stored, less, set(less)) is None


@pytest.mark.parametrize("count", [1, 15, 16, 17, 300, 70_000])
def test_buckets_of_any_size(count: int) -> None:
    """Maps of each form, those too that the kernel leaves to its twin."""
    held = {f"code {n}": n + 1 for n in range(count)}
    sums = {f"code {n}": 1 for n in range(count - 1, -1, -max(1, count // 50))}

    assert added_bucket(encode_sums(held), sums, set(sums)) == plain_bucket(
        encode_sums(held), sums, set(sums)
    )


@given(st.binary(max_size=30))
@example(b"")
@example(b"\x81\xa1\xff\x01")
@example(b"\x81\xa1r\x01\x00")
def test_damaged_bytes_are_refused_alike(stored: bytes) -> None:
    """By the error that says so, or read alike."""

    def result(way: object) -> object:
        try:
            return way(stored, {"r": 1}, {"r"})  # type: ignore[operator]
        except DamagedState as error:
            return str(error)

    assert result(added_bucket) == result(plain_bucket)
