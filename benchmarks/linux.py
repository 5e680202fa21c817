"""Reads the memory and CPU time of a process from ``/proc``.

Rivals have this file, too, so that it needs nothing but Python's library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident bytes of a process, and the CPU seconds that it has used so far."""

    rss_bytes: int
    cpu_seconds: float


def usage(pid: int) -> Usage:
    """The usage of a process by ``/proc``."""
    times = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = int(times[11]) + int(times[12])  # in user mode and in the kernel
    return Usage(_status_bytes(pid, "VmRSS"), ticks / os.sysconf("SC_CLK_TCK"))


def peak_bytes() -> int:
    """The peak memory of this process; that of ``getrusage`` includes its parent's at the fork."""
    return _status_bytes("self", "VmHWM")


def _status_bytes(pid: int | str, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:"))
    return 1024 * int(found)
