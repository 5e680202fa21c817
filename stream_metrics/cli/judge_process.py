"""Wires a judge to Kafka from the settings, and runs it as a process."""

from __future__ import annotations

import math
from typing import Final

import structlog
import uvloop
from aiokafka.errors import KafkaError
from prometheus_client import CollectorRegistry, ProcessCollector

from stream_metrics import __version__
from stream_metrics.cli.beside_pages import run_beside_pages
from stream_metrics.cli.judging import RunningJudge, check_judge
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.options import web_options
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.errors import KafkaRefused
from stream_metrics.clients.kafka.rights import judge_rights
from stream_metrics.clients.kafka.topics import TopicsInvalid
from stream_metrics.core.alerts.obstacles import PASSING
from stream_metrics.core.judge.budget import Book
from stream_metrics.live.health import Health, ProgressMonitor, run_together
from stream_metrics.live.judge.asking import REASON
from stream_metrics.live.kafka.cluster import Cluster
from stream_metrics.live.kafka.judge import (
    KafkaEntries,
    KafkaLabels,
    judge_source,
    prepare_budget_topic,
)
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.web import Pages, make_app
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.retry import RetryPolicy, Stopped

INITIAL_REASONS: Final = {"assignment": "the judge has not joined the group yet"}
FATAL_ERRORS: Final = (TopicsInvalid, KafkaRefused)
RETRY_SECONDS: Final = 2.0

log = structlog.get_logger(__name__)


class JudgeProcess:
    """One judge and its parts."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._kafka = settings.judge_kafka
        self._metrics = JudgeMetrics(self.registry, self._kafka.state_topics)
        self.health = Health(settings.web.watchdog_seconds or math.inf, reasons=INITIAL_REASONS)
        self.pages = Pages(self.registry, self.health)
        self._retry = RetryPolicy(self.health, lambda: None)

    async def run(self) -> None:
        """Run until ``stop``; raises if the judge must not start or continue."""
        settings, kafka, judge = self.settings, self._kafka, self.settings.judge
        try:
            await self._prepare_topic()
        except Stopped:
            return
        cluster = Cluster(kafka, judge_rights(kafka, judge.budget_topic))
        labels = KafkaLabels(kafka)
        book = Book(judge.hold_ms)
        entries = KafkaEntries(kafka, judge.budget_topic, book)
        running = RunningJudge(
            settings,
            judge_source(kafka, cluster, self._retry, self.health),
            book,
            entries,
            labels,
            self._metrics,
            self._retry,
            self.health,
            Clock(),
            kafka.group_id,
        )
        log.info(
            "stream-metrics judge starts",
            version=__version__,
            model=judge.model,
            url=judge.url,
            judge=judge.judge,
            rate=judge.rate,
            topics=list(kafka.state_topics),
            labels=kafka.topics[-1],
            group=kafka.group_id,
        )
        waits = PASSING | {REASON}
        guard = ProgressMonitor(
            self.health,
            settings.web.watchdog_seconds,
            [(running.inputs, waits)],
            lambda _: self._metrics.obstructed(self.health.unready_reasons()),
        )
        try:
            await run_together([running.run()], self.stop, [guard.run()])
        finally:
            await labels.stop()
            await entries.stop()

    async def _prepare_topic(self) -> None:
        """Wait until the topic of the budget is there; raises ``FATAL_ERRORS`` and ``Stopped``."""
        topic = self.settings.judge.budget_topic
        while True:
            try:
                await prepare_budget_topic(self._kafka, topic)
            except (KafkaError, OSError, TimeoutError) as error:
                why = f"cannot find or create {topic}: {type(error).__name__}"
                self.health.set("kafka", why)
                self.health.beat()
                await self._retry.pause(RETRY_SECONDS)
            else:
                self.health.clear("kafka")
                return

    def stop(self) -> None:
        """Finish the current round and leave the group."""
        self._retry.stop()


async def _serve(settings: Settings) -> None:
    """Run a judge and its pages until a signal."""
    running = JudgeProcess(settings)
    app = make_app(running.pages)
    options = web_options(settings, settings.judge.port)
    await run_beside_pages("judge", running, app, options)


def run_judge(settings: Settings) -> int:
    """Run a judge until it is stopped, and return its exit code.

    0 after a graceful stop, 2 if settings or topics prevent it from working, 1 after a crash.
    """
    configure_logs(settings.log)
    try:
        check_judge(settings)
        if missing := settings.state.missing_key():
            raise ValueError(missing)
        uvloop.run(_serve(settings))
    except (*FATAL_ERRORS, ValueError) as error:
        log.error("the judge cannot work", reason=str(error))
        return 2
    except Exception:
        log.exception("the judge crashed")
        return 1
    return 0
