"""The capacity model: its formulas, its fit, and its generated page."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks import model
from benchmarks.fitting import Observed, cpu_constants
from benchmarks.freshness import Level, latencies, predictions
from benchmarks.model import Batches, Mix
from benchmarks.scaling import mix_of
from benchmarks.sizing import PAGE, Load, Prices, made, main, plan
from benchmarks.workload import traffic

KNOWN = replace(
    model.MEASURED,
    search_us=31.0,
    result_us=7.0,
    labelling_us=17.0,
    label_us=2.5,
    batch_us=1_500.0,
    touch_us=40.0,
    load_us=60.0,
    load_result_us=1.5,
    redis_search_us=4.0,
    redis_result_us=0.7,
    redis_label_us=0.2,
    redis_batch_us=250.0,
    redis_touch_us=11.0,
    redis_load_us=13.0,
    redis_load_result_us=0.2,
)
READ = [
    (Mix(0.6, 3, 2, 0), Batches(320, 0.2, 0.08)),
    (Mix(0.6, 9, 8, 0), Batches(310, 0.2, 0.08)),
    (Mix(1, 6, 0, 0), Batches(330, 0.1, 0.1)),
    (Mix(1, 20, 0, 0), Batches(300, 0.1, 0.1)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.3, 0.08)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.75, 0.1)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.75, 0.75, 25)),
    (Mix(0.8, 4, 0, 0), Batches(20, 0.8, 0.8, 18)),
    (Mix(0.6, 3, 2, 0), Batches(310, 0.4, 0.4, 17)),
    (Mix(0.5, 2, 2, 0), Batches(20, 0.95, 0.9, 2)),
]


def test_the_page_is_in_step_with_the_constants() -> None:
    """``python -m benchmarks.sizing --write`` would not change the page."""
    page = PAGE.read_text(encoding="utf-8")

    assert made(page) == page


def test_the_fit_finds_the_constants_that_made_the_runs() -> None:
    """From runs without noise it returns the constants from which they were computed."""
    rows = [
        Observed(mix, read, model.worker_us(mix, read, KNOWN), model.redis_us(mix, read, KNOWN))
        for mix, read in READ
    ]
    found = cpu_constants(rows)

    assert found == pytest.approx({name: getattr(KNOWN, name) for name in found})
    assert found.keys() == model.WORKER.keys() | model.REDIS.keys()


def test_constants_are_read_as_they_were_written(tmp_path: Path) -> None:
    """They have three digits, the precision of the runs."""
    model.store_constants(
        replace(KNOWN, search_us=31.04, batch_us=1_502.0), tmp_path / "constants.json"
    )
    kept = json.loads((tmp_path / "constants.json").read_text("utf-8"))

    assert model.Constants(**kept) == KNOWN


def test_no_constant_of_a_fit_is_negative() -> None:
    """A cost that would be negative is 0, and the others are fitted without it."""
    cheap = replace(KNOWN, load_us=-20.0, redis_load_us=-5.0)
    rows = [
        Observed(mix, read, model.worker_us(mix, read, cheap), model.redis_us(mix, read, cheap))
        for mix, read in READ
    ]
    found = cpu_constants(rows)

    assert min(found.values()) == 0.0
    assert found["result_us"] == pytest.approx(7.0, rel=0.2)


def test_batches_that_keep_up_have_the_events_of_their_duration() -> None:
    """Processing such batches takes as long as their events take to arrive."""
    rate, partitions, each_us, batch_us = 6_000.0, 4, 80.0, 2_000.0
    events = model.batch_keeping_up(rate, partitions, each_us, batch_us)
    round_us = partitions * (batch_us + events * each_us)

    assert partitions * events == pytest.approx(rate * round_us / 1e6)


@pytest.mark.parametrize("logs", [[], [[0, 0]]])
def test_an_empty_batch_is_refused(logs: list[list[int]]) -> None:
    """The error is a sentence."""
    with pytest.raises(ValueError, match="with records on them"):
        model.batch_catching_up(logs)


def test_batches_grow_with_the_backlog() -> None:
    """The longer the backlog of a partition, the closer batches are to the configured size."""
    short, longer, long = (model.batch_catching_up([[n, n]]) for n in (1_000, 4_000, 1_000_000))

    assert 250 < short < longer < long < model.full_batch()
    assert long == pytest.approx(model.full_batch(), rel=0.01)


def test_the_capacity_that_plans_count_with_is_that_of_the_model() -> None:
    """The page has one such figure, and says of all others what they are of."""
    worker_us = plan(Load()).worker_us
    page = PAGE.read_text(encoding="utf-8")
    capacity = f"{round(1e6 / worker_us, -3):,.0f}"

    assert f"handles some {capacity} events/s**" in page
    assert f"| {capacity} | a core | is planned for:" in page
    assert f"({worker_us:.1f} µs an event by the model)" in page


@pytest.mark.slow
def test_the_default_load_is_the_traffic_of_the_benchmarks() -> None:
    """Half of the records are searches; the others are labels, ends of turns, and invalid ones."""
    found = mix_of(traffic(30_000))

    assert Load().searches == pytest.approx(found.searches, abs=0.005)
    assert Load().results == pytest.approx(found.results, abs=0.05)
    assert Load().labels == pytest.approx(found.labels, abs=0.05)
    assert Load().bytes == pytest.approx(found.bytes, abs=50)
    assert f"*s* = {Load().searches:.2f}, *r* = {Load().results}" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("rate", [1_000.0, 10_000.0, 1_000_000.0])
def test_workers_that_keep_up_are_busier_than_at_full_batches(rate: float) -> None:
    """They process more batches, and use at most all of their cores."""
    load = Load(events_per_second=rate)
    needed = plan(load)
    read = Batches(needed.batch, load.touched, load.loaded, load.held)

    assert needed.batch < model.full_batch()
    assert needed.worker_cores < needed.worker_cores_keeping_up
    assert needed.worker_cores_keeping_up <= needed.workers * (1 + 1e-9)
    assert needed.worker_cores_keeping_up == pytest.approx(
        rate * model.worker_us(load.mix, read) / 1e6
    )


def test_freshness_runs_check_the_model() -> None:
    """They compare events per batch and cores of a worker at each share of its maximum rate."""
    levels = [Level(share, 1_000.0, [0.1], 0.5, 0.01, 2.0, 0.0) for share in (0.1, 0.5, 0.9)]
    said = predictions(traffic(1_000), levels).splitlines()

    assert len(said) == 1 + 2 * len(levels)
    assert all("2.00" in line for line in said[1::2])
    assert all("0.500" in line for line in said[2::2])


@pytest.mark.parametrize("field", [field.name for field in fields(Load)])
@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "many"])
def test_an_impossible_load_is_refused(
    field: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is divided by zero or negative; a zero that makes sense gives a plan."""
    option = "--" + field.replace("_", "-")
    zero_makes_sense = field not in {
        "events_per_second", "events_per_conversation", "replication",
        "utilisation", "master_gib", "broker_mb_per_second",
    }  # fmt: skip
    if value == "0" and zero_makes_sense:
        main([option, value])
        assert not re.search(r"\s-\d", capsys.readouterr().out)
        return
    with pytest.raises(SystemExit) as refused:
        main([option, value])
    assert refused.value.code == 2
    assert f"argument {option}: {value} is not a" in capsys.readouterr().err


def test_a_plan_grows_with_the_load() -> None:
    """Ten times the events need ten times the resources; each worker and master has partitions."""
    small = plan(Load(events_per_second=10_000))
    large = plan(Load(events_per_second=100_000))

    assert large.conversations == pytest.approx(10 * small.conversations)
    assert large.redis_gib == pytest.approx(10 * small.redis_gib)
    assert large.disk_gib == pytest.approx(10 * small.disk_gib)
    assert large.worker_cores == pytest.approx(10 * small.worker_cores)
    assert (large.workers - 1) * 0.5 < large.worker_cores <= large.workers * 0.5
    assert max(large.workers, large.masters) < large.partitions


def test_a_plan_costs_what_its_parts_cost() -> None:
    """The price of a core counts each core once; without prices there is no cost."""
    needed = plan(Load())

    assert needed.cost(Prices()) == 0
    assert needed.cost(Prices(core=3)) == pytest.approx(3 * needed.cores)
    assert needed.cost(Prices(disk_gib=2)) == pytest.approx(2 * needed.disk_gib)


def test_a_latency_ends_with_the_first_scrape_that_counts_as_many() -> None:
    """Records that no scrape has counted have no latency; those before the run are excluded."""
    times = [1.0, 2.0, 3.0, 4.0]

    assert latencies(times, 10, [(2.5, 11), (3.5, 11), (4.5, 13)]) == [1.5, 2.5, 1.5]
    assert latencies(times, 0, [(5.0, 9)]) == [4.0, 3.0, 2.0, 1.0]
