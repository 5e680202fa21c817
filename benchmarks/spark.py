"""A replay on Apache Spark against one with two processes, in turn: ``make bench-spark``.

Both read the same recording of a topic as Parquet and write a report; Spark has two cores, and
divides the conversations among the partitions that it chooses, and among 1, 2 and 7 in turn.
``python -m benchmarks.spark SOURCE OUT PARTITIONS`` replays once on Spark (0: it chooses), and
prints one JSON object.
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
from benchmarks.figures import Figure, figures_table, ratios, section
from benchmarks.machine import describe
from benchmarks.ran import RAN
from benchmarks.replay import FILES, MIB, RECORDS, replayed, traffic
from stream_metrics.core.compiled import ENGINE
from stream_metrics.core.events.record import Record
from stream_metrics.lab.sources.recording import recording

CORES: Final = 2
PARTITIONS: Final = (0, 1, 2, 7)
DRIVER_MEMORY: Final = "4g"


def run(records: int, rounds: int) -> str:
    """Measure, and return the report."""
    two: list[float] = []
    spark: dict[int, list[dict[str, float]]] = {partitions: [] for partitions in PARTITIONS}
    with tempfile.TemporaryDirectory(prefix="spark-") as name:
        folder = Path(name)
        source = folder / "events.parquet"
        _write(source, records)
        same = True
        for _ in range(rounds):
            two.append(replayed(source, folder / "two", CORES).seconds)
            for partitions, found in spark.items():
                found.append(_child(source, folder / "spark", partitions))
                same &= all(
                    (folder / "spark" / file).read_bytes() == (folder / "two" / file).read_bytes()
                    for file in FILES
                )
        size = source.stat().st_size
    figures = [Figure("replay with two processes", two, "s")]
    for partitions, found in spark.items():
        whole = [sum(one.values()) for one in found]
        named = f"partitions: {partitions or 'its choice'}"
        figures += [
            Figure(f"replay on Spark, {named}", whole, "s"),
            *(Figure(f"  {step}", [one[step] for one in found], "s") for step in found[0]),
            Figure("  ÷ two processes", ratios(whole, two), ""),
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


def _child(source: Path, out: Path, partitions: int) -> dict[str, float]:
    return asyncio.run(child(["benchmarks.spark", str(source), str(out), str(partitions)]))


def replay_once(source: Path, out: Path, partitions: int) -> dict[str, float]:
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
    result = replay(
        session.read.parquet(str(source)), names=[source.name], partitions=partitions or None
    )
    result.rows.count()
    times.append(time.perf_counter())
    result.report(out, processes=CORES)
    times.append(time.perf_counter())
    session.stop()
    steps = ("start of Spark", "divide and compute", "fetch and merge")
    return {step: times[at + 1] - times[at] for at, step in enumerate(steps)}


def main() -> None:
    """Replay once, or measure."""
    if len(sys.argv) == 4 and not sys.argv[1].startswith("-"):
        source, out, partitions = sys.argv[1:]
        seconds = replay_once(Path(source), Path(out), int(partitions))
        print(json.dumps({**seconds, "engine": ENGINE}))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=1)
    chosen: Any = parser.parse_args()
    print(describe())
    print(run(chosen.records, chosen.rounds) + RAN.told())


if __name__ == "__main__":
    main()
