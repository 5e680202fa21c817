"""Measures the unmodified live worker in a process of its own.

``python -m benchmarks.worker RECORDS [--sample]`` takes its settings from the environment, works
until it has taken RECORDS records, and prints one JSON object. The measurement begins when the
group has given it its partitions, and ends with the write of the last batch.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import uvloop
from redis.asyncio.connection import AbstractConnection

from benchmarks.sampling import Sampler
from stream_metrics.cli.common import load_settings
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.runtime import Runtime
from stream_metrics.core.compiled import ENGINE

TOP = 40


class Meter:
    """Records CPU and wall time at the first and last record, from a worker's telemetry."""

    def __init__(self, runtime: Runtime, total: int, sampler: Sampler | None) -> None:
        self.stages: dict[str, float] = {}
        self.records = self.batches = self.sends = 0
        self._runtime, self._total, self._sampler = runtime, total, sampler
        self._began = self._ended = (0.0, 0.0)
        operations = runtime.operations
        self._batch, self._stage = operations.batch, operations.stage
        self._rebalanced = operations.rebalanced
        operations.batch = self._on_batch  # type: ignore[method-assign]
        operations.stage = self._on_stage  # type: ignore[method-assign]
        operations.rebalanced = self._on_rebalanced  # type: ignore[method-assign]
        self._count_sends()

    def _count_sends(self) -> None:
        send = AbstractConnection.send_packed_command

        async def counted(
            connection: AbstractConnection,
            command: bytes | str | Iterable[bytes],
            check_health: bool = True,
        ) -> None:
            self.sends += 1
            await send(connection, command, check_health)

        AbstractConnection.send_packed_command = counted  # type: ignore[method-assign, assignment]

    def _on_rebalanced(self) -> None:
        self._rebalanced()
        if self.records:
            raise SystemExit("the group was rebalanced while measuring")
        self.sends = 0
        if self._sampler is not None:
            self._sampler.start()
        self._began = (time.process_time(), time.perf_counter())

    def _on_stage(self, name: str, seconds: float) -> None:
        self._stage(name, seconds)
        self.stages[name] = self.stages.get(name, 0.0) + seconds
        if self.records >= self._total and name == "state" and self._ended[0] == 0.0:
            self._ended = (time.process_time(), time.perf_counter())
            if self._sampler is not None:
                self._sampler.stop()
            self._finished()

    def _finished(self) -> None:
        """All records were read."""
        self._runtime.stop()

    def _on_batch(self, records: int) -> None:
        self._batch(records)
        self.batches += 1
        self.records += records

    def report(self) -> dict[str, Any]:
        """The measurement."""
        cpu, wall = (end - start for end, start in zip(self._ended, self._began, strict=True))
        found: dict[str, Any] = {
            "cpu": cpu,
            "wall": wall,
            "batches": self.batches,
            "sends": self.sends,
            "stages": self.stages,
            "engine": ENGINE,
        }
        if self._sampler is not None:
            found["packages"] = self._sampler.shares()
            found["top"] = self._sampler.top(TOP)
        return found


async def work(total: int, sampler: Sampler | None) -> dict[str, Any]:
    """Run the worker over ``total`` records."""
    settings = load_settings(None)
    configure_logs(settings.log)
    runtime = Runtime(settings)
    meter = Meter(runtime, total, sampler)
    await runtime.run()
    return meter.report()


def main() -> None:
    """Measure once."""
    sampler = Sampler() if "--sample" in sys.argv else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work(int(sys.argv[1]), sampler))))


if __name__ == "__main__":
    main()
