"""Asking the brokers beside the loop: how far the logs go, and whether anybody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_metrics.adapters.kafka.lag import Lag
from stream_metrics.adapters.kafka.membership import Membership
from stream_metrics.adapters.kafka.rights import DENIED
from stream_metrics.ports import Position, Upstream
from stream_metrics.worker.clock import Clock
from stream_metrics.worker.patience import Patience, Reasons, Stopped

PROBE_SECONDS: Final = 3.0


class Probe:
    """Tells ``lag`` the ends of the topics; brokers that do not answer stand in ``reasons``.

    ``positions`` says where each partition number stands, also one that waits to be taken over or
    is halted. ``upstream``, if there is one, fills the topics.
    """

    def __init__(
        self,
        group: Membership,
        topics: Sequence[str],
        positions: Callable[[], Mapping[int, Mapping[str, Position]]],
        lag: Lag,
        clock: Clock,
        upstream: Upstream | None,
        patience: Patience,
        reasons: Reasons,
    ) -> None:
        self._group = group
        self._topics = topics
        self._positions = positions
        self._lag = lag
        self._clock = clock
        self._upstream = upstream
        self._patience = patience
        self._reasons = reasons
        self._filled_ms = 0  # up to when the topics are filled, as last heard

    def filled_up_to_ms(self) -> int:
        """Up to when records lie in the topics: now, unless they are filled from others."""
        now_ms = self._clock.now_ms()
        return now_ms if self._upstream is None else min(now_ms, self._filled_ms)

    async def run(self) -> None:
        """Ask until the worker is to stop."""
        while not self._patience.stopping:
            try:
                if self._group.joined:
                    async with asyncio.timeout(PROBE_SECONDS):
                        await self._ask()
                    self._reasons.clear("kafka")
                    self._lag.report(self._positions())
            except DENIED:
                self._reasons.clear("kafka")  # they do answer; reading says what is lacking
            except (KafkaError, OSError, TimeoutError, AssertionError) as error:
                kind = type(error).__name__
                self._reasons.set("kafka", f"brokers do not answer: {kind}")
            try:
                await self._patience.pause(PROBE_SECONDS / 2)
            except Stopped:
                return

    async def _ask(self) -> None:
        consumer = self._group.consumer
        places = [TopicPartition(topic, n) for n in self._positions() for topic in self._topics]
        if self._upstream is not None:
            self._filled_ms = await self._upstream.read_up_to_ms()
        if places:
            asked_ms = self.filled_up_to_ms()
            self._lag.heard(await consumer.end_offsets(places), asked_ms)
        else:
            await consumer.topics()
