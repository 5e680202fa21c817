"""A replay on Apache Spark against one with two processes, in turn: ``make bench-spark``.

Both read the same recording of a topic as Parquet and write a report; Spark has two cores.
``python -m benchmarks.spark SOURCE OUT`` replays once on Spark, and prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.children import child
from benchmarks.figures import Figure, figures_table, section
from benchmarks.machine import describe
from benchmarks.replay import FILES, MIB, RECORDS, replayed, traffic
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.recording import recording

CORES: Final = 2
DRIVER_MEMORY: Final = "4g"


def run(records: int, rounds: int) -> str:
    """Measure, and return the report."""
    two: list[float] = []
    spark: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        folder = Path(name)
        source = folder / "events.parquet"
        _write(source, records)
        same = True
        for _ in range(rounds):
            two.append(replayed(source, folder / "two", CORES).seconds)
            spark.append(_child(source, folder / "spark"))
            same &= all(
                (folder / "spark" / file).read_bytes() == (folder / "two" / file).read_bytes()
                for file in FILES
            )
        size = source.stat().st_size
    steps = {step: [one[step] for one in spark] for step in spark[0]}
    whole = [sum(one.values()) for one in spark]
    ratios = [one / other for one, other in zip(whole, two, strict=True)]
    figures = [
        Figure("replay with two processes", two, "s"),
        Figure("replay on Spark with two cores", whole, "s"),
        *(Figure(f"  {step}", values, "s") for step, values in steps.items()),
        Figure("Spark / two processes", ratios, ""),
    ]
    summary = (
        f"{records:,} records, {size / MIB:,.0f} MiB of Parquet. "
        f"All files are {'the same bytes' if same else 'NOT THE SAME'}.\n"
    )
    return section("Replay on Spark", summary, figures_table(figures))


def _write(path: Path, count: int) -> None:
    with recording(str(path)) as out:
        for offset, record in enumerate(traffic(count)):
            out.write(Record(record.value, record.key, record.timestamp_ms, "events", 0, offset))


def _child(source: Path, out: Path) -> dict[str, float]:
    return asyncio.run(child(["benchmarks.spark", str(source), str(out)]))


def replay_once(source: Path, out: Path) -> dict[str, float]:
    """Replay on Spark; the seconds of each step."""
    times = [time.perf_counter()]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from stream_metrics.spark import replay

    session = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.local.dir", str(out.parent))
        .getOrCreate()
    )
    times.append(time.perf_counter())
    result = replay(session.read.parquet(str(source)), names=[source.name])
    result.rows.count()
    times.append(time.perf_counter())
    result.report(out, processes=CORES)
    times.append(time.perf_counter())
    session.stop()
    steps = ("start of Spark", "divide and compute", "fetch and merge")
    return {step: times[at + 1] - times[at] for at, step in enumerate(steps)}


def main() -> None:
    """Replay once, or measure."""
    if len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        print(json.dumps(replay_once(Path(sys.argv[1]), Path(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=3)
    chosen: Any = parser.parse_args()
    print(describe())
    print(run(chosen.records, chosen.rounds))


if __name__ == "__main__":
    main()
