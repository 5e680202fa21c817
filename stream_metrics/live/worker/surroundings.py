"""What the loop of a worker and its helpers share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.telemetry import LoopMetrics


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How calls are repeated, what is told of the work, and what time it is.

    ``clock`` is that of records and of the store; ``monotonic`` times what is done at intervals.
    """

    retry: RetryPolicy
    reasons: Reasons
    metrics: LoopMetrics
    clock: Clock
    monotonic: Callable[[], float] = time.monotonic
