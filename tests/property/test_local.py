"""One process over a SQLite file keeps the promise of docs/concepts/delivery.md under any faults.

A few seeds run by default; ``make test-all`` runs more, as its hypothesis profile says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers import examples, rest_long
from tests.simulation import local_traces
from tests.simulation.disk import ENDINGS
from tests.simulation.local import system_of

SEEDS = 6
MORE_SEEDS = examples(30)
SEEN_WITHIN = 30  # seeds


@pytest.mark.slow
@pytest.mark.parametrize("seed", rest_long(range(SEEDS + MORE_SEEDS), SEEDS))
def test_figures_are_those_of_one_pass_despite_faults(seed: int, tmp_path: Path) -> None:
    """Kills, torn writes, full disks and wrong clocks occur in any order and mix; nothing that was
    acknowledged is lost, and what was sent again counts once."""
    system, actions = system_of(seed, tmp_path)

    asyncio.run(system.play(actions))


@pytest.mark.parametrize("seed", rest_long(range(SEEDS + MORE_SEEDS), SEEDS))
def test_traces_are_told_once_despite_faults(seed: int, tmp_path: Path) -> None:
    """Kills, torn writes and full disks occur in any order and mix, and old spans are deleted. The
    events are those of one pass over the spans, and each score of a result is a label, once."""
    system, actions = local_traces.system_of(seed, tmp_path)

    asyncio.run(system.play(actions))


@pytest.mark.long
def test_the_schedules_cover_every_fault(tmp_path: Path) -> None:
    """In a few seeds the process dies in everything that it does, and every fault occurs."""
    seen: Counter[str] = Counter()
    for seed in range(SEEN_WITHIN):
        folder = tmp_path / str(seed)
        folder.mkdir()
        system, actions = system_of(seed, folder)
        asyncio.run(system.play(actions))
        seen += system.disk.seen

    doings = ("send", "read", "look after", "commit", "trim")
    assert {*ENDINGS, *(f"died in {what}" for what in doings)} <= seen.keys()
