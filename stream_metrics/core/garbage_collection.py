"""Tuning of Python's garbage collector.

The state of many conversations is many objects without reference cycles, which the collector would
scan again and again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (100_000, 20, 100)


def collect_rarely() -> None:
    """Make the collector of this process run rarely."""
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the collector during work of bounded size, and run it once afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if enabled:
            gc.enable()
