"""``python -m benchmarks.versus OTHER PART ...``: the speed of this checkout relative to another.

Both must be set up (``make kernel``). Each round runs each part once in either checkout, in turns
of changing order, so that a machine that gets slower slows down both. In ``live``, the workers of
both checkouts read the same topics of one broker, a few seconds apart. The speed ratio of a figure
is that of this checkout to the other: 1.10 is 10% faster here. A run that fails or is interrupted
prints the ratios of the rounds that are done.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from uuid import uuid4

from benchmarks.children import environment_of, worker
from benchmarks.figures import section, table
from benchmarks.machine import ROOT, describe
from benchmarks.ran import Engines
from benchmarks.servers import Servers, redis_cpu_seconds, servers
from benchmarks.workload import traffic
from stream_metrics.lab.statistics.by_values import calculate_confidence_interval

Figures = dict[str, tuple[float, str]]  # by name, the value and the unit

LIVE = "live"
LIVE_RECORDS = 30_000
ROW = re.compile(r"(?P<what>\S.*?) {2,}(?P<value>[\d,.]+)  (?P<unit>\S+)(?: {2,}.*)?")
TIMES = ("µs", "ms", "s")
RAN = re.compile(r"^engine    (.*), as each process said", re.M)


def main() -> None:
    """Run the parts in both checkouts, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("parts", nargs="+", help="such as cost, bridge, live")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--each", type=int, default=1,
        help="the rounds of a part in one run, whose median is taken; not of live",
    )  # fmt: skip
    chosen = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    other = chosen.other.resolve()
    engines = {root: Engines() for root in (ROOT, other)}
    try:
        asyncio.run(compare(other, chosen.parts, chosen.rounds, ratios, chosen.each, engines))
    finally:
        print(report(ratios, commit(chosen.other)))
        print(f"this checkout: {engines[ROOT].told()}the other: {engines[other].told()}", end="")


def report(ratios: dict[str, list[float]], other: str) -> str:
    """The machine, and a table of the mean ratios with their intervals."""
    rows = [("", "speed ratio", "95% interval", "n")]
    for what, values in sorted(ratios.items()):
        low, high = calculate_confidence_interval(values)
        spread = f"{low:.3f} to {high:.3f}" if len(values) > 1 else ""
        rows.append((what, f"{fmean(values):.3f}", spread, str(len(values))))
    title = f"versus: this checkout relative to {other}"
    return describe() + "\n" + section(title, table(rows, right=(1, 3)))


async def compare(
    other: Path,
    parts: Sequence[str],
    rounds: int,
    ratios: dict[str, list[float]],
    each: int,
    engines: Mapping[Path, Engines],
) -> None:
    """Add the ratios of each round, by part and figure, and note the engine of each checkout."""
    async with servers(traffic(LIVE_RECORDS)) if LIVE in parts else nullcontext() as running:
        for at in range(rounds):
            for part in parts:
                found: dict[Path, Figures] = {}
                for root in (other, ROOT) if at % 2 else (ROOT, other):
                    if part == LIVE:
                        assert running is not None
                        found[root] = await live(running, root, engines[root])
                    else:
                        found[root] = figures(root, part, each, engines[root])
                before, now = found[other], found[ROOT]
                for what in before.keys() & now.keys():
                    (old, unit), (new, _) = before[what], now[what]
                    ratio = old / new if unit in TIMES else new / old
                    ratios.setdefault(f"{part}: {what}", []).append(ratio)
            print(f"round {at + 1} of {rounds}", flush=True)


async def live(running: Servers, root: Path, engines: Engines) -> Figures:
    """What reading all records costs a worker of a checkout and Redis."""
    await running.client.flushall()
    before = await redis_cpu_seconds(running.client)
    group = f"versus-{uuid4().hex}"
    worked = await worker(running, LIVE_RECORDS, group, root=root, ran=engines)
    redis = await redis_cpu_seconds(running.client) - before
    return {
        "CPU of the worker": (worked["cpu"], "s"),
        "time by the clock": (worked["wall"], "s"),
        "Redis's own CPU": (redis, "s"),
    }


def figures(root: Path, part: str, rounds: int, engines: Engines) -> Figures:
    """The figures with a unit that a part prints: by name, the median and the unit."""
    done = subprocess.run(
        [root / ".venv" / "bin" / "python", "-m", "benchmarks", part, "--rounds", str(rounds)],
        cwd=root, env=os.environ | environment_of(root),
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    if ran := RAN.search(done.stdout):
        engines.note(ran[1])
    rows = (ROW.fullmatch(line.strip()) for line in done.stdout.splitlines())
    return {
        row["what"]: (float(row["value"].replace(",", "")), row["unit"])
        for row in rows
        if row and row["unit"].strip("0123456789.,")
    }


def commit(root: Path) -> str:
    """The commit of a checkout."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%h"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
