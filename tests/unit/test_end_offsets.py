"""The end offsets from which versions of the output topic are made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.live.kafka.output import EndOffsets

PARTITIONS = 3
RECORDS = st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=4)


@given(st.data())
def test_versions_increase_whatever_stale_leaders_name_as_their_ends(data: st.DataObject) -> None:
    """A worker's own records count at once: brokers may name any end that a partition once had."""
    ends, known = [0] * PARTITIONS, EndOffsets()
    versions = []
    for _ in range(data.draw(st.integers(2, 6))):
        named = {number: data.draw(st.integers(0, end)) for number, end in enumerate(ends)}
        known.update(named)
        versions.append(known.total(range(PARTITIONS)))
        for number in data.draw(RECORDS):
            known.update({number: ends[number] + 1})
            ends[number] += 1

    assert versions == sorted(set(versions))
