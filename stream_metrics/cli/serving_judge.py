"""A judge in the process of ``stream-metrics serve``, over its file."""

from __future__ import annotations

import structlog
from prometheus_client import CollectorRegistry

from stream_metrics.cli.judging import RunningJudge
from stream_metrics.cli.settings import Settings
from stream_metrics.core.judge.budget import Book
from stream_metrics.live.judge.asking import REASON
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.judge import READER, LocalEntries, LocalLabels
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.tables import EVENTS
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.retry import RetryPolicy

log = structlog.get_logger(__name__)


class LocalJudge:
    """Reads events from the log, and writes labels to it.

    What it waits for does not make the process unready, which goes on receiving events: its own
    metrics and the log tell it.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        records: Log,
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        self._settings = settings.judge
        self._metrics = JudgeMetrics(registry, [EVENTS])
        self._reasons: dict[str, str] = {}
        self._retry = RetryPolicy(self, lambda: None)
        self._metrics.obstructed(self._reasons)
        book = Book(settings.judge.hold_ms)
        self._judge = RunningJudge(
            settings,
            LocalSource(records, READER, [EVENTS], self._retry),
            book,
            LocalEntries(database, book),
            LocalLabels(records, clock.now_ms),
            self._metrics,
            self._retry,
            self,
            clock,
            READER,
        )

    @property
    def incomplete_until_ms(self) -> int | None:
        """When the latest day has ended whose sample ended early; None if none is known."""
        return self._judge.ledger.state().incomplete_until_ms

    @property
    def due_turns(self) -> int:
        """The turns that are due and have no outcome yet."""
        return self._judge.due_turns

    @property
    def gets_no_grades(self) -> bool:
        """Whether the model's endpoint gives none."""
        return REASON in self._reasons

    async def run(self) -> None:
        """Judge until ``stop``."""
        log.info(
            "a judge grades turns",
            model=self._settings.model,
            endpoint=self._judge.address,
            rate=self._settings.rate,
            calls_per_minute=self._settings.calls_per_minute,
        )
        await self._judge.run()

    def stop(self) -> None:
        """Finish the round that is under way."""
        self._retry.stop()

    # -- worker.retry.Reasons

    def set(self, reason: str, why: str) -> None:
        """See ``Reasons``."""
        if reason not in self._reasons and reason != REASON:  # the judge logs that one
            log.warning("the judge waits", reason=reason, why=why)
        self._reasons[reason] = why
        self._metrics.obstructed(self._reasons)

    def hold(self, reason: str, why: str) -> None:
        """See ``Reasons``."""
        self.set(reason, why)

    def clear(self, reason: str) -> None:
        """See ``Reasons``."""
        if self._reasons.pop(reason, None) is not None:
            self._metrics.obstructed(self._reasons)

    def beat(self) -> None:
        """Ignored: progress of the judge does not show that the loop is alive."""
