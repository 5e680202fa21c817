"""``stream-metrics build``: builds state anew for other settings, topics or partition counts."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import typer

from stream_metrics.cli.common import (
    ConfigOption,
    UsageError,
    answered,
    load_settings,
    stderr_console,
)
from stream_metrics.cli.kafka import run_kafka
from stream_metrics.cli.options import identity, settings_for_state
from stream_metrics.cli.redis import open_store, redis_errors
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.partition_reader import KafkaLogs, open_consumer
from stream_metrics.clients.kafka.topics import equal_counts, partition_counts
from stream_metrics.live.kafka.output import KafkaFence
from stream_metrics.live.layout import Generation, Identity, InvalidTransition, Layout
from stream_metrics.live.ports import OutputUnavailable
from stream_metrics.live.redis.check import memory_bytes
from stream_metrics.live.redis.store import RedisStore
from stream_metrics.live.worker.ownership.build import (
    PAUSE_ABOVE,
    CannotBuild,
    check_copies,
    check_counts,
    differences,
    needed_bytes,
    progress,
    short_logs,
)
from stream_metrics.live.worker.ownership.generations import change, new_mark
from stream_metrics.live.worker.ownership.stored_state import unfinished_message
from stream_metrics.live.worker.ownership.switch import (
    SETTLE_SECONDS,
    Fence,
    NoFence,
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
    config: ConfigOption = None,
) -> None:
    """Build the state anew with these settings, next to the one in force, and switch to it.

    Use it to change settings that are part of the state, topics, or partition counts, and with
    --again to repair state. Start workers with the new settings when the command asks for them; the
    present workers go on until the switch. It can be interrupted and repeated at any time. The exit
    code is 1 if you answer no, and 2 if the command refuses; in both cases figures are as before.
    """
    settings = load_settings(config)
    try:
        with redis_errors(settings, RETRY_HINT):
            code = run_kafka(
                settings,
                _build(
                    settings,
                    dry_run=dry_run,
                    retained=from_retained,
                    give_up=give_up,
                    again=again,
                    yes=yes,
                ),
            )
    except (CannotBuild, InvalidTransition) as error:
        raise UsageError(str(error)) from error
    except OutputUnavailable as error:
        raise UsageError(f"{error}{RETRY_HINT}") from error
    if code:
        raise typer.Exit(code)


async def _build(
    settings: Settings,
    *,
    dry_run: bool,
    retained: bool,
    give_up: bool,
    again: bool,
    yes: bool,
) -> int:
    async with open_store(settings) as store:
        layout = await store.layout()
        if layout.in_force is None:
            raise CannotBuild("there is no state yet: start the workers")
        if give_up:
            return await _give_up(store, settings, layout)
        live = layout.in_force
        if left := unfinished_message(layout):
            if dry_run:
                stderr_console().print(left, markup=False)
                return 0
            await _finish(store, settings)
            layout = await store.layout()
        target = identity(
            settings_for_state(settings, live.identity), await equal_counts(settings.kafka)
        )
        building = layout.building
        if building is None:
            if not (again or differences(live.identity, target)):
                stderr_console().print(
                    f"generation {live.number} is in force, and was built with these settings. To "
                    "build it again, add --again",
                    markup=False,
                )
                return 0
            building = await _register(
                store, settings, layout, target, dry_run=dry_run, retained=retained, yes=yes
            )
            if building is None:
                return int(not dry_run)
        elif other := differences(building.identity, target):
            raise CannotBuild(
                f"generation {building.number} is being built otherwise ({'; '.join(other)}). Use "
                "its settings, or delete it first: `stream-metrics build --give-up`"
            )
        if dry_run:
            now = await progress(store, building)
            stderr_console().print(f"generation {building.number} is being built already; {now}")
            return 0
        await _wait_until_caught_up(store, building)
        with answered("switch"):
            if not (yes or typer.confirm("Switch to it?", err=True)):
                return 1
        await decide(store, building.number, time.time_ns() // 1_000_000)
        await _finish(store, settings)
        stderr_console().print(f"generation {building.number} is in force")
        return 0


async def _register(
    store: RedisStore,
    settings: Settings,
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
    console.print(await _check_memory(store, live), markup=False)
    check_copies(live.identity, target, settings.kafka.repartition_topic)
    await _check_retention(settings, layout, target, retained=retained)
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
    assert stored.building is not None
    option = "" if differences(live.identity, target) else " --build"
    console.print(
        f"generation {stored.building.number} is being built. Start workers with these settings: "
        f"stream-metrics worker{option}"
    )
    return stored.building


async def _check_memory(store: RedisStore, live: Generation) -> str:
    """Check the memory of Redis; returns a line about it. Raises ``CannotBuild`` if it is short."""
    needed = await needed_bytes(store, live)
    used, limit = await memory_bytes(store)
    more = "an unknown number of" if needed is None else f"about {needed:,}"
    what = f"memory: {more} bytes more; Redis uses {used:,}"
    if limit and used + (needed or 0) > PAUSE_ABOVE * limit:
        raise CannotBuild(
            f"{what} of {limit:,}, and a build pauses at {PAUSE_ABOVE:.0%}. Raise "
            "maxmemory, or shorten state.ttl first"
        )
    return f"{what} of {limit:,}" if limit else f"{what}, without a limit"


async def _check_retention(
    settings: Settings, layout: Layout, target: Identity, *, retained: bool
) -> None:
    """Raise ``CannotBuild`` if the topics do not reach back far enough, unless ``retained``."""
    kafka, console = settings.kafka, stderr_console()
    counts = await partition_counts(kafka, kafka.topics)
    places = [(topic, n) for topic, count in counts.items() for n in range(count)]
    read = [(topic, n) for topic, count in target.partition_counts.items() for n in range(count)]
    async with open_consumer(kafka) as consumer:
        logs = KafkaLogs(consumer)
        check_counts(layout, target, await logs.oldest_ms(read))
        windows, now_ms = settings.metrics.window_specs(), time.time_ns() // 1_000_000
        short = await short_logs(logs, places, windows, settings.state.ttl_ms, now_ms)
    for line in short:
        console.print(line, markup=False)
    if short and not retained:
        raise CannotBuild(
            "the topics do not reach back as far as the figures do. Let Kafka keep records longer, "
            "or accept that with --from-retained"
        )


async def _wait_until_caught_up(store: RedisStore, building: Generation) -> None:
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


async def _give_up(store: RedisStore, settings: Settings, layout: Layout) -> int:
    """Delete the generation that is being built."""
    live, building = layout.in_force, layout.building
    if building is not None:
        await give_up_build(store, building.number)
    elif live is not None and live.state == "fencing":
        raise InvalidTransition(
            f"generation {live.number} has taken the place of the one before. To go back, build "
            "with the earlier settings"
        )
    await _finish(store, settings)
    stderr_console().print("nothing is being built")
    return 0


async def _finish(store: RedisStore, settings: Settings) -> None:
    """Complete a switch, together with the workers."""
    fence: Fence = NoFence() if settings.kafka.output_topic is None else KafkaFence(settings.kafka)
    told = False
    while True:
        layout = await finish(store, fence, lambda: asyncio.sleep(SETTLE_SECONDS))
        current = layout.in_force
        if not layout.to_purge or current is None:
            return
        if damaged := (await announcements(store, current)).damaged:
            raise CannotBuild(
                f"generation {current.number} is in force, but its state is damaged in "
                f"{'partition' if len(damaged) == 1 else 'partitions'} "
                f"{', '.join(map(str, damaged))}: their rows cannot be sent, and the state before "
                "is kept. Restore a backup of Redis, or begin anew: `stream-metrics purge`. "
                "No other build can begin before that"
            )
        if not told:
            stderr_console().print(
                f"generation {current.number} is in force. Its workers go through all of "
                "their conversations once; then the state before is deleted"
            )
            told = True
        await asyncio.sleep(POLL_SECONDS)
