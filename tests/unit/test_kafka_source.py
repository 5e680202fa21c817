"""Reading topics for a command: bounds, and the order of records of several partitions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources, parse_marks
from stream_metrics.clients.kafka.partition_reader import PartitionId
from stream_metrics.lab.sources.kafka.mark import Mark, parse_mark
from stream_metrics.lab.sources.kafka.merger import Merger

NOW_MS = 1_718_020_800_000
PLACES: list[PartitionId] = [("labels", 0), ("labels", 1), ("searches", 0)]


@dataclass(frozen=True)
class Sent:
    """A record of the client, reduced to what the order depends on."""

    timestamp: int
    place: PartitionId
    offset: int


def logs(timestamps: list[list[int]]) -> dict[PartitionId, list[Sent]]:
    """Logs with these timestamps."""
    return {
        place: [Sent(stamp, place, offset) for offset, stamp in enumerate(stamps)]
        for place, stamps in zip(PLACES, timestamps, strict=True)
    }


def merged(found: dict[PartitionId, list[Sent]], sizes: list[int]) -> list[Sent]:
    """The order if fetches return batches of these sizes per partition."""
    merger, read, taken = Merger(found), dict.fromkeys(found, 0), []
    left = {place for place in found if found[place]}
    turn = 0
    while left:
        [*dry] = sorted(merger.starved(left))
        place = dry[turn % len(dry)]
        size = sizes[turn % len(sizes)]
        records = found[place][read[place] : read[place] + size]
        read[place] += size
        if read[place] >= len(found[place]):
            left.discard(place)
        merger.add({place: records})
        taken += merger.take(left)
        turn += 1
    return taken


STAMPS = st.lists(st.integers(-1, 6), max_size=8)


@given(st.lists(STAMPS, min_size=3, max_size=3), st.lists(st.integers(1, 5), min_size=1))
def test_the_order_does_not_depend_on_fetches(
    timestamps: list[list[int]], sizes: list[int]
) -> None:
    """However brokers divide records into responses, the merged list is the same."""
    found = logs(timestamps)

    assert merged(found, sizes) == merged(found, [100])


@given(st.lists(STAMPS, min_size=3, max_size=3), st.integers(1, 5))
def test_every_record_comes_once_in_the_order_of_its_partition(
    timestamps: list[list[int]], size: int
) -> None:
    """This holds even if timestamps decrease."""
    found = logs(timestamps)
    order = merged(found, [size])

    assert {place: [r for r in order if r.place == place] for place in PLACES} == found


@given(st.lists(STAMPS.map(sorted), min_size=3, max_size=3), st.integers(1, 5))
def test_logs_in_order_of_time_are_merged_in_order_of_time(
    timestamps: list[list[int]], size: int
) -> None:
    """Equal times are sorted by topic, then partition."""
    order = merged(logs(timestamps), [size])

    assert order == sorted(order, key=lambda r: (r.timestamp, r.place, r.offset))


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("earliest", Mark("earliest")),
        ("end", Mark("end")),
        ("0", Mark("offset", 0)),
        ("1200", Mark("offset", 1_200)),
        ("-2h", Mark("time", NOW_MS - 7_200_000)),
        ("-90s", Mark("time", NOW_MS - 90_000)),
        ("2024-06-10T12:00:00Z", Mark("time", NOW_MS)),
        ("2024-06-10T14:00:00.000001+02:00", Mark("time", NOW_MS + 1)),
        ("-90000d", Mark("time", 0)),
    ],
)
def test_bounds_may_be_offsets_times_or_durations(text: str, mark: Mark) -> None:
    """Digits are an offset; a duration after a minus counts back from now."""
    assert parse_mark(text, NOW_MS) == mark


@pytest.mark.parametrize("text", ["", "-", "2h", "-2w", "yesterday", "2024-06-10", "-1", "1.5"])
def test_an_invalid_bound_is_refused_with_examples(text: str) -> None:
    """The message has one of each kind."""
    with pytest.raises(ValueError, match=r"an offset, such as 1200, .* earliest or end"):
        parse_mark(text, NOW_MS)


@pytest.mark.parametrize(
    ("since", "until"),
    [("20", "10"), ("-1h", "-2h"), ("2024-06-10T12:00:00Z", "1970-01-01T00:00:00Z")],
)
def test_an_end_before_the_start_is_refused(since: str, until: str) -> None:
    """Nothing would be read."""
    with pytest.raises(UsageError, match="there is nothing between them"):
        parse_marks(since, until)


def test_bounds_need_a_topic() -> None:
    """Files are read completely."""
    with pytest.raises(UsageError, match="give a source such as kafka:TOPIC"):
        Sources(["-"], Settings(), "-2h", "end")


def test_the_report_names_topics_as_given() -> None:
    """Without a name they are those of the settings."""
    sources = Sources(["kafka:a,b", "kafka:"], Settings(), "earliest", "end")

    assert sources.names == ["kafka:a,b", "kafka:search-iterations,relevance-labels"]


@pytest.mark.parametrize("source", ["kafka:a,", "kafka:,", "kafka:a,,b"])
def test_an_empty_topic_name_is_refused(source: str) -> None:
    """It would mean another topic."""
    with pytest.raises(UsageError, match="write kafka:TOPIC"):
        Sources([source], Settings(), "earliest", "end")
