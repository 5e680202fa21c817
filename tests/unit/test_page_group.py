"""A page for the whole group: partitions of other workers, their age, and missing ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.local.waiting import wait_until
from stream_metrics.live.memory import MemoryStore
from stream_metrics.live.page.group import KEEP_SECONDS, STALE_SECONDS
from stream_metrics.live.ports import BatchWrite, PartitionState, Position
from tests.page import NOON_US, Showcase
from tests.property.test_partition import TOPIC, once
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import searched

NOW = NOON_US + 600_000_000
MINE = (searched("c-1", 1, ["a", "b", "a", "b"], agent="first"),)
OTHERS = (
    searched("c-2", 1, ["x"] * 6, NOON_S + 60, agent="first"),
    searched("c-3", 1, list("abcdefghij"), NOON_S + 120, agent="second"),
)
ALL_RESULTS, ALL_DUPLICATES = 20, 7


class AskedStore(MemoryStore):
    """A store that records reads of windows, and can delay its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0
        self.read: list[tuple[int, str | None]] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def partitions(self) -> list[int]:
        """Record the call."""
        self.listed += 1
        return await super().partitions()

    async def buckets(
        self, partition: int, window: str | None = None
    ) -> dict[tuple[str, int, str], bytes]:
        """Record the window, and wait until the answer is released."""
        self.read.append((partition, window))
        await self.answers.wait()
        return await super().buckets(partition, window)


@dataclass
class TwoWorkers:
    """A group of two workers with pages; time stands still until ``after`` is called."""

    store: AskedStore
    one: Showcase
    two: Showcase

    async def after(self, seconds: float, *alive: Showcase) -> None:
        """Let time pass; then the workers in ``alive`` send heartbeats."""
        self.one.seconds += seconds
        self.two.seconds = self.one.seconds
        for worker in alive:
            await worker.partition.check(once)
            await worker.partition.beat(once, 0)

    async def shown(self, **asked: Any) -> dict[str, Any]:
        """The page of the first worker, once all reads that it has begun are complete."""
        await self.one.state(**asked)
        reader = self.one.board.inputs.group
        assert reader is not None

        async def done() -> bool:
            return not reader.reading

        await wait_until(done, 30, "the round does not end")
        return await self.one.state(**asked)


async def two_workers(total: int | None = 2, **options: Any) -> TwoWorkers:
    """Partition 0 is the first worker's, partition 1 the second's."""
    store = AskedStore()
    shared: dict[str, Any] = {
        "store": store,
        "now_us": NOW,
        "grouped": True,
        "interval_seconds": 0.0,
    }
    two = await Showcase.new(*OTHERS, number=1, total=2, **shared)
    one = await Showcase.new(*MINE, number=0, total=total, **shared, **options)
    store.clock = lambda: int(1_000 * one.seconds) + 1
    found = TwoWorkers(store, one, two)
    await found.after(0, one, two)
    return found


@pytest.fixture
async def group() -> AsyncIterator[TwoWorkers]:
    """Two workers that are both alive."""
    made = await two_workers()
    yield made
    for worker in (made.one, made.two):
        worker.board.close()
        worker.worst.close()


def results(shown: dict[str, Any]) -> tuple[int, int]:
    """The sums of results and of duplicates."""
    return shown["figures"]["srr"]["whole"], shown["figures"]["srr"]["part"]


def agent_levels(shown: dict[str, Any]) -> set[str]:
    """The levels of all findings on agents."""
    return {
        found["level"] for rule in shown["rules"] for found in rule["findings"] if found["agent"]
    }


def level(shown: dict[str, Any], name: str) -> str:
    """The level of a rule."""
    (found,) = [rule["level"] for rule in shown["rules"] if rule["name"] == name]
    return str(found)


async def test_who_is_told_of_faults_waits_for_the_latest_figures(group: TwoWorkers) -> None:
    """A page shows what it has and the rest later; a judgement that is told has no later."""
    assert (await group.one.board.judged(agents=True)).agents
    await group.after(15, group.one, group.two)
    await group.two.take([searched("c-9", 1, ["z"], NOON_S + 180, agent="third")])
    group.store.answers.clear()
    judging = asyncio.create_task(group.one.board.judged(agents=True))
    await wait_until(lambda: group.store.read, 30, "nothing is read")
    group.store.answers.set()
    judged = await judging

    named = {found["agent"] for state in judged.states for found in state["findings"]}
    assert {"first", "second", "third"} <= named


async def test_every_workers_page_shows_all_partitions(group: TwoWorkers) -> None:
    """Both pages have the same sums, series and agents, which are those of both workers
    together."""
    pages = [await worker.state("1h") for worker in (group.one, group.two)]

    assert [results(page) for page in pages] == [(ALL_RESULTS, ALL_DUPLICATES)] * 2
    for part in ("sums", "figures", "agents", "series"):
        assert pages[0][part] == pages[1][part]
    assert sum(pages[0]["series"]["duplicates"]) == ALL_DUPLICATES
    assert [row["results"] for row in pages[0]["agents"]] == [10, 10]


async def test_metrics_are_those_of_the_worker_only(group: TwoWorkers) -> None:
    """Prometheus sums over workers, so each exports only the partitions that it owns."""
    await group.shown(window="1h")
    group.one.collector.prepare()
    lines = group.one.collector.render().splitlines()
    found = [line for line in lines if line.startswith("streammetrics_window_results{")]

    assert sum(int(line.rpartition(" ")[2]) for line in found if 'window="1h"' in line) == 4


async def test_the_page_says_who_owns_what(group: TwoWorkers) -> None:
    """Each worker is named by host and port, with the age of its data."""
    await group.shown()
    await group.after(3, group.one, group.two)

    shown = (await group.one.state())["partitions"]

    assert (shown["owned"], shown["total"], shown["problems"]) == (1, 2, [])
    assert shown["shares"] == [
        {
            "partitions": [0],
            "text": "0",
            "worker": "worker-0:9464",
            "own": True,
            "age_seconds": 0.0,
            "problem": None,
        },
        {
            "partitions": [1],
            "text": "1",
            "worker": "worker-1:9464",
            "own": False,
            "age_seconds": 3.0,
            "problem": None,
        },
    ]


async def test_an_agents_figures_are_of_all_partitions(group: TwoWorkers) -> None:
    """Events of a chosen agent on other workers' partitions count as well."""
    shown = await group.shown(window="1h", agent="first")

    assert results(shown) == (10, 7)


async def test_other_partitions_are_read_at_most_every_five_seconds(group: TwoWorkers) -> None:
    """This holds for any number of clients; each read has what was written before it."""
    for _ in range(5):
        await group.shown(window="1h")
        await group.shown(window="5m", agent="first")
    first = group.store.listed
    await group.two.take([searched("c-4", 1, ["n"], NOON_S + 200, agent="second")])
    await group.after(4.9, group.one, group.two)
    early = await group.shown(window="1h")
    await group.after(0.2, group.one, group.two)
    late = await group.shown(window="1h")

    assert (first, group.store.listed) == (2, 3)  # once for the minute of evidence
    assert (results(early)[0], results(late)[0]) == (ALL_RESULTS, ALL_RESULTS + 1)


async def test_nothing_is_read_without_a_client(group: TwoWorkers) -> None:
    """Only a request starts a round of reads."""
    for _ in range(10):
        await group.after(60, group.one, group.two)
        group.one.board.sample()

    assert (group.store.listed, group.store.read) == (0, [])


async def test_windows_without_a_client_are_released(group: TwoWorkers) -> None:
    """A minute after the last request no window of another worker is in memory; the next request
    reads all."""
    await group.shown()
    await group.after(KEEP_SECONDS + 1, group.one, group.two)
    group.one.board.sample()
    reader = group.one.board.inputs.group
    assert reader is not None
    assert not reader.windows()

    assert results(await group.shown(window="1h")) == (ALL_RESULTS, ALL_DUPLICATES)


async def test_a_partition_that_has_not_changed_is_not_read_again(group: TwoWorkers) -> None:
    """A round asks only for its owner; its figures count as read then."""
    await group.shown()
    before = len(group.store.read)
    await group.after(6, group.one, group.two)
    shown = await group.shown(window="1h")

    assert len(group.store.read) == before
    assert shown["partitions"]["shares"][1]["age_seconds"] == 0.0
    assert results(shown) == (ALL_RESULTS, ALL_DUPLICATES)


async def test_a_slow_store_does_not_delay_the_page(group: TwoWorkers) -> None:
    """Unread partitions are named as missing."""
    assert group.one.board.inputs.group is not None
    group.one.board.inputs.group.first_seconds = 0.01
    group.store.answers.clear()
    async with asyncio.timeout(30):
        shown = await group.one.state("1h")
    group.store.answers.set()

    assert results(shown) == (4, 2)
    assert shown["partitions"]["problems"] == ["partition 1: no figures (not read yet)"]
    assert agent_levels(shown) == {"unknown"}


async def test_figures_of_an_unreachable_store_show_their_age(group: TwoWorkers) -> None:
    """From 20 s on the page says that they are old, and no agent is fine."""
    fresh = await group.shown(window="1h")
    group.store.available = False
    await group.after(6)
    young = await group.shown(window="1h")
    await group.after(STALE_SECONDS)
    old = await group.shown(window="1h")
    group.store.available = True
    await group.after(6, group.one, group.two)
    again = await group.shown(window="1h")

    assert fresh["partitions"]["problems"] == young["partitions"]["problems"] == []
    assert young["partitions"]["shares"][1]["age_seconds"] == 6.0
    assert old["partitions"]["problems"] == [
        "partition 1: the figures are 26 s old (the memory store was told to be unavailable)"
    ]
    assert results(old) == (ALL_RESULTS, ALL_DUPLICATES)
    assert level(old, "partitions") == "warning"
    assert again["partitions"]["problems"] == []


async def test_a_missing_worker_is_named(group: TwoWorkers) -> None:
    """Its partition can be read, but has no owner, so its figures are not current."""
    await group.shown()
    await group.after(STALE_SECONDS + 1, group.one)

    shown = await group.shown()

    assert shown["partitions"]["problems"] == [
        "partition 1: no worker has worked on it for 21 s; the last one was worker-1:9464"
    ]
    assert level(shown, "partitions") == "warning"


async def test_rules_on_incomplete_figures_say_so(group: TwoWorkers) -> None:
    """No agent is fine while partitions are missing, and each reason names them."""
    docs = list("abcdefghij")
    usual = [
        searched(f"o-{n}", 1, docs, NOON_S - 40_000 + 60 * n, agent="first") for n in range(300)
    ]
    lately = [searched(f"g-{n}", 1, docs, NOON_S + 540, agent="first") for n in range(30)]
    await group.one.take([*usual, *lately])
    whole = await group.shown()
    await group.after(STALE_SECONDS + 1, group.one)
    gap = await group.shown()

    assert (whole["partitions"]["missing"], gap["partitions"]["missing"]) == (None, "partition 1")
    assert "ok" in agent_levels(whole)
    assert agent_levels(gap) == {"unknown"}
    reasons = [f["why"] for rule in gap["rules"] for f in rule["findings"] if f["agent"]]
    assert all(why.endswith(", without the latest of partition 1") for why in reasons)


async def test_a_partition_without_an_owner_is_named(group: TwoWorkers) -> None:
    """It has no state, and no figure includes its events."""
    group.one.total = 4
    shown = await group.shown()

    assert shown["partitions"]["problems"] == [
        "partitions 2-3: no figures (no worker has taken it over yet)"
    ]


@pytest.mark.parametrize(
    ("behind_ms", "problem"),
    [
        (120_000, ""),
        (121_000, "partition 1: worker-1:9464 has read it only up to 2 min ago"),
        (None, "partition 1: worker-1:9464 does not know yet how many records are left to read"),
    ],
)
async def test_a_worker_that_is_far_behind_is_named(
    group: TwoWorkers, behind_ms: int | None, problem: str
) -> None:
    """No agent is fine meanwhile."""
    await group.two.partition.beat(once, behind_ms)
    shown = await group.shown()

    assert shown["partitions"]["problems"] == ([problem] if problem else [])
    assert level(shown, "partitions") == ("warning" if problem else "ok")
    assert shown["partitions"]["missing"] == ("partition 1" if problem else None)


async def test_a_partition_that_moves_here_counts_once(group: TwoWorkers) -> None:
    """As soon as this worker owns it, its figures come from memory."""
    await group.shown()
    group.one.partition = group.two.partition
    shown = await group.one.state("1h")

    assert results(shown) == (16, 5)
    assert shown["partitions"]["shares"][0]["partitions"] == [1]


async def test_the_name_of_a_new_owner_is_unknown_at_first(group: TwoWorkers) -> None:
    """The page does not show the previous owner's name."""
    await group.shown()
    await group.store.claim(1, b"another", {})
    await group.after(6, group.one)
    shown = await group.shown()

    assert shown["partitions"]["problems"] == [
        "partition 1: it is not known which worker works on it: it has just begun, or is of an "
        "earlier release"
    ]
    await group.store.heartbeat(1, b"another", "worker-9:9464", 0)
    await group.after(6, group.one)
    shown = await group.shown()
    assert shown["partitions"]["shares"][1]["worker"] == "worker-9:9464"
    assert shown["partitions"]["problems"] == []


async def test_a_switch_to_another_generation_is_named(group: TwoWorkers) -> None:
    """Until this worker has ended, the partitions of others have no owner."""
    await group.store.freeze(1, 2)
    shown = await group.shown()

    assert shown["partitions"]["problems"] == [
        "partition 1: another generation of state has taken its place"
    ]


async def test_the_sums_of_a_replaced_partition_are_the_new_ones(group: TwoWorkers) -> None:
    """Nothing of its previous state remains in them."""
    await group.shown()
    while str(await group.store.wipe(1)) != "Wiped()":
        pass
    await group.store.claim(1, b"new", {TOPIC: Position(0)})
    await group.store.heartbeat(1, b"new", "worker-2:9464")
    await group.after(6, group.one)
    shown = await group.shown(window="1h")

    assert results(shown) == (4, 2)
    assert shown["partitions"]["shares"][1]["worker"] == "worker-2:9464"


async def test_damaged_windows_are_left_out(group: TwoWorkers) -> None:
    """An unreadable bucket excludes its partition but not the page."""
    state: PartitionState = await group.store.describe(1)
    offset = state.positions[TOPIC].offset
    bucket = {("1h", NOW // 60_000_000, "first"): b"\xff damaged"}
    await group.store.write(
        BatchWrite(1, group.two.partition.token, b"damage", {TOPIC: offset}, {}, buckets=bucket)
    )
    shown = await group.shown(window="1h")

    assert results(shown) == (4, 2)
    (problem,) = shown["partitions"]["problems"]
    assert problem.startswith("partition 1: no figures (")


async def test_memory_for_other_partitions_is_bounded() -> None:
    """Windows that do not fit are left out and named."""
    group = await two_workers(held_bytes=100)
    shown = await group.shown(window="1h")

    assert results(shown) == (4, 2)
    assert shown["partitions"]["problems"] == [
        "partition 1: no figures (all windows together take more than 100 bytes)"
    ]


async def test_large_windows_are_read_less_often() -> None:
    """After a large read the next round waits, so that the average rate is bounded."""
    group = await two_workers(bytes_a_second=100)
    await group.shown()
    await group.after(5.5, group.one, group.two)
    await group.shown()
    soon = group.store.listed
    await group.after(600, group.one, group.two)
    await group.shown()

    assert (soon, group.store.listed) == (2, 3)  # once for the minute of evidence


async def test_the_worst_conversations_are_of_all_partitions(group: TwoWorkers) -> None:
    """The answer lists the partitions."""
    view = group.one.board.view("1h", None)
    found = json.loads(await group.one.worst.document(view))

    assert [row["conversation_id"] for row in found["lowest_sre"]] == []
    assert found["conversations"] == 3
    assert found["partitions"] == {"owned": 1, "total": 2, "read": [0, 1]}


async def test_figures_of_a_build_are_not_shown() -> None:
    """The page says that the worker builds, and shows figures once they are in force."""
    group = await two_workers(total=None)
    group.one.health.generation, group.one.health.building = 2, True
    built = await group.shown()
    assert built["sums"]["results"] == 0
    assert built["verdict"]["title"] == "Generation 2 of the state is being built"

    group.one.health.building = False
    assert (await group.shown())["sums"]["results"] > 0
    for worker in (group.one, group.two):
        worker.board.close()
        worker.worst.close()


@pytest.mark.parametrize(
    ("behind_ms", "problem"),
    [
        (120_000, None),
        (240_000, "partition 0: worker-0:9464 has read it only up to 4 min ago"),
        (None, "partition 0: worker-0:9464 does not know yet how many records are left to read"),
    ],
)
async def test_own_figures_are_not_shown_as_those_of_now_while_nothing_is_read(
    group: TwoWorkers, behind_ms: int | None, problem: str | None
) -> None:
    """A worker judges its own partitions as it does those of others: without the latest events
    nothing is shown as fine."""
    group.one.behind_ms = behind_ms
    shown = await group.shown(window="1h")

    assert shown["partitions"]["shares"][0]["problem"] == problem
    assert level(shown, "partitions") == ("ok" if problem is None else "warning")
    assert shown["partitions"]["missing"] == (None if problem is None else "partition 0")
    if problem is not None:
        assert agent_levels(shown) <= {"critical", "warning", "unknown"}
