"""What a service does at signals."""

from __future__ import annotations

import signal
import subprocess
import sys

SERVICE = """\
import asyncio
from stream_metrics.cli.signals import stop_on_signals

async def run():
    stop_on_signals("service", lambda: print("stops", flush=True))
    print("runs", flush=True)
    await asyncio.Event().wait()

asyncio.run(run())
"""


def test_a_second_signal_ends_a_service_that_does_not_stop() -> None:
    """The first one lets it finish; the exit code is that of the second."""
    with subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert b"runs" in service.stdout.readline()
        service.send_signal(signal.SIGTERM)
        while b"stops" not in (line := service.stdout.readline()):
            assert line, "it ended without stopping"
        service.send_signal(signal.SIGINT)

        assert service.wait(30) == 128 + signal.SIGINT
