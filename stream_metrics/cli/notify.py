"""``stream-metrics notify``: whether who is to be told can be told."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Final

import typer

from stream_metrics.cli.common import ConfigOption, UsageError, load_settings
from stream_metrics.cli.notifying import recipient
from stream_metrics.core.alerts.alert import WARNING
from stream_metrics.live.notify.delivery import NotDelivered
from stream_metrics.live.notify.episodes import Episode, Notice
from stream_metrics.live.notify.messages import About
from stream_metrics.live.page.notices import INSTANCE, Charges

TEST: Final = "test"
ABOUT: Final = About(
    "StreamMetricsTest", "Test of notifications", "docs/guides/alerts.md", INSTANCE
)


def notify(
    test: Annotated[
        bool, typer.Option("--test", help="Send a fault that has ended, as a test.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Send a test notification to notify.url.

    Workers tell it by themselves what fires and what ends. The test begins and ends a fault called
    [bold]StreamMetricsTest[/bold].
    """
    if not test:
        raise UsageError("workers notify by themselves; --test sends a test notification")
    settings = load_settings(config)
    found = recipient(settings, Charges())
    if found is None:
        raise UsageError(
            "nobody is to be told: set notify.url or notify.url_file (and notify.format)"
        )
    found = replace(found, about={TEST: ABOUT})
    now = time.time()
    one = Episode(TEST, "stream-metrics notify --test", WARNING, "This is a test.", now, now)
    lasting, ended = Notice(TEST, (one,), ()), Notice(TEST, (), (one,))

    async def send() -> None:
        await found.deliver(lasting, now)
        await found.deliver(ended, now)

    try:
        asyncio.run(send())
    except NotDelivered as error:
        raise UsageError(
            f"notify.url: {error}. Check the address, and that notify.format is "
            f"what it takes (it is {found.format})"
        ) from error
    typer.echo(f"{found.place} has accepted a test, as {found.format} takes it.")
