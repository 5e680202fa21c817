"""``python -m tests.fuzz [TARGET …] --seconds N``: fuzz each target for some time.

Each target runs in its own process, with limits of memory and of time per input. An input that
breaks a target is written to ``out/fuzz`` and printed, and the exit code is 1; add it to
``corpus/TARGET`` when the target is fixed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS

HERE = Path(__file__).parent
OUT = Path("out/fuzz")
MEMORY_MB = 2_048
ONE_INPUT_SECONDS = 10
LONGEST_BYTES = 8_192


def main() -> int:
    """Fuzz, and say what was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    broken = 0
    for name in chosen.targets or TARGETS:
        found = OUT / name
        found.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.fuzz.guided", name),
                *(str(found), str(HERE / "corpus" / name)),  # new inputs go to the first
                *(f"-dict={HERE / 'words.dict'}", f"-artifact_prefix={found}/broken-"),
                *(f"-max_total_time={chosen.seconds}", f"-timeout={ONE_INPUT_SECONDS}"),
                *(f"-rss_limit_mb={MEMORY_MB}", f"-max_len={LONGEST_BYTES}"),
                *(f"-seed={chosen.seed}", "-print_final_stats=1"),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stdout)
        verdict = "holds" if done.returncode == 0 else "BROKEN"
        print(f"{name:10} {int(runs[1]) if runs else 0:>10,} inputs  {verdict}", flush=True)
        if done.returncode:
            broken += 1
            print(done.stdout[-4_000:])
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
