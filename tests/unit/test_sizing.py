"""The capacity model: its formulas, its fit, and the page that is made from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import model
from benchmarks.fitting import Observed, cpu_constants
from benchmarks.freshness import latencies
from benchmarks.model import Batches, Mix
from benchmarks.sizing import PAGE, Load, Prices, made, plan

KNOWN = replace(
    model.MEASURED,
    search_us=31.0,
    result_us=7.0,
    labelling_us=17.0,
    label_us=2.5,
    batch_us=1_500.0,
    touch_us=40.0,
    load_us=60.0,
    load_item_us=1.5,
    redis_item_us=0.5,
    redis_batch_us=250.0,
    redis_touch_us=11.0,
    redis_load_us=13.0,
    redis_load_item_us=0.2,
)
READ = [
    (Mix(0.6, 3, 2, 0), Batches(320, 0.2, 0.08)),
    (Mix(0.6, 9, 8, 0), Batches(310, 0.2, 0.08)),
    (Mix(1, 6, 0, 0), Batches(330, 0.1, 0.1)),
    (Mix(1, 20, 0, 0), Batches(300, 0.1, 0.1)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.3, 0.08)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.75, 0.1)),
    (Mix(0.6, 3, 2, 0), Batches(20, 0.75, 0.75, 25)),
    (Mix(0.5, 2, 2, 0), Batches(20, 0.95, 0.9, 2)),
]


def test_the_page_is_in_step_with_the_constants() -> None:
    """``python -m benchmarks.sizing --write`` would change nothing."""
    page = PAGE.read_text(encoding="utf-8")

    assert made(page) == page


def test_the_fit_finds_the_constants_that_made_the_runs() -> None:
    """From runs without noise it gives back what they were computed from."""
    rows = [
        Observed(mix, read, model.worker_us(mix, read, KNOWN), model.redis_us(mix, read, KNOWN))
        for mix, read in READ
    ]
    found = cpu_constants(rows)

    assert found == pytest.approx({name: getattr(KNOWN, name) for name in found})
    assert found.keys() == model.WORKER.keys() | model.REDIS.keys()


def test_no_constant_of_a_fit_is_negative() -> None:
    """A cost that runs speak against is 0, and the others make up for it."""
    cheap = replace(KNOWN, load_us=-20.0, redis_load_us=-5.0)
    rows = [
        Observed(mix, read, model.worker_us(mix, read, cheap), model.redis_us(mix, read, cheap))
        for mix, read in READ
    ]
    found = cpu_constants(rows)

    assert min(found.values()) == 0.0
    assert found["result_us"] == pytest.approx(7.0, rel=0.2)


def test_batches_that_keep_up_take_what_came_meanwhile() -> None:
    """A round of such batches lasts as long as its events take to come."""
    rate, partitions, each_us, batch_us = 6_000.0, 4, 80.0, 2_000.0
    events = model.batch_keeping_up(rate, partitions, each_us, batch_us)
    round_us = partitions * (batch_us + events * each_us)

    assert partitions * events == pytest.approx(rate * round_us / 1e6)


def test_a_plan_grows_with_the_load() -> None:
    """Ten times the events need ten times of all, and each worker and master has partitions."""
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
    """Records that no scrape has counted have none; what was there before is not among them."""
    times = [1.0, 2.0, 3.0, 4.0]

    assert latencies(times, 10, [(2.5, 11), (3.5, 11), (4.5, 13)]) == [1.5, 2.5, 1.5]
    assert latencies(times, 0, [(5.0, 9)]) == [4.0, 3.0, 2.0, 1.0]
