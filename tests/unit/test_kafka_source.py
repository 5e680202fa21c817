"""Reading topics for a command: marks, and the order of records of several partitions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources, parse_marks
from stream_metrics.clients.kafka.partition_reader import PartitionId
from stream_metrics.lab.sources.kafka.merger import Merger
from stream_metrics.lab.sources.kafka.span import Mark, parse_mark

NOW_MS = 1_718_020_800_000
PLACES: list[PartitionId] = [("labels", 0), ("labels", 1), ("searches", 0)]


@dataclass(frozen=True)
class Sent:
    """A record as the client gives it, as far as the order is concerned."""

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
    """The order if fetches bring so many records of one place after the other."""
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
def test_the_order_does_not_depend_on_how_records_come_in(
    timestamps: list[list[int]], sizes: list[int]
) -> None:
    """However the brokers cut what they send, the merged records are the same list."""
    found = logs(timestamps)

    assert merged(found, sizes) == merged(found, [100])


@given(st.lists(STAMPS, min_size=3, max_size=3), st.integers(1, 5))
def test_every_record_comes_once_and_in_the_order_of_its_partition(
    timestamps: list[list[int]], size: int
) -> None:
    """Also where timestamps go back."""
    found = logs(timestamps)
    order = merged(found, [size])

    assert {place: [r for r in order if r.place == place] for place in PLACES} == found


@given(st.lists(STAMPS.map(sorted), min_size=3, max_size=3), st.integers(1, 5))
def test_where_logs_are_in_order_so_is_the_whole(timestamps: list[list[int]], size: int) -> None:
    """By time, then topic, then partition."""
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
def test_marks_are_read_as_they_are_meant(text: str, mark: Mark) -> None:
    """Digits are an offset, a duration behind a minus counts back from now."""
    assert parse_mark(text, NOW_MS) == mark


@pytest.mark.parametrize("text", ["", "-", "2h", "-2w", "yesterday", "2024-06-10", "-1", "1.5"])
def test_what_is_no_mark_says_what_would_be(text: str) -> None:
    """The message has an example of each kind."""
    with pytest.raises(ValueError, match=r"an offset, such as 1200, .* earliest or end"):
        parse_mark(text, NOW_MS)


@pytest.mark.parametrize(
    ("since", "until"),
    [("20", "10"), ("-1h", "-2h"), ("2024-06-10T12:00:00Z", "1970-01-01T00:00:00Z")],
)
def test_an_end_before_the_beginning_is_a_slip(since: str, until: str) -> None:
    """Nothing would be read, which nobody asks for."""
    with pytest.raises(UsageError, match="there is nothing between them"):
        parse_marks(since, until)


def test_marks_need_a_topic() -> None:
    """Files are read whole."""
    with pytest.raises(UsageError, match="give a source such as kafka:TOPIC"):
        Sources(["-"], Settings(), "-2h", "end")


def test_topics_are_named_in_the_report_as_they_were_asked_for() -> None:
    """Without a name they are those of the settings."""
    sources = Sources(["kafka:a,b", "kafka:"], Settings(), "earliest", "end")

    assert sources.names == ["kafka:a,b", "kafka:search-iterations,relevance-labels"]


@pytest.mark.parametrize("source", ["kafka:a,", "kafka:,", "kafka:a,,b"])
def test_a_topic_without_a_name_is_a_slip(source: str) -> None:
    """It would be taken for another one."""
    with pytest.raises(UsageError, match="write kafka:TOPIC"):
        Sources([source], Settings(), "earliest", "end")
