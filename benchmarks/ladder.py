"""``python -m benchmarks.ladder OTHER``: what each part of a replay costs here and in OTHER.

Both checkouts must be set up (``make kernel``). Each round replays the same recording once with
either of them, in turns of changing order.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.children import environment_of
from benchmarks.figures import number, section, table
from benchmarks.machine import ROOT, describe
from benchmarks.ran import Engines
from benchmarks.replay import write_recording
from benchmarks.versus import commit

RECORDS = 200_000
STACKS = Path(__file__).with_name("stacks.py")


def main() -> None:
    """Run the rounds, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ladder", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=RECORDS)
    chosen = parser.parse_args()
    other = chosen.other.resolve()
    found: dict[Path, list[dict[str, float]]] = {other: [], ROOT: []}
    engines = {root: Engines() for root in found}
    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        source = Path(folder, "events.jsonl")
        write_recording(source, chosen.records)
        for at in range(chosen.rounds):
            for root in (other, ROOT) if at % 2 else (ROOT, other):
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    found[root].append(sampled(root, source, Path(out), engines[root]))
            print(f"round {at + 1} of {chosen.rounds}", flush=True)
    print(describe())
    print(report(found[other], found[ROOT], commit(other), chosen.records))
    print(f"{commit(other)}:{engines[other].told()}this checkout:{engines[ROOT].told()}", end="")


def sampled(root: Path, source: Path, out: Path, engines: Engines) -> dict[str, float]:
    """The CPU seconds of each part of a replay with the code of a checkout; notes its engine."""
    done = subprocess.run(
        [root / ".venv" / "bin" / "python", STACKS, source, out],
        cwd=root, env=os.environ | environment_of(root),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    found = json.loads(done.stdout.splitlines()[-1])
    engines.note(found["engine"])
    seconds: dict[str, float] = found["seconds"]
    return seconds


def report(
    before: list[dict[str, float]], now: list[dict[str, float]], other: str, records: int
) -> str:
    """A table of the medians in µs an event, with the least and the most."""
    names = sorted({name for one in (*before, *now) for name in one})
    rows = [("CPU µs an event", other, "this checkout")]
    for name in names:
        old, new = ([one.get(name, 0.0) for one in runs] for runs in (before, now))
        rows.append((name, _spread(old, records), _spread(new, records)))
    old, new = ([sum(one.values()) for one in runs] for runs in (before, now))
    rows.append(("together", _spread(old, records), _spread(new, records)))
    summary = f"{records:,} records, one process, {len(now)} rounds: median (least to most)\n"
    return section("ladder: the parts of a replay", summary, table(rows, right=(1, 2)))


def _spread(seconds: list[float], records: int) -> str:
    values = [1e6 * one / records for one in seconds]
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


if __name__ == "__main__":
    main()
