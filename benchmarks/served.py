"""Measures one process without servers, in a process of its own.

``python -m benchmarks.served FOLDER [--bridge] [--sample]`` takes its settings from the environment
and prints a JSON object with its address. Each line on standard input is answered by another object
with the CPU and wall seconds so far: ``now`` at once, ``read`` when all that was accepted has
become state. With ``--bridge`` only the receiver and the bridge run, and not the engine that a
worker has.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.sampling import Sampler
from benchmarks.worker import TOP
from stream_metrics.cli.common import load_settings
from stream_metrics.cli.logs import configure_logs
from stream_metrics.cli.process import prepare_process
from stream_metrics.cli.serving import ServeProcess, listening
from stream_metrics.core.compiled import ENGINE
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.folder import held, prepare_database
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.local.traces import READER

LOOK_SECONDS = 0.02


class Served:
    """The process; ``engine`` is whether its engine runs."""

    def __init__(self, database: Database, *, engine: bool) -> None:
        settings = load_settings(None)
        configure_logs(settings.log)
        self._engine = engine
        self._settings = settings
        self._process = ServeProcess(settings, database)

    async def run(self, sampler: Sampler | None) -> None:
        """Work until standard input ends."""
        process = self._process
        async with listening(process, self._settings) as (_, receiver):
            prepare_process()
            _, bridge, _ = process.traces.part()
            if self._engine:
                bridge.close()
            work = asyncio.create_task(process.run() if self._engine else bridge)
            await self._read()
            _say(receiver=receiver, engine=ENGINE)
            while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
                if line == "read":
                    await self._read()
                if sampler is not None:
                    (sampler.stop if line == "read" else sampler.start)()
                _say(cpu=time.process_time(), wall=time.perf_counter())
            if sampler is not None:
                _say(packages=sampler.shares(), top=sampler.top(TOP))
            process.stop()
            await work

    async def _read(self) -> None:
        while not (await self._are_told() and await self._are_state()):
            await asyncio.sleep(LOOK_SECONDS)

    async def _are_told(self) -> bool:
        """Whether all spans are read, and their traces closed and told."""
        end = (await self._process.records.extents([SPANS]))[SPANS].end
        committed, _ = (await self._process.records.committed(READER)).get(SPANS, (0, ""))
        return committed >= end and self._process.traces.open_traces == 0

    async def _are_state(self) -> bool:
        """Whether all events are in the state, if anything reads them."""
        if not self._engine:
            return True
        end = (await self._process.records.extents([EVENTS]))[EVENTS].end
        loop = self._process.loop
        if loop is None or not loop.partitions:
            return False
        position = loop.partitions[0].positions.get(EVENTS)
        return position is not None and position.offset >= end


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def _work(folder: Path, *, engine: bool, sampler: Sampler | None) -> None:
    database = Database(prepare_database(folder))
    try:
        await Served(database, engine=engine).run(sampler)
    finally:
        await database.close()


def main() -> None:
    """Serve, and measure."""
    folder, flags = Path(sys.argv[1]), sys.argv[2:]
    sampler = Sampler() if "--sample" in flags else None
    with held(folder), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(folder, engine="--bridge" not in flags, sampler=sampler))


if __name__ == "__main__":
    main()
