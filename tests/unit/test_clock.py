"""Two clocks, of which neither can make a conversation expire early."""

from __future__ import annotations

from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from stream_metrics.adapters.kafka.lag import Lag
from stream_metrics.adapters.prometheus.operations import Operations
from stream_metrics.ports import Position
from stream_metrics.worker.clock import Clock

TRUE_MS = 1_718_020_800_000
DAY_MS = 86_400_000
EVENTS, LABELS = TopicPartition("events", 0), TopicPartition("labels", 0)


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


def lag() -> Lag:
    """One that nobody reads."""
    return Lag(Operations(CollectorRegistry(), ("events", "labels")), lambda: TRUE_MS)


def read(events: int, labels: int) -> dict[str, Position]:
    """Positions whose last records were of an hour, and of two hours ago."""
    hour_ms = 3_600_000
    return {
        "events": Position(events, record_time_ms=TRUE_MS - hour_ms),
        "labels": Position(labels, record_time_ms=TRUE_MS - 2 * hour_ms),
    }


def test_a_topic_that_is_behind_holds_record_time_back() -> None:
    """Conversations expire by the record time of the topic that is read least far."""
    behind = lag()
    behind.heard({EVENTS: 10, LABELS: 5}, TRUE_MS)

    assert behind.read_up_to_ms(0, read(10, 4)) == read(10, 4)["labels"].record_time_ms
    assert behind.read_up_to_ms(0, read(9, 5)) == read(9, 5)["events"].record_time_ms
    assert behind.read_up_to_ms(0, read(10, 5)) == TRUE_MS


def test_an_end_heard_long_ago_says_nothing_about_now() -> None:
    """While the brokers are away, record time stands still: what they got meanwhile is unread."""
    away = lag()
    away.heard({EVENTS: 10, LABELS: 5}, TRUE_MS - 2 * DAY_MS)

    assert away.read_up_to_ms(0, read(10, 5)) == TRUE_MS - 2 * DAY_MS


def test_without_an_end_nothing_expires() -> None:
    """Until the brokers have said where a topic ends, record time is not known."""
    new = lag()
    new.heard({EVENTS: 10}, TRUE_MS)

    assert new.read_up_to_ms(0, read(10, 5)) is None
