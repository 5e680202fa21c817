"""``stream-metrics serve`` as a child process, on a disk of its own if there is one.

``python -m tests.serve_campaign.process serve`` is the process that can be ordered to die, as
``tests.campaign.launcher`` says, at the steps of one process.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from deploy.local.process import ChildProcess, free_port, import_path
from stream_metrics.cli import main
from stream_metrics.live.local import database
from stream_metrics.live.local.database import ReadOnlyDatabase
from stream_metrics.live.local.folder import database_of
from stream_metrics.live.local.log import Log
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS
from stream_metrics.live.local.traces import LocalEvents
from stream_metrics.live.worker.conversations import Conversations
from stream_metrics.live.worker.loop import Loop
from tests.campaign.clock import Clock, obey_clock
from tests.campaign.command import REPOSITORY
from tests.campaign.launcher import obey

STEPS: Final[dict[str, tuple[Any, str]]] = {
    "append": (Log, "append"),  # an acknowledged request is behind it
    "transaction": (database, "_together"),
    "claim": (LocalStore, "claim"),
    "load": (Conversations, "open"),
    "step": (Conversations, "apply"),
    "write": (LocalStore, "write"),
    "tell": (LocalEvents, "send"),  # the events of traces
    "commit": (Loop, "commit"),
    "trim": (Log, "trim"),
}
DISK_BYTES: Final = 512 << 20
ROOM_BYTES: Final = 200_000  # of each file, on a full disk without a file system of its own


class ServeProcess(ChildProcess):
    """The process, with fixed ports over restarts."""

    name = "serve"

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.data = folder / "data"
        self.orders, self.clock = folder / "orders", Clock(folder / "clock")
        self.page, self.receiver = free_port(), free_port()
        self.settings = {
            **settings,
            "STREAM_METRICS_SERVE__DATA": str(self.data),
            "STREAM_METRICS_WEB__PORT": str(self.page),
            "STREAM_METRICS_SERVE__OTLP_PORT": str(self.receiver),
            "PYTHONPATH": import_path(REPOSITORY),
        }
        self.most_rss_bytes = 0

    def command(self) -> list[str]:
        """See ``ChildProcess``."""
        return [sys.executable, "-m", "tests.serve_campaign.process", "serve"]

    def environment(self) -> Mapping[str, str]:
        """See ``ChildProcess``."""
        files = {"CAMPAIGN_ORDERS": str(self.orders), "CAMPAIGN_CLOCK": str(self.clock.file)}
        return {**self.settings, **files}

    async def ready(self) -> bool:
        """Whether it answers."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.get(f"http://127.0.0.1:{self.page}/healthz"),
            ):
                return True
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def has_read_all(self) -> bool:
        """Whether all that it has stored is in its state, of traces, too."""
        database = ReadOnlyDatabase(database_of(self.data))
        try:
            log = Log(database)
            return not (await log.backlog(SPANS) or await log.backlog(EVENTS))
        finally:
            await database.close()

    def note_memory(self) -> None:
        """Note how much memory it has used at most."""
        try:
            said = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return
        if found := re.search(r"VmHWM:\s+(\d+) kB", said):
            self.most_rss_bytes = max(self.most_rss_bytes, int(found[1]) << 10)


class Disk:
    """The disk of a process: a small ext4 file system if ``mounted``, else a limit of its files."""

    def __init__(self, process: ServeProcess, *, mounted: bool) -> None:
        self._process = process
        self._mounted = mounted
        self._filler = process.data / "filler"

    def make(self) -> None:
        """Make the folder of the data."""
        data = self._process.data
        data.mkdir(parents=True)
        if self._mounted:
            image = data.with_suffix(".ext4")
            with image.open("wb") as file:
                file.truncate(DISK_BYTES)
            run("mkfs.ext4", "-q", "-F", str(image))
            run("mount", "-o", "loop", str(image), str(data))
        data.chmod(0o700)

    def fill(self) -> None:
        """Let nothing more be written."""
        if not self._mounted:
            self._limit(ROOM_BYTES)  # a log that is written from its start again does not grow
            return
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4_096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Make room again."""
        if self._mounted:
            self._filler.unlink(missing_ok=True)
        else:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        if self._process.running:
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, -1))

    def make_read_only(self, *, read_only: bool) -> None:
        """Mount it so that it can only be read, or again as it was; for a mounted one."""
        how = "ro" if read_only else "rw"
        run("mount", "-o", f"remount,{how}", str(self._process.data))

    def end(self) -> None:
        """Take the disk away."""
        if self._mounted:
            run("umount", "-l", str(self._process.data))


def run(*command: str) -> None:
    """Run a command of the system."""
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    obey(Path(os.environ["CAMPAIGN_ORDERS"]), STEPS)
    obey_clock(Clock(Path(os.environ["CAMPAIGN_CLOCK"])))
    main()
