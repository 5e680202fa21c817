"""Producing many records without waiting for each: generated traffic, and recordings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from stream_metrics.adapters.kafka.options import client_options
from stream_metrics.adapters.kafka.produce import LARGEST_BYTES
from stream_metrics.settings.kafka import KafkaSettings


class Feed:
    """Sends records in order; what Kafka refuses ends it."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._refused: list[BaseException] = []
        self.sent = 0

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None,
        partition: int | None = None,
    ) -> None:
        """Hand over a record; without a partition its key decides. Raises aiokafka's errors, also
        those of records that were handed over before."""
        self._raise_refusal()
        answer = await self._producer.send(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms
        )
        answer.add_done_callback(self._answered)
        self.sent += 1

    async def flush(self) -> None:
        """Return when all that was handed over is stored; raises aiokafka's errors."""
        await self._producer.flush()
        self._raise_refusal()

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self._refused.append(error)

    def _raise_refusal(self) -> None:
        if self._refused:
            raise self._refused[0]


@asynccontextmanager
async def feeding(settings: KafkaSettings) -> AsyncIterator[Feed]:
    """A connected feed; at the end of the block everything is stored. Raises aiokafka's errors."""
    producer = AIOKafkaProducer(
        **client_options(settings), acks="all", linger_ms=20, max_request_size=LARGEST_BYTES
    )
    try:
        await producer.start()
        feed = Feed(producer)
        yield feed
        await feed.flush()
    finally:
        await producer.stop()
