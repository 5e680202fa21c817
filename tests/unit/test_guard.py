"""Health of a process with several parts that run concurrently."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from stream_metrics.live.health import WATCHDOG, Health, ProgressMonitor, run_together
from stream_metrics.live.worker.watchdog import WorkerStatus

SECONDS = 60.0


class Part:
    """A part with unread records, which reads one per look if it makes progress."""

    def __init__(self, *, moves: bool) -> None:
        self.moves, self.offset = moves, 0

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """See ``health.MonitoredPart``."""
        self.offset += self.moves
        at = (0, "events")
        return WorkerStatus({at: self.offset}, {at: 5}, waiting=waiting)


@pytest.mark.parametrize("stuck", [0, 1])
def test_a_stuck_part_is_reported_while_another_makes_progress(stuck: int) -> None:
    """``/healthz`` and the metrics name it until it makes progress again."""
    health, told, now = Health(reasons={}), list[bool](), [0.0]
    parts = [Part(moves=number != stuck) for number in range(2)]
    waiting = frozenset[str]()
    guard = ProgressMonitor(
        health, SECONDS, [(p, waiting) for p in parts], told.append, lambda: now[0]
    )

    guard.check()
    now[0] = SECONDS + 1
    guard.check()
    assert "no progress" in health.failures()[WATCHDOG]
    parts[stuck].moves = True
    guard.check()

    assert told == [False, True, False]
    assert health.failures() == {}


def test_a_wait_that_lasts_is_logged_with_its_end() -> None:
    """A short one is not; each is said once."""
    health, now = Health(reasons={}), [0.0]
    guard = ProgressMonitor(health, SECONDS, [], lambda _: None, lambda: now[0])
    with capture_logs() as lines:
        for at, is_away in ((0, True), (1, False), (2, True), (11, True), (12, True), (30, True),
                            (95, False), (96, False)):  # fmt: skip
            now[0] = at
            if is_away:
                health.set("kafka", "no broker answers")
            else:
                health.clear("kafka")
            guard.check()

    assert [(one["event"], one["reason"], one["seconds"]) for one in lines] == [
        ("waiting", "kafka", 10),
        ("the wait is over", "kafka", 93),
    ]
    assert lines[0]["why"] == "no broker answers"


def test_a_part_that_waits_for_its_own_reason_is_not_stuck() -> None:
    """Reasons of the other part do not excuse it."""
    health, told, now = Health(reasons={"kafka": "away"}), list[bool](), [0.0]
    part = Part(moves=False)
    guard = ProgressMonitor(
        health, SECONDS, [(part, frozenset({"kafka"}))], told.append, lambda: now[0]
    )
    guard.check()
    now[0] = SECONDS + 1
    guard.check()
    assert told[-1] is False

    health.clear("kafka")
    health.set("copying_kafka", "away")
    guard.check()
    now[0] += SECONDS + 1
    guard.check()
    assert told[-1] is True


async def test_an_error_of_one_part_stops_the_others() -> None:
    """It is raised once all have ended."""
    stopped, ended = asyncio.Event(), list[str]()

    async def works() -> None:
        await stopped.wait()
        ended.append("works")

    async def fails() -> None:
        raise OSError("it cannot go on")

    with pytest.raises(OSError, match="cannot go on"):
        await run_together([works(), fails()], stopped.set)

    assert ended == ["works"]


async def test_an_error_of_a_watcher_stops_the_parts() -> None:
    """What the worker does without what it watches would be wrong, or never end."""
    stopped = asyncio.Event()

    async def works() -> None:
        await stopped.wait()

    async def watches() -> None:
        raise OSError("it cannot watch")

    with pytest.raises(OSError, match="cannot watch"):
        await run_together([works()], stopped.set, [watches()])


async def test_watchers_end_after_the_parts() -> None:
    """They are cancelled once every part has ended, which is no error."""
    stopped, ended = asyncio.Event(), list[str]()

    async def works() -> None:
        await stopped.wait()
        ended.append("works")

    async def watches() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("watches")

    async def ends() -> None:
        return

    await run_together([works(), ends()], stopped.set, [watches()])

    assert ended == ["works", "watches"]


async def test_a_part_that_is_cancelled_by_mistake_does_not_end_quietly() -> None:
    """Its cancellation is an error, after which a supervisor starts the process again."""
    stopped = asyncio.Event()

    async def works() -> None:
        await stopped.wait()

    async def is_cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="is_cancelled"):
        await run_together([works(), is_cancelled()], stopped.set)
