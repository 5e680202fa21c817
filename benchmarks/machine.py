"""What a figure was measured on: processor, versions, commit; nothing that names the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from deploy.local.install import JAVA, REDIS
from deploy.local.kafka.jars import kafka_version

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("aiokafka", "msgspec", "redis", "hiredis", "uvloop", "faust-streaming")


def describe() -> str:
    """A few lines for the head of a report."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    load = os.getloadavg()[0]
    return (
        f"machine   {_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()}; load {load:.1f} at the start\n"
        f"versions  Python {platform.python_version()}, {libraries}\n"
        f"servers   Kafka {kafka_version()} on Java {_word(JAVA.find(), '-version', 2)}, "
        f"Redis {_word(REDIS.find(), '--version', 2).removeprefix('v=')}\n"
        f"commit    {commit()}\n"
    )


def commit() -> str:
    """The commit, and whether files differ from it."""
    name = _run("git", "rev-parse", "--short", "HEAD").strip()
    if not name:
        return "unknown"
    changed = _run("git", "status", "--porcelain", "--", "stream_metrics").strip()
    return f"{name} with changes to stream_metrics" if changed else name


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _word(path: str | None, flag: str, place: int) -> str:
    """A word of what a program says about its version."""
    said = _run(path, flag).split() if path else []
    return said[place].strip('"') if len(said) > place else "unknown"


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""
