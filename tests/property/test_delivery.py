"""The promise of docs/delivery.md, held against any order of troubles.

Fifty seeds, 100 in CI; ``HYPOTHESIS_PROFILE=thorough`` plays 2500.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import settings

from tests.simulation.schedule import play, system_of
from tests.simulation.troubled import KINDS

SEEDS = settings().max_examples // 2
SEEN_WITHIN = 50  # seeds


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_the_figures_are_those_of_one_pass(seed: int) -> None:
    """Crashes, rebalances, lost answers, roll-backs and wrong clocks, in any order and mix."""
    system, actions = system_of(seed)

    asyncio.run(play(system, actions))


def test_the_schedules_hold_every_trouble() -> None:
    """A few seeds have workers die at every call, refused writes, and conversations expire."""
    seen: Counter[str] = Counter()
    for seed in range(SEEN_WITHIN):
        system, actions = system_of(seed)
        asyncio.run(play(system, actions))
        seen += system.seen

    calls = {"load", "write", "claim", "describe", "admit", "send", "idle", "time_ms"}
    wanted = {"Written", "Fenced", "Moved", "expired", "store went back", *KINDS}
    assert wanted | {f"died at {call}" for call in calls} <= seen.keys()
