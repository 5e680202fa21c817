"""A build of new state gives the figures of one pass under the new settings, despite any faults.

A few seeds run by default; ``make test-all`` runs more, as its hypothesis profile says.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.helpers import examples, rest_long
from tests.simulation.building_schedule import drawn, play

SEEDS = 10
FEW = 3
MORE_SEEDS = examples(50)
SEEN_WITHIN = 60  # seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", rest_long(range(SEEDS + MORE_SEEDS), SEEDS))
def test_a_build_gives_one_pass_under_the_new_settings_despite_faults(seed: int) -> None:
    """The faults are crashes of workers of both generations and of the command, rebalances, lost
    answers and rollbacks at any step of the build and the switch, and a worker that sleeps."""
    builders, actions = drawn(seed)

    asyncio.run(play(builders, actions))


@pytest.mark.slow
@pytest.mark.parametrize("seed", rest_long(range(FEW + MORE_SEEDS), FEW))
def test_more_partitions_are_built_through_an_internal_topic(seed: int) -> None:
    """Also back to the input topics, whatever happens; nothing is lost on the output topic."""
    builders, actions = drawn(seed, internal=3)

    asyncio.run(play(builders, actions))


@pytest.mark.slow
@pytest.mark.parametrize("internal", [0, 3])
@pytest.mark.parametrize("seed", rest_long(range(FEW + MORE_SEEDS), FEW))
def test_what_was_forgotten_before_the_log_begins_stays_forgotten(seed: int, internal: int) -> None:
    """A build from what is retained gives one pass over that, without conversations of which only
    the first generation has read the forget; whatever happens, and with more partitions too."""
    builders, actions = drawn(seed, internal=internal, retained=True)

    asyncio.run(play(builders, actions))


@pytest.mark.long
def test_the_schedules_cover_every_step() -> None:
    """In a few seeds builds are given up or decided, and processes die at each call of a switch."""
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
