"""A sampling profiler on CPU time: little distortion, and calls into C count for their caller.

Python takes note of a signal between two of its own instructions only. So a function of Python that
C code calls (a compiled module of ours, say) has the samples of that code until the call.
"""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType

from benchmarks.components import OTHER, room_of, short

INTERVAL_SECONDS = 0.002


class Sampler:
    """Between ``start`` and ``stop``, notes what runs, in the main thread only.

    Every 2 ms of CPU time, or at the next tick of a kernel that ticks more slowly.
    """

    def __init__(self) -> None:
        self.rooms: Counter[str] = Counter()
        self.functions: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Begin."""
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def stop(self) -> None:
        """End."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _note(self, _: int, frame: FrameType | None) -> None:
        """Count the innermost frame that belongs to a room, and what it was doing there."""
        while frame is not None:
            code = frame.f_code
            room = room_of(code.co_filename)
            if room is not None:
                self.rooms[room] += 1
                self.functions[room, f"{short(code.co_filename)} {code.co_qualname}"] += 1
                return
            frame = frame.f_back
        self.rooms[OTHER] += 1

    def shares(self) -> dict[str, float]:
        """Each room's share of the samples, the largest first."""
        total = max(1, self.rooms.total())
        return {room: count / total for room, count in self.rooms.most_common()}

    def modules(self, count: int) -> list[tuple[str, float]]:
        """(file, share of all samples) of the files with most samples."""
        total = max(1, self.rooms.total())
        files: Counter[str] = Counter()
        for (_, name), seen in self.functions.items():
            files[name.partition(" ")[0]] += seen
        return [(file, seen / total) for file, seen in files.most_common(count)]

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """(room, function, share of all samples) of the functions with most samples."""
        total = max(1, self.rooms.total())
        return [
            (room, name, seen / total) for (room, name), seen in self.functions.most_common(count)
        ]
