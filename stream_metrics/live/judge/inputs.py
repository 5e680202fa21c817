"""Reads the input topics for a judge, from what its group has committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from stream_metrics.core.events.record import Extent
from stream_metrics.live.judge.judge import Partitions, ReadTime
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import (
    CommittedSource,
    InputOptions,
    ReportingInputs,
    commit_note,
)
from stream_metrics.live.worker.lag import Gauges
from stream_metrics.live.worker.retry import Reasons, RetryPolicy
from stream_metrics.live.worker.source import Commit, PartitionId


class JudgeInputs(ReportingInputs):
    """Implements ``judge.judge.Inputs``."""

    def __init__(
        self,
        source: CommittedSource,
        options: InputOptions,
        retry: RetryPolicy,
        reasons: Reasons,
        gauges: Gauges,
        clock: Clock,
        partitions: Partitions,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(source, options, retry, reasons, gauges, clock, monotonic=monotonic)
        self._partitions = partitions
        self._begun_ms = 0

    def rest(self) -> None:
        """Note that the judge waits for grades and reads nothing meanwhile, which is progress."""
        self._steps += 1
        self._reasons.beat()

    @property
    def changed(self) -> bool:
        """See ``judge.judge.Inputs``."""
        return self._changed

    def times(self) -> Mapping[int, ReadTime]:
        """See ``judge.judge.Inputs``."""
        found: dict[int, int] = {}
        for place, one in self.reading().items():
            read_ms = one.read_up_to_ms()
            found[place.partition] = min(read_ms, found.get(place.partition, read_ms))
        return {n: ReadTime(read_ms, read_ms >= self._begun_ms) for n, read_ms in found.items()}

    def commits(self) -> dict[PartitionId, Commit]:
        """The offsets and metadata that the next reader needs."""
        found = {}
        for place, one in self.reading().items():
            first = self._partitions.first_needed(*place)
            offset = one.position.offset if first is None else min(first, one.position.offset)
            found[place] = Commit(offset, commit_note(one.read_up_to_ms()))
        return found

    async def start_offsets(
        self, extents: Mapping[PartitionId, Extent], commits: Mapping[PartitionId, Commit]
    ) -> dict[PartitionId, int]:
        """The start offset of each partition; begins without any turns."""
        starts = await super().start_offsets(extents, commits)
        self._begun_ms = self._clock.now_ms()
        self._partitions.begin({place.partition for place in starts})
        return starts
