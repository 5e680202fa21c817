"""Replays that are killed at every possible point, and merged or read in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.merge_pieces import MERGING
from stream_metrics.lab.replay.report_files import PARTS
from stream_metrics.lab.replay.run import FOLDER, Execution, StrictError, run
from stream_metrics.lab.sources.files import read_records
from stream_metrics.lab.sources.recording import recording
from tests.helpers import rest_long
from tests.killed import AT_EVERY_MOMENT, Work, killed_at, moments_of, restore, states_at_moments
from tests.replays import (
    AT_ONCE,
    FILES,
    SPOOLED,
    RecordedProgress,
    files_of,
    merged,
    published,
    replayed,
    task,
    traffic,
)

STRATIFY = ("language", "agent", "route")
FEW_DRAWS = {"resamples": 20}


def replaying(records: Sequence[Record], out: Path, scale: Execution, **others: Any) -> Work:
    """A replay into ``out`` that calls ``moment`` before it reads each record."""

    def work(moment: Callable[[], None]) -> None:
        def read() -> Iterator[Record]:
            for record in records:
                moment()
                yield record

        run(task(read(), out, scale, evaluation=FEW_DRAWS, **others), RecordedProgress())

    return work


@pytest.mark.slow
@AT_EVERY_MOMENT
def test_a_replay_may_be_killed_at_every_moment(tmp_path: Path, every: bool) -> None:
    """It may be killed before each record, and before each file is opened, moved or deleted.

    The next replay writes the same files and leaves no others.
    """
    records, scale, out = traffic(12), Execution(small_records=0, note_bytes=5_000), tmp_path / "o"
    whole = replayed(records, tmp_path / "whole", AT_ONCE, evaluation=FEW_DRAWS)
    states = states_at_moments(replaying(records, out, scale), out, every=every)

    for state in states:
        restore(state, out)
        assert replayed(records, out, SPOOLED, evaluation=FEW_DRAWS) == whole
        assert {path.name for path in out.iterdir()} == {*FILES}


@pytest.mark.slow
def test_a_strict_replay_does_not_continue_a_lenient_one(tmp_path: Path) -> None:
    """It would otherwise not report the bad records that the lenient replay has read."""
    records, scale = [Record(b"bad"), *traffic(12)], Execution(small_records=0, note_bytes=5_000)
    lenient = replaying(records, tmp_path, scale)
    assert killed_at(moments_of(lenient, tmp_path) // 2, lenient, tmp_path)

    with pytest.raises(StrictError):
        run(task(records, tmp_path, scale, evaluation=FEW_DRAWS, strict=True), RecordedProgress())


@pytest.mark.slow
def test_a_merge_in_steps_may_be_killed(tmp_path: Path) -> None:
    """With more parts than open files, no part counts twice after a kill between two steps."""
    records, scale = many(), Execution(small_records=0, piece_bytes=150)
    whole = replayed(records, tmp_path / "whole", AT_ONCE, evaluation=FEW_DRAWS)
    out = tmp_path / "out"

    merging = out / FOLDER / MERGING
    replay = task(records, out, scale, evaluation=FEW_DRAWS)

    for moment in (3, 20, 25):
        assert killed_at(moment, lambda _: run(replay, RecordedProgress()), merging)
        assert merging.exists()

    told = RecordedProgress()
    run(replay, told)
    assert told.steps[0][1] > 256
    assert files_of(out) == whole
    assert {path.name for path in out.iterdir()} == {*FILES}


def many() -> list[Record]:
    """One search in each of 300 conversations, which fill hundreds of small pieces."""
    found = []
    for number in range(300):
        event = {
            "type": "search_iteration",
            "conversation_id": f"c{number}",
            "event_id": "e",
            "occurred_at": 1_742_284_800 + number,
            "turn": 1,
            "iteration": 1,
            "searches": [{"search_id": "s", "results": [{"result_id": "r", "gain": number % 5}]}],
        }
        found.append(Record(json.dumps(event).encode()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("processes", rest_long([2, 1, 3]))
def test_the_number_of_processes_does_not_change_the_files(processes: int, tmp_path: Path) -> None:
    """Nor Parquet, nor the page."""
    records, scale = traffic(150), Execution(processes, small_records=0)
    whole = replayed(records, tmp_path / "whole", AT_ONCE, stratify=STRATIFY)

    found = replayed(records, tmp_path / "found", scale, stratify=STRATIFY)
    assert published(tmp_path / "found") == published(tmp_path / "whole")
    assert found == whole


def test_the_number_of_inputs_does_not_change_the_files(tmp_path: Path) -> None:
    """Replays of several inputs are merged to that of all of them."""
    records = traffic(150)

    assert merged(records, tmp_path, 2, STRATIFY) == replayed(
        records, tmp_path / "whole", AT_ONCE, stratify=STRATIFY
    )


@pytest.mark.slow
@pytest.mark.parametrize("packed", rest_long(["jsonl", "jsonl.gz", "jsonl.zst", "parquet"]))
def test_the_order_of_input_files_does_not_matter(packed: str, tmp_path: Path) -> None:
    """Only the source and the lines of bad records depend on it."""
    names = [str(tmp_path / f"{number}.{packed}") for number in range(4)]
    records = [*traffic(100), Record(b"{", b"c", 1)]
    for number, name in enumerate(names):
        with recording(name) as out:
            for record in records[number::4]:
                out.write(record)
    shuffled = random.Random(5).sample(names, 4)

    first, second = (
        replayed(list(read_records(order)), tmp_path / str(at), SPOOLED, stratify=STRATIFY)
        for at, order in enumerate((names, shuffled))
    )

    assert shuffled != names
    assert without_lines(first) == without_lines(second)


def without_lines(files: dict[str, bytes]) -> dict[str, Any]:
    """The files without the lines of bad records."""
    report, parts = (json.loads(files[name]) for name in ("report.json", PARTS))
    for bad in report["bad_records"]["first"]:
        assert bad.pop("line") > 0
    for bad in parts["outcome"]["rejected"]:
        assert bad[0].pop() > 0
    return files | {"report.json": report, PARTS: parts}
