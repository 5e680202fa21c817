"""What a service does at SIGTERM and SIGINT."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


def stop_on_signals(service: str, stop: Callable[[], None]) -> None:
    """Call ``stop`` at the first signal, and end the process at once at the second.

    It is that of the event loop which runs. ``service`` is its name in the log.
    """
    loop = asyncio.get_running_loop()
    stopping = False

    def on_signal(number: signal.Signals) -> None:
        nonlocal stopping
        if stopping:
            os._exit(128 + number)
        stopping = True
        log.info(f"{service} stops", signal=number.name)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
