"""Attributes code to packages of the project and of libraries by its file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath

OURS = (
    "core/events", "core/dedup", "core/metrics", "core/engine", "clients/kafka", "live/worker",
    "live/kafka", "live/redis", "live/prometheus",
)  # fmt: skip
LIBRARIES = ("aiokafka", "redis", "prometheus_client")
OTHER = "other"


@lru_cache(maxsize=4096)
def package_of(file: str) -> str | None:
    """The package of a file, None for the standard library and other libraries.

    >>> package_of("/x/stream_metrics/core/dedup/pack.py"), package_of("/x/asyncio/events.py")
    ('core/dedup', None)
    """
    parts = PurePath(file).parts
    for at, part in enumerate(parts[:-1]):
        if part == "stream_metrics":
            package = "/".join(parts[at + 1 : at + 3])
            return package if package in OURS else "live/worker"
    if "site-packages" in parts:
        package = parts[parts.index("site-packages") + 1]
        return package if package in LIBRARIES else None
    return None


@lru_cache(maxsize=4096)
def short(file: str) -> str:
    """The last two parts of a path, so that reports have no paths of the machine."""
    return "/".join(PurePath(file).parts[-2:])
