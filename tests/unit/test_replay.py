"""Replays in several processes, killed replays, and what replays refuse."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from stream_metrics.core.engine.row import shown_turns
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.replay.manifest import MANIFEST
from stream_metrics.lab.replay.merge_pieces import BadRows
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.replay.pieces import pieces_of
from stream_metrics.lab.replay.report_files import (
    COUNTED,
    PARTS,
    IncompatibleReplays,
    merge,
)
from stream_metrics.lab.replay.reread import InMemoryRecords, RereadableRecords, recorded_of
from stream_metrics.lab.replay.run import FOLDER, Execution, OutputInUse, StrictError, run
from stream_metrics.lab.replay.spool import (
    SpoolDamaged,
    SpooledRecords,
    SpoolWriter,
    spool_key,
    spool_path,
)
from tests.helpers import rest_long
from tests.killed import killed_at
from tests.replays import (
    AT_ONCE,
    IN_PARTS,
    SPOOLED,
    RecordedProgress,
    files_of,
    located,
    replayed,
    task,
    traffic,
)

BROKEN = Record(b"{")


def killed(where: str, out: Path, processes: int) -> None:
    """Run a replay in a process that is killed while ``reading``, ``computing`` or ``merging``."""

    def work(die: Callable[[], None]) -> None:
        def records() -> Iterator[Record]:
            for number, record in enumerate(traffic()):
                if where == "reading" and number == 400:
                    die()
                yield record

        class Dying(RecordedProgress):
            def computed(self, pieces: int, of: int) -> None:
                if where == "computing" and pieces == 3:
                    die()

            def merging(self) -> None:
                die()

        scale = Execution(processes, small_records=0, note_bytes=100_000)
        run(task(records(), out, scale), Dying())

    assert killed_at(0, work, out / "nothing")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a replay that was killed when three pieces were computed."""
    out = tmp_path_factory.mktemp("stopped") / "out"
    killed("computing", out, 1)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an uninterrupted replay."""
    return replayed(traffic(), tmp_path_factory.mktemp("whole"), AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "processes", "said"),
    rest_long(
        [
            ("reading", 1, "records that were read before"),
            ("merging", 2, "pieces were computed before"),
            ("computing", 2, "pieces were computed before"),
            ("merging", 3, "pieces were computed before"),
        ],
        2,
    ),
)
def test_a_killed_replay_continues(
    where: str, processes: int, said: str, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """The same command completes it, with the bytes of an uninterrupted replay."""
    out = tmp_path / "out"
    killed(where, out, processes)
    told = RecordedProgress()

    run(task(traffic(), out, Execution(processes, small_records=0, note_bytes=100_000)), told)

    assert said in " ".join(told.notes)
    assert files_of(out) == whole


def test_a_replay_continues_with_the_pieces_that_were_computed(
    stopped: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """It computes the others, and writes the bytes of an uninterrupted one."""
    out, told = Path(shutil.copytree(stopped, tmp_path / "out")), RecordedProgress()

    run(task(traffic(), out, SPOOLED), told)

    assert "pieces were computed before" in " ".join(told.notes)
    assert told.steps[0][0] == 3
    assert files_of(out) == whole


@pytest.mark.slow
@pytest.mark.parametrize("others", [{"identity": ("changed",)}, {"turn_scope": "all"}])
def test_a_replay_of_other_input_or_settings_starts_again(
    others: dict[str, Any], stopped: Path, tmp_path: Path
) -> None:
    """It reports that it does not use the files of the killed replay."""
    out, told = Path(shutil.copytree(stopped, tmp_path / "out")), RecordedProgress()

    run(task(traffic(), out, SPOOLED, **others), told)

    assert told.notes[0].startswith("the directory has an unfinished replay of other input")
    assert told.steps[0][0] == 0
    whole = replayed(traffic(), tmp_path / "whole", AT_ONCE, **others)
    assert files_of(out) == whole


@pytest.mark.slow
def test_restart_uses_nothing_of_a_killed_replay(stopped: Path, tmp_path: Path) -> None:
    """The replay reads its input from the first record."""
    out, told = Path(shutil.copytree(stopped, tmp_path / "out")), RecordedProgress()

    run(task(traffic(), out, Execution(small_records=0, restart=True)), told)

    assert (told.notes, told.steps[0][0]) == ([], 0)


@pytest.mark.slow
def test_standard_input_is_read_again(
    stopped: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """Standard input has no identity, so that a second replay starts at the first record."""
    out, told = Path(shutil.copytree(stopped, tmp_path / "out")), RecordedProgress()

    run(task(traffic(), out, SPOOLED, identity=None), told)

    assert told.steps[0][0] == 0
    assert files_of(out) == whole


@pytest.mark.parametrize("scale", [AT_ONCE, SPOOLED])
def test_a_strict_replay_ends_at_the_first_bad_record(scale: Execution, tmp_path: Path) -> None:
    """It reads no record after the first bad one, and leaves no files."""
    read: list[int] = []

    def records() -> Iterator[Record]:
        for number, record in enumerate([*traffic(20), BROKEN, *traffic(20), BROKEN]):
            read.append(number)
            yield record

    with pytest.raises(StrictError, match="test:21: not_json"):
        run(task(records(), tmp_path, scale, strict=True), RecordedProgress())
    assert read[-1] == 20
    assert list(tmp_path.iterdir()) == []


def test_a_second_replay_into_a_directory_is_refused(tmp_path: Path) -> None:
    """The error says that another replay is running there."""

    def records() -> Iterator[Record]:
        with pytest.raises(OutputInUse, match="another replay is writing to this directory"):
            run(task([], tmp_path, AT_ONCE), RecordedProgress())
        yield from traffic(5)

    run(task(records(), tmp_path, AT_ONCE), RecordedProgress())


@pytest.mark.slow
def test_a_truncated_spool_is_an_error(stopped: Path, tmp_path: Path) -> None:
    """A spool file that is shorter than the manifest says is not taken for a smaller input."""
    out = Path(shutil.copytree(stopped, tmp_path / "out"))
    sizes = json.loads((out / FOLDER / MANIFEST).read_text())["spool"]["sizes"]
    for shard, size in enumerate(sizes):
        os.truncate(spool_path(out / FOLDER, shard), size // 2)

    with pytest.raises(SpoolDamaged, match="--restart"):
        run(task(traffic(), out, SPOOLED), RecordedProgress())


@pytest.mark.long
def test_more_shards_than_open_files_are_merged(whole: dict[str, bytes], tmp_path: Path) -> None:
    """Hundreds of shards are merged in steps, with the same bytes."""
    told = RecordedProgress()
    run(task(traffic(), tmp_path / "parts", IN_PARTS), told)

    assert told.steps[0][1] > 256
    assert files_of(tmp_path / "parts") == whole


def test_a_conversation_in_two_inputs_is_refused(tmp_path: Path) -> None:
    """Rows of one conversation from two inputs, or from one input given twice, count twice."""
    for name, count in (("a", 50), ("b", 60)):
        replayed(traffic(count), tmp_path / name, AT_ONCE)

    with pytest.raises(BadRows, match="have no conversation in common"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path)


def test_parts_of_different_settings_are_refused(tmp_path: Path) -> None:
    """Figures of different settings cannot be added."""
    replayed(traffic(50), tmp_path / "a", AT_ONCE)
    replayed(traffic(50), tmp_path / "b", AT_ONCE, turn_scope="all")

    with pytest.raises(IncompatibleReplays, match="different --turn-scope"):
        merge([tmp_path / "a", tmp_path / "b"], tmp_path)


def test_a_directory_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    """Its records would count twice, also where none of them names a conversation."""
    replayed([Record(b"{")], tmp_path / "a", AT_ONCE)

    with pytest.raises(IncompatibleReplays, match="is named twice"):
        merge([tmp_path / "a", tmp_path / "a" / ".." / "a"], tmp_path)


def test_a_report_is_recreated_from_its_directory(tmp_path: Path) -> None:
    """``report`` on one directory writes the same files."""
    before = replayed(traffic(), tmp_path, AT_ONCE)

    merge([tmp_path], tmp_path)

    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "change", [lambda lines: lines[: len(lines) // 2], lambda lines: lines * 2]
)
@pytest.mark.parametrize("name", COUNTED)
def test_a_file_with_another_number_of_lines_is_refused(
    name: str, change: Callable[[list[bytes]], list[bytes]], tmp_path: Path
) -> None:
    """The error names the file and both numbers, and nothing is written."""
    replay = tmp_path / "replay"
    replayed(traffic(), replay, AT_ONCE)
    lines = (replay / name).read_bytes().splitlines(keepends=True)
    (replay / name).write_bytes(b"".join(change(lines)))
    (tmp_path / "out").mkdir()

    with pytest.raises(BadRows) as found:
        merge([replay], tmp_path / "out")

    assert str(found.value).startswith(
        f"{replay / name} has {len(change(lines)):,} complete lines, but {len(lines):,} were "
        "written"
    )
    assert not list((tmp_path / "out").iterdir())


def test_parts_of_another_version_are_refused(tmp_path: Path) -> None:
    """Older files do not contain their number of lines."""
    replayed(traffic(50), tmp_path, AT_ONCE)
    content = json.loads((tmp_path / PARTS).read_text())
    (tmp_path / PARTS).write_text(json.dumps({**content, "schema_version": 1}))

    with pytest.raises(
        IncompatibleReplays, match="written by another version of stream-metrics; replay its input"
    ):
        merge([tmp_path], tmp_path)


def test_a_directory_without_a_replay_is_refused(tmp_path: Path) -> None:
    """The error says which directories can be given."""
    with pytest.raises(IncompatibleReplays, match="name directories that replay wrote"):
        merge([tmp_path], tmp_path)


def conversation_events() -> list[Record]:
    """Two conversations, one of which is partly forgotten, and an event that is sent twice."""

    def event(conversation: str, name: str, second: int, **others: Any) -> Record:
        content: dict[str, Any] = {
            "type": "turn_completed",
            "conversation_id": conversation,
            "event_id": name,
        }
        content |= {"occurred_at": 1_742_284_800 + second, "turn": 1, **others}
        return Record(json.dumps(content).encode())

    def search(conversation: str, name: str, second: int, turn: int = 1) -> Record:
        found = {"search_id": "s", "results": [{"result_id": "r", "title": name}]}
        others = {"turn": turn, "iteration": 1, "searches": [found]}
        return event(conversation, name, second, type="search_iteration", **others)

    return [
        search("b", "looked", 2),
        search("b", "replaced", 7, 2),
        search("b", "looked again", 8, 2),
        search("a", "looked", 3),
        event("b", "late", 9, turn=2, answer="the second"),
        event("a", "gone", 1, answer="erased"),
        event("a", "forget", 2, type="forget"),
        event("b", "first", 3, answer="the first"),
        event("b", "late", 9, turn=2, answer="the second"),
        event("a", "kept", 4, answer="kept"),
        BROKEN,
    ]


@pytest.mark.parametrize("spooled", [False, True])
def test_a_pass_over_texts_reads_the_events_that_stand(spooled: bool, tmp_path: Path) -> None:
    """What was forgotten or replaced is not among them, in memory and from a spool."""
    given, limits = conversation_events(), Limits()
    with ExitStack() as stack:
        records: list[RereadableRecords] = [InMemoryRecords(list(located(given)))]
        if spooled:
            with closing(SpoolWriter(tmp_path)) as writer:
                for one in located(given):
                    writer.add(spool_key(one[2], one[1], limits), one)
                spool = writer.flush()
            records = [
                stack.enter_context(closing(SpooledRecords(tmp_path, piece, spool.sources)))
                for piece in pieces_of(spool)
            ]
        found = {
            (conversation.conversation_id, turn.number): (
                [
                    one.title
                    for search in turn.order
                    for one in recorded.search_of(search).results or []
                ],
                end and end.answer,
            )
            for again in records
            for engine in [fed(again)]
            for conversation in engine.conversations()
            for recorded in [recorded_of(again, engine, conversation)]
            for turn in shown_turns(conversation, "all")
            for end in [recorded.end_of(turn)]
        }

    assert found == {
        ("a", 1): (["looked"], "kept"),
        ("b", 1): (["looked"], "the first"),
        ("b", 2): (["looked again"], "the second"),
    }


def fed(records: RereadableRecords) -> Replay:
    """An engine that has processed these records."""
    engine = Replay(turn_scope="all")
    for position, (source, number, record) in records.each():
        engine.feed(record, source, number, position)
    return engine
