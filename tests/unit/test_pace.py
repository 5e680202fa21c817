"""Recordings that are sent again: when each record is due, and its new times."""

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
    """Records with timestamps this long after noon."""
    return [Record(b"{}", b"c", NOON_MS + int(1000 * second)) for second in seconds]


def due(speed: Fraction | None, records: list[Record]) -> list[float]:
    """When each record is due."""
    pace = Pace(speed)
    return [pace.due_seconds(record) for record in records]


@pytest.mark.parametrize(
    ("text", "speed"), [("1x", 1), ("10x", 10), ("0.5x", Fraction(1, 2)), ("max", None)]
)
def test_a_speed_is_a_factor(text: str, speed: Fraction | int | None) -> None:
    """It says how many times faster than recorded."""
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "10", "0x", "-1x", "1/2x", "nanx", "infx", "fast"])
def test_an_invalid_speed_is_refused_with_examples(text: str) -> None:
    """The message has one of each kind."""
    with pytest.raises(ValueError, match=r"write 1x, 10x, 0\.5x or max"):
        parse_speed(text)


def test_records_keep_their_distances() -> None:
    """They are counted from the first record."""
    assert due(Fraction(1), at(5, 5, 6.5, 65)) == [0, 0, 1.5, 60]


def test_a_speed_shortens_the_pauses() -> None:
    """All are divided by it."""
    assert due(Fraction(10), at(5, 15, 65)) == [0, 1, 6]


def test_max_has_no_pauses() -> None:
    """Every record is due at once."""
    assert due(None, at(5, 15, 65)) == [0, 0, 0]


def test_a_record_older_than_the_first_is_due_at_once() -> None:
    """It was late when recorded, too."""
    assert due(Fraction(1), at(0, 60, 30, 70)) == [0, 60, 60, 70]


def test_a_wrong_timestamp_is_not_waited_for() -> None:
    """A record of another year delays none after it."""
    assert due(Fraction(1), at(0, 1, 10**7, 2)) == [0, 1, 1, 2]


def test_an_event_without_a_timestamp_is_due_by_its_own_time() -> None:
    """Records in a file of events have none."""
    lines = [Record(json.dumps({"occurred_at": 1_718_020_800 + s}).encode()) for s in (0, 7)]

    assert due(Fraction(1), [*lines, Record(b"no event")]) == [0, 7, 7]


def moved(records: list[Record], speed: Fraction) -> list[Record]:
    """The records as sent if the first one is sent later."""
    return [record for _, batch in batches(records, Pace(speed, LATER_US)) for record in batch]


@given(st.lists(st.integers(-(10**9), 10**9)), st.sampled_from([1, 2, 10, Fraction(1, 2)]))
def test_moved_times_keep_their_distances(offsets_us: list[int], speed: Fraction) -> None:
    """This holds for timestamps and for times in events, scaled like the pauses."""
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
    """Only times change, not their order, so the rows are equal."""
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
def test_a_record_without_a_time_is_sent_unchanged(value: bytes | None) -> None:
    """A broken record is rejected again for the same reason."""
    [_, record] = moved([*at(0), Record(value, b"c", NOON_MS)], Fraction(1))

    assert record.value == value


def test_times_are_unchanged_by_default() -> None:
    """Bytes and timestamps are the recorded ones."""
    records = at(0, 60)

    assert [r for _, batch in batches(records, Pace(Fraction(1))) for r in batch] == records


def test_records_that_are_due_together_are_sent_together() -> None:
    """Memory bounds their number."""
    found = list(batches(at(*[0] * (BATCH_SIZE + 1), 1, 1), Pace(Fraction(1))))

    assert [(when, len(batch)) for when, batch in found] == [(0, BATCH_SIZE), (0, 1), (1, 2)]


def test_labels_go_to_their_own_topic() -> None:
    """This applies to records without a topic."""
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
    """All times would be equal."""
    settings = Settings()
    source = Sources(["-"], settings, "earliest", "end")

    with pytest.raises(UsageError, match="--shift needs a --speed other than max"):
        send_recording(source, settings, "max", shift=True)
