"""Buckets are loaded, corrected and named alike with and without the kernel."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.core.engine.codec import decode_sums, encode_sums
from stream_metrics.core.engine.state import Cell, DamagedState
from stream_metrics.core.engine.windows import NamedCell, Names, Windows, added_bucket
from tests.twins.buckets import HOUR, by_kernel

pytestmark = pytest.mark.kernel


def test_a_bucket_that_is_taken_back_goes() -> None:
    """Nothing is left of it."""
    windows = Windows(HOUR)
    windows.load("1h", 0, "a", encode_sums({"r": 3, "u": -1}))

    assert by_kernel(windows, [(-1, 0, "a", {"r": 3, "u": -1})], 0) == {("1h", 0, "a"): None}


@given(st.binary(max_size=30))
@example(b"")
@example(b"\x81\xa1r\xff\x01")
@example(b"\x81\xa1r\x01\x00")
@example(b"\x81\xa1r\x00")
@example(b"\x82\xa1r\x01\xa1r\x02")
def test_damaged_bytes_are_refused_when_they_are_loaded(stored: bytes) -> None:
    """With ``DamagedState``; what can be read is kept in its canonical form."""
    windows = Windows(HOUR)
    try:
        windows.load("1h", 0, "a", stored)
    except DamagedState:
        with pytest.raises(DamagedState):
            added_bucket(stored, {"r": 1}, {"r"})
        return
    cells: list[NamedCell] = [(1, 0, "a", {"r": 1})]
    plain: dict[object, object] = {("1h", 0, "a"): added_bucket(stored, {"r": 1}, {"r"})}
    assert decode_sums(windows.buckets["1h"][0, "a"]) == decode_sums(stored)
    assert windows.plain_changes(cells, 0) == plain
    assert by_kernel(windows, cells, 0) in (plain, None)


def test_names_are_those_of_series() -> None:
    """Agents and routes without series of their own are ``other`` on the compiled way, too."""
    windows = Windows(HOUR)
    cell = Cell(0, "stranger", {"R|far|yes": 2, "r": 1}, frozenset(["far"]))

    touched = windows.changes([(1, cell)], Names(frozenset(), frozenset()), 0)

    assert {key: decode_sums(value or b"\x80") for key, value in touched.items()} == {
        ("1h", 0, "other"): {"R|other|yes": 2, "r": 1}
    }
