"""The worker's health, for an orchestrator's liveness and readiness probes.

A restart may help a worker that is not alive. A worker that is ready reads and writes events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

import structlog

from stream_metrics.live.worker.watchdog import Watchdog, WorkerStatus

log = structlog.get_logger(__name__)

WATCHDOG: Final = "watchdog"
CHECK_SECONDS: Final = 1.0
LONG_WAIT_SECONDS: Final = 10.0  # a wait of this length is logged, and its end
NOT_STARTED: Final[Mapping[str, str]] = {"assignment": "the worker has not joined the group yet"}


class Health:
    """The reasons why the worker is not ready, and the heartbeat of its loop.

    ``generation`` is the number of the worker's generation of state, 0 before it is known or
    without one; ``building`` says that it is being built, so that its figures are not shown.
    ``since`` has the Unix time in seconds at which each reason began.
    ``bound_seconds`` is the longest time that one round of the loop may take. ``reasons`` are the
    initial ones, which the worker clears. Reasons are public: they must not contain secrets or
    content of events.

    A partition that is held until somebody decides is a reason that is shown and keeps no worker
    from being ready: an orchestrator that waited for it would stop in the middle of a roll-out,
    also of the one that brings the decision.
    """

    def __init__(
        self,
        bound_seconds: float = 60.0,
        *,
        reasons: Mapping[str, str] = NOT_STARTED,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.bound_seconds = bound_seconds
        self.generation = 0
        self.building = False
        self.reasons: dict[str, str] = dict(reasons)
        self.since: dict[str, float] = dict.fromkeys(reasons, wall())
        self._held: set[str] = set()
        self._clock = clock
        self._wall = wall
        self._last_beat: float | None = None

    def set(self, reason: str, why: str) -> None:
        """Add a reason; ``why`` says what is wrong and what to do."""
        self._add(reason, why)
        self._held.discard(reason)

    def hold(self, reason: str, why: str) -> None:
        """Add a reason that leaves the worker ready: it holds something until somebody decides."""
        self._add(reason, why)
        self._held.add(reason)

    def clear(self, reason: str) -> None:
        """Remove a reason, if it is set."""
        self.reasons.pop(reason, None)
        self.since.pop(reason, None)
        self._held.discard(reason)

    def _add(self, reason: str, why: str) -> None:
        self.reasons[reason] = why
        self.since.setdefault(reason, self._wall())

    def beat(self) -> None:
        """Record a round of the worker's loop, even if it had nothing to do or had to wait."""
        self._last_beat = self._clock()

    def failures(self) -> dict[str, str]:
        """Reasons for a restart; empty while the worker is alive."""
        failures = {WATCHDOG: self.reasons[WATCHDOG]} if WATCHDOG in self.reasons else {}
        if self._last_beat is not None:
            silent = self._clock() - self._last_beat
            if silent > self.bound_seconds:
                failures["loop"] = (
                    f"the worker's loop has not completed a round for {silent:.0f} s; "
                    f"expected at most {self.bound_seconds:.0f} s"
                )
        return failures

    def unready_reasons(self) -> dict[str, str]:
        """All reasons why the worker does not read and write everything; empty while it does."""
        return self.reasons | self.failures()

    @property
    def ready(self) -> bool:
        """Whether nothing but what is held keeps the worker from reading and writing."""
        return self.unready_reasons().keys() <= self._held


class MonitoredPart(Protocol):
    """A part of the process whose progress is monitored."""

    def status(self, waiting: frozenset[str]) -> WorkerStatus:
        """Its progress; ``waiting`` names the reasons for which it has to wait."""
        ...


class ProgressMonitor:
    """Makes ``/healthz`` fail while a part of the process makes no progress.

    Each of ``parts`` comes with the reasons for which it may have to wait. Progress of the first
    one is a heartbeat. ``seconds`` is the longest time without progress; 0 disables the check.
    ``on_check`` is called after every check; its argument is whether a part is stuck.
    """

    def __init__(
        self,
        health: Health,
        seconds: float,
        parts: Sequence[tuple[MonitoredPart, frozenset[str]]],
        on_check: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health = health
        self._parts = [(Watchdog(seconds), *part) for part in parts]
        self._on_check = on_check
        self._clock = clock
        self._waits: dict[str, tuple[float, bool]] = {}  # since when, and whether it is logged

    def check(self) -> None:
        """Check every part once."""
        self._log_waits()
        health, stuck = self._health, None
        for number, (watchdog, part, reasons) in enumerate(self._parts):
            waiting = reasons & health.reasons.keys()
            why = watchdog.check(self._clock(), part.status(waiting))
            stuck = stuck or why
            if number == 0 and (watchdog.moved or waiting):
                health.beat()  # a long batch or a long wait is not a dead loop
        if stuck is not None and WATCHDOG not in health.reasons:
            log.error("watchdog: no progress", reason=stuck)
        if stuck is None and WATCHDOG in health.reasons:
            log.warning("watchdog: progress again")
        if stuck is None:
            health.clear(WATCHDOG)
        else:
            health.set(WATCHDOG, stuck)
        self._on_check(stuck is not None)

    def _log_waits(self) -> None:
        """Log what is waited for when that lasts, and its end."""
        reasons, now = self._health.reasons, self._clock()
        for reason in self._waits.keys() - reasons.keys():
            began, is_logged = self._waits.pop(reason)
            if is_logged:
                log.info("the wait is over", reason=reason, seconds=round(now - began))
        for reason, why in reasons.items():
            began, is_logged = self._waits.setdefault(reason, (now, False))
            if not is_logged and now - began >= LONG_WAIT_SECONDS and reason != WATCHDOG:
                self._waits[reason] = (began, True)
                log.warning("waiting", reason=reason, why=why, seconds=round(now - began))

    async def run(self) -> None:
        """Check every second, until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)


async def run_together(
    parts: Sequence[Coroutine[None, None, None]],
    stop: Callable[[], None],
    watchers: Sequence[Coroutine[None, None, None]] = (),
) -> None:
    """Run coroutines until one ends, then stop the others; raise the first one's error.

    ``watchers`` run beside the ``parts`` and are cancelled after them. Raises ``RuntimeError`` if
    one was cancelled although nobody cancelled all: what a library cancels by mistake must not look
    like a graceful end.
    """
    running = [asyncio.create_task(part) for part in parts]
    watching = [asyncio.create_task(watcher) for watcher in watchers]
    try:
        await asyncio.wait([*running, *watching], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
        await asyncio.gather(*running, return_exceptions=True)
        ended = [*running, *(watcher for watcher in watching if watcher.done())]
        for watcher in watching:
            watcher.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    for task in ended:
        if task.cancelled():
            raise RuntimeError(f"nobody cancelled this part, but it was: {task.get_coro()!r}")
        task.result()
