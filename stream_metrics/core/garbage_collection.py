"""How often Python's garbage collector looks for cycles.

The state of many conversations is many objects without cycles, which the collector would go through
again and again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (100_000, 20, 100)


def collect_rarely() -> None:
    """Let the collector of this process come seldom."""
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let the collector look at what work of bounded size has left behind, and not before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if enabled:
            gc.enable()
