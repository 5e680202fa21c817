"""Creates and connects the parts of a judge, whatever it reads and writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stream_metrics.cli.settings import Settings
from stream_metrics.core.judge.budget import Book
from stream_metrics.core.judge.cache import GradeCache
from stream_metrics.core.judge.labels import labeller_of
from stream_metrics.core.judge.sample import Sampler
from stream_metrics.core.judge.turns import OpenTurns
from stream_metrics.lab.extras import install_hint
from stream_metrics.live.judge.asking import Asker
from stream_metrics.live.judge.endpoint import OpenAiEndpoint
from stream_metrics.live.judge.inputs import JudgeInputs
from stream_metrics.live.judge.judge import Judge, JudgeOptions, LabelWriter, Partitions
from stream_metrics.live.judge.ledger import EntryStore, Ledger
from stream_metrics.live.prometheus.judge import JudgeMetrics
from stream_metrics.live.worker.clock import Clock
from stream_metrics.live.worker.inputs import CommittedSource, InputOptions
from stream_metrics.live.worker.retry import Reasons, RetryPolicy

NO_MODEL = (
    "no model judges: set judge.model, such as gpt-5-mini, and judge.key_file; for a local model "
    "also judge.url, such as http://localhost:11434/v1"
)


def check_judge(settings: Settings) -> None:
    """Raise ``ValueError`` if nothing can be judged with these settings."""
    if not settings.judge.model:
        raise ValueError(NO_MODEL)
    settings.judge.endpoint()
    try:
        import openai  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError(install_hint("A judge", "openai", "judge")) from None


class RunningJudge:
    """A judge over a source, an entry store and a writer of labels."""

    def __init__(
        self,
        settings: Settings,
        source: CommittedSource,
        book: Book,
        entries: EntryStore,
        labels: LabelWriter,
        metrics: JudgeMetrics,
        retry: RetryPolicy,
        reasons: Reasons,
        clock: Clock,
        group: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        judge, config = settings.judge, settings.engine_config()
        key = settings.state.key()
        sampler = Sampler(key)
        labeller = labeller_of(judge.model, judge.judge)
        self.ledger = Ledger(entries, book, judge.limits, writer_name(), clock.now_ms)
        self.partitions = Partitions(lambda: OpenTurns(config, sampler, labeller, judge.times))
        self.inputs = JudgeInputs(
            source,
            InputOptions(group, "continue", judge.start),
            retry,
            reasons,
            metrics,
            clock,
            self.partitions,
            monotonic=monotonic,
        )
        self._endpoint = OpenAiEndpoint(judge.endpoint())
        asker = Asker(
            self._endpoint,
            self.ledger,
            GradeCache(key, judge.cache_grades),
            judge.asking,
            retry,
            reasons,
            metrics,
            retry.pause,
            monotonic,
        )
        self._judge = Judge(
            self.inputs,
            self.partitions,
            sampler,
            asker,
            self.ledger,
            labels,
            retry,
            metrics,
            JudgeOptions(judge.model, judge.judge, judge.rate, judge.open_bytes),
            monotonic,
        )

    @property
    def due_turns(self) -> int:
        """See ``Judge.due_turns``."""
        return self._judge.due_turns

    @property
    def address(self) -> str:
        """Where the model is, without secrets."""
        return self._endpoint.address

    async def turn(self) -> None:
        """Run a round."""
        await self._judge.turn()

    async def run(self) -> None:
        """Run until the retry policy stops."""
        try:
            await self.inputs.run(self.turn)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Ask for nothing any more, leave the group and close connections."""
        self._judge.stop()
        await self.inputs.stop()
        await self._endpoint.stop()


def writer_name() -> str:
    """A name that no other process has."""
    return os.urandom(8).hex()
