"""Describes the environment of a measurement: processor, versions, commit; no machine names."""

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
MEASURED = ("benchmarks", "deploy", "kernel", "stream_metrics")
"""Folders that a figure may depend on."""


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


def commit(root: Path = ROOT) -> str:
    """The commit, and the folders whose files differ from it, apart from reports."""
    name = _run("git", "rev-parse", "--short", "HEAD", root=root).strip()
    if not name:
        return "unknown"
    changed = [folder for folder in MEASURED if _changed(root, folder)]
    return f"{name} with changes to {', '.join(changed)}" if changed else name


def _changed(root: Path, folder: str) -> bool:
    kept = ":(exclude)benchmarks/results"
    return bool(_run("git", "status", "--porcelain", "--", folder, kept, root=root))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _word(path: str | None, flag: str, place: int) -> str:
    """A word of the output of a program that prints its version."""
    words = _run(path, flag).split() if path else []
    return words[place].strip('"') if len(words) > place else "unknown"


def _run(*command: str, root: Path = ROOT) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    except OSError:
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""
