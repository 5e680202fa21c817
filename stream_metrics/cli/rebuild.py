"""``stream-metrics rebuild``: a stopped group reads its topics again, as far as they go back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

import typer

from stream_metrics.adapters.kafka.reading import KafkaLogs, reading
from stream_metrics.adapters.kafka.topics import equal_counts
from stream_metrics.cli.common import ConfigOption, load_settings
from stream_metrics.cli.stopped import agreed, connected, refuse_members, run, said
from stream_metrics.runtime import for_state, identity, partition_options
from stream_metrics.settings import Settings
from stream_metrics.worker.move import holding
from stream_metrics.worker.rebuild import Former, Reach, Rebuild

NOTES = "including expired ones of which only an entry is left"


def rebuild(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: ConfigOption = None,
) -> None:
    """Delete the group's state and make its workers read all input topics from the start.

    Says first how far back the topics reach and what would be lost. Stop the workers first. An
    interrupted run can be repeated, or undone with reshard --abort. The exit code is 1 if you
    answer no, and 2 if the command refuses; in both cases nothing has changed.
    """
    settings = load_settings(config)
    run(settings, _rebuild(settings, yes=yes))


async def _rebuild(settings: Settings, *, yes: bool) -> int:
    console = said()
    async with connected(settings) as store, reading(settings.kafka) as consumer:
        await refuse_members(settings, store)
        settings = await for_state(settings, store)
        target = identity(settings, await equal_counts(settings.kafka))
        options = replace(partition_options(settings), identity=target)
        work = Rebuild(store, KafkaLogs(consumer, settings.kafka), options, console.print)
        held = await work.conversations()
        for reach in await work.reach():
            console.print(_told(reach, held), markup=False)
        former = await work.former()
        if former is not None:
            console.print(_told_former(former, held), markup=False)
        question = f"Wipe the state of {held:,} conversations ({NOTES}) and read the topics again?"
        if not agreed(question, await store.held_by(), yes=yes):
            return 1
        async with holding(store, "rebuild") as mark:
            await work.run(mark)
    console.print("workers may start; the figures are complete once they have caught up")
    return 0


def _told(reach: Reach, held: int) -> str:
    if not reach.deleted:
        return f"{reach.topic}: complete from its first record"
    begins = "has no records left"
    if reach.oldest_ms is not None:
        begins = f"begins at {_time(reach.oldest_ms)}"
    return (
        f"{reach.topic}: {begins}; {reach.deleted:,} earlier records are gone. Of {held:,} "
        f"conversations ({NOTES}), {reach.bare:,} had their last record before that and lose all "
        "records of this topic; others may lose their first records"
    )


def _told_former(former: Former, held: int) -> str:
    return (
        f"records up to {_time(former.read_up_to_ms)} were read from other topics, or before "
        f"partitions were added; they are not read again. Of {held:,} conversations ({NOTES}), "
        f"{former.bare:,} had only such records and are lost; others lose those records"
    )


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%FT%TZ}"
