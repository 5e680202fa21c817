"""``python -m benchmarks.versus OTHER PART ...``: the speed of this checkout relative to another.

Both must be set up (``make kernel``). Each round runs each part once in either checkout, in turns
of changing order, so that a machine that gets slower slows down both. The speed ratio of a figure
is that of this checkout to the other: 1.10 is 10% faster here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path
from statistics import fmean

from benchmarks.figures import section, table
from benchmarks.machine import describe
from stream_metrics.lab.statistics.by_values import calculate_confidence_interval

HERE = Path(__file__).resolve().parent.parent
ROW = re.compile(r"(?P<what>\S.*?) {2,}(?P<value>[\d,.]+)  (?P<unit>\S+)(?: {2,}.*)?")
TIMES = ("µs", "ms", "s")


def main() -> None:
    """Run the parts in both checkouts, and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("parts", nargs="+", help="such as cost, bridge, live")
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    for at in range(chosen.rounds):
        for part in chosen.parts:
            pair = (chosen.other, HERE)
            found = {root: figures(root, part) for root in (pair if at % 2 else pair[::-1])}
            before, now = found[chosen.other], found[HERE]
            for what in before.keys() & now.keys():
                (old, unit), (new, _) = before[what], now[what]
                ratio = old / new if unit in TIMES else new / old
                ratios.setdefault(f"{part}: {what}", []).append(ratio)
        print(f"round {at + 1} of {chosen.rounds}", flush=True)
    rows = [("", "speed ratio", "95% interval", "n")]
    for what, values in sorted(ratios.items()):
        low, high = calculate_confidence_interval(values)
        spread = f"{low:.3f} to {high:.3f}" if len(values) > 1 else ""
        rows.append((what, f"{fmean(values):.3f}", spread, str(len(values))))
    title = f"versus: this checkout relative to {commit(chosen.other)}"
    print(describe() + "\n" + section(title, table(rows, right=(1, 3))))


def figures(root: Path, part: str) -> dict[str, tuple[float, str]]:
    """The figures with a unit that one round of a part prints: by name, the value and the unit."""
    path = os.pathsep.join(map(str, (root / ".venv" / "compiled", root, root / "client" / "src")))
    done = subprocess.run(
        [root / ".venv" / "bin" / "python", "-m", "benchmarks", part, "--rounds", "1"],
        cwd=root, env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": path},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
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
