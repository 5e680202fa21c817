"""``stream-metrics replay --into-kafka``: sends recorded records again, for workers to read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, closing
from typing import Final

from rich.console import Console

from stream_metrics.cli.common import UsageError, stderr_console
from stream_metrics.cli.kafka import kafka_errors
from stream_metrics.cli.settings import Settings
from stream_metrics.cli.sources import Sources
from stream_metrics.clients.kafka.topics import (
    TopicsMissing,
    check_input_topics,
    partition_counts,
)
from stream_metrics.core.events.key import is_labels
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.kafka.feed import Feed, open_feed
from stream_metrics.lab.sources.replay_pace import Pace, parse_speed
from stream_metrics.live.local.folder import user_of

BATCH_SIZE: Final = 500
SAY_EVERY_SECONDS: Final = 10.0


def send_recording(source: Sources, settings: Settings, speed: str | None, *, shift: bool) -> None:
    """Send all records, each when it is due; raises ``UsageError`` and ``InputError``.

    A record goes to the topic that it was recorded from if that is in ``kafka.topics``; otherwise
    labels go to the last of these and other records to the first. The key decides the partition.
    Of a log, spans that are not told yet go to ``bridge.topic``.
    """
    try:
        times = parse_speed(speed or ("max" if source.logs else "1x"))
    except ValueError as error:
        raise UsageError(f"--speed {error}") from error
    if shift and times is None:
        raise UsageError("--shift needs a --speed other than max: it moves times as pauses shrink")
    both = source.kafka_topics & set(settings.kafka.topics)
    if both:
        raise UsageError(
            f"{', '.join(sorted(both))} would be both read and written: set `kafka.topics` to "
            "other topics, or record to a file first"
        )
    pace = Pace(times, time.time_ns() // 1000 if shift else None)
    console = stderr_console()
    for log in source.logs:
        if user := user_of(log.folder):
            console.print(f"note: {log.folder} is in use by {user}: what comes later is not sent")
        if scores := log.waiting_scores():
            raise UsageError(
                f"{scores:,} scores wait until their traces are complete, and would be lost. Serve "
                f"{log.folder} without new traces for {settings.bridge.trace_max} "
                "(bridge.trace_max), and run this again"
            )
    sender = _Sender(settings, any(True for _ in _spans(source)))
    with asyncio.Runner() as runner, closing(source.records()) as records:
        try:
            with kafka_errors(settings):
                runner.run(sender.open())
            for due_seconds, batch in batches(records, pace):
                with kafka_errors(settings):
                    runner.run(sender.send(due_seconds, batch))
                sender.report(console)
            for span in _spans(source):
                with kafka_errors(settings):
                    runner.run(sender.send_span(span))
        finally:
            with kafka_errors(settings):
                runner.run(sender.close())
    for line in source.missed:
        console.print(line)
    sender.report(console, last=True)


def _spans(source: Sources) -> Iterator[Record]:
    """The spans of logs that are not told yet."""
    for log in source.logs:
        yield from log.unread_spans()


def batches(records: Iterable[Record], pace: Pace) -> Iterator[tuple[float, list[Record]]]:
    """Batches of records that are due together, with their delay after the first, in seconds."""
    due_seconds, batch = 0.0, list[Record]()
    for record in records:
        due = pace.due_seconds(record)
        if batch and (due > due_seconds or len(batch) >= BATCH_SIZE):
            yield due_seconds, batch
            batch = []
        due_seconds = due
        batch.append(pace.retimed(record))
    if batch:
        yield due_seconds, batch


class _Sender:
    """Sends records through a feed from code without an event loop, and counts them."""

    def __init__(self, settings: Settings, spans: bool) -> None:
        self._settings = settings
        self._spans = settings.bridge.topic if spans else None
        self._opened = AsyncExitStack()
        self._feed: Feed | None = None
        self._counts: dict[str, int] = {}
        self._started = self._said = time.monotonic()
        self._sent: Counter[str] = Counter()
        self._empty = 0

    async def open(self) -> None:
        """Connect; raises ``TopicsMissing``, ``KafkaRefused`` and aiokafka's errors."""
        kafka = self._settings.kafka
        self._counts = await partition_counts(kafka, kafka.topics)
        check_input_topics(kafka.topics, self._counts)
        if self._spans and self._spans not in await partition_counts(kafka, [self._spans]):
            raise TopicsMissing(
                f"there are traces that are not complete yet, and no topic {self._spans} for them. "
                "Create it with `stream-metrics topics create --traces`, or set `bridge.topic`"
            )
        self._feed = await self._opened.enter_async_context(open_feed(kafka))

    async def send(self, due_seconds: float, records: Iterable[Record]) -> None:
        """Wait until the records are due, then send them."""
        assert self._feed is not None
        if not self._sent:
            self._started = self._said = time.monotonic()
        ahead = self._started + due_seconds - time.monotonic()
        if ahead > 0:
            await asyncio.sleep(ahead)
        for record in records:
            if record.key is None and record.value is None:
                self._empty += 1  # the client cannot send it
                continue
            topic = self._topic(record)
            partition = record.partition if record.key is None and record.topic else None
            if partition is not None and partition >= self._counts[topic]:
                partition = None
            stamp = record.timestamp_ms
            known = stamp if stamp is not None and stamp >= 0 else None
            await self._feed.send(topic, record.value, record.key, known, partition)
            self._sent[topic] += 1

    async def send_span(self, record: Record) -> None:
        """Send a record of spans, keyed by its trace."""
        assert self._feed is not None
        assert self._spans is not None
        await self._feed.send(self._spans, record.value, record.key, record.timestamp_ms)
        self._sent[self._spans] += 1

    async def close(self) -> None:
        """Wait until all records are stored; raises aiokafka's errors."""
        await self._opened.aclose()

    def _topic(self, record: Record) -> str:
        topics = self._settings.kafka.topics
        if record.topic in topics:
            return record.topic
        return topics[-1] if is_labels(record.value) else topics[0]

    def report(self, console: Console, *, last: bool = False) -> None:
        """Print the number of records sent, at intervals; ``last`` prints the summary."""
        total = self._sent.total()
        if last:
            for topic, count in sorted(self._sent.items()):
                console.print(f"{topic}: {count:,} records sent")
            if self._empty:
                console.print(f"{self._empty:,} records without key and value were skipped")
            console.print(f"{total:,} records sent in {time.monotonic() - self._started:,.0f} s")
        elif time.monotonic() - self._said > SAY_EVERY_SECONDS:
            self._said = time.monotonic()
            console.print(f"{total:,} records sent")
