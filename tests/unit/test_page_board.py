"""The page's figures equal the windows, by agent, by window and over time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse_text

from stream_metrics.core.alerts.alert import CRITICAL
from stream_metrics.core.alerts.hour import LEAST_PARTS
from stream_metrics.core.engine.config import WINDOW_BUCKETS
from stream_metrics.core.engine.window import DEFAULT_WINDOWS, parse_window, window_specs
from stream_metrics.core.engine.window_sums import WindowSums
from stream_metrics.core.engine.windows import Windows
from stream_metrics.core.events.bugs import Bug
from stream_metrics.lab.traffic import TrafficProfile, generate
from stream_metrics.live.page import agent_rules, figures
from stream_metrics.live.page.board import MAX_DOCUMENTS, Board
from stream_metrics.live.page.evidence import Evidence
from stream_metrics.live.page.operations import SAMPLES, History, OperationsSample
from stream_metrics.live.runaways import RunawayTurn
from tests.page import NOON_US, Showcase
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

HOUR = parse_window("1h")
NOW = NOON_US + 1_800_000_000
EVENTS = (
    searched("c-1", 1, ["a", "b"], agent="first"),
    searched("c-1", 2, ["a", "c"], NOON_S + 60, agent="first"),
    searched("c-2", 1, ["a", "a", "a"], NOON_S + 120, agent="second"),
    labelled("c-1", {"1.0.a": 3, "1.1.b": 0, "2.1.c": 2}),
)


@pytest.fixture
async def showcase() -> AsyncIterator[Showcase]:
    """A worker that has read a few events."""
    made = await Showcase.new(*EVENTS, now_us=NOW)
    yield made
    made.board.close()
    made.worst.close()


async def test_figures_are_computed_from_the_window_sums(showcase: Showcase) -> None:
    """Each headline figure shows its value and the integers behind it."""
    shown = (await showcase.state("1h"))["figures"]

    assert [shown["srr"][part] for part in ("value", "part", "whole")] == [3 / 7, 3, 7]
    assert [shown["sre"][part] for part in ("value", "part", "whole")] == [0.5, 2, 4]
    assert [shown["gain"][part] for part in ("value", "part", "whole")] == [2.5, 5, 2]
    assert [shown["coverage"][part] for part in ("value", "part", "whole")] == [3 / 4, 3, 4]


async def test_an_undefined_figure_is_null(showcase: Showcase) -> None:
    """Its denominator is 0."""
    showcase.now_us = NOW + 86_400_000_000 * 2
    shown = await showcase.state("1h")

    assert shown["figures"]["srr"] == {"value": None, "part": 0, "whole": 0, "usual": None}
    assert set(shown["series"]["srr"]) == {None}


@pytest.mark.parametrize(
    ("window", "usual"),
    [("5m", 0.2), ("1h", 0.2), ("6h", 0.1), ("24h", None)],
)
async def test_the_baseline_is_before_the_shown_window(window: str, usual: float | None) -> None:
    """The day has 10% repeats, its last six hours 30%, and the last hour 90%."""
    events = [
        searched(f"{hours}-{n}", 1, [f"d{min(at, unique - 1)}" for at in range(10)], at_s)
        for hours, unique, apart_s in ((10, 9, 60), (3, 7, 60), (0, 1, 1))
        for n in range(150)
        for at_s in [NOON_S - 3_600 * hours - apart_s * n]
    ]
    showcase = await Showcase.new(*events)

    shown = (await showcase.state(window))["figures"]["srr"]

    assert shown["usual"] == usual


@pytest.mark.parametrize("window", ["5m", "1h", "6h"])
@pytest.mark.parametrize(("parts", "usual"), [(LEAST_PARTS - 1, None), (LEAST_PARTS, 0.0)])
async def test_the_baseline_needs_traffic_in_enough_parts_of_the_day(
    parts: int, usual: float | None, window: str
) -> None:
    """Those with what the window shows do not count, whatever there is in it."""
    apart_s = 86_400 // WINDOW_BUCKETS
    before = [
        searched(f"b-{n}", 1, "abcdefghij", NOON_S - 28_800 - apart_s * n) for n in range(parts)
    ]
    now = [searched(f"n-{n}", 1, "aaaaaaaaaa", NOON_S - n) for n in range(200)]
    showcase = await Showcase.new(*before, *now)

    assert (await showcase.state(window))["figures"]["srr"]["usual"] == usual


async def test_a_chosen_agent_has_its_own_figures(showcase: Showcase) -> None:
    """Its series are its own too; the list of agents stays complete."""
    shown = await showcase.state("1h", "second")

    assert shown["agent"] == "second"
    assert (shown["figures"]["srr"]["part"], shown["figures"]["srr"]["whole"]) == (2, 3)
    assert sum(shown["series"]["duplicates"]) == 2
    assert [(row["agent"], row["results"]) for row in shown["agents"]] == [
        ("first", 4),
        ("second", 3),
    ]


async def test_the_choice_of_an_agent_does_not_change_the_table_of_agents() -> None:
    """The agent that repeats itself is at fault there, even if another one is shown."""
    usual = [
        searched(f"{agent}-{n}", 1, "abcdefghij", NOON_S - 7_200 - 120 * n, agent=agent)
        for agent in ("calm", "wild")
        for n in range(100)
    ]
    now = [searched(f"now-{n}", 1, "a" * 10, NOON_S - n, agent="wild") for n in range(40)]
    showcase = await Showcase.new(*usual, *now)

    documents = [await showcase.state("1h", agent) for agent in (None, "calm", "wild")]

    levels = [{row["agent"]: row["level"] for row in one["agents"]} for one in documents]
    assert levels[0]["wild"] == CRITICAL
    assert levels[0] == levels[1] == levels[2]
    assert {f["agent"] for rule in documents[1]["rules"] for f in rule["findings"]} <= {
        "calm",
        None,
    }


async def test_without_labels_there_is_no_efficiency() -> None:
    """An iteration of only duplicates needs no label, but without any label it gives neither SRE
    nor gain."""
    events = [searched("c", n, "ab", NOON_S + n, agent="first") for n in (1, 2)]
    showcase = await Showcase.new(*events, now_us=NOW)
    showcase.board.interval_seconds = 0.0

    shown = await showcase.state("1h")

    assert shown["figures"]["sre"]["value"] is shown["figures"]["gain"]["value"] is None
    assert shown["agents"][0]["sre"]["value"] is shown["agents"][0]["gain"]["value"] is None
    assert set(shown["series"]["sre"]) == set(shown["series"]["gain"]) == {None}
    await showcase.take([labelled("c", {"1.0.a": 0, "1.1.b": 0})])
    assert (await showcase.state("1h"))["figures"]["sre"]["value"] == 0.0


async def test_the_banner_names_agents_of_which_nothing_is_usual_yet() -> None:
    """Agents with searches in enough parts of the day before are not among them."""
    old = [
        searched(f"old-{n}", 1, "ab", NOON_S - 7_200 - 1_440 * n, agent="old")
        for n in range(LEAST_PARTS)
    ]
    new = [searched(f"{agent}-now", 1, "cd", agent=agent) for agent in ("old", "new")]
    showcase = await Showcase.new(*old, *new)

    said = [(await showcase.state("1h", agent))["verdict"]["text"] for agent in (None, "old")]

    assert "What is usual for new is known after" in said[0]
    assert "What is usual" not in said[1]


@pytest.mark.slow
@pytest.mark.parametrize("window", [window.name for window in DEFAULT_WINDOWS])
async def test_the_page_agrees_with_metrics(window: str) -> None:
    """Its counts equal those on ``/metrics`` at the same moment."""
    showcase = await Showcase.new()
    traffic = TrafficProfile(seed=8, conversations=40, duration_seconds=1_200)
    events = [json.loads(record.value or b"") for record in generate(traffic) if record.valid]
    times = [record.timestamp_ms or 0 for record in generate(traffic) if record.valid]
    for event, stamp in zip(events, times, strict=True):
        event["occurred_at"] = stamp / 1000
    searches = sorted(e["occurred_at"] for e in events if e.get("searches"))
    middle = searches[len(searches) // 2]
    await showcase.take(event for event in events if event["occurred_at"] <= middle)
    showcase.now_us = int(middle * 1e6)
    showcase.collector.prepare()
    series: dict[str, float] = {}
    for family in parse_text(showcase.collector.render()):
        for sample in family.samples:
            if sample.labels.get("window") == window:
                series[sample.name] = series.get(sample.name, 0) + sample.value

    shown = await showcase.state(window)
    showcase.board.close()

    def metric(name: str) -> float:
        return series[f"streammetrics_window_{name}"]

    assert metric("results") > 0
    assert shown["sums"] == {n: metric(n) for n in ("results", "iterations", "turns")}
    assert shown["figures"]["srr"]["part"] == metric("duplicate_results")
    assert shown["figures"]["sre"]["part"] == metric("settled_good_results")
    assert shown["figures"]["sre"]["whole"] == metric("settled_results")
    assert shown["figures"]["gain"]["part"] == metric("settled_gain")
    assert shown["figures"]["gain"]["whole"] == metric("settled_iterations")
    assert shown["figures"]["coverage"]["part"] == metric("labelled_results")
    assert shown["figures"]["coverage"]["whole"] == metric("unique_results")
    assert sum(shown["series"]["unique"]) == metric("unique_results")
    assert sum(shown["series"]["duplicates"]) == metric("duplicate_results")


async def test_a_late_label_changes_the_past(showcase: Showcase) -> None:
    """A label after half an hour changes the point at the time of its iteration."""
    showcase.board.interval_seconds = 0.0
    before = (await showcase.state("1h"))["series"]
    await showcase.take([labelled("c-2", {"1.0.a": 4})])

    after = (await showcase.state("1h"))["series"]

    at = after["times"].index(NOON_S + 120)
    assert (before["coverage"][at], after["coverage"][at]) == (0.75, 1.0)


def test_a_point_sums_five_buckets() -> None:
    """These are its bucket and the four before; without data there is no value."""
    found: list[dict[str, int]] = [{} for _ in range(60)]
    found[10] = {"r": 4, "d": 2}
    found[12] = {"r": 6, "d": 0}

    values = figures.core_series(found)["srr"]

    assert values[9:18] == [None, 0.5, 0.5, 0.2, 0.2, 0.2, 0.0, 0.0, None]


def test_gate_and_routes_come_from_a_window_that_has_them() -> None:
    """It is the shown window, the next longer one with decisions, or the longest."""

    def chosen(name: str, *kept: str) -> str | None:
        windows = window_specs(kept)
        found = figures.window_with(figures.OF_DECISIONS, windows, parse_window(name))
        return found.name if found else None

    every = [window.name for window in DEFAULT_WINDOWS]
    assert [chosen(name, *every) for name in every] == ["5m", "5m", "1h", "1h", "24h", "24h"]
    assert chosen("6h", "1h", "6h") == "1h"
    assert chosen("6h", "6h") is None
    assert chosen("6h", "2h") == "2h"


def asked(conversation: str, iteration: int, query: str, docs: str) -> dict[str, Any]:
    """A search for something."""
    event = searched(conversation, iteration, list(docs))
    event["searches"][0]["query"] = query
    return event


async def test_figures_of_loops_are_shown_of_a_window_that_has_them() -> None:
    """Of four iterations the second repeats the first; it and the last two find nothing new."""
    events = [asked("c", 1, "keys", "ab"), asked("c", 2, "keys", "a"),
              asked("c", 3, "doors", ""), asked("c", 4, "locks", "b")]  # fmt: skip
    showcase = await Showcase.new(*events, now_us=NOW)

    shown = (await showcase.state("30m"))["loops"]

    assert shown["window"] == "1h"
    assert {name: (of["part"], of["whole"]) for name, of in shown["figures"].items()} == {
        "repeated_searches": (1, 4),
        "empty_searches": (1, 4),
        "iterations_without_new": (3, 4),
        "trailing_without_new": (3, 4),
    }
    charted = shown["figures"].keys() - {figures.AT_THE_END}
    assert {len(shown[name]) for name in charted} == {WINDOW_BUCKETS}


async def test_a_page_of_state_without_figures_of_loops_says_what_they_need() -> None:
    """It was built under earlier tables."""
    showcase = await Showcase.new(*EVENTS, now_us=NOW, loops=False)

    shown = await showcase.state("1h")

    assert shown["loops"] is None
    assert shown["no_loops"] == agent_rules.NO_LOOPS
    findings = [f["why"] for rule in shown["rules"] if "searches_" in rule["name"]
                for f in rule["findings"]]  # fmt: skip
    assert set(findings) == {agent_rules.NO_LOOPS}


async def test_evidence_that_is_not_of_now_is_not_shown() -> None:
    """Where the minutes of other workers cannot be read any more, nobody knows how agents do."""
    showcase = await Showcase.new(*EVENTS, now_us=NOW)
    showcase.board.interval_seconds = 0.0
    before = await showcase.state("1h")
    evidence = showcase.board.inputs.evidence
    assert isinstance(evidence, Evidence)
    evidence.problem = "the store does not answer"

    after = await showcase.state("1h")

    def whys(shown: dict[str, Any]) -> set[str]:
        (rule,) = [rule for rule in shown["rules"] if rule["name"] == "srr_spike"]
        return {found["why"] for found in rule["findings"]}

    assert whys(after) == {"the evidence is not known now; the log says why"}
    assert not whys(before) & whys(after)


async def test_turns_that_run_away_are_a_fault_of_the_page() -> None:
    """Whoever reads them: they are named with their conversations."""
    showcase = await Showcase.new(*EVENTS, now_us=NOW)
    turn = RunawayTurn("support", "c-7", 3, 60, NOW // 1000)
    showcase.board.inputs = replace(showcase.board.inputs, runaways=lambda: [turn])

    (rule,) = [r for r in (await showcase.state("1h"))["rules"] if r["name"] == "runaway_turn"]

    assert rule["level"] == CRITICAL
    assert "conversation c-7 (support)" in rule["findings"][0]["why"]


def test_routes_are_ordered_by_use() -> None:
    """The most used one comes first; accuracy is over labelled searches only."""
    sums = {"R|a|yes": 1, "R|a|unknown": 1, "R|b|no": 3, "R|b|yes": 1}

    shown = figures.routing(sums)

    assert [row["route"] for row in shown["routes"]] == ["b", "a"]
    assert shown["accuracy"]["value"] == 2 / 5
    assert shown["routes"][0]["share"]["value"] == 4 / 6


def test_rare_routes_are_summed_up_as_the_rest() -> None:
    """All shares add up to one."""
    found: list[dict[str, int]] = [{} for _ in range(60)]
    found[0] = {f"R|route-{n}|unknown": n + 1 for n in range(20)}

    shown = figures.decision_series(found)

    assert [row["route"] for row in shown["routes"]] == [f"route-{n}" for n in range(19, 13, -1)]
    shares = [row["share"][0] for row in shown["routes"]]
    assert sum(shares) + shown["routes_rest"][0] == pytest.approx(1)


def test_gate_figures_are_of_labelled_decisions() -> None:
    """Efficiency is right skips of labelled decisions; the share of skips is of all decisions."""
    sums = {"q|skip|no": 2, "q|skip|yes": 1, "q|search|yes": 4, "q|search|unknown": 3}

    shown = figures.gate(sums)

    assert shown["efficiency"]["value"] == 2 / 7
    assert shown["missed_share"]["value"] == 1 / 7
    assert shown["saved"] == {"value": 1.0, "part": 2, "whole": 2}
    assert figures.gate(sums | {"q|search|no": 6})["saved"]["value"] == 2 / 8
    assert shown["skips"]["value"] == 3 / 10


async def test_clients_with_the_same_view_share_a_document(showcase: Showcase) -> None:
    """It is computed once per interval."""
    board = Board(showcase.board.inputs, interval_seconds=3_600)
    first = await board.document(board.view("1h", None))
    showcase.now_us += 1

    assert await board.document(board.view("1h", None)) is first
    assert await board.document(board.view("5m", None)) is not first
    board.close()


async def test_the_number_of_cached_documents_is_bounded(showcase: Showcase) -> None:
    """Requests for ever new agents do not increase it."""
    board = Board(showcase.board.inputs, interval_seconds=3_600)
    first = await board.document(board.view("1h", None))
    for number in range(MAX_DOCUMENTS):
        await board.document(board.view("1h", f"agent-{number}"))
    assert await board.document(board.view("1h", None)) is first

    for number in range(20):
        await board.document(board.view("1h", f"other-{number}"))
    last = await board.document(board.view("1h", "last"))

    assert await board.document(board.view("1h", "last")) is last
    assert await board.document(board.view("1h", None)) is not first
    board.close()


async def test_an_unknown_window_is_refused(showcase: Showcase) -> None:
    """The message names the known ones."""
    with pytest.raises(ValueError, match="1m, 5m, 30m, 1h, 6h, 24h"):
        showcase.board.view("2h", None)


@pytest.mark.parametrize(
    ("kept", "default"), [(("1m", "1h", "24h"), "1h"), (("30m",), "30m"), (("24h", "6h"), "24h")]
)
def test_the_default_window_exists(kept: tuple[str, ...], default: str) -> None:
    """It is 1h if that exists, else the middle one."""
    specs = tuple(map(parse_window, kept))
    inputs: Any = type("Inputs", (), {"specs": specs, "group": None, "evidence": None})()
    board = Board(inputs)

    assert board.view(None, None).window.name == default
    board.close()


def test_the_history_is_bounded() -> None:
    """After two hours the oldest sample is dropped."""
    history = History()
    for number in range(SAMPLES + 5):
        history.add(OperationsSample(float(number), lag_seconds=1.0))

    assert len(history.lag()["times"]) == SAMPLES
    assert history.lag()["times"][0] == 5.0


async def test_lag_is_null_without_a_partition(showcase: Showcase) -> None:
    """It is not shown as 0."""
    assert (await showcase.state())["operating"]["lag_seconds"] is None

    showcase.operations.lag("events", 0, 7, 2.5)
    showcase.operations.lag("labels", 0, 3, 0.5)
    showcase.board.interval_seconds = 0.0

    operating = (await showcase.state())["operating"]
    assert (operating["lag_records"], operating["lag_seconds"]) == (10, 2.5)


def test_series_of_a_partition_without_the_window_are_empty() -> None:
    """A window that a partition lacks adds nothing."""
    sums = WindowSums.of_partitions([Windows([parse_window("5m")])], NOW)

    assert sums.buckets(HOUR) == [{}] * 60


async def test_the_page_says_what_the_worker_waits_for_and_since_when(showcase: Showcase) -> None:
    """Of several reasons it is the first of the table; a halted partition is not waited for."""
    showcase.board.interval_seconds = 0.0
    assert (await showcase.state())["waiting"] is None

    showcase.health.hold("partition-0", "offset gap")
    assert (await showcase.state())["waiting"] is None

    showcase.health.set("dead_letters", "cannot write")
    showcase.health.set("repartition_kafka", "away")
    showcase.health.since["repartition_kafka"] = 5.0
    assert (await showcase.state())["waiting"] == {"for": "Kafka", "since": 5.0}


async def test_what_was_not_read_is_unknown_in_charts(showcase: Showcase) -> None:
    """A part of an hour that lies after the last answer of Kafka had other traffic, or none."""
    showcase.operations.complete_until(showcase.now_us / 1e6 - 5)
    shown = (await showcase.state("1h", "first"))["series"]
    assert shown["unique"][-1] is not None

    until = showcase.now_us / 1e6 - 150
    showcase.operations.complete_until(until)
    shown = (await showcase.state("1h"))["series"]

    unread = sum(at >= until for at in shown["times"])
    assert unread in (2, 3)
    for name in ("unique", "duplicates", "srr", "coverage"):
        assert set(shown[name][-unread:]) == {None}
    assert None not in shown["unique"][:-unread]


class BuggyRegistry(CollectorRegistry):
    """A registry that cannot be read while it is ``broken``."""

    broken = True

    def restricted_registry(self, names: Iterable[str]) -> Any:
        """Raise while it is broken."""
        if self.broken:
            raise KeyError("a text of a user")
        return super().restricted_registry(names)


def unread(showcase: Showcase, on_bug: Callable[[Bug], None]) -> BuggyRegistry:
    """Let the page read a broken registry, which is returned."""
    registry = BuggyRegistry()
    inputs = replace(showcase.board.inputs, registry=registry, on_bug=on_bug)
    showcase.board = Board(inputs, interval_seconds=0)
    return registry


async def test_metrics_that_cannot_be_read_are_no_good_sign(showcase: Showcase) -> None:
    """The page says so until they are read again, and what it cannot judge is unknown."""
    bugs: list[Bug] = []
    registry = unread(showcase, bugs.append)

    showcase.board.sample()
    state = await showcase.state()
    registry.broken = False
    showcase.board.sample()
    later = await showcase.state()

    [bug] = bugs
    assert (state["verdict"]["level"], bug.kind in state["verdict"]["text"]) == ("warning", True)
    levels = {rule["name"]: rule["level"] for rule in state["rules"]}
    assert {levels[name] for name in ("lag", "dead_letters", "memory", "offset_gaps")} == {
        "unknown"
    }
    assert bug.kind not in json.dumps(later)
    assert "a text of a user" not in json.dumps(state)


async def test_the_sampler_goes_on_after_a_bug(showcase: Showcase) -> None:
    """The page is served, and says what it does not know from the start."""
    unread(showcase, lambda _: None)
    async with (
        showcase.served() as address,
        aiohttp.ClientSession(address) as client,
        client.get("/api/state") as answer,
    ):
        state = await answer.json()

    assert state["verdict"]["title"] == "The metrics of this worker could not be read"


async def test_lag_that_is_unknown_is_shown_with_since_when(showcase: Showcase) -> None:
    """The figures are complete up to the last known time, which is shown on."""
    operations = showcase.operations
    operations.lag("events", 0, 7, 2.5)
    operations.complete_until(90.0)
    operations.ends_told(100.0)
    showcase.board.sample()
    operations.forget_partition("events", 0)
    operations.complete_until(None)

    operating = (await showcase.state())["operating"]

    assert operating["lag_records"] is operating["lag_seconds"] is None
    assert operating["complete_until"] is None
    assert (operating["lag_known_at"], operating["read_up_to"]) == (100.0, 90.0)
