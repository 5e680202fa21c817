"""Replay a recording and print the CPU seconds of each part as a JSON object.

``python benchmarks/stacks.py SOURCE OUT`` runs on its own, also with the code of another checkout.
It samples the stack after every 2 ms of CPU time, or when compiled code that takes longer returns.
The time since the last sample counts for the part that the stack belongs to.
"""

import json
import signal
import sys
import time
from types import FrameType

INTERVAL_SECONDS = 0.002
STAGES = {
    "reading": ("_index", "_spool"),
    "pieces": ("compute", "_compute", "_computed"),
    "merging": ("write_report_of_pieces", "finish_merged"),
    "page": ("write_report_page",),
}
"""The outermost of these functions says which stage a sample belongs to."""
PARTS = {
    "pieces": {
        "decoding and digests": ("Replay.feed",),
        "notes of each event": ("Replay._note",),
        "the engine's step": ("Replay.flush",),
        "records read": ("SpooledRecords.each", "OnDisk.each"),
        "records read again": (
            "Recorded._payload", "Recorded.value_of", "conversations_with_events",
        ),
        "answers": ("answered_turns", "_of_turns"),
        "searches": ("recorded_searches", "_of_searches"),
    },
    "merging": {
        "intervals of searches": ("_submit_block.<locals>.block", "_begun.<locals>.block"),
        "buckets": ("_merged_buckets",),
    },
}  # fmt: skip
"""Inside a stage, the innermost of these says which part.

Some of these functions have other names in older commits.
"""


def part_of(names: list[str]) -> str:
    """The part that a stack belongs to, whose functions are named from the outermost on."""
    for stage, functions in STAGES.items():
        if any(name in functions for name in names):
            for name in reversed(names):
                for part, inner in PARTS.get(stage, {}).items():
                    if name in inner:
                        return f"{stage}: {part}"
            return stage
    return "start and end"


def main() -> None:
    """Replay and print what was sampled."""
    source, out = sys.argv[1:]
    found: dict[str, float] = {}
    last = 0.0

    def note(_: int, frame: FrameType | None) -> None:
        nonlocal last
        names = []
        while frame is not None:
            names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        part, now = part_of(names[::-1]), time.process_time()
        found[part] = found.get(part, 0.0) + now - last
        last = now

    signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)
    from stream_metrics.cli import main as command  # importing it is part of the start

    sys.argv = ["stream-metrics", "replay", source, "--out", out, "--processes", "1"]
    try:
        command()
    except SystemExit as ended:
        if ended.code:
            raise
    signal.setitimer(signal.ITIMER_PROF, 0)
    from stream_metrics.core.compiled import ENGINE

    print(json.dumps({"engine": ENGINE, "seconds": found}))


if __name__ == "__main__":
    main()
