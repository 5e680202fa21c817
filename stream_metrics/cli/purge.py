"""``stream-metrics purge``: deletes the state of a namespace."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    answered,
    stderr_console,
)
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.live.layout import Layout
from stream_metrics.live.ports import StateStore
from stream_metrics.live.worker.ownership.generations import change
from stream_metrics.live.worker.ownership.switch import delete_all

PURGE_AGAIN: Final = ". Run purge again: what it has deleted so far stays deleted"


@dataclass(frozen=True, slots=True)
class NamespaceContent:
    """The content of a namespace: its generations, their conversations and consumer groups.

    ``unfinished`` are partitions that an interrupted purge has deleted in part.
    """

    layout: Layout
    conversations: int
    unfinished: list[int]
    groups: list[str]


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
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete the state of a namespace that is no longer used. This cannot be undone.

    Refuses to run while the consumer group has members. After an interrupted purge no worker
    can start on half of the state; run it again. The exit code is 1 if you answer no, and 2 if
    the purge is refused.
    """
    place = place_of(config, data).of_namespace(namespace)
    with place.errors(PURGE_AGAIN):
        code = asyncio.run(_purge(place, yes, force))
    if code:
        raise typer.Exit(code)


async def _purge(place: Place, yes: bool, force: bool) -> int:
    console = stderr_console()
    where, (kind, name) = place.where, place.confirmation
    async with place.store(writes=True) as store:
        content = await _namespace_content(store)
        if not content.layout.generations:
            # For workers that wait until it is put back, unless it has been by now.
            layout = await change(store, lambda now: now if now.generations else now.emptied())
            if layout.generations:
                raise UsageError(f"{where} has state again: purge it again")
            console.print(f"{where} has no state")
            return 0
        console.print(f"{where} holds")
        console.print(f"  generations    {len(content.layout.generations)}")
        console.print(
            f"  conversations  {content.conversations:,}, including expired ones of which only an "
            "entry is left"
        )
        console.print(f"  written by     {', '.join(map(repr, content.groups))}")
        if content.unfinished:
            console.print(f"  left over from a wipe that was cut off: {content.unfinished}")
        await _refuse_if_owned(place, content, force, console)
        with answered("delete it"):
            if not yes and typer.prompt(f"Type {kind} to delete it", err=True) != name:
                console.print("the name is different; nothing was deleted")
                return 1
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("deleting", total=content.conversations or None)
            await delete_all(store, lambda count: progress.advance(task, count))
        left = await place.purged(store, content.groups)
    console.print(f"the state of {where} is deleted. {left}")
    return 0


async def _namespace_content(store: StateStore) -> NamespaceContent:
    layout = await store.layout()
    conversations, unfinished = 0, list[int]()
    for generation in layout.generations:
        state = store.generation(generation)
        for number in range(generation.identity.count):
            with suppress(DamagedState):  # damaged partitions are deleted too
                found = await state.describe(number)
                conversations += found.conversations
                if found.wiping:
                    unfinished.append(number)
    groups = {generation.group for generation in layout.generations}
    return NamespaceContent(layout, conversations, unfinished, sorted(groups))


async def _refuse_if_owned(
    place: Place, content: NamespaceContent, force: bool, console: Console
) -> None:
    why = await place.users(content.groups)
    if not why:
        return
    if not force:
        raise UsageError(f"{why} (--force deletes anyway)")
    console.print(f"[yellow]warning:[/yellow] {why}")
