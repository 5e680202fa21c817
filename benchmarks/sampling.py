"""A sampling profiler on CPU time: little distortion, and calls into C count for their caller.

Python takes note of a signal between two of its own instructions only. So a function of Python that
C code calls (a compiled module of ours, say) has the samples of that code until the call.
"""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType

from benchmarks.packages import OTHER, package_of, short

INTERVAL_SECONDS = 0.002


class Sampler:
    """Samples the main thread between ``start`` and ``stop``.

    Every 2 ms of CPU time, or at the next tick of a kernel that ticks more slowly.
    """

    def __init__(self) -> None:
        self.packages: Counter[str] = Counter()
        self.functions: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Start sampling."""
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def stop(self) -> None:
        """Stop sampling."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    def _note(self, _: int, frame: FrameType | None) -> None:
        """Count the package and the function of the innermost frame of a known package."""
        while frame is not None:
            code = frame.f_code
            package = package_of(code.co_filename)
            if package is not None:
                self.packages[package] += 1
                self.functions[package, f"{short(code.co_filename)} {code.co_qualname}"] += 1
                return
            frame = frame.f_back
        self.packages[OTHER] += 1

    def shares(self) -> dict[str, float]:
        """Each package's share of the samples, the largest first."""
        total = max(1, self.packages.total())
        return {package: count / total for package, count in self.packages.most_common()}

    def modules(self, count: int) -> list[tuple[str, float]]:
        """(file, share of all samples) of the files with most samples."""
        total = max(1, self.packages.total())
        files: Counter[str] = Counter()
        for (_, name), seen in self.functions.items():
            files[name.partition(" ")[0]] += seen
        return [(file, seen / total) for file, seen in files.most_common(count)]

    def top(self, count: int) -> list[tuple[str, str, float]]:
        """(package, function, share of all samples) of the functions with the most samples."""
        total = max(1, self.packages.total())
        return [
            (package, name, seen / total)
            for (package, name), seen in self.functions.most_common(count)
        ]
