"""Changes to window buckets by cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from hypothesis import strategies as st

from stream_metrics.core.engine.window import DEFAULT_WINDOWS, Window
from stream_metrics.core.engine.windows import EXPIRED, BucketChanges, NamedCell, Windows
from tests.helpers import examples
from tests.twins import Claim, Pair, Twin, kernel

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
HOUR = (Window("1h", 3_600_000_000),)
WINDOWS = st.sampled_from(
    [
        DEFAULT_WINDOWS,
        HOUR,
        (Window("7m", 420_000_000), Window("5m", 300_000_000)),
        tuple(Window(EXPIRED + window.name, window.length_us) for window in DEFAULT_WINDOWS),
    ]
)


def by_kernel(
    windows: Windows, cells: list[NamedCell], record_time_us: int
) -> BucketChanges | None:
    """The changed buckets by the kernel."""
    plan = windows.kernel_plan(record_time_us)
    found: BucketChanges | None = kernel.changed_buckets(cells, windows.base_us, plan)
    return found


def by_python(
    windows: Windows, cells: list[NamedCell], record_time_us: int
) -> BucketChanges | None:
    """The changed buckets by Python; None if a sum is too large to be stored."""
    try:
        return windows.plain_changes(cells, record_time_us)
    except (OverflowError, msgspec.MsgspecError):
        return None


def run(
    batches: Sequence[list[NamedCell]], record_time_us: int, specs: tuple[Window, ...]
) -> Iterator[Pair]:
    """The buckets that successive batches change, in their order."""
    windows = Windows(specs)
    for cells in batches:
        expected = by_python(windows, cells, record_time_us)
        found = by_kernel(windows, cells, record_time_us)
        yield (
            None if found is None else list(found.items()),
            None if expected is None else list(expected.items()),
        )
        if expected is None:
            break
        windows.install(expected)


def many(count: int) -> tuple[list[list[NamedCell]], int, tuple[Window, ...]]:
    """A bucket with a number of sums, and cells that change some of them."""
    held = {f"r|{n}": n + 1 for n in range(count)}
    sums = {f"r|{n}": 1 for n in range(count - 1, -1, -max(1, count // 50))}
    return [[(1, 0, "a", held)], [(1, 0, "a", sums)]], 0, HOUR


CHANGED_BUCKETS = Twin("changed_buckets", run)
CLAIMS = [
    Claim(
        CHANGED_BUCKETS,
        "batch upon batch, all buckets have the same bytes in the same order",
        st.tuples(st.lists(CELLS, min_size=1, max_size=5), RECORD_TIMES_US, WINDOWS),
        [
            ([[(1, 0, "a", {"r": 0})], [(-1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS),
            ([[(1, 0, "a", {"r": 1, "u": 2})], [(-1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS),
            ([[(1, 0, "a", {"r": 1}), (-1, 0, "a", {"r": 1})] * 2], 0, DEFAULT_WINDOWS),
            ([[(1, 0, "a", {"r": 2**63 - 1}), (1, 0, "a", {"r": 1})]], 0, DEFAULT_WINDOWS),
            ([[(1, 0, "a", {"r": -(2**63)}), (-1, 0, "a", {"u": -(2**63)})]], 0, DEFAULT_WINDOWS),
        ],
        at_least=examples(50),
    ),
    Claim(
        CHANGED_BUCKETS,
        "maps of each form are handled",
        listed=[many(count) for count in (1, 15, 16, 17, 300)],
        handled=True,
    ),
    Claim(
        CHANGED_BUCKETS,
        "those too large for it are left to Python",
        listed=[many(70_000)],
        handled=False,
    ),
]
