"""Wires what tells somebody of faults, from the settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stream_metrics.cli.options import web_options
from stream_metrics.cli.settings import Settings
from stream_metrics.core.events.bugs import Bug
from stream_metrics.live.notify.delivery import Recipient
from stream_metrics.live.notify.notifier import Look, Notifier
from stream_metrics.live.page.board import Board
from stream_metrics.live.page.notices import Charges
from stream_metrics.live.ports import Notes

GROUP: Final = "notified:group"  # the names of notes
WORKER: Final = "notified:worker:"


def recipient(settings: Settings, charges: Charges) -> Recipient | None:
    """Who is told; None if nobody is. Raises ``UnreadableFile`` and ``ValueError``."""
    address = settings.notify.address()
    if address is None:
        return None
    page = settings.notify.page_url or web_options(settings).url
    about = charges.about(settings.metrics.dimension, settings.web.runbook_url)
    return Recipient(address, settings.notify.format, about, page)


async def notify(
    told: Recipient,
    board: Board,
    name: str,
    notes: Notes,
    counted: Callable[[bool], None],
    on_bug: Callable[[Bug], None],
) -> None:
    """Tell of the faults of the worker of this name, and while it owns the first partition, also of
    those of agents; until it is cancelled."""
    charges = Charges(board.inputs.rules)

    async def of_worker() -> Look | None:
        if board.closed:
            return None
        return Look(*charges.of_worker(await board.judged(agents=False), name))

    async def of_group() -> Look | None:
        first = 0 in board.inputs.owned().numbers and not board.inputs.health.building
        if board.closed or not first:
            return None
        return Look(*charges.of_group(await board.judged(agents=True)))

    def notifier(note: str, look: Callable[[], Awaitable[Look | None]], *, alone: bool) -> Notifier:
        return Notifier(
            note,
            look,
            told.deliver,
            notes,
            charges.timing,
            time.time,
            alone=alone,
            counted=counted,
            on_bug=on_bug,
        )

    await asyncio.gather(
        notifier(WORKER + name, of_worker, alone=True).run(),
        notifier(GROUP, of_group, alone=False).run(),
    )
