"""Commands for what is left behind: ``purge``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from stream_metrics.adapters.redis.connect import connect
from stream_metrics.adapters.redis.errors import StoreRefused
from stream_metrics.cli.common import ConfigOption, UsageError, load_settings
from stream_metrics.cli.stopped import who_is_there
from stream_metrics.engine.state import DamagedState
from stream_metrics.ports import StateStore, StoreUnavailable, Wiped, Wiping
from stream_metrics.runtime import redis_options
from stream_metrics.settings import Settings, mask_url
from stream_metrics.worker.move import held, swept


@dataclass(frozen=True, slots=True)
class Holding:
    """What a namespace holds: conversations by partition, parts of a purge that was cut off, and
    the groups that wrote it."""

    conversations: dict[int, int]
    unfinished: list[int]
    groups: list[str]

    @property
    def partitions(self) -> list[int]:
        """Everything that is to be wiped."""
        return sorted({*self.conversations, *self.unfinished})


def purge(
    namespace: Annotated[
        str | None,
        typer.Option(
            help="The namespace to delete. Default: `redis.namespace`.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Delete even if the group has members, or if Kafka cannot be asked."
        ),
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Delete the state of a namespace that is no longer used. This cannot be undone.

    Refuses to run while the consumer group has members. After an interrupted purge no worker
    can start on half of the state; run it again. The exit code is 1 if you answer no, and 2 if
    the purge is refused.
    """
    settings = load_settings(config)
    try:
        code = asyncio.run(_purge(settings, namespace or settings.namespace, yes, force))
    except (StoreUnavailable, StoreRefused) as error:
        raise UsageError(
            f"redis {mask_url(settings.redis.url)}: {error}. Part of the namespace is deleted; run "
            "purge again for the rest"
        ) from error
    if code:
        raise typer.Exit(code)


async def _purge(settings: Settings, namespace: str, yes: bool, force: bool) -> int:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        store = connect(replace(redis_options(settings), namespace=namespace))
    except ValueError as error:
        raise UsageError(f"--namespace: {error}") from error
    try:
        holding = await _holding(store, settings, namespace)
        where = f"namespace {namespace!r} in {mask_url(settings.redis.url)}"
        if not holding.partitions:
            await _dissolve(store, where)
            console.print(f"{where} has no state")
            return 0
        console.print(f"{where} holds")
        console.print(f"  partitions     {len(holding.partitions)}")
        console.print(
            f"  conversations  {sum(holding.conversations.values()):,}, including expired ones of "
            "which only an entry is left"
        )
        console.print(f"  written by     {', '.join(map(repr, holding.groups))}")
        if holding.unfinished:
            console.print(f"  left over from a wipe that was cut off: {holding.unfinished}")
        await _refuse_if_owned(settings, holding, force, console)
        if not yes and typer.prompt("Type the namespace to delete it", err=True) != namespace:
            console.print("the name is different; nothing was deleted")
            return 1
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("deleting", total=sum(holding.conversations.values()) or None)
            for partition in holding.partitions:
                await _wipe(store, partition, progress, task)
        await _dissolve(store, where)
    finally:
        await store.close()
    console.print(
        f"{where} is deleted. The group's committed offsets are in Kafka: delete the group"
    )
    console.print("there too (kafka-consumer-groups --delete) before you use its name again")
    return 0


async def _holding(store: StateStore, settings: Settings, namespace: str) -> Holding:
    conversations, groups = {}, set()
    for partition in await store.partitions():
        conversations[partition] = 0
        with suppress(DamagedState):  # it is deleted whatever it holds
            conversations[partition] = await store.count(partition)
        with suppress(DamagedState):
            identity = (await store.describe(partition)).identity
            if identity is not None:
                groups.add(identity.group)
    unfinished = await store.unfinished()
    if not groups:  # nothing tells any more; a namespace is called like its group by default
        own = namespace == settings.namespace
        groups.add(settings.kafka.group_id if own else namespace)
    return Holding(conversations, unfinished, sorted(groups))


async def _refuse_if_owned(
    settings: Settings, holding: Holding, force: bool, console: Console
) -> None:
    why = await who_is_there(settings, holding.groups)
    if not why:
        return
    if not force:
        raise UsageError(f"{why} (--force deletes anyway)")
    console.print(f"[yellow]warning:[/yellow] {why}")


async def _dissolve(store: StateStore, where: str) -> None:
    """Delete also what a move that was cut off has left, and what partitions share."""
    mark = await held(store, "purge")
    await swept(store, mark)
    try:
        await store.dissolve()
    except ValueError:
        await store.release(mark)
        raise UsageError(
            f"{where} has state again: a worker started meanwhile. Stop it and run purge again"
        ) from None


async def _wipe(store: StateStore, partition: int, progress: Progress, task: TaskID) -> None:
    while (step := await store.wipe(partition)) != Wiped():
        if isinstance(step, Wiping):
            progress.advance(task, step.deleted)
