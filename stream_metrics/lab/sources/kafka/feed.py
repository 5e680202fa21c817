"""Produces many records without waiting for each: generated traffic and recordings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_metrics.clients.kafka.options import client_options
from stream_metrics.clients.kafka.producer import MAX_REQUEST_BYTES
from stream_metrics.clients.kafka.settings import KafkaSettings


class Feed:
    """Sends records in order; the first error ends it."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._errors: list[BaseException] = []
        self.sent = 0

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None,
        partition: int | None = None,
    ) -> None:
        """Queue a record; without ``partition``, its key decides.

        Raises aiokafka's errors, including those of records queued earlier.
        """
        self._raise_error()
        answer = await self._producer.send(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms
        )
        answer.add_done_callback(self._on_answer)
        self.sent += 1

    async def flush(self) -> None:
        """Wait until all queued records are stored; raises aiokafka's errors."""
        await self._producer.flush()
        self._raise_error()

    def _on_answer(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self._errors.append(error)

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors[0]


@asynccontextmanager
async def open_feed(settings: KafkaSettings) -> AsyncIterator[Feed]:
    """A connected feed, flushed at the end of the block. Raises aiokafka's errors."""
    producer = AIOKafkaProducer(
        **client_options(settings), acks="all", linger_ms=20, max_request_size=MAX_REQUEST_BYTES
    )
    try:
        await producer.start()
        feed = Feed(producer)
        yield feed
        await feed.flush()
    finally:
        await producer.stop()
