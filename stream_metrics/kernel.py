"""The compiled kernel, if it is installed: the same results as the Python code, sooner.

``stream-metrics-kernel`` (the folder ``kernel``) is a package of its own, so that installing
``stream-metrics`` needs no compiler. Each user of the kernel has a Python twin beside it; tests
hold the two equal. ``STREAM_METRICS_KERNEL=python`` in the environment leaves the kernel aside.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Final

INTERFACE: Final = 4  # of the kernel; one built for another version is not used


def _load() -> ModuleType | None:
    chosen = os.environ.get("STREAM_METRICS_KERNEL", "")
    if chosen == "python":
        return None
    if chosen:
        raise ImportError(
            f"STREAM_METRICS_KERNEL is {chosen!r}; set it to python, or leave it unset"
        )
    try:
        import stream_metrics_kernel
    except ModuleNotFoundError:  # one that is there and cannot be loaded is worth an error
        return None
    found: ModuleType = stream_metrics_kernel
    if getattr(found, "INTERFACE", None) != INTERFACE:
        raise ImportError(
            "stream-metrics-kernel is from another release than stream-metrics. Install both from "
            "the same release (make kernel), or set STREAM_METRICS_KERNEL=python to use Python code"
        )
    return found


kernel: Final = _load()
