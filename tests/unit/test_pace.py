"""Recordings that are sent once more: when each record is due, and with which times."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.cli.common import UsageError
from stream_metrics.cli.replay_into_kafka import BATCH_SIZE, batches, send_recording
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.core.events.decode import instant
from stream_metrics.core.events.key import is_labels
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.sources.replay_pace import DAY_US, Pace, parse_speed
from stream_metrics.lab.traffic import TrafficProfile, generate

NOON_MS = 1_718_020_800_000
NOON_US = 1000 * NOON_MS
LATER_US = NOON_US + 30 * DAY_US


def at(*seconds: float) -> list[Record]:
    """Records with timestamps so long after noon."""
    return [Record(b"{}", b"c", NOON_MS + int(1000 * second)) for second in seconds]


def due(speed: Fraction | None, records: list[Record]) -> list[float]:
    """When each of them is due."""
    pace = Pace(speed)
    return [pace.due_seconds(record) for record in records]


@pytest.mark.parametrize(
    ("text", "speed"), [("1x", 1), ("10x", 10), ("0.5x", Fraction(1, 2)), ("max", None)]
)
def test_speeds_are_read(text: str, speed: Fraction | int | None) -> None:
    """How many times as fast as recorded."""
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "10", "0x", "-1x", "1/2x", "nanx", "infx", "fast"])
def test_what_is_no_speed_says_what_would_be(text: str) -> None:
    """The message has an example of each kind."""
    with pytest.raises(ValueError, match=r"write 1x, 10x, 0\.5x or max"):
        parse_speed(text)


def test_records_are_due_as_far_apart_as_they_were() -> None:
    """Counted from the first one."""
    assert due(Fraction(1), at(5, 5, 6.5, 65)) == [0, 0, 1.5, 60]


def test_a_speed_shortens_the_pauses() -> None:
    """All of them alike."""
    assert due(Fraction(10), at(5, 15, 65)) == [0, 1, 6]


def test_max_has_no_pauses() -> None:
    """Every record is due at once."""
    assert due(None, at(5, 15, 65)) == [0, 0, 0]


def test_a_record_from_before_is_due_at_once() -> None:
    """It came late when it was recorded, too."""
    assert due(Fraction(1), at(0, 60, 30, 70)) == [0, 60, 60, 70]


def test_a_wild_timestamp_is_not_waited_for() -> None:
    """A record that claims to be of another year holds up none behind it."""
    assert due(Fraction(1), at(0, 1, 10**7, 2)) == [0, 1, 1, 2]


def test_an_event_without_a_timestamp_is_due_by_its_own_time() -> None:
    """As in a file of events."""
    lines = [Record(json.dumps({"occurred_at": 1_718_020_800 + s}).encode()) for s in (0, 7)]

    assert due(Fraction(1), [*lines, Record(b"no event")]) == [0, 7, 7]


def moved(records: list[Record], speed: Fraction) -> list[Record]:
    """The records as they are sent if the first is sent later."""
    return [record for _, batch in batches(records, Pace(speed, LATER_US)) for record in batch]


@given(st.lists(st.integers(-(10**9), 10**9)), st.sampled_from([1, 2, 10, Fraction(1, 2)]))
def test_moved_times_keep_their_distances(offsets_us: list[int], speed: Fraction) -> None:
    """Of timestamps and of events, as the pauses do."""
    records = at(0) + [
        Record(json.dumps({"occurred_at": (NOON_US + us) / 10**6}).encode()) for us in offsets_us
    ]

    first, *rest = moved(records, Fraction(speed))

    assert first.timestamp_ms == LATER_US // 1000
    for record, us in zip(rest, offsets_us, strict=True):
        moment_us = instant(json.loads(record.value or b"")["occurred_at"])
        assert moment_us is not None
        assert abs(moment_us - (LATER_US + us / speed)) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1, 10])
def test_a_moved_recording_has_the_figures_of_the_recording(speed: int) -> None:
    """Times are other ones; what came after what is the same, and so are the rows."""
    traffic = generate(TrafficProfile(seed=9, conversations=60, turns=(1, 2)))
    records = [Record(r.value, r.key, r.timestamp_ms) for r in traffic]
    one, two = Replay(), Replay()
    for record in records:
        one.feed(record)
    for record in moved(records, Fraction(speed)):
        two.feed(record)

    assert two.rows() == one.rows()
    assert replace(two.outcome(), last_event_us=0) == replace(one.outcome(), last_event_us=0)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff",
        b"[1]",
        b'{"occurred_at": "yesterday"}',
        b'{"occurred_at": 1e300}',
        b'{"type": "search_iteration"}',
    ],
)
def test_what_has_no_time_is_sent_as_it_is(value: bytes | None) -> None:
    """A broken record is turned away once more, for the same reason."""
    [_, record] = moved([*at(0), Record(value, b"c", NOON_MS)], Fraction(1))

    assert record.value == value


def test_times_stay_unless_they_are_to_be_moved() -> None:
    """The same bytes and timestamps as recorded."""
    records = at(0, 60)

    assert [r for _, batch in batches(records, Pace(Fraction(1))) for r in batch] == records


def test_records_that_are_due_together_are_sent_together() -> None:
    """But no more at once than memory is meant for."""
    found = list(batches(at(*[0] * (BATCH_SIZE + 1), 1, 1), Pace(Fraction(1))))

    assert [(when, len(batch)) for when, batch in found] == [(0, BATCH_SIZE), (0, 1), (1, 2)]


def test_labels_are_told_from_other_events() -> None:
    """They have a topic of their own where records bear none."""
    assert is_labels(b'{"type": "relevance_labels"}')
    assert not is_labels(b'{"type": "search_iteration"}')
    assert not is_labels(b"relevance_labels")


def test_a_topic_is_not_sent_to_itself() -> None:
    """Each run would double it."""
    settings = Settings()
    source = Sources(["kafka:"], settings, "earliest", "end")

    with pytest.raises(UsageError, match="would be both read and written"):
        send_recording(source, settings, "max", shift=False)


def test_max_cannot_move_times() -> None:
    """All would be the same moment."""
    settings = Settings()
    source = Sources(["-"], settings, "earliest", "end")

    with pytest.raises(UsageError, match="--shift needs a --speed other than max"):
        send_recording(source, settings, "max", shift=True)
