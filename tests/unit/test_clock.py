"""The worker's time, from two clocks of which neither can make a conversation expire early."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.live.ports import Position
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.lag import MIN_TIMESTAMPS
from stream_metrics.live.worker.ownership.assigned import AssignedPartition
from stream_metrics.live.worker.source import PartitionId

TRUE_MS = 1_718_020_800_000
DAY_MS = 86_400_000
EVENTS, LABELS = PartitionId("events", 0), PartitionId("labels", 0)


class Clocks:
    """The true time, and the offset of each of three clocks from it."""

    def __init__(self, wall_off_ms: int = 0) -> None:
        self.elapsed = 100.0  # the monotonic clock's seconds
        self.wall_off_ms = wall_off_ms
        self.store_off_ms = 0
        self.clock = Clock(lambda: self.true_ms + self.wall_off_ms, lambda: self.elapsed)

    @property
    def true_ms(self) -> int:
        """The true time."""
        return TRUE_MS + int(1000 * self.elapsed)

    def hear(self) -> None:
        """Ask the store for its time."""
        self.clock.set_store_time(self.true_ms + self.store_off_ms)


@given(
    st.lists(
        st.tuples(
            st.integers(-3 * DAY_MS, 3 * DAY_MS),
            st.integers(-3 * DAY_MS, 3 * DAY_MS),
            st.integers(0, 100),
            st.booleans(),
        )
    )
)
def test_time_is_never_ahead_if_one_clock_is_right(
    jumps: list[tuple[int, int, int, bool]],
) -> None:
    """Whatever jumps the other clock makes, the resulting time is at most the true one."""
    clocks = Clocks()
    clocks.hear()
    for wall_off_ms, store_off_ms, seconds, wall_jumps in jumps:
        clocks.wall_off_ms = wall_off_ms if wall_jumps else min(0, clocks.wall_off_ms)
        clocks.store_off_ms = store_off_ms if not wall_jumps else 0
        clocks.hear()
        clocks.elapsed += seconds
        assert clocks.clock.now_ms() <= clocks.true_ms


def test_time_advances_between_two_answers_of_the_store() -> None:
    """While both clocks are right, the result is the true time."""
    clocks = Clocks()
    clocks.hear()
    clocks.elapsed += 3_600

    assert abs(clocks.clock.now_ms() - clocks.true_ms) <= 1


def test_a_corrected_store_clock_is_used_again() -> None:
    """After the correction the result is the true time again."""
    clocks = Clocks()
    clocks.store_off_ms = -DAY_MS
    clocks.hear()
    clocks.store_off_ms = 0
    clocks.hear()

    assert abs(clocks.clock.now_ms() - clocks.true_ms) <= 1


HOUR_MS = 3_600_000


def partition() -> AssignedPartition:
    """A partition that has read nothing."""
    return AssignedPartition(0, (EVENTS.topic, LABELS.topic))


def hear(made: AssignedPartition, ends: Mapping[PartitionId, int], asked_ms: int) -> None:
    """The brokers say where logs end."""
    for place, end in ends.items():
        made.logs[place].set_end(end, asked_ms)


def at(made: AssignedPartition, events: int, labels: int) -> AssignedPartition:
    """The partition has read up to these offsets, and its newest records are recent."""
    made.set_positions(
        {
            EVENTS.topic: Position(events, record_time_ms=TRUE_MS),
            LABELS.topic: Position(labels, record_time_ms=TRUE_MS),
        }
    )
    return made


def behind() -> AssignedPartition:
    """A partition whose logs are much longer, and which has read enough records to have a record
    time."""
    made = partition()
    hear(made, {EVENTS: 9_000, LABELS: 9_000}, TRUE_MS)
    for place, hours in ((EVENTS, 60), (LABELS, 50)):
        first_ms = TRUE_MS - hours * HOUR_MS
        made.logs[place].read(range(first_ms, first_ms + MIN_TIMESTAMPS), TRUE_MS)
    return made


def test_a_topic_that_is_behind_holds_record_time_back() -> None:
    """Conversations expire by the record time of the topic that is furthest behind."""
    made = behind()

    assert at(made, 8_999, 8_999).read_up_to_ms() == TRUE_MS - 60 * HOUR_MS
    assert at(made, 9_000, 8_999).read_up_to_ms() == TRUE_MS - 50 * HOUR_MS
    assert at(made, 9_000, 9_000).read_up_to_ms() == TRUE_MS


@pytest.mark.parametrize("ahead_hours", [1, 40, 60, 240])
def test_a_wrong_timestamp_in_a_backlog_does_not_advance_record_time(ahead_hours: int) -> None:
    """The other records of the producers are older, and so may be the unread ones."""
    made = at(behind(), 1_000, 1_000)
    before = made.read_up_to_ms()
    assert before is not None
    for log in made.logs.values():
        log.read([before + ahead_hours * HOUR_MS], TRUE_MS)

    after = at(made, 1_001, 1_001).read_up_to_ms()

    assert after is not None
    assert before <= after <= before + 1


def test_a_few_timestamps_give_no_record_time() -> None:
    """All may come from one producer whose clock is ahead."""
    made = partition()
    hear(made, {EVENTS: 9_000, LABELS: 9_000}, TRUE_MS)
    for log in made.logs.values():
        log.read([TRUE_MS] * (MIN_TIMESTAMPS - 1), TRUE_MS)

    assert at(made, 999, 999).read_up_to_ms() == 0


def test_records_read_before_a_jump_back_give_no_record_time() -> None:
    """After the store went back, records that are unread again do not count."""
    made = behind()
    made.logs[EVENTS].begin()

    assert at(made, 0, 1_000).read_up_to_ms() == 0


def test_an_outdated_end_offset_stops_record_time() -> None:
    """While brokers are unreachable, they may receive records that are unread."""
    away = partition()
    hear(away, {EVENTS: 10, LABELS: 5}, TRUE_MS - 2 * DAY_MS)

    assert at(away, 10, 5).read_up_to_ms() == TRUE_MS - 2 * DAY_MS


def test_without_end_offsets_nothing_expires() -> None:
    """Record time is unknown until the brokers have reported the end of each topic."""
    new = partition()
    hear(new, {EVENTS: 10}, TRUE_MS)

    assert at(new, 10, 5).read_up_to_ms() is None


def test_the_lag_in_time_grows_while_brokers_are_unreachable() -> None:
    """It is that of the topic furthest behind, and unknown until every end was reported."""
    made = partition()
    hear(made, {EVENTS: 10, LABELS: 5}, TRUE_MS - HOUR_MS)

    assert at(made, 10, 5).behind_ms(TRUE_MS) == HOUR_MS
    assert at(made, 10, 4).behind_ms(TRUE_MS) is None
    assert at(partition(), 10, 5).behind_ms(TRUE_MS) is None
    assert at(behind(), 9_000, 8_999).behind_ms(TRUE_MS) == 50 * HOUR_MS
