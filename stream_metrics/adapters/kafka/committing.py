"""Sending commits: one at a time, and none of them holds up the reading for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

log = structlog.get_logger(__name__)

COMMIT_WITHIN_SECONDS: Final = 5.0


class Committing:
    """Commits of one member, each made up for by the next if it fails.

    ``sent`` hears how many seconds each took that was acknowledged.
    """

    def __init__(self, sent: Callable[[float], None]) -> None:
        self._sent = sent
        self._committed: dict[TopicPartition, int] = {}
        self._sending: asyncio.Task[None] | None = None

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The offsets that were acknowledged last."""
        return self._committed

    def news(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those of the offsets that have not been acknowledged."""
        return {p: offset for p, offset in offsets.items() if self._committed.get(p) != offset}

    def forget(self, place: TopicPartition) -> None:
        """Its next offset is news, whatever was acknowledged."""
        self._committed.pop(place, None)

    def forget_all(self) -> None:
        """The same for every partition."""
        self._committed.clear()

    async def send(
        self, consumer: AIOKafkaConsumer, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Send, unless the last commit is still on its way; wait a few seconds for the answer."""
        if self._sending is not None:
            return
        # Not cancelled when it takes too long: the client's request would go on all the same, and
        # nobody would take its error.
        self._sending = asyncio.create_task(self._send(consumer, dict(offsets)))
        await asyncio.wait({self._sending}, timeout=COMMIT_WITHIN_SECONDS)

    async def _send(
        self, consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        started = time.perf_counter()
        try:
            await consumer.commit(offsets)
        except (KafkaError, IllegalStateError) as error:
            log.info("offset commit failed", error=type(error).__name__)
        else:
            self._committed |= {place: sent.offset for place, sent in offsets.items()}
            self._sent(time.perf_counter() - started)
        finally:
            self._sending = None

    async def stop(self) -> None:
        """Give up a commit that is on its way: its client is stopped."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait({self._sending})
