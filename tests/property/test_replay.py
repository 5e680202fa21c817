"""However a replay is cut up, it gives the same bytes, and those of the reference."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stream_metrics.adapters.replay.parts import merge
from stream_metrics.ports import Record
from tests import oracle
from tests.replays import AT_ONCE, IN_PARTS, SPOOLED, files_of, replayed
from tests.strategies import KeyedRecord, arrivals, streams

BROKEN = [(b"c1", b"{", None), (b"c1", b'{"type": "unheard of"}', 7), (b"", b"\xff", None)]


@st.composite
def inputs(draw: st.DrawFn) -> list[KeyedRecord]:
    """The records of some streams, in an order of arrival, with some that are broken."""
    stream = draw(streams())
    arrived = [record for batch in draw(arrivals(stream)) for record in batch]
    for broken in draw(st.lists(st.sampled_from(BROKEN), max_size=3)):
        arrived.insert(draw(st.integers(0, len(arrived))), broken)
    return arrived


@settings(max_examples=40)
@given(inputs(), st.sampled_from(["last", "all"]))
def test_the_way_of_a_replay_does_not_show(arrived: list[KeyedRecord], scope: str) -> None:
    """At once, from 64 shards, and from parts of these, all files are the same."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        at_once, spooled, in_parts = (
            replayed(records, Path(folder, str(n)), scale, turn_scope=scope)
            for n, scale in enumerate((AT_ONCE, SPOOLED, IN_PARTS))
        )

    assert spooled == at_once
    assert in_parts == at_once


@settings(max_examples=40)
@given(inputs(), st.sampled_from(["last", "all"]))
def test_a_replay_gives_the_figures_of_the_reference(
    arrived: list[KeyedRecord], scope: str
) -> None:
    """Rows, windows, counts and bad records are those of the brute-force reference."""
    given_records = [oracle.Record(value, key, at) for key, value, at in arrived]
    expected = oracle.evaluate(given_records, turn_scope=scope)
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]

    with tempfile.TemporaryDirectory() as folder:
        found = replayed(records, Path(folder), SPOOLED, turn_scope=scope)

    report = json.loads(found["report.json"])
    assert found["conversations.jsonl"].decode() == "".join(row + "\n" for row in expected.rows)
    assert found["windows.json"].decode() == expected.windows()
    assert report["counts"] == expected.counts
    bad = [(one["record"] - 1, one["reason"]) for one in report["bad_records"]["first"]]
    assert bad == expected.invalid


@settings(max_examples=40)
@given(inputs(), st.integers(1, 4), st.data())
def test_members_of_a_group_make_the_whole(
    arrived: list[KeyedRecord], members: int, data: st.DataObject
) -> None:
    """The shares of any number of members, merged in any order, are the replay of all."""
    records = [Record(value, key, timestamp_ms) for key, value, timestamp_ms in arrived]
    with tempfile.TemporaryDirectory() as folder:
        whole = replayed(records, Path(folder, "whole"), AT_ONCE)
        directories = [Path(folder, str(index)) for index in range(1, members + 1)]
        for index, directory in enumerate(directories, 1):
            replayed(records, directory, AT_ONCE, member=(index, members))
        together = Path(folder, "together")
        together.mkdir()
        merge(data.draw(st.permutations(directories)), together)

        assert files_of(together) == whole
