"""Whether the worker is alive, and whether it is ready: what an orchestrator's probes ask.

Alive means that a restart would not help; ready means that events are being read and written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

import structlog

from stream_metrics.worker.watchdog import Standing, Watchdog

log = structlog.get_logger(__name__)

WATCHDOG: Final = "watchdog"
LOOK_SECONDS: Final = 1.0
NOT_STARTED: Final[Mapping[str, str]] = {"assignment": "the worker has not joined the group yet"}


class Health:
    """Reasons against readiness, and the heartbeat of the worker's loop.

    ``generation`` is the number of the generation of state that the worker works on, 0 before it is
    known and where there is none; ``building`` tells that it is being built, so that nothing of it
    is shown. ``bound_seconds`` is how long the loop may take to come round. ``reasons`` are those
    that stand at the start; the worker clears them. Reasons are shown to anyone who asks, so that
    they must not hold a secret or anything from an event.
    """

    def __init__(
        self,
        bound_seconds: float = 60.0,
        *,
        reasons: Mapping[str, str] = NOT_STARTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bound_seconds = bound_seconds
        self.generation = 0
        self.building = False
        self.reasons: dict[str, str] = dict(reasons)
        self._clock = clock
        self._last_beat: float | None = None

    def set(self, reason: str, why: str) -> None:
        """The worker is not ready: ``why`` says what is wrong and what helps."""
        self.reasons[reason] = why

    def clear(self, reason: str) -> None:
        """The reason is gone, if it was there."""
        self.reasons.pop(reason, None)

    def beat(self) -> None:
        """The worker's loop came round, also if there was nothing to do or it had to wait."""
        self._last_beat = self._clock()

    def failures(self) -> dict[str, str]:
        """Why a restart would help; empty while the worker is alive."""
        failures = {WATCHDOG: self.reasons[WATCHDOG]} if WATCHDOG in self.reasons else {}
        if self._last_beat is not None:
            silent = self._clock() - self._last_beat
            if silent > self.bound_seconds:
                failures["loop"] = (
                    f"the worker's loop has not completed a round for {silent:.0f} s; "
                    f"expected at most {self.bound_seconds:.0f} s"
                )
        return failures

    def obstacles(self) -> dict[str, str]:
        """Why the worker is not ready; empty while it is."""
        return self.reasons | self.failures()


class Part(Protocol):
    """A part of a process that works beside others."""

    def standing(self, waiting: frozenset[str]) -> Standing:
        """How far it is; ``waiting`` names what it is known to wait for."""
        ...


class Guard:
    """Says on ``/healthz`` when a part does not move, until it does.

    Each of ``parts`` comes with the reasons for which it may have to wait; that the first one moves
    is a heartbeat. ``seconds`` without progress are too many, 0: never. ``told`` hears at every
    look whether a part is stuck.
    """

    def __init__(
        self,
        health: Health,
        seconds: float,
        parts: Sequence[tuple[Part, frozenset[str]]],
        told: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._health = health
        self._parts = [(Watchdog(seconds), *part) for part in parts]
        self._told = told
        self._clock = clock

    def look(self) -> None:
        """Look at every part once."""
        health, stuck = self._health, None
        for number, (watchdog, part, reasons) in enumerate(self._parts):
            waiting = reasons & health.reasons.keys()
            why = watchdog.look(self._clock(), part.standing(waiting))
            stuck = stuck or why
            if number == 0 and (watchdog.moved or waiting):
                health.beat()  # a long batch, or a long wait, is no dead loop
        if stuck is not None and WATCHDOG not in health.reasons:
            log.error("watchdog: no progress", reason=stuck)
        if stuck is None and WATCHDOG in health.reasons:
            log.warning("watchdog: progress again")
        if stuck is None:
            health.clear(WATCHDOG)
        else:
            health.set(WATCHDOG, stuck)
        self._told(stuck is not None)

    async def run(self) -> None:
        """Look every second, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)


async def run_together(
    parts: Sequence[Coroutine[None, None, None]], stop: Callable[[], None]
) -> None:
    """Run all; what ends one of them stops the others, and its error is raised."""
    running = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
        await asyncio.gather(*running, return_exceptions=True)
    for ended in running:
        ended.result()
