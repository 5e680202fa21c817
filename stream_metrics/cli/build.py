"""``stream-metrics build``: builds state anew for other settings, topics or partition counts."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Annotated, Final

import typer

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    answered,
    stderr_console,
)
from stream_metrics.cli.options import identity, settings_for_state
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout
from stream_metrics.live.ports import OutputUnavailable, StateStore
from stream_metrics.live.worker.ownership.build import (
    CannotBuild,
    check_copies,
    check_counts,
    differences,
    progress,
    short_logs,
)
from stream_metrics.live.worker.ownership.generations import change, new_mark
from stream_metrics.live.worker.ownership.stored_state import unfinished_message
from stream_metrics.live.worker.ownership.switch import (
    announcements,
    decide,
    finish,
    forget_purged,
)
from stream_metrics.live.worker.ownership.switch import give_up as give_up_build

POLL_SECONDS: Final = 2.0
RETRY_HINT: Final = ". Run this again: a build that has begun goes on meanwhile"


def build(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be built and what it needs; no more.")
    ] = False,
    from_retained: Annotated[
        bool,
        typer.Option(
            "--from-retained",
            help="Build from what the topics have, even if they do not reach back as far as the "
            "figures do; forgotten conversations stay forgotten.",
        ),
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Delete the generation that is being built.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Build although the state in force was built with these settings."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Build the state anew with these settings, next to the one in force, and switch to it.

    Use it to change settings that are part of the state, topics, or partition counts, and with
    --again to repair state. Start workers with the new settings when the command asks for them; the
    present workers go on until the switch. With --data, the command builds the state itself. It can
    be interrupted and repeated at any time. The exit code is 1 if you answer no, and 2 if the
    command refuses; in both cases figures are as before.
    """
    place = place_of(config, data)
    try:
        with place.errors(RETRY_HINT):
            code = place.run(
                _build(
                    place,
                    dry_run=dry_run,
                    retained=from_retained,
                    give_up=give_up,
                    again=again,
                    yes=yes,
                ),
            )
    except (CannotBuild, InvalidTransition) as error:
        raise UsageError(place.told(str(error))) from error
    except OutputUnavailable as error:
        raise UsageError(f"{error}{RETRY_HINT}") from error
    if code:
        raise typer.Exit(code)


async def _build(
    place: Place,
    *,
    dry_run: bool,
    retained: bool,
    give_up: bool,
    again: bool,
    yes: bool,
) -> int:
    settings = place.settings
    async with place.store(writes=not dry_run) as store:
        layout = await store.layout()
        if layout.in_force is None:
            raise CannotBuild(f"there is no state yet: {place.starting}")
        if give_up:
            return await _give_up(store, place, layout)
        live = layout.in_force
        if left := unfinished_message(layout):
            if dry_run:
                stderr_console().print(place.told(left), markup=False)
                return 0
            await _finish(store, place)
            layout = await store.layout()
        target = identity(settings_for_state(settings, live.identity), await place.state_counts())
        building, begun = layout.building, False
        if building is None:
            if not (again or differences(live.identity, target)):
                stderr_console().print(
                    f"generation {live.number} is in force, and was built with these settings. To "
                    "build it again, add --again",
                    markup=False,
                )
                return 0
            building = await _register(
                store, place, layout, target, dry_run=dry_run, retained=retained, yes=yes
            )
            if building is None:
                return int(not dry_run)
            begun = True
        elif other := differences(building.identity, target):
            raise CannotBuild(
                f"generation {building.number} is being built otherwise ({'; '.join(other)}). Use "
                "its settings, or delete it first: `stream-metrics build --give-up`"
            )
        if dry_run:
            now = await progress(store, building)
            stderr_console().print(f"generation {building.number} is being built already; {now}")
            return 0
        option = "" if differences(live.identity, target) else " --build"
        async with place.building(option) as told:
            if begun:
                stderr_console().print(
                    f"generation {building.number} is being built. {told}", markup=False
                )
            await _wait_until_caught_up(store, building)
            with answered("switch"):
                if not (yes or typer.confirm("Switch to it?", err=True)):
                    return 1
        await decide(store, building.number, time.time_ns() // 1_000_000)
        await _finish(store, place)
        stderr_console().print(f"generation {building.number} is in force")
        return 0


async def _register(
    store: StateStore,
    place: Place,
    layout: Layout,
    target: Identity,
    *,
    dry_run: bool,
    retained: bool,
    yes: bool,
) -> Generation | None:
    """Print what would be built and what it needs, ask, and start; None if it is not started."""
    live = layout.in_force
    assert live is not None
    console = stderr_console()
    for line in differences(live.identity, target) or ["nothing differs: the same is built again"]:
        console.print(line, markup=False)
    console.print(await place.room(store, live), markup=False)
    check_copies(live.identity, target, place.settings.kafka.repartition_topic)
    await _check_retention(place, layout, target, retained=retained)
    if dry_run:
        return None
    with answered("build"):
        if not (yes or typer.confirm("Build this beside the state in force?", err=True)):
            return None
    for old in layout.generations:
        if old.purged:
            await forget_purged(store, old)
    mark, now_ms = new_mark(), time.time_ns() // 1_000_000
    stored = await change(
        store, lambda now: now.registered(target, mark, now_ms, retained=retained)
    )
    return stored.building


async def _check_retention(
    place: Place, layout: Layout, target: Identity, *, retained: bool
) -> None:
    """Raise ``CannotBuild`` if the topics do not reach back far enough, unless ``retained``."""
    settings, console = place.settings, stderr_console()
    counts = await place.partition_counts(settings.kafka.topics)
    places = [(topic, n) for topic, count in counts.items() for n in range(count)]
    read = [(topic, n) for topic, count in target.partition_counts.items() for n in range(count)]
    async with place.logs() as logs:
        check_counts(layout, target, await logs.oldest_ms(read))
        windows, now_ms = settings.metrics.window_specs(), time.time_ns() // 1_000_000
        short = await short_logs(logs, places, windows, settings.state.ttl_ms, now_ms)
    for line in short:
        console.print(line, markup=False)
    if short and not retained:
        raise CannotBuild(
            f"the topics do not reach back as far as the figures do. {place.keeping}, or accept "
            "that with --from-retained"
        )


async def _wait_until_caught_up(store: StateStore, building: Generation) -> None:
    """Wait until the build has caught up, and print its progress."""
    console, told = stderr_console(), ""
    while True:
        found = (await store.layout()).of(building.number)
        if found is None or found.state != "building":
            raise CannotBuild(f"generation {building.number} is not being built any more")
        now = await progress(store, building)
        if now.caught_up:
            console.print("it has caught up")
            return
        if str(now) != told:
            console.print(str(now), highlight=False)
        told = str(now)
        await asyncio.sleep(POLL_SECONDS)


async def _give_up(store: StateStore, place: Place, layout: Layout) -> int:
    """Delete the generation that is being built."""
    live, building = layout.in_force, layout.building
    if building is not None:
        await give_up_build(store, building.number)
    elif live is not None and live.state == "fencing":
        raise InvalidTransition(
            f"generation {live.number} has taken the place of the one before. To go back, build "
            "with the earlier settings"
        )
    await _finish(store, place)
    stderr_console().print("nothing is being built")
    return 0


async def _finish(store: StateStore, place: Place) -> None:
    """Complete a switch, together with the workers."""
    async with AsyncExitStack() as stack:
        told = False
        while True:
            layout = await finish(store, place.fence(), place.settle)
            current = layout.in_force
            if not layout.to_purge or current is None:
                return
            if damaged := (await announcements(store, current)).damaged:
                raise CannotBuild(
                    f"generation {current.number} is in force, but its state is damaged in "
                    f"{'partition' if len(damaged) == 1 else 'partitions'} "
                    f"{', '.join(map(str, damaged))}: their rows cannot be sent, and the state "
                    "before is kept. Restore a backup of Redis, or begin anew: "
                    "`stream-metrics purge`. No other build can begin before that"
                )
            if not told:
                stderr_console().print(
                    f"generation {current.number} is in force. Its workers go through all of "
                    "their conversations once; then the state before is deleted"
                )
                told = True
                await stack.enter_async_context(place.finishing())
            await asyncio.sleep(POLL_SECONDS)
