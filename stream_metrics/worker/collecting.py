"""How often Python's garbage collector looks for cycles.

The state of many conversations is many objects without cycles, which the collector would go through
again and again.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (100_000, 20, 100)


def collect_seldom() -> None:
    """Let the collector of this process come seldom."""
    gc.set_threshold(*THRESHOLDS)
