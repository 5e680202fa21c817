"""``stream-metrics reshard``: other partition counts for a group whose workers are stopped."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal

import typer

from stream_metrics.adapters.kafka.dead_letters import KafkaDeadLetters
from stream_metrics.adapters.kafka.partitioners import PARTITIONERS
from stream_metrics.adapters.kafka.reading import KafkaLogs, reading
from stream_metrics.adapters.kafka.topics import equal_counts
from stream_metrics.cli.common import ConfigOption, load_settings
from stream_metrics.cli.stopped import (
    Progress,
    agreed,
    connected,
    decided,
    refuse_members,
    run,
    said,
    writing,
)
from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import Identity
from stream_metrics.runtime import for_state, identity, partition_options
from stream_metrics.settings import Settings
from stream_metrics.worker.astray import Partitioner
from stream_metrics.worker.move import Unmovable, holding
from stream_metrics.worker.reshard import Reshard
from stream_metrics.worker.stored import stored_state


def reshard(
    catch_up: Annotated[
        bool,
        typer.Option(
            "--catch-up",
            help="Also read what the workers have not read yet, and assign each record by the "
            "new partition count.",
        ),
    ] = False,
    partitioner: Annotated[
        Literal["murmur2", "crc32", "fnv1a"] | None,
        typer.Option(
            help="The partitioner of the producers. Default: the one that explains where the "
            "conversations are; required if several do.",
            show_default=False,
        ),
    ] = None,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort",
            help="Undo the preparations of an interrupted reshard, migrate or rebuild.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: ConfigOption = None,
) -> None:
    """Move the group's state to the current partition counts of the input topics.

    Use it after partitions were added, or after `kafka.topics` was changed. Stop the workers
    first, when they have read everything. An interrupted run can be repeated. The exit code is 1
    if you answer no, and 2 if the command refuses; in both cases nothing has changed.
    """
    settings = load_settings(config)
    if abort:
        run(settings, _abort(settings, yes=yes))
        return
    if settings.kafka.repartition_topic is not None:
        partitioner = "murmur2"  # workers write that topic themselves (adapters.kafka.internal)
    known = {name: PARTITIONERS[name] for name in PARTITIONERS if partitioner in (None, name)}
    run(settings, _reshard(settings, known, catch_up=catch_up, yes=yes))


async def _abort(settings: Settings, *, yes: bool) -> int:
    console = said()
    async with connected(settings) as store:
        if await store.held_by() is None:
            console.print("no command was interrupted: workers may start")
            return 0
        if settings.kafka.output_topic is not None and await store.switched():
            console.print(
                "the new state partitions are already in use, but some of their rows may not be on "
                f"the output topic {settings.kafka.output_topic}. `stream-metrics migrate` sends "
                "all rows and lets workers start. Without it, a row is sent only when its "
                "conversation changes",
                markup=False,
            )
            if not agreed("Let workers start without that?", None, yes=yes):
                return 1
        async with holding(store, "reshard --abort"):
            pass
        found = "the state as it is"
        with suppress(Unmovable, DamagedState):  # workers, or `check`, say what is wrong with it
            found = _counts((await stored_state(store)).identity)
    console.print(f"workers may start, with {found}")
    return 0


async def _reshard(
    settings: Settings, partitioners: Mapping[str, Partitioner], *, catch_up: bool, yes: bool
) -> int:
    console = said()
    letters = KafkaDeadLetters(settings.kafka)
    async with (
        connected(settings) as store,
        reading(settings.kafka) as consumer,
        writing(settings) as outputs,
    ):
        await refuse_members(settings, store)
        settings = await for_state(settings, store)
        target = identity(settings, await equal_counts(settings.kafka))
        options = replace(partition_options(settings), identity=target)
        progress = Progress(console.print, "copied")
        logs = KafkaLogs(consumer, settings.kafka)
        policy = settings.kafka.on_offset_gap
        work = Reshard(store, logs, options, letters, console.print, progress, outputs, policy)
        stored = await work.check()
        now = _counts(target)
        moved = [f"from  {_counts(stored.identity)}", f"to    {now}"]
        if stored.identity.partition_counts == target.partition_counts:
            moved = []
        question, unchanged = "Move the state?", f"the state is that of {now}"
        code = await decided(store, "reshard", moved, question, unchanged, yes=yes)
        if code is not None:
            return code
        try:
            async with holding(store, "reshard") as mark:
                await work.run(mark, partitioners, catch_up=catch_up)
        finally:
            await letters.stop()
    console.print("workers may start")
    return 0


def _counts(identity: Identity) -> str:
    counts = identity.partition_counts
    return ", ".join(f"{topic}: {count} partitions" for topic, count in counts.items())
