"""``stream-metrics migrate``: other settings, or another schema, for a group that is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from stream_metrics.cli.common import ConfigOption, load_settings
from stream_metrics.cli.stopped import (
    Progress,
    connected,
    decided,
    refuse_members,
    run,
    said,
    writing,
)
from stream_metrics.runtime import for_state, partition_options
from stream_metrics.settings import Settings
from stream_metrics.worker.migrate import Migrate
from stream_metrics.worker.move import holding


def migrate(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: ConfigOption = None,
) -> None:
    """Apply changed settings to the group's stored state.

    Lists the changes first. A change that cannot be made without reading the events again is
    refused with the advice to use rebuild. Stop the workers first. An interrupted run can be
    repeated, or undone with reshard --abort. The exit code is 1 if you answer no, and 2 if the
    command refuses; in both cases nothing has changed.
    """
    settings = load_settings(config)
    run(settings, _migrate(settings, yes=yes))


async def _migrate(settings: Settings, *, yes: bool) -> int:
    console = said()
    async with connected(settings) as store, writing(settings) as outputs:
        await refuse_members(settings, store)
        options = partition_options(await for_state(settings, store))
        progress = Progress(console.print, "rewritten")
        sent = Progress(console.print, "sent")
        work = Migrate(store, options, console.print, progress, outputs, sent)
        stored, changes = await work.check()
        listed = [str(change) for change in changes]
        schemas = (stored.identity.schema_version, options.identity.schema_version)
        if schemas[0] != schemas[1]:
            listed.append(f"schema of the state: {schemas[0]} before, {schemas[1]} now")
        question, unchanged = "Apply this to the state?", "the state already has these settings"
        code = await decided(store, "migrate", listed, question, unchanged, yes=yes)
        if code is not None:
            return code
        async with holding(store, "migrate") as mark:
            await work.run(mark)
    console.print("workers may start")
    return 0
