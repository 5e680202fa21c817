"""Writes dead letters to ``<topic>.dlq``: the rejected record, with the reason in its headers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError

from stream_metrics.clients.kafka.errors import why_not_written
from stream_metrics.clients.kafka.options import prompt_options
from stream_metrics.clients.kafka.records import HEADER_PREFIX
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.core.events.record import DeadLetter
from stream_metrics.live.letters import letter_headers
from stream_metrics.live.ports import DeadLettersUnavailable
from stream_metrics.live.worker.clock import wall_ms

_TRUNCATED: Final = HEADER_PREFIX + "truncated"
_SHA256: Final = HEADER_PREFIX + "value_sha256"
_KEY_TRUNCATED: Final = HEADER_PREFIX + "key_truncated"
_KEY_SHA256: Final = HEADER_PREFIX + "key_sha256"

STOP_WITHIN_SECONDS: Final = 5.0
KEY_BYTES: Final = 4_096  # longer keys are truncated; a conversation id has at most 512 bytes


class KafkaDeadLetters:
    """Produces dead letters and waits until all in-sync replicas have them.

    Their timestamps come from ``now_ms``, or from their records if the brokers reject that time.
    """

    def __init__(self, settings: KafkaSettings, now_ms: Callable[[], int] = wall_ms) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect; raises aiokafka's errors."""
        producer = AIOKafkaProducer(
            **prompt_options(self._settings),
            acks="all",
            enable_idempotence=False,
            max_request_size=self._settings.dead_letter_max_bytes + 64 * 1024,
        )
        try:
            await producer.start()
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer

    async def stop(self) -> None:
        """Flush and disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(TimeoutError, KafkaError):
                await asyncio.wait_for(producer.stop(), STOP_WITHIN_SECONDS)

    async def send(self, letters: Sequence[DeadLetter]) -> None:
        """See ``ports.DeadLetters``.

        After a failure a letter may be written twice; readers identify it by the topic, partition
        and offset of its record.
        """
        try:
            if self._producer is None:
                await self.start()
            await asyncio.gather(*(self._send(letter) for letter in letters))
        except (KafkaError, OSError, TimeoutError) as error:
            topics = sorted({letter.record.topic for letter in letters})
            names = ", ".join(topic + self._settings.dead_letter_suffix for topic in topics)
            raise DeadLettersUnavailable(
                f"cannot write dead letters to {names}: {why_not_written(error)}"
            ) from error

    async def _send(self, letter: DeadLetter) -> None:
        limit, stamp_ms = self._settings.dead_letter_max_bytes, self._now_ms()
        while True:
            try:
                await self._produce(letter, limit, stamp_ms)
            except InvalidTimestampError:  # this machine's clock is wrong
                own_ms = letter.record.timestamp_ms
                if own_ms is None or own_ms in (-1, stamp_ms):
                    raise
                stamp_ms = own_ms
            except MessageSizeTooLargeError:
                if not limit:
                    raise
                limit = limit // 2 if limit >= 1_024 else 0
            else:
                return

    async def _produce(self, letter: DeadLetter, limit: int, stamp_ms: int) -> None:
        assert self._producer is not None
        record = letter.record
        value, headers = record.value, letter_headers(letter)
        if value is not None and len(value) > limit:
            headers.append((_TRUNCATED, str(len(value)).encode()))
            headers.append((_SHA256, hashlib.sha256(value).hexdigest().encode()))
            value = value[:limit]
        key = record.key
        if key is not None and len(key) > KEY_BYTES:
            headers.append((_KEY_TRUNCATED, str(len(key)).encode()))
            headers.append((_KEY_SHA256, hashlib.sha256(key).hexdigest().encode()))
            key = key[:KEY_BYTES]
        topic = record.topic + self._settings.dead_letter_suffix
        known = await self._producer.partitions_for(topic)
        await self._producer.send_and_wait(
            topic,
            value,
            key=key,
            partition=record.partition if record.partition in known else None,
            headers=headers,
            timestamp_ms=stamp_ms,
        )
