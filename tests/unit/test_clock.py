"""Two clocks, of which neither can make a conversation expire early."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.live.ports import Position
from stream_metrics.live.worker.assigned import AssignedPartition
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.lag import ENOUGH_STAMPS
from stream_metrics.live.worker.source import Place

TRUE_MS = 1_718_020_800_000
DAY_MS = 86_400_000
EVENTS, LABELS = Place("events", 0), Place("labels", 0)


class Clocks:
    """The true time, and how far each of three clocks is off."""

    def __init__(self, wall_off_ms: int = 0) -> None:
        self.elapsed = 100.0  # the monotonic clock's seconds
        self.wall_off_ms = wall_off_ms
        self.store_off_ms = 0
        self.clock = Clock(lambda: self.true_ms + self.wall_off_ms, lambda: self.elapsed)

    @property
    def true_ms(self) -> int:
        """What time it is."""
        return TRUE_MS + int(1000 * self.elapsed)

    def hear(self) -> None:
        """Ask the store."""
        self.clock.heard(self.true_ms + self.store_off_ms)


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
def test_time_is_not_ahead_while_one_clock_is_right(
    jumps: list[tuple[int, int, int, bool]],
) -> None:
    """Whatever jumps one of the two clocks makes, the time that counts is at most the true one."""
    clocks = Clocks()
    clocks.hear()
    for wall_off_ms, store_off_ms, seconds, wall_jumps in jumps:
        clocks.wall_off_ms = wall_off_ms if wall_jumps else min(0, clocks.wall_off_ms)
        clocks.store_off_ms = store_off_ms if not wall_jumps else 0
        clocks.hear()
        clocks.elapsed += seconds
        assert clocks.clock.now_ms() <= clocks.true_ms


def test_time_goes_on_between_two_answers_of_the_store() -> None:
    """While both clocks are right, the time is the true one."""
    clocks = Clocks()
    clocks.hear()
    clocks.elapsed += 3_600

    assert abs(clocks.clock.now_ms() - clocks.true_ms) <= 1


def test_a_store_that_has_caught_up_is_believed() -> None:
    """After the store's clock was set right the time is the true one again."""
    clocks = Clocks()
    clocks.store_off_ms = -DAY_MS
    clocks.hear()
    clocks.store_off_ms = 0
    clocks.hear()

    assert abs(clocks.clock.now_ms() - clocks.true_ms) <= 1


HOUR_MS = 3_600_000


def partition() -> AssignedPartition:
    """One of which nothing was read."""
    return AssignedPartition(0, (EVENTS.topic, LABELS.topic))


def hear(made: AssignedPartition, ends: Mapping[Place, int], asked_ms: int) -> None:
    """The brokers say where logs end."""
    for place, end in ends.items():
        made.logs[place].heard(end, asked_ms)


def at(made: AssignedPartition, events: int, labels: int) -> AssignedPartition:
    """It stands at these offsets, and its newest records are of this very moment."""
    made.stand_at(
        {
            EVENTS.topic: Position(events, record_time_ms=TRUE_MS),
            LABELS.topic: Position(labels, record_time_ms=TRUE_MS),
        }
    )
    return made


def behind() -> AssignedPartition:
    """One whose logs go on for long, and of which enough was read for times to be told."""
    made = partition()
    hear(made, {EVENTS: 9_000, LABELS: 9_000}, TRUE_MS)
    for place, hours in ((EVENTS, 60), (LABELS, 50)):
        first_ms = TRUE_MS - hours * HOUR_MS
        made.logs[place].read(range(first_ms, first_ms + ENOUGH_STAMPS), TRUE_MS)
    return made


def test_a_topic_that_is_behind_holds_record_time_back() -> None:
    """Conversations expire by the record time of the topic that is read least far."""
    made = behind()

    assert at(made, 8_999, 8_999).read_up_to_ms() == TRUE_MS - 60 * HOUR_MS
    assert at(made, 9_000, 8_999).read_up_to_ms() == TRUE_MS - 50 * HOUR_MS
    assert at(made, 9_000, 9_000).read_up_to_ms() == TRUE_MS


@pytest.mark.parametrize("ahead_hours", [1, 40, 60, 240])
def test_a_wild_timestamp_in_a_backlog_moves_record_time_no_further(ahead_hours: int) -> None:
    """The producers' other records are older, and so may be those that are yet to be read."""
    made = at(behind(), 1_000, 1_000)
    before = made.read_up_to_ms()
    assert before is not None
    for log in made.logs.values():
        log.read([before + ahead_hours * HOUR_MS], TRUE_MS)

    after = at(made, 1_001, 1_001).read_up_to_ms()

    assert after is not None
    assert before <= after <= before + 1


def test_a_few_timestamps_tell_no_time() -> None:
    """They may all be of one producer whose clock is ahead."""
    made = partition()
    hear(made, {EVENTS: 9_000, LABELS: 9_000}, TRUE_MS)
    for log in made.logs.values():
        log.read([TRUE_MS] * (ENOUGH_STAMPS - 1), TRUE_MS)

    assert at(made, 999, 999).read_up_to_ms() == 0


def test_what_was_read_before_a_jump_back_tells_no_time() -> None:
    """After the store went back, times of records that are unread again do not count."""
    made = behind()
    made.logs[EVENTS].begin()

    assert at(made, 0, 1_000).read_up_to_ms() == 0


def test_an_end_heard_long_ago_says_nothing_about_now() -> None:
    """While the brokers are away, record time stands still: what they got meanwhile is unread."""
    away = partition()
    hear(away, {EVENTS: 10, LABELS: 5}, TRUE_MS - 2 * DAY_MS)

    assert at(away, 10, 5).read_up_to_ms() == TRUE_MS - 2 * DAY_MS


def test_without_an_end_nothing_expires() -> None:
    """Until the brokers have said where a topic ends, record time is not known."""
    new = partition()
    hear(new, {EVENTS: 10}, TRUE_MS)

    assert at(new, 10, 5).read_up_to_ms() is None


def test_how_far_a_worker_is_behind_grows_while_the_brokers_are_away() -> None:
    """It is told by the topic that is read least far, and not before every end was heard."""
    made = partition()
    hear(made, {EVENTS: 10, LABELS: 5}, TRUE_MS - HOUR_MS)

    assert at(made, 10, 5).behind_ms(TRUE_MS) == HOUR_MS
    assert at(made, 10, 4).behind_ms(TRUE_MS) is None
    assert at(partition(), 10, 5).behind_ms(TRUE_MS) is None
    assert at(behind(), 9_000, 8_999).behind_ms(TRUE_MS) == 50 * HOUR_MS
