"""The watchdog fires if and only if the worker is stuck; time in these tests is scripted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stream_metrics.live.worker.watchdog import ROUNDS, Watchdog, WorkerStatus

A, B = (0, "events"), (1, "events")
SECONDS = 60


def first_alarm(story: Callable[[int], WorkerStatus], until: int = 600) -> int | None:
    """The second at which the watchdog fires, checked once a second."""
    dog = Watchdog(SECONDS)
    for now in range(until):
        if dog.check(now, story(now)):
            return now
    return None


def stuck(now: int) -> WorkerStatus:
    """Unread records remain and the loop runs, but no offset advances."""
    return WorkerStatus({A: 7}, {A: 100}, rounds=10 * now)


STUCK: dict[str, Callable[[int], WorkerStatus]] = {
    "nothing is fetched": stuck,
    "the loop is blocked": lambda now: WorkerStatus({A: 7}, {A: 100}, rounds=3),
    "a take-over never ends": lambda now: WorkerStatus(taking_over=True),
    "a take-over without lag never ends": lambda now: WorkerStatus(
        {A: 7}, {A: 0}, taking_over=True
    ),
}


@pytest.mark.parametrize("why", STUCK)
def test_the_watchdog_fires_within_a_minute(why: str) -> None:
    """This holds for every way of being stuck."""
    assert first_alarm(STUCK[why]) == SECONDS


FINE: dict[str, Callable[[int], WorkerStatus]] = {
    "nothing to do": lambda now: WorkerStatus({A: 7}, {A: 0}, rounds=now),
    "nothing assigned": lambda now: WorkerStatus(rounds=now),
    "all are held by policy": lambda now: WorkerStatus({}, {}, rounds=now),
    "a slow batch moves": lambda now: WorkerStatus({A: now // 50}, {A: 10**6}, rounds=0),
    "lag comes and goes": lambda now: WorkerStatus({A: 7}, {A: now % 50}, rounds=now),
    "markers are passed": lambda now: WorkerStatus(
        {A: now // 5}, {A: int(now % 5 > 0)}, rounds=now
    ),
    "a wipe takes steps": lambda now: WorkerStatus(taking_over=True, steps=now // 10),
    "one by one is taken over": lambda now: WorkerStatus(
        {A: 7}, {A: 5}, taking_over=True, steps=now // 50
    ),
    "the group takes its time": lambda now: WorkerStatus({A: 7}, {A: 9}, rebalancing=True),
    **{
        f"waiting for {what}": lambda now, what=what: WorkerStatus(  # type: ignore[misc]
            {A: 7}, {A: 9}, waiting=frozenset([what])
        )
        for what in ("redis", "kafka", "dead_letters", "topics")
    },
    "one waits for its turn": lambda now: WorkerStatus(
        {A: now, B: 7}, {A: 9, B: 9}, rounds=now * (ROUNDS - 1) // 600
    ),
}


@pytest.mark.parametrize("why", FINE)
def test_the_watchdog_does_not_fire_in_normal_operation(why: str) -> None:
    """Ten minutes of each scenario give no alarm."""
    assert first_alarm(FINE[why]) is None


def test_a_wait_resets_the_time_limit() -> None:
    """The limit is a whole minute again after the wait."""

    def story(now: int) -> WorkerStatus:
        waiting = frozenset(["redis"]) if now < 100 else frozenset[str]()
        return WorkerStatus({A: 7}, {A: 9}, waiting=waiting)

    assert first_alarm(story) == 99 + SECONDS


def test_the_time_limit_starts_with_new_records() -> None:
    """After a long idle time the limit is still a whole minute."""

    def story(now: int) -> WorkerStatus:
        return WorkerStatus({A: 7}, {A: int(now >= 300)}, rounds=now)

    assert first_alarm(story) == 299 + SECONDS


def test_one_partition_may_be_stuck_alone() -> None:
    """It gets no records in many rounds of the loop while others advance."""

    def story(now: int) -> WorkerStatus:
        return WorkerStatus({A: now, B: 7}, {A: 9, B: 9}, rounds=now)

    assert first_alarm(story) == SECONDS


def test_the_alarm_names_what_is_stuck() -> None:
    """The reason of the probe has the partition and the duration."""
    dog = Watchdog(SECONDS)
    said = [dog.check(now, WorkerStatus({A: now, B: 7}, {B: 9}, rounds=now)) for now in (0, 60)]

    assert said == [
        None,
        "nothing read from partition 1 of events for 60 s, although it has more records",
    ]


def test_progress_ends_the_alarm() -> None:
    """The reason is cleared."""
    dog = Watchdog(SECONDS)
    said = [dog.check(now, stuck(now)) for now in (0, 60, 61)]
    said.append(dog.check(62, WorkerStatus({A: 8}, {A: 99}, rounds=620)))

    assert [bool(reason) for reason in said] == [False, True, True, False]


def test_zero_seconds_disable_the_watchdog() -> None:
    """No duration raises an alarm then."""
    dog = Watchdog(0)

    assert [dog.check(now, stuck(now)) for now in (0, 10_000)] == [None, None]
