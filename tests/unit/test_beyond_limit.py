"""What turns beyond a limit leave out is said wherever figures are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_metrics.cli import app
from stream_metrics.core.dedup.tables import DedupRules, published
from stream_metrics.core.engine.beyond_limit import BeyondLimit
from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.engine.window import parse_window
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.record import Record
from stream_metrics.lab.evaluation.compare_runs import compare_runs
from stream_metrics.lab.evaluation.notes import Run
from stream_metrics.lab.replay.report_files import merge
from stream_metrics.lab.replay.run import Execution, run
from stream_metrics.lab.reports.html.report import write_report_page
from stream_metrics.lab.reports.run_directory import FILES, read_observations, read_report
from stream_metrics.live.memory import MemoryDeadLetters, MemoryStore
from stream_metrics.live.readers.worst import Request, latest, whole
from tests.property.test_partition import TOPIC, once, opened
from tests.replays import AT_ONCE, IN_PARTS, RecordedProgress, task
from tests.unit.test_bounds import Body, event, labelling, results, searching
from tests.unit.test_state_partition import NOON_S

TEN = 10
CUT = EngineConfig(limits=replace(Limits(), results_per_turn=TEN))
SENTENCE = "1 turn beyond a limit: 4 results of 2 searches are not in these figures"


def runaway(conversation: str = "c") -> list[Body]:
    """A turn of seven searches with two results each, of which five fit in ten results."""
    return [
        searching(n, results(f"a{n}", f"b{n}"), conversation=conversation, iteration=n)
        for n in range(1, 8)
    ]


def replayed(
    events: Sequence[Body],
    out: Path,
    scale: Execution = AT_ONCE,
    turn_scope: str = "last",
    **limits: int,
) -> dict[str, Any]:
    """The report of a replay with these limits."""
    records = [Record(json.dumps(one).encode()) for one in events]
    one = task(records, out, scale, turn_scope=turn_scope)
    config = EngineConfig(limits=replace(Limits(), **limits))
    run(replace(one, options=replace(one.options, config=config)), RecordedProgress())
    return read_report(out)


def missing(events: Sequence[Body], out: Path, **others: Any) -> BeyondLimit | None:
    """What the report says is missing in its figures."""
    found = replayed(events, out, **others).get("beyond_limit")
    return found and BeyondLimit(**found)


def test_searches_beyond_a_limit_are_counted_with_their_results(tmp_path: Path) -> None:
    """The report has them beside the results of those that fit."""
    report = replayed(runaway(), tmp_path, results_per_turn=TEN)

    assert report["counts"]["results"] == TEN
    assert BeyondLimit(**report["beyond_limit"]) == (1, 2, 4, 0, 0)


def test_a_report_of_turns_within_limits_says_nothing(tmp_path: Path) -> None:
    """It has the keys that it always had."""
    assert missing(runaway(), tmp_path) is None
    assert "beyond_limit" not in (tmp_path / "parts.json").read_text()
    assert "beyond a limit" not in write_report_page(tmp_path).read_text()


def test_what_is_missing_does_not_depend_on_how_a_replay_is_divided(tmp_path: Path) -> None:
    """Pieces of a spool and merged directories add up to the same."""
    events = [one for n in range(4) for one in runaway(f"c{n}")]
    whole = missing(events, tmp_path / "whole", results_per_turn=TEN)
    pieces = missing(events, tmp_path / "pieces", scale=IN_PARTS, results_per_turn=TEN)
    halves = [tmp_path / "first", tmp_path / "second"]
    for half, out in zip((events[:14], events[14:]), halves, strict=True):
        replayed(half, out, results_per_turn=TEN)
    (tmp_path / "merged").mkdir()

    merged = merge(halves, tmp_path / "merged").content["beyond_limit"]

    assert whole == pieces == BeyondLimit(**merged) == (4, 8, 16, 0, 0)


def test_a_search_that_came_twice_is_missing_once(tmp_path: Path) -> None:
    """This holds for a redelivery and for a newer version."""
    newer = searching(8, {"search_id": "s7.0", **results("a", "b", "c")}, iteration=7)

    found = missing([*runaway(), *runaway(), newer], tmp_path, results_per_turn=TEN)

    assert found == (1, 2, 5, 0, 0)


def test_what_fits_in_the_end_is_not_missing(tmp_path: Path) -> None:
    """A newer version with fewer results takes the place of one that was refused."""
    smaller = [searching(10 + n, {"search_id": f"s{n}.0"}, iteration=n) for n in (6, 7)]

    found = missing([*runaway(), *smaller], tmp_path, results_per_turn=TEN)

    assert found == (1, 0, 0, 0, 0)
    assert BeyondLimit(*found).text().endswith("what goes beyond it is not in these figures")


def test_what_is_forgotten_is_not_missing(tmp_path: Path) -> None:
    """Nobody wants it in the figures."""
    later = [event("forget", 8), searching(9, results("r"))]

    assert missing([*runaway(), *later], tmp_path, results_per_turn=TEN) is None


@pytest.mark.parametrize(("scope", "expected"), [("last", None), ("all", (1, 2, 4, 0, 0))])
def test_only_turns_with_a_row_are_counted(scope: str, expected: Any, tmp_path: Path) -> None:
    """An earlier turn is in no figure of the report unless all turns have rows."""
    events = [*runaway(), searching(9, results("r"), turn=2)]

    assert missing(events, tmp_path, turn_scope=scope, results_per_turn=TEN) == expected


def test_searches_of_a_refused_turn_are_missing(tmp_path: Path) -> None:
    """They count for the last turn, which is marked for them."""
    events = [searching(n, results("a", "b"), turn=n) for n in (1, 2, 3)]

    assert missing(events, tmp_path, turns_per_conversation=2) == (1, 1, 2, 0, 0)


def test_gate_decisions_and_labels_beyond_a_limit_are_counted(tmp_path: Path) -> None:
    """Each kind of item has a limit that refuses it."""
    skips = [
        event("search_iteration", n, iteration=n, gate={"decision": "skip"}) for n in range(2, 5)
    ]
    waiting = labelling(9, "x", "y", "z")

    found = missing(
        [searching(1, results("a")), *skips, waiting],
        tmp_path,
        iterations_per_turn=2,
        waiting_labels=1,
    )

    assert found == (1, 0, 0, 2, 2)
    assert "2 gate decisions and 2 labels are not in" in BeyondLimit(*found).text()


def test_the_summary_of_a_replay_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is written again repeats it."""
    lines = "".join(json.dumps(one) + "\n" for one in runaway())
    (tmp_path / "events.jsonl").write_text(lines)
    monkeypatch.setenv("STREAM_METRICS_LIMITS__RESULTS_PER_TURN", str(TEN))
    out = str(tmp_path / "out")

    for arguments in (["replay", str(tmp_path / "events.jsonl"), "--out", out], ["report", out]):
        assert SENTENCE in CliRunner().invoke(app, arguments).stderr


def test_a_backfill_says_what_is_missing_in_all_turns(tmp_path: Path) -> None:
    """The windows have earlier turns too; where a replay has left no counts, that is said."""
    later = searching(9, results("r"), turn=2)
    assert missing([*runaway(), later], tmp_path, results_per_turn=TEN) is None

    said = CliRunner().invoke(app, ["backfill", str(tmp_path)]).stderr
    (tmp_path / "parts.json").unlink()
    unknown = CliRunner().invoke(app, ["backfill", str(tmp_path)]).stderr

    assert SENTENCE in said
    assert "it is not known whether turns are beyond a limit" in unknown


def test_the_page_of_a_report_says_what_is_missing_at_its_head(tmp_path: Path) -> None:
    """It stands before the first figure."""
    replayed(runaway(), tmp_path, results_per_turn=TEN)

    page = write_report_page(tmp_path).read_text()

    assert page.index(f"{SENTENCE}.") < page.index('class="card tile"')


def _without_report(directory: Path) -> None:
    (directory / "report.json").unlink()


def _by_an_earlier_release(directory: Path) -> None:
    report = read_report(directory)
    del report["beyond_limit"]
    (directory / "report.json").write_text(json.dumps(report))
    rows = directory / FILES["conversations"]
    kept = [json.loads(line) for line in rows.read_text().splitlines()]
    for row in kept:
        del row["beyond_limit"]
    rows.write_text("".join(json.dumps(row) + "\n" for row in kept))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: None, SENTENCE),
        (_without_report, SENTENCE),
        (_by_an_earlier_release, "1 turn beyond a limit: what goes beyond it is not in these"),
    ],
)
def test_a_comparison_says_what_is_missing_in_each_run(
    change: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    """Where the report does not tell it, the rows do; those of earlier releases only how many."""
    replayed(runaway(), tmp_path / "before")
    replayed(runaway(), tmp_path / "after", results_per_turn=TEN)
    change(tmp_path / "after")
    runs = [
        Run(name, read_observations(tmp_path / name), read_report(tmp_path / name))
        for name in ("before", "after")
    ]

    notes = compare_runs(runs, metrics=["srr"])["notes"]

    assert notes[0].startswith(f"after, {said}")
    assert sum("beyond a limit" in note for note in notes) == 1


def test_the_page_of_a_report_by_an_earlier_release_names_the_turns(tmp_path: Path) -> None:
    """Its rows are marked."""
    replayed(runaway(), tmp_path, results_per_turn=TEN)
    _by_an_earlier_release(tmp_path)

    assert "1 turn beyond a limit: what goes" in write_report_page(tmp_path).read_text()


# -- live state, which keeps only that something is missing ----------------------------------------


async def stored(*events: Body, engine: EngineConfig = CUT) -> MemoryStore:
    """A store that has read these events, with at most ten results in a turn."""
    store = MemoryStore()
    partition = await opened(store, MemoryDeadLetters(), 1_000, engine=engine)
    records = [
        Record(
            json.dumps(one).encode(),
            one["conversation_id"].encode(),
            1_000 * one["occurred_at"],
            TOPIC,
            0,
            offset,
        )
        for offset, one in enumerate(events)
    ]
    await partition.process(records, once)
    return store


async def ranked(
    store: MemoryStore, now_s: int = 60, engine: EngineConfig = CUT, **more: Any
) -> dict[str, Any]:
    """The worst conversations of the minute that ends ``now_s`` after noon."""
    request = Request(parse_window("1m"), (NOON_S + now_s) * 1_000_000, min_results=1, **more)
    return (await whole(store, engine, (), request)).document()


async def test_live_figures_say_how_many_turns_are_beyond_a_limit() -> None:
    """The agents that have most come first."""
    others = [one for n in range(2) for one in runaway(f"d{n}")]
    events = [one | {"agent": "second"} for one in others] + runaway()
    store = await stored(*events, searching(2, results("r"), conversation="fine"))

    found = await ranked(store)

    assert found["beyond_limit"] == {
        "turns": 3,
        "searches": 6,
        "results": 12,
        "agents": {"second": 2, "default": 1},
        "text": "3 turns beyond a limit (second 2, default 1): "
        "12 results of 6 searches are not in these figures",
    }
    assert (await ranked(store, agent="second"))["beyond_limit"]["turns"] == 2


async def test_state_that_does_not_count_what_is_left_out_says_of_how_many_turns() -> None:
    """It was built under earlier tables."""
    earlier = replace(CUT, rules=DedupRules(tables=published()[2]))

    found = await ranked(await stored(*runaway(), engine=earlier), engine=earlier)

    assert found["beyond_limit"]["text"] == (
        "1 turn beyond a limit (default): what goes beyond it is not in these figures"
    )


async def test_a_conversation_that_is_cut_is_marked() -> None:
    """Its row says that there is more than the results that it has."""
    repeating = [searching(n, results("a", f"b{n}"), iteration=n) for n in range(1, 8)]
    fine = [searching(n, results("a"), conversation="fine", iteration=n) for n in range(1, 3)]

    rows = (await ranked(await stored(*repeating, *fine)))["highest_srr"]

    assert [(row["conversation_id"], row["beyond_limit"]) for row in rows] == [
        ("fine", False),
        ("c", True),
    ]


async def test_live_figures_within_limits_say_nothing() -> None:
    """There is no sentence."""
    found = await ranked(await stored(*runaway()[:5]))

    nothing = {"turns": 0, "searches": 0, "results": 0, "agents": {}, "text": None}
    assert found["beyond_limit"] == nothing


async def test_a_loop_of_which_a_window_has_nothing_any_more_is_said() -> None:
    """All that it sends in these minutes is refused, so that it would be seen nowhere."""
    later = [searching(n, results("r"), iteration=n) for n in (90, 150)]
    store = await stored(*runaway(), *later)

    for now_s in (120, 180):
        found = await ranked(store, now_s=now_s)
        assert (found["conversations"], found["beyond_limit"]["turns"]) == (0, 1)
    assert (await ranked(store, now_s=300))["beyond_limit"]["turns"] == 0


async def test_what_was_not_read_may_have_more_turns_beyond_a_limit() -> None:
    """The page reads the latest conversations only."""
    store = await stored(*runaway("a"), *runaway("b"))
    request = Request(parse_window("1m"), (NOON_S + 60) * 1_000_000)
    with ThreadPoolExecutor(1) as executor:
        found = await latest(store, CUT, (), request, [0], max_conversations=1, executor=executor)

    said = found.document()["beyond_limit"]["text"]
    assert said.startswith("at least 1 turn beyond a limit (default): ")
