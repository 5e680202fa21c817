"""A replay of many events, with one process and two, killed and resumed: ``make bench-replay``.

The ceiling is msgspec's typed decode of the same file in one process, without anything else. Two
replays with one process each, at the same time, show what a second core adds on this machine.
``python -m benchmarks.replay SOURCE OUT OPTION …`` replays once, and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from subprocess import Popen
from typing import Final, NamedTuple

import msgspec

from benchmarks.ceiling import Event
from benchmarks.children import child
from benchmarks.figures import number, section, table
from benchmarks.workload import RECORDS_PER_CONVERSATION, SEED
from stream_metrics.lab.replay.manifest import load
from stream_metrics.lab.replay.report_files import PARTS
from stream_metrics.lab.replay.run import FOLDER
from stream_metrics.lab.reports.files import BUCKETS, QUERIES, RELEVANT, ROWS, TURNS
from stream_metrics.lab.sources.files import read_records
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.lab.traffic.profile import TrafficRecord

FILES: Final = (ROWS, QUERIES, RELEVANT, TURNS, BUCKETS, "windows.json", "report.json", PARTS)
RECORDS: Final = 1_000_000
START: Final = 1_742_284_800
PIECES_BEFORE_KILL: Final = 20
POLL_SECONDS: Final = 0.05
BRIEF: Final = ("--metric", "ndcg@10", "--no-generation")
MIB: Final = 1 << 20


class Ran(NamedTuple):
    """The cost of a command; ``rss_bytes`` is that of its largest process."""

    seconds: float
    cpu_seconds: float
    rss_bytes: int


def run(*, quick: bool = False, records: int | None = None) -> str:
    """Measure, and return the report."""
    count = records or (60_000 if quick else RECORDS)
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        source = Path(folder, "events.jsonl")
        write_recording(source, count)
        ceiling = ceiling_seconds(source)
        outs = {name: Path(folder, name) for name in ("one", "two", "killed")}
        one = replayed(source, outs["one"], 1)
        two = replayed(source, outs["two"], 2)
        brief = [replayed(source, Path(folder, f"brief-{n}"), n, *BRIEF) for n in (1, 2)]
        beside = _side_by_side(source, Path(folder))
        done = _kill(source, outs["killed"], 2)
        resumed = replayed(source, outs["killed"], 2)
        same = all(
            (out / name).read_bytes() == (outs["one"] / name).read_bytes()
            for out in outs.values()
            for name in FILES
        )
        size = source.stat().st_size
    head = ("", "seconds", "CPU seconds", "events/s", "of the ceiling", "largest process, MiB")
    rows = [head, ("ceiling", number(ceiling), "", number(count / ceiling), "", "")]
    for name, ran in (
        ("1 process", one),
        ("2 processes", two),
        ("1 process, brief", brief[0]),
        ("2 processes, brief", brief[1]),
        ("resumed", resumed),
    ):
        rate = count / ran.seconds
        rows.append(
            (
                name,
                number(ran.seconds),
                number(ran.cpu_seconds),
                number(rate) if ran is not resumed else "",
                number(rate * ceiling / count) if ran is not resumed else "",
                number(ran.rss_bytes / MIB),
            )
        )
    summary = (
        f"{count:,} records, {size / MIB:,.0f} MiB; two processes are "
        f"{number(one.seconds / two.seconds)} times as fast as one.\n"
        f"Two replays side by side, with one process each, take {number(beside)} s: a second core "
        f"makes this machine {number(2 * one.seconds / beside)} times as fast.\n"
        f"brief: with {' '.join(BRIEF)}.\n"
        f"Killed with {done} pieces done, resumed with the rest. "
        f"All files are {'the same bytes' if same else 'NOT THE SAME'}.\n"
    )
    return section("Replay", summary, table(rows, right=(1, 2, 3, 4, 5)))


def traffic(count: int) -> Iterator[TrafficRecord]:
    """The events that are replayed."""
    conversations = count // RECORDS_PER_CONVERSATION + 200
    profile = TrafficProfile(
        seed=SEED, conversations=conversations, start=START, duration_seconds=24 * 3_600
    )
    return islice(generate(profile), count)


def write_recording(path: Path, count: int) -> None:
    """Write seeded traffic, a record on each line."""
    with path.open("wb") as file:
        for record in traffic(count):
            file.write(record.value.replace(b"\n", b" ") + b"\n")


def ceiling_seconds(path: Path) -> float:
    """The CPU seconds of decoding a file, without anything else."""
    decode = msgspec.json.Decoder(Event).decode
    started = time.process_time()
    for record in read_records([str(path)]):
        try:
            decode(record.value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return time.process_time() - started


def _command(source: Path, out: Path, *options: str) -> Popen[bytes]:
    command = [sys.executable, "-m", "stream_metrics", "replay", str(source), "--out", str(out)]
    log = (out.parent / "log").open("ab")
    return Popen([*command, *options], stdout=log, stderr=log)


def replayed(source: Path, out: Path, processes: int, *options: str) -> Ran:
    """Replay, started by a small process: Linux counts the parent's peak in its child's."""
    return Ran(**asyncio.run(child(once(source, out, processes, *options))))


def once(source: Path, out: Path, processes: int, *options: str) -> list[str]:
    """The module, and the arguments with which it replays once."""
    return ["benchmarks.replay", str(source), str(out), "--processes", str(processes), *options]


def _side_by_side(source: Path, folder: Path) -> float:
    """The seconds that two replays with one process each take at the same time."""
    started = time.perf_counter()
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(replayed, source, folder / n, 1) for n in ("left", "right")]
        for one in running:
            one.result()
    return time.perf_counter() - started


def _kill(source: Path, out: Path, processes: int) -> int:
    """Begin a replay, kill it while it computes, and say how many pieces were done."""
    command = _command(source, out, "--processes", str(processes))
    while sum(1 for _ in _done(out)) < PIECES_BEFORE_KILL and command.poll() is None:
        time.sleep(POLL_SECONDS)
    command.kill()
    command.wait()
    manifest = load(out / FOLDER)
    if manifest is None or not manifest.whole:
        raise RuntimeError("the replay was over before it could be killed: take more records")
    return sum(1 for _ in _done(out))


def _done(out: Path) -> Iterator[Path]:
    return (out / FOLDER).glob("piece-???-????-of-????.json")


def main() -> None:
    """Replay once."""
    source, out, *options = sys.argv[1:]
    started = time.perf_counter()
    status = _command(Path(source), Path(out), *options).wait()
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit((Path(out).parent / "log").read_text())
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = Ran(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
    engine = json.loads(Path(out, "run.json").read_bytes())["engine"]
    print(json.dumps({**ran._asdict(), "engine": engine}))


if __name__ == "__main__":
    main()
