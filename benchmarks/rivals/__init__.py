"""Tools side by side, each in a process of its own with the libraries of its own environment.

This file and ``linux`` are all that both ends share, and need nothing but Python's library.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from subprocess import PIPE, Popen, run
from types import TracebackType
from typing import Any, Final, NamedTuple

from benchmarks.linux import peak_bytes

ROOT: Final = Path(__file__).resolve().parents[2]
PEERS: Final = ROOT / ".venv" / "peers" / "bin" / "python"
MIB: Final = 1 << 20

Answer = dict[str, Any]


def peer_versions(libraries: Iterable[str]) -> str:
    """Which versions of them the peers' environment has; ends the benchmark if there is none."""
    if not PEERS.exists():
        raise SystemExit("the peers are not installed: run make peers")
    asked = [str(PEERS), "-m", "benchmarks.peers.versions", *libraries]
    said = run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return ", ".join(f"{name} {found}" for name, found in json.loads(said).items())


class Measurement(NamedTuple):
    """The cost of a call and its result; ``rss_bytes`` is the process's peak so far."""

    seconds: float
    cpu_seconds: float
    rss_bytes: int
    found: Any


class Rival:
    """A process that runs a module and answers questions, one at a time."""

    def __init__(
        self,
        module: str,
        *,
        python: Path | str = sys.executable,
        environment: Mapping[str, str] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        """``note`` is told the engine that ran, where the module ran ours."""
        self._note = note
        self._process = Popen(
            [str(python), "-m", module],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=PIPE,
            stdout=PIPE,
            text=True,
        )

    def __enter__(self) -> Rival:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()

    def ask(self, what: str, **options: Any) -> Measurement:
        """Call one of the functions that the module serves.

        Raises:
            RuntimeError: The process ended; it has said why on standard error.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps({"what": what, "options": options}) + "\n")
        asked.flush()
        line = answers.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        answer = json.loads(line)
        engine = answer.pop("engine")
        if engine is not None and self._note is not None:
            self._note(engine)
            self._note = None
        return Measurement(**answer)


def serve(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Answer questions on standard input until it ends: the other end of ``Rival``."""
    for line in sys.stdin:
        asked = json.loads(line)
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        found = functions[asked["what"]](**asked["options"])
        measured = Measurement(
            time.perf_counter() - wall, time.process_time() - cpu, peak_bytes(), found
        )
        # Imported or not by the functions: the peers' environment does not have it.
        engine = getattr(sys.modules.get("stream_metrics.core.compiled"), "ENGINE", None)
        print(json.dumps({**measured._asdict(), "engine": engine}), flush=True)
