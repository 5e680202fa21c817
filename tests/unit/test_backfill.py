"""Sums of a replay over time, and their export as OpenMetrics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_fd_to_metric_families
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.cli.common import UsageError
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import parse_window
from stream_metrics.core.engine.window_sums import MOST_CODES, SumsAt, window_rows
from stream_metrics.core.engine.windows import Names
from stream_metrics.core.events.record import Record
from stream_metrics.lab.history import History, UnfitHistory
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.reports.files import BUCKETS, read_buckets, write_buckets
from stream_metrics.lab.traffic import TrafficProfile, TrafficRecord, generate

MINUTE_US = 60_000_000


@cache
def traffic() -> list[TrafficRecord]:
    """Records of two hours."""
    profile = TrafficProfile(seed=5, conversations=60, duration_seconds=7_200, turns=(1, 2))
    return list(generate(profile))


def replayed(records: Iterable[TrafficRecord] | None = None, **options: Any) -> Replay:
    """A replay of these records, or of the traffic."""
    replay = Replay(**options)
    for record in traffic() if records is None else records:
        replay.feed(Record(record.value, record.key, record.timestamp_ms))
    replay.flush()
    return replay


def steps_of(replay: Replay, step_us: int = MINUTE_US) -> range:
    """Steps from the first event until after the last one."""
    first = replay.history().first_us
    assert first is not None
    return range(first // step_us * step_us, replay.last_event_us + 40 * step_us, step_us)


def test_routes_without_their_own_series_are_summed_together() -> None:
    """This holds for any number of routes in any bucket."""
    routes = [f"r{number}" for number in range(MOST_CODES)]
    names = Names(frozenset({"a"}), frozenset({"r0"}))
    sums = SumsAt([parse_window("1h")], names, 60 * MINUTE_US)
    for time_us in (59 * MINUTE_US, 60 * MINUTE_US - 1):
        sums.take(time_us, "a", {f"R|{route}|yes": 1 for route in routes})
        sums.take(time_us, "b", {f"R|{route}|no": 2 for route in routes[1:]})
        sums.take(time_us, "c", {"R|r0|no": 1})

    rest = 2 * (MOST_CODES - 1)
    assert list(sums.entries()) == [
        ("1h", "a", {"R|r0|yes": 2, "R|other|yes": rest}),
        ("1h", "other", {"R|r0|no": 2, "R|other|no": 2 * rest}),
    ]


def rows_at(history: History, steps: range, at: int) -> list[dict[str, Any]]:
    """The sums at one step, in the form of ``windows.json``."""
    sums = [
        (course.window, course.agent, {course.code: course.values[at]})
        for course in history.courses(steps)
    ]
    return window_rows(sums, history.dimension)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_the_sums_of_each_step_equal_the_windows(share: float) -> None:
    """Backfilled series equal the ``windows.json`` of that time."""
    replay = replayed()
    steps = steps_of(replay)
    at = int(share * (len(steps) - 1))

    assert rows_at(replay.history(), steps, at) == replay.windows(steps[at])["sums"]


def test_steps_may_be_further_apart_than_a_window() -> None:
    """Events that entered and left a window between two steps appear in neither."""
    replay = replayed()
    steps = steps_of(replay, 7 * MINUTE_US)

    for at in (3, 9):
        assert rows_at(replay.history(), steps, at) == replay.windows(steps[at])["sums"]


def test_series_can_be_labelled_by_release_instead_of_agent() -> None:
    """The series have the label that the windows have."""
    replay = replayed(config=EngineConfig(dimension="release"))
    steps = steps_of(replay)

    rows = rows_at(replay.history(), steps, 60)

    assert rows == replay.windows(steps[60])["sums"]
    assert "release" in rows[0]


def test_names_beyond_the_limits_count_as_other() -> None:
    """As in the windows, configured names come first, then names by code point."""
    event = {
        "type": "search_iteration", "turn": 1, "iteration": 1, "occurred_at": 1_718_020_800,
    }  # fmt: skip
    replay = Replay(agents=["zz"], routes=["zz"])
    for n in range(70):
        search = {"search_id": "s", "routing": {"selected": f"r{n:02}"}, "results": []}
        sent = {"event_id": "e", "conversation_id": f"c{n}", "agent": f"a{n:02}"}
        replay.feed(Record(json.dumps({**event, **sent, "searches": [search]}).encode()))
    steps = steps_of(replay)

    rows = rows_at(replay.history(), steps, 1)

    assert rows == replay.windows(steps[1])["sums"]
    assert {row["agent"] for row in rows} == {f"a{n:02}" for n in range(49)} | {"other"}


@pytest.mark.slow
def test_a_written_file_is_read_back_unchanged(tmp_path: Path) -> None:
    """This includes every line and the header."""
    history = replayed(agents=["support"]).history()
    write_buckets(tmp_path, history)

    assert list(read_buckets([tmp_path]).lines()) == list(history.lines())


def test_equal_input_gives_equal_lines(tmp_path: Path) -> None:
    """The order of the records does not matter."""
    write_buckets(tmp_path, replayed().history())
    one = (tmp_path / BUCKETS).read_bytes()
    write_buckets(tmp_path, replayed(reversed(traffic())).history())

    assert (tmp_path / BUCKETS).read_bytes() == one


@pytest.mark.slow
def test_sums_of_several_replays_add_up(tmp_path: Path) -> None:
    """Conversations replayed separately give the same sums as one replay of all."""
    halves = []
    for number in (0, 1):
        part = [r for r in traffic() if r.key is not None and r.key[-1] % 2 == number]
        halves.append(tmp_path / str(number))
        halves[number].mkdir()
        write_buckets(halves[number], replayed(part).history())
    whole = replayed([r for r in traffic() if r.key is not None]).history()

    assert list(read_buckets(halves).lines()) == list(whole.lines())


def test_replays_with_different_windows_cannot_be_added(tmp_path: Path) -> None:
    """The message names the difference."""
    for name in ("1m", "5m"):
        (tmp_path / name).mkdir()
        write_buckets(tmp_path / name, replayed([], windows=[parse_window(name)]).history())

    with pytest.raises(UnfitHistory, match=r"windows are \['5m'\], but \['1m'\] in the first"):
        read_buckets([tmp_path / "1m", tmp_path / "5m"])


HEADER = json.dumps(History([parse_window("1m")]).header()).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty; replay again"),
        (b"{}\n", "line 1: the first line is not a header"),
        (b"[]\n", "line 1: the first line is not a header"),
        (b'{"schema_version":2}\n', "line 1: schema version 2 is not 1"),
        (HEADER + b'{"bucket":1,"agent":"a"', "line 2: .*; replay again"),
        (HEADER + b'{"bucket":1,"agent":"\xff","sums":{}}\n', "line 2: .*; replay again"),
        (HEADER + b'{"bucket":1,"agent":"a"}\n', "line 2: not a line of a replay's buckets"),
        (HEADER + b'{"bucket":1,"agent":"a","sums":{"r":"1"}}\n', "line 2: not a line of a replay"),
        (
            HEADER + b'{"bucket":1,"agent":"a","sums":{"r":9223372036854775808}}\n',
            "line 2: not a line of a replay",
        ),
        (
            HEADER + b'{"bucket":1,"agent":"a","sums":{"nobody":1}}\n',
            "line 2: not a line of a replay",
        ),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    """The error has the file, the line and the remedy."""
    (tmp_path / BUCKETS).write_bytes(content)

    with pytest.raises(UnfitHistory, match=why):
        read_buckets([tmp_path])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that a replay has written."""
    write_buckets(tmp_path, replayed().history())
    return tmp_path


def run(*arguments: str) -> str:
    """Output of the command, which must succeed."""
    done = CliRunner().invoke(app, ["backfill", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stderr


def test_an_openmetrics_parser_accepts_the_output(directory: Path) -> None:
    """Families are gauges; samples of a series are adjacent and in order of time."""
    said = run(str(directory), "--step", "10m")

    samples = 0
    with (directory / "openmetrics.txt").open() as text:
        for family in text_fd_to_metric_families(text):  # type: ignore[no-untyped-call]
            assert family.type == "gauge"
            samples += len(family.samples)
            for sample in family.samples:
                assert (sample.labels["job"], sample.labels["instance"]) == (
                    "stream-metrics",
                    "replay",
                )
    assert f"{samples:,} samples" in said
    assert "promtool tsdb create-blocks-from openmetrics" in said


def test_sample_times_are_multiples_of_the_step_within_the_bounds(directory: Path) -> None:
    """The first bound is included and the last is not."""
    first = replayed().history().first_us
    assert first is not None
    text = [f"1970-01-01T00:00:{second:02}Z" for second in (1, 32)]

    run(str(directory), "--step", "15s", "--from", text[0], "--to", text[1], "--out",
        str(directory / "out"))  # fmt: skip

    lines = (directory / "out").read_text().splitlines()
    assert {line.rpartition(" ")[2] for line in lines if not line.startswith("#")} == {"15", "30"}


def test_given_labels_replace_the_default_ones(directory: Path) -> None:
    """They are on every series."""
    run(str(directory), "--label", "job=past", "--label", 'who=a "quoted" one')

    lines = (directory / "openmetrics.txt").read_text().splitlines()
    series = [line for line in lines if not line.startswith("#")]
    assert all('job="past",who="a \\"quoted\\" one"}' in line for line in series)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--label", "a-b=c"], "write NAME=VALUE"),
        (["--label", "agent=c"], "--label agent: the series already have that label"),
        (["--step", "1x"], "is not a duration"),
        (["--step", "1s", "--from", "1970-01-01T00:00:00Z"], "samples per series are more than"),
        (["--from", "tomorrow"], "Write RFC 3339, such as 2024-05-01T12:00:00Z"),
        (["--to", "1970-01-01T00:00:00Z"], "--from and --to have no multiple of --step"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    directory: Path, arguments: list[str], why: str
) -> None:
    """The line says what to write instead."""
    with pytest.raises(UsageError, match=why):
        CliRunner().invoke(app, ["backfill", str(directory), *arguments], catch_exceptions=False)


def test_a_directory_without_buckets_is_refused(tmp_path: Path) -> None:
    """The error names it and the command that writes buckets."""
    with pytest.raises(UsageError, match=r"buckets.jsonl: no such file; `stream-metrics replay`"):
        CliRunner().invoke(app, ["backfill", str(tmp_path)], catch_exceptions=False)
