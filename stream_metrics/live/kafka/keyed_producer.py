"""A producer that partitions keys as Kafka's Java client does, and confirms every record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from stream_metrics.clients.kafka.aiokafka_private import abandon
from stream_metrics.clients.kafka.options import prompt_options
from stream_metrics.clients.kafka.producer import MAX_REQUEST_BYTES
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import Headers
from stream_metrics.live.kafka.partitioners import PARTITIONERS

DONE_WITHIN_SECONDS: Final = 10.0  # after which the worker reports what it waits for, and retries
STOP_WITHIN_SECONDS: Final = 2.0
BATCH_BYTES: Final = 256 * 1024
LINGER_MS: Final = 5


class KeyedRecord(NamedTuple):
    """A record to produce; without a timestamp it gets the current time."""

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int | None = None
    headers: Headers = ()


class KeyedProducer:
    """Sends records and waits until all in-sync replicas have them.

    The producer is idempotent, so the records of a key keep their order. After an error it is
    discarded, and the caller sends all records of the call again.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None

    async def send(self, records: Sequence[KeyedRecord]) -> list[KeyedRecord]:
        """Send records; returns those that are too large for their topics. All others are stored.

        Raises aiokafka's errors, ``OSError`` and ``TimeoutError``; some records may be stored then.
        """
        too_large: list[KeyedRecord] = []
        waiting = [list(records)]
        while waiting:
            some = waiting.pop()
            left = await self._not_stored(some)
            if left and len(some) == 1:
                too_large += left
            elif left:
                middle = len(left) // 2
                waiting += [left[middle:], left[:middle]]
        return too_large

    async def _not_stored(self, records: list[KeyedRecord]) -> list[KeyedRecord]:
        """Send records; returns those that are not stored because a batch was too large.

        The broker rejects the whole batch, and the producer cannot send others after it.
        """
        if not records:
            return []
        try:
            async with asyncio.timeout(DONE_WITHIN_SECONDS):
                answers = await self._send(await self._started(), records)
            failed = {
                at: answer for at, answer in enumerate(answers) if isinstance(answer, BaseException)
            }
            if failed and MessageSizeTooLargeError not in map(type, failed.values()):
                raise next(iter(failed.values()))
        except (KafkaError, OSError, TimeoutError):
            await self.stop()
            raise
        if failed:
            await self.stop()
        return [records[at] for at in failed]

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            self._producer = AIOKafkaProducer(
                **prompt_options(self._settings),
                acks="all",
                enable_idempotence=True,
                linger_ms=LINGER_MS,
                compression_type="lz4",
                max_batch_size=BATCH_BYTES,
                max_request_size=MAX_REQUEST_BYTES,
            )
            await self._producer.start()
        return self._producer

    async def _send(
        self, producer: AIOKafkaProducer, records: Sequence[KeyedRecord]
    ) -> list[object]:
        counts = {
            topic: len(await producer.partitions_for(topic))
            for topic in {record.topic for record in records}
        }
        sent: list[asyncio.Future[object]] = []
        failed: list[KafkaError] = []
        for topic, key, value, stamp, headers in records:
            partition = PARTITIONERS["murmur2"](key, counts[topic])
            stamp_ms = None if stamp is None or stamp < 0 else stamp
            try:
                sent.append(
                    await producer.send(topic, value, key, partition, stamp_ms, list(headers))
                )
            except KafkaError as error:  # an earlier batch has failed the producer
                failed = [error] * (len(records) - len(sent))
                break
        return [*await asyncio.gather(*sent, return_exceptions=True), *failed]

    async def stop(self) -> None:
        """Disconnect; records that are not sent yet are dropped."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer, STOP_WITHIN_SECONDS)
