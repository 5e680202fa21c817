"""A replay that is killed anywhere and restarted gives the bytes of an uninterrupted one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.report_files import merge
from stream_metrics.lab.replay.run import Execution, run
from tests.helpers import examples
from tests.killed import Work, killed_at, moments_of
from tests.property.test_replay import inputs
from tests.replays import (
    AT_ONCE,
    IN_PARTS,
    SPOOLED,
    RecordedProgress,
    files_of,
    published,
    replayed,
    replayed_in_shares,
    task,
)
from tests.strategies import KeyedRecord

STRATIFY = ("agent", "release", "route")
MOMENTS = st.integers(0, 1_000_000)


def replaying(records: Sequence[Record], out: Path, scale: Execution, turn_scope: str) -> Work:
    """A replay into ``out``; it can be killed at each record that it reads."""

    def work(moment: Callable[[], None]) -> None:
        def read() -> Iterator[Record]:
            for record in records:
                moment()
                yield record

        run(task(read(), out, scale, turn_scope=turn_scope, stratify=STRATIFY), RecordedProgress())
        published(out)

    return work


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(
    inputs(),
    st.sampled_from(["last", "all"]),
    st.lists(st.tuples(st.sampled_from([AT_ONCE, SPOOLED, IN_PARTS]), MOMENTS), max_size=3),
    st.sampled_from([AT_ONCE, SPOOLED, IN_PARTS]),
)
def test_kills_have_no_effect_on_the_files(
    arrived: list[KeyedRecord], scope: str, kills: list[tuple[Execution, int]], scale: Execution
) -> None:
    """Repeated kills while it reads, computes, merges or cleans up leave the files the same."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        out, alone = Path(folder, "out"), Path(folder, "alone")
        for number, (killed, at) in enumerate(kills):
            measured = Path(folder, f"measured {number}")
            total = moments_of(replaying(records, measured, killed, scope), measured)
            killed_at(at % total, replaying(records, out, killed, scope), out)

        run(task(records, out, scale, turn_scope=scope, stratify=STRATIFY), RecordedProgress())
        found = published(out)

        replayed(records, alone, AT_ONCE, turn_scope=scope, stratify=STRATIFY)
        assert found == published(alone)
        assert {path.name for path in out.iterdir()} == found.keys()


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(inputs(), st.integers(1, 3), st.lists(MOMENTS, max_size=3))
def test_kills_of_a_merge_have_no_effect_on_the_files(
    arrived: list[KeyedRecord], shares: int, kills: list[int]
) -> None:
    """Directories that are merged, killed and merged again equal those that were merged once."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        directories = replayed_in_shares(records, Path(folder), shares)
        together, once = Path(folder, "together"), Path(folder, "once")
        for out in (together, once):
            out.mkdir()
        total = moments_of(lambda _: merge(directories, once, STRATIFY), once)
        for at in kills:
            killed_at(at % total, lambda _: merge(directories, together, STRATIFY), together)

        merge(directories, together, STRATIFY)

        assert {path.name: path.read_bytes() for path in together.iterdir()} == files_of(once)
