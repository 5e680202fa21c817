"""Builds state anew in the folder of one process, beside the one that serves it."""

from __future__ import annotations

from stream_metrics.cli.process import WorkerProcess
from stream_metrics.cli.settings import Settings
from stream_metrics.live.layout import Generation, Identity, Layout
from stream_metrics.live.local.database import Database
from stream_metrics.live.local.letters import LocalDeadLetters
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.source import LocalSource
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, TOPICS
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.options import LoopOptions
from stream_metrics.live.worker.ownership.build import CannotBuild


class BuildProcess(WorkerProcess):
    """The engine on the generation that is being built, without anything that receives or shows."""

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__(settings, TOPICS, build=True)
        self._database = database

    async def run(self) -> None:
        """Work until ``stop``."""
        await self.work_over(LocalStore(self._database), _no_state, [EVENTS])

    async def work(
        self, settings: Settings, generation: Generation, layout: Layout, space: StateStore
    ) -> None:
        """See ``WorkerProcess.work``."""
        letters = LocalDeadLetters(self._database, self.clock.now_ms)
        published = self.publish(space, generation, letters)
        state = self.keep_state(settings, generation, layout, space, published)
        source = LocalSource(Log(self._database), generation.group, [EVENTS], self.retry)
        options = LoopOptions((EVENTS,), settings.kafka.on_offset_gap)
        await self.run_loop(self.loop_over(source, state, options, {}), state)


async def _no_state() -> Identity:
    raise CannotBuild("the state was deleted meanwhile")
