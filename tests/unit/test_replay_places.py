"""Replays of plain files, whose records are read where they are instead of being copied."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest

from stream_metrics.lab.replay.run import FOLDER, Execution, ReplayTask, run
from stream_metrics.lab.sources.files import numbered_records, record_line
from stream_metrics.lab.sources.place import LocatedRecord
from stream_metrics.lab.sources.unchanged import InputChanged
from tests.killed import AT_EVERY_MOMENT, State, Work, restore, states_at_moments
from tests.replays import (
    AT_ONCE,
    SPOOLED,
    RecordedProgress,
    files_of,
    ranges_of,
    replayed,
    task,
    traffic,
)

FEW_DRAWS = {"resamples": 20}
MOST_BYTES_OF_A_PLACE = 36


def files(folder: Path, count: int = 60) -> list[str]:
    """Two files: events as they were produced, and records of topics."""
    folder.mkdir(exist_ok=True)
    records = traffic(count)
    produced, recorded = folder / "produced.jsonl", folder / "recorded.jsonl"
    lines = [record.value or b"" for record in records[::2]]
    produced.write_bytes(codecs.BOM_UTF8 + b"\r\n".join([*lines, b"", b" ", b"{broken"]))
    recorded.write_bytes(b"".join(map(record_line, records[1::2])))
    return [str(produced), str(recorded)]


def reading(
    paths: Sequence[str], moment: Callable[[], None] = lambda: None, *, places: bool = True
) -> Iterator[LocatedRecord]:
    """The records of the files; ``moment`` is called before each."""
    for path in paths:
        for number, record in numbered_records(path, places=places):
            moment()
            yield path, number, record


class SpoolSize(RecordedProgress):
    """Measures the spool when all of it is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.bytes = 0
        self._folder = folder

    def computed(self, pieces: int, of: int) -> None:
        """Measure before the first piece."""
        if not pieces:
            self.bytes = sum(path.stat().st_size for path in self._folder.glob("*.spool"))


def test_only_places_of_records_in_plain_files_are_spooled(tmp_path: Path) -> None:
    """The files of the report are the same as without a spool, and as with copies."""
    paths = files(tmp_path / "in")
    told = SpoolSize(tmp_path / "places" / FOLDER)
    run(task(reading(paths), tmp_path / "places", SPOOLED, evaluation=FEW_DRAWS), told)

    at_once, copied = (
        replayed(reading(paths, places=False), tmp_path / name, scale, evaluation=FEW_DRAWS)
        for name, scale in (("at once", AT_ONCE), ("copied", SPOOLED))
    )
    assert files_of(tmp_path / "places") == at_once == copied
    assert 0 < told.bytes <= 61 * MOST_BYTES_OF_A_PLACE


def test_a_file_that_is_cut_off_while_it_is_replayed_is_an_error(tmp_path: Path) -> None:
    """Records that are gone are not passed over."""
    paths = files(tmp_path / "in")

    def read() -> Iterator[LocatedRecord]:
        yield from reading(paths)
        os.truncate(paths[0], 100)

    with pytest.raises(InputChanged, match="it was cut off"):
        run(task(read(), tmp_path / "out", SPOOLED), RecordedProgress())


def test_the_parent_of_a_linked_folder_is_that_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``link/../name`` is read again where it was read first, not beside the link."""
    (tmp_path / "in" / "there" / "deep").mkdir(parents=True)
    paths = files(tmp_path / "in" / "there")
    (tmp_path / "link").symlink_to(tmp_path / "in" / "there" / "deep")
    monkeypatch.chdir(tmp_path)
    through = [f"link/../{Path(path).name}" for path in paths]

    assert replayed(reading(through), tmp_path / "a", SPOOLED, evaluation=FEW_DRAWS) == replayed(
        reading(paths), tmp_path / "b", AT_ONCE, evaluation=FEW_DRAWS
    )


def states_of(work: Work, out: Path, *, every: bool) -> list[State]:
    """States in which the folder is while the input is read, all of them or one of each kind.

    What follows is that of a replay of records, so that ``every`` has one of each kind of it.
    """
    kinds = states_at_moments(work, out, every=False)
    if not every:
        return _while_read(kinds)
    restore({}, out)
    all_of_them = states_at_moments(work, out, every=True)
    return [*_while_read(all_of_them), *kinds[len(_while_read(kinds)) :]]


def _while_read(states: Iterable[State]) -> list[State]:
    return [*takewhile(lambda state: not any("piece" in name for name in state), states)]


@pytest.mark.slow
@AT_EVERY_MOMENT
def test_a_replay_of_files_may_be_killed_at_every_moment(tmp_path: Path, every: bool) -> None:
    """The next replay writes the same files."""
    paths, out = files(tmp_path / "in", 12), tmp_path / "out"
    scale = Execution(small_records=0, note_bytes=5_000)
    whole = replayed(reading(paths), tmp_path / "whole", AT_ONCE, evaluation=FEW_DRAWS)

    def work(moment: Callable[[], None]) -> None:
        run(task(reading(paths, moment), out, scale, evaluation=FEW_DRAWS), RecordedProgress())

    for state in states_of(work, out, every=every):
        restore(state, out)
        assert replayed(reading(paths), out, SPOOLED, evaluation=FEW_DRAWS) == whole


class MomentOfRange(RecordedProgress):
    """Calls ``moment`` after each range."""

    def __init__(self, moment: Callable[[], None]) -> None:
        super().__init__()
        self._moment = moment

    def read(self, records: int) -> None:
        """A moment."""
        self._moment()


@pytest.mark.slow
@AT_EVERY_MOMENT
def test_a_replay_in_ranges_may_be_killed_at_every_moment(tmp_path: Path, every: bool) -> None:
    """The next replay writes the same files."""
    paths, out = files(tmp_path / "in", 12), tmp_path / "out"
    whole = replayed(reading(paths), tmp_path / "whole", AT_ONCE, evaluation=FEW_DRAWS)

    def in_ranges() -> ReplayTask:
        read = task(reading(paths), out, Execution(small_bytes=0, range_bytes=9_000))
        source = replace(read.source, ranges=partial(ranges_of, paths))
        return replace(task([], out, read.scale, evaluation=FEW_DRAWS), source=source)

    def work(moment: Callable[[], None]) -> None:
        run(in_ranges(), MomentOfRange(moment))

    for state in states_of(work, out, every=every):
        restore(state, out)
        run(in_ranges(), RecordedProgress())
        assert files_of(out) == whole
