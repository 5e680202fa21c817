"""The compiled way from cells to window buckets writes the bytes that the one in Python writes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_metrics.engine.codec import decode_sums, encode_sums
from stream_metrics.engine.state import Cell, DamagedState
from stream_metrics.engine.windows import (
    DEFAULT_WINDOWS,
    LEFT,
    NamedCell,
    Names,
    Touched,
    Window,
    Windows,
    added_bucket,
)
from stream_metrics.kernel import kernel
from tests.helpers import examples

pytestmark = pytest.mark.kernel

CODES = st.one_of(
    st.sampled_from(
        ["r", "u", "d", "ts|rg", "D|File|url|same_iteration", "R|\u00fc|yes", "R|", "|r"]
    ),
    st.text(max_size=300),
)
EDGES = [sign * 2**bits + step for bits in range(64) for step in (-1, 0, 1) for sign in (-1, 1)]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**40), 2**40), st.integers(-2, 2))
SUMS = st.dictionaries(CODES, NUMBERS, max_size=30)
AGENTS = st.sampled_from(["a", "b", "\u00e4gent", "other"])
TIMES_US = st.integers(-(10**6), 10**6).map(lambda n: 1_718_000_000_000_000 + n * 40_000)
CELLS = st.lists(st.tuples(st.sampled_from([1, -1]), TIMES_US, AGENTS, SUMS), max_size=12)
RECORD_TIMES_US = st.integers(0, 2).map(lambda n: 1_718_000_000_000_000 + n * 3_600_000_000)
WINDOWS = st.sampled_from(
    [
        DEFAULT_WINDOWS,
        (Window("1h", 3_600_000_000),),
        (Window("7m", 420_000_000), Window("5m", 300_000_000)),
        tuple(Window(LEFT + window.name, window.length_us) for window in DEFAULT_WINDOWS),
    ]
)


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Without the kernel's own way nothing here can be said."""
    assert hasattr(kernel, "changed_buckets"), "the kernel is not there, or older: make kernel"


def compiled_changes(
    windows: Windows, cells: list[NamedCell], record_time_us: int
) -> Touched | None:
    """What the kernel makes of them; None where it leaves them to the twin."""
    assert kernel is not None
    plan = windows._compiled_plan(record_time_us)
    return kernel.changed_buckets(cells, windows._base_us, plan)  # type: ignore[no-any-return]


def written(windows: Windows, cells: list[NamedCell], record_time_us: int) -> Touched | None:
    """The same by the twin; None where a sum does not fit into what is stored."""
    try:
        return windows.plain_changes(cells, record_time_us)
    except (OverflowError, msgspec.MsgspecError):
        return None


def test_cells_of_batches() -> None:
    """Batch upon batch, all buckets have the same bytes, in the same order; few go the slow way."""
    compared = 0

    @given(st.lists(CELLS, min_size=1, max_size=5), RECORD_TIMES_US, WINDOWS)
    @example([[(1, 0, "a", {"r": 0})], [(-1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS)
    @example([[(1, 0, "a", {"r": 1, "u": 2})], [(-1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS)
    @example([[(1, 0, "a", {"r": 1}), (-1, 0, "a", {"r": 1})] * 2], 0, DEFAULT_WINDOWS)
    @example([[(1, 0, "a", {"r": 2**63 - 1}), (1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS)
    @example([[(1, 0, "a", {"r": -(2**63)}), (-1, 0, "a", {"u": -(2**63)})]], 0, DEFAULT_WINDOWS)
    def check(
        batches: list[list[NamedCell]], record_time_us: int, specs: tuple[Window, ...]
    ) -> None:
        nonlocal compared
        windows = Windows(specs)
        for cells in batches:
            expected = written(windows, cells, record_time_us)
            found = compiled_changes(windows, cells, record_time_us)
            if found is not None:
                assert expected is not None
                assert list(found.items()) == list(expected.items())
                compared += 1
            if expected is None:
                break
            windows.install(expected)

    check()
    assert compared > examples(50)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 300, 70_000])
def test_buckets_of_any_size(count: int) -> None:
    """Maps of each form; those too that the kernel leaves to its twin."""
    windows = Windows((Window("1h", 3_600_000_000),))
    held = {f"r|{n}": n + 1 for n in range(count)}
    windows.load("1h", 0, "a", encode_sums(held))
    sums = {f"r|{n}": 1 for n in range(count - 1, -1, -max(1, count // 50))}
    cells: list[NamedCell] = [(1, 0, "a", sums)]

    found = compiled_changes(windows, cells, 0)

    assert found is None if count > 65_535 else found == windows.plain_changes(cells, 0)


def test_a_bucket_that_is_taken_back_goes() -> None:
    """Nothing is left of it."""
    windows = Windows((Window("1h", 3_600_000_000),))
    windows.load("1h", 0, "a", encode_sums({"r": 3, "u": -1}))

    assert compiled_changes(windows, [(-1, 0, "a", {"r": 3, "u": -1})], 0) == {("1h", 0, "a"): None}


@given(st.binary(max_size=30))
@example(b"")
@example(b"\x81\xa1r\xff\x01")
@example(b"\x81\xa1r\x01\x00")
@example(b"\x81\xa1r\x00")
@example(b"\x82\xa1r\x01\xa1r\x02")
def test_damaged_bytes_are_refused_when_they_are_loaded(stored: bytes) -> None:
    """By the error that says so; what can be read is held as it would be written."""
    windows = Windows((Window("1h", 3_600_000_000),))
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
    assert compiled_changes(windows, cells, 0) in (plain, None)


def test_names_are_those_of_series() -> None:
    """Agents and routes without series of their own are ``other`` on the compiled way, too."""
    windows = Windows((Window("1h", 3_600_000_000),))
    cell = Cell(0, "stranger", {"R|far|yes": 2, "r": 1}, frozenset(["far"]))

    touched = windows.changes([(1, cell)], Names(frozenset(), frozenset()), 0)

    assert {key: decode_sums(value or b"\x80") for key, value in touched.items()} == {
        ("1h", 0, "other"): {"R|other|yes": 2, "r": 1}
    }
