"""Replays as the tests run them: records in memory, every file of the report as bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from stream_metrics.core.dedup.tables import newest
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.row import canonical
from stream_metrics.core.engine.window import DEFAULT_WINDOWS
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.choices import RESAMPLES, SEED
from stream_metrics.lab.evaluation.recorded_searches import Scoring
from stream_metrics.lab.replay.outcome import ReplayOptions
from stream_metrics.lab.replay.report_files import PARTS, merge
from stream_metrics.lab.replay.run import Execution, ReplaySource, ReplayTask, run
from stream_metrics.lab.replay.spool import spool_key
from stream_metrics.lab.reports.files import BUCKETS, PARQUET, QUERIES, RELEVANT, ROWS, TURNS
from stream_metrics.lab.reports.html.report import PAGE, write_report_page
from stream_metrics.lab.reports.row_parquet import write_row_parquet
from stream_metrics.lab.sources.files import FileRange, file_ranges
from stream_metrics.lab.sources.place import LocatedRecord
from stream_metrics.lab.sources.unchanged import InputFile
from stream_metrics.lab.traffic import TrafficProfile, generate

FILES = (ROWS, BUCKETS, QUERIES, RELEVANT, TURNS, "windows.json", "report.json", PARTS)
METRICS = ("ndcg@10", "recall@2", "mrr")
CONFIG: dict[str, Any] = {
    "dedup": {"tables": newest().number},
    "metrics": {"dimension": "agent", "agents": [], "routes": [], "good_gain": 2},
    "evaluation": {
        "metrics": list(METRICS),
        "graded_relevance": True,
        "rel": 1.0,
        "token_overlap": 0.3,
        "confidence_intervals": True,
        "interval": "percentile",
        "confidence": 0.95,
        "resamples": RESAMPLES,
        "seed": SEED,
    },
}
AT_ONCE = Execution(small_records=1_000_000)
SPOOLED = Execution(small_records=0)
IN_PARTS = Execution(small_records=0, piece_bytes=1_000, note_bytes=1)


def ranges_of(paths: Iterable[str], range_bytes: int) -> list[FileRange]:
    """The ranges of the files at these paths as they are now."""
    return file_ranges(map(InputFile.at, paths), range_bytes)


def overwrite(path: str | Path) -> None:
    """Overwrite the second half of a file, which keeps its size."""
    size = os.stat(path).st_size
    with open(path, "r+b") as file:
        file.seek(size // 2)
        file.write(b"-" * (size - size // 2))
    os.utime(path, ns=(0, 0))  # a clock may be too coarse to tell this from its creation


class RecordedProgress:
    """Records the progress of a replay."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def note(self, text: str) -> None:
        """Keep a note."""
        self.notes.append(text)

    def read(self, records: int) -> None:
        """Ignore."""

    def computed(self, pieces: int, of: int) -> None:
        """Keep a step."""
        self.steps.append((pieces, of))

    def merging(self) -> None:
        """Nothing is kept of merging."""


def options(
    turn_scope: str = "last", now_us: int | None = None, config: dict[str, Any] = CONFIG
) -> ReplayOptions:
    """The settings that the tests use."""
    scoring = Scoring.of(config["evaluation"], config["metrics"]["good_gain"])
    return ReplayOptions(
        EngineConfig(), turn_scope, (), (), DEFAULT_WINDOWS, now_us, scoring=scoring
    )


def task(
    records: Iterable[Record | LocatedRecord],
    out: Path,
    scale: Execution,
    *,
    turn_scope: str = "last",
    identity: Sequence[Any] | None = ("test",),
    metrics: Sequence[str] = METRICS,
    evaluation: dict[str, Any] | None = None,
    **others: Any,
) -> ReplayTask:
    """A replay of ``records`` into ``out``."""
    chosen_evaluation = {**CONFIG["evaluation"], "metrics": list(metrics), **(evaluation or {})}
    config = {**CONFIG, "evaluation": chosen_evaluation}
    out.mkdir(parents=True, exist_ok=True)
    source = ReplaySource(["test"], identity, lambda: located(records))
    chosen = options(turn_scope, config=config)
    return ReplayTask(source, chosen, out, config, scale=scale, **others)


def located(records: Iterable[Record | LocatedRecord]) -> Generator[LocatedRecord, None, None]:
    """The records, those without a place as records of one source."""
    for number, record in enumerate(records, 1):
        yield ("test", number, record) if isinstance(record, Record) else record


def replayed_in_shares(
    records: Iterable[Record], folder: Path, shares: int, **others: Any
) -> list[Path]:
    """The directories of replays of ``shares`` inputs, among which conversations are divided."""
    whole = list(located(records))
    directories = [folder / f"share-{index}" for index in range(shares)]
    for index, directory in enumerate(directories):
        share = [one for one in whole if spool_key(one[2], one[1], Limits()).part % shares == index]
        source = ReplaySource(["test"], None, partial(_each, share))
        run(replace(task([], directory, AT_ONCE, **others), source=source), RecordedProgress())
    return directories


def merged(
    records: Iterable[Record],
    folder: Path,
    shares: int,
    stratify: Sequence[str] = (),
    **others: Any,
) -> dict[str, bytes]:
    """The files of the merged replays of ``replayed_in_shares``.

    Their source is that of one replay of all records.
    """
    directories = replayed_in_shares(records, folder, shares, **others)
    (folder / "merged").mkdir()
    merge(directories, folder / "merged", stratify)
    files = files_of(folder / "merged")
    for name in ("report.json", PARTS):
        content = json.loads(files[name])
        assert content["source"] == ["test"] * shares
        files[name] = canonical({**content, "source": ["test"]}).encode() + b"\n"
    return files


def _each(records: Iterable[LocatedRecord]) -> Generator[LocatedRecord, None, None]:
    yield from records


def files_of(directory: Path) -> dict[str, bytes]:
    """What a replay has written, but for what tells of the run."""
    return {name: (directory / name).read_bytes() for name in FILES}


def published(directory: Path) -> dict[str, bytes]:
    """The same, and what is made of it besides: Parquet and the page."""
    write_row_parquet(directory)
    write_report_page(directory)
    beside = {name: (directory / name).read_bytes() for name in (PARQUET, PAGE)}
    return files_of(directory) | beside


def replayed(
    records: Iterable[Record | LocatedRecord], out: Path, scale: Execution, **others: Any
) -> dict[str, bytes]:
    """Replay, and the files that it has written."""
    run(task(records, out, scale, **others), RecordedProgress())
    return files_of(out)


def traffic(count: int = 600) -> list[Record]:
    """Seeded traffic, always the same."""
    return list(_traffic(count))


@cache
def _traffic(count: int) -> tuple[Record, ...]:
    profile = TrafficProfile(seed=3, conversations=80, start=1_742_284_800, duration_seconds=600)
    return tuple(Record(r.value, r.key, r.timestamp_ms) for r in islice(generate(profile), count))
