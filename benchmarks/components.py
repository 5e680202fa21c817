"""Which room of the system a piece of code belongs to, by its file."""

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
def room_of(file: str) -> str | None:
    """The room of a file, None for Python's own library and for what is not ours.

    >>> room_of("/x/stream_metrics/core/dedup/pack.py"), room_of("/x/asyncio/events.py")
    ('core/dedup', None)
    """
    parts = PurePath(file).parts
    for at, part in enumerate(parts[:-1]):
        if part == "stream_metrics":
            room = "/".join(parts[at + 1 : at + 3])
            return room if room in OURS else "live/worker"
    if "site-packages" in parts:
        package = parts[parts.index("site-packages") + 1]
        return package if package in LIBRARIES else None
    return None


@lru_cache(maxsize=4096)
def short(file: str) -> str:
    """A file by its last two parts, so that no path of the machine shows."""
    return "/".join(PurePath(file).parts[-2:])
