"""State built anew beside the one in force gives one pass under the new settings, whatever happens.

A few seeds; ``make test-all`` plays as many more as its hypothesis profile has examples.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.helpers import examples, rest_long
from tests.simulation.building import drawn, play

SEEDS = 25
MORE_SEEDS = examples(100)
SEEN_WITHIN = 60  # seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", rest_long(range(SEEDS + MORE_SEEDS), SEEDS))
def test_whatever_happens_a_build_gives_one_pass_under_the_new_settings(seed: int) -> None:
    """Crashes of workers of both generations and of the command, rebalances, lost answers and
    roll-backs, at any step of the build and of the switch; and one who sleeps through all of it."""
    builders, actions = drawn(seed)

    asyncio.run(play(builders, actions))


@pytest.mark.slow
def test_the_schedules_hold_every_step() -> None:
    """A few seeds have builds given up, decided, and processes die at every call of a switch."""
    seen: Counter[str] = Counter()
    for seed in range(SEEN_WITHIN):
        builders, actions = drawn(seed)
        asyncio.run(play(builders, actions))
        seen += builders.seen

    calls = {"layout", "change_layout", "freeze", "wipe", "describe", "claim", "write"}
    wanted = {"decided", "decided again", "given up", "superseded", "store went back", "registered"}
    died = {name.removeprefix(way) for name in seen for way in ("died at ", "command ")}
    assert wanted <= seen.keys()
    assert calls <= died
