"""A producer that keeps sending during faults, with a limited rate and share."""

from __future__ import annotations

import asyncio
import hashlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate
from tests.labels_of_models import with_models

TICK_SECONDS: Final = 0.02
FEW: Final = 5
LAST_SHARE: Final = 0.93  # the trickle leaves records for after the fault
SPAN_SECONDS: Final = 7_200  # a multiple of every bucket's width


def traffic(seed: int, events: int, conversations: int) -> list[TrafficRecord]:
    """At least this many records and conversations of support agents.

    They have realistic disorder, and timestamps in the past hours.
    """
    while True:
        profile = TrafficProfile(
            seed=seed,
            conversations=conversations,
            start=(int(time.time()) // SPAN_SECONDS - 1) * SPAN_SECONDS,
            duration_seconds=1_200,
            turns=(1, 2),
            iterations=(1, 2),
            results_per_search=4,
            documents=400,
            out_of_order=0.02,
            redelivered=0.01,
            invalid=0.005,
        )
        records = list(with_models(generate(profile)))
        if len(records) >= events:
            return records
        conversations = math.ceil(1.01 * conversations * events / len(records))


def read_traffic(file: Path) -> list[TrafficRecord]:
    """The output of ``python -m tests.campaign.load FOLDER SEED EVENTS CONVERSATIONS``."""
    return msgspec.msgpack.decode(file.read_bytes(), type=list[TrafficRecord])


def digest(key: bytes | None, value: bytes | None, timestamp_ms: int | None) -> bytes:
    """A digest that identifies a record independent of its offset."""
    state = hashlib.blake2b(repr((key, timestamp_ms)).encode(), digest_size=16)
    state.update(b"" if value is None else value)
    return state.digest()


class Load:
    """Sends ``records`` in order; ``open`` sets how many and in what time."""

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Mapping[str, str],
        records: Sequence[TrafficRecord],
        rate: float,
    ) -> None:
        self.records = records
        self.sent = 0
        self.unacknowledged = 0
        self._bootstrap = bootstrap_servers
        self._topics = topics
        self._fastest = rate
        self._rate = rate
        self._limit = 0
        self._held = False
        self._pending: set[asyncio.Future[Any]] = set()
        self._producer: AIOKafkaProducer | None = None

    def open(self, share: float, within_seconds: float | None = None) -> None:
        """Send up to that share of all records, in about that time or as fast as allowed."""
        self._limit = max(self._limit, int(share * len(self.records)))
        left = self._limit - self.sent
        self._rate = self._fastest
        if within_seconds:
            self._rate = min(self._fastest, max(1.0, left / within_seconds))

    def trickle(self) -> None:
        """Let a few more go if everything allowed was sent."""
        if self.at_limit:
            self._limit = min(self._limit + FEW, int(LAST_SHARE * len(self.records)))

    @property
    def at_limit(self) -> bool:
        """Whether everything allowed was sent and acknowledged."""
        return self.sent >= self._limit and not self._pending

    @property
    def at_rest(self) -> bool:
        """Whether it is held, and everything sent was acknowledged."""
        return self._held and not self._pending

    def hold(self) -> None:
        """Stop sending."""
        self._held = True

    def release(self) -> None:
        """Resume sending."""
        self._held = False

    async def send_again(self, stream: str, rng: Random) -> int:
        """Fill a recreated topic in another order; returns the number of records.

        It uses a new producer, since the old one has sequence numbers of the old topic. The load
        must be at rest.
        """
        if self._producer is not None:
            await self._producer.stop()
        producer = self._producer = await self._make_producer()
        records = [record for record in self.records[: self.sent] if record.stream == stream]
        for record in rng.sample(records, len(records)):
            await producer.send(
                self._topics[stream], record.value, key=record.key, timestamp_ms=record.timestamp_ms
            )
        await producer.flush()
        return len(records)

    async def run(self) -> None:
        """Send until all is sent."""
        self._producer = await self._make_producer()
        try:
            debt, last = 0.0, time.monotonic()
            while self.sent < len(self.records) or self._pending:
                await asyncio.sleep(TICK_SECONDS)
                now = time.monotonic()
                debt, last = min(self._rate, debt + (now - last) * self._rate), now
                while debt >= 1 and self.sent < self._limit and not self._held:
                    record = self.records[self.sent]
                    try:
                        future = await self._producer.send(
                            self._topics[record.stream],
                            record.value,
                            key=record.key,
                            timestamp_ms=record.timestamp_ms,
                        )
                    except KafkaError:
                        continue  # no leader is known yet: the same record again
                    self._pending.add(future)
                    future.add_done_callback(self._answered)
                    self.sent += 1
                    debt -= 1
        finally:
            await self._producer.stop()

    def _answered(self, future: asyncio.Future[Any]) -> None:
        self._pending.discard(future)
        if future.cancelled() or future.exception() is not None:
            self.unacknowledged += 1

    async def _make_producer(self) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            linger_ms=10,
            request_timeout_ms=60_000,
            max_request_size=9_000_000,
        )
        await producer.start()
        return producer


if __name__ == "__main__":
    (Path(sys.argv[1]) / "traffic").write_bytes(
        msgspec.msgpack.encode(traffic(*map(int, sys.argv[2:])))
    )
