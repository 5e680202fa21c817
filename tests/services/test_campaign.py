"""A short form of the fault campaign: ``python -m tests.campaign`` has the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.faults import FAULTS
from tests.campaign.plan import DECK_SEEDS, Options, make_plan
from tests.campaign.report import summary
from tests.campaign.round import run_round

pytestmark = pytest.mark.service

QUICK = tuple(fault.name for fault in FAULTS.values() if fault.quick)


@pytest.mark.parametrize("seed", [11, 12, 13])
async def test_a_seed_of_faults_changes_nothing(seed: int, tmp_path: Path) -> None:
    """Whatever strikes under load, the figures in the end are those of a replay of the log."""
    options = Options(seed, faults=3, events=3_000, conversations=600, only=QUICK, timed=False)

    outcome = await run_round(options, tmp_path)

    assert not outcome.failed, summary(outcome)


def test_a_seed_makes_the_same_schedule_each_time() -> None:
    """A failed seed can be run again: its schedule depends on seed and options only."""
    assert make_plan(Options(7)) == make_plan(Options(7))
    assert make_plan(Options(7)) != make_plan(Options(8))


def test_a_deck_of_seeds_has_every_fault() -> None:
    """Fifteen seeds in a row, from the first on, have each fault at least once between them."""
    drawn = {
        strike.fault
        for seed in range(1, DECK_SEEDS + 1)
        for strike in make_plan(Options(seed)).strikes
    }

    assert drawn == FAULTS.keys()
