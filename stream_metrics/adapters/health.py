"""Whether the worker is alive, and whether it is ready: what an orchestrator's probes ask.

Alive means that a restart would not help; ready means that events are being read and written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

WATCHDOG: Final = "watchdog"
NOT_STARTED: Final[Mapping[str, str]] = {"assignment": "the worker has not joined the group yet"}


class Health:
    """Reasons against readiness, and the heartbeat of the worker's loop.

    ``bound_seconds`` is how long the loop may take to come round. ``reasons`` are those that stand
    at the start; the worker clears them. Reasons are shown to anyone who asks, so that they must
    not hold a secret or anything from an event.
    """

    def __init__(
        self,
        bound_seconds: float = 60.0,
        *,
        reasons: Mapping[str, str] = NOT_STARTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bound_seconds = bound_seconds
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
