"""Polls the brokers beside the loop: the ends of the logs, and whether brokers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from stream_metrics.live.ports import Upstream
from stream_metrics.live.worker.lag import AnsweredEnds
from stream_metrics.live.worker.ownership.assigned import AssignedPartition
from stream_metrics.live.worker.source import RightsMissing, Source, SourceUnavailable
from stream_metrics.live.worker.surroundings import Surroundings

PROBE_SECONDS: Final = 3.0


class Probe:
    """Updates the log ends of ``partitions``, and reports their lag.

    Gives a reason while the brokers do not answer; after some seconds of that the lag is unknown.
    ``upstream``, if there is one, fills the topics.
    """

    def __init__(
        self,
        source: Source,
        partitions: Mapping[int, AssignedPartition],
        surroundings: Surroundings,
        upstream: Upstream | None = None,
    ) -> None:
        self._source = source
        self._partitions = partitions
        self._gauges = surroundings.metrics
        self._clock = surroundings.clock
        self._upstream = upstream
        self._retry = surroundings.retry
        self._reasons = surroundings.reasons
        self._filled_ms = 0  # the last ``upstream.read_up_to_ms``
        self._unanswered = SourceUnavailable.reason  # the last reason, which an answer clears
        self._ends = AnsweredEnds(surroundings.metrics, surroundings.monotonic)

    def filled_up_to_ms(self) -> int:
        """Record time up to which the topics are complete: now, or what ``upstream`` says."""
        now_ms = self._clock.now_ms()
        return now_ms if self._upstream is None else min(now_ms, self._filled_ms)

    async def run(self) -> None:
        """Ask at intervals until the worker stops."""
        await self._retry.rounds(self._round)

    async def _round(self) -> None:
        await self.look()
        await self._retry.pause(PROBE_SECONDS / 2)

    async def look(self) -> None:
        """Ask once, and report the lag, or that brokers do not answer."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self.ask()
        except (SourceUnavailable, TimeoutError) as error:
            if isinstance(error, SourceUnavailable):
                self._unanswered = error.reason
            self._reasons.set(self._unanswered, str(error) or "brokers do not answer: TimeoutError")
            self._expire()
        except RightsMissing:
            self._reasons.clear(self._unanswered)  # they answer; reading reports the missing rights
            self._expire()
        else:
            self._reasons.clear(self._unanswered)

    def _expire(self) -> None:
        """Report that the lag is unknown, if the last answer is too long ago."""
        self._ends.expire(place for held in self._partitions.values() for place in held.logs)
        if not self._ends.known:
            self._gauges.complete_until(None)

    async def ask(self) -> None:
        """Ask once; raises ``Unavailable``."""
        if self._upstream is not None:
            self._filled_ms = await self._upstream.read_up_to_ms()
        known = [partition for partition in self._partitions.values() if partition.positions]
        asked_ms = self.filled_up_to_ms()
        ends = await self._source.ends([place for partition in known for place in partition.logs])
        now_ms = self._clock.now_ms()
        self._ends.told()
        self._gauges.ends_told(now_ms / 1000)
        read_up_to = []
        for partition in known:
            if self._partitions.get(partition.number) is not partition:
                continue  # no longer assigned
            for place, lag in partition.logs.items():
                lag.set_end(ends[place], asked_ms)
                behind = lag.report(partition.positions[place.topic], now_ms)
                self._gauges.lag(*place, behind.records, behind.seconds)
                read_up_to.append(behind.read_up_to)
        all_known = all(partition.positions for partition in self._partitions.values())
        self._gauges.complete_until(min(read_up_to, default=None) if all_known else None)
