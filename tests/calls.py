"""``python -m tests.calls``: the number of Python and C function calls per event, as JSON.

In this process over the memory store: decode, step, encode, write. Calls are counted, not allocated
blocks: what is freed at once leaves no block behind, and calls are the same in every run as long as
the order of sets is (``PYTHONHASHSEED``). What the kernel does inside is one call. It counts the
sources only, as calls from one compiled module to another are not seen.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import Counter
from types import FrameType
from typing import Any, Final

from benchmarks.inprocess import InProcess
from stream_metrics.core.compiled import MODULES
from tests.counts import records

FIRST: Final = 1_000  # fill caches
COUNTED: Final = 2_000
BATCH: Final = 500


async def calls() -> dict[str, float]:
    """Calls per event, by kind."""
    assert not MODULES, "compiled modules are on the path"
    sent = records(FIRST + COUNTED)
    path = await InProcess().open()
    await path.process(sent[:FIRST])
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        found[event] += 1

    gc.disable()  # finalisers run when it comes, which is not an event's work
    sys.setprofile(note)
    for start in range(FIRST, FIRST + COUNTED, BATCH):
        await path.process(sent[start : start + BATCH])
    sys.setprofile(None)
    return {kind: found[kind] / COUNTED for kind in ("call", "c_call")}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(calls())))
