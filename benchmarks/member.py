"""Measures one worker of a group in a process of its own.

``python -m benchmarks.member SIZES WARM`` takes its settings from the environment. SIZES is a JSON
object: how many records each partition number has, of all topics. The measurement begins when WARM
records are written, so that the cost of the start is separate (``start_cpu``), and ends with the
write of the last record on the partitions that the group has given the worker. Then it prints one
JSON object, and stays in the group until its standard input ends: a worker that left would have the
others take over its partitions in the midst of their measurement.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import uvloop

from benchmarks.linux import peak_bytes
from benchmarks.worker import Meter
from stream_metrics.cli.common import load_settings
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.runtime import Runtime
from stream_metrics.live.prometheus.catalogue import CONVERSATION_SOURCES, PREFIX


class MemberMeter(Meter):
    """A meter whose total is the number of records on the worker's partitions."""

    def __init__(self, runtime: Runtime, sizes: Mapping[int, int], warm: int) -> None:
        super().__init__(runtime, sum(sizes.values()), None)
        self.done = asyncio.Event()
        self._sizes, self._warm = sizes, warm
        self._start_cpu: float | None = None
        self._before = 0  # records that the start took
        self._assigned = runtime.operations.assigned
        runtime.operations.assigned = self._on_assigned  # type: ignore[method-assign]

    def _on_assigned(self, count: int) -> None:
        self._assigned(count)
        owned = [p.number for p in self._runtime.loop.partitions] if self._runtime.loop else []
        self._total = sum(self._sizes.get(number, 0) for number in owned)

    def _on_stage(self, name: str, seconds: float) -> None:
        super()._on_stage(name, seconds)
        if name == "state" and self._start_cpu is None and self.records >= self._warm:
            now = time.process_time()
            self._start_cpu = now - self._began[0]
            self._began = (now, time.perf_counter())
            self._before = self.records
            self.batches = self.sends = 0
            self.stages.clear()

    def _finished(self) -> None:
        self.done.set()

    def report(self) -> dict[str, Any]:
        """What was measured; ``began`` and ``ended`` are by the clock that all processes share."""
        more = {
            "records": self.records - self._before,
            "start_cpu": self._start_cpu or 0.0,
            "began": self._began[1],
            "ended": self._ended[1],
            "rss_bytes": peak_bytes(),
            "opened": {where: self._opened(where) for where in CONVERSATION_SOURCES},
        }
        return {**super().report(), **more}

    def _opened(self, where: str) -> float:
        """Conversations that batches needed, by where they were found, including the start."""
        name = f"{PREFIX}conversations_opened_total"
        return self._runtime.registry.get_sample_value(name, {"found": where}) or 0.0


async def work(sizes: Mapping[int, int], warm: int) -> None:
    """Run the worker, print the measurement, and stop on request."""
    settings = load_settings(None)
    configure_logs(settings.log)
    runtime = Runtime(settings)
    meter = MemberMeter(runtime, sizes, warm)
    running = asyncio.create_task(runtime.run())
    done = asyncio.create_task(meter.done.wait())
    await asyncio.wait({running, done}, return_when=asyncio.FIRST_COMPLETED)
    if not done.done():
        running.result()
        raise SystemExit("the worker ended before it had read all")
    print(json.dumps(meter.report()), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    runtime.stop()
    await running


def main() -> None:
    """Measure once."""
    sizes = {int(number): count for number, count in json.loads(sys.argv[1]).items()}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(sizes, int(sys.argv[2])))


if __name__ == "__main__":
    main()
