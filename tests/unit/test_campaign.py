"""Parts of the fault campaign that need no servers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.local.process import free_port
from stream_metrics.core.engine.codec import SCHEMAS
from tests.campaign.clock import Clock, obey_clock
from tests.campaign.faults import ANY, FAULTS, Need
from tests.campaign.faults.upgrade import other_schema
from tests.campaign.history import History, Span
from tests.campaign.log import kept_aside
from tests.campaign.plan import DECK_SEEDS, Options, make_plan
from tests.campaign.proxy import Proxy
from tests.campaign.report import Calibration, Landing, Outcome, coverage, table, verdict

HOUR = 3_600


def test_a_seed_makes_the_same_schedule_each_time() -> None:
    """A schedule depends only on seed and options, so a failed seed can be run again."""
    assert make_plan(Options(7)) == make_plan(Options(7))
    assert make_plan(Options(7)) != make_plan(Options(8))


def test_fifteen_consecutive_seeds_cover_every_fault() -> None:
    """From the first seed on, each fault occurs at least once among them."""
    drawn = {
        strike.fault
        for seed in range(1, DECK_SEEDS + 1)
        for strike in make_plan(Options(seed)).strikes
    }

    assert drawn == FAULTS.keys()


@pytest.mark.parametrize("seed", range(1, 31))
def test_a_round_has_the_servers_of_its_faults(seed: int) -> None:
    """It has at most one of the faults that exclude each other."""
    plan = make_plan(Options(seed))

    faults = [FAULTS[strike.fault] for strike in plan.strikes]

    assert len(faults) == 5
    assert all(fault.needs in (ANY, plan.servers) for fault in faults)
    assert sum(fault.alone for fault in faults) <= 1
    assert not any(fault.first for fault in faults[1:])


def test_chosen_faults_get_their_servers() -> None:
    """If only faults of special servers are chosen, every round has these servers."""
    plans = [make_plan(Options(seed, only=("sentinel_failover",))) for seed in range(1, 9)]

    assert {plan.servers for plan in plans} == {Need.SENTINEL}


def test_a_round_upgrades_the_schema_and_downgrades_it_again() -> None:
    """The first upgrade of a round changes the schema, and the second one changes it back."""
    assert other_schema(SCHEMAS[0]) == SCHEMAS[-1]
    assert other_schema(other_schema(SCHEMAS[0])) == SCHEMAS[0]


# -- records deleted before the comparison ----------------------------------------------------


def test_records_of_a_partition_are_kept_once(tmp_path: Path) -> None:
    """A second copy begins where the first one ended."""
    history = History(tmp_path)
    history.add({("events", 1): 100})

    assert history.add({("events", 1): 250, ("events", 2): 40}) == 1

    again = History(tmp_path)
    assert again.parts[1] == [Span("events", 1, 100, 250), Span("events", 2, 0, 40)]
    assert again.begins() == {("events", 1): 250, ("events", 2): 40}


def test_deleted_records_are_ignored(tmp_path: Path) -> None:
    """They do not count, even if a killed broker has them again."""
    history = History(tmp_path)
    history.add({("events", 1): 100})
    history.part(0).touch()

    history.pass_over({("events", 1): 150})

    assert history.begins() == {("events", 1): 150}
    assert list(kept_aside(history)) == []


def test_a_rebuilt_partition_starts_without_earlier_records(tmp_path: Path) -> None:
    """Records of its number are dropped on all topics; those of other partitions are kept."""
    history = History(tmp_path)
    history.add({("events", 1): 100, ("labels", 1): 10, ("events", 2): 40})

    history.drop({1})

    assert History(tmp_path).begins() == {("events", 2): 40}


# -- a network that is broken for one process -------------------------------------------------


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy in front of a server that echoes its input."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    port = free_port()
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with Proxy(free_port(), ("127.0.0.1", port)) as made:
        yield made
    server.close()


async def echo(proxy: Proxy) -> bytes:
    """Output of the server through the proxy; empty if the connection is reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(b"hello")
        return await reader.read(100)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_the_named_process_is_disconnected(proxy: Proxy) -> None:
    """Its connections are reset."""
    proxy.set("cut", os.getpid())

    assert await echo(proxy) == b""


async def test_other_processes_stay_connected(proxy: Proxy) -> None:
    """Their connections work as before."""
    proxy.set("cut", os.getppid())

    assert await echo(proxy) == b"hello"


async def test_a_stall_ends(proxy: Proxy) -> None:
    """Bytes sent during a stall arrive after it."""
    proxy.set("stall", os.getpid())
    answer = asyncio.create_task(echo(proxy))
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"later")

    proxy.set("open")

    assert await reader.read(100) == b"later"
    assert await answer == b"hello"
    writer.close()


# -- clocks -----------------------------------------------------------------------------------


def test_the_clock_of_a_process_follows_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wall-clock time is ahead by the seconds in the file; monotonic time is not."""
    right, monotonic = time.time(), time.monotonic()
    monkeypatch.setattr(time, "time", time.time)
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    clock = Clock(tmp_path / "clock")
    clock.set(36 * HOUR)

    obey_clock(clock)

    assert time.time() - right >= 36 * HOUR
    assert time.time_ns() - 1e9 * right >= 36e9 * HOUR
    assert time.monotonic() - monotonic < 36 * HOUR


# -- the report -------------------------------------------------------------------------------


def outcome(seed: int, *, wrong: bool) -> Outcome:
    """A round of two faults; if something is wrong, the second one never took effect."""
    first, second = (
        Landing(name, 0.2, 1.0, 2.0, 30, 4.0, 9.0, 0) for name in ("zombie", "redis_kill")
    )
    return Outcome(
        seed,
        [],
        ("zombie", "redis_kill"),
        events=1_000,
        conversations=10,
        calibration=Calibration(1.0, 100.0),
        landings=[first] if wrong else [first, second],
        wrong=["it hangs"] if wrong else [],
    )


def test_a_fault_that_took_no_effect_is_in_the_table() -> None:
    """An aborted round has a line for each of its faults."""
    lines = table([outcome(7, wrong=True)]).splitlines()[2:]

    assert [[cell.strip() for cell in line.split("|")][1:4] for line in lines] == [
        ["7", "zombie", "20%"],
        ["7", "redis_kill", "never"],
    ]


def test_coverage_counts_faults_that_took_effect() -> None:
    """A fault's line says how often it took effect, and in which seeds."""
    outcomes = [outcome(7, wrong=True), outcome(8, wrong=False)]

    lines = coverage(outcomes, ["zombie", "redis_kill", "scale"]).splitlines()[2:]

    assert [[cell.strip() for cell in line.split("|")][1:4] for line in lines] == [
        ["zombie", "2", "7, 8"],
        ["redis_kill", "1", "8"],
        ["scale", "0", ""],
    ]


def test_the_verdict_names_failed_seeds() -> None:
    """One sentence says which seeds failed, or that none did."""
    assert verdict([outcome(7, wrong=True), outcome(8, wrong=False)]).endswith("failed: 7.")
    assert verdict([outcome(8, wrong=False)]).endswith("no difference.")
